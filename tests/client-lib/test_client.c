/* tests/client-lib/test_client.c - what client-lib/kvpool.h promises, against a daemon that
 * misbehaves. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client-lib/kvpool.h"
#include "tests/client-lib/fake_daemon.h"
#include "tests/support/test.h"

static char dir[] = "/tmp/kvpool-test-XXXXXX";
static const uint32_t tokens[] = {1, 2, 3, 4, 5};

struct fixture {
    struct fake_daemon *fake;
    struct kvpool *kvpool;
    uint32_t model;
};

static const struct kvpool_options quick = {
    .struct_bytes = sizeof(quick), .dir = dir, .connect_ms = 2000, .deadline_ms = 5000};
static const uint16_t layers[] = {0, 1};
static const struct kvpool_layer_group groups[] = {{0, layers, 2}};
static const struct kvpool_model model = {.name = "test",
                                          .weights_revision = "1",
                                          .num_layers = 2,
                                          .groups = groups,
                                          .num_groups = 1,
                                          .num_q_heads = 2,
                                          .num_kv_heads = 1,
                                          .k_head_dim = 8,
                                          .v_head_dim = 8,
                                          .dtype = KVPOOL_F32};
static const struct kvpool_prompt prompt = {.tokens = tokens, .num_tokens = 5};

static int fixture_begin(void **state)
{
    static struct fixture fixture;
    struct kvpool_model_shape shape;

    fixture.fake = fake_daemon_start(&(struct fake_options){.dir = dir, .boot = 1});
    assert_int_equal(kvpool_connect(&quick, &fixture.kvpool), 0);
    assert_int_equal(kvpool_register_model(fixture.kvpool, &model, &fixture.model, &shape), 0);
    assert_int_equal(shape.num_groups, 1);
    assert_int_equal(shape.block_bytes[0], 1024);
    *state = &fixture;
    return 0;
}

static int fixture_end(void **state)
{
    struct fixture *fixture = *state;
    kvpool_disconnect(fixture->kvpool);
    fake_daemon_stop(fixture->fake);
    return 0;
}

/* ---- connecting ---- */

static void nobody_there_is_said_after_a_while(void **state)
{
    (void)state;
    char message[KVPOOL_MAX_MESSAGE] = "";
    struct kvpool *kvpool = NULL;
    struct kvpool_options options = quick;
    options.connect_ms = 60;
    options.out_message = message;
    assert_int_equal(kvpool_connect(&options, &kvpool), -ENOENT);
    assert_null(kvpool);
    assert_non_null(strstr(message, dir));
    assert_int_equal(kvpool_connect_operator(&options, &kvpool), -ENOENT);
    options.struct_bytes = 0;
    assert_int_equal(kvpool_connect(&options, &kvpool), -EINVAL);
}

static struct fake_daemon *started_late;

static void *start_late(void *unused)
{
    (void)unused;
    usleep(100000);
    started_late = fake_daemon_start(&(struct fake_options){.dir = dir});
    return NULL;
}

static void a_daemon_that_comes_late_is_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    struct kvpool *kvpool;
    assert_int_equal(pthread_create(&thread, NULL, start_late, NULL), 0);
    assert_int_equal(kvpool_connect(&quick, &kvpool), 0);
    pthread_join(thread, NULL);
    assert_int_equal(kvpool_session(kvpool), 4711);
    kvpool_disconnect(kvpool);
    fake_daemon_stop(started_late);
}

static void a_refusal_says_why(void **state)
{
    (void)state;
    char message[KVPOOL_MAX_MESSAGE];
    struct kvpool *kvpool;
    struct kvpool_options options = quick;
    options.out_message = message;
    struct fake_daemon *fake =
        fake_daemon_start(&(struct fake_options){.dir = dir, .refusal = KVPOOL_DENIED});
    assert_int_equal(kvpool_connect(&options, &kvpool), KVPOOL_DENIED);
    assert_string_equal(message, "this one speaks 1.0");
    fake_daemon_stop(fake);

    fake = fake_daemon_start(
        &(struct fake_options){.dir = dir, .refusal = KVPOOL_UNSUPPORTED, .refusal_major = 7});
    assert_int_equal(kvpool_connect(&options, &kvpool), KVPOOL_UNSUPPORTED);
    assert_string_equal(message, "this one speaks 7.0");
    fake_daemon_stop(fake);
}

