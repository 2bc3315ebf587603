/*
 * tests/e2e/test_mapped.c - engines that read and write K and V themselves, in mapped arenas.
 *
 * What a block's bytes must be follows from its tenant, its prompt and its place in it, so whoever
 * reads can tell whose bytes they are.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 16, MAX_BLOCKS = 16 };

static struct daemon daemon_;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    return 0;
}

/* A mapped engine with its model, its arena, and the table of its last sequence. */
struct engine {
    struct kvpool *kvpool;
    uint32_t model;
    uint64_t block_bytes;
    struct kvpool_arena arena;
    uint32_t slots[MAX_BLOCKS], generations[MAX_BLOCKS];
    struct kvpool_table table;
};

static void engine_init(struct engine *engine, const char *token, const struct kvpool_model *model)
{
    struct kvpool_model_shape shape;

    *engine = (struct engine){.kvpool = engine_connect(&daemon_, token, KVPOOL_MAPPED)};
    assert_non_null(engine->kvpool);
    assert_int_equal(kvpool_register_model(engine->kvpool, model, &engine->model, &shape), 0);
    engine->block_bytes = shape.block_bytes[0];
    assert_int_equal(kvpool_open_arena(engine->kvpool, engine->model, 0, NULL, &engine->arena), 0);
    assert_int_equal(engine->arena.stride_bytes, shape.stride_bytes[0]);
    assert_true(engine->arena.is_writable);
    engine->table = (struct kvpool_table){
        .slots = engine->slots, .generations = engine->generations, .max = MAX_BLOCKS};
}

static void engine_finish(struct engine *engine)
{
    kvpool_disconnect(engine->kvpool);
    kvpool_close_arena(&engine->arena);
}

static struct kvpool_prompt prompt_of(const struct engine *engine, const uint32_t *tokens,
                                      size_t num_tokens)
{
    return (struct kvpool_prompt){
        .model = engine->model, .tokens = tokens, .num_tokens = num_tokens, .raw = true};
}

/* Returns the tokens that were there. */
static uint64_t allocate(struct engine *engine, uint64_t sequence,
                         const struct kvpool_prompt *prompt)
{
    struct kvpool_result result;
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &engine->table, .num_tables = 1};

    assert_int_equal(kvpool_allocate(engine->kvpool, sequence, prompt, &options, &result), 0);
    return result.matched;
}

static uint64_t matched(struct engine *engine, const struct kvpool_prompt *prompt)
{
    struct kvpool_result result;

    assert_int_equal(kvpool_match(engine->kvpool, prompt, &result), 0);
    return result.matched;
}

static void write_blocks(const struct engine *engine, uint32_t seed, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        block_fill(block_at(&engine->arena, engine->slots[i]), engine->block_bytes,
                   block_tag(seed, i, 0));
}

static void check_blocks(const struct engine *engine, uint32_t seed, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        assert_true(block_is(block_at(&engine->arena, engine->slots[i]), engine->block_bytes,
                             block_tag(seed, i, 0)));
}

/* ---- one session ---------------------------------------------------------------------------- */

