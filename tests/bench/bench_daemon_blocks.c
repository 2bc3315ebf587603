/*
 * tests/bench/bench_daemon_blocks.c - fetch and store of prompts through a mapped arena, beside a
 * memcpy loop over the same slots.
 *
 * A fetch matches and holds a prompt, copies its blocks out into one reused buffer, and lets go. A
 * store allocates a prompt that nobody knows, copies its blocks in, publishes and lets go, in a
 * full pool that evicts. The next prompt is asked for before this one is copied: one round trip is
 * hidden behind the copies. All memory is several times the last-level cache.
 */
#include "tests/bench/daemon_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BLOCKS = 128,
    MAX_PROMPTS = 32,
    PROMPTS_A_RUN = 8,
    BLOCK_TOKENS = 16,
    KEPT_BYTES = 256 << 20 /* of prompts that are fetched, and held by somebody throughout */
};

struct shape {
    const char *fetch_name, *store_name;
    uint32_t num_blocks; /* of a prompt */
    uint32_t block_bytes;
};

struct prompt {
    uint32_t seed;
    uint64_t sequence, ticket;
    uint32_t tokens[MAX_BLOCKS * BLOCK_TOKENS], slots[MAX_BLOCKS];
    struct kvpool_table table;
};

struct work {
    const struct shape *shape;
    struct kvpool *kvpool;
    uint32_t model, num_prompts, next_prompt, next_seed;
    uint64_t next_sequence;
    struct kvpool_arena arena;
    struct prompt kept[MAX_PROMPTS], flying[2];
    char *buffer; /* of one block */
    uint64_t num_wrong;
};

static char *block_at(const struct work *work, uint32_t slot)
{
    return (char *)work->arena.base + (uint64_t)(slot - 1) * work->arena.stride_bytes;
}

static uint64_t tag_of(uint32_t seed, uint32_t block)
{
    return (uint64_t)seed << 32 | block;
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static void prompt_ask(struct work *work, struct prompt *prompt, uint32_t seed)
{
    const uint32_t num_tokens = work->shape->num_blocks * BLOCK_TOKENS;
    const struct kvpool_prompt wire = {
        .model = work->model, .tokens = prompt->tokens, .num_tokens = num_tokens, .raw = true};
    const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                            .sequence = ++work->next_sequence,
                                            .prompt = &wire,
                                            .unfilled = true,
                                            .tables = &prompt->table,
                                            .num_tables = 1};

    prompt->seed = seed;
    prompt->sequence = work->next_sequence;
    prompt->table = (struct kvpool_table){.slots = prompt->slots, .max = MAX_BLOCKS};
    daemon_bed_tokens(prompt->tokens, num_tokens, seed);
    daemon_bed_must(work->kvpool, kvpool_submit(work->kvpool, &allocate, &prompt->ticket),
                    "allocate");
    daemon_bed_must(work->kvpool, kvpool_flush(work->kvpool), "flush");
}

static void prompt_await(struct work *work, struct prompt *prompt, bool is_warm)
{
    struct kvpool_result result;
    int answer = kvpool_wait(work->kvpool, prompt->ticket, &result);

    if (answer)
        daemon_bed_must(NULL, answer, result.message);
    work->num_wrong +=
        (result.matched > 0) != is_warm || prompt->table.num != work->shape->num_blocks;
}

/* Nobody waits for these; kvpool_poll() claims them later. */
static void submit(struct work *work, enum kvpool_verb verb, const struct prompt *prompt)
{
    const struct kvpool_request request = {
        .verb = verb,
        .sequence = prompt->sequence,
        .length = verb == KVPOOL_PUBLISH ? (uint64_t)work->shape->num_blocks * BLOCK_TOKENS : 0};
    uint64_t ticket;

    daemon_bed_must(work->kvpool, kvpool_submit(work->kvpool, &request, &ticket), "submit");
}

static void claim_all(struct work *work)
{
    struct kvpool_result result;

    while (kvpool_poll(work->kvpool, -1, &result) == 0)
        work->num_wrong += result.status != 0;
}

/* ---- copies --------------------------------------------------------------------------------- */

static void copy_out(struct work *work, const struct prompt *prompt)
{
    for (uint32_t i = 0; i < work->shape->num_blocks; i++) {
        memcpy(work->buffer, block_at(work, prompt->slots[i]), work->shape->block_bytes);
        work->num_wrong += *(uint64_t *)(void *)work->buffer != tag_of(prompt->seed, i);
    }
}

static void copy_in(struct work *work, const struct prompt *prompt)
{
    for (uint32_t i = 0; i < work->shape->num_blocks; i++) {
        *(uint64_t *)(void *)work->buffer = tag_of(prompt->seed, i);
        memcpy(block_at(work, prompt->slots[i]), work->buffer, work->shape->block_bytes);
    }
}