static void a_welcome_without_descriptors_is_no_welcome(void **state)
{
    (void)state;
    struct kvpool *kvpool;
    struct fake_daemon *fake =
        fake_daemon_start(&(struct fake_options){.dir = dir, .no_fds = true});
    assert_int_equal(kvpool_connect(&quick, &kvpool), -EPROTO);
    fake_daemon_stop(fake);
}

/* ---- verbs ---- */

static void each_verb_brings_its_result(void **state)
{
    struct fixture *f = *state;
    struct kvpool_result result;
    uint32_t slots[2], generations[8];
    struct kvpool_table table = {slots, generations, 2, 0, 0};
    struct kvpool_allocate_options options = {.tables = &table, .num_tables = 1};

    assert_int_equal(kvpool_match(f->kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, 4);
    assert_int_equal(result.arriving, 40); /* the daemon's handle, not ours */
    assert_int_equal(kvpool_allocate(f->kvpool, 12, &prompt, &options, &result), 0);
    assert_int_equal(result.length, 12);
    assert_int_equal(table.num, 3); /* of which two had room */
    assert_int_equal(table.num_shared, 1);
    assert_int_equal(slots[1], 2);
    assert_int_equal(generations[1], 8);
    assert_int_equal(kvpool_append(f->kvpool, 12, tokens, 3, &result), 0);
    assert_int_equal(result.length, 3);
    assert_int_equal(kvpool_fork(f->kvpool, 12, 13), 0);
    assert_int_equal(kvpool_release(f->kvpool, 404), KVPOOL_NOT_FOUND);
    assert_string_equal(kvpool_message(f->kvpool), "there is no sequence 404");
    assert_int_equal(kvpool_release(f->kvpool, 12), 0);
    assert_string_equal(kvpool_message(f->kvpool), "");
    assert_int_equal(kvpool_num_outstanding(f->kvpool), 0);
}

static void bad_arguments_send_nothing(void **state)
{
    struct fixture *f = *state;
    uint32_t seen = fake_daemon_num_requests(f->fake);
    struct kvpool_prompt other = prompt;
    other.model = 1;
    assert_int_equal(kvpool_match(f->kvpool, &other, NULL), -EINVAL);
    assert_int_equal(kvpool_match(f->kvpool, NULL, NULL), -EINVAL);
    char name[1000];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    other = prompt;
    other.adapter = name;
    assert_int_equal(kvpool_match(f->kvpool, &other, NULL), -EMSGSIZE);
    assert_int_equal(kvpool_step(f->kvpool, NULL, 1, NULL), -EINVAL);
    assert_int_equal(kvpool_attend(f->kvpool, NULL), -EINVAL);
    assert_int_equal(kvpool_call(f->kvpool, &(struct kvpool_request){.verb = 0}, NULL), -EINVAL);
    assert_int_equal(kvpool_wait(f->kvpool, 99, NULL), -ENOENT);
    assert_int_equal(kvpool_num_outstanding(f->kvpool), 0);
    assert_int_equal(fake_daemon_num_requests(f->fake), seen);
}

static void blocks_travel_in_frames_or_staging(void **state)
{
    struct fixture *f = *state;
    unsigned char data[2048] = {0};
    struct kvpool_blocks blocks = {
        .sequence = 1, .num_blocks = 2, .data = data, .data_bytes = sizeof(data)};
    assert_int_equal(kvpool_write(f->kvpool, &blocks), 0);
    assert_int_equal(kvpool_read(f->kvpool, &blocks), 0);
    for (size_t i = 0; i < sizeof(data); i++)
        assert_int_equal(data[i], 0x5a);
    blocks.data_bytes = 1024; /* what comes does not fit */
    assert_int_equal(kvpool_read(f->kvpool, &blocks), -EMSGSIZE);
    blocks.data_bytes = 1023;
    assert_int_equal(kvpool_read(f->kvpool, &blocks), -EINVAL);
}

static void more_than_a_frame_is_not_sent(void **state)
{
    struct fixture *f = *state;
    uint32_t seen = fake_daemon_num_requests(f->fake);
    size_t most = (size_t)4 << 20;
    unsigned char *data = calloc(1, most + 1);
    struct kvpool_blocks blocks = {
        .sequence = 1, .num_blocks = 1, .data = data, .data_bytes = most + 1};

    assert_non_null(data);
    assert_int_equal(kvpool_write(f->kvpool, &blocks), -EMSGSIZE);
    assert_int_equal(fake_daemon_num_requests(f->fake), seen);
    blocks.data_bytes = most;
    assert_int_equal(kvpool_write(f->kvpool, &blocks), 0);
    free(data);
}

static void an_arena_is_mapped(void **state)
{
    struct fixture *f = *state;
    struct kvpool_arena arena;
    assert_int_equal(kvpool_open_arena(f->kvpool, f->model, 0, NULL, &arena), 0);
    assert_int_equal(arena.stride_bytes, 4096);
    assert_true(arena.is_writable);
    assert_memory_equal(arena.base, "slot", 4);
    kvpool_close_arena(&arena);
    kvpool_close_arena(&arena);
}

static void json_fits_or_says_how_much_it_is(void **state)
{
    struct fixture *f = *state;
    char json[4096];
    struct kvpool_result result;
    assert_int_equal(kvpool_stats(f->kvpool, json, sizeof(json)), 0);
    assert_non_null(strstr(json, "fake"));
    struct kvpool_request request = {.verb = KVPOOL_STATS, .json = json, .json_max = 10};
    assert_int_equal(kvpool_call(f->kvpool, &request, &result), -EMSGSIZE);
    assert_int_equal(result.num_bytes, strlen(json));
}

static void an_operator_needs_no_session(void **state)
{
    struct fixture *f = *state;
    (void)f;
    struct kvpool *operator;
    char json[4096];
    assert_int_equal(kvpool_connect_operator(&quick, &operator), 0);
    struct kvpool_request request = {
        .verb = KVPOOL_LIST, .what = "tenants", .json = json, .json_max = sizeof(json)};
    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    const char *names[] = {"a", "b", NULL};
    request = (struct kvpool_request){
        .verb = KVPOOL_CREATE_DOMAIN, .domain = "docs", .readers = names, .fillers = names};
    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    assert_int_equal(kvpool_call(operator, &(struct kvpool_request){.verb = KVPOOL_KICK}, NULL), 0);
    assert_int_equal(kvpool_session(operator), 0);
    kvpool_disconnect(operator);
}

/* ---- pipelined ---- */

static void many_requests_go_in_one_message(void **state)
{
    struct fixture *f = *state;
    uint64_t tickets[100];
    uint32_t messages = fake_daemon_num_messages(f->fake);
    for (uint64_t i = 0; i < 100; i++) {
        struct kvpool_request request = {.verb = KVPOOL_ALLOCATE, .sequence = i, .prompt = &prompt};
        assert_int_equal(kvpool_submit(f->kvpool, &request, &tickets[i]), 0);
    }
    assert_int_equal(kvpool_num_outstanding(f->kvpool), 100);
    for (uint64_t i = 0; i < 100; i++) {
        struct kvpool_result result;
        assert_int_equal(kvpool_wait(f->kvpool, tickets[i], &result), 0);
        assert_int_equal(result.length, i);
        assert_int_equal(kvpool_wait(f->kvpool, tickets[i], &result), -ENOENT);
    }
    assert_int_equal(fake_daemon_num_messages(f->fake), messages + 1);
}

static void replies_may_come_in_any_order(void **state)
{
    struct fixture *f = *state;
    uint64_t tickets[50];
    bool seen[50] = {false};
    fake_daemon_set_mood(f->fake, FAKE_REVERSES);
    for (uint64_t i = 0; i < 50; i++) {
        struct kvpool_request request = {.verb = KVPOOL_ALLOCATE, .sequence = i, .prompt = &prompt};
        assert_int_equal(kvpool_submit(f->kvpool, &request, &tickets[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        struct kvpool_result result;
        assert_int_equal(kvpool_poll(f->kvpool, 5000, &result), 0);
        assert_int_equal(result.status, 0);
        assert_int_equal(result.ticket, tickets[result.length]);
        assert_false(seen[result.length]);
        seen[result.length] = true;
    }
    struct kvpool_result none;
    assert_int_equal(kvpool_poll(f->kvpool, 0, &none), -ENOENT);
}

static void no_more_than_the_table_holds_are_outstanding(void **state)
{
    struct fixture *f = *state;
    struct kvpool_result result;
    uint64_t ticket;
    struct kvpool_request request = {.verb = KVPOOL_RELEASE, .sequence = 1};
    for (int i = 0; i < KVPOOL_MAX_OUTSTANDING; i++)
        assert_int_equal(kvpool_submit(f->kvpool, &request, &ticket), 0);
    assert_int_equal(kvpool_submit(f->kvpool, &request, &ticket), -EAGAIN);
    assert_int_equal(kvpool_poll(f->kvpool, 5000, &result), 0);
    assert_int_equal(kvpool_submit(f->kvpool, &request, &ticket), 0);
    while (kvpool_poll(f->kvpool, 5000, &result) == 0)
        assert_int_equal(result.status, 0);
    assert_int_equal(kvpool_num_outstanding(f->kvpool), 0);
}

static void a_reply_to_nobody_is_dropped(void **state)
{
    struct fixture *f = *state;
    fake_daemon_set_mood(f->fake, FAKE_ANSWERS_TWICE);
    unsigned char data[1024];
    struct kvpool_blocks blocks = {.num_blocks = 1, .data = data, .data_bytes = sizeof(data)};
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kvpool_release(f->kvpool, 1), 0);
        assert_int_equal(kvpool_read(f->kvpool, &blocks), 0);
    }
}

/* ---- rings ---- */

static void steps_take_the_rings(void **state)
{
    struct fixture *f = *state;
    uint64_t step, offset, num_bytes;
    struct kvpool_row rows[] = {{1, tokens, 2}, {2, tokens, 3}};
    assert_non_null(kvpool_staging(f->kvpool, &num_bytes));
    assert_int_equal(kvpool_staging_take(f->kvpool, 100, &offset), 0);
    assert_int_equal(kvpool_staging_take(f->kvpool, 100, &offset), 0);
    assert_int_equal(offset, 128);
    assert_int_equal(kvpool_staging_take(f->kvpool, num_bytes, &offset), -ENOMEM);
    kvpool_staging_reset(f->kvpool);
    assert_int_equal(kvpool_staging_take(f->kvpool, num_bytes, &offset), 0);

    for (int i = 0; i < 600; i++) { /* round the ring and again */
        assert_int_equal(kvpool_step(f->kvpool, rows, 2, &step), 0);
        assert_int_equal(step, 77);
        struct kvpool_attend attend = {.step = step, .layer = 1, .dtype = KVPOOL_F32};
        assert_int_equal(kvpool_attend(f->kvpool, &attend), 0);
        assert_int_equal(kvpool_end_step(f->kvpool, step, true), 0);
    }
    assert_int_equal(kvpool_end_step(f->kvpool, 404, false), KVPOOL_NOT_FOUND);
    assert_int_equal(fake_daemon_num_on_ring(f->fake), 1801);

    static uint32_t many[20000]; /* too large for the corner: by message */
    rows[0] = (struct kvpool_row){1, many, 20000};
    assert_int_equal(kvpool_step(f->kvpool, rows, 1, &step), 0);
    assert_int_equal(step, 66);
}

static void rings_are_pipelined_too(void **state)
{
    struct fixture *f = *state;
    struct kvpool_result result;
    uint64_t ticket;
    struct kvpool_row row = {1, tokens, 2};
    struct kvpool_request step = {
        .verb = KVPOOL_STEP, .rows = &row, .num_rows = 1, .via_ring = true};
    struct kvpool_request release = {.verb = KVPOOL_RELEASE, .sequence = 404, .via_ring = true};
    assert_int_equal(kvpool_submit(f->kvpool, &step, &ticket), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(kvpool_submit(f->kvpool, &release, &ticket), 0);
    uint32_t num_found = 0;
    while (kvpool_poll(f->kvpool, 5000, &result) == 0)
        num_found += result.status != KVPOOL_NOT_FOUND;
    assert_int_equal(num_found, 1);
    release.verb = KVPOOL_PREEMPT;
    assert_int_equal(kvpool_submit(f->kvpool, &release, &ticket), -EINVAL);
    assert_int_equal(kvpool_num_outstanding(f->kvpool), 0);
}

/* ---- trouble ---- */

static void silence_is_a_timeout_and_late_replies_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct kvpool_result result;
    fake_daemon_set_mood(f->fake, FAKE_SILENT);
    struct kvpool_request request = {.verb = KVPOOL_RELEASE, .deadline_ms = 1};
    assert_int_equal(kvpool_call(f->kvpool, &request, &result), KVPOOL_TIMEOUT);
    assert_true(kvpool_is_connected(f->kvpool));
    uint64_t ticket;
    assert_int_equal(kvpool_submit(f->kvpool, &request, &ticket), 0);
    assert_int_equal(kvpool_poll(f->kvpool, 10, &result), -EAGAIN);
    request.verb = KVPOOL_END_STEP;
    request.via_ring = true;
    assert_int_equal(kvpool_call(f->kvpool, &request, &result), KVPOOL_TIMEOUT);
    fake_daemon_set_mood(f->fake, FAKE_ANSWERS); /* now it completes what the ring has */
    assert_int_equal(kvpool_end_step(f->kvpool, 1, false), 0);
    assert_int_equal(kvpool_release(f->kvpool, 1), 0);
    assert_int_equal(kvpool_wait(f->kvpool, ticket, &result), KVPOOL_TIMEOUT);
}

static void a_refused_message_resolves_what_was_sent(void **state)
{
    struct fixture *f = *state;
    fake_daemon_set_mood(f->fake, FAKE_REFUSES_ALL);
    assert_int_equal(kvpool_release(f->kvpool, 1), KVPOOL_MALFORMED);
    fake_daemon_set_mood(f->fake, FAKE_ANSWERS);
    assert_int_equal(kvpool_release(f->kvpool, 1), 0);
}

static void what_is_no_reply_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    fake_daemon_set_mood(f->fake, FAKE_GARBAGE);
    assert_int_equal(kvpool_release(f->kvpool, 1), KVPOOL_DISCONNECTED);
    fake_daemon_set_mood(f->fake, FAKE_ANSWERS);
    assert_int_equal(kvpool_release(f->kvpool, 1), KVPOOL_DISCONNECTED);
    assert_int_equal(kvpool_reconnect(f->kvpool), 0);
    fake_daemon_set_mood(f->fake, FAKE_OVERSIZE);
    assert_int_equal(kvpool_release(f->kvpool, 1), KVPOOL_DISCONNECTED);
    fake_daemon_set_mood(f->fake, FAKE_ANSWERS);
    assert_int_equal(kvpool_reconnect(f->kvpool), 0);
    assert_int_equal(kvpool_release(f->kvpool, 1), 0);
}

static void a_dying_daemon_resolves_everything_and_is_found_again(void **state)
{
    struct fixture *f = *state;
    struct kvpool_result result;
    uint64_t ticket;
    fake_daemon_set_mood(f->fake, FAKE_DIES);
    struct kvpool_request request = {.verb = KVPOOL_RELEASE};
    for (int i = 0; i < 30; i++)
        assert_int_equal(kvpool_submit(f->kvpool, &request, &ticket), 0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(kvpool_poll(f->kvpool, 5000, &result), 0);
        assert_int_equal(result.status, KVPOOL_DISCONNECTED);
    }
    assert_int_equal(kvpool_match(f->kvpool, &prompt, NULL), KVPOOL_DISCONNECTED);
    assert_false(kvpool_is_connected(f->kvpool));

    fake_daemon_stop(f->fake);
    f->fake = fake_daemon_start(&(struct fake_options){.dir = dir, .boot = 2});
    assert_int_equal(kvpool_reconnect(f->kvpool), 0);
    assert_int_equal(fake_daemon_num_models(f->fake), 1);
    assert_int_equal(kvpool_match(f->kvpool, &prompt, &result), 0);
    assert_int_equal(result.arriving, 40);
}

static void a_reconnect_needs_no_loss(void **state)
{
    struct fixture *f = *state;
    uint32_t again, models = fake_daemon_num_models(f->fake);
    assert_int_equal(kvpool_register_model(f->kvpool, &model, &again, NULL), 0);
    assert_int_equal(again, f->model);
    for (int i = 0; i < 5; i++)
        assert_int_equal(kvpool_reconnect(f->kvpool), 0);
    assert_int_equal(fake_daemon_num_models(f->fake), models + 6);
    assert_int_equal(kvpool_release(f->kvpool, 1), 0);
}

static void statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(kvpool_status_name(KVPOOL_NO_BLOCKS), "NO_BLOCKS");
    assert_string_equal(kvpool_status_name(-EINVAL), "EINVAL");
    assert_string_equal(kvpool_status_name(9999), "UNKNOWN");
    assert_string_equal(kvpool_status_name(-9999), "UNKNOWN");
    assert_true(kvpool_status_may_retry(KVPOOL_BUSY));
    assert_false(kvpool_status_may_retry(-EAGAIN));
}

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, fixture_begin, fixture_end)

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(nobody_there_is_said_after_a_while),
        cmocka_unit_test(a_daemon_that_comes_late_is_waited_for),
        cmocka_unit_test(a_refusal_says_why),
        cmocka_unit_test(a_welcome_without_descriptors_is_no_welcome),
        WITH_DAEMON(each_verb_brings_its_result),
        WITH_DAEMON(bad_arguments_send_nothing),
        WITH_DAEMON(blocks_travel_in_frames_or_staging),
        WITH_DAEMON(more_than_a_frame_is_not_sent),
        WITH_DAEMON(an_arena_is_mapped),
        WITH_DAEMON(json_fits_or_says_how_much_it_is),
        WITH_DAEMON(an_operator_needs_no_session),
        WITH_DAEMON(many_requests_go_in_one_message),
        WITH_DAEMON(replies_may_come_in_any_order),
        WITH_DAEMON(no_more_than_the_table_holds_are_outstanding),
        WITH_DAEMON(a_reply_to_nobody_is_dropped),
        WITH_DAEMON(steps_take_the_rings),
        WITH_DAEMON(rings_are_pipelined_too),
        WITH_DAEMON(silence_is_a_timeout_and_late_replies_are_dropped),
        WITH_DAEMON(a_refused_message_resolves_what_was_sent),
        WITH_DAEMON(what_is_no_reply_ends_the_connection),
        WITH_DAEMON(a_dying_daemon_resolves_everything_and_is_found_again),
        WITH_DAEMON(a_reconnect_needs_no_loss),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(dir);
    return failed;
}
