/* daemon/stats.c - which numbers there are, and how the owner takes a snapshot of them. */
#include "daemon/stats.h"

#include "daemon/log.h"
#include "daemon/stats_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM(array) (sizeof(array) / sizeof((array)[0]))
#define MEMORY(field) offsetof(struct gpu_memory, field), NULL, NULL
#define PAYER(field) offsetof(struct pool_payer_stats, field), NULL, NULL

/* clang-format off */
static const struct stats_row device_rows[] = {
    {"device_budget_bytes",    "ceiling of all arenas together",              STATS_GAUGE, MEMORY(budget_bytes)},
    {"device_charged_bytes",   "granules that have, gain or lose memory",     STATS_GAUGE, MEMORY(charged_bytes)},
    {"device_populate_bytes",  "memory to be taken from the machine at start", STATS_GAUGE, MEMORY(populate_bytes)},
    {"device_populated_bytes", "memory taken from the machine so far",        STATS_GAUGE, MEMORY(populated_bytes)},
};
static const struct stats_row payer_rows[] = {
    {"payer_held",               "published blocks that somebody holds",         STATS_GAUGE,   PAYER(held)},
    {"payer_evictable",          "cached blocks that nobody holds",              STATS_GAUGE,   PAYER(evictable)},
    {"payer_reserved",           "blocks that are not published",                STATS_GAUGE,   PAYER(reserved)},
    {"payer_quarantined",        "slots that somebody outside may still touch",  STATS_GAUGE,   PAYER(quarantined)},
    {"payer_free",               "free slots of its committed granules",         STATS_GAUGE,   PAYER(free)},
    {"payer_evictions_suffered", "its cached blocks that were evicted",          STATS_COUNTER, PAYER(evictions_suffered)},
    {"payer_evictions_caused",   "cached blocks evicted for its allocations",    STATS_COUNTER, PAYER(evictions_caused)},
    {"payer_query_tokens",       "tokens of its allocations and resumes",        STATS_COUNTER, PAYER(query_tokens)},
    {"payer_hit_tokens",         "of them, found in the cache",                  STATS_COUNTER, PAYER(hit_tokens)},
};
/* clang-format on */
static const struct stats_row charged_row = {
    "payer_charged_pages", "pages of its granules, on all devices", STATS_GAUGE, 0, NULL, NULL};
enum { MAX_POOL_NUMBERS = 128 };

const char *stats_state_name(enum stats_state state)
{
    static const char *const names[] = {
        [STATS_STARTING] = "starting", [STATS_RECOVERING] = "recovering", [STATS_READY] = "ready",
        [STATS_DRAINING] = "draining", [STATS_STOPPING] = "stopping",
    };
    return names[state];
}

const char *stats_line_name(const struct stats *stats, size_t line)
{
    return line < stats->options.num_labels ? stats->payers[line].name : "other";
}

/* ---- which numbers there are ------------------------------------------------------------------
 */

static bool is_word(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strlen(name);

    return length > 0 && length < STATS_NAME / 2 && strspn(name, allowed) == length &&
           name[0] != '_' && !(name[0] >= '0' && name[0] <= '9');
}

/* What the text formats add themselves, or give a meaning to. */
static bool has_taken_ending(const char *name)
{
    static const char *const endings[] = {"_total",  "_created", "_info",
                                          "_bucket", "_count",   "_sum"};

    for (size_t i = 0; i < NUM(endings); i++) {
        size_t length = strlen(name), end = strlen(endings[i]);
        if (length >= end && strcmp(name + length - end, endings[i]) == 0)
            return true;
    }
    return false;
}

static bool is_text_ok(const char *text, size_t max)
{
    size_t length = text ? strlen(text) : 0;

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f || text[i] == '"' ||
            text[i] == '\\')
            return false;
    return length > 0 && length <= max;
}

/* Of one name: neighbours, of one kind and help, which differ in their label's value. */
static bool fits_before(const struct stats_number *numbers, size_t count,
                        const struct stats_number *next)
{
    for (size_t i = 0; i < count; i++) {
        const struct stats_number *number = &numbers[i];
        if (strcmp(number->name, next->name) != 0)
            continue;
        if (!number->label || !next->label || strcmp(number->label, next->label) != 0 ||
            number->kind != next->kind || strcmp(number->value, next->value) == 0 ||
            strcmp(numbers[count - 1].name, next->name) != 0)
            return false;
    }
    return true;
}

