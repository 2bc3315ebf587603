/* tests/offload/test_syscalls.c - every system call of a disk fails once: it is opened whole or not
 * at all, and nothing is lost that was there before. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The call that fails, counted over all threads; what is said. */
static _Atomic int countdown;
static int failure;

static bool fails(void)
{
    if (atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    errno = failure;
    return true;
}

static int fail_open(const char *path, int flags, ...)
{
    return fails() ? -1 : open(path, flags, 0600);
}

static void *fail_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : mmap(address, bytes, protection, flags, fd, offset);
}

static void *fail_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

static int fail_thread_create(pthread_t *out, const pthread_attr_t *attributes,
                              void *(*run)(void *), void *argument)
{
    return fails() ? EAGAIN : pthread_create(out, attributes, run, argument);
}

static int fail_ring_init(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
    return fails() ? -failure : io_uring_queue_init_params(entries, ring, params);
}

static int fail_ring_register_files(struct io_uring *ring, const int *fds, unsigned num_fds)
{
    return fails() ? -failure : io_uring_register_files(ring, fds, num_fds);
}

static int fail_ring_register_buffers(struct io_uring *ring, const struct iovec *iovecs,
                                      unsigned num)
{
    return fails() ? -failure : io_uring_register_buffers(ring, iovecs, num);
}

#define FAILING(type, name, parameters, arguments)                                                 \
    static type fail_##name parameters                                                             \
    {                                                                                              \
        return fails() ? -1 : name arguments;                                                      \
    }
FAILING(int, flock, (int fd, int operation), (fd, operation))
FAILING(int, fstat, (int fd, struct stat *out), (fd, out))
FAILING(int, fstatvfs, (int fd, struct statvfs *out), (fd, out))
FAILING(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
FAILING(int, fallocate, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes))
FAILING(ssize_t, pread, (int fd, void *buffer, size_t bytes, off_t offset),
        (fd, buffer, bytes, offset))
FAILING(ssize_t, pwrite, (int fd, const void *buffer, size_t bytes, off_t offset),
        (fd, buffer, bytes, offset))
FAILING(int, fdatasync, (int fd), (fd))
FAILING(int, eventfd, (unsigned value, int flags), (value, flags))

static const struct disk_syscalls failing = {
    .open = fail_open,
    .flock = fail_flock,
    .fstat = fail_fstat,
    .fstatvfs = fail_fstatvfs,
    .ftruncate = fail_ftruncate,
    .fallocate = fail_fallocate,
    .pread = fail_pread,
    .pwrite = fail_pwrite,
    .fdatasync = fail_fdatasync,
    .eventfd = fail_eventfd,
    .mmap = fail_mmap,
    .calloc = fail_calloc,
    .thread_create = fail_thread_create,
    .ring_init = fail_ring_init,
    .ring_register_files = fail_ring_register_files,
    .ring_register_buffers = fail_ring_register_buffers,
};

static uint32_t num_open_fds(void)
{
    uint32_t num = 0;

    for (int fd = 0; fd < 256; fd++)
        num += fcntl(fd, F_GETFD) >= 0;
    return num;
}

static void use(struct bed *bed)
{
    /* A call of the lane may be the one that fails: then the block is not there, that is all. */
    if (bed_use(bed, 0, BED_STRIDE) != 0)
        return;
    int err = bed_write(bed, SLOT(0, 1), 5, BED_BLOCK);
    int answer = bed_read(bed, SLOT(0, 1), 5, BED_BLOCK);
    assert_true(err ? answer == -ENODATA : answer == 0 || answer == -failure);
}

/* The Nth call of opening, using and closing a new disk fails. */
static void new_disk(struct bed *bed, enum disk_engine_choice engine)
{
    uint32_t num_fds = num_open_fds();

    bed->options.engine = engine;
    for (int n = 1, is_over = 0; !is_over; n++) {
        bed->system = &failing;
        atomic_store(&countdown, n);
        int err = bed_open(bed);
        if (err) {
            assert_true(bed->error[0] != '\0');
            assert_true(err < 0);
            assert_int_equal(num_open_fds(), num_fds);
        } else {
            use(bed);
            bed_close(bed);
        }
        is_over = atomic_load(&countdown) > 0;
        atomic_store(&countdown, 0);
        bed->system = &disk_syscalls; /* whatever is there now can be used */
        assert_int_equal(bed_open(bed), 0);
        bed_close(bed);
        bed_finish(bed);
        struct disk_options options = bed->options;
        bed_init(bed, NULL);
        options.path = bed->path;
        bed->options = options;
    }
}

