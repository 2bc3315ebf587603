/* tests/e2e/poison.c - random load whose every block is compared. */
#include "tests/e2e/poison.h"

#include "tests/e2e/daemon.h"
#include "tests/e2e/poison_block.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MAX_BLOCK = 13000, FAMILIES = 8, TOKEN_OF_B = 22 };

static const struct kvpool_model models[POISON_MODELS] = {
    {.name = "four",
     .weights_revision = "1",
     .dtype = KVPOOL_OPAQUE,
     .layout_name = "bytes",
     .opaque_block_bytes = 4000},
    {.name = "thirteen",
     .weights_revision = "1",
     .dtype = KVPOOL_OPAQUE,
     .layout_name = "bytes",
     .opaque_block_bytes = MAX_BLOCK},
};

/* ---- prompts -------------------------------------------------------------------------------- */

/* A prompt, and what stands for all of its tokens up to each block. */
struct poison_prompt {
    struct kvpool_prompt prompt;
    uint32_t model, num_blocks;
    uint64_t prefixes[POISON_BLOCKS];
    uint32_t tokens[POISON_BLOCKS * POISON_TOKENS];
};

/* Prompts of one family begin alike; a third of them is looked for in the shared domain first. */
static void prompt_make(const struct poison_client *client, uint32_t key, struct poison_prompt *out)
{
    uint32_t family = key % FAMILIES, common = family % 4;
    uint64_t prefix = 0;

    out->model = client->engine->is_one_model ? 0 : (uint32_t)(poison_mix(family) % POISON_MODELS);
    out->num_blocks = 1 + (uint32_t)(poison_mix(key) % POISON_BLOCKS);
    for (uint32_t at = 0; at < out->num_blocks; at++) {
        uint32_t seed = at < common ? family * 1000 + at : 100000 + key * 100 + at;
        tokens_make(out->tokens + (size_t)at * POISON_TOKENS, POISON_TOKENS, seed);
        prefix = poison_mix(prefix ^ seed ^ (uint64_t)out->model << 40);
        out->prefixes[at] = prefix;
    }
    out->prompt = (struct kvpool_prompt){.model = client->models[out->model],
                                         .tokens = out->tokens,
                                         .num_tokens = (size_t)out->num_blocks * POISON_TOKENS,
                                         .raw = true};
    if (family % 3 == 0 && client->engine->owner == 0)
        out->prompt.fill_domain = "s";
    else if (family % 3 == 0)
        out->prompt.shared_domain = "s";
}

