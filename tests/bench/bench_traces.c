/*
 * tests/bench/bench_traces.c - tokens that are found, and bytes that are written for it, on three
 * synthetic traces and with each way to say when a block is stored.
 *
 * The limit of the hits is a cache that forgets nothing; that of the bytes, every block written
 * once. Without a tier below is what the pool alone finds. Requests come one after the other, with
 * time between them for what is being stored. The same seed makes the same traces everywhere.
 */
#include "tests/bench/daemon_bed.h"
#include "tests/bench/tier_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MiB ((uint64_t)1 << 20)

enum {
    BLOCK_BYTES = 60000, /* in a page of 64 KiB */
    BLOCK_TOKENS = 16,
    MAX_BLOCKS = 256,
    MAX_SEEN = 1 << 20,
    REQUESTS = 150, /* 2,000 with --full */
    FULL_REQUESTS = 2000,
    POOL_BLOCKS = 512,
    DISK_BLOCKS = 2048,
};

/* A prompt: each block named by a number that also says all that is in front of it. */
struct prompt {
    uint32_t num_blocks;
    uint64_t blocks[MAX_BLOCKS];
};

struct trace {
    const char *name;
    void (*next)(struct prompt *out);
};

struct outcome {
    uint64_t num_asked, num_found, num_known; /* blocks; known: asked for before */
    uint64_t num_new, num_wrong;
    uint64_t written_bytes;
};

static struct bench bench;
static struct tier_bed bed;
static uint64_t random_state;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint32_t random_below(uint32_t limit)
{
    random_state += 0x9e3779b97f4a7c15;
    return (uint32_t)(mix(random_state) % limit);
}

/* ---- traces --------------------------------------------------------------------------------- */

static void add(struct prompt *prompt, uint64_t text, uint32_t num_blocks)
{
    for (uint32_t i = 0; i < num_blocks && prompt->num_blocks < MAX_BLOCKS; i++) {
        const uint64_t before = prompt->num_blocks > 0 ? prompt->blocks[prompt->num_blocks - 1] : 0;
        prompt->blocks[prompt->num_blocks++] = mix(before ^ mix(text * 1000 + i + 1)) | 1;
    }
}

/*
 * 48 conversations at a time, each with one of 4 system prompts of 8 blocks, and up to 12 turns of
 * 3 to 10 blocks; whose turn it is, is chance. One that is over makes room for a new one.
 */
static struct conversation {
    uint64_t number;
    uint32_t num_turns;
} conversations[48];
static uint64_t num_conversations;

static void next_of_chat(struct prompt *out)
{
    struct conversation *one = &conversations[random_below(48)];

    if (one->number == 0 || one->num_turns == 12)
        *one = (struct conversation){.number = ++num_conversations};
    one->num_turns++;
    add(out, 1 + one->number % 4, 8);
    for (uint32_t turn = 0; turn < one->num_turns; turn++)
        add(out, one->number << 20 | turn << 8, 3 + mix(one->number * 31 + turn) % 8);
}

/* One of 64 system prompts of 48 blocks, the first ones far more often, and 8 blocks of its own. */
static uint64_t num_shared;

static void next_of_shared(struct prompt *out)
{
    const uint32_t rank = random_below(8) * random_below(9) + random_below(8) * random_below(2) / 2;

    add(out, 100 + rank % 64, 48);
    add(out, ++num_shared << 32, 8);
}

/* Every other request reads a document of 96 blocks that never comes again; the others are about
 * one of 12 documents of 40 blocks. */
static uint64_t num_scanned;

static void next_of_scan(struct prompt *out)
{
    if (++num_scanned % 2 == 0) {
        add(out, num_scanned << 32, 96);
        return;
    }
    add(out, 200 + random_below(12), 40);
    add(out, num_scanned << 32, 2);
}

static const struct trace traces[] = {
    {"multi-turn", next_of_chat},
    {"shared system prompts", next_of_shared},
    {"scan", next_of_scan},
};

static void trace_begin(void)
{
    random_state = 1;
    memset(conversations, 0, sizeof(conversations));
    num_conversations = num_shared = num_scanned = 0;
}

/* ---- a cache that forgets nothing ----------------------------------------------------------- */

static uint64_t seen[MAX_SEEN];

/* Whether it was there; it is, from now on. */
static bool see(uint64_t block)
{
    uint32_t at = (uint32_t)(block % MAX_SEEN);

    while (seen[at] != 0 && seen[at] != block)
        at = (at + 1) % MAX_SEEN;
    const bool was_there = seen[at] == block;
    seen[at] = block;
    return was_there;
}

static void count(const struct prompt *prompt, struct outcome *outcome)
{
    outcome->num_asked += prompt->num_blocks;
    for (uint32_t i = 0; i < prompt->num_blocks; i++) {
        const bool is_known = see(prompt->blocks[i]);
        outcome->num_known += is_known;
        outcome->num_new += !is_known;
    }
}

/* ---- an engine ------------------------------------------------------------------------------ */

struct engine {
    struct kvpool *kvpool;
    uint32_t model;
    struct kvpool_arena arena;
    uint32_t tokens[MAX_BLOCKS * BLOCK_TOKENS], slots[MAX_BLOCKS];
};

