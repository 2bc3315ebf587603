/*
 * tests/e2e/test_fdstore.c - run by systemd, memory outlives the daemon in its descriptor store. A
 * thread stands in for systemd: it hears what a service says, and starts the next one with what it
 * has.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_STORE = 64, MAX_NAME = 64, FIRST_FD = 3, BLOCKS = 4, PROMPTS = 6 };

static struct daemon daemon_;
static struct store_disk disk;

/* ---- what systemd does ---------------------------------------------------------------------- */

static struct {
    int fd;
    int room; /* descriptors that it takes */
    pthread_t thread;
    _Atomic bool must_stop;
    pthread_mutex_t lock; /* of the rest */
    char names[MAX_STORE][MAX_NAME];
    int fds[MAX_STORE];
    int num;
    uint64_t num_stored, num_refused, num_barriers, num_ready;
} manager = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget(const char *name)
{
    for (int at = 0; at < manager.num; at++) {
        if (strcmp(manager.names[at], name) != 0)
            continue;
        (void)close(manager.fds[at]);
        manager.num--;
        manager.fds[at] = manager.fds[manager.num];
        memcpy(manager.names[at], manager.names[manager.num], MAX_NAME);
        at--;
    }
}

static void store(const char *name, int fd)
{
    if (manager.num == manager.room || manager.num == MAX_STORE) {
        (void)close(fd);
        manager.num_refused++;
        return;
    }
    (void)snprintf(manager.names[manager.num], MAX_NAME, "%s", name);
    manager.fds[manager.num++] = fd;
    manager.num_stored++;
}

static void hear(char *text, int fd)
{
    char name[MAX_NAME] = "";

    (void)pthread_mutex_lock(&manager.lock);
    if (strstr(text, "BARRIER=1")) {
        (void)close(fd); /* done with all before it */
        manager.num_barriers++;
    } else if (sscanf(text, "FDSTOREREMOVE=1\nFDNAME=%63s", name) == 1) {
        forget(name);
    } else if (strstr(text, "FDSTORE=1") && strstr(text, "FDNAME=") && fd >= 0) {
        (void)sscanf(strstr(text, "FDNAME="), "FDNAME=%63s", name);
        store(name, fd);
    } else {
        manager.num_ready += strstr(text, "READY=1") != NULL;
    }
    (void)pthread_mutex_unlock(&manager.lock);
}

static void *listen_main(void *argument)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char text[512];

    (void)argument;
    while (!atomic_load(&manager.must_stop)) {
        struct pollfd event = {.fd = manager.fd, .events = POLLIN};
        struct iovec part = {.iov_base = text, .iov_len = sizeof(text) - 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control)};
        int fd = -1;
        if (poll(&event, 1, 20) < 1)
            continue;
        ssize_t length = recvmsg(manager.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (length < 0)
            continue;
        text[length] = '\0';
        if (CMSG_FIRSTHDR(&message))
            memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
        hear(text, fd);
    }
    return NULL;
}

/* In the daemon's process: all that the store has, from 3 on. */
static void hand_over(void)
{
    static char names[MAX_STORE * MAX_NAME];
    char text[128];
    int high[MAX_STORE];

    (void)snprintf(text, sizeof(text), "%s.notify", disk.dir);
    (void)setenv("NOTIFY_SOCKET", text, 1);
    (void)snprintf(text, sizeof(text), "%d", manager.room);
    (void)setenv("FDSTORE", text, 1);
    if (manager.num == 0)
        return;
    for (int at = 0; at < manager.num; at++)
        high[at] = fcntl(manager.fds[at], F_DUPFD_CLOEXEC, 300);
    for (int at = 0; at < manager.num; at++) {
        (void)dup2(high[at], FIRST_FD + at); /* no longer closed by exec */
        (void)strcat(names, at > 0 ? ":" : "");
        (void)strcat(names, manager.names[at]);
    }
    (void)snprintf(text, sizeof(text), "%d", manager.num);
    (void)setenv("LISTEN_FDS", text, 1);
    (void)setenv("LISTEN_FDNAMES", names, 1);
    (void)snprintf(text, sizeof(text), "%d", (int)getpid());
    (void)setenv("LISTEN_PID", text, 1);
}

static void systemd_begin(int room)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(disk.dir, sizeof(disk.dir), "/tmp/kvpool-disk-XXXXXX");
    assert_non_null(mkdtemp(disk.dir));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s.notify", disk.dir);
    manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    manager.room = room;
    manager.num_stored = manager.num_refused = manager.num_barriers = manager.num_ready = 0;
    atomic_store(&manager.must_stop, false);
    assert_int_equal(pthread_create(&manager.thread, NULL, listen_main, NULL), 0);
    daemon_prepare = hand_over;
}

static int finish(void **state)
{
    char path[128];

    (void)state;
    daemon_prepare = NULL;
    (void)snprintf(path, sizeof(path), "%s.notify", disk.dir);
    store_finish(&daemon_, &disk);
    atomic_store(&manager.must_stop, true);
    assert_int_equal(pthread_join(manager.thread, NULL), 0);
    (void)close(manager.fd);
    (void)unlink(path);
    while (manager.num > 0)
        (void)close(manager.fds[--manager.num]);
    return 0;
}