static uint64_t block_bytes(const struct poison_prompt *prompt)
{
    return models[prompt->model].opaque_block_bytes;
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static void
complain(struct poison_board *board, _Atomic uint64_t *count, const char *format, ...)
{
    va_list arguments;

    atomic_fetch_add(count, 1);
    if (atomic_exchange(&board->has_text, true))
        return;
    va_start(arguments, format);
    (void)vsnprintf(board->text, sizeof(board->text), format, arguments);
    va_end(arguments);
}

/* The statuses that a full, tiny, dying or failing daemon may give. */
static void note(struct poison_client *client, const char *verb, int status)
{
    struct poison_board *board = client->engine->board;

    switch (status) {
    case 0:
    case KVPOOL_QUOTA:
    case KVPOOL_NO_BLOCKS:
    case KVPOOL_STALE:
    case KVPOOL_BUSY:
    case KVPOOL_MISS:
    case KVPOOL_CANCELLED:
    case KVPOOL_DRAINING:
    case KVPOOL_DISCONNECTED:
        return;
    case KVPOOL_TIMEOUT:
        atomic_fetch_add(&board->timeouts, 1);
        return;
    case KVPOOL_FAILED:
        atomic_fetch_add(&board->failures, 1);
        return;
    default:
        complain(board, &board->odd, "%s: %s: %s", verb, kvpool_status_name(status),
                 kvpool_message(client->kvpool));
    }
}

/* ---- blocks of a sequence ------------------------------------------------------------------- */

static uint8_t bytes_[POISON_BLOCKS * MAX_BLOCK];

struct span {
    uint64_t sequence;
    uint32_t num_shared; /* of its blocks, the first so many are the shared domain's */
    uint32_t matched;
    uint32_t slots[POISON_BLOCKS];
    uint64_t since; /* Clears that were over before it was allocated */
};

static struct kvpool_blocks blocks_of(const struct poison_prompt *prompt, const struct span *span,
                                      uint32_t first, uint32_t end)
{
    return (struct kvpool_blocks){.sequence = span->sequence,
                                  .first_block = first,
                                  .num_blocks = end - first,
                                  .data = bytes_,
                                  .data_bytes = (end - first) * block_bytes(prompt)};
}

static bool is_shared(const struct poison_prompt *prompt, const struct span *span, uint32_t at)
{
    return prompt->prompt.fill_domain != NULL || at < span->num_shared;
}

static uint64_t owner_of(const struct poison_client *client, const struct poison_prompt *prompt,
                         const struct span *span, uint32_t at)
{
    return is_shared(prompt, span, at) ? POISON_SHARED : client->engine->owner;
}

static void compare(struct poison_client *client, const struct poison_prompt *prompt,
                    const struct span *span, uint32_t at, const void *block)
{
    struct poison_board *board = client->engine->board;
    struct poison_identity found;

    memcpy(&found, block, sizeof(found));
    bool is_right = found.magic == POISON_MAGIC &&
                    found.owner == owner_of(client, prompt, span, at) &&
                    found.prefix == prompt->prefixes[at] && found.generation >= span->since &&
                    found.generation <= atomic_load(&board->begun) &&
                    poison_block_is_exact(block, block_bytes(prompt), &found);
    if (!is_right)
        complain(board, &board->wrong,
                 "block %u (%u matched, %u shared) of tenant %u, model %u: owner %lu, prefix %s, "
                 "generation %lu of %lu..%lu",
                 at, span->matched, span->num_shared, client->engine->owner, prompt->model,
                 found.owner, found.prefix == prompt->prefixes[at] ? "right" : "wrong",
                 found.generation, span->since, atomic_load(&board->begun));
}

static void *place_of(const struct poison_client *client, const struct poison_prompt *prompt,
                      const struct span *span, uint32_t at)
{
    const struct kvpool_arena *arena = &client->arenas[prompt->model][is_shared(prompt, span, at)];

    return (char *)arena->base + (uint64_t)(span->slots[at] - 1) * arena->stride_bytes;
}

/* What lies in mapped memory counts if the session, and so the hold, is still there afterwards. */
static int bytes_take(struct poison_client *client, const struct poison_prompt *prompt,
                      const struct span *span, const struct kvpool_blocks *blocks)
{
    if (!client->engine->is_mapped)
        return kvpool_read(client->kvpool, blocks);
    for (uint32_t at = 0; at < blocks->num_blocks; at++)
        memcpy(bytes_ + at * block_bytes(prompt), place_of(client, prompt, span, at),
               block_bytes(prompt));
    int status = kvpool_match(client->kvpool, &prompt->prompt, NULL);
    if (status == 0)
        atomic_fetch_add(&client->engine->board->mapped_reads, blocks->num_blocks);
    return status;
}

/* Blocks that the sequence has, from the first. */
static int read_all(struct poison_client *client, const struct poison_prompt *prompt,
                    const struct span *span, uint32_t num_blocks)
{
    struct poison_board *board = client->engine->board;
    const struct kvpool_blocks blocks = blocks_of(prompt, span, 0, num_blocks);

    if (num_blocks == 0)
        return 0;
    memset(bytes_, 0xA5, blocks.data_bytes);
    int status = bytes_take(client, prompt, span, &blocks);
    note(client, "read", status);
    for (uint32_t at = 0; status == 0 && at < num_blocks; at++) {
        compare(client, prompt, span, at, bytes_ + at * block_bytes(prompt));
        atomic_fetch_add(&board->reads, 1);
        atomic_fetch_add(&board->shared_reads, is_shared(prompt, span, at));
    }
    return status;
}

/* From bytes_, and every block is filled. */
static int bytes_put(struct poison_client *client, const struct poison_prompt *prompt,
                     const struct span *span, const struct kvpool_blocks *blocks)
{
    if (!client->engine->is_mapped) {
        int status = blocks->num_blocks == 0 ? 0 : kvpool_write(client->kvpool, blocks);
        return status ? status : kvpool_fill(client->kvpool, span->sequence);
    }
    for (uint32_t at = 0; at < blocks->num_blocks; at++)
        memcpy(place_of(client, prompt, span, blocks->first_block + at),
               bytes_ + at * block_bytes(prompt), block_bytes(prompt));
    return 0;
}

static int publish(struct poison_client *client, const struct poison_prompt *prompt,
                   const struct span *span)
{
    if (client->engine->is_mapped)
        return kvpool_publish_up_to(client->kvpool, span->sequence, prompt->prompt.num_tokens);
    return kvpool_publish(client->kvpool, span->sequence);
}

static int write_rest(struct poison_client *client, const struct poison_prompt *prompt,
                      const struct span *span)
{
    struct poison_board *board = client->engine->board;
    uint32_t first = span->matched;
    const struct kvpool_blocks blocks = blocks_of(prompt, span, first, prompt->num_blocks);
    /* Behind the answer to the allocation: never less than the Clears before it. */
    uint64_t generation = atomic_load(&board->begun);

    for (uint32_t at = first; at < prompt->num_blocks; at++) {
        const struct poison_identity identity = {POISON_MAGIC, owner_of(client, prompt, span, at),
                                                 prompt->prefixes[at], generation};
        poison_block_make(bytes_ + (at - first) * block_bytes(prompt), block_bytes(prompt),
                          &identity);
    }
    int status = bytes_put(client, prompt, span, &blocks);
    note(client, "write", status);
    if (status == 0) {
        atomic_fetch_add(&board->writes, prompt->num_blocks - first);
        note(client, "publish", status = publish(client, prompt, span));
    }
    return status;
}

static void span_take(struct poison_client *client, const struct kvpool_result *result,
                      const struct kvpool_table *table, struct span *span)
{
    span->matched = (uint32_t)(result->matched / POISON_TOKENS);
    span->num_shared = table->num_shared;
    atomic_fetch_add(&client->engine->board->below, result->below / POISON_TOKENS);
}

static int allocate(struct poison_client *client, const struct poison_prompt *prompt,
                    bool is_only_matched, struct span *out)
{
    struct kvpool_table table = {.slots = out->slots, .max = POISON_BLOCKS};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .has_take = is_only_matched, .tables = &table, .num_tables = 1};
    struct kvpool_result result;

    *out = (struct span){.sequence = client->next_sequence++,
                         .since = atomic_load(&client->engine->board->cleared)};
    int status = kvpool_allocate(client->kvpool, out->sequence, &prompt->prompt, &options, &result);
    note(client, "allocate", status);
    if (status == 0)
        span_take(client, &result, &table, out);
    return status;
}

