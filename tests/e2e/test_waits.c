/*
 * tests/e2e/test_waits.c - whoever waits for the disk can go away in any way: nothing of it stays.
 *
 * The disk is held, so that a verb surely waits; then its engine is killed, or leaves, or is
 * kicked, or the request is cancelled, or runs out of time, or what it waits for is cleared.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/lying.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, FLOOD = 8, TOKENS = BLOCKS * STORE_TOKENS, SEQUENCE = 1000 };

static struct daemon daemon_;
static struct store_disk disk;
static struct fault_board *faults;
static char faults_path[96];

static int start(void **state)
{
    (void)state;
    (void)snprintf(faults_path, sizeof(faults_path), "/tmp/kvpool-lies-%d", (int)getpid());
    faults = fault_board_make(faults_path);
    store_start(&daemon_, &disk,
                "keep: none\ndisk-deadline: 20s\nmax-transfers: 64\n"
                "max-sequences: 32\n");
    return 0;
}

static int finish(void **state)
{
    (void)state;
    fault_board_free(faults, faults_path);
    store_finish(&daemon_, &disk);
    return 0;
}

/* ---- the matrix ----------------------------------------------------------------------------- */

enum verb { ALLOCATE, RESUME, PREFETCH, PREFETCH_SEQUENCE, NUM_WAITS };
enum way { KILLED, DISCONNECTED, KICKED, CANCELLED, TIMED_OUT, CLEARED, NUM_WAYS };

static const char *const verbs[] = {"allocate", "resume", "prefetch", "prefetch of a sequence"};
static const char *const ways[] = {"killed",    "disconnected", "kicked",
                                   "cancelled", "timed out",    "cleared"};

static uint64_t verb_submit(struct kvpool *kvpool, uint32_t model, enum verb verb, enum way way)
{
    static uint32_t tokens[TOKENS];
    static struct kvpool_prompt prompt;
    uint64_t ticket = 0;

    prompt = store_prompt(model, SEQUENCE, BLOCKS, tokens);
    bool has_prompt = verb == ALLOCATE || verb == PREFETCH;
    const struct kvpool_request request = {.verb = verb == ALLOCATE ? KVPOOL_ALLOCATE
                                                   : verb == RESUME ? KVPOOL_RESUME
                                                                    : KVPOOL_PREFETCH,
                                           .sequence = verb == ALLOCATE ? SEQUENCE + 1 : SEQUENCE,
                                           .prompt = has_prompt ? &prompt : NULL,
                                           .unfilled = true,
                                           .deadline_ms = way == TIMED_OUT ? 150 : 15000};
    assert_int_equal(kvpool_submit(kvpool, &request, &ticket), 0);
    assert_int_equal(kvpool_flush(kvpool), 0);
    return ticket;
}

static void operator_does(enum kvpool_verb verb, uint64_t session)
{
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request request = {.verb = verb, .session = session};

    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    kvpool_disconnect(operator);
}

/* What the waiting request is answered; a prefetch never waits. */
static void expect(enum verb verb, enum way way, struct kvpool *kvpool, uint64_t ticket)
{
    static const int answers[NUM_WAYS] = {[CANCELLED] = KVPOOL_CANCELLED,
                                          [TIMED_OUT] = KVPOOL_TIMEOUT,
                                          [KICKED] = KVPOOL_DISCONNECTED};
    struct kvpool_result result;

    if (verb >= PREFETCH || way == CLEARED || way == DISCONNECTED)
        return;
    int answer = kvpool_wait(kvpool, ticket, &result);
    if (answer != answers[way])
        fail_msg("%s, %s: %s", verbs[verb], ways[way], kvpool_status_name(answer));
}

/* In a process of its own: what it waits for is below, and does not come. */
static void engine_live(enum verb verb, enum way way)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);

    assert_int_equal(store_put(kvpool, model, SEQUENCE, BLOCKS, true), 0);
    assert_int_equal(kvpool_preempt(kvpool, SEQUENCE), 0);
    store_settle(&daemon_);
    store_flood(&daemon_, kvpool, model, 1, FLOOD);
    uint64_t before = tier_stat(&daemon_, "tier_fetches_started", "disk"), end = now_ms() + 10000;
    atomic_store(&faults->is_held, 1);
    uint64_t ticket = verb_submit(kvpool, model, verb, way);
    while (tier_stat(&daemon_, "tier_fetches_started", "disk") == before)
        assert_true(now_ms() < end);
    if (way == KILLED)
        (void)kill(getpid(), SIGKILL);
    if (way == KICKED)
        operator_does(KVPOOL_KICK, kvpool_session(kvpool));
    if (way == CANCELLED)
        (void)kvpool_cancel(kvpool, ticket);
    if (way == CLEARED)
        operator_does(KVPOOL_CLEAR, 0);
    expect(verb, way, kvpool, ticket);
    if (way == CLEARED) { /* is looked for anew: whatever it finds then */
        atomic_store(&faults->is_held, 0);
        struct kvpool_result result;
        int answer = kvpool_wait(kvpool, ticket, &result);
        assert_true(answer == 0 || answer == KVPOOL_STALE);
        assert_true(verb >= PREFETCH || result.matched == 0);
    }
    kvpool_disconnect(kvpool);
}

