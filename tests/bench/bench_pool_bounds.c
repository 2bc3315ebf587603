/*
 * tests/bench/bench_pool_bounds.c - what must not grow with the pool, or stop everybody else.
 *
 * An allocation that cannot be had is refused as fast in a large pool as in a small one; a thousand
 * tenants evict as fast as one; sessions end and caches are cleared in slices, and whoever comes in
 * between waits for one slice at most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/bench.h"
#include "tests/bench/pool_bed.h"

enum {
    HELD_SLOTS = 4,     /* of a granule, one of them held */
    SLICE_BLOCKS = 256, /* of pool_advance() */
    MAX_SAMPLES = 1 << 16,
    NUM_TENANTS = 1000
};

struct samples {
    double values[MAX_SAMPLES];
    size_t num;
};

static void sample_add(struct samples *samples, double value)
{
    if (samples->num < MAX_SAMPLES)
        samples->values[samples->num++] = value;
}

/* Sorts them. @per_mille 1000: the largest. */
static double sample_at(struct samples *samples, size_t per_mille)
{
    (void)bench_median(samples->values, samples->num);
    size_t at = samples->num * per_mille / 1000;
    return samples->values[at < samples->num ? at : samples->num - 1];
}

static void report(struct bench *bench, const char *name, const char *unit, double ours,
                   const char *limit_name, double limit, double worst_ratio)
{
    bench_report(bench, &(struct bench_row){.name = name,
                                            .ours = ours,
                                            .unit = unit,
                                            .limit_name = limit_name,
                                            .limit = limit,
                                            .ratio = ours / limit,
                                            .worst_ratio = worst_ratio});
}

static void check_bed(struct bench *bench, const struct bed *bed)
{
    if (bed->num_refused > 0)
        bench_fail(bench, "a verb was refused");
}

/* ---- a held block in every granule ---------------------------------------------------------- */

/* Every granule has one block of a sequence that goes on, and cached ones. */
static struct bed *create_held(uint32_t num_evictable)
{
    const struct bed_shape shape = {.num_blocks = num_evictable / (HELD_SLOTS - 1) * HELD_SLOTS,
                                    .slots_a_granule = HELD_SLOTS,
                                    .is_empty = true};
    struct bed *bed = bed_create(&shape);
    struct pool_name held = {bed->session, 0};
    uint32_t num_granules = shape.num_blocks / HELD_SLOTS, length = 0;

    for (uint32_t i = 0; i < num_granules; i++, length++) {
        struct pool_prompt prompt = bed_make(bed, 1, bed->tenants[0]);
        if (length % 65536 == 0)
            held = bed_alloc(bed, &prompt);
        else
            bed->num_refused += pool_append(bed->pool, held, &prompt.tokens, 0) != 0;
        prompt = bed_make(bed, HELD_SLOTS - 1, bed->tenants[0]);
        struct pool_name cached = bed_alloc(bed, &prompt);
        bed_publish(bed, cached);
        bed_release(bed, cached);
    }
    return bed;
}

/* ns in which another model's allocation is refused. */
static double refuse(struct bed *bed)
{
    struct pool_prompt prompt = bed_make(bed, 1, bed->tenants[0]);
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    const struct pool_name name = {bed->session, bed->num_names++};
    struct pool_found found;

    prompt.model = bed->other_model;
    uint64_t start = bench_now_ns();
    int answer = pool_alloc(bed->pool, name, &prompt, &options, &found);
    double ns = (double)(bench_now_ns() - start);
    bed->num_refused += answer != POOL_NO_BLOCKS;
    return ns;
}

static void bench_held(struct bench *bench)
{
    static struct samples small_ns, large_ns;
    struct bed *small = create_held(10000), *large = create_held(1000000);

    (void)refuse(small);
    (void)refuse(large);
    for (size_t i = 0; i < 100 * bench->num_rounds && i < MAX_SAMPLES; i++) {
        sample_add(&small_ns, refuse(small));
        sample_add(&large_ns, refuse(large));
    }
    report(bench, "refused, 10^6 evictable, all granules held", "ns", sample_at(&large_ns, 500),
           "the same, 10^4", sample_at(&small_ns, 500), 3);
    report(bench, "the same, p99", "ns", sample_at(&large_ns, 990), "the same, 10^4",
           sample_at(&small_ns, 990), 20);
    check_bed(bench, small);
    check_bed(bench, large);
    bed_destroy(small);
    bed_destroy(large);
}

/* ---- many tenants --------------------------------------------------------------------------- */

static double evict(struct bed *bed, pool_payer tenant)
{
    const struct pool_prompt prompt = bed_make(bed, BED_SHORT_BLOCKS, tenant);
    uint64_t start = bench_now_ns();
    struct pool_name name = bed_alloc(bed, &prompt);

    bed_publish(bed, name);
    bed_release(bed, name);
    return (double)(bench_now_ns() - start) / BED_SHORT_BLOCKS;
}