static void what_is_published_up_to_a_token_is_read_by_another_engine(void **state)
{
    uint32_t tokens[128];
    struct engine one, two;
    struct kvpool_result result;

    (void)state;
    engine_init(&one, NULL, &small_model);
    engine_init(&two, NULL, &small_model);
    tokens_make(tokens, 128, 1);
    struct kvpool_prompt prompt = prompt_of(&one, tokens, 100);
    assert_int_equal(allocate(&one, 1, &prompt), 0);
    assert_int_equal(one.table.num, 7);
    assert_int_equal(kvpool_publish(one.kvpool, 1), KVPOOL_INVALID); /* nothing is written */
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 101), KVPOOL_INVALID);

    write_blocks(&one, 1, 0, 4);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 70), 0);
    prompt = prompt_of(&two, tokens, 100);
    assert_int_equal(matched(&two, &prompt), 64);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 60), KVPOOL_INVALID); /* never back */
    write_blocks(&one, 1, 4, 7);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 100), 0);
    assert_int_equal(matched(&two, &prompt), 96);

    const struct kvpool_request append = {.verb = KVPOOL_APPEND,
                                          .sequence = 1,
                                          .tokens = tokens + 100,
                                          .num_tokens = 28,
                                          .tables = &one.table,
                                          .num_tables = 1};
    assert_int_equal(kvpool_call(one.kvpool, &append, &result), 0);
    assert_int_equal(one.table.num, 8);
    write_blocks(&one, 1, 6, 7);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 112), 0);
    prompt = prompt_of(&two, tokens, 128);
    assert_int_equal(matched(&two, &prompt), 112);

    assert_int_equal(allocate(&two, 9, &prompt), 112);
    assert_int_equal(two.table.num, 8);
    assert_memory_equal(one.slots, two.slots, 7 * sizeof(one.slots[0]));
    assert_memory_equal(one.generations, two.generations, 7 * sizeof(one.generations[0]));
    assert_int_not_equal(one.slots[7], two.slots[7]);
    check_blocks(&two, 1, 0, 7);
    assert_int_equal(kvpool_release(one.kvpool, 1), 0);
    engine_finish(&one);
    check_blocks(&two, 1, 0, 7); /* as long as it holds them */
    engine_finish(&two);
}

static void only_a_mapped_session_maps_and_says_how_far(void **state)
{
    uint32_t tokens[64], model;
    struct kvpool *plain = engine_connect(*state, NULL, 0);
    struct kvpool_arena arena;
    uint64_t step;

    tokens_make(tokens, 64, 2);
    assert_int_equal(kvpool_register_model(plain, &small_model, &model, NULL), 0);
    assert_int_equal(kvpool_open_arena(plain, model, 0, NULL, &arena), KVPOOL_INVALID);
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(plain, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish_up_to(plain, 1, 32), KVPOOL_INVALID);
    assert_int_equal(kvpool_publish(plain, 1), 0);
    kvpool_disconnect(plain);

    struct kvpool *mapped = engine_connect(*state, NULL, KVPOOL_MAPPED);
    const struct kvpool_row row = {.sequence = 1, .tokens = tokens, .num_tokens = 1};
    assert_int_equal(kvpool_register_model(mapped, &small_model, &model, NULL), 0);
    assert_int_equal(kvpool_open_arena(mapped, model, 1, NULL, &arena), KVPOOL_INVALID);
    assert_int_equal(kvpool_open_arena(mapped, model, 0, "b", &arena), KVPOOL_NOT_FOUND);
    assert_int_equal(kvpool_allocate(mapped, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_step(mapped, &row, 1, &step), KVPOOL_INVALID);
    kvpool_disconnect(mapped);
}

/* Two engines fill the same: the second keeps its own block, since it may be reading its table. */
static void a_block_that_was_filled_twice_stays_in_its_own_table(void **state)
{
    uint32_t tokens[64], before[4];
    struct engine one, two;
    const struct kvpool_request publish = {
        .verb = KVPOOL_PUBLISH, .sequence = 2, .length = 64, .tables = &two.table, .num_tables = 1};

    (void)state;
    engine_init(&one, NULL, &small_model);
    engine_init(&two, NULL, &small_model);
    tokens_make(tokens, 64, 3);
    struct kvpool_prompt prompt = prompt_of(&one, tokens, 64);
    assert_int_equal(allocate(&one, 1, &prompt), 0);
    prompt = prompt_of(&two, tokens, 64);
    assert_int_equal(allocate(&two, 2, &prompt), 0);
    memcpy(before, two.slots, sizeof(before));
    write_blocks(&one, 3, 0, 4);
    write_blocks(&two, 3, 0, 4);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 64), 0);
    assert_int_equal(kvpool_call(two.kvpool, &publish, NULL), 0);
    assert_memory_equal(before, two.slots, sizeof(before));
    check_blocks(&two, 3, 0, 4);

    /* And after it let go of its blocks and took them up again: it is mapped still. */
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &two.table, .num_tables = 1};
    assert_int_equal(kvpool_preempt(two.kvpool, 2), 0);
    assert_int_equal(kvpool_resume(two.kvpool, 2, &options, NULL), 0);
    assert_int_equal(kvpool_publish_up_to(two.kvpool, 2, 64), 0);
    check_blocks(&two, 3, 0, 3);
    engine_finish(&one);
    engine_finish(&two);
}

