/*
 * tests/bench/bench_pool.c - what the verbs of the core cost, at 10^4 to 10^7 blocks.
 *
 * Every verb is timed in turn with a bare table of as many digests (limit_table.h) that does no
 * more than memory asks for the same blocks. Prompts are picked at random among all that are
 * cached, and their token ids and keys lie in the processor's cache, as they do after they were
 * received.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/arena.h"
#include "pool/block.h"
#include "pool/match.h"
#include "tests/bench/bench.h"
#include "tests/bench/limit_table.h"
#include "tests/bench/pool_bed.h"

enum {
    NUM_SIZES = 4,
    APPENDS = 64,
    FORKS = 16,
    SHORTS_A_ROUND = 16,   /* prompts of 1,024 tokens that one sample is the mean of */
    SHORTS_NOT_COUNTED = 2 /* in front of them, for the processor to see that another verb runs */
};

/* One size: a pool, and the limit's table. */
struct place {
    struct bed *bed;
    struct limit_table *table;
    uint32_t entries[BED_MAX_BLOCKS];
};

static double since(uint64_t start_ns)
{
    return (double)(bench_now_ns() - start_ns);
}

static const uint8_t (*digests(const struct bed *bed))[32]
{
    return (const uint8_t(*)[32])bed->hot_keys;
}

/* ---- the verbs: each returns ns of one item, and of its limit ------------------------------- */

struct times {
    double ours, limit;
};

static struct times match(struct place *place, bool is_long, bool is_held)
{
    struct bed *bed = place->bed;
    const struct pool_prompt prompt = bed_pick(bed, is_long);
    uint32_t count = (uint32_t)(prompt.tokens.count / BED_BLOCK_TOKENS);
    struct pool_found found = {0};
    struct pool_name name;
    struct times times;

    uint64_t start = bench_now_ns();
    if (is_held)
        name = bed_alloc(bed, &prompt);
    else
        bed->num_refused += pool_match(bed->pool, &prompt, &found) != 0;
    times.ours = since(start) / count;
    if (is_held)
        bed_release(bed, name);
    else
        bed->num_refused += found.matched != prompt.tokens.count;

    start = bench_now_ns();
    if (is_held)
        limit_table_hold(place->table, digests(bed), count, place->entries);
    else
        limit_table_find(place->table, digests(bed), count, place->entries);
    times.limit = since(start) / count;
    if (is_held)
        limit_table_let_go(place->table, place->entries, count);
    return times;
}

static struct times match_short(struct place *place)
{
    return match(place, false, false);
}

static struct times match_long(struct place *place)
{
    return match(place, true, false);
}

static struct times hold_short(struct place *place)
{
    return match(place, false, true);
}

static struct times hold_long(struct place *place)
{
    return match(place, true, true);
}

/*
 * Match and hold alone, below the verbs: neither tables nor the sequence and its token ids. The
 * blocks are let go of as a release does it.
 */
static struct times find_and_hold(struct place *place, bool is_long)
{
    struct bed *bed = place->bed;
    struct pool *pool = bed->pool;
    const struct pool_prompt prompt = bed_pick(bed, is_long);
    const struct model *model = &pool->models[prompt.model];
    uint32_t count = (uint32_t)(prompt.tokens.count / BED_BLOCK_TOKENS);
    uint32_t shelf = shelf_find(pool, prompt.domain, prompt.model);
    struct match found;
    struct times times;

    uint64_t start = bench_now_ns();
    match_find(pool, &prompt, shelf, NONE, true, &found);
    match_hold(pool, model, &found);
    times.ours = since(start) / count;
    bed->num_refused += found.num_positions != count;
    for (uint32_t at = found.num_positions; at-- > 0;)
        block_let_go(pool, *match_hit(pool, 0, at), SLOT_TO_HEAD);

    start = bench_now_ns();
    limit_table_hold(place->table, digests(bed), count, place->entries);
    times.limit = since(start) / count;
    limit_table_let_go(place->table, place->entries, count);
    return times;
}

