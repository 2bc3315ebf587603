/*
 * tests/daemon/test_keep_systemd.c - systemd's descriptor store as the keeper, before a stand-in
 * for its socket.
 */
#include "daemon/keep.h"
#include "gpu/gpu.h"
#include "tests/daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { MAX_STORE = 64 };

static struct keep_options options;

/* What systemd would have after what it heard so far. */
struct manager {
    struct directory directory;
    int fd;
    char names[MAX_STORE][KEEP_MAX_NAME];
    int fds[MAX_STORE];
    int num_stored, num_barriers;
    int barrier_fd; /* not let go of yet: -1: none */
};

static struct manager manager;

static int setup(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)state;
    manager = (struct manager){.barrier_fd = -1};
    directory_make(&manager.directory);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s",
                   directory_name(&manager.directory, "notify"));
    manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", manager.directory.file, 1), 0);
    assert_int_equal(setenv("FDSTORE", "64", 1), 0);
    options = (struct keep_options){
        .kind = KEEP_AUTO, .directory = manager.directory.path, .max_items = 64};
    return 0;
}

static int teardown(void **state)
{
    static const char *const files[] = {"notify", NULL};

    (void)state;
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("FDSTORE");
    for (int i = 0; i < manager.num_stored; i++)
        (void)close(manager.fds[i]);
    (void)close(manager.fd);
    directory_remove(&manager.directory, files);
    return 0;
}

static void forget(const char *name)
{
    for (int i = 0; i < manager.num_stored; i++) {
        if (strcmp(manager.names[i], name) != 0)
            continue;
        (void)close(manager.fds[i]);
        manager.num_stored--;
        manager.fds[i] = manager.fds[manager.num_stored];
        memcpy(manager.names[i], manager.names[manager.num_stored], KEEP_MAX_NAME);
        i--;
    }
}

