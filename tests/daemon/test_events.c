/* tests/daemon/test_events.c - what daemon/events.h and EVENTS.md promise, through real sockets. */
#include "daemon/events.h"
#include "daemon/stats.h"
#include "tests/daemon/files.h"
#include "tests/daemon/small_pool.h"

#include <errno.h>
#include <jansson.h>
#include <time.h>
#include <zmq.h>

static const char *const no_files[] = {NULL};
static const struct pool_key key_one = {{0xab, 1}}, key_two = {{2}};

struct fixture {
    struct directory directory;
    struct small_pool small;
    struct stats *stats;
    void *context;
    struct events *events;
};

static struct events_options options_of(struct fixture *fixture)
{
    return (struct events_options){.zmq_context = fixture->context,
                                   .socket_path = directory_name(&fixture->directory, "stats.sock"),
                                   .socket_mode = 0600,
                                   .queue = 4,
                                   .boot_id = "b00t",
                                   .text_bytes = stats_max_text(fixture->stats)};
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    directory_make(&fixture->directory);
    small_pool_init(&fixture->small);
    const struct stats_options stats = {
        .pool = fixture->small.pool, .max_payers = 4, .num_labels = 4, .boot_id = "b00t"};
    assert_int_equal(stats_create(&stats, &fixture->stats), 0);
    fixture->context = zmq_ctx_new();
    const struct events_options options = options_of(fixture);
    assert_int_equal(events_create(&options, &fixture->events), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    events_destroy(fixture->events);
    assert_int_equal(zmq_ctx_term(fixture->context), 0);
    stats_destroy(fixture->stats);
    pool_destroy(fixture->small.pool);
    directory_remove(&fixture->directory, no_files); /* the socket is gone too */
    free(fixture);
    return 0;
}

static void wait_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* A subscriber that the daemon knows of. */
static void *subscribe(struct fixture *fixture, const char *topic, int queue)
{
    uint64_t before = events_counters(fixture->events).subscriptions;
    const int timeout_ms = 5000;
    char endpoint[128];

    void *socket = zmq_socket(fixture->context, ZMQ_SUB);
    assert_non_null(socket);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_RCVHWM, &queue, sizeof(queue)), 0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)), 0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, topic, strlen(topic)), 0);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/stats.sock", fixture->directory.path);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    for (int i = 0; i < 1000 && events_counters(fixture->events).subscriptions == before; i++) {
        wait_ms(5);
        events_snapshot(fixture->events, fixture->stats);
    }
    assert_int_equal(events_counters(fixture->events).subscriptions, before + 1);
    return socket;
}

struct message {
    char topic[16];
    uint64_t number;
    json_t *json;
};

static bool receive(void *socket, struct message *out, int flags)
{
    static char body[1 << 20];
    uint8_t number[8];

    int length = zmq_recv(socket, out->topic, sizeof(out->topic) - 1, flags);
    if (length < 0)
        return false;
    out->topic[length] = '\0';
    assert_int_equal(zmq_recv(socket, number, 8, 0), 8);
    memcpy(&out->number, number, 8); /* little-endian, as this machine */
    length = zmq_recv(socket, body, sizeof(body), 0);
    assert_in_range(length, 1, sizeof(body));
    out->json = json_loadb(body, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(out->json);
    return true;
}

static void say(struct fixture *fixture, bool is_stored, const struct pool_key *key)
{
    const struct events_block block = {
        .is_stored = is_stored, .key = *key, .domain = "chat", .model = "m\"1", .group = 1};

    events_block(fixture->events, &block);
}

static const char *event_text(const json_t *json, size_t i, const char *name)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(json, "events"), i), name));
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void changes_of_one_pass_come_in_one_message(void **state)
{
    struct fixture *fixture = *state;
    void *socket = subscribe(fixture, "blocks", 10);
    struct message message;

    say(fixture, true, &key_one);
    say(fixture, false, &key_two);
    events_flush(fixture->events);
    assert_true(receive(socket, &message, 0));
    assert_string_equal(message.topic, "blocks");
    assert_int_equal(message.number, 1);
    assert_int_equal(json_integer_value(json_object_get(message.json, "first")), 1);
    assert_string_equal(json_string_value(json_object_get(message.json, "boot_id")), "b00t");
    assert_string_equal(event_text(message.json, 0, "event"), "stored");
    assert_string_equal(event_text(message.json, 0, "key"),
                        "ab01000000000000000000000000000000000000000000000000000000000000");
    assert_string_equal(event_text(message.json, 0, "domain"), "chat");
    assert_string_equal(event_text(message.json, 0, "model"), "m\"1");
    assert_string_equal(event_text(message.json, 1, "event"), "removed");
    assert_null(event_text(message.json, 1, "parent"));
    json_decref(message.json);

    events_flush(fixture->events); /* nothing happened, nothing comes */
    say(fixture, true, &key_two);
    events_flush(fixture->events);
    assert_true(receive(socket, &message, 0));
    assert_int_equal(message.number, 3);
    json_decref(message.json);
    assert_int_equal(events_counters(fixture->events).blocks, 3);
    assert_int_equal(events_counters(fixture->events).messages, 2);
    (void)zmq_close(socket);
}

