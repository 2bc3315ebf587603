/* daemon/settings.c - every setting, once: parsing, bounds, --help, --print-config and the manual
 * are loops over this table. */
#include "daemon/settings.h"
#include "daemon/config.h"
#include "daemon/text.h"
#include "daemon/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KiB (UINT64_C(1) << 10)
#define MiB (UINT64_C(1) << 20)
#define GiB (UINT64_C(1) << 30)
#define TiB (UINT64_C(1) << 40)
#define HOUR UINT64_C(3600000)
#define AT(field) offsetof(struct config, field)
#define LIVE true
#define FIXED false
#define SIZE SETTING_SIZE
#define COUNT SETTING_COUNT
#define DURATION SETTING_DURATION
#define MODE SETTING_MODE
#define BOOL SETTING_BOOL
#define PATH SETTING_PATH
#define WORD SETTING_WORD

/* clang-format off */
const struct setting settings[] = {
    {"run-directory",       PATH,     FIXED, AT(run_directory),       "/run/kvpoold", 2, CONFIG_MAX_PATH, "sockets: session, request, operator, stats and http.sock"},
    {"state-directory",     PATH,     FIXED, AT(state_directory),     "/var/lib/kvpoold", 2, 256, "domain secrets, domains, models, epochs and the lock; one daemon a directory"},
    {"session-mode",        MODE,     FIXED, AT(session_mode),        "0666",      0,   0777, "file mode of the sockets of engines; uid and token say who a tenant is"},
    {"operator-mode",       MODE,     FIXED, AT(operator_mode),       "0600",      0,   0770, "file mode of the operator's sockets: operator, stats and http"},

    {"pool-bytes",          SIZE,     FIXED, AT(pool_bytes),          "1GiB",  1 * MiB, 64 * TiB, "memory of all arenas together: the ceiling, in whole pages"},
    {"page-bytes",          SIZE,     FIXED, AT(page_bytes),          "2MiB", 64 * KiB,  2 * MiB, "unit of the budget: 2MiB (huge pages), or 64KiB for small pools"},
    {"populate-bytes",      SIZE,     FIXED, AT(populate_bytes),      "0",           0, 64 * TiB, "of the pool: taken from the machine at start, in the background"},
    {"pool-pinned",         BOOL,     FIXED, AT(pool_pinned),         "false",       0, 1,        "the pool's memory is pinned and interleaved over NUMA nodes, for engines that copy between it and their GPU"},
    {"watermark-pages",     COUNT,    FIXED, AT(watermark_pages),     "4",           0, 1000000,  "pages that can still be had after an allocation, so that running sequences can grow"},
    {"private-mount",       BOOL,     FIXED, AT(private_mount),       "true",        0, 1,        "arenas on a private tmpfs mount; false takes the memfd fallback"},

    {"keep",                WORD,     FIXED, AT(keep),                "auto|none|systemd|holder", 0, 3, "who keeps the memory while no daemon runs: systemd's descriptor store, a process of our own (holder), or the store where there is one (auto)"},
    {"keep-time",           DURATION, FIXED, AT(keep_ms),             "10min",       0, 720 * HOUR, "that process gives the memory up after so long without a daemon; 0: never"},

    {"host-tier-bytes",     SIZE,     FIXED, AT(host_tier_bytes),     "0",           0, 64 * TiB, "pinned memory below the pool, for what it evicts, in whole pages; 0: none"},
    {"disk-directory",      PATH,     FIXED, AT(disk_directory),      "",            0, 256,      "the disk tier: a directory for its file, or a block device; one daemon each"},
    {"disk-max-bytes",      SIZE,     FIXED, AT(disk_max_bytes),      "0",           0, UINT64_C(1) << 50, "hard ceiling of what is kept there, in physical bytes; needed with disk-directory"},
    {"disk-granule-bytes",  SIZE,     FIXED, AT(disk_granule_bytes),  "64MiB", 64 * KiB,  1 * GiB, "piece of the disk that blocks of one model and domain share, in whole 4KiB"},
    {"disk-min-block-bytes", SIZE,    FIXED, AT(disk_min_block_bytes), "64KiB", 4 * KiB,  1 * GiB, "smaller blocks take as much, in whole 4KiB: space for headers follows"},
    {"disk-max-block-bytes", SIZE,    FIXED, AT(disk_max_block_bytes), "4MiB",  4 * KiB,  1 * GiB, "larger blocks are not kept on disk; each buffer is that large"},
    {"disk-queue-depth",    COUNT,    FIXED, AT(disk_queue_depth),    "32",          1, 256,      "reads and writes that the disk has at a time; 8 more buffers"},
    {"disk-max-blocks",     COUNT,    FIXED, AT(disk_max_blocks),     "1048576",    64, 1 << 30,  "slots of all granules of the disk in use"},
    {"disk-deadline",       DURATION, FIXED, AT(disk_deadline_ms),    "10s",       100, HOUR,     "a read or write that takes longer has failed"},
    {"disk-direct",         BOOL,     FIXED, AT(disk_direct),         "true",        0, 1,        "O_DIRECT; false goes through the page cache: a fallback"},
    {"disk-io-uring",       BOOL,     FIXED, AT(disk_io_uring),       "true",        0, 1,        "io_uring; false takes threads: a fallback"},
    {"disk-optional",       BOOL,     FIXED, AT(disk_optional),       "false",       0, 1,        "go on without the disk tier where it cannot be opened: a fallback"},
    {"store-default",       WORD,     FIXED, AT(store_default),       "prompt|none|all", 0, 2,    "what of a session that says nothing is kept below the pool"},
    {"store-when",          WORD,     FIXED, AT(store_when),          "evicted|second-use|at-once", 0, 2, "when it is: ahead of eviction, when it is used again, or when it is published"},
    {"store-bytes",         SIZE,     FIXED, AT(store_bytes),         "256MiB", 64 * KiB, 1 * TiB, "being stored in one tier at a time (and at most half of the tier above is read); over it blocks are skipped"},
    {"store-rate",          SIZE,     FIXED, AT(store_rate),          "0",           0, 1 * TiB,  "bytes stored on disk in a second at most, over it blocks are skipped; 0: no limit"},
    {"ahead-bytes",         SIZE,     FIXED, AT(ahead_bytes),         "0",           0, 64 * TiB, "the next so many bytes of the pool to be evicted have a copy below; 0: a sixteenth of it"},
    {"host-ahead-bytes",    SIZE,     FIXED, AT(host_ahead_bytes),    "0",           0, 64 * TiB, "the same of the host tier; 0: a sixteenth of it"},

    {"max-blocks",          COUNT,    FIXED, AT(max_blocks),          "262144",     64, 1 << 30,  "slots of all committed granules"},
    {"max-block-tokens",    COUNT,    FIXED, AT(max_block_tokens),    "64",          1, 65535,    "tokens of a block, of any model"},
    {"max-sequences",       COUNT,    FIXED, AT(max_sequences),       "4096",        1, 1 << 24,  "sequences, preempted ones included"},
    {"max-sequence-blocks", COUNT,    FIXED, AT(max_sequence_blocks), "16384",       1, 1 << 24,  "blocks of one sequence"},
    {"max-tokens",          COUNT,    FIXED, AT(max_tokens),          "16777216",   16, UINT64_C(1) << 40, "tokens of all sequences together"},
    {"max-extra-bytes",     SIZE,     FIXED, AT(max_extra_bytes),     "64MiB", 64 * KiB, 64 * GiB, "extras of the prompts of all sequences together"},
    {"max-payers",          COUNT,    FIXED, AT(max_payers),          "256",         1, CONFIG_MAX_TENANTS + CONFIG_MAX_DOMAINS, "tenants and shared domains, those that a reload adds included"},
    {"max-models",          COUNT,    FIXED, AT(max_models),          "64",          1, 4096,     "registered models"},
    {"max-arenas",          COUNT,    FIXED, AT(max_arenas),          "512",         1, 65536,    "(domain, model, group) that are ever used"},
    {"max-transfers",       COUNT,    FIXED, AT(max_transfers),       "4096",        1, 1 << 20,  "blocks being copied at a time"},
    {"max-waiters",         COUNT,    FIXED, AT(max_waiters),         "4096",        1, 1 << 20,  "requests that wait for another sequence's fill"},
    {"max-steps",           COUNT,    FIXED, AT(max_steps),           "256",         1, 65536,    "steps open at a time, of all sessions"},
    {"max-step-rows",       COUNT,    FIXED, AT(max_step_rows),       "1024",        1, 65536,    "sequences of one step"},

    {"max-sessions",        COUNT,    FIXED, AT(max_sessions),        "256",         1, 65536,    "live engines"},
    {"max-tenant-sessions", COUNT,    LIVE,  AT(max_tenant_sessions), "64",          1, 65536,    "live engines of one tenant"},
    {"max-attached",        COUNT,    FIXED, AT(max_attached),        "16",          0, 1024,     "further processes, of all sessions together, that map arenas"},
    {"staging-bytes",       SIZE,     FIXED, AT(staging_bytes),       "64MiB", 64 * KiB,  4 * GiB, "data region of a session's staging memory, at most"},
    {"staging-min-bytes",   SIZE,     FIXED, AT(staging_min_bytes),   "1MiB",  64 * KiB,  4 * GiB, "what a session gets at least"},
    {"worker-threads",      COUNT,    FIXED, AT(worker_threads),      "0",           0, 1024,     "threads for large attends; 0: one less than there are CPUs"},
    {"spin-us",             COUNT,    LIVE,  AT(spin_us),             "50",          0, 10000,    "microseconds that rings are polled before the daemon sleeps"},
    {"hello",               DURATION, FIXED, AT(hello_ms),            "5s",        100, 60000,    "a connection says hello within this time"},
    {"deadline",            DURATION, LIVE,  AT(deadline_ms),         "30s",        10, HOUR,     "of a request that names none"},
    {"max-deadline",        DURATION, LIVE,  AT(max_deadline_ms),     "10min",      10, HOUR,     "longer ones are cut to this"},
    {"drain",               DURATION, LIVE,  AT(drain_ms),            "10s",         0, HOUR,     "sessions may end by themselves for so long after SIGTERM"},
    {"credits",             COUNT,    FIXED, AT(credits),             "256",         1, 65536,    "outstanding requests of a session"},
    {"message-bytes",       SIZE,     FIXED, AT(message_bytes),       "16MiB",  8 * MiB, 1 * GiB, "of one frame; clients send up to 8 MiB"},
    {"session-queue-bytes", SIZE,     FIXED, AT(session_queue_bytes), "64MiB", 64 * KiB, 64 * GiB, "of one session's queued requests and replies"},
    {"queue-bytes",         SIZE,     FIXED, AT(queue_bytes),         "512MiB", 1 * MiB,  1 * TiB, "of all queued requests and replies"},

    {"http",                BOOL,     FIXED, AT(http),                "true",        0, 1,        "/metrics, /stats.json, /healthz and /readyz on http.sock in the run directory"},
    {"http-port",           COUNT,    FIXED, AT(http_port),           "0",           0, 65535,    "the same on this port of 127.0.0.1, with a token; 0: not"},
    {"http-token-file",     PATH,     FIXED, AT(http_token_file),     "",            0, 256,      "one line, 16 to 128 bytes of printable ASCII without spaces, not readable by others: `Authorization: Bearer` of the port"},
    {"http-connections",    COUNT,    FIXED, AT(http_connections),    "32",          1, 1024,     "open connections, on the socket and on the port each"},
    {"stats",               DURATION, FIXED, AT(stats_ms),            "1s",        100, 60000,    "between two snapshots"},
    {"event-queue",         COUNT,    FIXED, AT(event_queue),         "1000",        1, 1000000,  "messages kept for a slow subscriber of the stats socket"},
    {"metric-tenants",      COUNT,    FIXED, AT(metric_tenants),      "32",          1, 256,      "tenants and domains with metrics of their own; the rest is summed up as `other`"},
    {"log-json",            BOOL,     LIVE,  AT(log_json),            "false",       0, 1,        "log lines are JSON objects"},
    {"log-rate",            COUNT,    LIVE,  AT(log_rate),            "20",          0, 100000,   "lines a second of one kind of event; 0: no limit"},
    {"strict",              BOOL,     FIXED, AT(strict),              "false",       0, 1,        "refuse to start where a fallback would be taken"},
};
/* clang-format on */
const size_t num_settings = sizeof(settings) / sizeof(settings[0]);

