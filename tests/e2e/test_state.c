/* tests/e2e/test_state.c - what outlives the daemon: operators' domains, models, epochs of Clear.
 */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct daemon daemon_;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\nmax-models: 5\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

static int ask(const struct daemon *daemon, const struct kvpool_request *request)
{
    struct kvpool *operator= operator_connect(daemon);
    int answer = kvpool_call(operator, request, NULL);

    kvpool_disconnect(operator);
    return answer;
}

/* A list, in memory that stays until the next call. */
static const char *list(const struct daemon *daemon, const char *what)
{
    static char json[65536];
    const struct kvpool_request request = {
        .verb = KVPOOL_LIST, .what = what, .json = json, .json_max = sizeof(json)};

    assert_int_equal(ask(daemon, &request), 0);
    return json;
}

static uint64_t last_epoch(const struct daemon *daemon)
{
    const char *at = strstr(list(daemon, "status"), "\"last_epoch\":");

    assert_non_null(at);
    return strtoull(at + strlen("\"last_epoch\":"), NULL, 10);
}

static void kill_and_restart(struct daemon *daemon)
{
    assert_int_equal(daemon_stop(daemon, SIGKILL), 128 + SIGKILL);
    daemon_restart(daemon);
}

static int model_register(struct kvpool *kvpool, const char *name, uint32_t *out_model)
{
    struct kvpool_model model = small_model;

    model.name = name;
    return kvpool_register_model(kvpool, &model, out_model, NULL);
}

static int hit_tokens(const struct daemon *daemon, const char *domain, bool publish)
{
    uint32_t tokens[80];
    struct kvpool *kvpool = engine_connect(daemon, NULL, 0);
    struct kvpool_result result;
    struct kvpool_prompt prompt = {.tokens = tokens, .num_tokens = 80, .fill_domain = domain};

    tokens_make(tokens, 80, 7);
    assert_int_equal(model_register(kvpool, "small", &prompt.model), 0);
    int answer = kvpool_match(kvpool, &prompt, &result);
    if (publish) {
        assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
        assert_int_equal(kvpool_publish(kvpool, 1), 0);
    }
    kvpool_disconnect(kvpool);
    return answer ? -answer : (int)result.matched;
}

static void a_domain_made_by_an_operator_is_there_after_a_crash(void **state)
{
    static const char *const fillers[] = {"a", NULL}, *const readers[] = {"b", NULL};
    const struct kvpool_request create = {
        .verb = KVPOOL_CREATE_DOMAIN,
        .domain = "commons",
        .readers = readers,
        .fillers = fillers,
        .quota = {.has_limit = true, .limit_bytes = 1 << 20, .weight = 3}};

    assert_int_equal(hit_tokens(*state, "commons", false), -KVPOOL_NOT_FOUND);
    assert_int_equal(ask(*state, &create), 0);
    kill_and_restart(*state);
    assert_int_equal(ask(*state, &create), KVPOOL_EXISTS);
    assert_non_null(strstr(list(*state, "domains"), "\"name\":\"commons\""));
    assert_non_null(strstr(list(*state, "domains"), "\"limit_bytes\":1048576"));
    assert_non_null(strstr(list(*state, "domains"), "\"weight\":3"));
    assert_int_equal(hit_tokens(*state, "commons", true), 0);
    assert_int_equal(hit_tokens(*state, "commons", true), 64);
    const struct kvpool_request quota = {
        .verb = KVPOOL_SET_QUOTA, .domain = "commons", .quota = {.weight = 5}};
    assert_int_equal(ask(*state, &quota), 0);
    stat_await(*state, "state_unwritten", 0, 5000);
    kill_and_restart(*state);
    assert_non_null(strstr(list(*state, "domains"), "\"weight\":5,\"limit_bytes\":null"));
    kill_and_restart(*state); /* and again: it is kept, not only read */
    assert_int_equal(ask(*state, &create), KVPOOL_EXISTS);
}

static void models_keep_their_numbers(void **state)
{
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    uint32_t model;
    char before[4096];

    assert_int_equal(model_register(kvpool, "another", &model), 0);
    kvpool_disconnect(kvpool);
    stat_await(*state, "state_unwritten", 0, 5000);
    (void)snprintf(before, sizeof(before), "%s", list(*state, "models"));
    assert_non_null(strstr(before, "\"another\""));
    kill_and_restart(*state);
    assert_string_equal(list(*state, "models"), before);
    kvpool = engine_connect(*state, NULL, 0);
    assert_int_equal(model_register(kvpool, "another", &model), 0);
    kvpool_disconnect(kvpool);
    assert_string_equal(list(*state, "models"), before);
}

static int register_as(const char *token, const char *name)
{
    struct kvpool *kvpool = engine_connect(&daemon_, token, 0);
    uint32_t model;
    int answer = model_register(kvpool, name, &model);

    kvpool_disconnect(kvpool);
    return answer;
}

/* What is kept leaves a quarter for new ones: here one of 5. */
static void kept_models_leave_room_for_new_ones(void **state)
{
    static const char b[] = "token-of-tenant-b-0123";

    assert_int_equal(register_as(NULL, "third"), 0);
    assert_int_equal(register_as(NULL, "fourth"), 0);
    assert_int_equal(register_as(NULL, "fifth"), KVPOOL_LIMIT); /* the last one is b's part */
    assert_int_equal(register_as(b, "of b"), 0);
    assert_int_equal(register_as(b, "of b too"), KVPOOL_LIMIT);
    stat_await(*state, "state_unwritten", 0, 5000);
    kill_and_restart(*state);
    assert_int_equal(register_as(b, "of b too"), 0);
    assert_non_null(strstr(list(*state, "models"), "\"name\":\"of b too\",\"model\":4"));
}

