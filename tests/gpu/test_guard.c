/* tests/gpu/test_guard.c - what a tenant does to the file of its arena harms that arena only. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char staging[64 << 10];

/* Made by the test itself and not before it: cmocka sets handlers of its own in between. */
static struct gpu_device *scene_create(void)
{
    struct gpu_device *device = device_create(SOURCE_MOUNT, 8);

    for (uint32_t arena = 0; arena < 2; arena++) {
        arena_open(device, arena, 64 * KiB, 6, true);
        assert_int_equal(commit_now(device, arena, 0), 0);
        memset(gpu_arena_base(device, arena), 4, PAGE);
    }
    return device;
}

static int copy_out(struct gpu_device *device, uint32_t arena, uint32_t slot)
{
    struct gpu_copy copy = {.from = {.arena = arena, .slot = slot},
                            .to = {.arena = GPU_NO_ARENA, .memory = staging}};
    int answer = gpu_copy(device, &copy, 1, 1);
    return answer ? answer : device_wait(device, 1);
}

static void truncate_arena(struct gpu_device *device, uint32_t arena)
{
    int fd;

    assert_int_equal(gpu_arena_export(device, arena, GPU_WRITE, &fd), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    (void)close(fd);
}

static void a_truncated_arena_fails_its_copies_and_no_others(void **state)
{
    struct gpu_device *device = scene_create();
    struct gpu_excess excess[4];
    (void)state;

    truncate_arena(device, 0);
    assert_int_equal(copy_out(device, 0, 5), -EIO);
    assert_int_equal(copy_out(device, 1, 5), 0);
    assert_int_equal(staging[64 * KiB - 1], 4);
    assert_int_equal(gpu_device_check_excess(device, excess, 4), 1);
    assert_int_equal(excess[0].arena, 0);
    assert_true(excess[0].is_damaged);
    gpu_device_destroy(device);
}

/* Nobody touched it meanwhile, and it has its size again: zeros would be read as what was there. */
static void memory_that_was_pulled_away_is_missed(void **state)
{
    struct gpu_device *device = scene_create();
    struct gpu_excess excess[4];
    struct stat status;
    int fd;

    (void)state;
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    assert_int_equal(gpu_arena_export(device, 0, GPU_WRITE, &fd), 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(ftruncate(fd, status.st_size), 0);
    (void)close(fd);
    assert_false(gpu_arena_is_damaged(device, 0));
    assert_int_equal(gpu_device_check_excess(device, excess, 4), 1);
    assert_int_equal(excess[0].arena, 0);
    assert_true(excess[0].is_damaged);
    assert_true(gpu_arena_is_damaged(device, 0));
    assert_int_equal(copy_out(device, 0, 5), -EIO);
    assert_int_equal(copy_out(device, 1, 5), 0);
    gpu_device_destroy(device);
}

static void so_do_large_copies_of_the_lane(void **state)
{
    static char large_staging[2 << 20];
    struct gpu_device *device = device_create(SOURCE_MOUNT, 8);
    struct gpu_copy copy = {.from = {.arena = GPU_NO_ARENA, .memory = large_staging},
                            .to = {.arena = 0, .slot = 2}};
    (void)state;

    arena_open(device, 0, 2 * MiB, 4, false);
    assert_int_equal(commit_now(device, 0, 1), 0);
    truncate_arena(device, 0);
    assert_int_equal(gpu_copy(device, &copy, 1, 6), 0);
    assert_int_equal(device_wait(device, 6), -EIO);
    gpu_device_destroy(device);
}

static void a_damaged_arena_can_only_be_closed(void **state)
{
    struct gpu_device *device = scene_create();
    (void)state;

    truncate_arena(device, 0);
    assert_int_equal(copy_out(device, 0, 1), -EIO);
    assert_int_equal(commit_now(device, 0, 1), -EIO);
    assert_int_equal(copy_out(device, 0, 1), -EIO);

    assert_int_equal(close_now(device, 0), 0);
    arena_open(device, 0, 64 * KiB, 6, false);
    assert_int_equal(commit_now(device, 0, 0), 0);
    assert_int_equal(copy_out(device, 0, 1), 0);
    assert_int_equal(staging[0], 0);
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    gpu_device_destroy(device);
}

static void a_file_truncated_and_grown_again_is_a_loss_of_content_only(void **state)
{
    struct gpu_device *device = scene_create();
    (void)state;

    truncate_arena(device, 0);
    assert_int_equal(commit_now(device, 0, 3), 0); /* grows it */
    assert_int_equal(copy_out(device, 0, 1), 0);
    assert_int_equal(staging[0], 0);
    gpu_device_destroy(device);
}

static int touch_truncated(void)
{
    char path[] = "/tmp/kvpoold-test-XXXXXX";
    int fd = mkstemp(path);

    (void)unlink(path);
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || page == MAP_FAILED)
        return 0;
    (void)page[0];
    return 0; /* it was not killed */
}

static void exit_with_42(int number)
{
    (void)number;
    _exit(42);
}

/* A device of its own in a process without one: the handler before the guard's is @handler. */
static int touch_after(void (*handler)(int number))
{
    static const struct gpu_device_options options = {
        .budget_bytes = PAGE, .page_bytes = PAGE, .max_arenas = 1, .max_operations = 1};
    struct gpu_device *device;

    (void)signal(SIGBUS, handler);
    return gpu_device_create(&options, &device) == 0 ? touch_truncated() : 1;
}

static int touch_after_none(void *argument)
{
    (void)argument;
    return touch_after(SIG_DFL);
}

static int touch_after_one(void *argument)
{
    (void)argument;
    return touch_after(exit_with_42);
}

static void a_bus_error_elsewhere_still_kills(void **state)
{
    (void)state;
    assert_int_equal(in_child(touch_after_none, NULL), -SIGBUS);
}

static void a_bus_error_elsewhere_goes_to_the_handler_of_before(void **state)
{
    (void)state;
    assert_int_equal(in_child(touch_after_one, NULL), 42);
}

static void a_mount_used_up_by_touching_holes_is_an_error_and_is_repaired(void **state)
{
    struct gpu_device *device = scene_create();
    struct gpu_excess excess[4];
    int fd;
    (void)state;

    assert_int_equal(gpu_arena_export(device, 1, GPU_WRITE, &fd), 0);
    assert_int_equal(fallocate(fd, 0, 0, 6 * (off_t)PAGE), 0);
    assert_int_equal(commit_now(device, 0, 1), 0); /* all 8 pages are taken */
    assert_int_equal(commit_now(device, 0, 2), -ENOSPC);

    assert_int_equal(gpu_device_check_excess(device, excess, 4), 1);
    assert_int_equal(excess[0].arena, 1);
    assert_int_equal(excess[0].physical_bytes, 6 * PAGE);
    assert_int_equal(trim_now(device, 1), 0);
    assert_int_equal(commit_now(device, 0, 2), 0);
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    (void)close(fd);
    gpu_device_destroy(device);
}

static void memory_of_a_closed_arena_that_comes_back_is_nobodys(void **state)
{
    struct gpu_device *device = scene_create();
    struct gpu_excess excess[4];
    int fd;
    (void)state;

    assert_int_equal(gpu_arena_export(device, 1, GPU_WRITE, &fd), 0);
    assert_int_equal(close_now(device, 1), 0);
    assert_int_equal(gpu_device_check_excess(device, excess, 4), 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);

    assert_int_equal(gpu_device_check_excess(device, excess, 4), 1);
    assert_int_equal(excess[0].arena, GPU_NO_ARENA);
    assert_true(excess[0].physical_bytes > 0);
    (void)close(fd);
    assert_int_equal(gpu_device_check_excess(device, excess, 4), 0);
    gpu_device_destroy(device);
}

static void an_immutable_file_is_punched_all_the_same(void **state)
{
    struct gpu_device *device = scene_create();
    int fd, flags = FS_IMMUTABLE_FL;
    (void)state;

    assert_int_equal(gpu_arena_export(device, 0, GPU_WRITE, &fd), 0);
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) != 0) {
        (void)close(fd);
        gpu_device_destroy(device);
        skip(); /* a kernel or a user that cannot */
    }
    assert_int_equal(decommit_now(device, 0, 0), 0);
    (void)close(fd);
    gpu_device_destroy(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_truncated_arena_fails_its_copies_and_no_others),
        cmocka_unit_test(memory_that_was_pulled_away_is_missed),
        cmocka_unit_test(so_do_large_copies_of_the_lane),
        cmocka_unit_test(a_damaged_arena_can_only_be_closed),
        cmocka_unit_test(a_file_truncated_and_grown_again_is_a_loss_of_content_only),
        cmocka_unit_test(a_bus_error_elsewhere_still_kills),
        cmocka_unit_test(a_bus_error_elsewhere_goes_to_the_handler_of_before),
        cmocka_unit_test(a_mount_used_up_by_touching_holes_is_an_error_and_is_repaired),
        cmocka_unit_test(memory_of_a_closed_arena_that_comes_back_is_nobodys),
        cmocka_unit_test(an_immutable_file_is_punched_all_the_same),
    };
    enum source source;
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