static void nothing_stays(enum verb verb, enum way way)
{
    static const char *const none[] = {"pool_sessions", "pool_sequences", "pool_waiting",
                                       "pool_held"};
    for (size_t at = 0; at < ARRAY_SIZE(none); at++)
        stat_await(&daemon_, none[at], 0, 10000); /* the disk is still held */
    atomic_store(&faults->is_held, 0);
    stat_await(&daemon_, "pool_reserved", 0, 10000);
    stat_await(&daemon_, "disk_queued", 0, 10000);
    assert_int_equal(tier_stat(&daemon_, "tier_fetches_started", "disk"),
                     tier_stat(&daemon_, "tier_fetches", "disk") +
                         tier_stat(&daemon_, "tier_fetches_failed", "disk"));
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    struct kvpool_result result;
    assert_int_equal(store_get(kvpool, store_register(kvpool), SEQUENCE, BLOCKS, &result), 0);
    kvpool_disconnect(kvpool);
    if (result.matched != (way == CLEARED ? 0 : TOKENS))
        fail_msg("%s, %s: %lu tokens are found", verbs[verb], ways[way], result.matched);
    operator_does(KVPOOL_CLEAR, 0);
    stat_await(&daemon_, "pool_sessions", 0, 10000);
}

static void nothing_of_who_waited_stays(void **state)
{
    (void)state;
    for (int verb = 0; verb < NUM_WAITS; verb++)
        for (int way = 0; way < NUM_WAYS; way++) {
            int status;
            if (verb >= PREFETCH && (way == CANCELLED || way == TIMED_OUT))
                continue; /* it is answered at once */
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
                engine_live((enum verb)verb, (enum way)way);
                _exit(0);
            }
            assert_int_equal(waitpid(pid, &status, 0), pid);
            if (status != (way == KILLED ? SIGKILL : 0))
                fail_msg("%s, %s: status %d", verbs[verb], ways[way], status);
            nothing_stays((enum verb)verb, (enum way)way);
        }
}

/* What an allocation that was undone was counted for is free again: 40 of them, where a tenant may
 * have fewer sequences. */
static void whoever_waited_in_vain_is_not_counted(void **state)
{
    uint32_t tokens[TOKENS];
    struct kvpool_result result;
    uint64_t ticket;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    const struct kvpool_prompt prompt = store_prompt(model, 1, BLOCKS, tokens);
    atomic_store(&faults->is_held, 1);
    for (uint64_t at = 0; at < 40; at++) {
        const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                                .sequence = 100 + at,
                                                .prompt = &prompt,
                                                .deadline_ms = at % 2 ? 20 : 5000};
        assert_int_equal(kvpool_submit(kvpool, &allocate, &ticket), 0);
        if (at % 2 == 0)
            assert_int_equal(kvpool_cancel(kvpool, ticket), 0);
        assert_int_equal(kvpool_wait(kvpool, ticket, &result),
                         at % 2 ? KVPOOL_TIMEOUT : KVPOOL_CANCELLED);
    }
    atomic_store(&faults->is_held, 0);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_disconnect(kvpool);
}

/* ---- storms --------------------------------------------------------------------------------- */

enum { STORM = 10000, PROMPTS = 60 };

/* As many as it may have outstanding, all the time; then it is gone. */
static void storm(void)
{
    static uint32_t tokens[PROMPTS][TOKENS];
    static struct kvpool_prompt prompts[PROMPTS];
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    struct kvpool_result result;
    uint64_t ticket;

    for (uint32_t at = 0; at < PROMPTS; at++)
        prompts[at] = store_prompt(model, 1 + at, BLOCKS, tokens[at]);
    for (uint32_t at = 0; at < STORM; at++) {
        const struct kvpool_request request = {.verb = KVPOOL_PREFETCH,
                                               .prompt = &prompts[at * 7919 % PROMPTS]};
        while (kvpool_submit(kvpool, &request, &ticket) == -EAGAIN) {
            assert_int_equal(kvpool_poll(kvpool, -1, &result), 0);
            assert_int_equal(result.status, 0);
        }
    }
    assert_int_equal(kvpool_flush(kvpool), 0);
    (void)kill(getpid(), SIGKILL);
}

static void after_a_storm_of_prefetches_nothing_is_under_way(void **state)
{
    int status;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    atomic_store(&faults->rates[FAULT_DELAY], 700000);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
        storm();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, SIGKILL);
    stat_await(&daemon_, "pool_sessions", 1, 10000);
    stat_await(&daemon_, "pool_reserved", 0, 20000);
    stat_await(&daemon_, "disk_queued", 0, 20000);
    atomic_store(&faults->rates[FAULT_DELAY], 0);
    stat_await(&daemon_, "pool_held", 0, 1000);
    assert_int_equal(tier_stat(&daemon_, "tier_fetches_started", "disk"),
                     tier_stat(&daemon_, "tier_fetches", "disk") +
                         tier_stat(&daemon_, "tier_fetches_failed", "disk"));
    assert_true(tier_stat(&daemon_, "tier_fetches", "disk") > 0);
    uint64_t matched = store_get_all(&daemon_, kvpool, model, PROMPTS);
    assert_true(matched >= (PROMPTS - FLOOD) * TOKENS);
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_of_who_waited_stays),
        TEST(whoever_waited_in_vain_is_not_counted),
        TEST(after_a_storm_of_prefetches_nothing_is_under_way),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
