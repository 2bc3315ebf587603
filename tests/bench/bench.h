/*
 * tests/bench/bench.h - what every benchmark shares: options, medians, a table or JSON.
 *
 * A figure is worth something only beside a limit measured in the same minute: the machine is
 * shared and its clock moves. So cases that are compared run in turn, round after round, and a
 * ratio is the median of the rounds' ratios. A ratio says how many times worse than its limit we
 * are: 1 is at the limit, below 1 is better. A row may name the worst ratio that it allows; beyond
 * it the benchmark exits 1.
 *
 *     int status = bench_begin(&bench, argc, argv, "keys", "what it measures");
 *     if (status >= 0)
 *         return status;
 *     bench_run(&bench, cases, 2);
 *     row.ours = cases[0].median_ns;
 *     row.limit = cases[1].median_ns;
 *     row.ratio = bench_ratio(&bench, &cases[0], &cases[1]);
 *     bench_report(&bench, &row);
 *     return bench_end(&bench);
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_MAX_ROUNDS = 1001 };

struct bench {
    const char *title;
    bool is_json;
    bool is_full;      /* --full: also what takes long or much memory */
    size_t num_rounds; /* --rounds */
    size_t num_rows;
    bool has_failed; /* a row was beyond its worst ratio, or bench_fail() was called */
};

/* Something to time. run() is called once a round and does num_items of work. */
struct bench_case {
    void (*run)(void *state);
    void *state;
    double num_items;
    double median_ns;                    /* out: of one item */
    double samples_ns[BENCH_MAX_ROUNDS]; /* out: of one item, by round */
};

struct bench_row {
    const char *name;
    double ours;
    const char *unit;
    const char *limit_name;
    double limit;
    double ratio;
    double worst_ratio; /* 0: none */
};

/* Reads --json, --full, --rounds N and --help. Returns the status to exit with, or -1: go on. */
int bench_begin(struct bench *bench, int argc, char **argv, const char *title, const char *about);

/* Times the cases in turn for all rounds, after one round that is not counted. */
void bench_run(const struct bench *bench, struct bench_case *cases, size_t num_cases);

/* The median over the rounds of case / limit. */
double bench_ratio(const struct bench *bench, const struct bench_case *run,
                   const struct bench_case *limit);

void bench_report(struct bench *bench, const struct bench_row *row);

/* A wrong result: said on stderr, and bench_end() returns 1. */
void bench_fail(struct bench *bench, const char *what);

/* Returns the status to exit with. */
int bench_end(struct bench *bench);

uint64_t bench_now_ns(void);

/* Sorts @values. */
double bench_median(double *values, size_t num_values);