/* Nothing was said for a while, and all of it was heard: a daemon may be killed, or begin. */
static void systemd_settle(void)
{
    uint64_t heard, before = UINT64_MAX, end = now_ms() + 20000;

    for (;;) {
        struct pollfd event = {.fd = manager.fd, .events = POLLIN};
        (void)usleep(200000);
        (void)pthread_mutex_lock(&manager.lock);
        heard = manager.num_stored + manager.num_refused + manager.num_barriers + manager.num_ready;
        (void)pthread_mutex_unlock(&manager.lock);
        if (heard == before && poll(&event, 1, 0) == 0)
            return;
        before = heard;
        assert_true(now_ms() < end);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void begin(int room)
{
    systemd_begin(room);
    daemon_start(&daemon_, "pool-bytes: 2MiB\nwatermark-pages: 0\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    for (uint32_t seed = 1; seed <= PROMPTS; seed++)
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
    kvpool_disconnect(kvpool);
}

static uint64_t get_all(void)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    uint64_t matched = store_get_all(NULL, kvpool, model, PROMPTS);
    kvpool_disconnect(kvpool);
    return matched;
}

static void the_store_has_the_memory_while_no_daemon_runs(void **state)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGKILL};

    (void)state;
    begin(MAX_STORE);
    for (size_t at = 0; at < ARRAY_SIZE(signals); at++) {
        systemd_settle();
        (void)daemon_stop(&daemon_, signals[at]);
        systemd_settle();
        assert_true(manager.num > 0);
        daemon_restart(&daemon_);
        stat_await(&daemon_, "memory_adopting", 0, 20000);
        assert_int_equal(get_all(), PROMPTS * BLOCKS * STORE_TOKENS);
        assert_int_equal(stat_read(&daemon_, "arenas_unkept"), 0);
    }
    assert_true(manager.num_barriers > 0);
    assert_int_equal(manager.num_ready, 1 + ARRAY_SIZE(signals));
    assert_int_equal(manager.num_refused, 0);
}

static void a_store_that_is_too_small_costs_what_it_did_not_take(void **state)
{
    (void)state;
    begin(2);
    assert_int_equal(get_all(), PROMPTS * BLOCKS * STORE_TOKENS); /* nobody waits for it */
    uint64_t end = now_ms() + 5000;
    while (!has_fallback(&daemon_, "memory-not-kept"))
        assert_true(now_ms() < end);
    (void)daemon_stop(&daemon_, SIGKILL);
    systemd_settle();
    daemon_restart(&daemon_);
    stat_await(&daemon_, "memory_adopting", 0, 20000);
    (void)get_all(); /* what is found is exact */
}

static void a_shutdown_that_forgets_leaves_nothing_in_it(void **state)
{
    const struct kvpool_request shutdown = {.verb = KVPOOL_SHUTDOWN, .forget = true};
    int status;

    (void)state;
    begin(MAX_STORE);
    struct kvpool *operator= operator_connect(&daemon_);
    assert_int_equal(kvpool_call(operator, & shutdown, NULL), 0);
    kvpool_disconnect(operator);
    assert_int_equal(waitpid(daemon_.pid, &status, 0), daemon_.pid);
    daemon_.pid = 0;
    assert_int_equal(status, 0);
    systemd_settle();
    assert_int_equal(manager.num, 0);
    daemon_restart(&daemon_);
    assert_int_equal(get_all(), 0);
}

/* By a daemon that keeps nothing, of what an earlier one left in the store. */
static void what_an_earlier_daemon_left_in_it_is_forgotten_too(void **state)
{
    const struct kvpool_request shutdown = {.verb = KVPOOL_SHUTDOWN, .forget = true};
    char command[128];
    int status;

    (void)state;
    begin(MAX_STORE);
    systemd_settle();
    (void)daemon_stop(&daemon_, SIGTERM);
    systemd_settle();
    assert_true(manager.num > 0);
    (void)snprintf(command, sizeof(command), "echo 'keep: none' >>%s/kvpoold.yaml", daemon_.dir);
    assert_int_equal(system(command), 0);
    daemon_restart(&daemon_);
    struct kvpool *operator= operator_connect(&daemon_);
    assert_int_equal(kvpool_call(operator, & shutdown, NULL), 0);
    kvpool_disconnect(operator);
    assert_int_equal(waitpid(daemon_.pid, &status, 0), daemon_.pid);
    daemon_.pid = 0;
    assert_int_equal(status, 0);
    systemd_settle();
    assert_int_equal(manager.num, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(the_store_has_the_memory_while_no_daemon_runs),
        TEST(a_store_that_is_too_small_costs_what_it_did_not_take),
        TEST(a_shutdown_that_forgets_leaves_nothing_in_it),
        TEST(what_an_earlier_daemon_left_in_it_is_forgotten_too),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