static void engine_init(struct engine *engine)
{
    const struct kvpool_model model = {.name = "traces",
                                       .weights_revision = "1",
                                       .dtype = KVPOOL_OPAQUE,
                                       .layout_name = "bench",
                                       .opaque_block_bytes = BLOCK_BYTES};

    engine->kvpool = daemon_bed_connect(&bed.daemon, KVPOOL_MAPPED);
    engine->model = daemon_bed_model(engine->kvpool, &model);
    daemon_bed_must(engine->kvpool,
                    kvpool_open_arena(engine->kvpool, engine->model, 0, NULL, &engine->arena),
                    "arena");
}

static void engine_finish(struct engine *engine)
{
    kvpool_disconnect(engine->kvpool);
    kvpool_close_arena(&engine->arena);
}

static uint64_t *block_at(const struct engine *engine, uint32_t slot)
{
    return (void *)((char *)engine->arena.base + (uint64_t)(slot - 1) * engine->arena.stride_bytes);
}

static void ask(struct engine *engine, const struct prompt *prompt, struct outcome *outcome)
{
    struct kvpool *kvpool = engine->kvpool;
    const struct kvpool_prompt wire = {.model = engine->model,
                                       .tokens = engine->tokens,
                                       .num_tokens = (size_t)prompt->num_blocks * BLOCK_TOKENS,
                                       .raw = true};
    struct kvpool_table table = {.slots = engine->slots, .max = MAX_BLOCKS};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &table, .num_tables = 1};
    struct kvpool_result result;

    for (uint32_t i = 0; i < prompt->num_blocks; i++)
        for (uint32_t k = 0; k < BLOCK_TOKENS; k++)
            engine->tokens[i * BLOCK_TOKENS + k] =
                (uint32_t)(mix(prompt->blocks[i] + k) & 0x7fffffff);
    daemon_bed_must(kvpool, kvpool_allocate(kvpool, 1, &wire, &options, &result), "allocate");
    const uint32_t num_found = (uint32_t)(result.matched / BLOCK_TOKENS);
    outcome->num_found += num_found;
    for (uint32_t i = 0; i < prompt->num_blocks; i++) {
        uint64_t *block = block_at(engine, engine->slots[i]);
        if (i < num_found)
            outcome->num_wrong += *block != prompt->blocks[i];
        else
            *block = prompt->blocks[i];
    }
    daemon_bed_must(kvpool, kvpool_publish_up_to(kvpool, 1, wire.num_tokens), "publish");
    daemon_bed_must(kvpool, kvpool_release(kvpool, 1), "release");
}

/* ---- rows ----------------------------------------------------------------------------------- */

static struct outcome run(const struct trace *trace, const char *store_when)
{
    struct outcome outcome = {0};
    struct engine engine;
    char settings[256];
    const uint32_t num_requests = bench.is_full ? FULL_REQUESTS : REQUESTS;

    (void)snprintf(settings, sizeof(settings),
                   "pool-bytes: %lluKiB\npage-bytes: 64KiB\nwatermark-pages: 0\n"
                   "disk-granule-bytes: 1MiB\nahead-bytes: 8MiB\nstore-when: %s\n",
                   POOL_BLOCKS * 64ULL, store_when ? store_when : "evicted");
    tier_bed_start(&bed, settings, store_when ? DISK_BLOCKS * (uint64_t)65536 + 32 * MiB : 0);
    memset(seen, 0, sizeof(seen));
    trace_begin();
    engine_init(&engine);
    for (uint32_t i = 0; i < num_requests; i++) {
        struct prompt prompt = {0};
        trace->next(&prompt);
        count(&prompt, &outcome);
        ask(&engine, &prompt, &outcome);
        if (store_when)
            tier_bed_settle(&bed, "disk");
    }
    if (store_when)
        outcome.written_bytes = tier_bed_number(&bed, "disk_written_bytes", NULL);
    if (outcome.num_wrong > 0)
        bench_fail(&bench, "a block was not what was stored");
    engine_finish(&engine);
    tier_bed_stop(&bed);
    return outcome;
}

static void report_hits(const char *name, const struct outcome *outcome)
{
    struct bench_row row = {.name = name,
                            .unit = "% found",
                            .limit_name = "asked for before",
                            .ours = 100.0 * (double)outcome->num_found / (double)outcome->num_asked,
                            .limit =
                                100.0 * (double)outcome->num_known / (double)outcome->num_asked};

    row.ratio = row.limit / row.ours;
    bench_report(&bench, &row);
}

static void measure(const struct trace *trace)
{
    static const char *const when[] = {NULL, "evicted", "second-use", "at-once"};
    char name[96];

    for (size_t i = 0; i < sizeof(when) / sizeof(when[0]); i++) {
        const struct outcome outcome = run(trace, when[i]);
        (void)snprintf(name, sizeof(name), "%s, %s", trace->name,
                       when[i] ? when[i] : "no tier below");
        report_hits(name, &outcome);
        if (!when[i])
            continue;
        struct bench_row row = {.name = name,
                                .unit = "MB written",
                                .limit_name = "every block once",
                                .ours = (double)outcome.written_bytes / 1e6,
                                .limit = (double)outcome.num_new * BLOCK_BYTES / 1e6,
                                .worst_ratio = 2};
        row.ratio = row.ours / row.limit;
        bench_report(&bench, &row);
    }
}

int main(int argc, char **argv)
{
    int status =
        bench_begin(&bench, argc, argv, "traces", "tokens found, and bytes written for it");
    if (status >= 0)
        return status;
    if (!tier_bed_init(&bed, "bench_traces"))
        return 2;
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
        measure(&traces[i]);
    tier_bed_finish(&bed);
    return bench_end(&bench);
}
