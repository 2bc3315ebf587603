/* tests/e2e/test_bad_disk.c - a disk that errs, lies, stalls, fills up: misses, and nobody waits
 * longer than he said. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/faulty.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 4, FLOOD = 8, TOKENS = BLOCKS * STORE_TOKENS };

static struct daemon daemon_;
static struct store_disk disk;
static struct faults *faults;
static char faults_path[64];

static int start(void **state)
{
    (void)state;
    (void)snprintf(faults_path, sizeof(faults_path), "/tmp/kvpool-faults-XXXXXX");
    int fd = mkstemp(faults_path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*faults)), 0);
    faults = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(faults, MAP_FAILED);
    assert_int_equal(close(fd), 0);
    assert_int_equal(setenv("KVPOOLD_FAULTS", faults_path, 1), 0);
    store_start(&daemon_, &disk, "keep: none\ndisk-deadline: 1s\n");
    return 0;
}

static int finish(void **state)
{
    (void)state;
    store_finish(&daemon_, &disk);
    assert_int_equal(munmap(faults, sizeof(*faults)), 0);
    assert_int_equal(unlink(faults_path), 0);
    return 0;
}

static void a_read_that_lies_is_a_miss_and_the_rest_is_found(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    atomic_store(&faults->flip_reads, 1);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_true(result.matched < TOKENS); /* carried out again: what was before the bad block */
    assert_int_equal(stat_read(&daemon_, "disk_corrupt"), 1);
    assert_int_equal(store_get(kvpool, model, 2, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_disconnect(kvpool);
}

static void a_resume_whose_blocks_are_lost_runs_them_again(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    assert_int_equal(store_put(kvpool, model, 1000, BLOCKS, true), 0);
    assert_int_equal(kvpool_preempt(kvpool, 1000), 0);
    store_settle(&daemon_);
    store_flood(&daemon_, kvpool, model, 1, FLOOD);
    atomic_store(&faults->flip_reads, 1);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    assert_int_equal(kvpool_resume(kvpool, 1000, &unfilled, &result), 0);
    assert_true(result.matched < TOKENS);
    assert_int_equal(result.length, TOKENS);
    assert_int_equal(kvpool_release(kvpool, 1000), 0);
    kvpool_disconnect(kvpool);
}

/* One that is named beside the loop, and kept for its second try. */
static void a_long_prompt_is_carried_out_again(void **state)
{
    enum { LONG = 400 * STORE_TOKENS };
    static uint32_t tokens[LONG];
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 2 + FLOOD);
    for (uint32_t seed = 1; seed <= 2; seed++) {
        tokens_make(tokens, LONG, seed); /* begins as the prompt of 4 blocks */
        const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = LONG};
        const struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                                .sequence = seed,
                                                .prompt = &prompt,
                                                .unfilled = true,
                                                .has_take = true};
        atomic_store(&faults->flip_reads, seed == 1);
        assert_int_equal(kvpool_call(kvpool, &allocate, &result), 0);
        if (seed == 1)
            assert_true(result.matched < TOKENS);
        else
            assert_int_equal(result.matched, TOKENS);
        store_check(kvpool, seed, seed, (uint32_t)(result.matched / STORE_TOKENS));
    }
    kvpool_disconnect(kvpool);
    stat_await(&daemon_, "requests_held", 0, 1000);
}

