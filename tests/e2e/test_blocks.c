/* tests/e2e/test_blocks.c - bytes of blocks: Write and Read, opaque models, mapped arenas. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 40000, COUNT = 6 };

static struct daemon daemon_;
static const struct kvpool_model opaque = {.name = "opaque",
                                           .weights_revision = "1",
                                           .dtype = KVPOOL_OPAQUE,
                                           .layout_name = "rows",
                                           .opaque_block_bytes = BLOCK};

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    return 0;
}

static void bytes_make(uint8_t *out, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static uint32_t opaque_register(struct kvpool *kvpool)
{
    uint32_t model = 0;
    int answer = kvpool_register_model(kvpool, &opaque, &model, NULL);

    if (answer)
        print_error("register: %s: %s\n", kvpool_status_name(answer), kvpool_message(kvpool));
    assert_int_equal(answer, 0);
    return model;
}

static void what_was_written_is_read_back(void **state)
{
    static uint8_t written[COUNT * BLOCK], read_back[COUNT * BLOCK];
    uint32_t tokens[COUNT * 16];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;

    tokens_make(tokens, COUNT * 16, 51);
    struct kvpool_prompt prompt = {
        .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = COUNT * 16};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, &unfilled, NULL), 0);
    bytes_make(written, sizeof(written), 1);
    struct kvpool_blocks blocks = {
        .sequence = 1, .num_blocks = COUNT, .data = written, .data_bytes = sizeof(written)};
    int answer = kvpool_write(kvpool, &blocks);
    if (answer)
        print_error("write: %s: %s\n", kvpool_status_name(answer), kvpool_message(kvpool));
    assert_int_equal(answer, 0);
    assert_int_equal(kvpool_fill(kvpool, 1), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    assert_int_equal(kvpool_write(kvpool, &blocks), KVPOOL_INVALID); /* others see them now */

    struct kvpool *reader = engine_connect(*state, NULL, 0);
    prompt.model = opaque_register(reader);
    prompt.raw = true;
    assert_int_equal(kvpool_allocate(reader, 9, &prompt, NULL, &result), 0);
    assert_int_equal(result.matched, COUNT * 16);
    blocks = (struct kvpool_blocks){
        .sequence = 9, .num_blocks = COUNT, .data = read_back, .data_bytes = sizeof(read_back)};
    assert_int_equal(kvpool_read(reader, &blocks), 0);
    assert_memory_equal(read_back, written, sizeof(written));
    blocks.first_block = 1;
    assert_int_not_equal(kvpool_read(reader, &blocks), 0); /* beyond the sequence */
    kvpool_disconnect(kvpool);
    kvpool_disconnect(reader);
}

static void staging_carries_more_than_one_slice(void **state)
{
    enum { MANY = 20 };
    uint32_t tokens[MANY * 16];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    uint64_t size, ticket;
    struct kvpool_result result;

    uint8_t *staging = kvpool_staging(kvpool, &size);
    assert_true(size >= MANY * BLOCK);
    tokens_make(tokens, MANY * 16, 52);
    const struct kvpool_prompt prompt = {
        .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = MANY * 16};
    uint8_t *expected = malloc(MANY * BLOCK);
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        tokens[0] = (uint32_t)sequence;
        assert_int_equal(kvpool_allocate(kvpool, sequence, &prompt, &unfilled, NULL), 0);
        bytes_make(staging, MANY * BLOCK, (uint32_t)sequence);
        const struct kvpool_blocks blocks = {.sequence = sequence, .num_blocks = MANY};
        assert_int_equal(kvpool_write(kvpool, &blocks), 0);
    }
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        const struct kvpool_blocks blocks = {.sequence = sequence, .num_blocks = MANY};
        assert_int_equal(kvpool_read(kvpool, &blocks), KVPOOL_INVALID); /* not filled */
        assert_int_equal(kvpool_fill(kvpool, sequence), 0);
        memset(staging, 0, MANY * BLOCK);
        assert_int_equal(kvpool_read(kvpool, &blocks), 0);
        bytes_make(expected, MANY * BLOCK, (uint32_t)sequence);
        assert_memory_equal(staging, expected, MANY * BLOCK);
    }
    /* While it is copied, another verb of the sequence waits its turn. */
    const struct kvpool_blocks blocks = {.sequence = 3, .num_blocks = MANY};
    const struct kvpool_request read = {.verb = KVPOOL_READ, .blocks = &blocks};
    assert_int_equal(kvpool_submit(kvpool, &read, &ticket), 0);
    assert_int_equal(kvpool_flush(kvpool), 0);
    int answer = kvpool_release(kvpool, 3);
    assert_true(answer == 0 || answer == KVPOOL_BUSY);
    (void)kvpool_wait(kvpool, ticket, &result);
    free(expected);
    kvpool_disconnect(kvpool);
}

