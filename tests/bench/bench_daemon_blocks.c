/*
 * tests/bench/bench_daemon_blocks.c - fetch and store of prompts through a mapped arena, beside a
 * memcpy loop over the same slots.
 *
 * A fetch matches and holds a prompt, copies its blocks out into one reused buffer, and lets go. A
 * store allocates a prompt that nobody knows, copies its blocks in, publishes and lets go, in a
 * full pool that evicts. FLYING prompts are asked for before the first is copied, and TOGETHER of
 * them in one message, so that round trips are hidden behind copies, and their wake-ups shared. All
 * memory is several times the last-level cache.
 */
#include "tests/bench/daemon_bed.h"
#include "tests/bench/limit_ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BLOCKS = 128,
    MAX_PROMPTS = 32,
    PROMPTS_A_RUN = 32,
    REQUEST_BYTES = 1024,
    SINGLES_A_RUN = 64,
    BLOCK_TOKENS = 16,
    FLYING = 8,            /* prompts asked for and not copied yet ... */
    TOGETHER = 4,          /* ... of which so many are asked for in one message */
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
    struct prompt kept[MAX_PROMPTS], flying[FLYING];
    char *buffer; /* of one block */
    struct limit_echo *echo;
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
}

static void flush(struct work *work)
{
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

/* Verbs of the prompts that were copied and of those to come go in one message. */
static void run_prompts(struct work *work, bool is_warm)
{
    for (uint32_t i = 0; i < FLYING; i++)
        prompt_ask(work, &work->flying[i], is_warm ? next_kept(work)->seed : work->next_seed++);
    flush(work);
    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++) {
        struct prompt *prompt = &work->flying[i % FLYING];
        prompt_await(work, prompt, is_warm);
        if (is_warm) {
            copy_out(work, prompt);
        } else {
            copy_in(work, prompt);
            submit(work, KVPOOL_PUBLISH, prompt);
        }
        submit(work, KVPOOL_RELEASE, prompt);
        if (i + FLYING < PROMPTS_A_RUN)
            prompt_ask(work, prompt, is_warm ? next_kept(work)->seed : work->next_seed++);
        if (i % TOGETHER == TOGETHER - 1)
            flush(work);
    }
    claim_all(work);
}

static void run_fetch(void *state)
{
    run_prompts(state, true);
}

static void run_store(void *state)
{
    run_prompts(state, false);
}

static void run_fetch_bare(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++)
        copy_out(work, next_kept(work));
}

/* Over what is held throughout: nobody fetches it any more. */
static void run_store_bare(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++)
        copy_in(work, next_kept(work));
}

/* The least that a daemon could do for a fetch: answer. Two requests are under way here, too. */
static void run_fetch_echo(void *state)
{
    struct work *work = state;

    limit_echo_send(work->echo, REQUEST_BYTES);
    limit_echo_send(work->echo, REQUEST_BYTES);
    for (uint32_t i = 0; i < PROMPTS_A_RUN; i++) {
        limit_echo_receive(work->echo);
        copy_out(work, next_kept(work));
        if (i + 2 < PROMPTS_A_RUN)
            limit_echo_send(work->echo, REQUEST_BYTES);
    }
}

/* One block, nothing under way beside it: the worst that can be asked. Its release is not waited
 * for. */
static void run_fetch_one(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < SINGLES_A_RUN; i++) {
        struct prompt *prompt = &work->flying[0];
        const struct prompt *kept = next_kept(work);
        const struct kvpool_prompt wire = {
            .model = work->model, .tokens = kept->tokens, .num_tokens = BLOCK_TOKENS, .raw = true};
        const struct kvpool_allocate_options options = {.tables = &prompt->table, .num_tables = 1};
        prompt->sequence = ++work->next_sequence;
        prompt->table = (struct kvpool_table){.slots = prompt->slots, .max = MAX_BLOCKS};
        daemon_bed_must(work->kvpool,
                        kvpool_allocate(work->kvpool, prompt->sequence, &wire, &options, NULL),
                        "allocate");
        memcpy(work->buffer, block_at(work, prompt->slots[0]), work->shape->block_bytes);
        work->num_wrong += *(uint64_t *)(void *)work->buffer != tag_of(kept->seed, 0);
        submit(work, KVPOOL_RELEASE, prompt);
    }
    claim_all(work);
}

