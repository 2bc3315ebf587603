/*
 * tests/e2e/test_environment.c - machines as they are: the daemon refuses to start and says what to
 * do, or starts and says what it goes without.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, FLOOD = 8, TOKENS = BLOCKS * STORE_TOKENS, NOBODY = 65534 };

static struct daemon daemon_, other;
static struct store_disk disk;
static char said[1 << 16]; /* by the last daemon that refused */

static const char base[] = "pool-bytes: 2MiB\nwatermark-pages: 0\nahead-bytes: 1MiB\n"
                           "disk-granule-bytes: 256KiB\n";

/* ---- daemons that refuse -------------------------------------------------------------------- */

static void errors_to_file(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/said", daemon_.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)dup2(fd, STDERR_FILENO);
}

/* Its exit status, and what it said. It has to end by itself. */
static int refuse(void)
{
    char path[128];
    int status;

    daemon_prepare = errors_to_file;
    daemon_spawn(&daemon_);
    daemon_prepare = NULL;
    uint64_t end = now_ms() + 30000;
    pid_t pid;
    while ((pid = waitpid(daemon_.pid, &status, WNOHANG)) == 0 && now_ms() < end)
        (void)usleep(5000);
    if (pid == 0)
        fail_msg("it started");
    daemon_.pid = 0;
    (void)snprintf(path, sizeof(path), "%s/said", daemon_.dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    (void)fclose(file);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_refuses(const char *text)
{
    assert_int_not_equal(refuse(), 0);
    if (!strstr(said, text))
        fail_msg("nothing of \"%s\" in what it said: %s", text, said);
}

static void make(const char *max_bytes, const char *more)
{
    char config[512];

    if (disk.dir[0] == '\0') {
        (void)snprintf(disk.dir, sizeof(disk.dir), "/tmp/kvpool-disk-XXXXXX");
        assert_non_null(mkdtemp(disk.dir));
    }
    (void)snprintf(config, sizeof(config), "%sdisk-directory: %s\ndisk-max-bytes: %s\n%s", base,
                   disk.dir, max_bytes, more);
    daemon_make(&daemon_, config);
}

static int finish(void **state)
{
    (void)state;
    daemon_prepare = NULL;
    if (other.dir[0] != '\0')
        daemon_finish(&other);
    other = (struct daemon){0};
    (void)umount2(disk.dir, MNT_DETACH); /* if it is one */
    store_finish(&daemon_, &disk);
    daemon_ = (struct daemon){0};
    disk = (struct store_disk){0};
    return 0;
}

/* An engine's day. How many tokens of it were found below the pool. */
static uint64_t use_it(void)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    struct kvpool_result result;

    store_flood(&daemon_, kvpool, model, 1, 1 + FLOOD);
    assert_int_equal(store_get(kvpool, model, 1, BLOCKS, &result), 0);
    kvpool_disconnect(kvpool);
    return result.below;
}

static void file_write(const char *name, off_t offset, const void *bytes, size_t num_bytes)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", disk.dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, num_bytes, offset), (ssize_t)num_bytes);
    assert_int_equal(close(fd), 0);
}

/* ---- the directory -------------------------------------------------------------------------- */

static void a_directory_has_one_owner(void **state)
{
    char pid[32];

    (void)state;
    make("32MiB", "");
    daemon_restart(&daemon_);
    (void)use_it();
    other = daemon_; /* another daemon, the same directory of the disk */
    make("32MiB", "");
    assert_refuses("in use");
    (void)snprintf(pid, sizeof(pid), "%d", (int)other.pid);
    assert_non_null(strstr(said, pid));
    assert_int_equal(daemon_stop(&other, SIGKILL), 128 + SIGKILL);
    daemon_restart(&daemon_); /* nothing of it is in the way */
}

static void an_unknown_version_is_not_touched(void **state)
{
    const uint32_t version = 99;

    (void)state;
    make("32MiB", "");
    daemon_restart(&daemon_);
    (void)use_it();
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    file_write("blocks", 8, &version, sizeof(version));
    assert_refuses("version 99");
    assert_non_null(strstr(said, "remove the file `blocks`"));
}

static void what_is_not_ours_is_not_touched(void **state)
{
    char bytes[8192];

    (void)state;
    make("32MiB", "");
    memset(bytes, 'x', sizeof(bytes));
    file_write("blocks", 0, bytes, sizeof(bytes));
    assert_refuses("something else than a disk tier");
    char path[128];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%s/blocks", disk.dir);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, sizeof(bytes));
}

static void what_need_not_be_is_gone_without(void **state)
{
    (void)state;
    make("32MiB", "disk-optional: true\n");
    file_write("blocks", 0, "something", 9);
    daemon_restart(&daemon_);
    assert_true(has_fallback(&daemon_, "disk_off"));
    assert_int_equal(use_it(), 0);
    assert_int_equal(stat_read(&daemon_, "disk_phase"), 0);
}