/* ---- mapped --------------------------------------------------------------------------------- */

struct table {
    uint32_t slots[32], generations[32];
    struct kvpool_table table;
};

static void *slot_at(const struct kvpool_arena *arena, uint32_t slot)
{
    return (char *)arena->base + (slot - 1) * arena->stride_bytes;
}

static void mapped_engines_share_through_their_arena(void **state)
{
    uint32_t tokens[COUNT * 16];
    static uint8_t expected[BLOCK];
    struct kvpool *writer = engine_connect(*state, NULL, KVPOOL_MAPPED);
    struct kvpool *reader = engine_connect(*state, NULL, KVPOOL_MAPPED);
    struct kvpool_arena to, from;
    struct kvpool_result result;
    struct table table;

    table.table =
        (struct kvpool_table){.slots = table.slots, .generations = table.generations, .max = 32};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &table.table, .num_tables = 1};
    tokens_make(tokens, COUNT * 16, 53);
    struct kvpool_prompt prompt = {
        .model = opaque_register(writer), .tokens = tokens, .num_tokens = COUNT * 16};
    assert_int_equal(kvpool_open_arena(writer, prompt.model, 0, NULL, &to), 0);
    assert_true(to.is_writable);
    assert_int_equal(kvpool_allocate(writer, 1, &prompt, &options, NULL), 0);
    assert_int_equal(table.table.num, COUNT);
    for (uint32_t at = 0; at < COUNT; at++)
        bytes_make(slot_at(&to, table.slots[at]), BLOCK, 100 + at);
    assert_int_equal(kvpool_fill(writer, 1), 0);
    assert_int_equal(kvpool_publish(writer, 1), 0);

    prompt.model = opaque_register(reader);
    prompt.raw = true;
    assert_int_equal(kvpool_open_arena(reader, prompt.model, 0, NULL, &from), 0);
    assert_int_equal(kvpool_allocate(reader, 2, &prompt, &options, &result), 0);
    assert_int_equal(result.matched, COUNT * 16);
    for (uint32_t at = 0; at < COUNT; at++) {
        bytes_make(expected, BLOCK, 100 + at);
        assert_memory_equal(slot_at(&from, table.slots[at]), expected, BLOCK);
    }
    assert_int_equal(kvpool_open_arena(reader, prompt.model, 0, "nowhere", &from),
                     KVPOOL_NOT_FOUND);
    kvpool_close_arena(&to);
    kvpool_close_arena(&from);
    kvpool_disconnect(writer);
    kvpool_disconnect(reader);
}