static void writes_that_fail_cost_misses_until_the_disk_is_well(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    atomic_store(&faults->write_error, -EIO);
    for (uint32_t seed = 1; seed <= 2 * FLOOD; seed++) {
        if (seed == FLOOD + 1)
            store_settle(&daemon_); /* what a copy reads is not evicted while it fails */
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
    }
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_true(tier_stat(&daemon_, "tier_stores_failed", "disk") > 0);
    assert_int_equal(tier_stat(&daemon_, "tier_evictable", "disk"), 0);
    atomic_store(&faults->write_error, 0);
    stat_await(&daemon_, "disk_state", 0, 20000);
    store_flood(&daemon_, kvpool, model, 100, 1 + FLOOD);
    assert_int_equal(store_get(kvpool, model, 100, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_disconnect(kvpool);
}

static void a_full_disk_still_gives_what_it_has(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    atomic_store(&faults->write_error, -ENOSPC);
    for (uint32_t seed = 100; seed < 100 + FLOOD; seed++)
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
    assert_int_equal(stat_read(&daemon_, "disk_state"), 1);
    assert_int_equal(tier_stat(&daemon_, "tier_mode", "disk"), 1); /* read-only */
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    atomic_store(&faults->write_error, 0);
    stat_await(&daemon_, "disk_state", 0, 20000);
    assert_int_equal(tier_stat(&daemon_, "tier_mode", "disk"), 0);
    kvpool_disconnect(kvpool);
}

/* It can be cancelled, it ends with its deadline, and what it would have had is as before. */
static void an_allocation_waits_for_a_disk_that_stalls_as_long_as_it_said(void **state)
{
    uint32_t tokens[TOKENS];
    struct kvpool_result result;
    uint64_t ticket;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    const struct kvpool_prompt prompt = store_prompt(model, 1, BLOCKS, tokens);
    struct kvpool_request allocate = {.verb = KVPOOL_ALLOCATE,
                                      .sequence = 7,
                                      .prompt = &prompt,
                                      .unfilled = true,
                                      .deadline_ms = 200};
    atomic_store(&faults->hold_reads, 1);
    uint64_t began = now_ms();
    assert_int_equal(kvpool_call(kvpool, &allocate, &result), KVPOOL_TIMEOUT);
    assert_in_range(now_ms() - began, 150, 900);
    assert_int_equal(kvpool_release(kvpool, 7), KVPOOL_NOT_FOUND);
    allocate.deadline_ms = 5000;
    assert_int_equal(kvpool_submit(kvpool, &allocate, &ticket), 0);
    began = now_ms();
    assert_int_equal(kvpool_cancel(kvpool, ticket), 0);
    assert_int_equal(kvpool_wait(kvpool, ticket, &result), KVPOOL_CANCELLED);
    assert_in_range(now_ms() - began, 0, 500);
    assert_int_equal(kvpool_release(kvpool, 7), KVPOOL_NOT_FOUND);
    /* Nobody else waits. */
    began = now_ms();
    assert_int_equal(store_put(kvpool, model, 500, BLOCKS, false), 0);
    assert_in_range(now_ms() - began, 0, 500);
    atomic_store(&faults->hold_reads, 0);
    kvpool_disconnect(kvpool);
    stat_await(&daemon_, "pool_held", 0, 5000);
}

static void an_engine_that_dies_while_it_waits_leaves_nothing(void **state)
{
    uint32_t tokens[TOKENS];
    uint64_t ticket;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    const struct kvpool_prompt prompt = store_prompt(model, 1, BLOCKS, tokens);
    const struct kvpool_request allocate = {
        .verb = KVPOOL_ALLOCATE, .sequence = 7, .prompt = &prompt};
    atomic_store(&faults->hold_reads, 1);
    assert_int_equal(kvpool_submit(kvpool, &allocate, &ticket), 0);
    assert_int_equal(kvpool_flush(kvpool), 0);
    (void)usleep(50000);
    kvpool_disconnect(kvpool);
    stat_await(&daemon_, "pool_held", 0, 5000);
    atomic_store(&faults->hold_reads, 0);
    stat_await(&daemon_, "pool_reserved", 0, 10000);
}

/* Stores wait for nothing that a verb needs; once the disk is back, so are they. */
static void a_disk_that_hangs_is_gone_without(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    atomic_store(&faults->hold_writes, 1);
    uint64_t worst = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint64_t began = now_ms();
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
        worst = now_ms() - began > worst ? now_ms() - began : worst;
    }
    assert_in_range(worst, 0, 900); /* shorter than the disk's deadline */
    atomic_store(&faults->hold_writes, 0);
    stat_await(&daemon_, "disk_state", 0, 20000);
    stat_await(&daemon_, "disk_queued", 0, 20000);
    store_flood(&daemon_, kvpool, model, 1000, 1 + FLOOD);
    assert_int_equal(store_get(kvpool, model, 1000, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    kvpool_disconnect(kvpool);
}

static void random_errors_are_misses(void **state)
{
    struct kvpool_result result;
    uint64_t matched = 0;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    atomic_store(&faults->one_in, 7);
    for (uint32_t seed = 1; seed <= 60; seed++)
        assert_int_equal(store_put(kvpool, model, seed % 30 + 1, BLOCKS, false), 0);
    for (uint32_t seed = 1; seed <= 90; seed++) {
        assert_int_equal(store_get(kvpool, model, seed % 30 + 1, BLOCKS, &result), 0);
        matched += result.matched;
    }
    assert_true(matched > 0);
    atomic_store(&faults->one_in, 0);
    kvpool_disconnect(kvpool);
}

/* It answers, and goes on without the disk until that comes. */
static void a_disk_that_is_slow_to_open_delays_nobody(void **state)
{
    struct kvpool_result result;

    (void)state;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    kvpool_disconnect(kvpool);
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    atomic_store(&faults->hold_probes, 1);
    uint64_t began = now_ms();
    daemon_restart(&daemon_);
    print_message("answers after %lu ms\n", now_ms() - began);
    assert_in_range(now_ms() - began, 0, 2000); /* about 200 ms where nothing else runs */
    assert_int_equal(stat_read(&daemon_, "disk_phase"), 1);
    assert_int_equal(tier_stat(&daemon_, "tier_mode", "disk"), 2); /* off */
    kvpool = engine_connect(&daemon_, NULL, 0);
    model = store_register(kvpool);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(store_put(kvpool, model, 500, BLOCKS, false), 0);
    atomic_store(&faults->hold_probes, 0);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_read_that_lies_is_a_miss_and_the_rest_is_found),
        TEST(a_resume_whose_blocks_are_lost_runs_them_again),
        TEST(a_long_prompt_is_carried_out_again),
        TEST(writes_that_fail_cost_misses_until_the_disk_is_well),
        TEST(a_full_disk_still_gives_what_it_has),
        TEST(an_allocation_waits_for_a_disk_that_stalls_as_long_as_it_said),
        TEST(an_engine_that_dies_while_it_waits_leaves_nothing),
        TEST(a_disk_that_hangs_is_gone_without),
        TEST(random_errors_are_misses),
        TEST(a_disk_that_is_slow_to_open_delays_nobody),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
