/*
 * tests/e2e/test_scribble.c - shared memory in the hands of an enemy: rings overwritten while the
 * daemon reads them, arenas pulled away. Only the one who does it is harmed.
 */
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { Q_HEADS = 4, KV_HEADS = 2, DIM = 16, LAYERS = 2, PROMPT = 40, SCRIBBLE_MS = 3000 };

/* ---- an engine whose answers are known ------------------------------------------------------ */

struct engine {
    struct kvpool *kvpool;
    uint32_t model;
    uint64_t q_offset, k_offset, v_offset, out_offset;
    float *q, *k, *v, *out;
};

static void engine_open(struct engine *engine, const struct daemon *daemon, const char *token)
{
    uint64_t size;

    engine->kvpool = engine_connect(daemon, token, 0);
    assert_non_null(engine->kvpool);
    assert_int_equal(kvpool_register_model(engine->kvpool, &small_model, &engine->model, NULL), 0);
    uint64_t *offsets[] = {&engine->q_offset, &engine->k_offset, &engine->v_offset,
                           &engine->out_offset};
    float **tensors[] = {&engine->q, &engine->k, &engine->v, &engine->out};
    char *base = kvpool_staging(engine->kvpool, &size);
    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
        assert_int_equal(
            kvpool_staging_take(engine->kvpool, PROMPT * Q_HEADS * DIM * 4, offsets[i]), 0);
        *tensors[i] = (float *)(void *)(base + *offsets[i]);
    }
}

/* With q = 0 all weights are equal: each row is the mean of v over its own position and before. */
static void rows_check(const struct engine *engine)
{
    for (uint32_t head = 0; head < Q_HEADS; head++) {
        for (uint32_t i = 0; i < DIM; i++) {
            double sum = 0;
            for (uint32_t row = 0; row < PROMPT; row++) {
                uint32_t kv = head / (Q_HEADS / KV_HEADS);
                sum += (double)engine->v[(row * KV_HEADS + kv) * DIM + i];
                double out = (double)engine->out[(row * Q_HEADS + head) * DIM + i];
                assert_true(fabs(out - sum / (row + 1)) < 1e-4);
            }
        }
    }
}

/* A whole sequence: allocated, attended and checked, released. The first status that is not OK. */
static int engine_turn(struct engine *engine, uint32_t seed)
{
    uint32_t tokens[PROMPT];
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    const struct kvpool_prompt prompt = {
        .model = engine->model, .tokens = tokens, .num_tokens = PROMPT};
    const struct kvpool_row row = {seed, tokens, PROMPT};
    uint64_t step;

    tokens_make(tokens, PROMPT, seed);
    int answer = kvpool_allocate(engine->kvpool, seed, &prompt, &unfilled, NULL);
    if (!answer)
        answer = kvpool_step(engine->kvpool, &row, 1, &step);
    for (uint32_t layer = 0; layer < LAYERS && !answer; layer++) {
        memset(engine->q, 0, PROMPT * Q_HEADS * DIM * sizeof(float));
        for (uint32_t i = 0; i < PROMPT * KV_HEADS * DIM; i++) {
            engine->k[i] = (float)((seed + i * 7) % 13);
            engine->v[i] = (float)((seed * 3 + i * 5) % 17);
        }
        const struct kvpool_attend attend = {.step = step,
                                             .layer = layer,
                                             .dtype = KVPOOL_F32,
                                             .q_offset = engine->q_offset,
                                             .k_offset = engine->k_offset,
                                             .v_offset = engine->v_offset,
                                             .out_offset = engine->out_offset};
        answer = kvpool_attend(engine->kvpool, &attend);
        if (!answer)
            rows_check(engine);
    }
    return answer ? answer : kvpool_release(engine->kvpool, seed);
}

