/* tests/e2e/test_session.c - a daemon and its engines, as processes. */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    stat_await(*state, "pool_sequences", 0, 5000);
}

/* ---- sharing -------------------------------------------------------------------------------- */

static void a_second_engine_finds_what_the_first_published(void **state)
{
    uint32_t tokens[64];
    struct kvpool *one = engine_connect(*state, NULL, 0), *two = engine_connect(*state, NULL, 0);
    struct kvpool_result result;

    tokens_make(tokens, 64, 2);
    struct kvpool_prompt prompt = {.model = model_of(one), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(one, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(one, 1), 0);
    prompt.model = model_of(two);
    assert_int_equal(kvpool_match(two, &prompt, &result), 0);
    assert_int_equal(result.matched, 48); /* never the last token */
    prompt.raw = true;
    assert_int_equal(kvpool_match(two, &prompt, &result), 0);
    assert_int_equal(result.matched, 64);
    prompt.salt = "other";
    prompt.salt_bytes = 5;
    assert_int_equal(kvpool_match(two, &prompt, &result), 0);
    assert_int_equal(result.matched, 0);
    prompt.salt_bytes = 0;
    prompt.adapter = "lora";
    assert_int_equal(kvpool_match(two, &prompt, &result), 0);
    assert_int_equal(result.matched, 0);
    kvpool_disconnect(one);
    kvpool_disconnect(two);
}

static void another_tenant_finds_nothing(void **state)
{
    uint32_t tokens[64];
    struct kvpool *one = engine_connect(*state, NULL, 0);
    struct kvpool *other = engine_connect(*state, "token-of-tenant-b-0123", 0);
    struct kvpool_result result;

    assert_non_null(other);
    tokens_make(tokens, 64, 3);
    struct kvpool_prompt prompt = {.model = model_of(one), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(one, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(one, 1), 0);
    prompt.model = model_of(other);
    assert_int_equal(kvpool_match(other, &prompt, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(kvpool_release(other, 1), KVPOOL_NOT_FOUND);
    kvpool_disconnect(one);
    kvpool_disconnect(other);
}

static void a_shared_domain_is_read_by_its_readers_only(void **state)
{
    static const char *const readers[] = {"b", NULL}, *const fillers[] = {"a", NULL};
    uint32_t tokens[80];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *filler = engine_connect(*state, NULL, 0);
    struct kvpool *reader = engine_connect(*state, "token-of-tenant-b-0123", 0);
    struct kvpool_result result;
    const struct kvpool_request create = {
        .verb = KVPOOL_CREATE_DOMAIN, .domain = "commons", .readers = readers, .fillers = fillers};

    assert_int_equal(kvpool_call(operator, & create, &result), 0);
    assert_int_equal(kvpool_call(operator, & create, &result), KVPOOL_EXISTS);
    tokens_make(tokens, 80, 4);
    struct kvpool_prompt prompt = {
        .model = model_of(filler), .tokens = tokens, .num_tokens = 64, .fill_domain = "commons"};
    assert_int_equal(kvpool_allocate(filler, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(filler, 1), 0);
    prompt = (struct kvpool_prompt){
        .model = model_of(reader), .tokens = tokens, .num_tokens = 80, .shared_domain = "commons"};
    assert_int_equal(kvpool_allocate(reader, 1, &prompt, NULL, &result), 0);
    assert_int_equal(result.matched, 64);
    assert_int_equal(kvpool_preempt(reader, 1), 0);
    assert_int_equal(kvpool_resume(reader, 1, NULL, &result), 0);
    assert_int_equal(result.matched, 64);
    prompt.shared_domain = "nowhere";
    assert_int_equal(kvpool_match(reader, &prompt, &result), KVPOOL_NOT_FOUND);
    prompt = (struct kvpool_prompt){
        .model = model_of(reader), .tokens = tokens, .num_tokens = 64, .fill_domain = "commons"};
    assert_int_equal(kvpool_allocate(reader, 2, &prompt, NULL, &result), KVPOOL_NOT_FOUND);
    kvpool_disconnect(operator);
    kvpool_disconnect(filler);
    kvpool_disconnect(reader);
}

static void a_prompt_with_an_extra_has_other_blocks(void **state)
{
    uint32_t tokens[72];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_result result;
    struct kvpool_extra extras[] = {{.block = 1, .bytes = "image", .num_bytes = 5},
                                    {.block = 4, .bytes = "tail", .num_bytes = 4}};

    tokens_make(tokens, 72, 5);
    struct kvpool_prompt prompt = {.model = model_of(kvpool),
                                   .tokens = tokens,
                                   .num_tokens = 72,
                                   .extras = extras,
                                   .num_extras = 2};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_append(kvpool, 1, tokens, 8, NULL), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    /* The tail became full by the append: its key has its extra. */
    uint32_t longer[80];
    memcpy(longer, tokens, sizeof(tokens));
    memcpy(longer + 72, tokens, 8 * sizeof(uint32_t));
    prompt.tokens = longer;
    prompt.num_tokens = 80;
    prompt.raw = true;
    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, 80);
    prompt.num_extras = 1;
    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, 64);
    prompt.num_extras = 0;
    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, 16);
    kvpool_disconnect(kvpool);
}

/* Named by the namer: over 256 blocks. */
static void a_long_prompt_is_named_beside(void **state)
{
    enum { COUNT = 8000 };
    static uint32_t tokens[COUNT + 8000];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_result result;

    tokens_make(tokens, COUNT + 8000, 6);
    struct kvpool_prompt prompt = {
        .model = model_of(kvpool), .tokens = tokens, .num_tokens = COUNT};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, &result), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    assert_int_equal(kvpool_append(kvpool, 1, tokens + COUNT, 8000, &result), 0);
    assert_int_equal(result.length, COUNT + 8000);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    prompt.num_tokens = COUNT + 8000;
    prompt.raw = true;
    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, COUNT + 8000);
    assert_int_equal(kvpool_preempt(kvpool, 1), 0);
    assert_int_equal(kvpool_resume(kvpool, 1, NULL, &result), 0);
    assert_int_equal(result.length, COUNT + 8000);
    assert_true(stat_read(*state, "prompts_beside") >= 4);
    kvpool_disconnect(kvpool);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void who_waits_for_a_fill_is_told_when_it_is_there(void **state)
{
    uint32_t tokens[64];
    struct kvpool *filler = engine_connect(*state, NULL, 0);
    struct kvpool *waiter = engine_connect(*state, NULL, 0);
    struct kvpool_result result;
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    uint64_t ticket;

    tokens_make(tokens, 64, 7);
    struct kvpool_prompt prompt = {.model = model_of(filler), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(filler, 1, &prompt, &unfilled, NULL), 0);
    prompt.model = model_of(waiter);
    assert_int_equal(kvpool_match(waiter, &prompt, &result), 0);
    assert_int_equal(result.arriving, 48);
    assert_int_equal(kvpool_wait_arriving(waiter, &prompt, 60, &result), KVPOOL_TIMEOUT);

    const struct kvpool_request wait = {
        .verb = KVPOOL_WAIT_ARRIVING, .prompt = &prompt, .deadline_ms = 5000};
    assert_int_equal(kvpool_submit(waiter, &wait, &ticket), 0);
    assert_int_equal(kvpool_flush(waiter), 0);
    stat_await(*state, "pool_waiting", 1, 5000);
    assert_int_equal(kvpool_cancel(waiter, ticket), 0);
    assert_int_equal(kvpool_wait(waiter, ticket, &result), KVPOOL_CANCELLED);

    assert_int_equal(kvpool_submit(waiter, &wait, &ticket), 0);
    assert_int_equal(kvpool_flush(waiter), 0);
    stat_await(*state, "pool_waiting", 1, 5000); /* it got there */
    assert_int_equal(kvpool_fill(filler, 1), 0);
    assert_int_equal(kvpool_publish(filler, 1), 0);
    assert_int_equal(kvpool_wait(waiter, ticket, &result), 0);
    assert_int_equal(result.matched, 48);
    assert_int_equal(result.arriving, 0);
    assert_int_equal(kvpool_match(waiter, &prompt, &result), 0);
    assert_int_equal(result.matched, 48);
    kvpool_disconnect(filler);
    kvpool_disconnect(waiter);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* 16 MiB of 8 KiB blocks: 2048, in 256 granules of 8. */
static void a_full_pool_answers(void **state)
{
    enum { TOKENS = 4096 };
    static uint32_t tokens[40000];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_prompt prompt = {.model = model_of(kvpool), .tokens = tokens};
    int answer = 0;
    uint64_t count = 0;

    tokens_make(tokens, 40000, 8);
    prompt.num_tokens = 40000;
    assert_int_equal(kvpool_allocate(kvpool, 1000, &prompt, NULL, NULL), KVPOOL_NEVER_FITS);
    prompt.num_tokens = TOKENS;
    while (answer == 0 && count < 100) {
        tokens_make(tokens, TOKENS, 100 + (uint32_t)count);
        answer = kvpool_allocate(kvpool, count++, &prompt, NULL, NULL);
    }
    assert_int_equal(answer, KVPOOL_NO_BLOCKS);
    assert_int_equal(count, 8); /* 7 of 256 blocks, less the watermark */
    assert_int_equal(kvpool_release(kvpool, 0), 0);
    assert_int_equal(kvpool_allocate(kvpool, 50, &prompt, NULL, NULL), 0);
    kvpool_disconnect(kvpool);
}

static void a_quota_is_kept_and_can_be_raised(void **state)
{
    static uint32_t tokens[4096];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_request quota = {
        .verb = KVPOOL_SET_QUOTA,
        .domain = "a",
        .quota = {.has_limit = true, .limit_bytes = 1 << 20, .weight = 1}};

    assert_int_equal(kvpool_call(operator, & quota, NULL), 0);
    tokens_make(tokens, 4096, 9);
    struct kvpool_prompt prompt = {.model = model_of(kvpool), .tokens = tokens, .num_tokens = 1600};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    tokens_make(tokens, 4096, 10);
    assert_int_equal(kvpool_allocate(kvpool, 2, &prompt, NULL, NULL), KVPOOL_QUOTA);
    quota.quota.limit_bytes = 4 << 20;
    assert_int_equal(kvpool_call(operator, & quota, NULL), 0);
    assert_int_equal(kvpool_allocate(kvpool, 2, &prompt, NULL, NULL), 0);
    kvpool_disconnect(operator);
    kvpool_disconnect(kvpool);
}

static void a_kicked_session_is_gone(void **state)
{
    uint32_t tokens[64];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);

    tokens_make(tokens, 64, 11);
    const struct kvpool_prompt prompt = {
        .model = model_of(kvpool), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    const struct kvpool_request kick = {.verb = KVPOOL_KICK, .session = kvpool_session(kvpool)};
    assert_int_equal(kvpool_call(operator, & kick, NULL), 0);
    assert_int_equal(kvpool_call(operator, & kick, NULL), KVPOOL_NOT_FOUND);
    stat_await(*state, "pool_sequences", 0, 5000);
    int answer = kvpool_release(kvpool, 1); /* whichever it hears of first */
    assert_int_equal(answer, KVPOOL_DISCONNECTED);
    kvpool_disconnect(operator);
    kvpool_disconnect(kvpool);
}

/* Whatever it hears of first: the end of the session, or an answer to what it asked after it. */
static void a_kicked_engine_is_told_so_and_nothing_else(void **state)
{
    enum { ROUNDS = 60, ASKED = 40 };
    struct kvpool *operator= operator_connect(*state);
    uint32_t tokens[64];

    tokens_make(tokens, 64, 6);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct kvpool *kvpool = engine_connect(*state, NULL, 0);
        const struct kvpool_prompt prompt = {
            .model = model_of(kvpool), .tokens = tokens, .num_tokens = 64};
        const struct kvpool_request match = {.verb = KVPOOL_MATCH, .prompt = &prompt};
        const struct kvpool_request kick = {.verb = KVPOOL_KICK, .session = kvpool_session(kvpool)};
        uint64_t tickets[ASKED], ticket;
        for (uint32_t at = 0; at < ASKED; at++) {
            if (at == round % ASKED) { /* at any place among what it asks */
                assert_int_equal(kvpool_flush(kvpool), 0);
                assert_int_equal(kvpool_submit(operator, & kick, &ticket), 0);
                assert_int_equal(kvpool_flush(operator), 0);
            }
            assert_int_equal(kvpool_submit(kvpool, &match, &tickets[at]), 0);
        }
        (void)kvpool_flush(kvpool);
        assert_int_equal(kvpool_wait(operator, ticket, NULL), 0);
        for (uint32_t at = 0; at < ASKED; at++) {
            int answer = kvpool_wait(kvpool, tickets[at], NULL);
            assert_true(answer == 0 || answer == KVPOOL_DISCONNECTED);
        }
        assert_int_equal(kvpool_match(kvpool, &prompt, NULL), KVPOOL_DISCONNECTED);
        assert_int_equal(kvpool_reconnect(kvpool), 0);
        assert_int_equal(kvpool_match(kvpool, &prompt, NULL), 0);
        kvpool_disconnect(kvpool);
    }
    kvpool_disconnect(operator);
}

static void a_drained_daemon_takes_no_new_sequences(void **state)
{
    uint32_t tokens[64];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_request drain = {.verb = KVPOOL_DRAIN};

    tokens_make(tokens, 64, 12);
    const struct kvpool_prompt prompt = {
        .model = model_of(kvpool), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_call(operator, & drain, NULL), 0);
    assert_int_equal(kvpool_allocate(kvpool, 2, &prompt, NULL, NULL), KVPOOL_DRAINING);
    assert_int_equal(kvpool_append(kvpool, 1, tokens, 20, NULL), 0);
    drain.undo = true;
    assert_int_equal(kvpool_call(operator, & drain, NULL), 0);
    assert_int_equal(kvpool_allocate(kvpool, 2, &prompt, NULL, NULL), 0);
    kvpool_disconnect(operator);
    kvpool_disconnect(kvpool);
}

static void a_clear_is_found_no_more(void **state)
{
    uint32_t tokens[64];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct kvpool_result result;
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR};

    tokens_make(tokens, 64, 13);
    const struct kvpool_prompt prompt = {
        .model = model_of(kvpool), .tokens = tokens, .num_tokens = 64};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    assert_int_equal(kvpool_release(kvpool, 1), 0);
    assert_int_equal(kvpool_call(operator, & clear, NULL), 0);
    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, 0);
    kvpool_disconnect(operator);
    kvpool_disconnect(kvpool);
}

