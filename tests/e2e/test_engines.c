/*
 * tests/e2e/test_engines.c - several engines at once over one daemon: what each computes is right,
 * whatever it finds, shares, or is refused, and nothing is left of them. engine.c checks the
 * outputs.
 */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENGINES = 4, MAX_WORDS = 24, ENGINES_MS = 5 * 12000 }; /* five times what they may take */

/* One block of engine.c's model in f32: 16 tokens of 3 layers with 2 heads of 64. */
enum { BLOCK_BYTES = 16 * 3 * 2 * 2 * 64 * 4 };

struct child {
    pid_t pid;
    char path[96]; /* its stdout */
};

static struct daemon daemon_;
static struct child children[ENGINES];
static unsigned num_children;

static int start_with(void **state, const char *config)
{
    num_children = 0;
    daemon_start(&daemon_, config);
    *state = &daemon_;
    return 0;
}

static int start_roomy(void **state)
{
    return start_with(state, "pool-bytes: 64MiB\n");
}

/* One sequence fits, beside the watermark, and its fork; four do not. */
static int start_small(void **state)
{
    return start_with(state, "pool-bytes: 2MiB\n");
}

static int finish(void **state)
{
    for (unsigned i = 0; i < num_children; i++)
        if (children[i].pid > 0 && kill(children[i].pid, SIGKILL) == 0)
            (void)waitpid(children[i].pid, NULL, 0);
    daemon_finish(*state);
    return 0;
}

/* Starts an engine with @words, behind what all have. */
static void engine_start(const char *words)
{
    struct child *child = &children[num_children++];
    char line[256], dir[96];
    char *argv[MAX_WORDS] = {"engine", "--dir", dir}, *rest = NULL;
    int argc = 3;

    (void)snprintf(dir, sizeof(dir), "%s/run", daemon_.dir);
    (void)snprintf(line, sizeof(line), "%s", words);
    (void)snprintf(child->path, sizeof(child->path), "%s/engine-%u", daemon_.dir, num_children);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(argc < MAX_WORDS - 1);
        argv[argc++] = word;
    }
    const char *program = getenv("ENGINE");
    assert_non_null(program);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        int out = open(child->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (out >= 0 && dup2(out, STDOUT_FILENO) >= 0)
            execv(program, argv);
        _exit(127);
    }
}

/* Until all engines that were started are done, each with exit status 0. */
static void engines_await(void)
{
    uint64_t end = now_ms() + ENGINES_MS;

    for (unsigned i = 0; i < num_children; i++) {
        int status = 0;
        pid_t found;
        if (children[i].pid == 0)
            continue; /* was done before */
        while ((found = waitpid(children[i].pid, &status, WNOHANG)) == 0 && now_ms() < end)
            (void)usleep(5000);
        assert_int_equal(found, children[i].pid);
        children[i].pid = 0;
        assert_int_equal(status, 0);
    }
}

/* The number after "name=" in what engine @at printed. */
static uint64_t number_of(unsigned at, const char *name)
{
    char text[1024] = "", key[32];
    FILE *in = fopen(children[at].path, "r");

    assert_non_null(in);
    text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
    fclose(in);
    (void)snprintf(key, sizeof(key), " %s=", name);
    const char *found = strstr(text, key);
    assert_non_null(found);
    return strtoull(found + strlen(key), NULL, 10);
}

static uint64_t sum_of(const char *name)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < num_children; i++)
        sum += number_of(i, name);
    return sum;
}

static void nothing_is_left(const struct daemon *daemon)
{
    stat_await(daemon, "pool_held", 0, 5000);
    stat_await(daemon, "pool_reserved", 0, 5000);
    stat_await(daemon, "pool_sequences", 0, 5000);
}

static void limit_set(const struct daemon *daemon, const char *tenant, uint64_t limit_bytes)
{
    struct kvpool *operator= operator_connect(daemon);
    const struct kvpool_request request = {
        .verb = KVPOOL_SET_QUOTA,
        .domain = tenant,
        .quota = {.has_limit = true, .limit_bytes = limit_bytes, .weight = 1}};

    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    kvpool_disconnect(operator);
}

static void a_system_prompt_is_computed_by_the_first_engine_only(void **state)
{
    engine_start("--seed 2");
    engines_await();
    assert_int_equal(number_of(0, "cached"), 0);
    engine_start("--seed 3");
    engine_start("--seed 4 --socket");
    engine_start("--seed 5");
    engines_await();
    for (unsigned i = 1; i < ENGINES; i++)
        assert_int_equal(number_of(i, "cached"), 320);
    /* The continuations of all share what was there at the fork, and copied one tail. */
    assert_int_equal(sum_of("shared"), ENGINES * (348 / 16));
    assert_int_equal(sum_of("copied"), ENGINES);
    assert_int_equal(sum_of("refusals"), 0);
    nothing_is_left(*state);
}

static void another_tenant_computes_everything_itself(void **state)
{
    engine_start("--seed 2");
    engines_await();
    engine_start("--seed 2 --token token-of-tenant-b-0123");
    engines_await();
    assert_int_equal(number_of(1, "cached"), 0);
    assert_int_equal(number_of(1, "computed"), number_of(0, "computed"));
    nothing_is_left(*state);
}

/* Two of them are equal: they fill the same blocks, and one fill may wait for the other. */
static void engines_of_all_kinds_compute_right_together(void **state)
{
    engine_start("--seed 2 --window 100");
    engine_start("--seed 2 --window 100");
    engine_start("--seed 3 --dtype f16 --rounds 2");
    engine_start("--seed 4 --dtype f16 --socket --window 40");
    engines_await();
    nothing_is_left(*state);
}

static void engines_in_a_pool_that_is_too_small_take_turns(void **state)
{
    engine_start("--seed 2 --rounds 2");
    engine_start("--seed 3 --system-seed 2 --rounds 2");
    engine_start("--seed 4 --system-seed 3 --rounds 2 --socket");
    engine_start("--seed 5 --rounds 2 --window 60");
    engines_await();
    assert_true(sum_of("refusals") > 0);
    nothing_is_left(*state);
}

/* 30 blocks: one sequence of 23 and its fork; the other tenant has no limit, and is not refused. */
static void engines_at_their_limit_take_turns(void **state)
{
    limit_set(*state, "a", 32 * BLOCK_BYTES);
    engine_start("--seed 2");
    engine_start("--seed 3 --system-seed 2");
    engine_start("--seed 4 --system-seed 3");
    engine_start("--seed 5 --token token-of-tenant-b-0123");
    engines_await();
    assert_true(sum_of("refusals") > 0);
    assert_int_equal(number_of(3, "refusals"), 0);
    nothing_is_left(*state);
}

#define ROOMY(name) cmocka_unit_test_setup_teardown(name, start_roomy, finish)
#define SMALL(name) cmocka_unit_test_setup_teardown(name, start_small, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOMY(a_system_prompt_is_computed_by_the_first_engine_only),
        ROOMY(another_tenant_computes_everything_itself),
        ROOMY(engines_of_all_kinds_compute_right_together),
        SMALL(engines_in_a_pool_that_is_too_small_take_turns),
        ROOMY(engines_at_their_limit_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
