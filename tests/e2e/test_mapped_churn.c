/*
 * tests/e2e/test_mapped_churn.c - a slot whose block a live session holds is never reused.
 *
 * In an arena of twice what is read at a time, writers allocate, fill, publish and release without
 * a pause, so that everything is evicted again and again. A reader matches, holds, reads and checks
 * every word of every block: it must be of its tenant, its prompt, its place in it, and of the
 * generation that the reader's table says. A writer of another tenant makes granules change sides.
 *
 * usage: test_e2e_mapped_churn [--blocks N] [--seed N]     10^7 blocks take a few minutes
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"

#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BLOCK_TOKENS = 16,
    BLOCK_BYTES = 4096,
    PROMPT_BLOCKS = 16,
    PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_TOKENS,
    PROMPTS = 48, /* 768 blocks, for an arena of 256 */
    READ_AT_ONCE = 8,
    READ_BLOCKS = READ_AT_ONCE * PROMPT_BLOCKS
};

/* Of 64 KiB pages with 16 slots: twice what the reader holds, and the watermark. */
static const char config[] = "pool-bytes: 1MiB\nwatermark-pages: 1\n";
_Static_assert((2 * READ_BLOCKS) * BLOCK_BYTES == 1 << 20, "the arena is twice the read size");

static const struct kvpool_model model = {.name = "churn",
                                          .weights_revision = "1",
                                          .dtype = KVPOOL_OPAQUE,
                                          .block_tokens = BLOCK_TOKENS,
                                          .layout_name = "words",
                                          .opaque_block_bytes = BLOCK_BYTES};

static struct daemon daemon_;
static uint64_t num_wanted = 40000, seed = 1;

struct engine {
    struct kvpool *kvpool;
    uint32_t model;
    struct kvpool_arena arena;
    uint64_t random;
    uint64_t tenant; /* goes into every block */
};

static void engine_init(struct engine *engine, const char *token, uint64_t salt)
{
    *engine = (struct engine){.kvpool = engine_connect(&daemon_, token, KVPOOL_MAPPED),
                              .random = (seed * 1000 + salt) * 2 + 1,
                              .tenant = token ? 2 : 1};
    assert_non_null(engine->kvpool);
    assert_int_equal(kvpool_register_model(engine->kvpool, &model, &engine->model, NULL), 0);
    assert_int_equal(kvpool_open_arena(engine->kvpool, engine->model, 0, NULL, &engine->arena), 0);
}

static uint32_t random_below(struct engine *engine, uint32_t bound)
{
    engine->random ^= engine->random << 13;
    engine->random ^= engine->random >> 7;
    engine->random ^= engine->random << 17;
    return (uint32_t)(engine->random >> 33) % bound;
}

static struct kvpool_prompt prompt_make(const struct engine *engine, uint32_t prompt,
                                        uint32_t *tokens)
{
    tokens_make(tokens, PROMPT_TOKENS, prompt);
    return (struct kvpool_prompt){
        .model = engine->model, .tokens = tokens, .num_tokens = PROMPT_TOKENS, .raw = true};
}

static uint64_t tag_of(const struct engine *engine, uint32_t prompt, uint32_t position,
                       uint32_t generation)
{
    return block_tag(engine->tenant << 32 | prompt, position, generation);
}

/* ---- writers -------------------------------------------------------------------------------- */

/* One prompt: what is not there is filled, published in two parts, and let go of. */
static void write_one(struct engine *engine, uint64_t sequence)
{
    uint32_t tokens[PROMPT_TOKENS], slots[PROMPT_BLOCKS], generations[PROMPT_BLOCKS];
    uint32_t prompt = random_below(engine, PROMPTS);
    struct kvpool_prompt wire = prompt_make(engine, prompt, tokens);
    struct kvpool_table table = {.slots = slots, .generations = generations, .max = PROMPT_BLOCKS};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &table, .num_tables = 1};
    struct kvpool_result result;
    int answer = kvpool_allocate(engine->kvpool, sequence, &wire, &options, &result);

    if (answer == KVPOOL_NO_BLOCKS) /* the reader and the other writers have them */
        return;
    assert_int_equal(answer, 0);
    uint32_t first = (uint32_t)result.matched / BLOCK_TOKENS, half = (first + PROMPT_BLOCKS) / 2;
    for (uint32_t i = first; i < PROMPT_BLOCKS; i++) {
        block_fill(block_at(&engine->arena, slots[i]), BLOCK_BYTES,
                   tag_of(engine, prompt, i, generations[i]));
        if (i + 1 == half)
            assert_int_equal(
                kvpool_publish_up_to(engine->kvpool, sequence, (uint64_t)half * BLOCK_TOKENS), 0);
    }
    if (random_below(engine, 8)) /* else: let go of half of it unpublished */
        assert_int_equal(kvpool_publish_up_to(engine->kvpool, sequence, PROMPT_TOKENS), 0);
    assert_int_equal(kvpool_release(engine->kvpool, sequence), 0);
}

static void run_writer_of(const char *token, int parent_fd)
{
    struct engine engine;

    engine_init(&engine, token, token ? 20 : 10);
    assert_int_equal(peer_send(parent_fd, "+", 1, -1), 0);
    for (uint64_t sequence = 1;; sequence++) /* until it is killed */
        write_one(&engine, sequence);
}