const struct setting *setting_find(const char *name)
{
    for (size_t i = 0; i < num_settings; i++)
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    return NULL;
}

/* The field of a row, as what its kind says. */
static uint64_t *number_of(const struct setting *setting, const struct config *config)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)config + setting->offset);
}

static bool *bool_of(const struct setting *setting, const struct config *config)
{
    return (bool *)((char *)(uintptr_t)config + setting->offset);
}

static char **string_of(const struct setting *setting, const struct config *config)
{
    return (char **)(void *)((char *)(uintptr_t)config + setting->offset);
}

static bool is_string(const struct setting *setting)
{
    return setting->kind == SETTING_PATH;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int number_parse(enum setting_kind kind, const char *value, uint64_t *out_number)
{
    switch (kind) {
    case SETTING_SIZE:
        return size_parse(value, out_number);
    case SETTING_DURATION:
        return duration_parse(value, out_number);
    case SETTING_MODE:
        return mode_parse(value, out_number);
    default:
        return count_parse(value, out_number);
    }
}

/* The next word of a list, and what is behind it; NULL: there is none. */
static const char *next_word(const char *words, size_t *out_length)
{
    *out_length = strcspn(words, "|");
    return words[*out_length] == '|' ? words + *out_length + 1 : NULL;
}

static int word_parse(const char *words, const char *value, uint64_t *out_number)
{
    uint64_t number = 0;

    for (const char *word = words; word; number++) {
        size_t length;
        const char *next = next_word(word, &length);
        if (strlen(value) == length && memcmp(word, value, length) == 0) {
            *out_number = number;
            return 0;
        }
        word = next;
    }
    return -EINVAL;
}

static int bool_parse(const char *value, bool *out)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return -EINVAL;
    *out = value[0] == 't';
    return 0;
}

