/*
 * tests/e2e/test_stall.c - who stops, floods or talks nonsense: others go on, and memory is
 * bounded.
 *
 * In each test another engine asks on, and its p99 is compared with its own before.
 */
#include "proto/caps.h"
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum { P99_COUNT = 300, QUEUE_MIB = 16 };

static struct daemon daemon_;

/* The engine that goes on. */
static struct kvpool *other;
static uint32_t other_model;
static double idle_us;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\nhello: 300ms\nstats: 100ms\n"
                           "message-bytes: 16MiB\nsession-queue-bytes: 16MiB\n"
                           "queue-bytes: 64MiB\nevent-queue: 100\n");
    *state = &daemon_;
    other = engine_connect(&daemon_, "token-of-tenant-b-0123", 0);
    if (!other || kvpool_register_model(other, &small_model, &other_model, NULL))
        return -1;
    idle_us = match_p99_us(other, other_model, P99_COUNT);
    return 0;
}

static int finish(void **state)
{
    kvpool_disconnect(other);
    daemon_finish(*state);
    return 0;
}

/* It answers, as fast as can be expected; and it did not grow by more than @kib since @before. */
static void others_go_on(struct daemon *daemon, const char *what, uint64_t before, uint64_t kib)
{
    uint64_t rss = process_rss_kib(daemon->pid);

    p99_assert(what, idle_us, match_p99_us(other, other_model, P99_COUNT));
    print_message("%s: %lu KiB, %lu before\n", what, rss, before);
    assert_true(rss < before + kib + process_rss_slack_kib(daemon->pid));
}

/* ---- who does not read ---------------------------------------------------------------------- */

static void churn(struct kvpool *kvpool, uint32_t model, uint32_t seed)
{
    static uint32_t tokens[1600];
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 1600};

    tokens_make(tokens, 1600, seed);
    assert_int_equal(kvpool_allocate(kvpool, seed, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(kvpool, seed), 0);
    assert_int_equal(kvpool_release(kvpool, seed), 0);
}

static void a_subscriber_that_never_reads_harms_nobody(void **state)
{
    struct daemon *daemon = *state;
    struct kvpool *kvpool = engine_connect(daemon, NULL, 0);
    void *context = zmq_ctx_new(), *subscriber = zmq_socket(context, ZMQ_SUB);
    char endpoint[128];
    const int one = 1, zero = 0;
    uint32_t model;

    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/run/stats.sock", daemon->dir);
    (void)zmq_setsockopt(subscriber, ZMQ_RCVHWM, &one, sizeof(one));
    (void)zmq_setsockopt(subscriber, ZMQ_LINGER, &zero, sizeof(zero));
    (void)zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0);
    assert_int_equal(zmq_connect(subscriber, endpoint), 0);
    assert_int_equal(kvpool_register_model(kvpool, &small_model, &model, NULL), 0);
    for (uint32_t seed = 1; seed <= 50; seed++)
        churn(kvpool, model, seed);
    (void)usleep(300000); /* it subscribed, and the pool is full: what was taken once is taken */
    uint64_t before = process_rss_kib(daemon->pid), end = now_ms() + 4000;
    uint32_t seed = 100;
    for (; now_ms() < end && seed < 3000; seed++)
        churn(kvpool, model, seed);
    print_message("%u rounds of 100 blocks\n", seed - 100);
    others_go_on(daemon, "deaf subscriber", before, 64 << 10);
    (void)zmq_close(subscriber);
    (void)zmq_ctx_term(context);
    kvpool_disconnect(kvpool);
}

/* A sequence of 1024 blocks; each request for its table is answered with 8 KiB. */
static void large_replies_prepare(struct raw *raw)
{
    static uint8_t tokens[4 * 16384];
    Kvpool__Wire__RegisterModel model = raw_small_model();
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Allocate allocate = KVPOOL__WIRE__ALLOCATE__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;

    (void)raw_register(raw, &model);
    prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    allocate.sequence = 1;
    allocate.prompt = &prompt;
    request.verb_case = RAW_REQUEST(ALLOCATE);
    request.allocate = &allocate;
    assert_int_equal(raw_call(raw, &request), STATUS_OK);
}

