/* tests/gpu/test_fault.c - the host device with its Nth system call failing, N = 1, 2, 3 ... */
#include "gpu/host/device.h"
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum source source;
static _Atomic long num_calls_left; /* before one fails; every thread counts */
static int error_to_give;

static bool is_failing(void)
{
    if (atomic_fetch_sub(&num_calls_left, 1) != 1)
        return false;
    errno = error_to_give;
    return true;
}

/* A call of the table that fails in its turn. */
#define FAILING(type, name, failure, parameters, arguments)                                        \
    static type failing_##name parameters                                                          \
    {                                                                                              \
        return is_failing() ? (failure) : host_syscalls.name arguments;                            \
    }

/* clang-format off */
FAILING(int, fsopen, -1, (const char *a, unsigned b), (a, b))
FAILING(int, fsconfig, -1, (int a, unsigned b, const char *c, const void *d, int e), (a, b, c, d, e))
FAILING(int, fsmount, -1, (int a, unsigned b, unsigned c), (a, b, c))
FAILING(int, open_tree, -1, (int a, const char *b, unsigned c), (a, b, c))
FAILING(int, mount_setattr, -1, (int a, const char *b, unsigned c, struct mount_attr *d, size_t e),
        (a, b, c, d, e))
FAILING(int, openat, -1, (int a, const char *b, int c, ...), (a, b, c, 0600))
FAILING(int, unlinkat, -1, (int a, const char *b, int c), (a, b, c))
FAILING(int, memfd_create, -1, (const char *a, unsigned b), (a, b))
FAILING(int, ftruncate, -1, (int a, off_t b), (a, b))
FAILING(int, fallocate, -1, (int a, int b, off_t c, off_t d), (a, b, c, d))
FAILING(off_t, lseek, -1, (int a, off_t b, int c), (a, b, c))
FAILING(ssize_t, pread, -1, (int a, void *b, size_t c, off_t d), (a, b, c, d))
FAILING(int, fstat, -1, (int a, struct stat *b), (a, b))
FAILING(int, fstatfs, -1, (int a, struct statfs *b), (a, b))
FAILING(void *, mmap, MAP_FAILED, (void *a, size_t b, int c, int d, int e, off_t f),
        (a, b, c, d, e, f))
FAILING(int, madvise, -1, (void *a, size_t b, int c), (a, b, c))
FAILING(int, eventfd, -1, (unsigned a, int b), (a, b))
FAILING(int, thread_create, error_to_give,
        (pthread_t *a, const pthread_attr_t *b, void *(*c)(void *), void *d), (a, b, c, d))
FAILING(void *, calloc, NULL, (size_t a, size_t b), (a, b))
/* clang-format on */

static int failing_fcntl(int fd, int command, ...)
{
    va_list arguments;

    va_start(arguments, command);
    int argument = va_arg(arguments, int);
    va_end(arguments);
    return is_failing() ? -1 : host_syscalls.fcntl(fd, command, argument);
}

static const struct host_syscalls failing_syscalls = {
    .fsopen = failing_fsopen,
    .fsconfig = failing_fsconfig,
    .fsmount = failing_fsmount,
    .open_tree = failing_open_tree,
    .mount_setattr = failing_mount_setattr,
    .openat = failing_openat,
    .unlinkat = failing_unlinkat,
    .memfd_create = failing_memfd_create,
    .fcntl = failing_fcntl,
    .ftruncate = failing_ftruncate,
    .fallocate = failing_fallocate,
    .lseek = failing_lseek,
    .pread = failing_pread,
    .fstat = failing_fstat,
    .fstatfs = failing_fstatfs,
    .mmap = failing_mmap,
    .madvise = failing_madvise,
    .eventfd = failing_eventfd,
    .thread_create = failing_thread_create,
    .calloc = failing_calloc,
};

/* One call fails at most, so the second try of anything has to succeed. */
static void twice(struct gpu_device *device, int (*act)(struct gpu_device *device, uint32_t arena),
                  uint32_t arena)
{
    int err = act(device, arena);

    assert_true(err <= 0);
    if (err)
        assert_int_equal(act(device, arena), 0);
}

static int open_arena(struct gpu_device *device, uint32_t arena)
{
    struct gpu_arena_options options = {
        .block_bytes = PAGE, .max_granules = 6, .is_shared = arena == 0};

    assert_int_equal(gpu_choose_granule(PAGE, PAGE, &options.granule), 0);
    return gpu_arena_open(device, arena, &options);
}