static int add_number(struct stats_number *numbers, size_t *count, const char *prefix,
                      const struct stats_row *row)
{
    if (*count == STATS_MAX_NUMBERS || !is_word(row->name) || has_taken_ending(row->name) ||
        !is_text_ok(row->help, 200) || !row->label != !row->value ||
        (row->label && (!is_word(row->label) || !is_text_ok(row->value, STATS_PAYER_NAME))))
        return -EINVAL;
    struct stats_number *number = &numbers[*count];
    *number = (struct stats_number){
        .help = row->help, .kind = row->kind, .label = row->label, .value = row->value};
    (void)snprintf(number->name, sizeof(number->name), "%s%s", prefix, row->name);
    if (!fits_before(numbers, *count, number))
        return -EINVAL;
    ++*count;
    return 0;
}

static int add_rows(struct stats_number *numbers, size_t *count, const struct stats_row *rows,
                    size_t num_rows)
{
    int err = 0;

    for (size_t i = 0; i < num_rows && !err; i++)
        err = add_number(numbers, count, "", &rows[i]);
    return err;
}

static int add_pool_numbers(struct stats *stats)
{
    struct pool_stat found[MAX_POOL_NUMBERS];
    size_t num_found = pool_stats(stats->options.pool, found, MAX_POOL_NUMBERS);

    if (num_found > MAX_POOL_NUMBERS)
        return -EINVAL;
    for (size_t i = 0; i < num_found; i++) {
        const struct stats_row row = {.name = found[i].name,
                                      .help = found[i].help,
                                      .kind = found[i].is_gauge ? STATS_GAUGE : STATS_COUNTER};
        int err = add_number(stats->numbers, &stats->num_numbers, "pool_", &row);
        if (err)
            return err;
    }
    stats->num_pool_numbers = num_found;
    return 0;
}

