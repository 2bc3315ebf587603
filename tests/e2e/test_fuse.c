/*
 * tests/e2e/test_fuse.c - a disk that is full, over its quota, read-only, gone for a while or
 * stuck, as the kernel knows it: a FUSE file system under the daemon.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/fuse_disk.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 4, FLOOD = 8, TOKENS = BLOCKS * STORE_TOKENS, ROUNDS = 400 };

static struct daemon daemon_;
static struct store_disk disk;    /* where it is mounted */
static struct store_disk backing; /* what is below */
static struct fuse_control *control;
static char control_path[96];
static pid_t fuse_pid;

static const char config[] = "keep: none\ndisk-deadline: 1s\n";

/* ---- the file system ------------------------------------------------------------------------ */

static bool is_mounted(void)
{
    struct stat one, other;

    return stat(disk.dir, &one) == 0 && stat("/tmp", &other) == 0 && one.st_dev != other.st_dev;
}

static void disk_unmount(void)
{
    atomic_store(&control->is_stalled, 0);
    (void)umount2(disk.dir, MNT_DETACH);
    (void)kill(fuse_pid, SIGKILL);
    (void)waitpid(fuse_pid, NULL, 0);
    fuse_pid = 0;
}

/* False: this machine has no FUSE, or not for us. */
static bool disk_mount(void)
{
    uint64_t end = now_ms() + 10000;

    (void)snprintf(disk.dir, sizeof(disk.dir), "/tmp/kvpool-disk-XXXXXX");
    assert_non_null(mkdtemp(disk.dir));
    (void)snprintf(backing.dir, sizeof(backing.dir), "/tmp/kvpool-back-XXXXXX");
    assert_non_null(mkdtemp(backing.dir));
    (void)snprintf(control_path, sizeof(control_path), "%s.control", disk.dir);
    int fd = open(control_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*control)), 0);
    control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(control, MAP_FAILED);
    (void)close(fd);
    const char *program = getenv("FUSE_DISK");
    assert_non_null(program);
    fuse_pid = fork();
    assert_true(fuse_pid >= 0);
    if (fuse_pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, control_path, backing.dir, disk.dir, (char *)NULL);
        _exit(127);
    }
    while (!is_mounted() && now_ms() < end) {
        if (waitpid(fuse_pid, NULL, WNOHANG) != 0)
            return false;
        (void)usleep(5000);
    }
    return is_mounted();
}

static int prepare(void **state)
{
    (void)state;
    /* Mounts of this test are nobody else's, where that may be said. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    if (daemon_.pid > 0)
        (void)kill(daemon_.pid, SIGKILL);
    if (fuse_pid > 0)
        disk_unmount();
    (void)rmdir(disk.dir);
    disk = backing; /* what is to be removed */
    store_finish(&daemon_, &disk);
    (void)munmap(control, sizeof(*control));
    (void)unlink(control_path);
    daemon_ = (struct daemon){0};
    return 0;
}

static void make(void)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "pool-bytes: 2MiB\nwatermark-pages: 0\nahead-bytes: 1MiB\n"
                   "disk-directory: %s\ndisk-max-bytes: 32MiB\ndisk-granule-bytes: 256KiB\n%s",
                   disk.dir, config);
    daemon_make(&daemon_, text);
}

static void begin(void)
{
    if (!disk_mount()) {
        print_message("skipped: no FUSE file system can be mounted here\n");
        fuse_pid = 0;
        make();
        skip();
    }
    make();
    daemon_restart(&daemon_);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* The daemon knows up to a second later than the disk. */
static void await_mode(uint64_t mode)
{
    uint64_t end = now_ms() + 20000;

    while (tier_stat(&daemon_, "tier_mode", "disk") != mode) {
        assert_true(now_ms() < end);
        (void)usleep(5000);
    }
}

static uint64_t found_of(struct kvpool *kvpool, uint32_t model, uint32_t seed)
{
    struct kvpool_result result;

    assert_int_equal(store_get(kvpool, model, seed, BLOCKS, &result), 0);
    return result.matched;
}

static void over_the_quota_at_start_is_refused(void **state)
{
    int status;

    (void)state;
    if (!disk_mount()) {
        fuse_pid = 0;
        make();
        skip();
    }
    make();
    atomic_store(&control->fallocate_error, EDQUOT);
    daemon_spawn(&daemon_);
    assert_int_equal(waitpid(daemon_.pid, &status, 0), daemon_.pid);
    daemon_.pid = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    atomic_store(&control->fallocate_error, 0);
    daemon_restart(&daemon_); /* nothing half-made is in the way */
    stat_await(&daemon_, "disk_phase", 3, 20000);
}

/* What cannot be written is not there; what is there is read; and it is written again. */
static void what_cannot_be_written_costs_misses_only(void **state)
{
    static const struct {
        int error, disk_state;
    } rows[] = {{ENOSPC, 1}, {EDQUOT, 1}, {EROFS, 2}};

    (void)state;
    begin();
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool), seed = 1000;
    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
        atomic_store(&control->write_error, rows[row].error);
        for (uint32_t at = 0; at < 2 * FLOOD; at++)
            assert_int_equal(store_put(kvpool, model, seed++, BLOCKS, false), 0);
        stat_await(&daemon_, "disk_state", (uint64_t)rows[row].disk_state, 5000);
        assert_int_equal(found_of(kvpool, model, 1), TOKENS);
        assert_true(tier_stat(&daemon_, "tier_stores_failed", "disk") > 0);
        atomic_store(&control->write_error, 0);
        await_mode(0);
        store_flood(&daemon_, kvpool, model, seed, 1 + FLOOD);
        assert_int_equal(found_of(kvpool, model, seed), TOKENS);
        seed += 100;
    }
    kvpool_disconnect(kvpool);
}

