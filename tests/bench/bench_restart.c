/*
 * tests/bench/bench_restart.c - seconds from `kill -9` of the daemon to the first hit, and until
 * all is known again: hot, from memory that a holder process kept, and from disk.
 *
 * The limit is a daemon with nothing to recover, killed likewise: until it answers a prompt that it
 * does not know. With --full a million blocks of 4 KiB are on disk, else 50,000.
 */
#include "tests/bench/prompt_bed.h"
#include "tests/bench/tier_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

enum { ROUNDS = 3 /* at most */, TRY_US = 500, GIVE_UP_MS = 60000 };

static struct bench bench;

struct life {
    const char *name;
    const char *settings;
    const char *adopting; /* the number that says that all is known again ... */
    uint64_t when_known;  /* ... when it is this */
    uint64_t disk_bytes;
    struct prompt_shape shape;
    uint32_t num_prompts;
    double worst_ratio;
};

struct moment {
    double first_ms, all_ms;
};

static double since_ms(uint64_t start_ns)
{
    return (double)(bench_now_ns() - start_ns) / 1e6;
}

/* A daemon is there again: an engine of before connects, and asks until its prompt is found. */
static double first_hit(struct tier_bed *bed, const struct life *life, uint64_t start,
                        bool is_known)
{
    struct prompt_bed *prompts = prompt_bed_create(&bed->daemon, &life->shape, 0);
    const uint32_t at = life->num_prompts / 2;
    double ms;

    /* Asked, not fetched: that would read what the daemon still looks for. */
    while (is_known && prompt_bed_match(prompts, 1 + at) < life->shape.num_blocks &&
           since_ms(start) < GIVE_UP_MS)
        (void)usleep(TRY_US);
    prompt_bed_get(prompts, 1, life->num_prompts, at, 1);
    ms = since_ms(start);
    if (is_known && prompts->num_missed > 0)
        bench_fail(&bench, "a prompt that was there is not found again");
    if (prompts->num_wrong > 0)
        bench_fail(&bench, "a block was not what was stored, or a verb failed");
    prompt_bed_destroy(prompts);
    return ms;
}

static struct moment restart(struct tier_bed *bed, const struct life *life, bool is_known)
{
    struct moment moment;

    tier_bed_kill(bed);
    const uint64_t start = bench_now_ns();
    tier_bed_respawn(bed);
    moment.first_ms = first_hit(bed, life, start, is_known);
    while (is_known && tier_bed_number(bed, life->adopting, NULL) != life->when_known)
        (void)usleep(TRY_US);
    moment.all_ms = since_ms(start);
    return moment;
}

/* All found again, every block's first word being right. */
static void check_all(struct tier_bed *bed, const struct life *life)
{
    struct prompt_bed *prompts = prompt_bed_create(&bed->daemon, &life->shape, 0);

    prompt_bed_get(prompts, 1, life->num_prompts, 0, life->num_prompts);
    if (prompts->num_missed + prompts->num_wrong > 0)
        bench_fail(&bench, "not every block was found again");
    prompt_bed_destroy(prompts);
}

static void fill(struct tier_bed *bed, const struct life *life)
{
    struct prompt_bed *prompts = prompt_bed_create(&bed->daemon, &life->shape, 0);
    const uint32_t num_together = 4;

    for (uint32_t i = 0; i < life->num_prompts; i += num_together) {
        const uint32_t left = life->num_prompts - i;
        prompt_bed_put(prompts, 1 + i, left < num_together ? left : num_together);
        if (life->disk_bytes > 0)
            tier_bed_settle(bed, "disk");
    }
    prompt_bed_destroy(prompts);
}

static void report(const struct life *life, const char *what, double *ours, double *limit,
                   size_t num_rounds, double worst_ratio)
{
    double ratios[ROUNDS];
    char name[96];

    for (size_t round = 0; round < num_rounds; round++)
        ratios[round] = ours[round] / limit[round];
    (void)snprintf(name, sizeof(name), "%s: %s", life->name, what);
    bench_report(&bench, &(struct bench_row){.name = name,
                                             .ours = bench_median(ours, num_rounds),
                                             .unit = "ms",
                                             .limit_name = "nothing to recover, first answer",
                                             .limit = bench_median(limit, num_rounds),
                                             .ratio = bench_median(ratios, num_rounds),
                                             .worst_ratio = worst_ratio});
}

static void measure(const struct life *life)
{
    const size_t num_rounds = bench.num_rounds < ROUNDS ? bench.num_rounds : ROUNDS;
    double first[ROUNDS], all[ROUNDS], limit[ROUNDS], again[ROUNDS];
    struct tier_bed bed, empty;

    if (!tier_bed_init(&bed, "bench_restart") || !tier_bed_init(&empty, "bench_restart"))
        exit(2);
    tier_bed_start(&bed, life->settings, life->disk_bytes);
    tier_bed_start(&empty, "pool-bytes: 256MiB\nkeep: none\n", 0);
    fill(&bed, life);
    for (size_t round = 0; round < num_rounds; round++) {
        limit[round] = restart(&empty, life, false).first_ms;
        const struct moment moment = restart(&bed, life, true);
        first[round] = moment.first_ms;
        all[round] = moment.all_ms;
        again[round] = limit[round];
    }
    check_all(&bed, life);
    tier_bed_finish(&empty);
    tier_bed_finish(&bed);
    report(life, "first hit", first, limit, num_rounds, life->worst_ratio);
    report(life, "all known", all, again, num_rounds, 0);
}

/* clang-format off */
static const struct life lives[] = {
    {.name = "128 MiB kept in memory", .adopting = "memory_adopting", .when_known = 0,
     .settings = "pool-bytes: 256MiB\nkeep: holder\n",
     .shape = {.num_blocks = 128, .block_bytes = 64 << 10}, .num_prompts = 16},
    {.name = "256 MiB on disk", .adopting = "disk_phase", .when_known = 3, .disk_bytes = 1024 * MiB,
     .settings = "pool-bytes: 256MiB\nkeep: none\nstore-when: at-once\n",
     .shape = {.num_blocks = 128, .block_bytes = 64 << 10}, .num_prompts = 32},
    {.name = "50,000 blocks of 4 KiB on disk", .adopting = "disk_phase", .when_known = 3, .disk_bytes = 1024 * MiB,
     .settings = "pool-bytes: 256MiB\nkeep: none\nstore-when: at-once\ndisk-min-block-bytes: 4KiB\n"
                 "max-transfers: 16384\nmax-sequences: 64\n",
     .shape = {.num_blocks = 1000, .block_bytes = 4 << 10}, .num_prompts = 50},
};
static const struct life full = 
    {.name = "1,000,000 blocks of 4 KiB on disk", .adopting = "disk_phase", .when_known = 3, .disk_bytes = 6144 * MiB,
     .settings = "pool-bytes: 256MiB\nkeep: none\nstore-when: at-once\ndisk-min-block-bytes: 4KiB\n"
                 "max-transfers: 16384\nmax-sequences: 64\n",
     .shape = {.num_blocks = 1000, .block_bytes = 4 << 10}, .num_prompts = 1000};
/* clang-format on */

int main(int argc, char **argv)
{
    int status = bench_begin(&bench, argc, argv, "restart",
                             "from kill -9 to the first hit, and until all is known");
    if (status >= 0)
        return status;
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++)
        measure(&lives[i]);
    if (bench.is_full)
        measure(&full);
    return bench_end(&bench);
}