static int add_all_numbers(struct stats *stats)
{
    const struct stats_options *options = &stats->options;
    int err = add_pool_numbers(stats);

    if (!err && options->device) {
        stats->num_device_numbers = NUM(device_rows);
        err = add_rows(stats->numbers, &stats->num_numbers, device_rows, NUM(device_rows));
    }
    for (size_t i = 0; i < STATS_MAX_TABLES && !err; i++)
        err = add_rows(stats->numbers, &stats->num_numbers, options->tables[i].rows,
                       options->tables[i].num_rows);
    if (!err)
        err =
            add_rows(stats->payer_numbers, &stats->num_payer_numbers, payer_rows, NUM(payer_rows));
    if (!err)
        err = add_rows(stats->payer_numbers, &stats->num_payer_numbers, &charged_row, 1);
    for (size_t i = 0; i < STATS_MAX_TABLES && !err; i++)
        err = add_rows(stats->payer_numbers, &stats->num_payer_numbers,
                       options->payer_tables[i].rows, options->payer_tables[i].num_rows);
    return err;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static int snapshot_init(const struct stats *stats, struct stats_snapshot *snapshot)
{
    size_t num_lines = stats->options.num_labels + 1;

    snapshot->numbers = calloc(stats->num_numbers, sizeof(uint64_t));
    snapshot->payers = calloc(num_lines * stats->num_payer_numbers, sizeof(uint64_t));
    if (stats->options.evictions)
        snapshot->evictions = calloc(num_lines * num_lines, sizeof(uint64_t));
    if (!snapshot->numbers || !snapshot->payers ||
        (stats->options.evictions && !snapshot->evictions))
        return -ENOMEM;
    return 0;
}

int stats_create(const struct stats_options *options, struct stats **out_stats)
{
    if (!options->pool || options->num_labels > STATS_MAX_LABELS || options->max_payers == 0)
        return -EINVAL;
    struct stats *stats = calloc(1, sizeof(*stats));
    if (!stats)
        return -ENOMEM;

    stats->options = *options;
    if (stats->options.num_labels > options->max_payers)
        stats->options.num_labels = options->max_payers;
    int err = add_all_numbers(stats);
    if (err)
        goto fail;
    err = -ENOMEM;
    stats->payers = calloc(options->max_payers, sizeof(*stats->payers));
    if (!stats->payers)
        goto fail;
    for (unsigned i = 0; i < STATS_NUM_SNAPSHOTS; i++) {
        err = snapshot_init(stats, &stats->snapshots[i]);
        if (err)
            goto fail;
    }
    stats->reading = 1;
    atomic_init(&stats->between, 2);
    *out_stats = stats;
    return 0;

fail:
    stats_destroy(stats);
    return err;
}

void stats_destroy(struct stats *stats)
{
    if (!stats)
        return;
    for (unsigned i = 0; i < STATS_NUM_SNAPSHOTS; i++) {
        free(stats->snapshots[i].numbers);
        free(stats->snapshots[i].payers);
        free(stats->snapshots[i].evictions);
    }
    free(stats->payers);
    free(stats);
}

int stats_add_payer(struct stats *stats, pool_payer payer, const char *name, bool is_domain)
{
    if (!is_text_ok(name, STATS_PAYER_NAME))
        return -EINVAL;
    if (stats->num_payers == stats->options.max_payers)
        return -ENOSPC;
    struct stats_payer *record = &stats->payers[stats->num_payers++];
    *record = (struct stats_payer){.payer = payer, .is_domain = is_domain};
    (void)snprintf(record->name, sizeof(record->name), "%s", name);
    return 0;
}

int stats_add_fallback(struct stats *stats, const char *name, const char *cost, int reason)
{
    for (size_t i = 0; i < stats->num_fallbacks; i++)
        if (strcmp(stats->fallbacks[i].name, name) == 0)
            return 0;
    if (stats->num_fallbacks == STATS_MAX_FALLBACKS)
        return -ENOSPC;
    stats->fallbacks[stats->num_fallbacks++] =
        (struct gpu_fallback){.name = name, .cost = cost, .reason = reason};
    log_event(LOG_WARN, "fallback", log_text("name", name), log_text("cost", cost),
              log_error("reason", reason));
    return 0;
}

void stats_drop_fallback(struct stats *stats, const char *name)
{
    for (size_t i = 0; i < stats->num_fallbacks; i++) {
        if (strcmp(stats->fallbacks[i].name, name) != 0)
            continue;
        stats->num_fallbacks--;
        memmove(&stats->fallbacks[i], &stats->fallbacks[i + 1],
                (stats->num_fallbacks - i) * sizeof(stats->fallbacks[0]));
        return;
    }
}

size_t stats_fallbacks(const struct stats *stats, struct gpu_fallback *out, size_t max)
{
    const struct gpu_device *device = stats->options.device;
    size_t count = device ? gpu_device_fallbacks(device, out, max) : 0;

    for (size_t i = 0; i < stats->num_fallbacks; i++, count++)
        if (count < max)
            out[count] = stats->fallbacks[i];
    return count;
}

void stats_set_state(struct stats *stats, enum stats_state state)
{
    stats->state = state;
}

/* ---- taking a snapshot ------------------------------------------------------------------------
 */

static uint64_t number_at(const void *base, size_t offset)
{
    uint64_t number;

    memcpy(&number, (const char *)base + offset, sizeof(number));
    return number;
}

static uint64_t *take_rows(const struct stats_row *rows, size_t num_rows, const void *base,
                           uint64_t *out)
{
    for (size_t i = 0; i < num_rows; i++)
        *out++ = number_at(base, rows[i].offset);
    return out;
}

static void take_numbers(const struct stats *stats, uint64_t *out)
{
    struct pool_stat found[MAX_POOL_NUMBERS];

    (void)pool_stats(stats->options.pool, found, MAX_POOL_NUMBERS);
    for (size_t i = 0; i < stats->num_pool_numbers; i++)
        *out++ = found[i].value;
    if (stats->options.device) {
        struct gpu_memory memory;
        gpu_device_memory(stats->options.device, &memory);
        out = take_rows(device_rows, NUM(device_rows), &memory, out);
    }
    for (size_t i = 0; i < STATS_MAX_TABLES; i++) {
        const struct stats_table *table = &stats->options.tables[i];
        out = take_rows(table->rows, table->num_rows, table->base, out);
    }
}

void stats_payer_fill(const struct stats *stats, pool_payer payer, uint64_t *out)
{
    struct pool_payer_stats found = {0};
    uint64_t pages = 0;

    (void)pool_payer_stats(stats->options.pool, payer, &found); /* zeros for one that is gone */
    for (size_t i = 0; i < POOL_MAX_DEVICES; i++)
        pages += found.charged_pages[i];
    out = take_rows(payer_rows, NUM(payer_rows), &found, out);
    *out++ = pages;
    for (size_t i = 0; i < STATS_MAX_TABLES; i++) {
        const struct stats_table *table = &stats->options.payer_tables[i];
        if (table->num_rows > 0)
            out = take_rows(table->rows, table->num_rows,
                            (const char *)table->base + payer * table->stride, out);
    }
}

static void take_payers(const struct stats *stats, struct stats_snapshot *snapshot)
{
    uint64_t one[STATS_MAX_NUMBERS];
    uint64_t *others = stats_payer_line(stats, snapshot, stats->options.num_labels);

    snapshot->num_payers = stats->num_payers;
    if (snapshot->num_payers > stats->options.num_labels)
        snapshot->num_payers = stats->options.num_labels;
    snapshot->num_others = stats->num_payers - snapshot->num_payers;
    for (size_t i = 0; i < snapshot->num_payers; i++)
        stats_payer_fill(stats, stats->payers[i].payer, stats_payer_line(stats, snapshot, i));
    memset(others, 0, stats->num_payer_numbers * sizeof(*others));
    for (size_t i = snapshot->num_payers; i < stats->num_payers; i++) {
        stats_payer_fill(stats, stats->payers[i].payer, one);
        for (size_t k = 0; k < stats->num_payer_numbers; k++)
            others[k] += one[k];
    }
}

/* What payers without a label did and suffered is what the sums have beyond those with one. */
static uint64_t beyond(uint64_t sum, uint64_t part)
{
    return sum > part ? sum - part : 0;
}

static void take_evictions(const struct stats *stats, struct stats_snapshot *snapshot)
{
    enum { SUFFERED = 5, CAUSED = 6 }; /* in payer_rows */
    size_t other = stats->options.num_labels, num_lines = other + 1;
    uint64_t all_others = stats_payer_line(stats, snapshot, other)[SUFFERED];

    for (size_t by = 0; by < snapshot->num_payers; by++) {
        uint64_t sum = 0;
        for (size_t of = 0; of < snapshot->num_payers; of++) {
            uint64_t count = stats->options.evictions(stats->options.pool, stats->payers[by].payer,
                                                      stats->payers[of].payer);
            snapshot->evictions[by * num_lines + of] = count;
            sum += count;
        }
        sum = beyond(stats_payer_line(stats, snapshot, by)[CAUSED], sum);
        snapshot->evictions[by * num_lines + other] = sum;
        all_others = beyond(all_others, sum);
    }
    for (size_t of = 0; of < snapshot->num_payers; of++) {
        uint64_t sum = 0;
        for (size_t by = 0; by < snapshot->num_payers; by++)
            sum += snapshot->evictions[by * num_lines + of];
        snapshot->evictions[other * num_lines + of] =
            beyond(stats_payer_line(stats, snapshot, of)[SUFFERED], sum);
    }
    snapshot->evictions[other * num_lines + other] = all_others;
}

void stats_take(struct stats *stats, uint64_t now_ms)
{
    struct stats_snapshot *snapshot = &stats->snapshots[stats->writing];

    snapshot->number = ++stats->num_taken;
    snapshot->taken_ms = now_ms;
    snapshot->first_ms = stats->num_taken == 1 ? now_ms : stats->snapshots[stats->latest].first_ms;
    snapshot->state = stats->state;
    snapshot->num_fallbacks = stats_fallbacks(stats, snapshot->fallbacks, STATS_MAX_FALLBACKS);
    if (snapshot->num_fallbacks > STATS_MAX_FALLBACKS)
        snapshot->num_fallbacks = STATS_MAX_FALLBACKS;
    take_numbers(stats, snapshot->numbers);
    take_payers(stats, snapshot);
    if (snapshot->evictions)
        take_evictions(stats, snapshot);

    stats->latest = stats->writing;
    unsigned before = atomic_exchange_explicit(&stats->between, stats->writing | STATS_IS_NEW,
                                               memory_order_acq_rel);
    stats->writing = before & ~(unsigned)STATS_IS_NEW;
}

uint64_t stats_number(const struct stats *stats)
{
    return stats->num_taken;
}

/* ---- the reader -------------------------------------------------------------------------------
 */

const struct stats_snapshot *stats_borrow(struct stats *stats)
{
    if ((atomic_load_explicit(&stats->between, memory_order_relaxed) & STATS_IS_NEW) != 0) {
        unsigned found =
            atomic_exchange_explicit(&stats->between, stats->reading, memory_order_acq_rel);
        stats->reading = found & ~(unsigned)STATS_IS_NEW;
    }
    const struct stats_snapshot *snapshot = &stats->snapshots[stats->reading];
    return snapshot->number > 0 ? snapshot : NULL;
}

uint64_t stats_snapshot_ms(const struct stats_snapshot *snapshot)
{
    return snapshot->taken_ms;
}

enum stats_state stats_snapshot_state(const struct stats_snapshot *snapshot)
{
    return snapshot->state;
}