/* ---- rings ---------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
    return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

/* Entries and words that are nearly right, so that the daemon goes on reading them. */
static void scribble_nearly(struct staging_header *header, uint32_t *seed)
{
    struct ring_submission *entries = (void *)((char *)header + RING_SUBMISSIONS_OFFSET);
    struct ring_row *rows = (void *)((char *)header + RING_DATA_OFFSET);
    uint32_t what = next_random(seed) % 8;

    if (what == 0)
        atomic_store(&header->submissions.tail,
                     atomic_load(&header->submissions.head) + next_random(seed) % 256);
    else if (what == 1)
        atomic_store(&header->completions.head, atomic_load(&header->completions.tail));
    else if (what == 2)
        atomic_store(&header->submissions.armed, next_random(seed) % 3);
    else if (what == 3)
        rows[next_random(seed) % 24] =
            (struct ring_row){.sequence = next_random(seed) % 6,
                              .tokens_offset = next_random(seed) % 512 * 4,
                              .num_tokens = next_random(seed) % 20};
    else
        entries[next_random(seed) % RING_ENTRIES] =
            (struct ring_submission){.id = next_random(seed),
                                     .verb = next_random(seed) % 9,
                                     .flags = next_random(seed) % 9,
                                     .object = next_random(seed) % 6,
                                     .value = next_random(seed) % 5,
                                     .layer = next_random(seed) % 3,
                                     .dtype = next_random(seed) % 5,
                                     .rows_offset = next_random(seed) % 64 * 8,
                                     .q_offset = next_random(seed) % 3 << 12,
                                     .out_offset = (uint64_t)next_random(seed) << (what * 5)};
}

static void *scribble(void *argument)
{
    struct raw *raw = argument;
    uint32_t seed = (uint32_t)(uintptr_t)pthread_self() | 1;
    uint64_t wild_ms = now_ms() + SCRIBBLE_MS * 2 / 3;

    while (now_ms() < wild_ms)
        for (int i = 0; i < 1000; i++)
            scribble_nearly(raw->staging, &seed);
    for (;;) /* and then any byte of all */
        ((uint8_t *)raw->staging)[next_random(&seed) % RING_DATA_OFFSET] =
            (uint8_t)next_random(&seed);
    return NULL;
}

/* Has sequences, scribbles with two threads, and wakes the daemon all the time. */
static void scribbler_live(const struct daemon *daemon)
{
    uint8_t tokens[4 * PROMPT] = {5};
    Kvpool__Wire__RegisterModel model = raw_small_model();
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Allocate allocate = KVPOOL__WIRE__ALLOCATE__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    const uint64_t one = 1;
    pthread_t threads[2];
    struct raw raw;

    raw_open(&raw, daemon, NULL, 0, 0);
    (void)raw_register(&raw, &model);
    prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    allocate.prompt = &prompt;
    allocate.unfilled = true;
    request.verb_case = RAW_REQUEST(ALLOCATE);
    request.allocate = &allocate;
    for (allocate.sequence = 0; allocate.sequence < 4; allocate.sequence++)
        assert_int_equal(raw_call(&raw, &request), STATUS_OK);
    memset((char *)raw.staging + RING_DATA_OFFSET, 0, 1 << 16);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, scribble, &raw), 0);
    for (;;) {
        (void)!write(raw.fds[1], &one, sizeof(one));
        (void)usleep(50);
    }
}

static void a_scribbled_ring_harms_only_its_engine(void **state)
{
    struct daemon *daemon = *state;
    struct engine engine;
    uint32_t turns = 0;

    engine_open(&engine, daemon, "token-of-tenant-b-0123");
    double idle = match_p99_us(engine.kvpool, engine.model, 300);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        scribbler_live(daemon);
    }
    uint64_t end = now_ms() + SCRIBBLE_MS;
    while (now_ms() < end || turns == 0)
        assert_int_equal(engine_turn(&engine, 1 + turns++), 0);
    p99_assert("scribbled rings", idle, match_p99_us(engine.kvpool, engine.model, 300));
    print_message("%u sequences were right, %lu ring entries, %lu malformed\n", turns,
                  stat_read(daemon, "ring_entries"), stat_read(daemon, "ring_malformed"));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    stat_await(daemon, "pool_sessions", 1, 5000);
    stat_await(daemon, "pool_sequences", 0, 5000);
    stat_await(daemon, "pool_held", 0, 5000);
    stat_await(daemon, "pool_reserved", 0, 5000);
    kvpool_disconnect(engine.kvpool);
    assert_int_equal(daemon_stop(daemon, SIGTERM), 0); /* it is whole: invariants hold at its end */
}

/* ---- arenas --------------------------------------------------------------------------------- */