static bool hear_one(void)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char text[256];
    struct iovec part = {.iov_base = text, .iov_len = sizeof(text) - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control)};
    int fd = -1;
    ssize_t length = recvmsg(manager.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (length < 0)
        return false;
    text[length] = '\0';
    if (CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    if (strcmp(text, "BARRIER=1") == 0) {
        manager.barrier_fd = fd;
        manager.num_barriers++;
    } else if (sscanf(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=%63s",
                      manager.names[manager.num_stored]) == 1) {
        manager.fds[manager.num_stored++] = fd;
    } else {
        char name[KEEP_MAX_NAME] = "";
        assert_int_equal(sscanf(text, "FDSTOREREMOVE=1\nFDNAME=%63s", name), 1);
        forget(name);
    }
    return true;
}

static void hear_all(void)
{
    while (hear_one())
        ;
}

static void barrier_fall(void)
{
    assert_true(manager.barrier_fd >= 0);
    (void)close(manager.barrier_fd);
    manager.barrier_fd = -1;
}

static struct keep *create(void)
{
    struct keep *keep = NULL;

    assert_int_equal(keep_create(&options, &keep), 0);
    return keep;
}

static int item_make(void)
{
    int fd = memfd_create("item", MFD_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static bool is_ready(const struct keep *keep)
{
    struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};

    return poll(&event, 1, 0) == 1;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void an_item_is_kept_once_its_barrier_fell(void **state)
{
    struct gpu_fallback fallback;
    struct keep *keep = create();
    int fds[] = {item_make(), item_make(), item_make()};

    (void)state;
    assert_int_equal(keep_kind(keep), KEEP_SYSTEMD);
    assert_int_equal(keep_add(keep, "mount", fds[0]), 0);
    uint64_t first = keep_mark(keep);
    hear_all();
    assert_int_equal(manager.num_stored, 1);
    assert_string_equal(manager.names[0], "mount");
    assert_int_equal(manager.num_barriers, 1);
    keep_run(keep, 0);
    assert_false(keep_passed(keep, first)); /* K1 */
    assert_int_equal(keep_add(keep, "1.file", fds[1]), 0);
    assert_int_equal(keep_add(keep, "1.records", fds[2]), 0);
    hear_all();
    assert_int_equal(manager.num_barriers, 1); /* one at a time */
    assert_false(is_ready(keep));
    barrier_fall();
    assert_true(is_ready(keep));
    keep_run(keep, 0);
    assert_true(keep_passed(keep, first));
    assert_false(keep_passed(keep, keep_mark(keep))); /* those were behind it */
    hear_all();
    assert_int_equal(manager.num_barriers, 2);
    barrier_fall();
    keep_run(keep, 0);
    assert_true(keep_passed(keep, keep_mark(keep)));
    assert_int_equal(manager.num_stored, 3);
    assert_false(keep_fallback(keep, &fallback));
    keep_remove(keep, "1.file");
    hear_all();
    assert_int_equal(manager.num_stored, 2);
    keep_destroy(keep);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
}

static void the_store_takes_no_more_than_it_has_room_for(void **state)
{
    struct gpu_fallback fallback;
    int fd = item_make();

    (void)state;
    assert_int_equal(setenv("FDSTORE", "2", 1), 0);
    struct keep *keep = create();
    assert_int_equal(keep_add(keep, "a", fd), 0);
    assert_int_equal(keep_add(keep, "b", fd), 0);
    assert_false(keep_fallback(keep, &fallback));
    assert_int_equal(keep_add(keep, "c", fd), 0);
    assert_int_equal(keep_counters(keep)->refused, 1);
    assert_true(keep_fallback(keep, &fallback));
    assert_int_equal(fallback.reason, -ENOSPC);
    hear_all();
    assert_int_equal(manager.num_stored, 2);
    for (int i = 0; i < 2; i++) { /* each of the two had its own */
        hear_all();
        barrier_fall();
        keep_run(keep, 0);
    }
    assert_true(keep_passed(keep, keep_mark(keep))); /* nothing to wait for */
    keep_destroy(keep);
    (void)close(fd);
}

/* Its socket takes a few messages at a time (net.unix.max_dgram_qlen). */
static void what_the_manager_does_not_read_at_once_is_sent_later(void **state)
{
    struct keep *keep = NULL;
    int fd = item_make();

    (void)state;
    (void)setenv("FDSTORE", "60", 1);
    keep = create();
    for (int i = 0; i < 60; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(keep_add(keep, name, fd), 0);
    }
    keep_remove(keep, "59"); /* sent or not, it will not be there */
    for (int i = 0; i < 200 && !keep_passed(keep, keep_mark(keep)); i++) {
        hear_all();
        if (manager.barrier_fd >= 0)
            barrier_fall();
        keep_run(keep, 0);
    }
    hear_all();
    assert_true(keep_passed(keep, keep_mark(keep)));
    assert_int_equal(manager.num_stored, 59);
    keep_destroy(keep);
    (void)close(fd);
}

/* As systemd starts it: the store's descriptors from 3 on, with their names. */
static int second_life(void)
{
    char text[32];
    size_t count;
    struct keep *keep = NULL;
    int fds[2] = {fcntl(manager.fds[0], F_DUPFD, 20), fcntl(manager.fds[1], F_DUPFD, 20)};

    if (dup2(fds[0], 3) != 3 || dup2(fds[1], 4) != 4)
        return 1;
    (void)snprintf(text, sizeof(text), "%d", (int)getpid());
    (void)setenv("LISTEN_PID", text, 1);
    (void)setenv("LISTEN_FDS", "2", 1);
    (void)setenv("LISTEN_FDNAMES", "1.file:1.records", 1);
    if (keep_create(&options, &keep))
        return 2;
    const struct keep_item *items = keep_taken(keep, &count);
    if (count != 2 || items[0].fd != 3 || strcmp(items[0].name, "1.file") != 0 ||
        items[1].fd != 4 || strcmp(items[1].name, "1.records") != 0)
        return 3;
    if (!keep_passed(keep, keep_mark(keep)) || keep_counters(keep)->items != 2)
        return 4; /* they are in the store still: nothing is sent for them */
    return pread(4, text, 4, 0) == 4 && memcmp(text, "kept", 4) == 0 ? 0 : 5;
}

static void what_was_stored_is_there_at_the_next_start(void **state)
{
    struct keep *keep = create();
    int fds[] = {item_make(), item_make()}, status;

    (void)state;
    assert_int_equal(pwrite(fds[1], "kept", 4, 0), 4);
    assert_int_equal(keep_add(keep, "1.file", fds[0]), 0);
    assert_int_equal(keep_add(keep, "1.records", fds[1]), 0);
    hear_all();
    keep_destroy(keep);
    assert_int_equal(manager.num_stored, 2);
    (void)close(fds[0]);
    (void)close(fds[1]);
    pid_t child = fork();
    if (child == 0)
        _exit(second_life());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hear_all();
    assert_int_equal(manager.num_stored, 2);
    barrier_fall();
}

static void *answer(void *argument)
{
    _Atomic bool *is_over = argument;

    while (!*is_over) {
        hear_all();
        if (manager.barrier_fd >= 0)
            barrier_fall();
        (void)usleep(1000);
    }
    return NULL;
}

static void to_forget_empties_the_store(void **state)
{
    struct keep *keep = create();
    _Atomic bool is_over = false;
    pthread_t thread;
    int fd = item_make();

    (void)state;
    for (int i = 0; i < 40; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(keep_add(keep, name, fd), 0);
        hear_all();
    }
    barrier_fall();
    assert_int_equal(manager.num_stored, 40);
    assert_int_equal(pthread_create(&thread, NULL, answer, &is_over), 0);
    assert_int_equal(keep_forget(keep), 0);
    is_over = true;
    (void)pthread_join(thread, NULL);
    assert_int_equal(manager.num_stored, 0);
    assert_int_equal(keep_add(keep, "later", fd), 0);
    hear_all();
    assert_int_equal(manager.num_stored, 0);
    keep_destroy(keep);
    (void)close(fd);
}

static enum keep_kind kind_with(const char *room, const char *pid)
{
    struct keep *keep = NULL;

    (void)(room ? setenv("FDSTORE", room, 1) : unsetenv("FDSTORE"));
    (void)(pid ? setenv("SYSTEMD_EXEC_PID", pid, 1) : unsetenv("SYSTEMD_EXEC_PID"));
    options.program = "/nowhere/at/all"; /* of the holder, where that is chosen */
    keep = create();
    enum keep_kind kind = keep_kind(keep);
    keep_destroy(keep);
    (void)unsetenv("SYSTEMD_EXEC_PID");
    return kind;
}

static void the_store_is_chosen_where_there_is_one(void **state)
{
    char pid[16];

    (void)state;
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(kind_with("8192", NULL), KEEP_SYSTEMD);
    assert_int_equal(kind_with("0", pid), KEEP_HOLDER);   /* the unit has no store */
    assert_int_equal(kind_with(NULL, pid), KEEP_SYSTEMD); /* before 254 it does not say */
    assert_int_equal(kind_with(NULL, "1"), KEEP_HOLDER);  /* it runs somebody else */
    assert_int_equal(kind_with(NULL, NULL), KEEP_HOLDER); /* somebody else listens */
    options.kind = KEEP_SYSTEMD;
    assert_int_equal(kind_with(NULL, NULL), KEEP_SYSTEMD);
    (void)unsetenv("NOTIFY_SOCKET");
    struct gpu_fallback fallback;
    struct keep *keep = create();
    assert_true(keep_fallback(keep, &fallback));
    assert_int_equal(fallback.reason, -ENOENT);
    keep_destroy(keep);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_item_is_kept_once_its_barrier_fell),
        TEST(the_store_takes_no_more_than_it_has_room_for),
        TEST(what_the_manager_does_not_read_at_once_is_sent_later),
        TEST(what_was_stored_is_there_at_the_next_start),
        TEST(to_forget_empties_the_store),
        TEST(the_store_is_chosen_where_there_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