static void release(struct poison_client *client, uint64_t sequence)
{
    int status = kvpool_release(client->kvpool, sequence);

    if (status != KVPOOL_NOT_FOUND) /* a request that timed out was carried out, or was not */
        note(client, "release", status);
}

/* ---- what engines do ------------------------------------------------------------------------ */

int poison_get(struct poison_client *client, uint32_t key, uint32_t *out_found,
               uint32_t *out_blocks)
{
    struct poison_prompt prompt;
    struct span span;

    prompt_make(client, key, &prompt);
    *out_blocks = prompt.num_blocks;
    *out_found = 0;
    int status = allocate(client, &prompt, true, &span);
    if (status == 0) {
        *out_found = span.matched;
        status = read_all(client, &prompt, &span, span.matched);
    }
    release(client, span.sequence);
    return status;
}

static int put(struct poison_client *client, const struct poison_prompt *prompt, struct span *span)
{
    int status = allocate(client, prompt, false, span);

    if (status == 0)
        status = read_all(client, prompt, span, span->matched);
    if (status == 0)
        status = write_rest(client, prompt, span);
    return status;
}

int poison_put(struct poison_client *client, uint32_t key)
{
    struct poison_prompt prompt;
    struct span span;

    prompt_make(client, key, &prompt);
    int status = put(client, &prompt, &span);
    release(client, span.sequence);
    return status;
}

/* Its own blocks are of its own time: those that it keeps may be older than a Clear. */
static void do_put(struct poison_client *client, const struct poison_prompt *prompt)
{
    struct span span;

    if (put(client, prompt, &span) == 0)
        (void)read_all(client, prompt, &span, prompt->num_blocks);
    release(client, span.sequence);
}

