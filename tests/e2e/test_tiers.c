/* tests/e2e/test_tiers.c - a tiny pool over a disk: what leaves the pool comes back, exact. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPTS = 24, BLOCKS = 4, FLOOD = 8 /* prompts of 4 blocks: the whole pool */ };

static struct daemon daemon_;
static struct store_disk disk;

static int finish(void **state)
{
    (void)state;
    store_finish(&daemon_, &disk);
    return 0;
}

static struct kvpool_result match(struct kvpool *kvpool, uint32_t model, uint32_t seed,
                                  uint32_t num_blocks)
{
    uint32_t tokens[STORE_MAX_BLOCKS * STORE_TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, seed, num_blocks, tokens);
    struct kvpool_result result;

    assert_int_equal(kvpool_match(kvpool, &prompt, &result), 0);
    return result;
}

static void what_is_evicted_comes_back_exact(void **state)
{
    struct kvpool_result result;
    uint64_t matched = 0, below = 0;

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        assert_int_equal(store_get(kvpool, model, seed, BLOCKS, &result), 0);
        matched += result.matched;
        below += result.below;
    }
    assert_int_equal(matched, PROMPTS * BLOCKS * STORE_TOKENS);
    assert_true(below >= (PROMPTS - FLOOD) * BLOCKS * STORE_TOKENS);
    assert_int_equal(tier_stat(&daemon_, "tier_hit_tokens", "device") +
                         tier_stat(&daemon_, "tier_hit_tokens", "disk"),
                     stat_read(&daemon_, "pool_hit_tokens"));
    assert_int_equal(tier_stat(&daemon_, "tier_hit_tokens", "disk"), below);
    kvpool_disconnect(kvpool);
}

static void a_prefetch_moves_what_an_allocation_would_wait_for(void **state)
{
    uint32_t tokens[BLOCKS * STORE_TOKENS];
    struct kvpool_result result;
    uint64_t end = now_ms() + 10000;

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    assert_int_equal(match(kvpool, model, 1, BLOCKS).below, BLOCKS * STORE_TOKENS);
    assert_int_equal(match(kvpool, model, 1, BLOCKS).below,
                     BLOCKS * STORE_TOKENS); /* moves nothing */
    const struct kvpool_prompt prompt = store_prompt(model, 1, BLOCKS, tokens);
    assert_int_equal(kvpool_prefetch(kvpool, &prompt, &result), 0);
    assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
    assert_int_equal(result.present + result.coming, BLOCKS * STORE_TOKENS);
    assert_true(result.coming > 0);
    while (match(kvpool, model, 1, BLOCKS).below > 0) {
        assert_true(now_ms() < end);
        (void)usleep(1000);
    }
    assert_int_equal(kvpool_prefetch(kvpool, &prompt, &result), 0);
    assert_int_equal(result.present, BLOCKS * STORE_TOKENS);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
    assert_int_equal(result.below, 0);
    kvpool_disconnect(kvpool);
}

static void a_preempted_conversation_goes_below_and_is_resumed(void **state)
{
    struct kvpool_result result;

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0)
            assert_int_equal(store_put(kvpool, model, 1000, BLOCKS, true), 0);
        assert_int_equal(kvpool_preempt(kvpool, 1000), 0);
        store_settle(&daemon_);
        store_flood(&daemon_, kvpool, model, 1 + 100 * (uint32_t)turn, FLOOD);
        assert_int_equal(match(kvpool, model, 1000, BLOCKS).below, BLOCKS * STORE_TOKENS);
        if (turn == 1) {
            assert_int_equal(kvpool_prefetch_sequence(kvpool, 1000, &result), 0);
            assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
            assert_int_equal(result.present + result.coming, result.matched);
        }
        assert_int_equal(kvpool_resume(kvpool, 1000, NULL, &result), 0);
        assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
        store_check(kvpool, 1000, 1000, BLOCKS);
    }
    assert_int_equal(kvpool_prefetch_sequence(kvpool, 1000, &result), KVPOOL_INVALID);
    assert_int_equal(kvpool_prefetch_sequence(kvpool, 4711, &result), KVPOOL_NOT_FOUND);
    assert_int_equal(kvpool_release(kvpool, 1000), 0);
    kvpool_disconnect(kvpool);
}

