/*
 * tests/bench/bench_pool_tiers.c - what a tier below costs the core: verbs beside those of a pool
 * without one, and what storing, promoting and restoring a block take.
 *
 * Both pools are full of cached prompts of 1,024 tokens; with the tier, everything has a copy below
 * and the tier is full, too. Copies end at once: it is the core's part that is timed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/pool_bed.h"

enum { NUM_BLOCKS = 100000, NUM_BELOW = 131072, PROMPTS_A_ROUND = 16 };

/* ---- verbs, in both pools: ns of a block ---- */

static double per_block(uint64_t ns)
{
    return (double)ns / PROMPTS_A_ROUND / BED_SHORT_BLOCKS;
}

static double warm(struct bed *bed)
{
    uint64_t spent = 0;

    for (uint32_t i = 0; i < PROMPTS_A_ROUND; i++) {
        struct pool_found found = {0};
        const struct pool_prompt prompt = bed_pick(bed, false);
        if (pool_match(bed->pool, &prompt, &found) || found.below > 0 ||
            found.matched < prompt.tokens.count) {
            i--; /* it is below, or lost: another one */
            continue;
        }
        uint64_t start = bench_now_ns();
        struct pool_name name = bed_alloc(bed, &prompt);
        spent += bench_now_ns() - start;
        bed_release(bed, name);
    }
    return per_block(spent);
}

static double release(struct bed *bed)
{
    uint64_t spent = 0;

    for (uint32_t i = 0; i < PROMPTS_A_ROUND; i++) {
        const struct pool_prompt prompt = bed_make(bed, BED_SHORT_BLOCKS, bed->tenants[0]);
        struct pool_name name = bed_alloc(bed, &prompt);
        bed_publish(bed, name);
        uint64_t start = bench_now_ns();
        bed_release(bed, name);
        spent += bench_now_ns() - start;
    }
    if (bed->copies)
        bed_store_all(bed);
    return per_block(spent);
}

static double cold(struct bed *bed)
{
    uint64_t spent = 0;

    for (uint32_t i = 0; i < PROMPTS_A_ROUND; i++) {
        const struct pool_prompt prompt = bed_make(bed, BED_SHORT_BLOCKS, bed->tenants[0]);
        uint64_t start = bench_now_ns();
        struct pool_name name = bed_alloc(bed, &prompt);
        bed_publish(bed, name);
        bed_release(bed, name);
        spent += bench_now_ns() - start;
    }
    if (bed->copies)
        bed_store_all(bed);
    return per_block(spent);
}

/* ---- what only the pool with a tier does ---- */

static double store(struct bed *bed)
{
    for (uint32_t i = 0; i < PROMPTS_A_ROUND; i++) {
        const struct pool_prompt prompt = bed_make(bed, BED_SHORT_BLOCKS, bed->tenants[0]);
        struct pool_name name = bed_alloc(bed, &prompt);
        bed_publish(bed, name);
        bed_release(bed, name);
    }
    uint64_t start = bench_now_ns();
    bed_store_all(bed);
    return per_block(bench_now_ns() - start);
}

/* Prompts that are below only are hit: their copies up are begun and ended, what makes room goes.
 */
static double promote(struct bed *bed)
{
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL, .cookie = 1};
    uint64_t spent = 0;

    for (uint32_t i = 0, tries = 0; i < PROMPTS_A_ROUND; tries++) {
        const struct pool_name name = {bed->session, bed->num_names++};
        const struct pool_prompt prompt = bed_pick(bed, false);
        struct pool_found found = {0};
        uint64_t num_answered = bed->num_answered;

        if (tries == 100000) {
            bed->num_refused++; /* no prompt is below */
            break;
        }
        if (pool_match(bed->pool, &prompt, &found) || found.below < prompt.tokens.count)
            continue;
        uint64_t start = bench_now_ns();
        bed->num_refused += pool_alloc(bed->pool, name, &prompt, &options, &found) != POOL_PENDING;
        bed_end_copies(bed);
        spent += bench_now_ns() - start;
        bed->num_refused += bed->num_answered != num_answered + 1;
        bed_release(bed, name);
        i++;
    }
    return per_block(spent);
}