static int export_arena(struct gpu_device *device, uint32_t arena)
{
    int fd;
    int err = gpu_arena_export(device, arena, arena == 0 ? GPU_READ : GPU_WRITE, &fd);

    if (!err)
        (void)close(fd);
    return err;
}

static int commit_first(struct gpu_device *device, uint32_t arena)
{
    return commit_now(device, arena, 0);
}

static int commit_second(struct gpu_device *device, uint32_t arena)
{
    return commit_now(device, arena, 1);
}

static int decommit_first(struct gpu_device *device, uint32_t arena)
{
    return decommit_now(device, arena, 0);
}

static int check(struct gpu_device *device, uint32_t arena)
{
    (void)arena;
    return gpu_device_check_excess(device, NULL, 0);
}

static uint64_t charged_bytes(const struct gpu_device *device)
{
    struct gpu_memory memory;

    gpu_device_memory(device, &memory);
    return memory.charged_bytes;
}

static void live(struct gpu_device *device)
{
    for (uint32_t arena = 0; arena < 2; arena++) {
        twice(device, open_arena, arena);
        twice(device, export_arena, arena);
        twice(device, commit_first, arena);
        twice(device, commit_second, arena);
    }
    assert_int_equal(charged_bytes(device), 4 * PAGE);
    assert_int_equal(commit_now(device, 0, 2), -EDQUOT); /* no failure leaves room or takes it */
    twice(device, check, 0);
    twice(device, decommit_first, 1);
    twice(device, trim_now, 1);
    twice(device, commit_first, 1);
    twice(device, close_now, 0);
    assert_int_equal(charged_bytes(device), 2 * PAGE);
    twice(device, check, 0);
    twice(device, close_now, 1);
    assert_int_equal(charged_bytes(device), 0);
    twice(device, check, 0);
}

/* Answers whether a call failed: if none did, N was past the last one. */
static bool live_once(const struct gpu_device_options *options, long nth)
{
    struct gpu_device *device = NULL;
    uint32_t num_descriptors = count_descriptors();

    atomic_store(&num_calls_left, nth);
    int err = host_device_create(options, &failing_syscalls, &device);
    assert_true(err <= 0);
    assert_int_equal(err == 0, device != NULL);
    if (!err)
        live(device);
    bool has_failed = atomic_load(&num_calls_left) <= 0;
    gpu_device_destroy(device);

    assert_int_equal(count_descriptors(), num_descriptors);
    assert_int_equal(count_mappings(), 0);
    return has_failed;
}

static void fail_each_call(uint64_t populate_bytes)
{
    static const int errors[] = {EPERM, ENOMEM, ENOSPC, EINTR};
    struct gpu_device_options options = {.budget_bytes = 4 * PAGE,
                                         .page_bytes = PAGE,
                                         .max_arenas = 2,
                                         .max_operations = 4,
                                         .populate_bytes = populate_bytes,
                                         .without_mount = source == SOURCE_MEMFD};

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        long nth = 1;

        error_to_give = errors[i];
        while (live_once(&options, nth))
            nth++;
        print_message("%s: %ld calls\n", strerror(errors[i]), nth - 1);
        assert_true(nth > 30);
    }
}

/* ---- a device of descriptors that outlived another ---- */

struct kept {
    int mount_fd;
    struct gpu_arena_files files[2];
};