/* Many at a time, some of one prompt: they wait for the same transfers. */
static void allocations_that_wait_are_all_answered(void **state)
{
    enum { MANY = 4 }; /* beside them, 16 blocks may be on their way to the disk */
    uint32_t tokens[MANY][BLOCKS * STORE_TOKENS];
    struct kvpool_prompt prompts[MANY];
    struct kvpool_result result;
    uint64_t tickets[2 * MANY];

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, MANY + FLOOD);
    for (uint32_t at = 0; at < MANY; at++)
        prompts[at] = store_prompt(model, 1 + at, BLOCKS, tokens[at]);
    for (uint32_t at = 0; at < 2 * MANY; at++) {
        const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                                .sequence = 100 + at,
                                                .prompt = &prompts[at % MANY],
                                                .unfilled = true,
                                                .has_take = true};
        assert_int_equal(kvpool_submit(kvpool, &allocate, &tickets[at]), 0);
    }
    for (uint32_t at = 0; at < 2 * MANY; at++) {
        assert_int_equal(kvpool_wait(kvpool, tickets[at], &result), 0);
        assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
    }
    for (uint32_t at = 0; at < 2 * MANY; at++) {
        store_check(kvpool, 100 + at, 1 + at % MANY, BLOCKS);
        assert_int_equal(kvpool_release(kvpool, 100 + at), 0);
    }
    assert_int_equal(tier_stat(&daemon_, "tier_fetches", "disk"), MANY * BLOCKS);
    kvpool_disconnect(kvpool);
}

