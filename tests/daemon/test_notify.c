/* tests/daemon/test_notify.c - what daemon/notify.h promises, before a service manager of our own.
 */
#include "daemon/notify.h"
#include "tests/daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static const char *const files[] = {"notify", NULL};

struct manager {
    struct directory directory;
    int fd;
    char text[256];
    int received[4];
    size_t num_received;
};

static void manager_start(struct manager *manager)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    directory_make(&manager->directory);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s",
                   directory_name(&manager->directory, "notify"));
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", manager->directory.file, 1), 0);
}

static void manager_stop(struct manager *manager)
{
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_int_equal(close(manager->fd), 0);
    directory_remove(&manager->directory, files);
}

/* What was said last, and which descriptors came with it. */
static const char *manager_hear(struct manager *manager)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec text = {.iov_base = manager->text, .iov_len = sizeof(manager->text) - 1};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control)};

    ssize_t length = recvmsg(manager->fd, &message, MSG_CMSG_CLOEXEC);
    assert_true(length >= 0);
    manager->text[length] = '\0';
    manager->num_received = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header) {
        manager->num_received = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(manager->received, CMSG_DATA(header), manager->num_received * sizeof(int));
    }
    return manager->text;
}

static void without_a_manager_nothing_happens(void **state)
{
    const int fd = 0;

    (void)state;
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_int_equal(notify_send("READY=1"), 0);
    assert_int_equal(notify_store("arena", &fd, 1), 0);
}

static void the_manager_hears_what_is_said(void **state)
{
    struct manager manager;

    (void)state;
    manager_start(&manager);
    assert_int_equal(notify_send("READY=1\nSTATUS=ready"), 0);
    assert_string_equal(manager_hear(&manager), "READY=1\nSTATUS=ready");
    assert_int_equal(notify_reloading(17), 0);
    assert_string_equal(manager_hear(&manager), "RELOADING=1\nMONOTONIC_USEC=17");
    manager_stop(&manager);
}

static void descriptors_are_kept_under_their_name(void **state)
{
    struct manager manager;
    int pipe_fds[2];
    char byte;

    (void)state;
    manager_start(&manager);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(notify_store("arena-1", pipe_fds, 2), 0);
    assert_string_equal(manager_hear(&manager), "FDSTORE=1\nFDPOLL=0\nFDNAME=arena-1");
    assert_int_equal(manager.num_received, 2);
    assert_int_equal(write(manager.received[1], "x", 1), 1);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(close(manager.received[i]), 0);
        assert_int_equal(close(pipe_fds[i]), 0);
    }
    assert_int_equal(notify_forget("arena-1"), 0);
    assert_string_equal(manager_hear(&manager), "FDSTOREREMOVE=1\nFDNAME=arena-1");
    assert_int_equal(notify_store("a:b", pipe_fds, 1), -EINVAL);
    assert_int_equal(notify_store("", pipe_fds, 1), -EINVAL);
    assert_int_equal(notify_store("a", pipe_fds, NOTIFY_MAX_FDS + 1), -EINVAL);
    manager_stop(&manager);
}

static void a_barrier_falls_when_the_manager_is_done(void **state)
{
    struct manager manager;
    struct pollfd event = {.events = 0};

    (void)state;
    manager_start(&manager);
    assert_int_equal(notify_barrier(&event.fd), 0);
    assert_int_equal(poll(&event, 1, 0), 0);
    assert_string_equal(manager_hear(&manager), "BARRIER=1");
    assert_int_equal(manager.num_received, 1);
    assert_int_equal(poll(&event, 1, 0), 0);
    assert_int_equal(close(manager.received[0]), 0);
    assert_int_equal(poll(&event, 1, 0), 1);
    assert_int_equal(event.revents, POLLHUP);
    assert_int_equal(close(event.fd), 0);
    manager_stop(&manager);
}

static void a_manager_that_does_not_listen_is_not_waited_for(void **state)
{
    struct manager manager;
    int result = 0;

    (void)state;
    manager_start(&manager);
    for (int i = 0; i < 100000 && result == 0; i++)
        result = notify_send("STATUS=again");
    assert_int_equal(result, -EAGAIN);
    manager_stop(&manager);
    assert_int_equal(setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1), 0);
    assert_int_equal(notify_send("READY=1"), -ENOENT);
    assert_int_equal(setenv("NOTIFY_SOCKET", "relative", 1), 0);
    assert_int_equal(notify_send("READY=1"), 0);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
}

/* In a process of its own: descriptors 3, 4 and 5 are somebody's here. */
static int take_in_child(const char *pid_offset)
{
    char names[2][NOTIFY_MAX_NAME], pid[32];
    int fds[2];

    (void)snprintf(pid, sizeof(pid), "%ld", (long)getpid() + strtol(pid_offset, NULL, 10));
    for (int fd = 3; fd < 6; fd++)
        if (dup2(STDERR_FILENO, fd) < 0)
            return 1;
    (void)setenv("LISTEN_PID", pid, 1);
    (void)setenv("LISTEN_FDS", "3", 1);
    (void)setenv("LISTEN_FDNAMES", "first::third", 1);
    size_t count = notify_take(fds, names, 2);
    if (strcmp(pid_offset, "1") == 0)
        return count == 0 && fcntl(5, F_GETFD) == 0 ? 0 : 2;
    if (count != 2 || fds[0] != 3 || fds[1] != 4 || strcmp(names[0], "first") != 0 ||
        names[1][0] != '\0')
        return 3;
    if (fcntl(3, F_GETFD) != FD_CLOEXEC || fcntl(5, F_GETFD) != -1)
        return 4;
    return notify_take(fds, names, 2) == 0 ? 0 : 5;
}

static void descriptors_come_back_once_and_to_us_only(void **state)
{
    static const char *const offsets[] = {"0", "1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(take_in_child(offsets[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_manager_nothing_happens),
        cmocka_unit_test(the_manager_hears_what_is_said),
        cmocka_unit_test(descriptors_are_kept_under_their_name),
        cmocka_unit_test(a_barrier_falls_when_the_manager_is_done),
        cmocka_unit_test(a_manager_that_does_not_listen_is_not_waited_for),
        cmocka_unit_test(descriptors_come_back_once_and_to_us_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
