/* daemon/stats_json.c - a snapshot as JSON, whole, or what one tenant may see of it. */
#include "daemon/stats_internal.h"
#include "daemon/text.h"

#include <string.h>

static void add_number(struct text *out, const char *name, uint64_t value)
{
    text_add_json(out, name);
    text_printf(out, ":%llu", (unsigned long long)value);
}

/* "requests":{"match":3,"allocate":1},"sessions":2 */
static void add_numbers(struct text *out, const struct stats_number *numbers, size_t count,
                        const uint64_t *values)
{
    for (size_t i = 0; i < count; i++) {
        bool is_first = i == 0 || strcmp(numbers[i].name, numbers[i - 1].name) != 0;
        bool is_last = i + 1 == count || strcmp(numbers[i].name, numbers[i + 1].name) != 0;

        if (i > 0)
            text_add(out, ",");
        if (!numbers[i].label) {
            add_number(out, numbers[i].name, values[i]);
            continue;
        }
        if (is_first) {
            text_add_json(out, numbers[i].name);
            text_add(out, ":{");
        }
        add_number(out, numbers[i].value, values[i]);
        if (is_last)
            text_add(out, "}");
    }
}

static void add_fallbacks(struct text *out, const struct stats_snapshot *snapshot)
{
    text_add(out, ",\"fallbacks\":[");
    for (size_t i = 0; i < snapshot->num_fallbacks; i++) {
        const struct gpu_fallback *fallback = &snapshot->fallbacks[i];
        const char *reason = fallback->reason ? strerrorname_np(-fallback->reason) : "asked for";
        text_add(out, i ? ",{\"name\":" : "{\"name\":");
        text_add_json(out, fallback->name);
        text_add(out, ",\"cost\":");
        text_add_json(out, fallback->cost);
        text_add(out, ",\"reason\":");
        text_add_json(out, reason ? reason : "unknown");
        text_add(out, "}");
    }
    text_add(out, "]");
}

static void add_payers(struct text *out, const struct stats *stats,
                       const struct stats_snapshot *snapshot)
{
    text_add(out, ",\"payers\":{");
    for (size_t i = 0; i < snapshot->num_payers; i++) {
        text_add(out, i ? "," : "");
        text_add_json(out, stats->payers[i].name);
        text_printf(out, ":{\"kind\":\"%s\",", stats->payers[i].is_domain ? "domain" : "tenant");
        add_numbers(out, stats->payer_numbers, stats->num_payer_numbers,
                    stats_payer_line(stats, snapshot, i));
        text_add(out, "}");
    }
    if (snapshot->num_others > 0) {
        text_printf(out, ",\"other\":{\"kind\":\"other\",\"num_payers\":%zu,",
                    snapshot->num_others);
        add_numbers(out, stats->payer_numbers, stats->num_payer_numbers,
                    stats_payer_line(stats, snapshot, stats->options.num_labels));
        text_add(out, "}");
    }
    text_add(out, "}");
}

static void add_evictions(struct text *out, const struct stats *stats,
                          const struct stats_snapshot *snapshot)
{
    size_t num_lines = stats->options.num_labels + 1;
    const char *comma = "";

    text_add(out, ",\"evictions\":[");
    for (size_t by = 0; by < num_lines; by++)
        for (size_t of = 0; of < num_lines; of++) {
            uint64_t count = snapshot->evictions[by * num_lines + of];
            if (count == 0)
                continue;
            text_printf(out, "%s{\"by\":", comma);
            text_add_json(out, stats_line_name(stats, by));
            text_add(out, ",\"of\":");
            text_add_json(out, stats_line_name(stats, of));
            text_printf(out, ",\"blocks\":%llu}", (unsigned long long)count);
            comma = ",";
        }
    text_add(out, "]");
}

void stats_snapshot_json(const struct stats *stats, const struct stats_snapshot *snapshot,
                         struct text *out)
{
    text_add(out, "{\"version\":");
    text_add_json(out, stats->options.version ? stats->options.version : "");
    text_add(out, ",\"boot_id\":");
    text_add_json(out, stats->options.boot_id);
    text_printf(out, ",\"state\":\"%s\",\"snapshot\":%llu,\"uptime_ms\":%llu",
                stats_state_name(snapshot->state), (unsigned long long)snapshot->number,
                (unsigned long long)(snapshot->taken_ms - snapshot->first_ms));
    add_fallbacks(out, snapshot);
    text_add(out, ",\"numbers\":{");
    add_numbers(out, stats->numbers, stats->num_numbers, snapshot->numbers);
    text_add(out, "}");
    add_payers(out, stats, snapshot);
    if (snapshot->evictions)
        add_evictions(out, stats, snapshot);
    text_add(out, "}");
}

void stats_json(const struct stats *stats, struct text *out)
{
    if (stats->num_taken > 0)
        stats_snapshot_json(stats, &stats->snapshots[stats->latest], out);
    else
        text_add(out, "{}");
}

void stats_payer_json(const struct stats *stats, pool_payer payer, struct text *out)
{
    uint64_t values[STATS_MAX_NUMBERS];

    for (size_t i = 0; i < stats->num_payers; i++) {
        if (stats->payers[i].payer != payer)
            continue;
        stats_payer_fill(stats, payer, values);
        text_add(out, "{\"payer\":");
        text_add_json(out, stats->payers[i].name);
        text_printf(out, ",\"state\":\"%s\",", stats_state_name(stats->state));
        add_numbers(out, stats->payer_numbers, stats->num_payer_numbers, values);
        text_add(out, "}");
        return;
    }
    text_add(out, "{}");
}

/* A line is at most a name, two labels with their values, and a number; a family two lines more. */
size_t stats_max_text(const struct stats *stats)
{
    size_t num_lines = stats->options.num_labels + 1;
    size_t num_samples = stats->num_numbers + num_lines * stats->num_payer_numbers;
    size_t num_families = stats->num_numbers + stats->num_payer_numbers;

    if (stats->options.evictions)
        num_samples += num_lines * num_lines;
    return 65536 + num_samples * 320 + num_families * 600;
}