static bool is_string_ok(const struct setting *setting, const char *value)
{
    size_t length = strlen(value);

    if (length < setting->min || length > setting->max)
        return false;
    for (const char *at = value; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    return setting->kind != SETTING_PATH || length == 0 || value[0] == '/';
}

static int string_apply(const struct setting *setting, const char *value, struct config *config)
{
    if (!is_string_ok(setting, value))
        return -EINVAL;
    char *copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    free(*string_of(setting, config));
    *string_of(setting, config) = copy;
    return 0;
}

static int number_apply(const struct setting *setting, const char *value, struct config *config)
{
    uint64_t number;
    int err = setting->kind == SETTING_WORD ? word_parse(setting->initial, value, &number)
                                            : number_parse(setting->kind, value, &number);

    if (err < 0)
        return -EINVAL;
    if (number < setting->min || number > setting->max)
        return -EINVAL;
    *number_of(setting, config) = number;
    return 0;
}

int setting_apply(const struct setting *setting, const char *value, struct config *config)
{
    if (is_string(setting))
        return string_apply(setting, value, config);
    if (setting->kind == SETTING_BOOL)
        return bool_parse(value, bool_of(setting, config));
    return number_apply(setting, value, config);
}

void setting_default(const struct setting *setting, char out[SETTING_TEXT])
{
    size_t length = strlen(setting->initial);

    if (setting->kind == SETTING_WORD)
        (void)next_word(setting->initial, &length);
    (void)snprintf(out, SETTING_TEXT, "%.*s", (int)length, setting->initial);
}

int settings_init(struct config *config)
{
    for (size_t i = 0; i < num_settings; i++) {
        char value[SETTING_TEXT];
        setting_default(&settings[i], value);
        int err = setting_apply(&settings[i], value, config);
        if (err)
            return err;
    }
    return 0;
}

void settings_finish(struct config *config)
{
    for (size_t i = 0; i < num_settings; i++)
        if (is_string(&settings[i]))
            free(*string_of(&settings[i], config));
}

/* ---- writing -------------------------------------------------------------------------------- */

static void number_format(enum setting_kind kind, uint64_t number, char out[VALUE_TEXT])
{
    switch (kind) {
    case SETTING_SIZE:
        size_format(number, out);
        return;
    case SETTING_DURATION:
        duration_format(number, out);
        return;
    case SETTING_MODE:
        (void)snprintf(out, VALUE_TEXT, "%04llo", (unsigned long long)number);
        return;
    default:
        (void)snprintf(out, VALUE_TEXT, "%llu", (unsigned long long)number);
        return;
    }
}

static void word_format(const struct setting *setting, uint64_t number, struct text *out)
{
    const char *word = setting->initial;
    size_t length;

    for (const char *next = next_word(word, &length); number > 0 && next; number--) {
        word = next;
        next = next_word(word, &length);
    }
    text_printf(out, "%.*s", (int)length, word);
}

void setting_format(const struct setting *setting, const struct config *config,
                    char out[SETTING_TEXT])
{
    struct text text = text_init(out, SETTING_TEXT);
    char number[VALUE_TEXT];

    if (is_string(setting)) {
        text_add_json(&text, *string_of(setting, config));
    } else if (setting->kind == SETTING_BOOL) {
        text_add(&text, *bool_of(setting, config) ? "true" : "false");
    } else if (setting->kind == SETTING_WORD) {
        word_format(setting, *number_of(setting, config), &text);
    } else {
        number_format(setting->kind, *number_of(setting, config), number);
        text_add(&text, number);
    }
}

void setting_expect(const struct setting *setting, char out[SETTING_TEXT])
{
    static const char *const forms[] = {
        [SETTING_SIZE] = "a size",         [SETTING_COUNT] = "a number",
        [SETTING_DURATION] = "a duration", [SETTING_MODE] = "an octal file mode",
        [SETTING_BOOL] = "true or false",  [SETTING_PATH] = "an absolute path",
        [SETTING_WORD] = "one of",
    };
    const char *form = forms[setting->kind];
    char least[VALUE_TEXT], most[VALUE_TEXT];

    if (setting->kind == SETTING_BOOL) {
        (void)snprintf(out, SETTING_TEXT, "%s", form);
    } else if (setting->kind == SETTING_WORD) {
        struct text text = text_init(out, SETTING_TEXT);
        text_add(&text, form);
        for (uint64_t word = 0; word <= setting->max; word++) {
            text_add(&text, word == 0 ? " " : ", ");
            word_format(setting, word, &text);
        }
    } else if (is_string(setting)) {
        (void)snprintf(out, SETTING_TEXT, "%s of at most %llu bytes%s", form,
                       (unsigned long long)setting->max, setting->min == 0 ? ", or \"\"" : "");
    } else {
        number_format(setting->kind, setting->min, least);
        number_format(setting->kind, setting->max, most);
        (void)snprintf(out, SETTING_TEXT, "%s from %s to %s", form, least, most);
    }
}

/* ---- comparing ------------------------------------------------------------------------------ */

bool setting_equals(const struct setting *setting, const struct config *a, const struct config *b)
{
    if (is_string(setting))
        return strcmp(*string_of(setting, a), *string_of(setting, b)) == 0;
    if (setting->kind == SETTING_BOOL)
        return *bool_of(setting, a) == *bool_of(setting, b);
    return *number_of(setting, a) == *number_of(setting, b);
}

static void swap(void *a, void *b, size_t size)
{
    char kept[sizeof(uint64_t)];

    memcpy(kept, a, size);
    memcpy(a, b, size);
    memcpy(b, kept, size);
}

void setting_swap(const struct setting *setting, struct config *a, struct config *b)
{
    size_t size = setting->kind == SETTING_BOOL ? sizeof(bool)
                  : is_string(setting)          ? sizeof(char *)
                                                : sizeof(uint64_t);

    swap((char *)a + setting->offset, (char *)b + setting->offset, size);
}
