/* tests/e2e/test_death.c - engines die by SIGKILL at every point; all that they held comes back. */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How far an engine gets before it is killed. */
enum point {
    CONNECTED,
    REGISTERED,
    ALLOCATED,
    PUBLISHED,
    FORKED,
    IN_STEP,
    ATTENDING,
    NAMING,
    WAITING,
    REQUESTS_UNDER_WAY,
    NUM_POINTS
};

static void engine_live(struct daemon *daemon, enum point point)
{
    static uint32_t tokens[30000];
    struct kvpool *kvpool = engine_connect(daemon, NULL, 0);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    uint32_t model;
    uint64_t step, ticket;

    tokens_make(tokens, 30000, 31);
    struct kvpool_prompt prompt = {.tokens = tokens, .num_tokens = 400};
    if (point >= REGISTERED)
        (void)kvpool_register_model(kvpool, &small_model, &model, NULL);
    prompt.model = model;
    if (point >= ALLOCATED)
        (void)kvpool_allocate(kvpool, 1, &prompt, point == WAITING ? &unfilled : NULL, NULL);
    if (point >= PUBLISHED && point != WAITING)
        (void)kvpool_publish(kvpool, 1);
    if (point >= FORKED && point != WAITING)
        (void)kvpool_fork(kvpool, 1, 2);
    const struct kvpool_row row = {2, tokens, 20};
    if (point == IN_STEP || point == ATTENDING)
        (void)kvpool_step(kvpool, &row, 1, &step);
    const struct kvpool_attend attend = {.step = step,
                                         .dtype = KVPOOL_F32,
                                         .k_offset = 65536,
                                         .v_offset = 131072,
                                         .out_offset = 262144};
    if (point == ATTENDING) {
        const struct kvpool_request request = {
            .verb = KVPOOL_ATTEND, .attend = &attend, .via_ring = true};
        (void)kvpool_submit(kvpool, &request, &ticket);
        (void)kvpool_flush(kvpool);
    }
    prompt.num_tokens = 30000;
    const struct kvpool_request allocate = {
        .verb = KVPOOL_ALLOCATE, .sequence = 9, .prompt = &prompt};
    const struct kvpool_request wait = {.verb = KVPOOL_WAIT_ARRIVING, .prompt = &prompt};
    if (point == NAMING || point == WAITING) {
        (void)kvpool_submit(kvpool, point == NAMING ? &allocate : &wait, &ticket);
        (void)kvpool_flush(kvpool);
    }
    for (uint64_t at = 0; point == REQUESTS_UNDER_WAY && at < 100; at++) {
        prompt.num_tokens = 100 + at;
        const struct kvpool_request request = {
            .verb = KVPOOL_ALLOCATE, .sequence = 100 + at, .prompt = &prompt};
        (void)kvpool_submit(kvpool, &request, &ticket);
    }
    if (point == REQUESTS_UNDER_WAY)
        (void)kvpool_flush(kvpool);
}

/* Whether it is killed by itself at once, so that its requests may still be in the queue. */
static pid_t engine_spawn(struct daemon *daemon, enum point point)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        engine_live(daemon, point);
        (void)kill(getpid(), SIGKILL);
    }
    return pid;
}

static void what_a_killed_engine_held_is_let_go_of(void **state)
{
    for (int point = 0; point < NUM_POINTS; point++) {
        int status;
        pid_t pid = engine_spawn(*state, (enum point)point);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WTERMSIG(status), SIGKILL);
        uint64_t begin = now_ms();
        stat_await(*state, "pool_sessions", 0, 5000);
        stat_await(*state, "pool_sequences", 0, 5000);
        stat_await(*state, "pool_held", 0, 5000);
        stat_await(*state, "pool_reserved", 0, 5000);
        stat_await(*state, "pool_waiting", 0, 5000);
        print_message("point %d: %lu ms\n", point, now_ms() - begin);
    }
}

static void fifty_crashes_leave_nothing(void **state)
{
    for (int at = 0; at < 50; at++) {
        int status;
        pid_t pid = engine_spawn(*state, (enum point)(at % NUM_POINTS));
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    stat_await(*state, "pool_sessions", 0, 5000);
    stat_await(*state, "pool_held", 0, 5000);
    stat_await(*state, "pool_reserved", 0, 5000);
    char path[64];
    (void)snprintf(path, sizeof(path), "ls /proc/%d/fd | wc -l", ((struct daemon *)*state)->pid);
    FILE *out = popen(path, "r");
    int num_fds = 0;
    assert_int_equal(fscanf(out, "%d", &num_fds), 1);
    (void)pclose(out);
    assert_true(num_fds < 64); /* one session has three */
}

/* The connection lives on in a child of the engine; the engine itself is gone, and so is its
 * session. */
static void a_session_ends_with_its_process_even_if_a_child_has_the_socket(void **state)
{
    int ready[2], hold[2];

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(hold), 0);
    pid_t pid = fork();
    if (pid == 0) {
        engine_live(*state, ALLOCATED);
        if (fork() == 0) { /* keeps every descriptor */
            char byte;
            (void)!write(ready[1], "r", 1);
            (void)close(hold[1]);
            (void)!read(hold[0], &byte, 1);
            _exit(0);
        }
        (void)pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(stat_read(*state, "pool_sequences"), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    stat_await(*state, "pool_sequences", 0, 5000);
    (void)close(hold[1]);
    (void)close(hold[0]);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

/* The last holder of a large sequence dies: other verbs are answered meanwhile. */
static void verbs_are_answered_while_much_is_let_go_of(void **state)
{
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    uint32_t tokens[32], model;

    assert_int_equal(kvpool_register_model(kvpool, &small_model, &model, NULL), 0);
    tokens_make(tokens, 32, 33);
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 32};
    for (int at = 0; at < 5; at++) {
        pid_t pid = engine_spawn(*state, NAMING);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        uint64_t begin = now_ms();
        assert_int_equal(kvpool_match(kvpool, &prompt, NULL), 0);
        assert_true(now_ms() - begin < 1000);
    }
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_setup, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_killed_engine_held_is_let_go_of),
        TEST(fifty_crashes_leave_nothing),
        TEST(a_session_ends_with_its_process_even_if_a_child_has_the_socket),
        TEST(verbs_are_answered_while_much_is_let_go_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