static void run_writer(int parent_fd, int unused)
{
    (void)unused;
    run_writer_of(NULL, parent_fd);
}

static void run_other_tenant(int parent_fd, int unused)
{
    (void)unused;
    run_writer_of("token-of-tenant-b-0123", parent_fd);
}

/* ---- the reader ----------------------------------------------------------------------------- */

struct read {
    uint32_t prompt, num_matched;
    uint32_t tokens[PROMPT_TOKENS], slots[PROMPT_BLOCKS], generations[PROMPT_BLOCKS];
    struct kvpool_prompt wire;
    struct kvpool_table table;
    uint64_t ticket;
};

/* Holds what is there of the prompt, and takes nothing new. */
static void read_submit(struct engine *engine, struct read *read, uint64_t sequence)
{
    read->prompt = random_below(engine, PROMPTS);
    read->wire = prompt_make(engine, read->prompt, read->tokens);
    read->table = (struct kvpool_table){
        .slots = read->slots, .generations = read->generations, .max = PROMPT_BLOCKS};
    const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                            .sequence = sequence,
                                            .prompt = &read->wire,
                                            .unfilled = true,
                                            .has_take = true,
                                            .tables = &read->table,
                                            .num_tables = 1};
    assert_int_equal(kvpool_submit(engine->kvpool, &allocate, &read->ticket), 0);
}

static void check(const struct engine *engine, const struct read *read)
{
    for (uint32_t i = 0; i < read->num_matched; i++) {
        const void *block = block_at(&engine->arena, read->slots[i]);
        if (block_is(block, BLOCK_BYTES, tag_of(engine, read->prompt, i, read->generations[i])))
            continue;
        print_error("torn: block %u of prompt %u, slot %u, generation %u\n", i, read->prompt,
                    read->slots[i], read->generations[i]);
        fail();
    }
}

/* Eight prompts at once, all held until all were read; some twice, some much later. Returns the
 * blocks. */
static uint32_t read_round(struct engine *engine, struct read *reads, uint64_t first)
{
    uint32_t num_blocks = 0;
    uint64_t tickets[READ_AT_ONCE];
    struct kvpool_result result;

    for (uint32_t i = 0; i < READ_AT_ONCE; i++)
        read_submit(engine, &reads[i], first + i);
    for (uint32_t i = 0; i < READ_AT_ONCE; i++) {
        int answer = kvpool_wait(engine->kvpool, reads[i].ticket, &result);
        assert_int_equal(answer, 0);
        reads[i].num_matched = (uint32_t)result.matched / BLOCK_TOKENS;
        assert_int_equal(reads[i].table.num, reads[i].num_matched);
        num_blocks += reads[i].num_matched;
        check(engine, &reads[i]);
    }
    if (random_below(engine, 16) == 0)
        (void)usleep(5000); /* long enough for everything else to be evicted */
    for (uint32_t i = 0; i < READ_AT_ONCE; i++) {
        const struct kvpool_request release = {.verb = KVPOOL_RELEASE, .sequence = first + i};
        if (i % 2 == 0)
            check(engine, &reads[i]);
        assert_int_equal(kvpool_submit(engine->kvpool, &release, &tickets[i]), 0);
    }
    for (uint32_t i = 0; i < READ_AT_ONCE; i++)
        assert_int_equal(kvpool_wait(engine->kvpool, tickets[i], NULL), 0);
    return num_blocks;
}

static void not_one_block_is_torn(void **state)
{
    static struct read reads[READ_AT_ONCE];
    struct peer writer, other;
    struct engine reader;
    uint64_t num_blocks = 0, start_ms;
    char byte;

    daemon_start(&daemon_, config);
    *state = &daemon_;
    peer_start(&writer, run_writer, -1);
    peer_start(&other, run_other_tenant, -1);
    assert_int_equal(peer_receive(writer.fd, &byte, 1, NULL), 0);
    assert_int_equal(peer_receive(other.fd, &byte, 1, NULL), 0);
    engine_init(&reader, NULL, 30);
    start_ms = now_ms();
    for (uint64_t round = 0; num_blocks < num_wanted; round++) {
        num_blocks += read_round(&reader, reads, 1 + round * READ_AT_ONCE);
        assert_true(now_ms() - start_ms < 60000 || num_blocks > 0);
    }
    uint64_t num_evicted = stat_read(&daemon_, "pool_evictions");
    print_message("%lu blocks read, not one torn; %lu evicted, in %lu ms\n", num_blocks,
                  num_evicted, now_ms() - start_ms);
    assert_in_range(num_evicted, num_wanted / 8, UINT64_MAX - 1); /* or it would show nothing */
    assert_int_equal(peer_finish(&writer, SIGKILL), 128 + SIGKILL);
    assert_int_equal(peer_finish(&other, SIGKILL), 128 + SIGKILL);
    kvpool_disconnect(reader.kvpool);
    kvpool_close_arena(&reader.arena);
    stat_await(&daemon_, "pool_sequences", 0, 5000);
}

static int finish(void **state)
{
    if (*state)
        daemon_finish(*state);
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--blocks"))
            num_wanted = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 10);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(not_one_block_is_torn, finish)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