/* Sends @max batches of @requests, unless its session ends before; how many it sent in 15 s. */
static unsigned flood(struct raw *raw, raw_request **requests, size_t count, unsigned max)
{
    unsigned num_sent = 0;
    uint64_t end = now_ms() + 15000;
    char byte;

    while (num_sent < max && now_ms() < end && raw_packet(raw->fd, &byte, 1, 0, NULL) < 0) {
        for (size_t i = 0; i < count; i++)
            requests[i]->id = raw->next_id++;
        num_sent += raw_batch(raw, requests, count, NULL, 0, 300);
    }
    return num_sent;
}

static void replies_are_not_read(struct daemon *daemon, const char *what, uint32_t verb,
                                 void *message)
{
    static raw_request all[WIRE_MAX_REQUESTS];
    raw_request *requests[WIRE_MAX_REQUESTS];
    struct raw raw;
    char byte;

    for (size_t i = 0; i < WIRE_MAX_REQUESTS; i++) {
        all[i] = (raw_request)KVPOOL__WIRE__REQUEST__INIT;
        all[i].verb_case = verb;
        all[i].publish = message;
        requests[i] = &all[i];
    }
    raw_open(&raw, daemon, NULL, 0, 1);
    large_replies_prepare(&raw);
    uint64_t before = process_rss_kib(daemon->pid);
    unsigned sent = flood(&raw, requests, WIRE_MAX_REQUESTS, UINT32_MAX);
    print_message("%s: %u batches sent\n", what, sent);
    others_go_on(daemon, what, before, (QUEUE_MIB + 48) << 10);
    assert_int_equal(raw_packet(raw.fd, &byte, 1, 5000, NULL), 0); /* its session is over */
    raw_close(&raw);
    stat_await(daemon, "pool_sessions", 1, 5000);
}

static void an_engine_that_never_reads_its_replies_harms_nobody(void **state)
{
    Kvpool__Wire__SequenceRef table = KVPOOL__WIRE__SEQUENCE_REF__INIT;
    Kvpool__Wire__Read read = KVPOOL__WIRE__READ__INIT;
    Kvpool__Wire__StatsRequest stats = KVPOOL__WIRE__STATS_REQUEST__INIT;

    table.sequence = read.sequence = 1;
    table.want_table = true;
    read.num_blocks = 256; /* 2 MiB behind each reply */
    replies_are_not_read(*state, "tables unread", RAW_REQUEST(PUBLISH), &table);
    replies_are_not_read(*state, "data unread", RAW_REQUEST(READ), &read);
    replies_are_not_read(*state, "stats unread", RAW_REQUEST(STATS), &stats);
}

/* ---- who asks too much ---------------------------------------------------------------------- */

/* Its replies are small and fit the queues: it may read them later, each exactly once. */
static void a_hundred_thousand_requests_at_once_are_answered_or_refused(void **state)
{
    enum { BATCHES = 391 };
    struct daemon *daemon = *state;
    static raw_request all[WIRE_MAX_REQUESTS];
    raw_request *requests[WIRE_MAX_REQUESTS];
    uint8_t tokens[256] = {1};
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Match match = KVPOOL__WIRE__MATCH__INIT;
    struct raw raw;
    uint64_t counts[NUM_STATUSES] = {0}, total = 0;

    raw_open(&raw, daemon, NULL, 0, 0);
    large_replies_prepare(&raw);
    prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    match.prompt = &prompt;
    for (size_t i = 0; i < WIRE_MAX_REQUESTS; i++) {
        all[i] = (raw_request)KVPOOL__WIRE__REQUEST__INIT;
        all[i].verb_case = i % 2 ? RAW_REQUEST(WAIT_ARRIVING) : RAW_REQUEST(MATCH);
        all[i].match = &match;
        requests[i] = &all[i];
    }
    uint64_t before = process_rss_kib(daemon->pid);
    unsigned sent = flood(&raw, requests, WIRE_MAX_REQUESTS, BATCHES);
    others_go_on(daemon, "100000 at once", before, (2 * QUEUE_MIB + 48) << 10);
    for (raw_replies *replies = raw_receive(&raw, 5000); replies;
         replies = raw_receive(&raw, 1000)) {
        for (size_t i = 0; i < replies->n_replies; i++)
            counts[replies->replies[i]->status < NUM_STATUSES ? replies->replies[i]->status : 0]++;
        total += replies->n_replies;
        raw_free(replies);
    }
    print_message("%u batches, %lu answers: %lu OK, %lu MISS, %lu OVERLOADED\n", sent, total,
                  counts[STATUS_OK], counts[STATUS_MISS], counts[STATUS_OVERLOADED]);
    assert_int_equal(sent, BATCHES);
    assert_int_equal(total, (uint64_t)BATCHES * WIRE_MAX_REQUESTS); /* it did read in the end */
    raw_close(&raw);
    stat_await(daemon, "pool_sessions", 1, 5000);
}

