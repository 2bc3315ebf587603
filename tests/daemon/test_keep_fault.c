/*
 * tests/daemon/test_keep_fault.c - keeping and records with their Nth call failing, N = 1, 2, 3 ...
 *
 * One call fails, then all succeed: nothing is left of what failed, and what is kept is kept.
 */
#include "daemon/hold.h"
#include "daemon/kept.h"
#include "tests/daemon/fault.h"
#include "tests/daemon/files.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* clang-format off */
WRAP(void *, NULL, calloc, (size_t a, size_t b), (a, b))
WRAP(char *, NULL, strdup, (const char *a), (a))
WRAP(int, -1, memfd_create, (const char *a, unsigned b), (a, b))
WRAP(int, -1, fchmod, (int a, mode_t b), (a, b))
WRAP(int, -1, ftruncate64, (int a, off_t b), (a, b))
WRAP(void *, MAP_FAILED, mmap64, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f))
WRAP(int, -1, fstat64, (int a, struct stat *b), (a, b))
WRAP(ssize_t, -1, pread64, (int a, void *b, size_t c, off_t d), (a, b, c, d))
WRAP(int, -1, socket, (int a, int b, int c), (a, b, c))
WRAP(int, -1, socketpair, (int a, int b, int c, int d[2]), (a, b, c, d))
WRAP(int, -1, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
WRAP(int, -1, getsockopt, (int a, int b, int c, void *d, socklen_t *e), (a, b, c, d, e))
WRAP(ssize_t, -1, sendmsg, (int a, const struct msghdr *b, int c), (a, b, c))
WRAP(ssize_t, -1, recvmsg, (int a, struct msghdr *b, int c), (a, b, c))
WRAP(int, -1, epoll_create1, (int a), (a))
WRAP(int, -1, epoll_ctl, (int a, int b, int c, struct epoll_event *d), (a, b, c, d))
WRAP(int, -1, pipe2, (int a[2], int b), (a, b))
WRAP(int, failed_errno, posix_spawn, (pid_t *a, const char *b, const posix_spawn_file_actions_t *c,
     const posix_spawnattr_t *d, char *const e[], char *const f[]), (a, b, c, d, e, f))
/* clang-format on */

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list arguments;

    va_start(arguments, command);
    int argument = va_arg(arguments, int);
    va_end(arguments);
    return is_this_one() ? -1 : __real_fcntl64(fd, command, argument);
}

static const int errors[] = {ENOMEM, EMFILE, EINTR, EPERM};
static unsigned num_refused; /* what was to be made and was not */

/* ---- records -------------------------------------------------------------------------------- */

static bool make_records(void)
{
    const struct records_options options = {.arena = {.granule = {.slots = 2}, .max_granules = 5},
                                            .max_form = 1};
    struct records *records = NULL, *again = NULL;
    struct record record = {.generation = 9};
    size_t before = count_descriptors();

    int err = records_create(&options, &records);
    assert_int_equal(err == 0, records != NULL);
    num_refused += err != 0;
    if (err)
        assert_int_equal(count_descriptors(), before);
    else
        records_write(records, 3, &record);
    int fd = err ? -1 : __real_fcntl64(records_fd(records), F_DUPFD_CLOEXEC, 0);
    records_destroy(records);
    if (!err && records_adopt(fd, &again))
        assert_int_equal(close(fd), 0); /* it stayed ours */
    else if (!err)
        assert_int_equal(records_read(again, 3, &record), 0);
    records_destroy(again);
    bool has_failed = calls_left == 0;
    assert_int_equal(count_descriptors(), before);
    return has_failed;
}

static void a_table_is_made_or_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        int nth = 0;

        failed_errno = errors[i];
        num_refused = 0;
        do
            calls_left = ++nth;
        while (make_records());
        assert_true(nth > 9);
        assert_true(num_refused > 3);
    }
    calls_left = 0;
}

/* ---- a holder ------------------------------------------------------------------------------- */

static struct directory directory;
static struct keep_options options;

static bool settle(struct keep *keep)
{
    for (uint64_t i = 1; i < 100 && !keep_passed(keep, keep_mark(keep)); i++) {
        struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};
        (void)poll(&event, 1, 50);
        keep_run(keep, i * 1000);
    }
    return keep_passed(keep, keep_mark(keep));
}