static void do_get(struct poison_client *client, const struct poison_prompt *prompt)
{
    struct span span;

    if (allocate(client, prompt, true, &span) == 0)
        (void)read_all(client, prompt, &span, span.matched);
    release(client, span.sequence);
}

static void do_preempt(struct poison_client *client, const struct poison_prompt *prompt)
{
    struct span span;
    struct kvpool_table table = {.slots = span.slots, .max = POISON_BLOCKS};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &table, .num_tables = 1};
    struct poison_board *board = client->engine->board;
    struct kvpool_result result;
    struct poison_prompt other;
    int status = put(client, prompt, &span);

    if (status == 0)
        note(client, "preempt", status = kvpool_preempt(client->kvpool, span.sequence));
    if (status == 0) {
        prompt_make(client, (uint32_t)(poison_mix(client->random) % client->engine->num_keys),
                    &other);
        do_put(client, &other);
        span.since = atomic_load(&board->cleared);
        status = kvpool_resume(client->kvpool, span.sequence, &options, &result);
        note(client, "resume", status);
    }
    if (status == 0) {
        span_take(client, &result, &table, &span);
        status = read_all(client, prompt, &span, span.matched);
        atomic_fetch_add(&board->resumes, 1);
    }
    if (status == 0 && write_rest(client, prompt, &span) == 0)
        (void)read_all(client, prompt, &span, prompt->num_blocks);
    release(client, span.sequence);
}

static void do_fork(struct poison_client *client, const struct poison_prompt *prompt)
{
    struct span span, child;
    int status = put(client, prompt, &span);

    child = span;
    child.sequence = client->next_sequence++;
    if (status == 0)
        note(client, "fork", status = kvpool_fork(client->kvpool, span.sequence, child.sequence));
    release(client, span.sequence);
    if (status != 0)
        return;
    (void)read_all(client, prompt, &child, prompt->num_blocks);
    atomic_fetch_add(&client->engine->board->forks, 1);
    release(client, child.sequence);
}

static void do_prefetch(struct poison_client *client, const struct poison_prompt *prompt)
{
    struct kvpool_result result;
    int status = kvpool_prefetch(client->kvpool, &prompt->prompt, &result);

    note(client, "prefetch", status);
    if (status == 0 && result.present + result.coming > result.matched)
        complain(client->engine->board, &client->engine->board->odd,
                 "prefetch: %lu present, %lu coming of %lu", result.present, result.coming,
                 result.matched);
    atomic_fetch_add(&client->engine->board->prefetches, 1);
    if (client->random & 1)
        do_get(client, prompt);
}

/* Asked for, and not waited for: cancelled, or over in a millisecond. */
static void do_impatient(struct poison_client *client, const struct poison_prompt *prompt)
{
    bool is_cancel = client->random & 1;
    struct span span = {.sequence = client->next_sequence++};
    const struct kvpool_request request = {.verb = KVPOOL_ALLOCATE,
                                           .sequence = span.sequence,
                                           .prompt = &prompt->prompt,
                                           .unfilled = true,
                                           .has_take = true,
                                           .deadline_ms = is_cancel ? 0 : 1};
    uint64_t ticket;
    int status = kvpool_submit(client->kvpool, &request, &ticket);

    if (status == 0) {
        (void)kvpool_flush(client->kvpool);
        if (is_cancel)
            (void)kvpool_cancel(client->kvpool, ticket);
        status = kvpool_wait(client->kvpool, ticket, NULL);
        atomic_fetch_add(&client->engine->board->cancels, status == KVPOOL_CANCELLED);
    }
    note(client, "allocate in a hurry", status);
    release(client, span.sequence);
}

/* Some prompts are asked for more often than others. */
static uint32_t draw_key(struct poison_client *client)
{
    uint64_t random = client->random = poison_mix(client->random);
    uint32_t keys = client->engine->num_keys;

    return (uint32_t)((random >> 8) % (random % 3 == 0 ? (keys + 15) / 16 : keys));
}