static void a_stored_block_has_its_parent_and_tokens(void **state)
{
    struct fixture *fixture = *state;
    void *socket = subscribe(fixture, "blocks", 10);
    static uint32_t tokens[2000];
    struct message message;
    json_int_t first, second;

    tokens[0] = 9906;
    tokens[1] = UINT32_MAX;
    struct events_block block = {.is_stored = true,
                                 .key = key_two,
                                 .parent = &key_one,
                                 .tokens = tokens,
                                 .num_tokens = 2,
                                 .domain = "d",
                                 .model = "m"};
    events_block(fixture->events, &block);
    block.num_tokens = 2000; /* more than is sent */
    events_block(fixture->events, &block);
    events_flush(fixture->events);
    assert_true(receive(socket, &message, 0));
    assert_int_equal(
        json_unpack(message.json, "{s:[{s:[II]}*]}", "events", "tokens", &first, &second), 0);
    assert_int_equal(first, 9906);
    assert_true(second == UINT32_MAX);
    assert_non_null(event_text(message.json, 0, "parent"));
    assert_null(
        json_object_get(json_array_get(json_object_get(message.json, "events"), 1), "tokens"));
    json_decref(message.json);
    (void)zmq_close(socket);
}

static void snapshots_say_what_stats_json_says(void **state)
{
    struct fixture *fixture = *state;
    void *socket = subscribe(fixture, "snapshot", 10);
    struct message message;

    while (receive(socket, &message, ZMQ_DONTWAIT)) /* from before the first one */
        json_decref(message.json);
    stats_take(fixture->stats, 1);
    events_snapshot(fixture->events, fixture->stats);
    do {
        assert_true(receive(socket, &message, 0));
        if (message.number == 0)
            json_decref(message.json);
    } while (message.number == 0);
    assert_string_equal(message.topic, "snapshot");
    assert_int_equal(message.number, 1);
    assert_int_equal(json_integer_value(json_object_get(message.json, "snapshot")), 1);
    json_decref(message.json);
    (void)zmq_close(socket);
}

static void nothing_is_written_for_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct message message;

    say(fixture, true, &key_one);
    events_flush(fixture->events);
    assert_int_equal(events_counters(fixture->events).messages, 0);
    assert_int_equal(events_counters(fixture->events).blocks, 1);

    void *socket = subscribe(fixture, "blocks", 10);
    say(fixture, true, &key_two);
    events_flush(fixture->events);
    assert_true(receive(socket, &message, 0));
    assert_int_equal(message.number, 2);
    json_decref(message.json);
    (void)zmq_close(socket);
    for (int i = 0; i < 1000 && events_counters(fixture->events).subscriptions > 0; i++) {
        wait_ms(5);
        events_snapshot(fixture->events, fixture->stats);
    }
    assert_int_equal(events_counters(fixture->events).subscriptions, 0);
}