static void bench_tenants(struct bench *bench)
{
    static struct samples one_ns, many_ns;
    struct bed *one = bed_create(&(struct bed_shape){.num_blocks = 200000, .has_no_long = true});
    struct bed *many = bed_create(
        &(struct bed_shape){.num_blocks = 200000, .has_no_long = true, .num_tenants = NUM_TENANTS});

    for (size_t i = 0; i < 20 * bench->num_rounds && i < MAX_SAMPLES; i++) {
        sample_add(&one_ns, evict(one, one->tenants[0]));
        sample_add(&many_ns, evict(many, many->tenants[bed_random(many) % NUM_TENANTS]));
    }
    report(bench, "allocate cold, evicting, 1,000 tenants", "ns/block", sample_at(&many_ns, 500),
           "the same, 1 tenant", sample_at(&one_ns, 500), 10);
    check_bed(bench, one);
    check_bed(bench, many);
    bed_destroy(one);
    bed_destroy(many);
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Of this thread alone: a longest time would else be that of whoever shares the processor. */
static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct samples before_ns, slices_ns, between_ns, waited_ns;

/* The verbs that come in between: of a prompt of 1,024 tokens, cached or not. */
static double verb(struct bed *bed, bool is_warm)
{
    uint32_t tenant = (uint32_t)(bed_random(bed) % (bed->shape.num_tenants + 1));
    const struct pool_prompt prompt =
        is_warm ? bed_pick(bed, false)
                : bed_make(bed, BED_SHORT_BLOCKS, bed->tenants[tenant > 0 ? tenant - 1 : 0]);
    uint64_t start = cpu_ns();
    struct pool_name name = bed_alloc(bed, &prompt);

    if (!is_warm)
        bed_publish(bed, name);
    bed_release(bed, name);
    return (double)(cpu_ns() - start);
}

static void verbs_before(struct bed *bed, bool is_warm)
{
    before_ns.num = slices_ns.num = between_ns.num = waited_ns.num = 0;
    for (size_t i = 0; i < 4000; i++)
        sample_add(&before_ns, verb(bed, is_warm));
}

/* Everything that is under way, a slice at a time, a verb after each. */
static void slices(struct bed *bed, bool is_warm)
{
    bool has_more = true;

    while (has_more) {
        uint64_t start = cpu_ns();
        has_more = pool_advance(bed->pool, SLICE_BLOCKS);
        double slice = (double)(cpu_ns() - start), own = verb(bed, is_warm);
        sample_add(&slices_ns, slice);
        sample_add(&between_ns, own);
        sample_add(&waited_ns, slice + own);
    }
}

static void report_slices(struct bench *bench, const char *what)
{
    char name[96];
    double p99 = sample_at(&before_ns, 990);

    snprintf(name, sizeof(name), "%s: a slice of %d, median", what, SLICE_BLOCKS);
    report(bench, name, "us", sample_at(&slices_ns, 500) / 1000, "p99 of a verb before", p99 / 1000,
           0);
    snprintf(name, sizeof(name), "%s: longest slice", what);
    report(bench, name, "us", sample_at(&slices_ns, 1000) / 1000, "p99 of a verb before",
           p99 / 1000, 0);
    snprintf(name, sizeof(name), "%s: p99 of a verb meanwhile", what);
    report(bench, name, "us", sample_at(&between_ns, 990) / 1000, "p99 of a verb before",
           p99 / 1000, 6);
    snprintf(name, sizeof(name), "%s: p99, a slice ahead of it", what);
    report(bench, name, "us", sample_at(&waited_ns, 990) / 1000, "p99 of a verb before", p99 / 1000,
           60);
}

/* A session that holds every block of the pool ends. */
static void bench_session_end(struct bench *bench)
{
    struct bed *bed = bed_create(&(struct bed_shape){.num_blocks = 1000000, .num_spare = 64});
    pool_session mine = bed->session;

    bed->num_refused += pool_session_open(bed->pool, &bed->session) != 0;
    pool_session other = bed->session;
    for (uint32_t i = 0; i < bed->num_prompts; i++) {
        const struct pool_prompt prompt = bed_take(bed, i);
        (void)bed_alloc(bed, &prompt);
    }
    bed->session = mine;
    verbs_before(bed, true);
    bed->num_refused += pool_session_end(bed->pool, other, false, NULL) != 0;
    slices(bed, true);
    report_slices(bench, "end of a session, 10^6 blocks");
    check_bed(bench, bed);
    bed_destroy(bed);
}

static void bench_clear(struct bench *bench, uint32_t num_tenants, const char *what)
{
    struct bed *bed = bed_create(&(struct bed_shape){
        .num_blocks = 1000000, .num_spare = 64, .num_tenants = num_tenants, .has_no_long = true});

    verbs_before(bed, false);
    uint64_t start = bench_now_ns();
    bed->num_refused += pool_clear(bed->pool, POOL_NONE, POOL_NONE) != 0;
    double clear_us = (double)(bench_now_ns() - start) / 1000;
    report(bench, what, "us", clear_us, "p99 of a verb before", sample_at(&before_ns, 990) / 1000,
           30);
    slices(bed, false);
    report_slices(bench, what);
    check_bed(bench, bed);
    bed_destroy(bed);
}

int main(int argc, char **argv)
{
    struct bench bench;
    int status =
        bench_begin(&bench, argc, argv, "pool_bounds", "what must not grow, or stop others");
    if (status >= 0)
        return status;

    bench_held(&bench);
    bench_tenants(&bench);
    bench_session_end(&bench);
    bench_clear(&bench, 1, "clear of 10^6 blocks");
    bench_clear(&bench, NUM_TENANTS, "clear of 10^6, 1,000 tenants");
    return bench_end(&bench);
}