static int duplicate(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Two arenas with granules 0 and 1, made with no call failing. */
static struct kept keep(const struct gpu_device_options *options)
{
    struct gpu_device *device = device_create_with(options);
    struct kept kept = {.mount_fd = -1};

    for (uint32_t arena = 0; arena < 2; arena++) {
        assert_int_equal(open_arena(device, arena), 0);
        assert_int_equal(commit_now(device, arena, 0), 0);
        assert_int_equal(commit_now(device, arena, 1), 0);
        memset(gpu_arena_base(device, arena), 7, 2 * PAGE);
        assert_int_equal(gpu_arena_keep(device, arena, &kept.files[arena]), 0);
        kept.files[arena].fd = duplicate(kept.files[arena].fd);
        kept.files[arena].reader_fd = duplicate(kept.files[arena].reader_fd);
    }
    if (gpu_device_keep(device, &kept.mount_fd) == 0)
        kept.mount_fd = duplicate(kept.mount_fd);
    gpu_device_destroy(device);
    return kept;
}

static void close_files(struct gpu_arena_files *files)
{
    if (files->fd >= 0)
        (void)close(files->fd);
    if (files->reader_fd >= 0)
        (void)close(files->reader_fd);
    *files = (struct gpu_arena_files){-1, -1};
}

static int adopt_arena(struct gpu_device *device, struct kept *kept, uint32_t arena)
{
    struct gpu_arena_options options = {
        .block_bytes = PAGE, .max_granules = 6, .is_shared = arena == 0};
    const uint64_t granules = 3;

    assert_int_equal(gpu_choose_granule(PAGE, PAGE, &options.granule), 0);
    int err = gpu_arena_adopt(device, arena, &options, kept->files[arena], &granules, 9);
    if (err)
        return err;
    kept->files[arena] = (struct gpu_arena_files){-1, -1};
    (void)device_wait(device, 9); /* what is left to trim is found by number */
    return 0;
}

/* The bytes of before, or none: a failed call costs a granule, never a byte. */
static void check_bytes(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    const char *base = (char *)gpu_arena_base(device, arena) + granule * PAGE;

    assert_int_equal(base[0], 7);
    assert_memory_equal(base, base + 1, PAGE - 1);
}

static int adopt_granule_now(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    int answer = gpu_adopt_granule(device, arena, granule, 9);

    return answer ? answer : device_wait(device, 9);
}

static void live_again(struct gpu_device *device, struct kept *kept)
{
    for (uint32_t arena = 0; arena < 2; arena++) {
        if (adopt_arena(device, kept, arena) != 0)
            assert_int_equal(adopt_arena(device, kept, arena), 0);
        for (uint32_t granule = 0; granule < 2; granule++) {
            if (adopt_granule_now(device, arena, granule) == 0)
                check_bytes(device, arena, granule);
        }
    }
    (void)decommit_now(device, 0, 0);
    int err =
        gpu_move_granule(device, (struct gpu_granule_ref){1, 0}, (struct gpu_granule_ref){0, 3}, 9);
    if (err == 0 && device_wait(device, 9) == 0)
        check_bytes(device, 0, 3);
    gpu_device_adopt_end(device);
    twice(device, close_now, 0);
    twice(device, close_now, 1);
    assert_int_equal(charged_bytes(device), 0);
    twice(device, check, 0);
}

static bool live_again_once(const struct gpu_device_options *options, long nth)
{
    struct gpu_device *device = NULL;
    uint32_t num_descriptors = count_descriptors();
    struct kept kept = keep(options);

    atomic_store(&num_calls_left, nth);
    int err = host_device_adopt(options, &failing_syscalls, kept.mount_fd, &device);
    assert_true(err <= 0);
    if (!err) {
        live_again(device, &kept);
    } else if (kept.mount_fd >= 0) {
        assert_int_equal(close(kept.mount_fd), 0); /* it stayed ours */
    }
    bool has_failed = atomic_load(&num_calls_left) <= 0;
    gpu_device_destroy(device);
    for (uint32_t arena = 0; arena < 2; arena++)
        close_files(&kept.files[arena]);

    assert_int_equal(count_descriptors(), num_descriptors);
    assert_int_equal(count_mappings(), 0);
    return has_failed;
}

static void a_failing_call_of_an_adoption_costs_what_it_was_for_and_no_byte(void **state)
{
    static const int errors[] = {EPERM, ENOSPC};
    struct gpu_device_options options = {.budget_bytes = 4 * PAGE,
                                         .page_bytes = PAGE,
                                         .max_arenas = 2,
                                         .max_operations = 4,
                                         .without_mount = source == SOURCE_MEMFD};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        long nth = 1;

        error_to_give = errors[i];
        while (live_again_once(&options, nth))
            nth++;
        assert_true(nth > 30);
    }
}

static void each_failing_call_is_an_error_and_leaves_nothing_behind(void **state)
{
    (void)state;
    fail_each_call(0);
}

static void so_it_is_while_the_device_populates(void **state)
{
    (void)state;
    fail_each_call(4 * PAGE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_call_is_an_error_and_leaves_nothing_behind),
        cmocka_unit_test(so_it_is_while_the_device_populates),
        cmocka_unit_test(a_failing_call_of_an_adoption_costs_what_it_was_for_and_no_byte),
    };
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