static struct times find_and_hold_short(struct place *place)
{
    return find_and_hold(place, false);
}

static struct times find_and_hold_long(struct place *place)
{
    return find_and_hold(place, true);
}

static struct times release(struct place *place, bool is_long)
{
    struct bed *bed = place->bed;
    const struct pool_prompt prompt = bed_pick(bed, is_long);
    uint32_t count = (uint32_t)(prompt.tokens.count / BED_BLOCK_TOKENS);
    struct times times;

    struct pool_name name = bed_alloc(bed, &prompt);
    limit_table_hold(place->table, digests(bed), count, place->entries);
    uint64_t start = bench_now_ns();
    bed_release(bed, name);
    times.ours = since(start) / count;
    start = bench_now_ns();
    limit_table_let_go(place->table, place->entries, count);
    times.limit = since(start) / count;
    return times;
}

static struct times release_short(struct place *place)
{
    return release(place, false);
}

static struct times release_long(struct place *place)
{
    return release(place, true);
}

/* Name, allocate (which matches) and release 1,024 tokens: 63 hits and a new block. */
static struct times whole_short(struct place *place)
{
    struct bed *bed = place->bed;
    struct pool_prompt prompt = bed_pick(bed, false);
    struct times times;

    prompt.is_raw = false;
    uint64_t start = bench_now_ns();
    bed_name(bed, BED_SHORT_BLOCKS);
    struct pool_name name = bed_alloc(bed, &prompt);
    bed_release(bed, name);
    times.ours = since(start);

    start = bench_now_ns();
    bed_name(bed, BED_SHORT_BLOCKS);
    limit_table_hold(place->table, digests(bed), BED_SHORT_BLOCKS, place->entries);
    limit_table_let_go(place->table, place->entries, BED_SHORT_BLOCKS);
    times.limit = since(start);
    return times;
}

/* A full pool takes 64 blocks that nobody asked for before, and evicts as many. */
static struct times evict(struct place *place)
{
    struct bed *bed = place->bed;
    const struct pool_prompt prompt = bed_make(bed, BED_SHORT_BLOCKS, bed->tenants[0]);
    struct times times;

    uint64_t start = bench_now_ns();
    struct pool_name name = bed_alloc(bed, &prompt);
    bed_publish(bed, name);
    bed_release(bed, name);
    times.ours = since(start) / BED_SHORT_BLOCKS;
    start = bench_now_ns();
    limit_table_replace(place->table, digests(bed), BED_SHORT_BLOCKS);
    times.limit = since(start) / BED_SHORT_BLOCKS;
    return times;
}

/* One token each, with a new block for every 16th; no limit. */
static struct times append(struct place *place)
{
    struct bed *bed = place->bed;
    const struct pool_prompt prompt = bed_pick(bed, false);
    struct pool_name name = bed_alloc(bed, &prompt);
    struct times times = {0, 0};

    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < APPENDS; i++) {
        const struct pool_tokens tokens = {&bed->hot_tokens[i], 1, &bed->hot_keys[0], NULL};
        bed->num_refused += pool_append(bed->pool, name, &tokens, 0) != 0;
    }
    times.ours = since(start) / APPENDS;
    bed_release(bed, name);
    return times;
}

/* A fork of 1,024 tokens, and its release. */
static struct times fork_release(struct place *place)
{
    struct bed *bed = place->bed;
    const struct pool_prompt prompt = bed_pick(bed, false);
    struct pool_name name = bed_alloc(bed, &prompt);
    struct times times = {0, 0};

    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < FORKS; i++) {
        const struct pool_name child = {bed->session, bed->num_names++};
        bed->num_refused += pool_fork(bed->pool, name, child.id) != 0;
        bed_release(bed, child);
    }
    times.ours = since(start) / FORKS;
    bed_release(bed, name);
    return times;
}

