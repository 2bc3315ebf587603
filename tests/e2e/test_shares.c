/* tests/e2e/test_shares.c - no tenant, and nobody who says nothing, takes what others need. */
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two tenants: a quarter of everything is promised to each. */
enum { SEQUENCES = 64, SESSIONS = 8, PLANS = 32, WAITERS = 8 };

static const char token_b[] = "token-of-tenant-b-0123";
static struct daemon daemon_;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\nmax-sequences: 64\nmax-sessions: 8\n"
                           "max-tenant-sessions: 8\nmax-steps: 60\nmax-waiters: 8\nhello: 60s\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

static struct kvpool *engine_with_model(const char *token, uint32_t *out_model)
{
    struct kvpool *kvpool = engine_connect(&daemon_, token, 0);

    assert_non_null(kvpool);
    assert_int_equal(kvpool_register_model(kvpool, &small_model, out_model, NULL), 0);
    return kvpool;
}

/* How many sequences it gets before it is told LIMIT. */
static uint32_t allocate_all(struct kvpool *kvpool, uint32_t model)
{
    uint32_t tokens[16], count = 0;
    struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 16};
    int answer;

    tokens_make(tokens, 16, 5);
    do
        answer = kvpool_allocate(kvpool, ++count, &prompt, NULL, NULL);
    while (answer == 0);
    assert_int_equal(answer, KVPOOL_LIMIT);
    return count - 1;
}

static void a_tenant_leaves_sequences_to_others(void **state)
{
    uint32_t model_a, model_b;
    struct kvpool *a = engine_with_model(NULL, &model_a), *b = engine_with_model(token_b, &model_b);

    (void)state;
    assert_int_equal(allocate_all(a, model_a), 3 * SEQUENCES / 4);
    assert_int_equal(kvpool_fork(a, 1, 100), KVPOOL_LIMIT);
    assert_int_equal(allocate_all(b, model_b), SEQUENCES / 4);
    assert_int_equal(kvpool_release(b, 1), 0);
    assert_int_equal(kvpool_fork(a, 1, 100), KVPOOL_LIMIT); /* it is b's */
    assert_int_equal(kvpool_fork(b, 2, 100), 0);
    assert_int_equal(kvpool_release(a, 1), 0);
    assert_int_equal(kvpool_fork(a, 2, 100), 0);
    kvpool_disconnect(b);
    kvpool_disconnect(a);
    stat_await(&daemon_, "pool_sequences", 0, 5000);
    a = engine_with_model(NULL, &model_a); /* all of it came back */
    assert_int_equal(allocate_all(a, model_a), 3 * SEQUENCES / 4);
    kvpool_disconnect(a);
    stat_await(&daemon_, "pool_sequences", 0, 5000);
}

/* Steps of one sequence each, which are planned and stay open. */
static uint32_t step_all(struct kvpool *kvpool, uint32_t num_sequences)
{
    const uint32_t token = 9;
    uint32_t count = 0;
    int answer = 0;

    while (answer == 0 && count < num_sequences) {
        const struct kvpool_row row = {.sequence = ++count, .tokens = &token, .num_tokens = 1};
        const struct kvpool_request step = {.verb = KVPOOL_STEP, .rows = &row, .num_rows = 1};
        answer = kvpool_call(kvpool, &step, NULL);
    }
    assert_int_equal(answer, KVPOOL_LIMIT);
    return count - 1;
}

static void a_tenant_leaves_plans_of_steps_to_others(void **state)
{
    uint32_t model_a, model_b;
    struct kvpool *a = engine_with_model(NULL, &model_a), *b = engine_with_model(token_b, &model_b);

    (void)state;
    uint32_t num_a = allocate_all(a, model_a), num_b = allocate_all(b, model_b);
    assert_int_equal(step_all(a, num_a), 3 * PLANS / 4);
    assert_int_equal(step_all(b, num_b), PLANS / 4);
    kvpool_disconnect(a);
    stat_await(&daemon_, "pool_sequences", num_b, 5000);
    a = engine_with_model(NULL, &model_a);
    assert_int_equal(step_all(a, allocate_all(a, model_a)), 3 * PLANS / 4);
    kvpool_disconnect(a);
    kvpool_disconnect(b);
    stat_await(&daemon_, "pool_sequences", 0, 5000);
}

