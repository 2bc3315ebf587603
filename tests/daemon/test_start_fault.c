/*
 * tests/daemon/test_start_fault.c - a daemon with tiers starts, or not, as its Nth call fails.
 *
 * N = 1, 2, 3 ... (with sanitizers each fifth) until no call is left to fail. Whatever failed, the
 * start comes back with an error or goes on without; and nothing is left: descriptors are counted,
 * the sanitizers look for memory.
 */
#include "daemon/log.h"
#include "tests/daemon/fault.h"
#include "tests/daemon/small_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { STEP = 5 }; /* a start takes ten times as long */
#else
enum { STEP = 1 };
#endif

/* ---- calls that can be made to fail (the linker's --wrap) ----------------------------------- */

WRAP(void *, NULL, calloc, (size_t count, size_t size), (count, size))
WRAP(void *, NULL, malloc, (size_t size), (size))
WRAP(int, -1, eventfd, (unsigned value, int flags), (value, flags))
WRAP(int, -1, epoll_create1, (int flags), (flags))
WRAP(int, -1, epoll_ctl, (int fd, int what, int of, struct epoll_event *event),
     (fd, what, of, event))
WRAP(int, -1, timerfd_create, (int clock, int flags), (clock, flags))
WRAP(int, -1, signalfd, (int fd, const sigset_t *signals, int flags), (fd, signals, flags))
WRAP(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(int, -1, ftruncate64, (int fd, off_t bytes), (fd, bytes))
WRAP(int, -1, fallocate64, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes))
WRAP(ssize_t, -1, pread64, (int fd, void *out, size_t bytes, off_t offset),
     (fd, out, bytes, offset))
WRAP(ssize_t, -1, pwrite64, (int fd, const void *from, size_t bytes, off_t offset),
     (fd, from, bytes, offset))
WRAP(void *, MAP_FAILED, mmap64,
     (void *address, size_t bytes, int access, int flags, int fd, off_t offset),
     (address, bytes, access, flags, fd, offset))
WRAP(int, EAGAIN, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     (out, attributes, run, argument))

/* ---- a start -------------------------------------------------------------------------------- */

static struct small_server small;

static int setup(void **state)
{
    (void)state;
    small_server_init(&small, "keep: none\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return small_server_finish(&small);
}

static int log_fd;
static bool has_failed; /* in the last start a call */

/* Whether the log says which part of the daemon could not be made; the log is empty afterwards. */
static bool names_a_part(void)
{
    static char text[1 << 16];
    ssize_t length = pread(log_fd, text, sizeof(text) - 1, 0);

    assert_true(length >= 0);
    text[length] = '\0';
    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
    return strstr(text, "part_failed part=") != NULL;
}

/* Whether it came up; @number: of the call that fails, 0: none does. */
static bool start(int number)
{
    small_server_load(&small);
    failed_errno = ENOMEM;
    calls_left = number;
    int err = small_server_create(&small);
    has_failed = atomic_exchange(&calls_left, 0) == 0 && number > 0;
    small_server_stop(&small);
    return !err;
}

static void every_call_may_fail(const char *what)
{
    int number = 0, num_refused = 0, num_nameless = 0;

    assert_true(start(0)); /* what is made once in a process */
    size_t before = count_descriptors();
    do {
        number += STEP;
        bool is_up = start(number), is_named = names_a_part();
        num_refused += !is_up;
        num_nameless += !is_up && !is_named;
        assert_false(is_up && is_named);
        size_t after = count_descriptors();
        if (after != before)
            fail_msg("%s: after call %d %zu descriptors, not %zu", what, number, after, before);
    } while (has_failed);
    print_message("%s: %d calls, of which %d stop it\n", what, number - STEP, num_refused);
    assert_in_range(num_refused, 50, number - 1);
    assert_in_range(num_nameless, 0,
                    2);    /* before there are parts: a server, and what it waits on */
    assert_true(start(0)); /* nothing is broken for good */
}

/* The first start lays the disk out; each further one finds it. */
static void a_start_over_a_disk(void **state)
{
    (void)state;
    every_call_may_fail("over a disk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_over_a_disk, setup, teardown),
    };

    FILE *log = tmpfile();
    if (!log)
        return 1;
    log_fd = fileno(log);
    log_configure(&(struct log_options){.fd = log_fd});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