/* clang-format off */
static const struct verb {
    const char *name, *unit, *limit_name;
    struct times (*run)(struct place *place);
    uint32_t min_blocks;   /* below it there are no long prompts */
    double worst_ratio;    /* of the limit: far over CLAIMS.md, so that noise does not fail a build */
    bool is_destructive;   /* goes last: prompts that are cached are evicted */
} verbs[] = {
    {"match, 1K tokens",          "ns/block",  "bare find",       match_short,   0,           6, false},
    {"match, 128K tokens",        "ns/block",  "bare find",       match_long,    100000,      8, false},
    {"match and hold, 1K",        "ns/block",  "bare hold",       find_and_hold_short, 0,       6, false},
    {"match and hold, 128K",      "ns/block",  "bare hold",       find_and_hold_long, 100000,  10, false},
    {"allocate warm, 1K",         "ns/block",  "bare hold",       hold_short,    0,           8, false},
    {"allocate warm, 128K",       "ns/block",  "bare hold",       hold_long,     100000,     12, false},
    {"release, 1K",               "ns/block",  "bare let go",     release_short, 0,           0, false},
    {"release, 128K",             "ns/block",  "bare let go",     release_long,  100000,      0, false},
    {"name, allocate, release 1K", "ns/prompt", "name, bare hold, let go", whole_short, 0,    4, false},
    {"append of a token",         "ns",        NULL,              append,        0,           0, true},
    {"fork and release, 1K",      "ns",        NULL,              fork_release,  0,           0, false},
    {"allocate cold, evicting",   "ns/block",  "bare replace",    evict,         0,          12, true},
};
/* clang-format on */
enum { NUM_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static const uint32_t sizes[NUM_SIZES] = {10000, 100000, 1000000, 10000000};

/* ---- rounds and rows ------------------------------------------------------------------------ */

static struct bench_case ours[NUM_VERBS][NUM_SIZES], limits[NUM_VERBS][NUM_SIZES];

static void place_create(struct place *place, uint32_t num_blocks)
{
    place->bed = bed_create(&(struct bed_shape){.num_blocks = num_blocks, .num_spare = 64});
    place->table = limit_table_create(num_blocks);
    for (uint32_t i = 0; i < num_blocks; i++)
        limit_table_insert(place->table, place->bed->keys[i].bytes);
}

static void round_run(struct place *places, size_t num_sizes, size_t verb, size_t round,
                      bool is_kept)
{
    for (size_t size = 0; size < num_sizes; size++) {
        if (sizes[size] < verbs[verb].min_blocks)
            continue;
        struct times sum = {0, 0};
        uint32_t repeats = verbs[verb].min_blocks > 0 ? 1 : SHORTS_A_ROUND;
        for (uint32_t i = 0; i < repeats + SHORTS_NOT_COUNTED; i++) {
            struct times times = verbs[verb].run(&places[size]);
            sum.ours += i < SHORTS_NOT_COUNTED ? 0 : times.ours / repeats;
            sum.limit += i < SHORTS_NOT_COUNTED ? 0 : times.limit / repeats;
        }
        if (!is_kept)
            continue;
        ours[verb][size].samples_ns[round] = sum.ours;
        limits[verb][size].samples_ns[round] = sum.limit > 0 ? sum.limit : 1;
    }
}

static void rounds_run(const struct bench *bench, struct place *places, size_t num_sizes)
{
    for (size_t verb = 0; verb < NUM_VERBS; verb++) {
        if (!verbs[verb].is_destructive)
            round_run(places, num_sizes, verb, 0, false);
    }
    for (size_t round = 0; round < bench->num_rounds; round++) {
        for (size_t verb = 0; verb < NUM_VERBS; verb++) {
            if (!verbs[verb].is_destructive)
                round_run(places, num_sizes, verb, round, true);
        }
    }
    for (size_t verb = 0; verb < NUM_VERBS; verb++) {
        for (size_t round = 0; verbs[verb].is_destructive && round < bench->num_rounds; round++)
            round_run(places, num_sizes, verb, round, true);
    }
}

static double median_of(const struct bench *bench, const struct bench_case *run)
{
    double sorted[BENCH_MAX_ROUNDS];

    memcpy(sorted, run->samples_ns, bench->num_rounds * sizeof(sorted[0]));
    return bench_median(sorted, bench->num_rounds);
}

static void report_verb(struct bench *bench, size_t verb, size_t size)
{
    char name[96], limit_name[96];
    struct bench_row row = {.name = name,
                            .ours = median_of(bench, &ours[verb][size]),
                            .unit = verbs[verb].unit,
                            .limit_name = verbs[verb].limit_name,
                            .limit = median_of(bench, &limits[verb][size]),
                            .worst_ratio = verbs[verb].worst_ratio};

    snprintf(name, sizeof(name), "%s, %u blocks", verbs[verb].name, sizes[size]);
    if (row.limit_name) {
        row.ratio = bench_ratio(bench, &ours[verb][size], &limits[verb][size]);
        bench_report(bench, &row);
    }
    if (size == 0 || sizes[size - 1] < verbs[verb].min_blocks)
        return;
    snprintf(limit_name, sizeof(limit_name), "the same, %u blocks", sizes[size - 1]);
    row.limit_name = limit_name;
    row.limit = median_of(bench, &ours[verb][size - 1]);
    row.ratio = bench_ratio(bench, &ours[verb][size], &ours[verb][size - 1]);
    row.worst_ratio = 0;
    bench_report(bench, &row);
}

/*
 * Bytes of a block: the pool's, but for sequences and the chunks of their token ids and tables,
 * which follow other caps (max_sequences, max_tokens) and are shown by themselves.
 */
static void report_bytes(struct bench *bench, uint32_t num_blocks)
{
    struct pool_config config;
    struct pool *with, *without;
    char name[96];

    pool_config_init(&config, num_blocks, num_blocks);
    config.sink.emit = (void (*)(void *, const struct pool_effect *))abort;
    if (pool_create(&config, &with))
        abort();
    double all = (double)pool_bytes(with) / num_blocks;
    pool_destroy(with);
    uint64_t max_tokens = config.max_tokens;
    config.max_tokens = config.max_sequences = 0;
    if (pool_create(&config, &without))
        abort();
    double rest = (double)pool_bytes(without) / num_blocks;
    pool_destroy(without);

    snprintf(name, sizeof(name), "memory but for sequences, %u blocks", num_blocks);
    bench_report(bench, &(struct bench_row){.name = name,
                                            .ours = rest,
                                            .unit = "B/block",
                                            .limit_name = "allowed",
                                            .limit = 256,
                                            .ratio = rest / 256,
                                            .worst_ratio = num_blocks >= 1000000 ? 1 : 0});
    double chunks = (all - rest) * num_blocks / (double)max_tokens;
    snprintf(name, sizeof(name), "sequences, %u blocks x 32 tokens", num_blocks);
    bench_report(bench, &(struct bench_row){.name = name,
                                            .ours = chunks,
                                            .unit = "B/token",
                                            .limit_name = "an id, and a key for 16",
                                            .limit = 6,
                                            .ratio = chunks / 6});
}

int main(int argc, char **argv)
{
    static struct place places[NUM_SIZES];
    struct bench bench;
    int status = bench_begin(&bench, argc, argv, "pool", "what a verb of the core costs");
    if (status >= 0)
        return status;

    size_t num_sizes = bench.is_full ? NUM_SIZES : NUM_SIZES - 1;
    for (size_t size = 0; size < num_sizes; size++)
        place_create(&places[size], sizes[size]);
    rounds_run(&bench, places, num_sizes);
    for (size_t verb = 0; verb < NUM_VERBS; verb++) {
        for (size_t size = 0; size < num_sizes; size++) {
            if (sizes[size] >= verbs[verb].min_blocks)
                report_verb(&bench, verb, size);
        }
    }
    for (size_t size = 0; size < num_sizes; size++) {
        report_bytes(&bench, sizes[size]);
        if (places[size].bed->num_refused > 0)
            bench_fail(&bench, "a verb was refused");
        bed_destroy(places[size].bed);
        limit_table_destroy(places[size].table);
    }
    return bench_end(&bench);
}
