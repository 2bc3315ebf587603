/* tests/e2e/test_hostile.c - what is malformed, foreign, replayed or too large changes nothing. */
#include "tests/e2e/daemon.h"

#include "proto/caps.h"
#include "proto/hello.h"
#include "proto/kvpool.pb-c.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

static struct daemon daemon_;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\nhello: 300ms\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

/* ---- the session socket, by hand ------------------------------------------------------------ */

static int session_connect(const struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/session.sock", daemon->dir);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    const struct timeval patience = {.tv_sec = 5};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* Sends a first message; the status of the refusal, or 0 of a welcome, or -1: closed unanswered. */
static int hello_say(const struct daemon *daemon, const void *packet, size_t size)
{
    union hello_answer answer;
    const char *what;
    char buffer[512];
    int fd = session_connect(daemon), result = -1;

    assert_int_equal(send(fd, packet, size, MSG_NOSIGNAL), size);
    ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count > 0) {
        assert_int_equal(hello_check_answer(buffer, (size_t)count, &answer, &what), 0);
        result = answer.magic == REFUSAL_MAGIC ? (int)answer.refusal.status : 0;
        if (answer.magic == REFUSAL_MAGIC)
            assert_int_equal(recv(fd, buffer, sizeof(buffer), 0), 0); /* and it closes */
    }
    (void)close(fd);
    return result;
}

static void hellos_are_refused_for_what_they_are(void **state)
{
    const struct hello good = {.magic = HELLO_MAGIC, .major = HELLO_MAJOR};
    struct hello hello = good;
    char large[HELLO_MAX_BYTES + 100];

    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), 0);
    hello.magic++;
    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), STATUS_MALFORMED);
    hello = good;
    hello.major++;
    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), STATUS_UNSUPPORTED);
    hello = good;
    hello.flags = 1u << 31;
    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), STATUS_UNSUPPORTED);
    hello = good;
    assert_int_equal(hello_say(*state, &hello, 10), STATUS_MALFORMED);
    hello.token_bytes = 100; /* that do not follow */
    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), STATUS_MALFORMED);
    memset(large, 0, sizeof(large));
    memcpy(large, &good, sizeof(good));
    assert_int_not_equal(hello_say(*state, large, sizeof(large)), 0);
    hello = good;
    hello.token_bytes = 20;
    memcpy(large, &hello, sizeof(hello));
    memset(large + sizeof(hello), 'x', 20); /* nobody's, although the user id is somebody's */
    assert_int_equal(hello_say(*state, large, sizeof(hello) + 20), STATUS_DENIED);
    hello = good;
    hello.flags = HELLO_ATTACH;
    hello.session_id = 12345;
    assert_int_equal(hello_say(*state, &hello, sizeof(hello)), STATUS_NOT_FOUND);
    stat_await(*state, "pool_sessions", 0, 5000);
}

static void who_says_nothing_or_too_much_is_closed(void **state)
{
    const struct hello hello = {.magic = HELLO_MAGIC, .major = HELLO_MAJOR};
    char buffer[512];
    int fd = session_connect(*state);

    assert_int_equal(recv(fd, buffer, sizeof(buffer), 0), 0); /* after `hello` */
    (void)close(fd);
    fd = session_connect(*state);
    assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
    assert_true(recv(fd, buffer, sizeof(buffer), 0) > 0);
    assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
    assert_true(recv(fd, buffer, sizeof(buffer), 0) <= 0);
    (void)close(fd);
    stat_await(*state, "pool_sessions", 0, 5000);
}

/* ---- requests, by hand ---------------------------------------------------------------------- */

struct raw {
    int fd;
    struct welcome welcome;
    void *context, *socket;
    int fds[3];
};

static struct raw raw_connect(const struct daemon *daemon)
{
    struct raw raw = {.fd = session_connect(daemon)};
    const struct hello hello = {.magic = HELLO_MAGIC, .major = HELLO_MAJOR};
    char control[CMSG_SPACE(3 * sizeof(int))];
    struct iovec part = {&raw.welcome, sizeof(raw.welcome)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int patience = 3000, linger = 0;