/* More than its credits wait: the rest is told so, at once. */
static void requests_over_the_credits_are_overloaded(void **state)
{
    struct daemon *daemon = *state;
    static raw_request all[300];
    raw_request *requests[300];
    static uint8_t tokens[4 * 64];
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Allocate allocate = KVPOOL__WIRE__ALLOCATE__INIT;
    Kvpool__Wire__Match match = KVPOOL__WIRE__MATCH__INIT;
    raw_request fill = KVPOOL__WIRE__REQUEST__INIT;
    struct raw raw;
    unsigned num_overloaded = 0;

    raw_open(&raw, daemon, NULL, 0, 0);
    large_replies_prepare(&raw);
    memset(tokens, 9, sizeof(tokens));
    prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    allocate.sequence = 2;
    allocate.unfilled = true;
    allocate.prompt = match.prompt = &prompt;
    fill.verb_case = RAW_REQUEST(ALLOCATE);
    fill.allocate = &allocate;
    assert_int_equal(raw_call(&raw, &fill), STATUS_OK);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i] = (raw_request)KVPOOL__WIRE__REQUEST__INIT;
        all[i].verb_case = RAW_REQUEST(WAIT_ARRIVING);
        all[i].match = &match;
        all[i].deadline_ms = 30000;
        all[i].id = raw.next_id++;
        requests[i] = &all[i];
    }
    assert_true(raw_batch(&raw, requests, 150, NULL, 0, 1000));
    assert_true(raw_batch(&raw, requests + 150, 150, NULL, 0, 1000));
    for (raw_replies *replies = raw_receive(&raw, 5000); replies && num_overloaded < 44;
         replies = raw_receive(&raw, 1000)) {
        for (size_t i = 0; i < replies->n_replies; i++)
            num_overloaded += replies->replies[i]->status == STATUS_OVERLOADED;
        raw_free(replies);
    }
    assert_int_equal(num_overloaded, ARRAY_SIZE(all) - WIRE_MAX_CREDITS);
    p99_assert("credits", idle_us, match_p99_us(other, other_model, P99_COUNT));
    raw_close(&raw);
    stat_await(daemon, "pool_waiting", 0, 5000);
}

/* ---- hellos --------------------------------------------------------------------------------- */

static void hellos_that_are_none_are_refused(void **state)
{
    struct daemon *daemon = *state;
    uint8_t packet[HELLO_MAX_BYTES + 64] = {0};
    struct refusal refusal;
    struct hello hello = raw_hello();

    assert_int_equal(raw_refusal(daemon, &hello, 1, NULL), STATUS_MALFORMED);
    assert_int_equal(raw_refusal(daemon, &hello, 9, NULL), STATUS_MALFORMED);
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello) - 1, NULL), STATUS_MALFORMED);
    memcpy(packet, &hello, sizeof(hello));
    assert_int_equal(raw_refusal(daemon, packet, sizeof(packet), NULL), STATUS_MALFORMED);
    assert_int_equal(raw_refusal(daemon, packet, sizeof(hello) + 1, NULL), STATUS_MALFORMED);
    hello.magic++;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), NULL), STATUS_MALFORMED);
    hello = raw_hello();
    hello.major = HELLO_MAJOR + 1;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), &refusal), STATUS_UNSUPPORTED);
    assert_int_equal(refusal.major, HELLO_MAJOR);
    assert_true(strlen(refusal.message) > 0);
    hello = raw_hello();
    hello.flags = 1U << 20;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), NULL), STATUS_UNSUPPORTED);
    hello = raw_hello();
    hello.token_bytes = HELLO_MAX_TOKEN + 1;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), NULL), STATUS_MALFORMED);
    hello.token_bytes = 5;
    memcpy(packet, &hello, sizeof(hello));
    memcpy(packet + sizeof(hello), "wrong", 5);
    assert_int_equal(raw_refusal(daemon, packet, sizeof(hello) + 5, NULL), STATUS_DENIED);
    assert_int_equal(stat_read(daemon, "pool_sessions"), 1);
}

