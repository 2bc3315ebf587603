/* tests/bench/bench.c - options, medians of interleaved rounds, a table or JSON. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_ROUNDS = 31 };

static int print_help(const char *program, const char *title, const char *about)
{
    printf("usage: %s [--json] [--full] [--rounds N] [--help]\n"
           "%s: %s\n"
           "  --json      print JSON instead of a table\n"
           "  --full      also what takes long or much memory, where there is such a thing\n"
           "  --rounds N  rounds of every measurement, 1 ... %d (%d)\n"
           "A ratio is the median of ours / limit, measured in turn: 1 is at the limit, more is "
           "worse.\n"
           "Exits 1 if a result is wrong, or a ratio is beyond the worst that the figure stands "
           "for.\n",
           program, title, about, BENCH_MAX_ROUNDS, DEFAULT_ROUNDS);
    return 0;
}

int bench_begin(struct bench *bench, int argc, char **argv, const char *title, const char *about)
{
    *bench = (struct bench){.title = title, .num_rounds = DEFAULT_ROUNDS};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return print_help(argv[0], title, about);
        if (!strcmp(argv[i], "--json")) {
            bench->is_json = true;
            continue;
        }
        if (!strcmp(argv[i], "--full")) {
            bench->is_full = true;
            continue;
        }
        char *end = NULL;
        long num_rounds =
            !strcmp(argv[i], "--rounds") && argv[i + 1] ? strtol(argv[++i], &end, 10) : 0;
        if (num_rounds < 1 || num_rounds > BENCH_MAX_ROUNDS || *end) {
            fprintf(stderr, "%s: cannot use '%s'; see --help\n", argv[0], argv[i]);
            return 2;
        }
        bench->num_rounds = (size_t)num_rounds;
    }

    if (bench->is_json)
        printf("{\"title\": \"%s\", \"rounds\": %zu, \"rows\": [", title, bench->num_rounds);
    else
        printf("%s: %s; medians of %zu rounds\n%-40s %12s %-10s %12s  %-34s %6s\n", title, about,
               bench->num_rounds, "", "ours", "", "limit", "", "ratio");
    return -1;
}

uint64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t num_values)
{
    qsort(values, num_values, sizeof(*values), compare_doubles);
    return (values[(num_values - 1) / 2] + values[num_values / 2]) / 2;
}

void bench_run(const struct bench *bench, struct bench_case *cases, size_t num_cases)
{
    double sorted[BENCH_MAX_ROUNDS];

    for (size_t i = 0; i < num_cases; i++)
        cases[i].run(cases[i].state);
    for (size_t round = 0; round < bench->num_rounds; round++) {
        for (size_t i = 0; i < num_cases; i++) {
            const uint64_t start = bench_now_ns();

            cases[i].run(cases[i].state);
            cases[i].samples_ns[round] = (double)(bench_now_ns() - start) / cases[i].num_items;
        }
    }
    for (size_t i = 0; i < num_cases; i++) {
        memcpy(sorted, cases[i].samples_ns, bench->num_rounds * sizeof(sorted[0]));
        cases[i].median_ns = bench_median(sorted, bench->num_rounds);
    }
}

double bench_ratio(const struct bench *bench, const struct bench_case *run,
                   const struct bench_case *limit)
{
    double ratios[BENCH_MAX_ROUNDS];

    for (size_t round = 0; round < bench->num_rounds; round++)
        ratios[round] = run->samples_ns[round] / limit->samples_ns[round];
    return bench_median(ratios, bench->num_rounds);
}

void bench_report(struct bench *bench, const struct bench_row *row)
{
    const bool is_worse = row->worst_ratio > 0 && row->ratio > row->worst_ratio;

    if (bench->is_json)
        printf("%s\n {\"name\": \"%s\", \"ours\": %.3f, \"unit\": \"%s\", \"limit_name\": \"%s\", "
               "\"limit\": %.3f, \"ratio\": %.3f, \"worst_ratio\": %.3f}",
               bench->num_rows ? "," : "", row->name, row->ours, row->unit, row->limit_name,
               row->limit, row->ratio, row->worst_ratio);
    else
        printf("%-40s %12.1f %-10s %12.1f  %-34s %6.2f%s\n", row->name, row->ours, row->unit,
               row->limit, row->limit_name, row->ratio, is_worse ? "  too slow" : "");
    bench->num_rows++;
    bench->has_failed |= is_worse;
}

void bench_fail(struct bench *bench, const char *what)
{
    fprintf(stderr, "%s: %s\n", bench->title, what);
    bench->has_failed = true;
}

int bench_end(struct bench *bench)
{
    if (bench->is_json)
        printf("]}\n");
    return bench->has_failed;
}