/* Its own domain's, with numbers of its own; another tenant's are not to be seen. */
static void a_session_sees_its_tenants_events_and_no_others(void **state)
{
    static const char token[] = "token-of-tenant-b-0123";
    struct kvpool *one = engine_connect(*state, NULL, 0), *other = engine_connect(*state, token, 0);
    struct kvpool *operator= operator_connect(*state);
    uint32_t tokens[80];
    char json[65536];
    struct kvpool_request stats = {
        .verb = KVPOOL_STATS, .want_events = true, .json = json, .json_max = sizeof(json)};
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR, .domain = "a"};

    tokens_make(tokens, 80, 77);
    const struct kvpool_prompt prompt = {
        .model = model_of(one), .tokens = tokens, .num_tokens = 80};
    (void)model_of(other);
    assert_int_equal(kvpool_allocate(one, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(one, 1), 0);
    assert_int_equal(kvpool_call(one, &stats, NULL), 0);
    assert_non_null(strstr(json, "{\"payer\":\"a\""));
    assert_non_null(strstr(json, "\"events\":{\"first\":1,\"last\":5,\"newest\":5,\"lost\":false"));
    const char *at = json;
    for (uint32_t i = 0; i < 5; i++, at++)
        assert_non_null(at = strstr(at, "{\"stored\":true,\"key\":\""));
    assert_non_null(strstr(at, "\"model\":\"small\",\"group\":0}]}}"));
    stats.after = 3;
    assert_int_equal(kvpool_call(one, &stats, NULL), 0);
    assert_non_null(strstr(json, "\"events\":{\"first\":4,\"last\":5,"));
    assert_int_equal(kvpool_release(one, 1), 0);
    assert_int_equal(kvpool_call(operator, & clear, NULL), 0);
    stats.after = 5;
    uint64_t end = now_ms() + 5000;
    do
        assert_int_equal(kvpool_call(one, &stats, NULL), 0);
    while (!strstr(json, "\"last\":10,") && now_ms() < end);
    assert_non_null(strstr(json, "{\"stored\":false,"));
    stats.after = 0;
    assert_int_equal(kvpool_call(other, &stats, NULL), 0);
    assert_non_null(strstr(json, "{\"payer\":\"b\""));
    assert_non_null(strstr(json, "\"newest\":0,\"lost\":false,\"blocks\":[]}}"));
    kvpool_disconnect(operator);
    kvpool_disconnect(other);
    kvpool_disconnect(one);
}

