/*
 * tests/fuzz/fuzz_live.c - a running daemon under mutated hellos, batches and ring entries.
 *
 * usage: fuzz_live [--seconds N] [--seed N]
 *
 * Starts $KVPOOLD, says hello as a tenant, and goes on with mutations of valid packets, frames and
 * entries, through seeded random choices; an honest engine is asked now and then. At the end the
 * daemon must have answered all the while, leave by SIGTERM with 0, and have said nothing that a
 * sanitizer or an assertion says: its output is kept in the directory and looked through.
 */
#include "proto/caps.h"
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum { MAX_BYTES = 8192, MAX_SEEDS = 64, SESSION_ROUNDS = 300 };

static uint64_t random_state = 1, seconds = 3;
static uint8_t batch_seeds[MAX_SEEDS][MAX_BYTES];
static size_t batch_sizes[MAX_SEEDS], num_batches;
static struct {
    uint64_t hellos, frames, entries, sessions;
} counts;

static uint64_t random_next(void) /* splitmix64 */
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Small changes of bytes that were valid; the size stays, or shrinks. */
static size_t mutate(uint8_t *bytes, size_t num_bytes)
{
    static const uint8_t extremes[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0xfe};

    for (uint64_t n = random_next() % 5; n > 0 && num_bytes > 0; n--) {
        size_t at = random_next() % num_bytes;
        uint64_t how = random_next() % 16;
        if (how == 0)
            num_bytes = at;
        else if (how < 6)
            bytes[at] ^= (uint8_t)(1U << random_next() % 8);
        else if (how < 12)
            bytes[at] = extremes[random_next() % sizeof(extremes)];
        else
            bytes[at] = (uint8_t)random_next();
    }
    return num_bytes;
}

/* ---- what is mutated ------------------------------------------------------------------------ */

/* Those seeds of the wire's fuzzer that are batches: one for each verb. */
static void seeds_take(void)
{
    uint8_t bytes[MAX_BYTES];

    for (size_t index = 0; num_batches < MAX_SEEDS; index++) {
        size_t size = fuzz_seed(index, bytes, sizeof(bytes));
        if (size < 2 || bytes[0] != 0) /* the first byte is the decoder's: 0 is a Batch's */
            break;
        batch_sizes[num_batches] = size - 1;
        memcpy(batch_seeds[num_batches++], bytes + 1, size - 1);
    }
    assert_true(num_batches >= 20);
}

static void hello_fuzz(const struct daemon *daemon)
{
    uint8_t packet[HELLO_MAX_BYTES];
    struct hello hello = raw_hello();
    int fd = raw_connect(daemon);

    memset(packet, 0, sizeof(packet));
    memcpy(packet, &hello, sizeof(hello));
    size_t size = mutate(packet, sizeof(hello) + random_next() % 3);
    (void)send(fd, packet, size, MSG_NOSIGNAL);
    if (random_next() % 4 == 0)
        (void)raw_packet(fd, packet, sizeof(packet), 20, NULL);
    (void)close(fd);
    counts.hellos++;
}

/* A valid batch as this session's, or of bytes that were changed. */
static void frame_fuzz(struct raw *raw)
{
    uint8_t bytes[MAX_BYTES];
    size_t at = random_next() % num_batches, size = batch_sizes[at];
    Kvpool__Wire__Batch *batch = kvpool__wire__batch__unpack(NULL, size, batch_seeds[at]);

    assert_non_null(batch);
    uint32_t verb = batch->requests[0]->verb_case;
    bool is_harmless = verb != RAW_REQUEST(SHUTDOWN); /* sessions may not, in any case */
    batch->session = raw->welcome.session_id;
    batch->requests[0]->id = raw->next_id++;
    batch->requests[0]->deadline_ms = 20 + (uint32_t)(random_next() % 100);
    if (random_next() % 8 > 0) {
        ProtobufCBinaryData kept = batch->token;
        batch->token = (ProtobufCBinaryData){HELLO_ID_BYTES, raw->welcome.session_token};
        size = kvpool__wire__batch__pack(batch, bytes);
        batch->token = kept;
    } else {
        size = kvpool__wire__batch__pack(batch, bytes);
    }
    kvpool__wire__batch__free_unpacked(batch, NULL);
    /* The envelope is at the front: mostly what is behind it is changed. */
    size_t spare = size > 32 && random_next() % 8 ? 32 : 0;
    size = spare + mutate(bytes + spare, size - spare);
    struct raw_frame frames[3] = {{bytes, size}, {bytes, size / 2}, {bytes, 1}};
    size_t count = random_next() % 16 ? 1 : 1 + random_next() % 3;
    if (is_harmless && raw_send(raw, frames, count, 0))
        counts.frames++;
}