    assert_int_equal(send(raw.fd, &hello, sizeof(hello), 0), sizeof(hello));
    assert_int_equal(recvmsg(raw.fd, &message, 0), sizeof(raw.welcome));
    memcpy(raw.fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(raw.fds));
    raw.context = zmq_ctx_new();
    raw.socket = zmq_socket(raw.context, ZMQ_DEALER);
    (void)zmq_setsockopt(raw.socket, ZMQ_RCVTIMEO, &patience, sizeof(patience));
    (void)zmq_setsockopt(raw.socket, ZMQ_LINGER, &linger, sizeof(linger));
    assert_int_equal(zmq_connect(raw.socket, raw.welcome.endpoint), 0);
    return raw;
}

static void raw_close(struct raw *raw)
{
    (void)close(raw->fd);
    for (int i = 0; i < 3; i++)
        (void)close(raw->fds[i]);
    (void)zmq_close(raw->socket);
    (void)zmq_ctx_term(raw->context);
}

/* Sends bytes; the status of the first reply, or -1: none came. */
static int raw_ask(struct raw *raw, const void *bytes, size_t size)
{
    static uint8_t buffer[1 << 16];
    int status = -1;

    assert_int_equal(zmq_send(raw->socket, bytes, size, 0), size);
    int count = zmq_recv(raw->socket, buffer, sizeof(buffer), 0);
    if (count < 0)
        return -1;
    Kvpool__Wire__ReplyBatch *batch =
        kvpool__wire__reply_batch__unpack(NULL, (size_t)count, buffer);
    assert_non_null(batch);
    if (batch->n_replies > 0)
        status = (int)batch->replies[0]->status;
    kvpool__wire__reply_batch__free_unpacked(batch, NULL);
    return status;
}

struct ask {
    uint64_t session;
    const uint8_t *token;
    size_t token_bytes;
    uint32_t major;
};

/* A Release of sequence 1: carried out, it would be NOT_FOUND. */
static int release_ask(struct raw *raw, const struct ask *ask)
{
    Kvpool__Wire__SequenceRef ref = KVPOOL__WIRE__SEQUENCE_REF__INIT;
    Kvpool__Wire__Request request = KVPOOL__WIRE__REQUEST__INIT, *requests = &request;
    Kvpool__Wire__Batch batch = KVPOOL__WIRE__BATCH__INIT;
    uint8_t buffer[256];

    ref.sequence = 1;
    request.id = 5;
    request.verb_case = KVPOOL__WIRE__REQUEST__VERB_RELEASE;
    request.release = &ref;
    batch.major = ask->major;
    batch.session = ask->session;
    batch.token.data = (uint8_t *)(uintptr_t)ask->token;
    batch.token.len = ask->token_bytes;
    batch.requests = &requests;
    batch.n_requests = 1;
    size_t size = kvpool__wire__batch__pack(&batch, buffer);
    return raw_ask(raw, buffer, size);
}

static void foreign_and_malformed_messages_change_nothing(void **state)
{
    static uint8_t junk[4096];
    static const uint8_t zeros[16];
    struct raw raw = raw_connect(*state), other = raw_connect(*state);
    struct ask ask = {raw.welcome.session_id, raw.welcome.session_token, 16, WIRE_MAJOR};

    assert_int_equal(release_ask(&raw, &ask), STATUS_NOT_FOUND);
    ask.token = other.welcome.session_token;
    assert_int_equal(release_ask(&raw, &ask), STATUS_STALE);
    ask.token = zeros;
    assert_int_equal(release_ask(&raw, &ask), STATUS_STALE);
    ask.token_bytes = 15;
    assert_int_equal(release_ask(&raw, &ask), STATUS_MALFORMED);
    ask = (struct ask){0, raw.welcome.session_token, 16, WIRE_MAJOR};
    assert_int_equal(release_ask(&raw, &ask), STATUS_STALE);
    ask = (struct ask){raw.welcome.session_id, raw.welcome.session_token, 16, WIRE_MAJOR + 1};
    assert_int_equal(release_ask(&raw, &ask), STATUS_UNSUPPORTED);
    uint32_t seed = 1;
    for (int round = 0; round < 300; round++) {
        size_t size = 1 + (size_t)round * 13 % sizeof(junk);
        for (size_t at = 0; at < size; at++)
            junk[at] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
        int status = raw_ask(&raw, junk, size);
        assert_true(status != 0 && status != -1);
    }
    assert_int_equal(zmq_send(raw.socket, "", 0, 0), 0); /* an empty batch: nothing, or refused */
    ask = (struct ask){raw.welcome.session_id, raw.welcome.session_token, 16, WIRE_MAJOR};
    int status = release_ask(&raw, &ask);
    assert_true(status == STATUS_NOT_FOUND || status == STATUS_UNSUPPORTED ||
                status == STATUS_MALFORMED);
    raw_close(&raw);
    raw_close(&other);
    stat_await(*state, "pool_sessions", 0, 5000);
    assert_int_equal(stat_read(*state, "pool_allocations"), 0);
}

/* The session of before is gone: its messages are as good as nobody's. */
static void a_replay_of_an_ended_session_is_stale(void **state)
{
    struct raw raw = raw_connect(*state), next;
    const struct ask ask = {raw.welcome.session_id, raw.welcome.session_token, 16, WIRE_MAJOR};

    (void)close(raw.fd);
    stat_await(*state, "pool_sessions", 0, 5000);
    next = raw_connect(*state);
    assert_int_equal(release_ask(&next, &ask), STATUS_STALE);
    raw.fd = -1;
    raw_close(&raw);
    raw_close(&next);
}

static void an_oversized_frame_costs_its_sender_the_connection(void **state)
{
    struct raw raw = raw_connect(*state), other = raw_connect(*state);
    size_t size = (size_t)64 << 20;
    void *large = calloc(1, size);
    const struct ask ask = {other.welcome.session_id, other.welcome.session_token, 16, WIRE_MAJOR};

    (void)zmq_send(raw.socket, large, size, 0);
    free(large);
    (void)usleep(50000);
    assert_int_equal(release_ask(&other, &ask), STATUS_NOT_FOUND); /* others are answered */
    raw_close(&raw);
    raw_close(&other);
}

/* An engine that asks and never reads is ended, and only it. */
static void who_does_not_read_its_replies_loses_its_session(void **state)
{
    struct raw raw = raw_connect(*state), other = raw_connect(*state);
    const struct ask ask = {other.welcome.session_id, other.welcome.session_token, 16, WIRE_MAJOR};
    Kvpool__Wire__SequenceRef ref = KVPOOL__WIRE__SEQUENCE_REF__INIT;
    Kvpool__Wire__Request request = KVPOOL__WIRE__REQUEST__INIT, *requests[200];
    Kvpool__Wire__Batch batch = KVPOOL__WIRE__BATCH__INIT;
    static uint8_t buffer[1 << 16];
    int hwm = 4, buffer_bytes = 4096;

    (void)zmq_close(raw.socket);
    raw.socket = zmq_socket(raw.context, ZMQ_DEALER);
    int linger = 0;
    (void)zmq_setsockopt(raw.socket, ZMQ_LINGER, &linger, sizeof(linger));
    (void)zmq_setsockopt(raw.socket, ZMQ_RCVHWM, &hwm, sizeof(hwm));
    (void)zmq_setsockopt(raw.socket, ZMQ_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
    assert_int_equal(zmq_connect(raw.socket, raw.welcome.endpoint), 0);
    request.verb_case = KVPOOL__WIRE__REQUEST__VERB_RELEASE;
    request.release = &ref;
    for (int i = 0; i < 200; i++)
        requests[i] = &request;
    batch.major = WIRE_MAJOR;
    batch.session = raw.welcome.session_id;
    batch.token.data = raw.welcome.session_token;
    batch.token.len = 16;
    batch.requests = requests;
    batch.n_requests = 200;
    size_t size = kvpool__wire__batch__pack(&batch, buffer);
    for (int i = 0; i < 20000; i++) {
        if (zmq_send(raw.socket, buffer, size, ZMQ_DONTWAIT) < 0)
            (void)usleep(100);
    }
    assert_int_equal(release_ask(&other, &ask), STATUS_NOT_FOUND);
    raw_close(&raw);
    raw_close(&other);
    stat_await(*state, "pool_sessions", 0, 5000);
}

/* ---- rings ---------------------------------------------------------------------------------- */

static void nonsense_in_a_ring_harms_only_its_session(void **state)
{
    struct raw raw = raw_connect(*state), other = raw_connect(*state);
    const struct ask ask = {other.welcome.session_id, other.welcome.session_token, 16, WIRE_MAJOR};
    const uint64_t one = 1;
    char *memory =
        mmap(NULL, raw.welcome.staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[0], 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    struct staging_header *header = (struct staging_header *)(void *)memory;
    struct ring_submission *entries =
        (struct ring_submission *)(void *)(memory + RING_SUBMISSIONS_OFFSET);

    assert_true(ftruncate(raw.fds[0], 0) < 0); /* it is sealed */
    for (uint32_t at = 0; at < 20; at++) {
        memset(&entries[at], (int)at * 11, sizeof(entries[at]));
        entries[at].verb = at % 10;
        entries[at].rows_offset = UINT64_MAX - at;
    }
    atomic_store(&header->submissions.tail, 20);
    assert_int_equal(write(raw.fds[1], &one, sizeof(one)), sizeof(one));
    uint64_t end = now_ms() + 5000;
    while (atomic_load(&header->completions.tail) < 20 && now_ms() < end)
        (void)usleep(1000);
    assert_int_equal(atomic_load(&header->completions.tail), 20);
    struct ring_completion *completions =
        (struct ring_completion *)(void *)(memory + RING_COMPLETIONS_OFFSET);
    for (uint32_t at = 0; at < 20; at++)
        assert_int_not_equal(completions[at].status, STATUS_OK);
    atomic_store(&header->submissions.tail, 1 << 30); /* more than fits: its session ends */
    header->data_bytes = UINT64_MAX;
    header->submissions_offset = UINT64_MAX;
    assert_int_equal(write(raw.fds[1], &one, sizeof(one)), sizeof(one));
    stat_await(*state, "pool_sessions", 1, 5000);
    assert_int_equal(release_ask(&other, &ask), STATUS_NOT_FOUND);
    (void)munmap(memory, raw.welcome.staging_bytes);
    raw_close(&raw);
    raw_close(&other);
    stat_await(*state, "pool_sessions", 0, 5000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hellos_are_refused_for_what_they_are),
        TEST(who_says_nothing_or_too_much_is_closed),
        TEST(foreign_and_malformed_messages_change_nothing),
        TEST(a_replay_of_an_ended_session_is_stale),
        TEST(an_oversized_frame_costs_its_sender_the_connection),
        TEST(who_does_not_read_its_replies_loses_its_session),
        TEST(nonsense_in_a_ring_harms_only_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
