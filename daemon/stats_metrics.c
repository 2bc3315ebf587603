/*
 * daemon/stats_metrics.c - a snapshot as Prometheus text.
 *
 * The two formats differ in the name of a counter's family (OpenMetrics: without _total), in the
 * type of what is constant (info), and in the end (# EOF). Lines of one family stand together, a
 * family stands once, and nothing is printed twice.
 */
#include "daemon/stats_internal.h"
#include "daemon/text.h"

#include <string.h>

struct writer {
    struct text *out;
    bool is_openmetrics;
};

static void add_family(const struct writer *to, const char *name, const char *help,
                       enum stats_kind kind)
{
    bool is_counter = kind == STATS_COUNTER;
    const char *ending = is_counter && !to->is_openmetrics ? "_total" : "";

    text_printf(to->out, "# HELP kvpoold_%s%s %s\n# TYPE kvpoold_%s%s %s\n", name, ending, help,
                name, ending, is_counter ? "counter" : "gauge");
}

/* The name of a sample, up to where its labels begin. */
static void add_name(const struct writer *to, const char *name, enum stats_kind kind)
{
    text_printf(to->out, "kvpoold_%s%s", name, kind == STATS_COUNTER ? "_total" : "");
}

static void add_label(const struct writer *to, const char *before, const char *label,
                      const char *value)
{
    text_printf(to->out, "%s%s=\"", before, label);
    text_add_label(to->out, value);
    text_add(to->out, "\"");
}

static void add_value(const struct writer *to, uint64_t value)
{
    text_printf(to->out, " %llu\n", (unsigned long long)value);
}

static bool is_first_of_name(const struct stats_number *numbers, size_t i)
{
    return i == 0 || strcmp(numbers[i].name, numbers[i - 1].name) != 0;
}

static void add_build(const struct writer *to, const struct stats *stats)
{
    if (to->is_openmetrics)
        text_add(to->out, "# HELP kvpoold_build What runs.\n# TYPE kvpoold_build info\n");
    else
        add_family(to, "build_info", "What runs.", STATS_GAUGE);
    text_add(to->out, "kvpoold_build_info");
    add_label(to, "{", "version", stats->options.version ? stats->options.version : "");
    add_label(to, ",", "boot_id", stats->options.boot_id);
    text_add(to->out, "} 1\n");
}

static void add_states(const struct writer *to, const struct stats_snapshot *snapshot)
{
    add_family(to, "state", "1 for the state that the daemon is in.", STATS_GAUGE);
    for (enum stats_state state = STATS_STARTING; state <= STATS_STOPPING; state++) {
        add_name(to, "state", STATS_GAUGE);
        add_label(to, "{", "state", stats_state_name(state));
        text_add(to->out, "}");
        add_value(to, state == snapshot->state);
    }
    add_family(to, "snapshots", "snapshots taken by the owner thread", STATS_COUNTER);
    add_name(to, "snapshots", STATS_COUNTER);
    add_value(to, snapshot->number);
    add_family(to, "uptime_seconds", "from the first snapshot to this one", STATS_GAUGE);
    add_name(to, "uptime_seconds", STATS_GAUGE);
    text_printf(to->out, " %llu.%03llu\n",
                (unsigned long long)(snapshot->taken_ms - snapshot->first_ms) / 1000,
                (unsigned long long)(snapshot->taken_ms - snapshot->first_ms) % 1000);
}

static void add_fallbacks(const struct writer *to, const struct stats_snapshot *snapshot)
{
    add_family(to, "fallbacks", "ways in which this daemon is less than it should be", STATS_GAUGE);
    add_name(to, "fallbacks", STATS_GAUGE);
    add_value(to, snapshot->num_fallbacks);
    if (snapshot->num_fallbacks == 0)
        return;
    add_family(to, "fallback", "1 for each of them; /stats.json says what it costs", STATS_GAUGE);
    for (size_t i = 0; i < snapshot->num_fallbacks; i++) {
        add_name(to, "fallback", STATS_GAUGE);
        add_label(to, "{", "name", snapshot->fallbacks[i].name);
        text_add(to->out, "} 1\n");
    }
}

static void add_numbers(const struct writer *to, const struct stats *stats,
                        const struct stats_snapshot *snapshot)
{
    for (size_t i = 0; i < stats->num_numbers; i++) {
        const struct stats_number *number = &stats->numbers[i];
        if (is_first_of_name(stats->numbers, i))
            add_family(to, number->name, number->help, number->kind);
        add_name(to, number->name, number->kind);
        if (number->label) {
            add_label(to, "{", number->label, number->value);
            text_add(to->out, "}");
        }
        add_value(to, snapshot->numbers[i]);
    }
}

static const char *kind_of_line(const struct stats *stats, size_t line)
{
    if (line == stats->options.num_labels)
        return "other";
    return stats->payers[line].is_domain ? "domain" : "tenant";
}

static void add_payer_number(const struct writer *to, const struct stats *stats,
                             const struct stats_snapshot *snapshot, size_t line, size_t i)
{
    const struct stats_number *number = &stats->payer_numbers[i];

    add_name(to, number->name, number->kind);
    add_label(to, "{", "payer", stats_line_name(stats, line));
    add_label(to, ",", "kind", kind_of_line(stats, line));
    if (number->label)
        add_label(to, ",", number->label, number->value);
    text_add(to->out, "}");
    add_value(to, stats_payer_line(stats, snapshot, line)[i]);
}

static void add_payers(const struct writer *to, const struct stats *stats,
                       const struct stats_snapshot *snapshot)
{
    if (snapshot->num_payers == 0 && snapshot->num_others == 0)
        return;
    for (size_t i = 0; i < stats->num_payer_numbers; i++) {
        const struct stats_number *number = &stats->payer_numbers[i];
        if (is_first_of_name(stats->payer_numbers, i))
            add_family(to, number->name, number->help, number->kind);
        for (size_t line = 0; line < snapshot->num_payers; line++)
            add_payer_number(to, stats, snapshot, line, i);
        if (snapshot->num_others > 0)
            add_payer_number(to, stats, snapshot, stats->options.num_labels, i);
    }
}

/* Only pairs that happened: there could be very many. */
static void add_evictions(const struct writer *to, const struct stats *stats,
                          const struct stats_snapshot *snapshot)
{
    size_t num_lines = stats->options.num_labels + 1;

    add_family(to, "evictions", "cached blocks of one payer that another one evicted",
               STATS_COUNTER);
    for (size_t by = 0; by < num_lines; by++)
        for (size_t of = 0; of < num_lines; of++) {
            uint64_t count = snapshot->evictions[by * num_lines + of];
            if (count == 0)
                continue;
            add_name(to, "evictions", STATS_COUNTER);
            add_label(to, "{", "by", stats_line_name(stats, by));
            add_label(to, ",", "of", stats_line_name(stats, of));
            text_add(to->out, "}");
            add_value(to, count);
        }
}

void stats_snapshot_metrics(const struct stats *stats, const struct stats_snapshot *snapshot,
                            bool is_openmetrics, struct text *out)
{
    struct writer to = {.out = out, .is_openmetrics = is_openmetrics};

    add_build(&to, stats);
    add_states(&to, snapshot);
    add_fallbacks(&to, snapshot);
    add_numbers(&to, stats, snapshot);
    add_payers(&to, stats, snapshot);
    if (snapshot->evictions)
        add_evictions(&to, stats, snapshot);
    if (is_openmetrics)
        text_add(out, "# EOF\n");
}