/* ---- bytes in a layout of the engine's ------------------------------------------------------ */

static void opaque_blocks_of_64_tokens_are_shared_too(void **state)
{
    static const struct kvpool_model opaque = {.name = "opaque",
                                               .weights_revision = "1",
                                               .dtype = KVPOOL_OPAQUE,
                                               .block_tokens = 64,
                                               .layout_name = "engine's own",
                                               .layout_version = 2,
                                               .opaque_block_bytes = 20000};
    uint32_t tokens[200], other;
    unsigned char copy[20000];
    struct engine one, two;

    engine_init(&one, NULL, &opaque);
    engine_init(&two, NULL, &opaque);
    assert_int_equal(one.block_bytes, 20000);
    tokens_make(tokens, 200, 4);
    struct kvpool_prompt prompt = prompt_of(&one, tokens, 200);
    assert_int_equal(allocate(&one, 1, &prompt), 0);
    assert_int_equal(one.table.num, 4);
    write_blocks(&one, 4, 0, 3);
    assert_int_equal(kvpool_publish_up_to(one.kvpool, 1, 192), 0);
    prompt = prompt_of(&two, tokens, 200);
    assert_int_equal(allocate(&two, 1, &prompt), 192);
    check_blocks(&two, 4, 0, 3);

    /* Another layout version is another model; and who does not map reads the same bytes. */
    struct kvpool_model newer = opaque;
    newer.layout_version = 3;
    struct kvpool *plain = engine_connect(*state, NULL, 0);
    assert_int_equal(kvpool_register_model(plain, &newer, &other, NULL), 0);
    struct kvpool_result result;
    struct kvpool_prompt plain_prompt = {.model = other, .tokens = tokens, .num_tokens = 200};
    assert_int_equal(kvpool_match(plain, &plain_prompt, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(kvpool_register_model(plain, &opaque, &other, NULL), 0);
    plain_prompt.model = other;
    assert_int_equal(kvpool_allocate(plain, 1, &plain_prompt, NULL, &result), 0);
    assert_int_equal(result.matched, 192);
    const struct kvpool_blocks blocks = {
        .sequence = 1, .first_block = 2, .num_blocks = 1, .data = copy, .data_bytes = sizeof(copy)};
    assert_int_equal(kvpool_read(plain, &blocks), 0);
    assert_true(block_is(copy, sizeof(copy), block_tag(4, 2, 0)));
    kvpool_disconnect(plain);
    engine_finish(&one);
    engine_finish(&two);
}

/* ---- shared domains ------------------------------------------------------------------------- */

static void a_readers_arena_of_a_shared_domain_cannot_be_written(void **state)
{
    static const char *const readers[] = {"b", NULL}, *const fillers[] = {"a", NULL};
    const struct kvpool_request create = {
        .verb = KVPOOL_CREATE_DOMAIN, .domain = "commons", .readers = readers, .fillers = fillers};
    uint32_t tokens[80];
    struct kvpool *operator= operator_connect(*state);
    struct engine filler, reader;
    char path[64];

    assert_int_equal(kvpool_call(operator, & create, NULL), 0);
    engine_init(&filler, NULL, &small_model);
    engine_init(&reader, "token-of-tenant-b-0123", &small_model);
    kvpool_close_arena(&filler.arena);
    kvpool_close_arena(&reader.arena);
    assert_int_equal(kvpool_open_arena(filler.kvpool, filler.model, 0, "commons", &filler.arena),
                     0);
    assert_int_equal(kvpool_open_arena(reader.kvpool, reader.model, 0, "commons", &reader.arena),
                     0);
    assert_true(filler.arena.is_writable);
    assert_false(reader.arena.is_writable);

    tokens_make(tokens, 80, 5);
    struct kvpool_prompt prompt = prompt_of(&filler, tokens, 64);
    prompt.fill_domain = "commons";
    assert_int_equal(allocate(&filler, 1, &prompt), 0);
    write_blocks(&filler, 5, 0, 4);
    assert_int_equal(kvpool_publish_up_to(filler.kvpool, 1, 64), 0);
    prompt = prompt_of(&reader, tokens, 80);
    prompt.shared_domain = "commons";
    assert_int_equal(allocate(&reader, 1, &prompt), 64);
    assert_int_equal(reader.table.num_shared, 4);
    check_blocks(&reader, 5, 0, 4);

    assert_int_equal(mprotect(reader.arena.base, reader.arena.num_bytes, PROT_READ | PROT_WRITE),
                     -1);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", reader.arena.fd);
    assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
    kvpool_disconnect(operator);
    engine_finish(&filler);
    engine_finish(&reader);
}

/* ---- several processes ---------------------------------------------------------------------- */

/* What the session's process tells its worker. */
struct handover {
    uint64_t session;
    uint8_t token[KVPOOL_SESSION_TOKEN_BYTES];
    struct kvpool_arena arena;
    uint64_t block_bytes;
    uint32_t slots[MAX_BLOCKS];
};

enum { SEED = 6, TOKENS = 96, WORKERS_FIRST = 3, NUM_BLOCKS = TOKENS / BLOCK };

/* The session: allocates, hands over, writes its half, and publishes when told how far. */
static void run_owner(int parent_fd, int worker_fd)
{
    uint32_t tokens[TOKENS];
    struct engine engine;
    struct handover handover = {0};
    uint64_t num_tokens;

    engine_init(&engine, NULL, &small_model);
    tokens_make(tokens, TOKENS, SEED);
    const struct kvpool_prompt prompt = prompt_of(&engine, tokens, TOKENS);
    assert_int_equal(allocate(&engine, 1, &prompt), 0);
    handover.session = kvpool_session(engine.kvpool);
    memcpy(handover.token, kvpool_session_token(engine.kvpool), sizeof(handover.token));
    handover.arena = engine.arena;
    handover.block_bytes = engine.block_bytes;
    memcpy(handover.slots, engine.slots, sizeof(handover.slots));
    assert_int_equal(peer_send(worker_fd, &handover, sizeof(handover), engine.arena.fd), 0);
    write_blocks(&engine, SEED, 0, WORKERS_FIRST);
    while (peer_receive(parent_fd, &num_tokens, sizeof(num_tokens), NULL) == 0) {
        int answer = kvpool_publish_up_to(engine.kvpool, 1, num_tokens);
        assert_int_equal(peer_send(parent_fd, &answer, sizeof(answer), -1), 0);
    }
    engine_finish(&engine);
}

/* Attaches, writes the other half whenever it is told to, and stays as long as it is wanted. */
static void run_worker(int parent_fd, int owner_fd)
{
    struct handover handover;
    char dir[128];
    const struct kvpool_options options = {.struct_bytes = sizeof(options), .dir = dir};
    int arena_fd = -1, session_fd = -1, answer = 0;

    (void)snprintf(dir, sizeof(dir), "%s/run", daemon_.dir);
    assert_int_equal(peer_receive(owner_fd, &handover, sizeof(handover), &arena_fd), 0);
    uint8_t wrong[KVPOOL_SESSION_TOKEN_BYTES] = {0};
    assert_int_equal(kvpool_attach(&options, handover.session, wrong, &session_fd),
                     KVPOOL_NOT_FOUND);
    assert_int_equal(kvpool_attach(&options, handover.session, handover.token, &session_fd), 0);
    assert_int_equal(kvpool_map_arena(&handover.arena, arena_fd), 0);
    do {
        for (uint32_t i = WORKERS_FIRST; i < NUM_BLOCKS; i++)
            block_fill(block_at(&handover.arena, handover.slots[i]), handover.block_bytes,
                       block_tag(SEED, i, 0));
        assert_int_equal(peer_send(parent_fd, &answer, sizeof(answer), -1), 0);
    } while (peer_receive(parent_fd, &answer, sizeof(answer), NULL) == 0);
    kvpool_close_arena(&handover.arena);
    (void)close(session_fd);
}

static int publish(struct peer *owner, uint64_t num_tokens)
{
    int answer = -1;

    assert_int_equal(peer_send(owner->fd, &num_tokens, sizeof(num_tokens), -1), 0);
    assert_int_equal(peer_receive(owner->fd, &answer, sizeof(answer), NULL), 0);
    return answer;
}

static void processes_start(struct peer *owner, struct peer *worker)
{
    int between[2], answer;

    peer_pair(between);
    peer_start(owner, run_owner, between[0]);
    peer_start(worker, run_worker, between[1]);
    (void)close(between[0]);
    (void)close(between[1]);
    assert_int_equal(peer_receive(worker->fd, &answer, sizeof(answer), NULL), 0); /* it wrote */
}

static void a_worker_attaches_and_writes_too(void **state)
{
    uint32_t tokens[TOKENS];
    struct engine reader;
    struct peer owner, worker;

    processes_start(&owner, &worker);
    assert_int_equal(publish(&owner, TOKENS), 0);
    engine_init(&reader, NULL, &small_model);
    tokens_make(tokens, TOKENS, SEED);
    const struct kvpool_prompt prompt = prompt_of(&reader, tokens, TOKENS);
    assert_int_equal(allocate(&reader, 1, &prompt), TOKENS);
    check_blocks(&reader, SEED, 0, NUM_BLOCKS);
    assert_int_equal(peer_finish(&worker, 0), 0);
    assert_int_equal(peer_finish(&owner, 0), 0);
    check_blocks(&reader, SEED, 0, NUM_BLOCKS);
    assert_int_equal(payer_read(*state, "a", "quarantined"), 0);
    engine_finish(&reader);
}

/* Everything that can be had goes to another engine of the tenant; its blocks keep their bytes. */
static void slots_of_a_killed_session_wait_for_its_worker(void **state)
{
    enum { SEQUENCES = 126 }; /* of 16 blocks: all of the pool but the watermark */
    static uint32_t tokens[MAX_BLOCKS * BLOCK], slots[SEQUENCES * MAX_BLOCKS];
    struct engine engine;
    struct peer owner, worker;
    uint32_t num_slots = 0;
    int answer = 0;

    processes_start(&owner, &worker);
    assert_int_equal(publish(&owner, 2 * BLOCK), 0);
    assert_int_equal(peer_finish(&owner, SIGKILL), 128 + SIGKILL);
    payer_await(*state, "a", "quarantined", NUM_BLOCKS - 2, 2000);
    payer_await(*state, "a", "sessions", 0, 2000);

    engine_init(&engine, NULL, &small_model);
    tokens_make(tokens, TOKENS, SEED);
    struct kvpool_prompt prompt = prompt_of(&engine, tokens, TOKENS);
    assert_int_equal(matched(&engine, &prompt), 2 * BLOCK); /* what it published is kept */
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct kvpool_allocate_options options = {
            .unfilled = true, .tables = &engine.table, .num_tables = 1};
        tokens_make(tokens, MAX_BLOCKS * BLOCK, 100 + i);
        prompt = prompt_of(&engine, tokens, MAX_BLOCKS * BLOCK);
        if (kvpool_allocate(engine.kvpool, i, &prompt, &options, NULL))
            break;
        write_blocks(&engine, 100 + i, 0, MAX_BLOCKS);
        memcpy(&slots[num_slots], engine.slots, sizeof(engine.slots));
        num_slots += MAX_BLOCKS;
    }
    assert_true(num_slots > 100 * MAX_BLOCKS);

    assert_int_equal(peer_send(worker.fd, &answer, sizeof(answer), -1), 0); /* writes once more */
    assert_int_equal(peer_receive(worker.fd, &answer, sizeof(answer), NULL), 0);
    for (uint32_t i = 0; i < num_slots; i++)
        assert_true(block_is(block_at(&engine.arena, slots[i]), engine.block_bytes,
                             block_tag(100 + i / MAX_BLOCKS, i % MAX_BLOCKS, 0)));
    assert_int_equal(payer_read(*state, "a", "quarantined"), NUM_BLOCKS - 2);

    assert_int_equal(peer_finish(&worker, SIGKILL), 128 + SIGKILL);
    payer_await(*state, "a", "quarantined", 0, 1000);
    engine_finish(&engine);
}

/* As by its end: what was taken from it waits for all its processes, the first one's too. */
static void a_kicked_session_waits_for_its_processes(void **state)
{
    struct kvpool *operator= operator_connect(*state);
    struct peer owner, worker;
    char json[4096];
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = "sessions", .json = json, .json_max = sizeof(json)};

    processes_start(&owner, &worker);
    assert_int_equal(publish(&owner, 2 * BLOCK), 0);
    assert_int_equal(kvpool_call(operator, & list, NULL), 0);
    assert_non_null(strstr(json, "\"attached\":2"));
    const struct kvpool_request kick = {
        .verb = KVPOOL_KICK,
        .session = strtoull(strstr(json, "\"session\":") + strlen("\"session\":"), NULL, 10)};
    assert_int_equal(kvpool_call(operator, & kick, NULL), 0);
    payer_await(*state, "a", "quarantined", NUM_BLOCKS - 2, 2000);
    payer_await(*state, "a", "sessions", 0, 2000);
    assert_int_equal(kvpool_call(operator, & kick, NULL), KVPOOL_NOT_FOUND);
    assert_int_equal(kvpool_call(operator, & list, NULL), 0);
    assert_non_null(strstr(json, "\"ending\":true"));
    (void)peer_finish(&owner, SIGKILL);
    (void)usleep(200000);
    assert_int_equal(payer_read(*state, "a", "quarantined"), NUM_BLOCKS - 2); /* the worker lives */
    assert_int_equal(peer_finish(&worker, SIGKILL), 128 + SIGKILL);
    payer_await(*state, "a", "quarantined", 0, 1000);
    kvpool_disconnect(operator);
}

/* The daemon waits for the process, not for its socket: mappings outlive a close. */
static void a_worker_that_closes_its_socket_is_waited_for(void **state)
{
    struct peer owner, worker;

    processes_start(&owner, &worker);
    assert_int_equal(kill(worker.pid, SIGSTOP), 0);
    assert_int_equal(peer_finish(&owner, 0), 0);
    payer_await(*state, "a", "quarantined", NUM_BLOCKS, 2000);
    assert_int_equal(kill(worker.pid, SIGCONT), 0);
    assert_int_equal(peer_finish(&worker, 0), 0); /* unmaps, closes, ends */
    payer_await(*state, "a", "quarantined", 0, 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_published_up_to_a_token_is_read_by_another_engine),
        TEST(only_a_mapped_session_maps_and_says_how_far),
        TEST(a_block_that_was_filled_twice_stays_in_its_own_table),
        TEST(opaque_blocks_of_64_tokens_are_shared_too),
        TEST(a_readers_arena_of_a_shared_domain_cannot_be_written),
        TEST(a_worker_attaches_and_writes_too),
        TEST(slots_of_a_killed_session_wait_for_its_worker),
        TEST(a_kicked_session_waits_for_its_processes),
        TEST(a_worker_that_closes_its_socket_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
