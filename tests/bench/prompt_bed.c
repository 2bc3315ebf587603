/* tests/bench/prompt_bed.c - an engine that writes and reads whole prompts in a mapped arena. */
#include "tests/bench/prompt_bed.h"

#include <stdlib.h>
#include <string.h>

/* Prompts whose publishes and releases are claimed together: of KVPOOL_MAX_OUTSTANDING. */
enum { UNCLAIMED = 64 };

struct prompt_bed *prompt_bed_create(const struct daemon_bed *daemon,
                                     const struct prompt_shape *shape, uint32_t flags)
{
    const struct kvpool_model model = {.name = "prompts",
                                       .weights_revision = "1",
                                       .dtype = KVPOOL_OPAQUE,
                                       .layout_name = "bench",
                                       .opaque_block_bytes = shape->block_bytes};
    struct prompt_bed *bed = calloc(1, sizeof(*bed));

    if (!bed)
        exit(1);
    bed->shape = *shape;
    if (bed->shape.num_flying == 0)
        bed->shape.num_flying = 1;
    bed->kvpool = daemon_bed_connect(daemon, KVPOOL_MAPPED | flags);
    bed->model = daemon_bed_model(bed->kvpool, &model);
    daemon_bed_must(bed->kvpool, kvpool_open_arena(bed->kvpool, bed->model, 0, NULL, &bed->arena),
                    "arena");
    bed->buffer = aligned_alloc(4096, shape->block_bytes);
    if (!bed->buffer)
        exit(1);
    memset(bed->buffer, 1, shape->block_bytes);
    return bed;
}

