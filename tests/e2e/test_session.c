/* tests/e2e/test_session.c - a daemon and its engines, as processes. */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct daemon daemon_;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

static uint32_t model_of(struct kvpool *kvpool)
{
    uint32_t model = UINT32_MAX;
    int answer = kvpool_register_model(kvpool, &small_model, &model, NULL);

    if (answer)
        print_error("register: %s: %s\n", kvpool_status_name(answer), kvpool_message(kvpool));
    assert_int_equal(answer, 0);
    return model;
}

static void an_engine_allocates_publishes_forks_and_releases(void **state)
{
    uint32_t tokens[100], slots[16], generations[16];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    assert_non_null(kvpool);
    struct kvpool_result result;
    struct kvpool_table table = {.slots = slots, .generations = generations, .max = 16};
    const struct kvpool_allocate_options options = {.tables = &table, .num_tables = 1};

    tokens_make(tokens, 100, 1);
    const struct kvpool_prompt prompt = {
        .model = model_of(kvpool), .tokens = tokens, .num_tokens = 100};
    assert_int_equal(kvpool_allocate(kvpool, 7, &prompt, &options, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(result.length, 100);
    assert_int_equal(table.num, 7);
    assert_int_equal(kvpool_allocate(kvpool, 7, &prompt, NULL, NULL), KVPOOL_EXISTS);
    assert_int_equal(kvpool_publish(kvpool, 7), 0);
    assert_int_equal(kvpool_fork(kvpool, 7, 8), 0);
    assert_int_equal(kvpool_append(kvpool, 8, tokens, 30, &result), 0);
    assert_int_equal(result.length, 130);
    assert_int_equal(kvpool_truncate(kvpool, 8, 99), 0);
    assert_int_equal(kvpool_release(kvpool, 7), 0);
    assert_int_equal(kvpool_release(kvpool, 7), KVPOOL_NOT_FOUND);
    assert_int_equal(kvpool_allocate(kvpool, 9, &prompt, NULL, &result), 0);
    assert_int_equal(result.matched, 96);
    assert_int_equal(kvpool_preempt(kvpool, 9), 0);
    assert_int_equal(kvpool_resume(kvpool, 9, NULL, &result), 0);
    assert_int_equal(result.matched, 96);
    assert_int_equal(result.length, 100);
    kvpool_disconnect(kvpool);
    stat_await(*state, "sequences", 0, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_engine_allocates_publishes_forks_and_releases, start,
                                        finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
