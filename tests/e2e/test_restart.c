/* tests/e2e/test_restart.c - what a daemon left, however it ended, the next one finds. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, PROMPTS = 12, TOKENS = BLOCKS * STORE_TOKENS };

static struct daemon daemon_;
static struct store_disk disk;

static int finish(void **state)
{
    (void)state;
    store_finish(&daemon_, &disk);
    return 0;
}

/* Everything is on disk, and nothing else outlives the daemon. */
static void start_and_fill(void)
{
    store_start(&daemon_, &disk, "store-when: at-once\nkeep: none\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    assert_int_equal(tier_stat(&daemon_, "tier_stores", "disk"), PROMPTS * BLOCKS);
    kvpool_disconnect(kvpool);
}

/* How many tokens of all prompts are found, every block being exact. */
static uint64_t get_all(void)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    struct kvpool_result result;
    uint64_t matched = 0;

    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        assert_int_equal(store_get(kvpool, model, seed, BLOCKS, &result), 0);
        matched += result.matched;
    }
    kvpool_disconnect(kvpool);
    return matched;
}

static void restart_after(int signal)
{
    int status = daemon_stop(&daemon_, signal);

    assert_int_equal(status, signal == SIGKILL ? 128 + SIGKILL : 0);
    daemon_restart(&daemon_);
    stat_await(&daemon_, "disk_phase", 3, 20000);
}

static void check_slots(void)
{
    uint64_t used = stat_read(&daemon_, "disk_used_granules");
    uint64_t slots = tier_stat(&daemon_, "tier_free", "disk") +
                     tier_stat(&daemon_, "tier_evictable", "disk") +
                     tier_stat(&daemon_, "tier_reserved", "disk");

    assert_int_equal(slots, used * 4); /* of 64 KiB in granules of 256 KiB */
    assert_int_equal(tier_stat(&daemon_, "tier_charged_bytes", "disk"), used * (256 << 10));
}

static void a_clean_stop_loses_nothing_on_disk(void **state)
{
    (void)state;
    start_and_fill();
    restart_after(SIGTERM);
    assert_int_equal(stat_read(&daemon_, "disk_restored_blocks"), PROMPTS * BLOCKS);
    check_slots();
    assert_int_equal(get_all(), PROMPTS * TOKENS);
    assert_int_equal(tier_stat(&daemon_, "tier_hit_tokens", "disk"), PROMPTS * TOKENS);
}

static void a_killed_daemon_loses_nothing_that_was_stored(void **state)
{
    (void)state;
    start_and_fill();
    for (int time = 0; time < 3; time++) {
        restart_after(SIGKILL);
        check_slots();
        assert_int_equal(get_all(), PROMPTS * TOKENS);
    }
}

static void what_was_cleared_is_not_found_after_a_restart(void **state)
{
    (void)state;
    start_and_fill();
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR};
    assert_int_equal(kvpool_call(operator, &clear, NULL), 0);
    kvpool_disconnect(operator);
    restart_after(SIGKILL);
    assert_int_equal(get_all(), 0);
    check_slots();
}

/* `kvpoold fsck`: its exit status. */
static int fsck(const char *option)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        execl(getenv("KVPOOLD"), "kvpoold", "fsck", disk.dir, option, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Bits flip while nobody looks: misses, and never a wrong byte. */
static void spoilt_blocks_are_misses(void **state)
{
    char path[128];
    uint8_t byte;

    (void)state;
    start_and_fill();
    assert_int_equal(fsck("--data"), 2); /* a daemon has it */
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    assert_int_equal(fsck("--data"), 0);
    (void)snprintf(path, sizeof(path), "%s/blocks", disk.dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t end = lseek(fd, 0, SEEK_END);
    for (off_t at = end - (off_t)125 * (256 << 10); at < end; at += 3 * (64 << 10)) {
        assert_int_equal(pread(fd, &byte, 1, at + 17), 1); /* each third slot of the data */
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at + 17), 1);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(fsck(NULL), 0); /* headers are well */
    assert_int_equal(fsck("--data"), 1);
    assert_int_equal(fsck("--nothing"), 2);
    daemon_restart(&daemon_);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    uint64_t matched = get_all();
    assert_in_range(matched, TOKENS, PROMPTS * TOKENS / 2);
    assert_in_range(stat_read(&daemon_, "disk_corrupt"), PROMPTS, PROMPTS * BLOCKS / 2);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clean_stop_loses_nothing_on_disk),
        TEST(a_killed_daemon_loses_nothing_that_was_stored),
        TEST(what_was_cleared_is_not_found_after_a_restart),
        TEST(spoilt_blocks_are_misses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