static void a_full_batch_is_sent_at_once(void **state)
{
    struct fixture *fixture = *state;
    void *socket = subscribe(fixture, "", 1000);
    struct message message;
    uint64_t next = 1;

    for (int i = 0; i < 5000; i++)
        say(fixture, true, &key_one);
    assert_true(events_counters(fixture->events).messages > 1);
    events_flush(fixture->events);
    while (next <= 5000) {
        assert_true(receive(socket, &message, 0));
        if (strcmp(message.topic, "blocks") == 0) {
            assert_int_equal(message.number, next);
            next += json_array_size(json_object_get(message.json, "events"));
        }
        json_decref(message.json);
    }
    assert_int_equal(next, 5001);
    (void)zmq_close(socket);
}

/* It does not read; the other one gets everything; then it sees how much it lost. */
static void a_slow_subscriber_loses_and_sees_it_and_blocks_nobody(void **state)
{
    enum { NUM_BATCHES = 200, BATCH = 1000 };
    struct fixture *fixture = *state;
    void *slow = subscribe(fixture, "blocks", 1);
    void *fast = subscribe(fixture, "block", 1000);
    struct message message;
    uint64_t fast_next = 1, slow_next = 1, slow_lost = 0;

    for (int batch = 0; batch < NUM_BATCHES; batch++) {
        for (int i = 0; i < BATCH; i++)
            say(fixture, true, &key_one);
        events_flush(fixture->events);
        while (fast_next <= events_counters(fixture->events).blocks) {
            assert_true(receive(fast, &message, 0));
            assert_int_equal(message.number, fast_next);
            fast_next += json_array_size(json_object_get(message.json, "events"));
            json_decref(message.json);
        }
    }
    assert_true(events_counters(fixture->events).overflows > 0);

    /* Until it has caught up: what comes now reaches it as soon as its queue has room. */
    for (int i = 0; i < 1000 && slow_next <= events_counters(fixture->events).blocks; i++) {
        while (receive(slow, &message, ZMQ_DONTWAIT)) {
            assert_true(message.number >= slow_next);
            slow_lost += message.number - slow_next;
            slow_next = message.number + json_array_size(json_object_get(message.json, "events"));
            json_decref(message.json);
        }
        if (slow_next <= events_counters(fixture->events).blocks) {
            say(fixture, false, &key_one);
            events_flush(fixture->events);
            wait_ms(5);
        }
    }
    assert_int_equal(slow_next, events_counters(fixture->events).blocks + 1);
    assert_true(slow_lost > 0);
    (void)zmq_close(slow);
    (void)zmq_close(fast);
}

static void the_socket_is_the_operators(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;

    assert_int_equal(stat(directory_name(&fixture->directory, "stats.sock"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

static void what_cannot_be_created_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct events *events = NULL;
    struct events_options options = options_of(fixture);

    options.socket_path = "/nowhere/at/all";
    assert_int_equal(events_create(&options, &events), -ENOENT);
    options.queue = 0;
    assert_int_equal(events_create(&options, &events), -EINVAL);
    options = options_of(fixture);
    (void)directory_write(&fixture->directory, "kept", "");
    options.socket_path = fixture->directory.file;
    assert_int_equal(events_create(&options, &events), -EEXIST);
    assert_int_equal(unlink(fixture->directory.file), 0);
    assert_null(events);
    events_destroy(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(changes_of_one_pass_come_in_one_message),
        TEST(a_stored_block_has_its_parent_and_tokens),
        TEST(snapshots_say_what_stats_json_says),
        TEST(nothing_is_written_for_nobody),
        TEST(a_full_batch_is_sent_at_once),
        TEST(a_slow_subscriber_loses_and_sees_it_and_blocks_nobody),
        TEST(the_socket_is_the_operators),
        TEST(what_cannot_be_created_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