/* The descriptor of tenant a's arena, writable, as any mapped engine gets it. */
static int arena_descriptor(struct raw *raw, const struct daemon *daemon)
{
    Kvpool__Wire__RegisterModel model = raw_small_model();
    Kvpool__Wire__OpenArena arena = KVPOOL__WIRE__OPEN_ARENA__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    struct arena_packet packet;
    int fds[3] = {-1, -1, -1};

    raw_open(raw, daemon, NULL, HELLO_MAPPED, 0);
    (void)raw_register(raw, &model);
    request.verb_case = RAW_REQUEST(OPEN_ARENA);
    request.open_arena = &arena;
    assert_int_equal(raw_call(raw, &request), STATUS_OK);
    assert_int_equal(raw_packet(raw->fd, &packet, sizeof(packet), 5000, fds), sizeof(packet));
    assert_int_equal(packet.magic, ARENA_MAGIC);
    assert_int_equal(packet.is_writable, 1);
    assert_true(fds[0] >= 0);
    return fds[0];
}

/* Whether the arena could be pulled away at all: the memfd fallback is sealed. */
static bool pull_away(int fd, bool by_truncate)
{
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    return by_truncate ? ftruncate(fd, 0) == 0 : fallocate(fd, mode, 0, (off_t)1 << 30) == 0;
}

/* Pulls it away, and goes on doing so; says in @ready whether it could. */
static void puller_live(const struct daemon *daemon, bool by_truncate, int ready)
{
    struct raw raw;
    int fd = arena_descriptor(&raw, daemon);
    char byte = pull_away(fd, by_truncate) ? 'y' : 'n';

    (void)!write(ready, &byte, 1);
    for (;;) {
        (void)usleep(10000);
        (void)pull_away(fd, by_truncate);
    }
}

static pid_t puller_start(const struct daemon *daemon, bool by_truncate, bool *out_is_pulled)
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        puller_live(daemon, by_truncate, ready[1]);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    *out_is_pulled = byte == 'y';
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void arena_is_pulled_away(struct daemon *daemon, bool by_truncate)
{
    struct engine theirs, other;
    bool is_pulled;
    int answer = 0;

    engine_open(&theirs, daemon, NULL);
    engine_open(&other, daemon, "token-of-tenant-b-0123");
    assert_int_equal(engine_turn(&theirs, 1), 0);
    assert_int_equal(engine_turn(&other, 1), 0);
    pid_t pid = puller_start(daemon, by_truncate, &is_pulled);
    print_message("%s: %s\n", by_truncate ? "truncated" : "punched", is_pulled ? "yes" : "refused");
    uint64_t end = now_ms() + 3000;
    for (uint32_t turn = 2; now_ms() < end; turn++) {
        assert_int_equal(engine_turn(&other, turn), 0);
        if (!answer &&
            by_truncate) /* its own tenant's: right until it fails, with a clear answer */
            answer = engine_turn(&theirs, turn);
    }
    print_message("its own tenant: %s\n", kvpool_status_name(answer));
    if (by_truncate && is_pulled)
        assert_true(answer == KVPOOL_FAILED || answer == KVPOOL_DISCONNECTED);
    kvpool_disconnect(theirs.kvpool);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    stat_await(daemon, "pool_sessions", 1, 5000);
    assert_int_equal(engine_turn(&other, 100000), 0);
    kvpool_disconnect(other.kvpool);
    stat_await(daemon, "pool_held", 0, 5000);
    stat_await(daemon, "pool_quarantined", 0, 5000);
    engine_open(&theirs, daemon, NULL);
    print_message("its tenant, anew: %s\n", kvpool_status_name(engine_turn(&theirs, 7)));
    kvpool_disconnect(theirs.kvpool);
    assert_int_equal(daemon_stop(daemon, SIGTERM), 0);
}

static void a_truncated_arena_harms_only_its_tenant(void **state)
{
    arena_is_pulled_away(*state, true);
}

static void a_punched_arena_harms_only_its_tenant(void **state)
{
    arena_is_pulled_away(*state, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_setup, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_scribbled_ring_harms_only_its_engine),
        TEST(a_truncated_arena_harms_only_its_tenant),
        TEST(a_punched_arena_harms_only_its_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