static void a_newer_minor_is_welcome(void **state)
{
    struct daemon *daemon = *state;
    struct welcome welcome;
    uint8_t packet[sizeof(struct hello) + 16] = {0};
    struct hello hello = raw_hello();
    int fd = raw_connect(daemon);

    hello.minor = HELLO_MINOR + 1;
    memcpy(packet, &hello, sizeof(hello)); /* what it adds is behind what we know */
    assert_int_equal(send(fd, packet, sizeof(packet), MSG_NOSIGNAL), (ssize_t)sizeof(packet));
    assert_int_equal(raw_packet(fd, &welcome, sizeof(welcome), 5000, NULL), sizeof(welcome));
    assert_int_equal(welcome.magic, WELCOME_MAGIC);
    (void)close(fd);
    stat_await(daemon, "pool_sessions", 1, 5000);
}

/* Connections that say nothing, and one that says more than its hello: both are closed. */
static void silence_and_chatter_are_closed(void **state)
{
    enum { SILENT = 100 };
    struct daemon *daemon = *state;
    int fds[SILENT];
    char byte;
    struct raw raw;

    for (size_t i = 0; i < SILENT; i++)
        fds[i] = raw_connect(daemon);
    p99_assert("silent connections", idle_us, match_p99_us(other, other_model, P99_COUNT));
    uint64_t begin = now_ms();
    for (size_t i = 0; i < SILENT; i++) {
        assert_int_equal(raw_packet(fds[i], &byte, 1, 5000, NULL), 0);
        (void)close(fds[i]);
    }
    assert_true(now_ms() - begin < 5 * 300 + 1000);

    raw_open(&raw, daemon, NULL, 0, 0);
    assert_int_equal(send(raw.fd, "more", 4, MSG_NOSIGNAL), 4);
    assert_int_equal(raw_packet(raw.fd, &byte, 1, 5000, NULL), 0);
    raw_close(&raw);
    stat_await(daemon, "pool_sessions", 1, 5000);
}

/* ---- frames --------------------------------------------------------------------------------- */

static void refused_frame(struct raw *raw, const void *bytes, size_t num_bytes, uint32_t status)
{
    const struct raw_frame frame = {bytes, num_bytes};
    uint64_t id = 99;

    assert_true(raw_send(raw, &frame, 1, 5000));
    assert_int_equal(raw_status(raw, &id), status);
    assert_int_equal(id, 0);
}

static void frames_that_are_no_batch_are_refused(void **state)
{
    static const uint8_t newer_major[] = {0x08, 0x02}, no_major[] = {0x10, 0x01};
    static uint8_t huge[WIRE_MAX_BATCH_BYTES + 1];
    struct daemon *daemon = *state;
    uint8_t garbage[200];
    struct raw raw;

    raw_open(&raw, daemon, NULL, 0, 0);
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (uint8_t)(i * 37 + 255);
    refused_frame(&raw, garbage, sizeof(garbage), STATUS_MALFORMED);
    refused_frame(&raw, "", 0, STATUS_MALFORMED);
    refused_frame(&raw, no_major, sizeof(no_major), STATUS_MALFORMED);
    refused_frame(&raw, newer_major, sizeof(newer_major), STATUS_UNSUPPORTED);
    huge[0] = 0x08; /* of our major, and too large */
    huge[1] = 0x01;
    refused_frame(&raw, huge, sizeof(huge), STATUS_MALFORMED);
    p99_assert("frames", idle_us, match_p99_us(other, other_model, P99_COUNT));
    raw_close(&raw);
    stat_await(daemon, "pool_sessions", 1, 5000);
}

static void ten_thousand_requests_in_a_batch_are_malformed(void **state)
{
    enum { COUNT = 10000 };
    struct daemon *daemon = *state;
    raw_request *all = calloc(COUNT, sizeof(*all)), **requests = calloc(COUNT, sizeof(*requests));
    Kvpool__Wire__StatsRequest stats = KVPOOL__WIRE__STATS_REQUEST__INIT;
    struct raw raw;
    uint64_t id = 1;

    assert_true(all && requests);
    raw_open(&raw, daemon, NULL, 0, 0);
    for (size_t i = 0; i < COUNT; i++) {
        all[i] = (raw_request)KVPOOL__WIRE__REQUEST__INIT;
        all[i].id = i + 1;
        all[i].verb_case = RAW_REQUEST(STATS);
        all[i].stats = &stats;
        requests[i] = &all[i];
    }
    assert_true(raw_batch(&raw, requests, COUNT, NULL, 0, 5000));
    assert_int_equal(raw_status(&raw, &id), STATUS_MALFORMED);
    assert_int_equal(id, 0);
    assert_null(raw_receive(&raw, 200)); /* one answer for all, and nothing carried out */
    raw_close(&raw);
    free(all);
    free(requests);
}