/* An empty pool gets granules back from its disk. */
static double restore(struct bed *bed)
{
    uint32_t arena = POOL_NONE, form[BED_BLOCK_TOKENS] = {0};
    struct bed *fresh = bed_create(&(struct bed_shape){
        .num_blocks = BED_SHORT_BLOCKS, .num_below = NUM_BELOW, .is_empty = true});
    struct pool_restored restored = {.form = form, .num_form = BED_BLOCK_TOKENS};

    fresh->num_refused += pool_arena_reserve(fresh->pool, fresh->tenants[0], fresh->model) != 0;
    fresh->num_refused += pool_tier_arena_find(fresh->pool, fresh->tenants[0], fresh->model, 0,
                                               POOL_TIER_DISK, &arena) != 0;
    uint64_t start = bench_now_ns();
    for (uint32_t granule = 0; granule < NUM_BELOW / BED_SHORT_BLOCKS; granule++) {
        fresh->num_refused += pool_restore_granule(fresh->pool, arena, granule) != 0;
        for (uint32_t at = 0; at < BED_SHORT_BLOCKS; at++) {
            uint64_t words[4] = {granule * UINT64_C(1000) + at, granule, at, 1};
            for (size_t i = 0; i < sizeof(restored.key.bytes); i++)
                restored.key.bytes[i] = (uint8_t)(words[i / 8] * 0x9E3779B97F4A7C15u >> i % 8 * 8);
            restored.slot = 1 + granule * BED_SHORT_BLOCKS + at;
            fresh->num_refused += pool_restore_block(fresh->pool, arena, &restored) != 0;
        }
        fresh->num_refused += pool_restore_end(fresh->pool, arena, granule) != 0;
    }
    uint64_t spent = bench_now_ns() - start;
    bed->num_refused += fresh->num_refused;
    bed_destroy(fresh);
    return (double)spent / NUM_BELOW;
}

/* ---- rounds ---- */

/* clang-format off */
static const struct verb {
    const char *name;
    double (*run)(struct bed *bed);
    bool needs_tier;
    double worst_ratio; /* to the pool without a tier */
} verbs[] = {
    {"allocate warm, 1K",                    warm,    false, 1.5},
    {"release, 1K",                          release, false, 1.5},
    {"allocate cold, evicting what is below", cold,   false, 2.5},
    {"store a block",                        store,   true,  0},
    {"promote a block, evicting another",    promote, true,  0},
    {"restore a block",                      restore, true,  0},
};
/* clang-format on */
enum { NUM_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

int main(int argc, char **argv)
{
    static double ours[NUM_VERBS][BENCH_MAX_ROUNDS], limit[NUM_VERBS][BENCH_MAX_ROUNDS];
    struct bench bench;
    int status = bench_begin(&bench, argc, argv, "pool_tiers", "what a tier below costs the core");
    if (status >= 0)
        return status;

    struct bed *plain =
        bed_create(&(struct bed_shape){.num_blocks = NUM_BLOCKS, .has_no_long = true});
    struct bed *tiers = bed_create(
        &(struct bed_shape){.num_blocks = NUM_BLOCKS, .num_below = NUM_BELOW, .has_no_long = true});
    bed_store_all(tiers);
    for (size_t round = 0; round < bench.num_rounds; round++) {
        for (size_t verb = 0; verb < NUM_VERBS; verb++) {
            ours[verb][round] = verbs[verb].run(tiers);
            if (!verbs[verb].needs_tier)
                limit[verb][round] = verbs[verb].run(plain);
        }
    }
    for (size_t verb = 0; verb < NUM_VERBS; verb++) {
        double ns = bench_median(ours[verb], bench.num_rounds);
        double without = verbs[verb].needs_tier ? ns : bench_median(limit[verb], bench.num_rounds);
        bench_report(&bench, &(struct bench_row){
                                 .name = verbs[verb].name,
                                 .ours = ns,
                                 .unit = "ns/block",
                                 .limit_name = verbs[verb].needs_tier ? "itself" : "without tiers",
                                 .limit = without,
                                 .ratio = ns / without,
                                 .worst_ratio = verbs[verb].worst_ratio});
    }
    if (plain->num_refused + tiers->num_refused > 0)
        bench_fail(&bench, "a verb was refused");
    bed_destroy(plain);
    bed_destroy(tiers);
    return bench_end(&bench);
}