static void round_run(struct poison_client *client)
{
    static const struct {
        uint32_t parts; /* of 100 */
        void (*run)(struct poison_client *client, const struct poison_prompt *prompt);
    } rows[] = {{35, do_get}, {40, do_put},     {8, do_preempt},
                {4, do_fork}, {8, do_prefetch}, {5, do_impatient}};
    struct poison_prompt prompt;

    prompt_make(client, draw_key(client), &prompt);
    uint32_t drawn = (uint32_t)(poison_mix(client->random ^ 77) % 100), at = 0;
    while (drawn >= rows[at].parts)
        drawn -= rows[at++].parts;
    rows[at].run(client, &prompt);
    atomic_fetch_add(&client->engine->board->rounds, 1);
}

/* ---- connections ---------------------------------------------------------------------------- */

static int arenas_open(struct poison_client *client)
{
    int status = 0;

    for (uint32_t at = 0; status == 0 && at < 2 * POISON_MODELS; at++)
        status = kvpool_open_arena(client->kvpool, client->models[at / 2], 0, at % 2 ? "s" : NULL,
                                   &client->arenas[at / 2][at % 2]);
    note(client, "open arena", status);
    return status;
}

static void poison_disconnect(struct poison_client *client)
{
    for (uint32_t at = 0; at < 2 * POISON_MODELS; at++)
        kvpool_close_arena(&client->arenas[at / 2][at % 2]);
    kvpool_disconnect(client->kvpool);
    client->kvpool = NULL;
}

int poison_connect(struct poison_client *client)
{
    static const uint32_t stores[] = {0, KVPOOL_STORE_PROMPT, KVPOOL_STORE_ALL};
    char message[KVPOOL_MAX_MESSAGE] = "";
    const struct kvpool_options options = {
        .struct_bytes = sizeof(options),
        .dir = client->engine->dir,
        .token = client->engine->owner == 1 ? "token-of-tenant-b-0123" : NULL,
        .flags = stores[client->engine->seed % 3] |
                 (client->engine->is_mapped ? (uint32_t)KVPOOL_MAPPED : 0),
        .connect_ms = 1000,
        .deadline_ms = 3000,
        .staging_bytes = 1 << 20,
        .out_message = message};
    int status = kvpool_connect(&options, &client->kvpool);

    client->next_sequence = 1;
    for (uint32_t at = 0; status == 0 && at < POISON_MODELS; at++)
        status = kvpool_register_model(client->kvpool, &models[at], &client->models[at], NULL);
    if (status == 0 && client->engine->is_mapped)
        status = arenas_open(client);
    if (status)
        poison_disconnect(client);
    return status;
}

static void run(const struct poison_engine *engine)
{
    struct poison_client client = {.engine = engine, .random = poison_mix(engine->seed)};

    while (!atomic_load(&engine->board->must_stop)) {
        if (client.kvpool && kvpool_is_connected(client.kvpool)) {
            round_run(&client);
            continue;
        }
        atomic_fetch_add(&engine->board->lost, client.kvpool != NULL);
        poison_disconnect(&client);
        (void)poison_connect(&client);
    }
    poison_disconnect(&client);
}

/* One after the other, with a look at an earlier one now and then; ends with the connection. */
static void put_run(const struct poison_engine *engine, uint32_t first)
{
    struct poison_client client = {.engine = engine, .random = poison_mix(engine->seed)};
    uint32_t found, blocks;

    if (poison_connect(&client))
        return;
    for (uint32_t key = first; key < engine->num_keys && kvpool_is_connected(client.kvpool);) {
        if (atomic_load(&engine->board->must_stop))
            break;
        client.random = poison_mix(client.random);
        if (client.random % 4 == 0 && key > 0)
            (void)poison_get(&client, (uint32_t)(client.random >> 8) % key, &found, &blocks);
        if (poison_put(&client, key) == 0)
            engine->published[key++] = 1;
    }
    kvpool_disconnect(client.kvpool);
}

static pid_t process_start(const struct poison_engine *engine, bool is_put, uint32_t first)
{
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (is_put)
            put_run(engine, first);
        else
            run(engine);
        _exit(0);
    }
    return pid;
}

pid_t poison_start(const struct poison_engine *engine)
{
    return process_start(engine, false, 0);
}

pid_t poison_put_start(const struct poison_engine *engine, uint32_t first)
{
    return process_start(engine, true, first);
}

struct poison_board *poison_board_make(void)
{
    void *memory = mmap(NULL, sizeof(struct poison_board), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

void poison_board_free(struct poison_board *board)
{
    assert_int_equal(munmap(board, sizeof(*board)), 0);
}