/* What a newer client adds is skipped; a verb that is not known is answered UNSUPPORTED. */
static void what_is_newer_is_tolerated(void **state)
{
    /* 99: varint, and 98: a message that nobody knows */
    static const uint8_t number[] = {0x98, 0x06, 0x05}, verb[] = {0x92, 0x06, 0x00};
    struct daemon *daemon = *state;
    Kvpool__Wire__StatsRequest stats = KVPOOL__WIRE__STATS_REQUEST__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    ProtobufCMessageUnknownField fields[] = {{.tag = 99,
                                              .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT,
                                              .len = 1,
                                              .data = (uint8_t *)(uintptr_t)&number[2]},
                                             {.tag = 98,
                                              .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                              .len = 1,
                                              .data = (uint8_t *)(uintptr_t)&verb[2]}};
    struct raw raw;

    raw_open(&raw, daemon, NULL, 0, 0);
    request.base.unknown_fields = fields;
    request.base.n_unknown_fields = 2;
    request.verb_case = RAW_REQUEST(STATS);
    request.stats = &stats;
    assert_int_equal(raw_call(&raw, &request), STATUS_OK);
    request.verb_case = KVPOOL__WIRE__REQUEST__VERB__NOT_SET;
    assert_int_equal(raw_call(&raw, &request), STATUS_UNSUPPORTED);

    Kvpool__Wire__Batch batch = KVPOOL__WIRE__BATCH__INIT;
    raw_request plain = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&plain};
    uint8_t packed[256];
    plain.id = 5;
    plain.verb_case = RAW_REQUEST(STATS);
    plain.stats = &stats;
    batch.major = WIRE_MAJOR;
    batch.minor = WIRE_MINOR + 7;
    batch.session = raw.welcome.session_id;
    batch.token = (ProtobufCBinaryData){HELLO_ID_BYTES, raw.welcome.session_token};
    batch.requests = requests;
    batch.n_requests = 1;
    const struct raw_frame frame = {packed, kvpool__wire__batch__pack(&batch, packed)};
    assert_true(raw_send(&raw, &frame, 1, 5000));
    assert_int_equal(raw_status(&raw, NULL), STATUS_OK);
    raw_close(&raw);
}

/* ---- silence -------------------------------------------------------------------------------- */

static void an_idle_daemon_with_idle_rings_uses_no_cpu(void **state)
{
    struct daemon *daemon = *state;
    struct raw raw[3];

    for (size_t i = 0; i < ARRAY_SIZE(raw); i++) {
        const struct ring_submission entry = {.id = i + 1, .verb = RING_RELEASE, .object = 5};
        struct ring_completion completion;
        raw_open(&raw[i], daemon, NULL, 0, 0);
        raw_submit(&raw[i], &entry);
        assert_true(raw_complete(&raw[i], &completion, 5000));
        assert_int_equal(completion.status, STATUS_NOT_FOUND);
    }
    (void)usleep(200000);
    unsigned long before = process_ticks(daemon->pid);
    (void)usleep(1000000);
    unsigned long used = process_ticks(daemon->pid) - before;
    print_message("%lu of 100 ticks\n", used);
    assert_true(used <= 5);
    for (size_t i = 0; i < ARRAY_SIZE(raw); i++)
        raw_close(&raw[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_subscriber_that_never_reads_harms_nobody),
        TEST(an_engine_that_never_reads_its_replies_harms_nobody),
        TEST(a_hundred_thousand_requests_at_once_are_answered_or_refused),
        TEST(requests_over_the_credits_are_overloaded),
        TEST(hellos_that_are_none_are_refused),
        TEST(a_newer_minor_is_welcome),
        TEST(silence_and_chatter_are_closed),
        TEST(frames_that_are_no_batch_are_refused),
        TEST(ten_thousand_requests_in_a_batch_are_malformed),
        TEST(what_is_newer_is_tolerated),
        TEST(an_idle_daemon_with_idle_rings_uses_no_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