static void what_a_session_does_not_want_stored_is_not(void **state)
{
    struct kvpool_result result;

    (void)state;
    store_start(&daemon_, &disk, "store-default: none\n");
    struct kvpool *silent = engine_connect(&daemon_, NULL, 0);
    struct kvpool *none = engine_connect(&daemon_, NULL, KVPOOL_STORE_NONE);
    struct kvpool *prompt = engine_connect(&daemon_, NULL, KVPOOL_STORE_PROMPT);
    uint32_t model = store_register(silent);
    (void)store_register(none);
    (void)store_register(prompt);
    store_flood(&daemon_, silent, model, 1, FLOOD);
    store_flood(&daemon_, none, model, 100, FLOOD);
    assert_int_equal(tier_stat(&daemon_, "tier_stores_started", "disk"), 0);
    assert_int_equal(store_get(silent, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, 0);
    store_flood(&daemon_, prompt, model, 200, 2 * FLOOD);
    assert_true(tier_stat(&daemon_, "tier_stores", "disk") >= FLOOD * BLOCKS);
    assert_int_equal(store_get(silent, model, 200, BLOCKS, &result), 0);
    assert_int_equal(result.matched, BLOCKS * STORE_TOKENS);
    kvpool_disconnect(silent);
    kvpool_disconnect(none);
    kvpool_disconnect(prompt);
}

static void stored_at_once_is_on_disk_before_it_is_evicted(void **state)
{
    (void)state;
    store_start(&daemon_, &disk, "store-when: at-once\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 2);
    assert_int_equal(tier_stat(&daemon_, "tier_stores", "disk"), 2 * BLOCKS);
    assert_int_equal(tier_stat(&daemon_, "tier_evictions", "device"), 0);
    kvpool_disconnect(kvpool);
}

/* Two prompts' worth of each tier is where it is looked for first. */
static void blocks_go_through_memory_to_the_disk(void **state)
{
    uint64_t hits = 0;

    (void)state;
    store_start(&daemon_, &disk, "host-tier-bytes: 2MiB\nhost-ahead-bytes: 1MiB\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    uint64_t matched = store_get_all(&daemon_, kvpool, model, PROMPTS);
    assert_int_equal(matched, PROMPTS * BLOCKS * STORE_TOKENS);
    for (int at = 0; at < 3; at++)
        hits += tier_stat(&daemon_, "tier_hit_tokens",
                          (const char *const[]){"device", "host", "disk"}[at]);
    assert_int_equal(hits, matched);
    assert_true(tier_stat(&daemon_, "tier_fetches", "host") > 0);
    assert_true(tier_stat(&daemon_, "tier_fetches", "disk") > 0);
    assert_true(tier_stat(&daemon_, "tier_stores", "disk") > 0);
    assert_int_equal(tier_stat(&daemon_, "tier_stores_failed", "host"), 0);
    kvpool_disconnect(kvpool);
}

static void quota_set(const char *tier, uint64_t limit_bytes, int answer)
{
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request request = {
        .verb = KVPOOL_SET_QUOTA,
        .domain = "a",
        .what = tier,
        .quota = {.has_limit = true, .limit_bytes = limit_bytes, .weight = 1}};

    assert_int_equal(kvpool_call(operator, & request, NULL), answer);
    kvpool_disconnect(operator);
}

/* Two granules of 4 blocks: at the limit, what is stored takes the place of what was. */
static void a_tenant_has_a_limit_in_each_tier(void **state)
{
    (void)state;
    store_start(&daemon_, &disk, "store-when: at-once\n");
    quota_set("disk", 512 << 10, 0);
    quota_set("host", 512 << 10, KVPOOL_INVALID); /* there is none */
    quota_set("tape", 512 << 10, KVPOOL_INVALID);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    store_flood(&daemon_, kvpool, store_register(kvpool), 1, 6);
    assert_int_equal(tier_stat(&daemon_, "tier_charged_bytes", "disk"), 512 << 10);
    assert_int_equal(tier_stat(&daemon_, "tier_evictable", "disk"), 8);
    kvpool_disconnect(kvpool);
}

/* Whether a list of the operator has @text. */
static bool list_has(const char *what, const char *text)
{
    static char json[1 << 16];
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = what, .json = json, .json_max = sizeof(json)};

    assert_int_equal(kvpool_call(operator, & list, NULL), 0);
    kvpool_disconnect(operator);
    return strstr(json, text) != NULL;
}

static void an_operators_domain_keeps_its_quota_of_a_tier(void **state)
{
    static const char *const readers[] = {"a", NULL};
    static const char quota[] =
        "\"disk_guarantee_bytes\":0,\"disk_weight\":7,\"disk_limit_bytes\":1048576";
    const struct kvpool_request requests[] = {
        {.verb = KVPOOL_CREATE_DOMAIN, .domain = "commons", .readers = readers},
        {.verb = KVPOOL_SET_QUOTA,
         .domain = "commons",
         .what = "disk",
         .quota = {.has_limit = true, .limit_bytes = 1 << 20, .weight = 7}}};

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *operator= operator_connect(&daemon_);
    for (size_t at = 0; at < 2; at++)
        assert_int_equal(kvpool_call(operator, & requests[at], NULL), 0);
    kvpool_disconnect(operator);
    assert_true(list_has("domains", quota));
    stat_await(&daemon_, "state_unwritten", 0, 5000);
    for (int time = 0; time < 2; time++) { /* and again: it is kept, not only read */
        assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
        daemon_restart(&daemon_);
        assert_true(list_has("domains", quota));
    }
}

/* 20 of 31 MiB are guaranteed to b, then to a, who stands before it in the file. */
static void guarantees_of_a_tier_change_hands_with_a_reload(void **state)
{
    char config[256], command[256];

    (void)state;
    (void)snprintf(config, sizeof(config),
                   "tenants:\n  - {name: a, uids: [%u], disk-guarantee: 4MiB}\n"
                   "  - {name: b, uids: [4242], disk-guarantee: 20MiB}\n",
                   getuid());
    store_start(&daemon_, &disk, config);
    assert_true(list_has("tenants", "\"disk_guarantee_bytes\":4194304"));
    (void)snprintf(command, sizeof(command),
                   "sed -i '/name: a/s/4MiB/20MiB/;/name: b/s/20MiB/4MiB/' %s/kvpoold.yaml",
                   daemon_.dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(kill(daemon_.pid, SIGHUP), 0);
    uint64_t end = now_ms() + 10000;
    while (now_ms() < end &&
           !list_has("tenants", "\"disk_guarantee_bytes\":20971520,\"disk_weight"
                                "\":1,\"disk_limit_bytes\":null},\n{\"name\":\"b\""))
        (void)usleep(10000);
    assert_true(now_ms() < end);
}

/* A granule of the disk has 256 KiB. */
static void blocks_too_large_for_the_disk_do_without(void **state)
{
    const struct kvpool_model large = {.name = "large",
                                       .weights_revision = "1",
                                       .dtype = KVPOOL_OPAQUE,
                                       .layout_name = "bytes",
                                       .opaque_block_bytes = 300000};
    static char json[1 << 16];
    uint32_t model, tokens[BLOCKS * STORE_TOKENS];

    (void)state;
    store_start(&daemon_, &disk, "");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    assert_int_equal(kvpool_register_model(kvpool, &large, &model, NULL), 0);
    for (uint32_t seed = 1; seed <= 10; seed++) {
        const struct kvpool_prompt prompt = store_prompt(model, seed, BLOCKS, tokens);
        assert_int_equal(kvpool_allocate(kvpool, seed, &prompt, NULL, NULL), 0);
        assert_int_equal(kvpool_publish(kvpool, seed), 0);
        assert_int_equal(kvpool_release(kvpool, seed), 0);
    }
    assert_true(tier_stat(&daemon_, "tier_evictions", "device") > 0);
    assert_int_equal(tier_stat(&daemon_, "tier_skipped_late", "device"), 0);
    assert_int_equal(tier_stat(&daemon_, "tier_stores_started", "disk"), 0);
    (void)store_register(kvpool);
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = "models", .json = json, .json_max = sizeof(json)};
    assert_int_equal(kvpool_call(operator, & list, NULL), 0);
    kvpool_disconnect(operator);
    assert_non_null(strstr(json, "\"on_disk\":false")); /* the first */
    assert_non_null(strstr(json, "\"on_disk\":true"));
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_evicted_comes_back_exact),
        TEST(a_prefetch_moves_what_an_allocation_would_wait_for),
        TEST(a_preempted_conversation_goes_below_and_is_resumed),
        TEST(allocations_that_wait_are_all_answered),
        TEST(what_a_session_does_not_want_stored_is_not),
        TEST(stored_at_once_is_on_disk_before_it_is_evicted),
        TEST(blocks_go_through_memory_to_the_disk),
        TEST(a_tenant_has_a_limit_in_each_tier),
        TEST(an_operators_domain_keeps_its_quota_of_a_tier),
        TEST(guarantees_of_a_tier_change_hands_with_a_reload),
        TEST(blocks_too_large_for_the_disk_do_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