static void run_fetch_one_echo(void *state)
{
    struct work *work = state;

    for (uint32_t i = 0; i < SINGLES_A_RUN; i++) {
        limit_echo_run(work->echo, 1, REQUEST_BYTES, 1);
        memcpy(work->buffer, block_at(work, next_kept(work)->slots[0]), work->shape->block_bytes);
    }
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

struct limit {
    const char *name;
    void (*run)(void *state);
    double worst_ratio; /* 0: none; else far over CLAIMS.md, so that noise does not fail a build */
};

static void measure(struct bench *bench, struct work *work, const char *name,
                    void (*run)(void *state), const struct limit *limits, size_t num_limits)
{
    static struct bench_case cases[3];
    const double num_items =
        run == run_fetch_one ? SINGLES_A_RUN : (double)PROMPTS_A_RUN * work->shape->num_blocks;
    struct bench half = *bench;

    half.num_rounds = (bench->num_rounds + 1) / 2; /* a round copies a gigabyte */
    cases[0] = (struct bench_case){.run = run, .state = work, .num_items = num_items};
    for (size_t i = 0; i < num_limits; i++)
        cases[1 + i] =
            (struct bench_case){.run = limits[i].run, .state = work, .num_items = num_items};
    bench_run(&half, cases, 1 + num_limits);
    for (size_t i = 0; i < num_limits; i++)
        bench_report(bench,
                     &(struct bench_row){.name = name,
                                         .ours = cases[0].median_ns / 1e3,
                                         .unit = "us/block",
                                         .limit_name = limits[i].name,
                                         .limit = cases[1 + i].median_ns / 1e3,
                                         .ratio = bench_ratio(&half, &cases[0], &cases[1 + i]),
                                         .worst_ratio = limits[i].worst_ratio});
}

static const struct limit fetch_limits[] = {
    {"bare memcpy", run_fetch_bare, 3},
    {"memcpy, an echo a prompt", run_fetch_echo, 3},
};
static const struct limit one_limits[] = {{"memcpy, an echo a block", run_fetch_one_echo, 0}};
static const struct limit store_limits[] = {{"bare memcpy", run_store_bare, 3}};

/* clang-format off */
static const struct shape shapes[] = {
    {"fetch, 64 KiB x 128, mapped", "store, 64 KiB x 128, mapped", 128, 64 << 10},
    {"fetch, 2 MiB x 8, mapped",    "store, 2 MiB x 8, mapped",      8,  2 << 20},
};
/* clang-format on */

void bench_blocks(struct bench *bench, struct daemon_bed *bed, const char *program,
                  struct limit_echo *echo)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct work *work = calloc(1, sizeof(*work));
        if (!work)
            exit(1);
        daemon_bed_start(bed, program, "pool-bytes: 640MiB\npage-bytes: 2MiB\n");
        work->echo = echo;
        work_init(work, &shapes[i], bed);
        measure(bench, work, shapes[i].fetch_name, run_fetch, fetch_limits, 2);
        if (i == 0)
            measure(bench, work, "fetch, 64 KiB x 1, one outstanding", run_fetch_one, one_limits,
                    1);
        measure(bench, work, shapes[i].store_name, run_store, store_limits, 1);
        if (work->num_wrong > 0)
            bench_fail(bench, "a block was not what was stored");
        kvpool_disconnect(work->kvpool);
        kvpool_close_arena(&work->arena);
        free(work->buffer);
        free(work);
        daemon_bed_stop(bed);
    }
}