static void entry_fuzz(struct raw *raw)
{
    struct ring_completion completion;
    struct ring_submission entry = {.id = raw->next_id++,
                                    .verb = 1 + (uint32_t)(random_next() % 7),
                                    .object = random_next() % 4,
                                    .value = random_next() % 4,
                                    .layer = (uint32_t)(random_next() % 3),
                                    .dtype = 1 + (uint32_t)(random_next() % 3)};
    struct ring_row row = {.sequence = random_next() % 4,
                           .tokens_offset = 4096,
                           .num_tokens = (uint32_t)(random_next() % 20)};

    (void)mutate((uint8_t *)&entry + 8, sizeof(entry) - 8);
    (void)mutate((uint8_t *)&row, sizeof(row));
    memcpy((char *)raw->staging + RING_DATA_OFFSET, &row, sizeof(row));
    raw_submit(raw, &entry);
    counts.entries++;
    while (raw_complete(raw, &completion, 0))
        ;
}

/* ---- sessions ------------------------------------------------------------------------------- */

/* So that mutations meet something: a model, and sequences 1 to 3 in some state. */
static void session_prepare(struct raw *raw)
{
    static uint8_t tokens[4 * 64];
    Kvpool__Wire__RegisterModel model = raw_small_model();
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Allocate allocate = KVPOOL__WIRE__ALLOCATE__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;

    (void)raw_register(raw, &model);
    memset(tokens, (int)(random_next() % 4), sizeof(tokens));
    prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    allocate.prompt = &prompt;
    request.verb_case = RAW_REQUEST(ALLOCATE);
    request.allocate = &allocate;
    for (allocate.sequence = 1; allocate.sequence <= 3; allocate.sequence++) {
        allocate.unfilled = random_next() % 2;
        assert_int_equal(raw_call(raw, &request), STATUS_OK);
    }
}

static void session_fuzz(const struct daemon *daemon, uint64_t end)
{
    struct raw raw;
    bool is_mapped = random_next() % 4 == 0;

    raw_open(&raw, daemon, NULL, is_mapped ? HELLO_MAPPED : 0, 0);
    session_prepare(&raw);
    for (int round = 0; round < SESSION_ROUNDS && now_ms() < end; round++) {
        uint64_t what = random_next() % 16;
        if (what == 0)
            hello_fuzz(daemon);
        else if (what < 9)
            frame_fuzz(&raw);
        else
            entry_fuzz(&raw);
        if (round % 8 == 0)
            for (raw_replies *replies; (replies = raw_receive(&raw, 0));)
                raw_free(replies);
    }
    raw_close(&raw);
    counts.sessions++;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

/* Fails if the log has a word of a sanitizer, of an assertion, or of a leak. */
static void log_check(const char *path)
{
    static const char *const words[] = {"ERROR: AddressSanitizer", "ERROR: LeakSanitizer",
                                        "runtime error:", "Assertion", "assert"};
    char line[1024];
    FILE *in = fopen(path, "r");
    bool is_bad = false;

    assert_non_null(in);
    while (fgets(line, sizeof(line), in)) {
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            is_bad |= strstr(line, words[i]) != NULL;
        if (is_bad)
            print_error("%s", line);
    }
    fclose(in);
    assert_false(is_bad);
}

/* The daemon's stderr goes to a file: it inherits ours while it starts. */
static void daemon_start_logged(struct daemon *daemon, char *path, size_t size)
{
    (void)snprintf(path, size, "/tmp/kvpool-fuzz-%d.log", getpid());
    int log = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), kept = dup(STDERR_FILENO);

    assert_true(log >= 0 && kept >= 0);
    assert_true(dup2(log, STDERR_FILENO) >= 0);
    daemon_start(daemon, "pool-bytes: 16MiB\nhello: 200ms\nmax-tenant-sessions: 16\n");
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(log);
    (void)close(kept);
}

static void a_daemon_survives_whatever_is_sent(void **state)
{
    struct daemon daemon;
    char path[64];
    uint32_t model;

    (void)state;
    print_message("seed %lu, %lu s\n", random_state, seconds);
    seeds_take();
    daemon_start_logged(&daemon, path, sizeof(path));
    struct kvpool *honest = engine_connect(&daemon, "token-of-tenant-b-0123", 0);
    assert_non_null(honest);
    assert_int_equal(kvpool_register_model(honest, &small_model, &model, NULL), 0);
    uint64_t end = now_ms() + seconds * 1000;
    do {
        session_fuzz(&daemon, end);
        (void)match_p99_us(honest, model, 10);
    } while (now_ms() < end);
    print_message("%lu sessions, %lu hellos, %lu frames, %lu ring entries\n", counts.sessions,
                  counts.hellos, counts.frames, counts.entries);
    stat_await(&daemon, "pool_sessions", 1, 10000);
    kvpool_disconnect(honest);
    stat_await(&daemon, "pool_held", 0, 10000);
    stat_await(&daemon, "pool_reserved", 0, 10000);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    log_check(path);
    (void)unlink(path);
    daemon_finish(&daemon);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_daemon_survives_whatever_is_sent)};

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--seed") == 0)
            random_state = strtoull(argv[i + 1], NULL, 0);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
