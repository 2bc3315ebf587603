/*
 * tests/bench/bench_tiers_load.c - what storing costs those who do not wait for it: single verbs
 * while the disk has all the stores that it can take, and prefills whose blocks are all stored.
 *
 * Beside a verb's quantiles while nothing is stored stand those while another process writes to the
 * same disk, and the daemon stores nothing: what is the disk's, and what is ours.
 */
#include "tests/bench/disturb.h"
#include "tests/bench/prompt_bed.h"
#include "tests/bench/tier_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MiB ((uint64_t)1 << 20)

enum {
    ROUNDS = 12, /* at most, and a third of it without --full */
    LOADS = 288, /* prompts that are loaded in turn: more than the pool holds */
    HELD_BLOCKS = 64,
    PREFILLS_A_RUN = 8,
    MAX_TRIPS = 300,
};

static const uint64_t DISK_BYTES = 8192 * MiB;

static struct bench bench;
static struct tier_bed bed;
static struct disturber disturber;
static struct prompt_bed *held, *loads;
static uint32_t held_tokens[HELD_BLOCKS * PROMPT_BLOCK_TOKENS], next_load;
static struct kvpool_prompt held_prompt;

static size_t rounds(void)
{
    const size_t most = bench.is_full ? ROUNDS : ROUNDS / 3;

    return bench.num_rounds < most ? bench.num_rounds : most;
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static void match(void)
{
    daemon_bed_must(held->kvpool, kvpool_match(held->kvpool, &held_prompt, NULL), "match");
}

static void allocate_warm(void)
{
    const uint64_t sequence = 1000;
    struct kvpool_result result;

    daemon_bed_must(held->kvpool,
                    kvpool_allocate(held->kvpool, sequence, &held_prompt, NULL, &result),
                    "allocate");
    held->num_wrong += result.matched != held_prompt.num_tokens;
    daemon_bed_must(held->kvpool, kvpool_release(held->kvpool, sequence), "release");
}

static void load(void)
{
    prompt_bed_get(loads, 1, LOADS, next_load++, 1);
}

/* clang-format off */
static const struct verb {
    const char *name;
    void (*run)(void);
    uint32_t num_trips; /* of a round */
} verbs[] = {
    /* Loads come first: what the others let be stored pushes theirs out of the disk tier. */
    {"load 2 MiB from disk",            load,          100},
    {"match",                           match,         300},
    {"allocate 64 warm blocks, let go", allocate_warm, 300},
};
/* clang-format on */

/* ---- single verbs --------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *values, size_t num_values, double at)
{
    qsort(values, num_values, sizeof(*values), compare_doubles);
    return values[(size_t)((double)num_values * at)];
}

enum { NUM_STATES = DISTURB_WRITES + 1, NUM_QUANTILES = 2 };
static const double quantiles[NUM_QUANTILES] = {0.5, 0.99};

/* Of single trips, by round: a round that something else disturbed does not count. */
static double rounds_us[NUM_STATES][NUM_QUANTILES][ROUNDS];

static void take(const struct verb *verb, enum disturb state, size_t round)
{
    double trips_us[MAX_TRIPS];

    for (uint32_t i = 0; i < verb->num_trips; i++) {
        const uint64_t start = bench_now_ns();
        verb->run();
        trips_us[i] = (double)(bench_now_ns() - start) / 1e3;
    }
    for (size_t at = 0; at < NUM_QUANTILES; at++)
        rounds_us[state][at][round] = quantile(trips_us, verb->num_trips, quantiles[at]);
}

static void report(const struct verb *verb, size_t num_rounds, size_t at, enum disturb beside)
{
    char name[64];
    double ours[ROUNDS], limit[ROUNDS], ratios[ROUNDS];

    for (size_t round = 0; round < num_rounds; round++) {
        ours[round] = rounds_us[DISTURB_STORES][at][round];
        limit[round] = rounds_us[beside][at][round];
        ratios[round] = ours[round] / limit[round];
    }
    (void)snprintf(name, sizeof(name), "%s: p%.0f", verb->name, quantiles[at] * 100);
    bench_report(&bench, &(struct bench_row){.name = name,
                                             .ours = bench_median(ours, num_rounds),
                                             .unit = "us",
                                             .limit_name = beside == DISTURB_NOT
                                                               ? "nothing is stored"
                                                               : "another process writes there",
                                             .limit = bench_median(limit, num_rounds),
                                             .ratio = bench_median(ratios, num_rounds)});
}

static void measure_verb(const struct verb *verb)
{
    static const enum disturb states[] = {DISTURB_NOT, DISTURB_STORES, DISTURB_WRITES};
    const size_t num_rounds = rounds();

    for (size_t round = 0; round < num_rounds; round++) {
        for (size_t i = 0; i < NUM_STATES; i++) {
            disturber_set(&disturber, states[i]);
            take(verb, states[i], round);
            if (states[i] == DISTURB_STORES) {
                disturber_set(&disturber, DISTURB_NOT);
                tier_bed_settle(&bed, "disk");
            }
        }
    }
    disturber_set(&disturber, DISTURB_NOT);
    for (size_t at = 0; at < NUM_QUANTILES; at++) {
        report(verb, num_rounds, at, DISTURB_NOT);
        report(verb, num_rounds, at, DISTURB_WRITES);
    }
}

static void verbs_begin(void)
{
    const struct prompt_shape small = {.num_blocks = HELD_BLOCKS, .block_bytes = 64 << 10},
                              large = {.num_blocks = 1, .block_bytes = 2 << 20};
    const struct kvpool_request hold = {
        .verb = KVPOOL_ALLOCATE, .sequence = 1, .prompt = &held_prompt};

    held = prompt_bed_create(&bed.daemon, &small, 0);
    prompt_bed_put(held, 1, 1);
    daemon_bed_tokens(held_tokens, HELD_BLOCKS * PROMPT_BLOCK_TOKENS, 1);
    held_prompt = (struct kvpool_prompt){.model = held->model,
                                         .tokens = held_tokens,
                                         .num_tokens = HELD_BLOCKS * PROMPT_BLOCK_TOKENS,
                                         .raw = true};
    daemon_bed_must(held->kvpool, kvpool_call(held->kvpool, &hold, NULL), "hold");
    loads = prompt_bed_create(&bed.daemon, &large, 0);
    for (uint32_t i = 0; i < LOADS; i += 16) {
        prompt_bed_put(loads, 1 + i, 16);
        tier_bed_settle(&bed, "disk");
    }
}

static void measure_verbs(void)
{
    tier_bed_start(&bed, "pool-bytes: 512MiB\nstore-when: at-once\nwatermark-pages: 0\n",
                   DISK_BYTES);
    disturber_start(&disturber, &bed);
    verbs_begin();
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        measure_verb(&verbs[i]);
    if (held->num_wrong + loads->num_wrong > 0)
        bench_fail(&bench, "a block was not what was stored, or a verb failed");
    if (loads->num_missed > 0)
        bench_fail(&bench, "a block that was stored was not found");
    if (tier_bed_skipped(&bed, "disk") == 0)
        bench_fail(&bench, "the store queue was never full");
    disturber_stop(&disturber);
    prompt_bed_destroy(loads);
    prompt_bed_destroy(held);
    tier_bed_stop(&bed);
}

/* ---- prefills ------------------------------------------------------------------------------- */

/* clang-format off */
static const struct prefill {
    const char *name;
    uint64_t compute_ns;
} prefills[] = {
    {"prefill, computed at 1.3 GB/s of K and V", 1600000}, /* 10,000 tokens/s of 128 KiB */
    {"prefill, copied as fast as memcpy",        0},
};
/* clang-format on */

static double prefill_ms(struct prompt_bed *prompts, uint32_t *seed)
{
    const uint64_t start = bench_now_ns();

    prompt_bed_put(prompts, *seed, PREFILLS_A_RUN);
    *seed += PREFILLS_A_RUN;
    const double ms = (double)(bench_now_ns() - start) / 1e6;
    tier_bed_settle(&bed, "disk"); /* not beside what comes next */
    return ms;
}

static void measure_prefill(const struct prefill *prefill, uint32_t *seed)
{
    const struct prompt_shape shape = {.num_blocks = 8,
                                       .block_bytes = 2 << 20,
                                       .num_flying = 2,
                                       .is_copied = true,
                                       .compute_ns = prefill->compute_ns};
    struct prompt_bed *stored = prompt_bed_create(&bed.daemon, &shape, KVPOOL_STORE_PROMPT),
                      *silent = prompt_bed_create(&bed.daemon, &shape, KVPOOL_STORE_NONE);
    const size_t num_rounds = rounds();
    double ours[ROUNDS], limit[ROUNDS], ratios[ROUNDS];

    const uint64_t before = tier_bed_number(&bed, "tier_stores", "disk");
    for (size_t round = 0; round < num_rounds; round++) {
        limit[round] = prefill_ms(silent, seed);
        ours[round] = prefill_ms(stored, seed);
        ratios[round] = ours[round] / limit[round];
    }
    const uint64_t num_stored = tier_bed_number(&bed, "tier_stores", "disk") - before;
    if (num_stored != num_rounds * PREFILLS_A_RUN * shape.num_blocks)
        bench_fail(&bench, "not every block was stored");
    if (stored->num_wrong + silent->num_wrong > 0)
        bench_fail(&bench, "a verb failed");
    bench_report(&bench, &(struct bench_row){.name = prefill->name,
                                             .ours = bench_median(ours, num_rounds),
                                             .unit = "ms",
                                             .limit_name = "none of its blocks is stored",
                                             .limit = bench_median(limit, num_rounds),
                                             .ratio = bench_median(ratios, num_rounds),
                                             .worst_ratio = 3});
    prompt_bed_destroy(stored);
    prompt_bed_destroy(silent);
}

static void measure_prefills(void)
{
    uint32_t seed = 1;

    tier_bed_start(&bed, "pool-bytes: 512MiB\nstore-when: at-once\nwatermark-pages: 0\n",
                   DISK_BYTES);
    for (size_t i = 0; i < sizeof(prefills) / sizeof(prefills[0]); i++)
        measure_prefill(&prefills[i], &seed);
    tier_bed_stop(&bed);
}

int main(int argc, char **argv)
{
    int status = bench_begin(&bench, argc, argv, "tiers_load",
                             "verbs and prefills while blocks are stored on disk");
    if (status >= 0)
        return status;
    if (!tier_bed_init(&bed, "bench_tiers_load"))
        return 2;
    measure_verbs();
    measure_prefills();
    tier_bed_finish(&bed);
    return bench_end(&bench);
}