static void lists_are_json(void **state)
{
    static const char *const lists[] = {"models", "tenants", "domains", "sessions", "status"};
    static char json[1 << 16];
    struct kvpool *operator= operator_connect(*state);
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);

    (void)model_of(kvpool);
    for (size_t at = 0; at < ARRAY_SIZE(lists); at++) {
        const struct kvpool_request list = {
            .verb = KVPOOL_LIST, .what = lists[at], .json = json, .json_max = sizeof(json)};
        assert_int_equal(kvpool_call(operator, & list, NULL), 0);
        assert_true(json[0] == '[' || json[0] == '{');
    }
    assert_int_equal(kvpool_stats(kvpool, json, sizeof(json)), 0);
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = "sessions", .json = json, .json_max = sizeof(json)};
    int answer = kvpool_call(kvpool, &list, NULL);
    assert_true(answer == KVPOOL_DENIED || answer < 0); /* engines do not list */
    kvpool_disconnect(operator);
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_setup, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_engine_allocates_publishes_forks_and_releases),
        TEST(a_second_engine_finds_what_the_first_published),
        TEST(another_tenant_finds_nothing),
        TEST(a_shared_domain_is_read_by_its_readers_only),
        TEST(a_prompt_with_an_extra_has_other_blocks),
        TEST(a_long_prompt_is_named_beside),
        TEST(who_waits_for_a_fill_is_told_when_it_is_there),
        TEST(a_full_pool_answers),
        TEST(a_quota_is_kept_and_can_be_raised),
        TEST(a_kicked_session_is_gone),
        TEST(a_kicked_engine_is_told_so_and_nothing_else),
        TEST(a_drained_daemon_takes_no_new_sequences),
        TEST(a_clear_is_found_no_more),
        TEST(a_session_sees_its_tenants_events_and_no_others),
        TEST(lists_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