/* How many of its requests wait for a fill before it is told LIMIT. */
static uint32_t wait_all(struct kvpool *filler, struct kvpool *kvpool, uint32_t model)
{
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    uint32_t tokens[64], count = 0;
    struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 64};
    const struct kvpool_request wait = {
        .verb = KVPOOL_WAIT_ARRIVING, .prompt = &prompt, .deadline_ms = 60000};
    struct kvpool_result result = {0};
    uint64_t ticket;

    tokens_make(tokens, 64, 8);
    assert_int_equal(kvpool_allocate(filler, 1, &prompt, &unfilled, NULL), 0);
    while (kvpool_submit(kvpool, &wait, &ticket) == 0 && kvpool_poll(kvpool, 300, &result) != 0)
        count++;
    assert_int_equal(result.status, KVPOOL_LIMIT);
    return count;
}

static void a_tenant_leaves_waiting_to_others(void **state)
{
    uint32_t model_a, model_b, model;
    struct kvpool *a = engine_with_model(NULL, &model_a), *b = engine_with_model(token_b, &model_b);
    struct kvpool *fill_a = engine_with_model(NULL, &model);
    struct kvpool *fill_b = engine_with_model(token_b, &model);

    (void)state;
    assert_int_equal(wait_all(fill_a, a, model_a), 3 * WAITERS / 4);
    assert_int_equal(wait_all(fill_b, b, model_b), WAITERS / 4);
    kvpool_disconnect(a); /* its requests wait no more */
    stat_await(&daemon_, "pool_sessions", 3, 5000);
    a = engine_with_model(NULL, &model_a);
    kvpool_disconnect(fill_a);
    fill_a = engine_with_model(NULL, &model);
    assert_int_equal(wait_all(fill_a, a, model_a), 3 * WAITERS / 4);
    kvpool_disconnect(a);
    kvpool_disconnect(b);
    kvpool_disconnect(fill_a);
    kvpool_disconnect(fill_b);
    stat_await(&daemon_, "pool_sequences", 0, 5000);
}

static uint32_t connect_all(const char *token, struct kvpool **out)
{
    uint32_t count = 0;

    while (count <= SESSIONS && (out[count] = engine_connect(&daemon_, token, 0)) != NULL)
        count++;
    return count;
}

static void a_tenant_leaves_sessions_to_others(void **state)
{
    struct kvpool *a[SESSIONS + 1], *b[SESSIONS + 1];
    uint32_t num_a = connect_all(NULL, a), num_b = connect_all(token_b, b);

    (void)state;
    assert_int_equal(num_a, 3 * SESSIONS / 4);
    assert_int_equal(num_b, SESSIONS / 4);
    for (uint32_t at = 0; at < num_a; at++)
        kvpool_disconnect(a[at]);
    for (uint32_t at = 0; at < num_b; at++)
        kvpool_disconnect(b[at]);
}

/* They are dropped in the order in which they came, as others come. */
static void who_says_nothing_is_in_nobodys_way(void **state)
{
    enum { SILENT = 100 };
    int fds[SILENT];
    uint32_t num_open = 0;

    (void)state;
    for (uint32_t at = 0; at < SILENT; at++)
        fds[at] = raw_connect(&daemon_);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    assert_non_null(kvpool);
    for (uint32_t at = 0; at < SILENT; at++) {
        struct pollfd poller = {.fd = fds[at], .events = POLLIN};
        bool is_open = poll(&poller, 1, 0) == 0;
        assert_true(is_open == (at > SILENT - 16)); /* 16 of this user, with the engine's own */
        num_open += is_open;
        (void)close(fds[at]);
    }
    assert_int_equal(num_open, 15);
    assert_true(stat_read(&daemon_, "hellos_dropped") >= SILENT - 16);
    kvpool_disconnect(kvpool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_leaves_sequences_to_others),
        cmocka_unit_test(a_tenant_leaves_plans_of_steps_to_others),
        cmocka_unit_test(a_tenant_leaves_waiting_to_others),
        cmocka_unit_test(a_tenant_leaves_sessions_to_others),
        cmocka_unit_test(who_says_nothing_is_in_nobodys_way),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