static void a_disk_that_was_gone_comes_back(void **state)
{
    (void)state;
    begin();
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 3 * FLOOD);
    atomic_store(&control->read_error, EIO);
    atomic_store(&control->write_error, EIO);
    for (uint32_t seed = 1; seed <= FLOOD; seed++)
        (void)found_of(kvpool, model, seed);                 /* misses */
    await_mode(2);                                           /* off */
    assert_int_equal(found_of(kvpool, model, 2 * FLOOD), 0); /* is not even asked for */
    atomic_store(&control->read_error, 0);
    atomic_store(&control->write_error, 0);
    await_mode(0);
    assert_int_equal(found_of(kvpool, model, 2 * FLOOD), TOKENS); /* it was there all the time */
    kvpool_disconnect(kvpool);
}

/* ---- a disk that is stuck ------------------------------------------------------------------- */

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

/* Microseconds that one prompt of what is in the pool takes: the middle, and all but 1 of 100. */
static void hot_verbs(struct kvpool *kvpool, uint32_t model, uint64_t *out_median,
                      uint64_t *out_p99)
{
    static uint64_t times[ROUNDS];
    uint32_t tokens[TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, 500, BLOCKS, tokens);
    struct kvpool_result result;
    struct timespec from, to;

    for (int at = 0; at < ROUNDS; at++) {
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, NULL, &result), 0);
        assert_int_equal(kvpool_release(kvpool, 1), 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        assert_int_equal(result.matched, TOKENS);
        times[at] =
            (uint64_t)((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
        (void)usleep(500);
    }
    qsort(times, ROUNDS, sizeof(times[0]), compare);
    *out_median = times[ROUNDS / 2];
    *out_p99 = times[ROUNDS * 99 / 100];
}

/* Prompts that are on disk, asked for one after the other by somebody else. */
static void impatient(uint32_t num_prompts)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool), tokens[TOKENS];
    struct kvpool_result result;

    for (uint64_t at = 0;; at++) {
        const struct kvpool_prompt prompt =
            store_prompt(model, 1 + (uint32_t)at % num_prompts, BLOCKS, tokens);
        const struct kvpool_request request = {.verb = KVPOOL_ALLOCATE,
                                               .sequence = 100 + at,
                                               .prompt = &prompt,
                                               .unfilled = true,
                                               .has_take = true,
                                               .deadline_ms = 100};
        int answer = kvpool_call(kvpool, &request, &result);
        if (answer == 0)
            (void)kvpool_release(kvpool, 100 + at);
        (void)usleep(2000);
    }
}

static void nobody_else_waits_for_a_disk_that_is_stuck(void **state)
{
    uint64_t median, p99, stuck_median, stuck_p99;

    (void)state;
    begin();
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    struct kvpool *b = engine_connect(&daemon_, "token-of-tenant-b-0123", 0);
    uint32_t model = store_register(kvpool), model_b = store_register(b);
    store_flood(&daemon_, kvpool, model, 1, 3 * FLOOD);
    assert_int_equal(store_put(b, model_b, 500, BLOCKS, true), 0); /* held: it stays in the pool */
    hot_verbs(b, model_b, &median, &p99);
    atomic_store(&control->is_stalled, 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        impatient(FLOOD);
    }
    uint64_t end = now_ms() + 5000;
    while (atomic_load(&control->num_stalled) == 0)
        assert_true(now_ms() < end);
    hot_verbs(b, model_b, &stuck_median, &stuck_p99);
    print_message("hot verbs of another tenant, us: median %lu, with the disk stuck %lu; p99 %lu, "
                  "%lu\n",
                  median, stuck_median, p99, stuck_p99);
    assert_true(stuck_median <= 5 * median || stuck_median < 2000);
    assert_true(stuck_p99 <= 5 * p99 || stuck_p99 < 50000); /* of a machine full of tests */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    atomic_store(&control->is_stalled, 0);
    await_mode(0);
    stat_await(&daemon_, "disk_queued", 0, 20000);
    stat_await(&daemon_, "disk_quarantined", 0, 20000);
    assert_int_equal(found_of(kvpool, model, 2 * FLOOD), TOKENS);
    kvpool_disconnect(kvpool);
    kvpool_disconnect(b);
}

/* A daemon that starts over a stuck disk serves from memory until it has it. */
static void a_start_does_not_wait_for_a_disk_that_is_stuck(void **state)
{
    (void)state;
    begin();
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    store_flood(&daemon_, kvpool, store_register(kvpool), 1, 1 + FLOOD);
    kvpool_disconnect(kvpool);
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    atomic_store(&control->is_stalled, 1);
    daemon_restart(&daemon_);
    kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    assert_int_equal(stat_read(&daemon_, "disk_phase"), 1);
    assert_int_equal(found_of(kvpool, model, 1), 0);
    assert_int_equal(store_put(kvpool, model, 2000, BLOCKS, false), 0);
    assert_int_equal(found_of(kvpool, model, 2000), TOKENS);
    atomic_store(&control->is_stalled, 0);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    assert_int_equal(found_of(kvpool, model, 1), TOKENS);
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(over_the_quota_at_start_is_refused),
        TEST(what_cannot_be_written_costs_misses_only),
        TEST(a_disk_that_was_gone_comes_back),
        TEST(nobody_else_waits_for_a_disk_that_is_stuck),
        TEST(a_start_does_not_wait_for_a_disk_that_is_stuck),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