static void each_call_of_a_new_disk_fails_once(void **state)
{
    new_disk(*state, DISK_ENGINE_BEST);
}

static void each_call_of_a_new_disk_of_threads_fails_once(void **state)
{
    new_disk(*state, DISK_ENGINE_THREADS);
}

/* With a block in it: whatever fails, the block is found when nothing fails. */
static void each_call_of_an_old_disk_fails_once(void **state)
{
    struct bed *bed = *state;

    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_use(bed, 3, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(3, 1), 5, BED_BLOCK), 0);
    bed_close(bed);
    for (int n = 1, is_over = 0; !is_over; n++) {
        struct disk_scan scan = {0};
        bed->system = &failing;
        atomic_store(&countdown, n);
        if (bed_open(bed) == 0) {
            int err = disk_scan_start(bed->disk);
            for (int tries = 0; !err && !scan.is_over && tries < 5000; tries++) {
                struct disk_found found;
                (void)disk_scan_reap(bed->disk, &found, 1);
                disk_scan_progress(bed->disk, &scan);
                (void)usleep(1000);
            }
            assert_true(err || scan.is_over);
            bed_close(bed);
        }
        is_over = atomic_load(&countdown) > 0;
        atomic_store(&countdown, 0);
        bed->system = &disk_syscalls;
        assert_int_equal(bed_open(bed), 0);
        assert_int_equal(bed_scan(bed, NULL, NULL, 0), 1);
        assert_int_equal(bed_read(bed, SLOT(3, 1), 5, BED_BLOCK), 0);
        bed_close(bed);
    }
}

/* No room for the file: nothing of it stays. */
static int no_room(int fd, int mode, off_t offset, off_t bytes)
{
    (void)!fallocate(fd, mode, offset, bytes / 2);
    errno = ENOSPC;
    return -1;
}

static int no_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    (void)fd, (void)mode, (void)offset, (void)bytes;
    errno = EOPNOTSUPP;
    return -1;
}

static void a_disk_without_room_is_refused_and_gives_it_back(void **state)
{
    struct bed *bed = *state;
    struct disk_syscalls system = disk_syscalls;
    struct stat status;
    char name[300];

    system.fallocate = no_room;
    bed->system = &system;
    assert_int_equal(bed_open(bed), -ENOSPC);
    assert_non_null(strstr(bed->error, "make room, or lower the ceiling"));
    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    assert_int_equal(stat(name, &status), 0);
    assert_int_equal(status.st_blocks, 0);
}

static int little_room(int fd, struct statvfs *out)
{
    int answer = fstatvfs(fd, out);

    out->f_bfree = 10;
    return answer;
}

static int room_unsaid(int fd, struct statvfs *out)
{
    (void)fd;
    *out = (struct statvfs){.f_frsize = 4096};
    return 0;
}

static int never_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    (void)fd, (void)mode, (void)offset, (void)bytes;
    fail_msg("nobody else had room meanwhile");
    return -1;
}

static void more_than_there_is_is_not_tried(void **state)
{
    struct bed *bed = *state;
    struct disk_syscalls system = disk_syscalls;

    system.fstatvfs = little_room;
    system.fallocate = never_fallocate;
    bed->system = &system;
    assert_int_equal(bed_open(bed), -ENOSPC);
    assert_non_null(strstr(bed->error, "make room, or lower the ceiling"));
    system.fstatvfs = room_unsaid;
    system.fallocate = fallocate;
    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
}

static void a_file_system_without_fallocate_is_said(void **state)
{
    struct bed *bed = *state;
    struct disk_syscalls system = disk_syscalls;
    struct gpu_fallback fallback;

    system.fallocate = no_fallocate;
    bed->system = &system;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_fallbacks(bed->disk, &fallback, 1), 1);
    assert_string_equal(fallback.name, "not-preallocated");
    use(bed);
    bed_close(bed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_setup, bed_teardown)
    const struct CMUnitTest tests[] = {
        CASE(each_call_of_a_new_disk_fails_once),
        CASE(each_call_of_a_new_disk_of_threads_fails_once),
        CASE(each_call_of_an_old_disk_fails_once),
        CASE(a_disk_without_room_is_refused_and_gives_it_back),
        CASE(more_than_there_is_is_not_tried),
        CASE(a_file_system_without_fallocate_is_said),
    };

    failure = EIO;
    int num_failed = cmocka_run_group_tests(tests, NULL, NULL);
    failure = EPERM;
    num_failed += cmocka_run_group_tests(tests, NULL, NULL);
    failure = ENOMEM;
    return num_failed + cmocka_run_group_tests(tests, NULL, NULL);
}