/* Slots that a dead engine could write are reused only once its process is gone. */
static void slots_stay_quarantined_while_their_writer_lives(void **state)
{
    int ready[2], go[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t tokens[COUNT * 16];
        struct kvpool_arena arena;
        struct kvpool *kvpool = engine_connect(*state, NULL, KVPOOL_MAPPED);
        tokens_make(tokens, COUNT * 16, 54);
        const struct kvpool_prompt prompt = {
            .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = COUNT * 16};
        (void)kvpool_open_arena(kvpool, prompt.model, 0, NULL, &arena);
        (void)kvpool_allocate(kvpool, 1, &prompt, NULL, NULL);
        kvpool_disconnect(kvpool); /* it keeps its mapping */
        (void)!write(ready[1], "r", 1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    stat_await(*state, "pool_sequences", 0, 5000);
    stat_await(*state, "pool_quarantined", COUNT, 5000);
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    stat_await(*state, "pool_quarantined", 0, 5000);
    stat_await(*state, "pool_sessions", 0, 5000);
    for (int i = 0; i < 2; i++) {
        (void)close(ready[i]);
        (void)close(go[i]);
    }
}

/* A tenant that pulls its arena away harms itself: its session ends, the daemon lives. */
static void a_tenant_that_takes_more_than_its_granules_is_ended(void **state)
{
    uint32_t tokens[32];
    struct kvpool *kvpool = engine_connect(*state, NULL, KVPOOL_MAPPED);
    struct kvpool *other = engine_connect(*state, "token-of-tenant-b-0123", 0);
    struct kvpool_arena arena;

    tokens_make(tokens, 32, 55);
    const struct kvpool_prompt prompt = {
        .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = 32};
    assert_int_equal(kvpool_open_arena(kvpool, prompt.model, 0, NULL, &arena), 0);
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    memset((char *)arena.base + arena.num_bytes - (1 << 20), 1, 1 << 20);
    uint64_t end = now_ms() + 10000;
    while (kvpool_publish(kvpool, 1) == 0 && now_ms() < end)
        (void)usleep(10000);
    int answer = kvpool_publish(kvpool, 1);
    assert_int_equal(answer, KVPOOL_DISCONNECTED);
    assert_int_equal(opaque_register(other), 0); /* which is answered */
    kvpool_close_arena(&arena);
    kvpool_disconnect(kvpool);
    kvpool_disconnect(other);
}

/* A tenant that truncates its arena harms itself: other tenants' allocations wait for nothing. */
static void a_truncated_arena_is_its_own_tenants_loss(void **state)
{
    static uint32_t tokens[1600];
    char path[128];
    struct kvpool *kvpool = engine_connect(*state, NULL, KVPOOL_MAPPED);
    struct kvpool *victim = engine_connect(*state, NULL, 0); /* of the same tenant */
    struct kvpool *other = engine_connect(*state, "token-of-tenant-b-0123", 0);
    struct kvpool_arena arena;

    tokens_make(tokens, 1600, 56);
    struct kvpool_prompt prompt = {
        .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = 32};
    assert_int_equal(kvpool_open_arena(kvpool, prompt.model, 0, NULL, &arena), 0);
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)arena.base,
                   (unsigned long)arena.base + arena.num_bytes);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) /* only root may */
        skip();
    assert_int_equal(ftruncate(fd, 0), 0);
    (void)close(fd);

    const struct kvpool_request read = {
        .verb = KVPOOL_READ,
        .deadline_ms = 3000,
        .blocks = &(const struct kvpool_blocks){.sequence = 1, .num_blocks = 2}};
    (void)opaque_register(victim);
    const struct kvpool_request allocate = {
        .verb = KVPOOL_ALLOCATE, .deadline_ms = 3000, .sequence = 1, .prompt = &prompt};
    (void)kvpool_call(victim, &allocate, NULL); /* its session may be ended at any time now */
    int answer = kvpool_call(victim, &read, NULL);
    assert_true(answer != KVPOOL_TIMEOUT);
    prompt.num_tokens = 1600; /* new granules of the damaged arena, then of a good one */
    const struct kvpool_request more = {
        .verb = KVPOOL_ALLOCATE, .deadline_ms = 3000, .sequence = 2, .prompt = &prompt};
    (void)kvpool_call(victim, &more, NULL);
    prompt.model = opaque_register(other);
    uint64_t begin = now_ms();
    assert_int_equal(kvpool_call(other, &more, NULL), 0);
    assert_true(now_ms() - begin < 2500);
    kvpool_close_arena(&arena);
    kvpool_disconnect(kvpool);
    kvpool_disconnect(victim);
    kvpool_disconnect(other);
}

/* ---- an arena that is damaged --------------------------------------------------------------- */

enum { DAMAGED_TOKENS = 32, DAMAGED_SEED = 57 };

/* Publishes a prompt in its arena, then pulls all of it away. */
static void run_truncating(int parent_fd, int other_fd)
{
    uint32_t tokens[DAMAGED_TOKENS];
    char path[128], byte;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, KVPOOL_MAPPED);
    struct kvpool_arena arena;

    (void)other_fd;
    tokens_make(tokens, DAMAGED_TOKENS, DAMAGED_SEED);
    struct kvpool_prompt prompt = {
        .model = opaque_register(kvpool), .tokens = tokens, .num_tokens = DAMAGED_TOKENS};
    assert_int_equal(kvpool_open_arena(kvpool, prompt.model, 0, NULL, &arena), 0);
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)arena.base,
                   (unsigned long)arena.base + arena.num_bytes);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int answer = fd >= 0 ? ftruncate(fd, 0) : -1;
    assert_int_equal(peer_send(parent_fd, &answer, sizeof(answer), -1), 0);
    (void)read(parent_fd, &byte, 1); /* until the test closes it */
}