void prompt_bed_destroy(struct prompt_bed *bed)
{
    kvpool_disconnect(bed->kvpool);
    kvpool_close_arena(&bed->arena);
    free(bed->buffer);
    free(bed);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static uint64_t *block_at(const struct prompt_bed *bed, uint32_t slot)
{
    return (void *)((char *)bed->arena.base + (uint64_t)(slot - 1) * bed->arena.stride_bytes);
}

static uint64_t word_of(uint32_t seed, uint32_t block)
{
    return (uint64_t)seed << 32 | block;
}

static void compute(uint64_t ns)
{
    const uint64_t end = bench_now_ns() + ns;

    while (bench_now_ns() < end)
        ;
}

static void write_blocks(struct prompt_bed *bed, const struct prompt *prompt, uint32_t first)
{
    for (uint32_t i = first; i < bed->shape.num_blocks; i++) {
        uint64_t *block = block_at(bed, prompt->slots[i]);
        if (bed->shape.compute_ns > 0)
            compute(bed->shape.compute_ns);
        if (bed->shape.is_copied)
            memcpy(block, bed->buffer, bed->shape.block_bytes);
        *block = word_of(prompt->seed, i);
    }
}

static void read_blocks(struct prompt_bed *bed, const struct prompt *prompt, uint32_t num)
{
    for (uint32_t i = 0; i < num; i++) {
        const uint64_t *block = block_at(bed, prompt->slots[i]);
        if (bed->shape.is_copied) {
            memcpy(bed->buffer, block, bed->shape.block_bytes);
            block = (void *)bed->buffer;
        }
        bed->num_wrong += *block != word_of(prompt->seed, i);
    }
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static void ask(struct prompt_bed *bed, struct prompt *prompt, uint32_t seed, bool is_found)
{
    const uint32_t num_tokens = bed->shape.num_blocks * PROMPT_BLOCK_TOKENS;
    const struct kvpool_prompt wire = {
        .model = bed->model, .tokens = prompt->tokens, .num_tokens = num_tokens, .raw = true};
    const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                            .sequence = ++bed->next_sequence,
                                            .prompt = &wire,
                                            .unfilled = true,
                                            .has_take = is_found, /* only what is there */
                                            .tables = &prompt->table,
                                            .num_tables = 1};

    prompt->seed = seed;
    prompt->sequence = bed->next_sequence;
    prompt->table = (struct kvpool_table){.slots = prompt->slots, .max = PROMPT_MAX_BLOCKS};
    daemon_bed_tokens(prompt->tokens, num_tokens, seed);
    daemon_bed_must(bed->kvpool, kvpool_submit(bed->kvpool, &allocate, &prompt->ticket),
                    "allocate");
}

/* Blocks that were found. */
static uint32_t await(struct prompt_bed *bed, const struct prompt *prompt)
{
    struct kvpool_result result;
    int answer = kvpool_wait(bed->kvpool, prompt->ticket, &result);

    if (answer)
        daemon_bed_must(NULL, answer, result.message);
    return (uint32_t)(result.matched / PROMPT_BLOCK_TOKENS);
}

/* Nobody waits for these; claim_all() has their answers. */
static void submit(struct prompt_bed *bed, enum kvpool_verb verb, const struct prompt *prompt)
{
    const uint64_t length =
        verb == KVPOOL_PUBLISH ? (uint64_t)bed->shape.num_blocks * PROMPT_BLOCK_TOKENS : 0;
    const struct kvpool_request request = {
        .verb = verb, .sequence = prompt->sequence, .length = length};
    uint64_t ticket;

    daemon_bed_must(bed->kvpool, kvpool_submit(bed->kvpool, &request, &ticket), "submit");
}

static void claim_all(struct prompt_bed *bed)
{
    struct kvpool_result result;

    while (kvpool_poll(bed->kvpool, -1, &result) == 0)
        bed->num_wrong += result.status != 0;
}

static void flush(struct prompt_bed *bed)
{
    daemon_bed_must(bed->kvpool, kvpool_flush(bed->kvpool), "flush");
}

static void put(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_prompts)
{
    const uint32_t num_flying =
        num_prompts < bed->shape.num_flying ? num_prompts : bed->shape.num_flying;

    for (uint32_t i = 0; i < num_flying; i++)
        ask(bed, &bed->flying[i], first_seed + i, false);
    flush(bed);
    for (uint32_t i = 0; i < num_prompts; i++) {
        struct prompt *prompt = &bed->flying[i % num_flying];
        const uint32_t num_found = await(bed, prompt);
        write_blocks(bed, prompt, num_found);
        if (num_found < bed->shape.num_blocks)
            submit(bed, KVPOOL_PUBLISH, prompt);
        submit(bed, KVPOOL_RELEASE, prompt);
        if (i + num_flying < num_prompts)
            ask(bed, prompt, first_seed + i + num_flying, false);
        flush(bed);
    }
    claim_all(bed);
}

static void get(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_all, uint32_t from,
                uint32_t num_prompts)
{
    const uint32_t num_flying =
        num_prompts < bed->shape.num_flying ? num_prompts : bed->shape.num_flying;

    for (uint32_t i = 0; i < num_flying; i++)
        ask(bed, &bed->flying[i], first_seed + (from + i) % num_all, true);
    flush(bed);
    for (uint32_t i = 0; i < num_prompts; i++) {
        struct prompt *prompt = &bed->flying[i % num_flying];
        const uint32_t num_found = await(bed, prompt);
        read_blocks(bed, prompt, num_found);
        bed->num_missed += bed->shape.num_blocks - num_found;
        submit(bed, KVPOOL_RELEASE, prompt);
        if (i + num_flying < num_prompts)
            ask(bed, prompt, first_seed + (from + i + num_flying) % num_all, true);
        flush(bed);
    }
    claim_all(bed);
}

uint32_t prompt_bed_match(struct prompt_bed *bed, uint32_t seed)
{
    struct prompt *prompt = &bed->flying[0];
    const uint32_t num_tokens = bed->shape.num_blocks * PROMPT_BLOCK_TOKENS;
    const struct kvpool_prompt wire = {
        .model = bed->model, .tokens = prompt->tokens, .num_tokens = num_tokens, .raw = true};
    struct kvpool_result result;

    daemon_bed_tokens(prompt->tokens, num_tokens, seed);
    daemon_bed_must(bed->kvpool, kvpool_match(bed->kvpool, &wire, &result), "match");
    return (uint32_t)(result.matched / PROMPT_BLOCK_TOKENS);
}

/* ---- any number ----------------------------------------------------------------------------- */

void prompt_bed_put(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_prompts)
{
    for (uint32_t i = 0; i < num_prompts; i += UNCLAIMED)
        put(bed, first_seed + i, num_prompts - i < UNCLAIMED ? num_prompts - i : UNCLAIMED);
}

void prompt_bed_get(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_all, uint32_t from,
                    uint32_t num_prompts)
{
    for (uint32_t i = 0; i < num_prompts; i += UNCLAIMED)
        get(bed, first_seed, num_all, from + i,
            num_prompts - i < UNCLAIMED ? num_prompts - i : UNCLAIMED);
}