/* The first of a create that may fail; the second try may not. */
static struct keep *create(void)
{
    struct keep *keep = NULL;
    int err = keep_create(&options, &keep);

    num_refused += err != 0;
    if (err)
        assert_int_equal(keep_create(&options, &keep), 0);
    return keep;
}

static size_t taken_close(struct keep *keep)
{
    size_t count;
    const struct keep_item *items = keep_taken(keep, &count);

    for (size_t i = 0; i < count; i++)
        (void)close(items[i].fd);
    return count;
}

/* What a failed call kept from being taken is dropped by its keeper, or was refused: named both. */
static bool keep_once(void)
{
    static const char *const names[] = {"a", "b", "c"};
    size_t before = count_descriptors();
    int fd = __real_memfd_create("item", MFD_CLOEXEC);
    struct keep *keep = create();

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(keep_add(keep, names[i], fd), 0);
    assert_true(settle(keep));
    size_t num_kept = 3 - keep_counters(keep)->refused;
    assert_true(num_kept >= 2);
    bool has_failed = calls_left == 0;
    calls_left = 0;
    keep_destroy(keep);
    keep = create();
    assert_int_equal(taken_close(keep), num_kept);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
    (void)close(fd);
    assert_int_equal(count_descriptors(), before);
    return has_failed;
}

static bool take_once(void)
{
    size_t before = count_descriptors();
    int nth = calls_left;
    int fd = __real_memfd_create("item", MFD_CLOEXEC);
    struct keep *keep = NULL;

    calls_left = 0;
    keep = create();
    assert_int_equal(keep_add(keep, "a", fd) | keep_add(keep, "b", fd), 0);
    assert_true(settle(keep));
    keep_destroy(keep);
    calls_left = nth;
    keep = create(); /* all, or none: then its state has a name, or it was the second try */
    size_t count = taken_close(keep);
    assert_true(count == 0 || count == 2);
    bool has_failed = calls_left == 0;
    calls_left = 0;
    assert_true(settle(keep));
    keep_run(keep, 1000000);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
    (void)close(fd);
    assert_int_equal(count_descriptors(), before);
    return has_failed;
}

/* It is gone, or the answer says that it may not be. */
static bool forget_left_once(void)
{
    size_t before = count_descriptors();
    int nth = calls_left;
    int fd = __real_memfd_create("item", MFD_CLOEXEC);
    struct keep *keep = NULL;

    calls_left = 0;
    keep = create();
    assert_int_equal(keep_add(keep, "a", fd), 0);
    assert_true(settle(keep));
    keep_destroy(keep);
    calls_left = nth;
    int err = keep_forget_left(directory.path);
    bool has_failed = calls_left == 0;
    num_refused += err != 0;
    calls_left = 0;
    assert_true(!err || keep_forget_left(directory.path) == 0);
    keep = create();
    assert_int_equal(taken_close(keep), 0);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
    (void)close(fd);
    assert_int_equal(count_descriptors(), before);
    return has_failed;
}

static void each(bool (*once)(void), int least)
{
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        int nth = 0;

        failed_errno = errors[i];
        num_refused = 0;
        do
            calls_left = ++nth;
        while (once());
        assert_true(nth > least);
        assert_true(num_refused > 3);
    }
    calls_left = 0;
}

static int setup(void **state)
{
    (void)state;
    directory_make(&directory);
    options = (struct keep_options){.kind = KEEP_HOLDER,
                                    .directory = directory.path,
                                    .max_items = 8,
                                    .program = getenv("KVPOOLD")};
    return 0;
}

static int teardown(void **state)
{
    static const char *const left[] = {HOLD_LOCK, NULL};

    (void)state;
    directory_remove(&directory, left);
    return 0;
}

static void what_is_added_is_kept_whatever_fails_first(void **state)
{
    (void)state;
    each(keep_once, 12);
}

static void what_is_taken_is_all_or_nothing(void **state)
{
    (void)state;
    each(take_once, 10);
}

static void what_an_earlier_daemon_left_is_gone_or_named(void **state)
{
    (void)state;
    each(forget_left_once, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_made_or_not),
        cmocka_unit_test_setup_teardown(what_is_added_is_kept_whatever_fails_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_taken_is_all_or_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_an_earlier_daemon_left_is_gone_or_named, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