/* Its number is on the disk before its answer is here. */
/* What is stored of a model is lost if the next daemon has never heard of it. */
static void a_model_is_known_once_it_is_answered(void **state)
{
    (void)state;
    for (int time = 0; time < 3; time++) {
        struct daemon other;
        uint32_t model;
        daemon_start(&other, "pool-bytes: 16MiB\n");
        struct kvpool *kvpool = engine_connect(&other, NULL, 0);
        assert_int_equal(model_register(kvpool, "sudden", &model), 0);
        kill_and_restart(&other);
        kvpool_disconnect(kvpool);
        assert_non_null(strstr(list(&other, "models"), "sudden"));
        daemon_finish(&other);
    }
}

static void a_clear_is_of_an_epoch_that_lasts(void **state)
{
    const struct kvpool_request all = {.verb = KVPOOL_CLEAR},
                                one = {.verb = KVPOOL_CLEAR, .domain = "a", .model_name = "small"};
    uint64_t first = last_epoch(*state);

    assert_int_equal(hit_tokens(*state, NULL, true), 0);
    assert_int_equal(hit_tokens(*state, NULL, false), 64);
    assert_int_equal(ask(*state, &one), 0);
    assert_int_equal(hit_tokens(*state, NULL, true), 0);
    uint64_t second = last_epoch(*state);
    assert_true(second > first);
    kill_and_restart(*state);
    assert_int_equal(last_epoch(*state), second);
    assert_int_equal(ask(*state, &all), 0);
    kill_and_restart(*state);
    assert_true(last_epoch(*state) > second);
}

/* Nothing is changed by what cannot be made durable. */
static void a_clear_that_cannot_be_kept_is_refused(void **state)
{
    const struct kvpool_request all = {.verb = KVPOOL_CLEAR};
    const struct kvpool_request create = {.verb = KVPOOL_CREATE_DOMAIN, .domain = "lost"};
    char epochs[128], domains[128];

    (void)snprintf(epochs, sizeof(epochs), "%s/state/.epochs.new", daemon_.dir);
    (void)snprintf(domains, sizeof(domains), "%s/state/.domains.new", daemon_.dir);
    assert_int_equal(mkdir(epochs, 0700), 0); /* in the way of what is written aside */
    assert_int_equal(mkdir(domains, 0700), 0);
    uint64_t before = last_epoch(*state);
    (void)hit_tokens(*state, NULL, true);
    assert_int_equal(hit_tokens(*state, NULL, false), 64);
    assert_int_equal(ask(*state, &all), KVPOOL_FAILED);
    assert_int_equal(hit_tokens(*state, NULL, false), 64);
    assert_int_equal(last_epoch(*state), before);
    assert_int_equal(ask(*state, &create), KVPOOL_FAILED);
    const struct kvpool_request quota = {
        .verb = KVPOOL_SET_QUOTA, .domain = "commons", .quota = {.weight = 2}};
    assert_int_equal(ask(*state, &quota), 0); /* it is written behind */
    uint64_t tries = stat_read(*state, "state_writes");
    (void)usleep(1500000);
    assert_in_range(stat_read(*state, "state_writes") - tries, 0, 4); /* not without end */
    assert_null(strstr(list(*state, "domains"), "lost"));
    assert_int_equal(rmdir(epochs), 0);
    assert_int_equal(rmdir(domains), 0);
    assert_int_equal(ask(*state, &all), 0);
    assert_int_equal(hit_tokens(*state, NULL, false), 0);
    assert_int_equal(ask(*state, &create), 0);
}

/* It starts, and what was written under epochs of before is of none any more. */
static void a_damaged_file_is_set_aside(void **state)
{
    static const char *const names[] = {"epochs", "domains", "models"};
    uint64_t before = last_epoch(*state);
    char path[128];

    assert_int_equal(daemon_stop(*state, SIGTERM), 0);
    for (size_t at = 0; at < ARRAY_SIZE(names); at++) {
        (void)snprintf(path, sizeof(path), "%s/state/%s", daemon_.dir, names[at]);
        assert_int_equal(truncate(path, 50), 0);
    }
    daemon_restart(*state);
    assert_true(last_epoch(*state) > before);
    assert_string_equal(list(*state, "models"), "[]");
    assert_null(strstr(list(*state, "domains"), "commons"));
    for (size_t at = 0; at < ARRAY_SIZE(names); at++) {
        (void)snprintf(path, sizeof(path), "%s/state/%s.damaged", daemon_.dir, names[at]);
        assert_int_equal(access(path, F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_domain_made_by_an_operator_is_there_after_a_crash),
        cmocka_unit_test(models_keep_their_numbers),
        cmocka_unit_test(a_model_is_known_once_it_is_answered),
        cmocka_unit_test(a_clear_is_of_an_epoch_that_lasts),
        cmocka_unit_test(a_clear_that_cannot_be_kept_is_refused),
        cmocka_unit_test(kept_models_leave_room_for_new_ones),
        cmocka_unit_test(a_damaged_file_is_set_aside),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