static void a_directory_that_is_not_there_is_asked_for(void **state)
{
    (void)state;
    make("32MiB", "");
    assert_int_equal(rmdir(disk.dir), 0);
    assert_refuses("create the directory");
    assert_int_equal(mkdir(disk.dir, 0700), 0);
}

/* ---- file systems --------------------------------------------------------------------------- */

/* Mounts of this test are nobody else's. */
static bool can_mount(void)
{
    static int answer = -1;

    if (answer < 0)
        answer =
            unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (!answer)
        print_message("skipped: needs CAP_SYS_ADMIN\n");
    return answer;
}

static void a_cap_over_the_free_space_is_refused(void **state)
{
    (void)state;
    make("32MiB", "");
    if (!can_mount())
        skip();
    assert_int_equal(mount("none", disk.dir, "tmpfs", 0, "size=8m"), 0);
    assert_refuses("No space left");
    assert_non_null(strstr(said, "make room, or lower the ceiling"));
    assert_int_equal(umount(disk.dir), 0);
}

static void a_file_system_without_o_direct_is_said(void **state)
{
    (void)state;
    make("32MiB", "");
    if (!can_mount())
        skip();
    assert_int_equal(mount("none", disk.dir, "tmpfs", 0, "size=64m"), 0);
    daemon_restart(&daemon_); /* newer kernels have O_DIRECT there */
    assert_true(use_it() > 0);
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    assert_int_equal(umount(disk.dir), 0);
}

static void a_read_only_file_system_is_refused(void **state)
{
    (void)state;
    make("32MiB", "");
    if (!can_mount())
        skip();
    assert_int_equal(mount("none", disk.dir, "tmpfs", MS_RDONLY, "size=64m"), 0);
    assert_refuses("mount the file system for writing");
    assert_int_equal(umount(disk.dir), 0);
}

/* ---- what a process may do ------------------------------------------------------------------ */

static void forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(126);
}

static void without_io_uring_it_goes_on_with_threads(void **state)
{
    (void)state;
    make("32MiB", "");
    daemon_prepare = forbid_io_uring;
    daemon_restart(&daemon_);
    assert_true(has_fallback(&daemon_, "no-io-uring"));
    assert_true(use_it() > 0);
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    daemon_prepare = NULL;
    daemon_restart(&daemon_); /* the same file, the other way */
    stat_await(&daemon_, "disk_phase", 3, 20000);
    assert_false(has_fallback(&daemon_, "no-io-uring"));
    struct kvpool_result result;
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    assert_int_equal(store_get(kvpool, store_register(kvpool), 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_disconnect(kvpool);
}

/* Root is exempt from the limit. */
static void become_nobody(void)
{
    const struct rlimit limit = {64 << 10, 64 << 10};

    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 ||
        setuid(NOBODY) != 0)
        _exit(126);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* which the new ids reset */
}

static void give_to_nobody(const char *dir)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "chown -R %d:%d %s", NOBODY, NOBODY, dir);
    assert_int_equal(system(command), 0);
}

static void nobody_with_64_kib_of_locked_memory_is_served(void **state)
{
    (void)state;
    make("32MiB", "host-tier-bytes: 2MiB\nhost-ahead-bytes: 1MiB\n");
    if (getuid() != 0) {
        print_message("skipped: needs to be root, to become nobody\n");
        skip();
    }
    give_to_nobody(daemon_.dir);
    give_to_nobody(disk.dir);
    daemon_prepare = become_nobody;
    daemon_restart(&daemon_);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 3 * FLOOD);
    assert_int_equal(store_get_all(&daemon_, kvpool, model, 3 * FLOOD), 3 * FLOOD * TOKENS);
    assert_true(tier_stat(&daemon_, "tier_fetches", "host") > 0);
    assert_true(stat_read(&daemon_, "host_pinned_bytes") <= (64 << 10));
    assert_true(has_fallback(&daemon_, "host-not-pinned"));
    kvpool_disconnect(kvpool);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_directory_has_one_owner),
        TEST(an_unknown_version_is_not_touched),
        TEST(what_is_not_ours_is_not_touched),
        TEST(what_need_not_be_is_gone_without),
        TEST(a_directory_that_is_not_there_is_asked_for),
        TEST(a_cap_over_the_free_space_is_refused),
        TEST(a_file_system_without_o_direct_is_said),
        TEST(a_read_only_file_system_is_refused),
        TEST(without_io_uring_it_goes_on_with_threads),
        TEST(nobody_with_64_kib_of_locked_memory_is_served),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