static struct prompt *next_kept(struct work *work)
{
    return &work->kept[work->next_prompt++ % work->num_prompts];
}

static void run_fetch(void *state)
{
    struct work *work = state;

    prompt_ask(work, &work->flying[0], next_kept(work)->seed);
    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++) {
        struct prompt *prompt = &work->flying[i % 2];
        prompt_await(work, prompt, true);
        if (i + 1 < PROMPTS_A_RUN)
            prompt_ask(work, &work->flying[(i + 1) % 2], next_kept(work)->seed);
        copy_out(work, prompt);
        submit(work, KVPOOL_RELEASE, prompt);
    }
    claim_all(work);
}

static void run_fetch_bare(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++)
        copy_out(work, next_kept(work));
}

static void run_store(void *state)
{
    struct work *work = state;

    prompt_ask(work, &work->flying[0], work->next_seed++);
    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++) {
        struct prompt *prompt = &work->flying[i % 2];
        prompt_await(work, prompt, false);
        if (i + 1 < PROMPTS_A_RUN)
            prompt_ask(work, &work->flying[(i + 1) % 2], work->next_seed++);
        copy_in(work, prompt);
        submit(work, KVPOOL_PUBLISH, prompt);
        submit(work, KVPOOL_RELEASE, prompt);
    }
    claim_all(work);
}

/* Over what is held throughout: nobody fetches it any more. */
static void run_store_bare(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++)
        copy_in(work, next_kept(work));
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void work_init(struct work *work, const struct shape *shape, struct daemon_bed *bed)
{
    const struct kvpool_model model = {.name = "blocks",
                                       .weights_revision = "1",
                                       .dtype = KVPOOL_OPAQUE,
                                       .layout_name = "bench",
                                       .opaque_block_bytes = shape->block_bytes};

    work->shape = shape;
    work->kvpool = daemon_bed_connect(bed, KVPOOL_MAPPED);
    work->model = daemon_bed_model(work->kvpool, &model);
    daemon_bed_must(work->kvpool,
                    kvpool_open_arena(work->kvpool, work->model, 0, NULL, &work->arena), "arena");
    work->buffer = aligned_alloc(4096, shape->block_bytes);
    if (!work->buffer)
        exit(1);
    memset(work->buffer, 1, shape->block_bytes);
    work->num_prompts = KEPT_BYTES / (shape->num_blocks * shape->block_bytes);
    work->next_seed = 1;
    for (uint32_t i = 0; i < work->num_prompts; i++) {
        struct prompt *prompt = &work->kept[i];
        prompt_ask(work, prompt, work->next_seed++);
        prompt_await(work, prompt, false);
        copy_in(work, prompt);
        submit(work, KVPOOL_PUBLISH, prompt);
        claim_all(work);
    }
    for (uint32_t i = 0; i < 2 * MAX_PROMPTS / PROMPTS_A_RUN; i++) /* until it evicts */
        run_store(work);
}

static void measure(struct bench *bench, struct work *work, const char *name,
                    void (*run)(void *state), void (*run_bare)(void *state))
{
    static struct bench_case cases[2];
    const double num_items = (double)PROMPTS_A_RUN * work->shape->num_blocks;

    cases[0] = (struct bench_case){.run = run, .state = work, .num_items = num_items};
    cases[1] = (struct bench_case){.run = run_bare, .state = work, .num_items = num_items};
    bench_run(bench, cases, 2);
    bench_report(bench, &(struct bench_row){.name = name,
                                            .ours = cases[0].median_ns / 1e3,
                                            .unit = "us/block",
                                            .limit_name = "bare memcpy",
                                            .limit = cases[1].median_ns / 1e3,
                                            .ratio = bench_ratio(bench, &cases[0], &cases[1]),
                                            .worst_ratio = 2});
}

/* clang-format off */
static const struct shape shapes[] = {
    {"fetch, 64 KiB x 128, mapped", "store, 64 KiB x 128, mapped", 128, 64 << 10},
    {"fetch, 2 MiB x 8, mapped",    "store, 2 MiB x 8, mapped",      8,  2 << 20},
};
/* clang-format on */

void bench_blocks(struct bench *bench, struct daemon_bed *bed, const char *program)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct work *work = calloc(1, sizeof(*work));
        if (!work)
            exit(1);
        daemon_bed_start(bed, program, "pool-bytes: 640MiB\npage-bytes: 2MiB\n");
        work_init(work, &shapes[i], bed);
        measure(bench, work, shapes[i].fetch_name, run_fetch, run_fetch_bare);
        measure(bench, work, shapes[i].store_name, run_store, run_store_bare);
        if (work->num_wrong > 0)
            bench_fail(bench, "a block was not what was stored");
        kvpool_disconnect(work->kvpool);
        kvpool_close_arena(&work->arena);
        free(work->buffer);
        free(work);
        daemon_bed_stop(bed);
    }
}