/* Whether blocks can be written and read again; and what of the old prompt is still found. */
static bool arena_works(const struct daemon *daemon, uint64_t *out_matched)
{
    static uint8_t written[2 * BLOCK], got[2 * BLOCK];
    uint32_t tokens[DAMAGED_TOKENS];
    struct kvpool *kvpool = engine_connect(daemon, NULL, 0);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result = {0};
    struct kvpool_blocks blocks = {
        .sequence = 1, .num_blocks = 2, .data = written, .data_bytes = sizeof(written)};
    struct kvpool_prompt prompt = {.tokens = tokens, .num_tokens = DAMAGED_TOKENS, .raw = true};
    bool works = false;

    if (!kvpool || kvpool_register_model(kvpool, &opaque, &prompt.model, NULL))
        goto out;
    tokens_make(tokens, DAMAGED_TOKENS, DAMAGED_SEED);
    if (kvpool_match(kvpool, &prompt, &result))
        goto out;
    tokens_make(tokens, DAMAGED_TOKENS, DAMAGED_SEED + 1);
    bytes_make(written, sizeof(written), 9);
    works = kvpool_allocate(kvpool, 1, &prompt, &unfilled, NULL) == 0 &&
            kvpool_write(kvpool, &blocks) == 0 && kvpool_fill(kvpool, 1) == 0;
    blocks.data = got;
    works = works && kvpool_read(kvpool, &blocks) == 0 && memcmp(got, written, sizeof(got)) == 0;
out:
    kvpool_disconnect(kvpool);
    *out_matched = result.matched;
    return works;
}

/* It is closed and opened anew when whoever could write it is gone, and has nothing of before. */
static void a_damaged_arena_is_replaced(void **state)
{
    uint32_t tokens[DAMAGED_TOKENS];
    uint8_t got[BLOCK];
    struct peer peer;
    uint64_t matched = 0, end;
    int answer;

    peer_start(&peer, run_truncating, -1);
    assert_int_equal(peer_receive(peer.fd, &answer, sizeof(answer), NULL), 0);
    if (answer) { /* only root may */
        (void)peer_finish(&peer, 0);
        skip();
    }
    struct kvpool *victim = engine_connect(*state, NULL, 0);
    struct kvpool_prompt prompt = {
        .model = opaque_register(victim), .tokens = tokens, .num_tokens = DAMAGED_TOKENS};
    struct kvpool_blocks blocks = {
        .sequence = 1, .num_blocks = 1, .data = got, .data_bytes = sizeof(got)};
    tokens_make(tokens, DAMAGED_TOKENS, DAMAGED_SEED);
    assert_int_equal(kvpool_allocate(victim, 1, &prompt, NULL, NULL), 0);
    (void)kvpool_read(victim, &blocks); /* FAILED; or zeros, if a commit made a hole of it */
    for (end = now_ms() + 10000; !answer && now_ms() < end; (void)usleep(10000))
        answer = kvpool_match(victim, &prompt, NULL); /* its session ends */
    assert_int_equal(answer, KVPOOL_DISCONNECTED);
    kvpool_disconnect(victim);
    assert_false(arena_works(*state, &matched)); /* its writer lives */
    (void)peer_finish(&peer, 0);
    for (end = now_ms() + 20000; !arena_works(*state, &matched) && now_ms() < end;)
        (void)usleep(20000);
    assert_true(arena_works(*state, &matched));
    assert_int_equal(matched, 0); /* what it had is gone, and is not found */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_read_back),
        TEST(staging_carries_more_than_one_slice),
        TEST(mapped_engines_share_through_their_arena),
        TEST(slots_stay_quarantined_while_their_writer_lives),
        TEST(a_tenant_that_takes_more_than_its_granules_is_ended),
        TEST(a_truncated_arena_is_its_own_tenants_loss),
        TEST(a_damaged_arena_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
