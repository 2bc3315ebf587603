/* tests/gpu/test_adopt.c - a device and its arenas made again of descriptors that outlived it. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NUM_PAGES = 8, MAX_GRANULES = 12, SHARED = 3, PRIVATE = 4, FRESH = 5 };

static enum source source;
static struct gpu_device_options options = {
    .budget_bytes = NUM_PAGES * PAGE, .page_bytes = PAGE, .max_arenas = 8, .max_operations = 16};

/* What a keeper has of the arenas SHARED and PRIVATE, of one page a granule and a slot. */
struct kept {
    int mount_fd;
    struct gpu_arena_files shared, private;
    char *seen; /* the private arena, as one of its tenants has it mapped for good */
};

static int duplicate(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static struct gpu_arena_files files_keep(const struct gpu_device *device, uint32_t arena)
{
    struct gpu_arena_files files;

    assert_int_equal(gpu_arena_keep(device, arena, &files), 0);
    return (struct gpu_arena_files){duplicate(files.fd), duplicate(files.reader_fd)};
}

static void fill(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    char *base = gpu_arena_base(device, arena);

    assert_int_equal(commit_now(device, arena, granule), 0);
    memset(base + granule * PAGE, (int)(16 * arena + granule), PAGE);
}

static bool has(const struct gpu_device *device, uint32_t arena, uint32_t granule,
                uint32_t of_arena, uint32_t of_granule)
{
    const char *base = (char *)gpu_arena_base(device, arena) + granule * PAGE;
    char expected = (char)(16 * of_arena + of_granule);

    return base[0] == expected && memcmp(base, base + 1, PAGE - 1) == 0;
}

/* An earlier life: granules 0, 2 and 5 of the shared arena, 1 and 11 of the private one. */
static void live_before(struct kept *kept)
{
    struct gpu_device *device = device_create_with(&options);
    int fd;

    arena_open(device, SHARED, PAGE, MAX_GRANULES, true);
    arena_open(device, PRIVATE, PAGE, MAX_GRANULES, false);
    fill(device, SHARED, 0);
    fill(device, SHARED, 2);
    fill(device, SHARED, 5);
    fill(device, PRIVATE, 1);
    fill(device, PRIVATE, 11);
    assert_int_equal(gpu_arena_export(device, PRIVATE, GPU_WRITE, &fd), 0);
    kept->seen = mmap(NULL, MAX_GRANULES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(kept->seen != MAP_FAILED);
    (void)close(fd);
    int answer = gpu_device_keep(device, &fd);
    assert_int_equal(answer, source == SOURCE_MOUNT ? 0 : -ENOENT);
    kept->mount_fd = answer ? -1 : duplicate(fd);
    kept->shared = files_keep(device, SHARED);
    kept->private = files_keep(device, PRIVATE);
    gpu_device_destroy(device);
}

static struct gpu_arena_options options_of(bool is_shared)
{
    struct gpu_arena_options arena = {
        .block_bytes = PAGE, .max_granules = MAX_GRANULES, .is_shared = is_shared};

    assert_int_equal(gpu_choose_granule(PAGE, PAGE, &arena.granule), 0);
    return arena;
}

static int adopt_now(struct gpu_device *device, uint32_t arena, bool is_shared,
                     struct gpu_arena_files files, uint64_t granules)
{
    struct gpu_arena_options arena_options = options_of(is_shared);
    int answer = gpu_arena_adopt(device, arena, &arena_options, files, &granules, 21);

    return answer ? answer : device_wait(device, 21);
}

static int granule_now(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    int answer = gpu_adopt_granule(device, arena, granule, 22);

    return answer ? answer : device_wait(device, 22);
}

static int move_now(struct gpu_device *device, uint32_t from, uint32_t to)
{
    int answer = gpu_move_granule(device, (struct gpu_granule_ref){PRIVATE, from},
                                  (struct gpu_granule_ref){FRESH, to}, 23);

    return answer ? answer : device_wait(device, 23);
}

static uint64_t charged_pages(const struct gpu_device *device)
{
    struct gpu_memory memory;

    gpu_device_memory(device, &memory);
    assert_int_equal(memory.charged_bytes, memory.populated_bytes);
    return memory.charged_bytes / PAGE;
}

static struct kept kept;
static struct gpu_device *device;

/* What a hook was told: pages that have memory now. Read once the operation was reaped. */
static int64_t hook_pages;

static void hook_changed(void *state, void *address, uint64_t bytes, bool has_memory)
{
    (void)state, (void)address;
    hook_pages += (has_memory ? 1 : -1) * (int64_t)(bytes / PAGE);
}

static const struct gpu_memory_hook hook = {.changed = hook_changed};

static int setup(void **state)
{
    (void)state;
    options.populate_bytes = 0;
    options.without_mount = source == SOURCE_MEMFD;
    live_before(&kept);
    assert_int_equal(gpu_device_adopt(&options, kept.mount_fd, &device), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gpu_device_destroy(device);
    (void)munmap(kept.seen, MAX_GRANULES * PAGE);
    assert_int_equal(count_mappings(), 0);
    return 0;
}

static void drop(struct gpu_arena_files files)
{
    assert_int_equal(close(files.fd), 0);
    if (files.reader_fd >= 0)
        assert_int_equal(close(files.reader_fd), 0);
}

static void what_was_committed_is_there_again_in_its_place(void **state)
{
    (void)state;
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 0 | 1 << 5), 0);
    assert_int_equal(charged_pages(device), 2);
    assert_int_equal(granule_now(device, SHARED, 0), 0);
    assert_int_equal(granule_now(device, SHARED, 5), 0);
    assert_true(has(device, SHARED, 0, SHARED, 0));
    assert_true(has(device, SHARED, 5, SHARED, 5));
    assert_int_equal(commit_now(device, SHARED, 5), -EALREADY);
    assert_int_equal(granule_now(device, SHARED, 5), -EALREADY);
    drop(kept.private);
}

/* Whoever pins memory hears of what was there before, and of what moved. */
static void a_hook_is_told_of_what_outlived(void **state)
{
    struct gpu_device_options hooked = options;

    (void)state;
    hooked.memory_hook = &hook;
    hook_pages = 0;
    gpu_device_destroy(device);
    (void)munmap(kept.seen, MAX_GRANULES * PAGE);
    drop(kept.private);
    drop(kept.shared);
    live_before(&kept);
    assert_int_equal(gpu_device_adopt(&hooked, kept.mount_fd, &device), 0);
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 0 | 1 << 5), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1 | 1 << 11), 0);
    assert_int_equal(hook_pages, 0);
    assert_int_equal(granule_now(device, SHARED, 0), 0);
    assert_int_equal(granule_now(device, PRIVATE, 11), 0);
    assert_int_equal(hook_pages, 2);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, false);
    assert_int_equal(move_now(device, 1, 0), 0); /* of one that it was not told of */
    assert_int_equal(hook_pages, 3);
    assert_int_equal(move_now(device, 11, 4), 0);
    assert_int_equal(hook_pages, 3);
    assert_int_equal(close_now(device, PRIVATE), 0);
    assert_int_equal(hook_pages, 3);
    assert_int_equal(decommit_now(device, FRESH, 4), 0);
    assert_int_equal(hook_pages, 2);
}

static void what_nobody_wants_loses_its_memory(void **state)
{
    (void)state;
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 0), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 0), 0);
    assert_int_equal(charged_pages(device), 1);
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    assert_int_equal(granule_now(device, SHARED, 2), -ENOENT);
    assert_int_equal(commit_now(device, SHARED, 2), 0); /* and reads as zeros then */
    assert_true(has(device, SHARED, 2, 0, 0));
}

static void a_wanted_granule_is_of_no_use_before_it_was_adopted(void **state)
{
    char bytes[8];
    struct gpu_copy copy = {{.arena = SHARED, .slot = 1}, {GPU_NO_ARENA, 0, bytes}};

    (void)state;
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 0), 0);
    assert_int_equal(gpu_copy(device, &copy, 1, 31), -EINVAL);
    assert_int_equal(gpu_commit(device, SHARED, 0, 31), -EALREADY);
    assert_int_equal(decommit_now(device, SHARED, 0), 0);
    assert_int_equal(charged_pages(device), 0);
    assert_int_equal(granule_now(device, SHARED, 0), -ENOENT);
    drop(kept.private);
}

static void a_granule_with_a_hole_is_not_trusted(void **state)
{
    (void)state;
    drop(kept.shared); /* what is not adopted has memory until it is closed */
    assert_int_equal(fallocate(kept.private.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               11 * PAGE + 4096 * 3, 4096),
                     0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1 | 1 << 11 | 1 << 7), 0);
    assert_int_equal(charged_pages(device), 3);
    assert_int_equal(granule_now(device, PRIVATE, 11), -ENODATA);
    assert_int_equal(granule_now(device, PRIVATE, 7), -ENODATA); /* never had any */
    assert_int_equal(granule_now(device, PRIVATE, 1), 0);
    assert_true(has(device, PRIVATE, 1, PRIVATE, 1));
    assert_int_equal(charged_pages(device), 1);
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    assert_int_equal(close_now(device, PRIVATE), 0);
}

/* Allocated and not yet written: as far as the process came that was killed in a commit. */
static void a_commit_that_was_killed_is_a_hole(void **state)
{
    (void)state;
    assert_int_equal(fallocate(kept.private.fd, 0, 3 * PAGE, PAGE), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 3), 0);
    assert_int_equal(granule_now(device, PRIVATE, 3), -ENODATA);
    assert_int_equal(charged_pages(device), 0);
    drop(kept.shared);
}

/* Committed, and never written by anybody: it is whole, and has its zeros. */
static void what_was_only_committed_is_whole(void **state)
{
    struct gpu_arena_files files;

    (void)state;
    drop(kept.private);
    drop(kept.shared);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, false);
    assert_int_equal(commit_now(device, FRESH, 2), 0);
    files = files_keep(device, FRESH);
    int fd, mount_fd = gpu_device_keep(device, &fd) ? -1 : duplicate(fd);
    gpu_device_destroy(device);
    assert_int_equal(gpu_device_adopt(&options, mount_fd, &device), 0);
    assert_int_equal(adopt_now(device, FRESH, false, files, 1 << 2), 0);
    assert_int_equal(granule_now(device, FRESH, 2), 0);
    assert_true(has(device, FRESH, 2, 0, 0));
}

/* Killed while it made a file: the name is still there. */
static void a_file_that_was_never_finished_is_no_obstacle(void **state)
{
    char path[64];
    int fd, mount_fd;

    (void)state;
    drop(kept.private);
    drop(kept.shared);
    if (source == SOURCE_MEMFD)
        return; /* they have no names */
    assert_int_equal(gpu_device_keep(device, &fd), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/arena", fd);
    assert_int_equal(close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600)), 0);
    mount_fd = duplicate(fd);
    gpu_device_destroy(device);
    assert_int_equal(gpu_device_adopt(&options, mount_fd, &device), 0);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, true);
}

static void no_more_is_wanted_than_the_budget_has(void **state)
{
    (void)state;
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 0x1ff), -EDQUOT); /* 9 of 8 */
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 0xff), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1), -EDQUOT);
    assert_int_equal(decommit_now(device, SHARED, 7), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1), 0);
}

static void other_files_are_not_taken(void **state)
{
    struct gpu_arena_files files = {memfd_create("other", MFD_CLOEXEC), -1};
    struct gpu_arena_options small = options_of(false);
    uint64_t none = 0;

    (void)state;
    assert_int_equal(ftruncate(files.fd, MAX_GRANULES * PAGE), 0);
    assert_int_equal(adopt_now(device, FRESH, false, files, 0), -ESTALE);
    assert_int_equal(close(files.fd), 0);
    small.max_granules--;
    assert_int_equal(gpu_arena_adopt(device, FRESH, &small, kept.private, &none, 1), -ESTALE);
    /* A second descriptor that can write would make every reader a writer. */
    files = (struct gpu_arena_files){kept.shared.fd, kept.shared.fd};
    assert_int_equal(adopt_now(device, FRESH, true, files, 0), -ESTALE);
    if (source == SOURCE_MOUNT) {
        files.reader_fd = -1;
        assert_int_equal(adopt_now(device, FRESH, true, files, 0), -ESTALE);
    }
    drop(kept.private);
    drop(kept.shared);
}

static void another_budget_is_another_device(void **state)
{
    struct gpu_device_options larger = options;
    struct gpu_device *other = NULL;
    int pipe_fds[2];

    (void)state;
    drop(kept.private);
    drop(kept.shared);
    if (source == SOURCE_MEMFD)
        return; /* has no budget of its own */
    larger.budget_bytes += PAGE;
    int fd;
    assert_int_equal(gpu_device_keep(device, &fd), 0);
    assert_int_equal(gpu_device_adopt(&larger, fd, &other), -ESTALE);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(gpu_device_adopt(&options, pipe_fds[0], &other), -ESTALE);
    assert_int_equal(close(pipe_fds[0]), 0); /* it stayed ours */
    assert_int_equal(close(pipe_fds[1]), 0);
}

static void a_moved_granule_is_out_of_reach_of_those_before(void **state)
{
    (void)state;
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1 | 1 << 11), 0);
    assert_int_equal(granule_now(device, PRIVATE, 11), 0);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, false);
    assert_int_equal(move_now(device, 1, 0), 0);  /* as it was found */
    assert_int_equal(move_now(device, 11, 4), 0); /* and after it was adopted */
    assert_int_equal(charged_pages(device), 2);
    assert_true(has(device, FRESH, 0, PRIVATE, 1));
    assert_true(has(device, FRESH, 4, PRIVATE, 11));
    assert_int_equal(kept.seen[1 * PAGE], 0);
    assert_int_equal(gpu_trim(device, PRIVATE, 1), 0); /* that look gave it a page */
    assert_int_equal(device_wait(device, 1), 0);
    memset(kept.seen, 0x7e, MAX_GRANULES * PAGE / 4);
    assert_true(has(device, FRESH, 0, PRIVATE, 1));
    assert_int_equal(close_now(device, PRIVATE), 0);
    assert_true(has(device, FRESH, 4, PRIVATE, 11));
    drop(kept.shared);
}

static void a_full_budget_has_room_to_move(void **state)
{
    (void)state;
    drop(kept.shared); /* what is not adopted has memory until it is closed */
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1 | 1 << 11), 0);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, false);
    for (uint32_t granule = 6; granule < 12; granule++)
        assert_int_equal(commit_now(device, FRESH, granule), 0);
    assert_int_equal(commit_now(device, FRESH, 0), -EDQUOT);
    assert_int_equal(move_now(device, 1, 0), 0);
    assert_int_equal(move_now(device, 11, 1), 0);
    assert_int_equal(charged_pages(device), 8);
    assert_true(has(device, FRESH, 1, PRIVATE, 11));
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
}

static void what_cannot_be_moved_stays(void **state)
{
    (void)state;
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1 | 1 << 3), 0);
    arena_open(device, FRESH, PAGE, MAX_GRANULES, false);
    assert_int_equal(move_now(device, 3, 0), -ENODATA); /* a hole */
    assert_int_equal(move_now(device, 2, 0), -ENOENT);  /* not wanted */
    assert_int_equal(move_now(device, 1, MAX_GRANULES), -EINVAL);
    assert_int_equal(commit_now(device, FRESH, 0), 0);
    assert_int_equal(move_now(device, 1, 0), -EALREADY);
    assert_int_equal(charged_pages(device), 3);
    assert_int_equal(granule_now(device, PRIVATE, 1), 0);
    assert_true(has(device, PRIVATE, 1, PRIVATE, 1));
    drop(kept.shared);
}

static void readers_get_no_way_to_write_in_a_second_life(void **state)
{
    char path[64], byte;
    int fd;

    (void)state;
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 2), 0);
    assert_int_equal(granule_now(device, SHARED, 2), 0);
    assert_int_equal(gpu_arena_export(device, SHARED, GPU_READ, &fd), 0);
    assert_int_equal(pread(fd, &byte, 1, 2 * PAGE), 1);
    assert_int_equal(byte, 16 * SHARED + 2);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (source == SOURCE_MOUNT) {
        assert_int_equal(open(path, O_RDWR), -1);
        assert_int_equal(errno, EROFS);
    }
    assert_int_equal(close(fd), 0);
    drop(kept.private);
}

static void an_adopted_device_goes_on_as_any_other(void **state)
{
    (void)state;
    /* Its tenant has it mapped: to close the descriptor would leave it its memory. */
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 0), 0);
    assert_int_equal(close_now(device, PRIVATE), 0);
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 2), 0);
    assert_int_equal(granule_now(device, SHARED, 2), 0);
    arena_open(device, FRESH, 3 * PAGE, 2, true);
    assert_int_equal(commit_now(device, FRESH, 0), 0);
    assert_int_equal(commit_now(device, FRESH, 1), 0);
    assert_int_equal(commit_now(device, SHARED, 9), 0);
    assert_int_equal(commit_now(device, SHARED, 0), -EDQUOT);
    assert_int_equal(close_now(device, SHARED), 0);
    assert_int_equal(charged_pages(device), 6);
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
}

/* What populating took first would be missing where an arena is adopted. */
static void memory_is_populated_after_all_is_adopted(void **state)
{
    struct gpu_memory memory;

    (void)state;
    gpu_device_destroy(device);
    (void)munmap(kept.seen, MAX_GRANULES * PAGE);
    drop(kept.private);
    drop(kept.shared);
    options.populate_bytes = options.budget_bytes;
    live_before(&kept);
    assert_int_equal(gpu_device_adopt(&options, kept.mount_fd, &device), 0);
    assert_int_equal(adopt_now(device, SHARED, true, kept.shared, 1 << 0 | 1 << 2 | 1 << 5), 0);
    assert_int_equal(adopt_now(device, PRIVATE, false, kept.private, 1 << 1), 0);
    gpu_device_memory(device, &memory);
    assert_int_equal(memory.populated_bytes, 4 * PAGE);
    gpu_device_adopt_end(device);
    for (int i = 0; i < 1000 && memory.populated_bytes < options.budget_bytes; i++) {
        (void)usleep(10000);
        gpu_device_memory(device, &memory);
    }
    assert_int_equal(memory.populated_bytes, options.budget_bytes);
    assert_int_equal(memory.populate_status, 0);
    assert_int_equal(granule_now(device, SHARED, 5), 0);
    assert_true(has(device, SHARED, 5, SHARED, 5));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_committed_is_there_again_in_its_place, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_hook_is_told_of_what_outlived, setup, teardown),
        cmocka_unit_test_setup_teardown(what_nobody_wants_loses_its_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wanted_granule_is_of_no_use_before_it_was_adopted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_granule_with_a_hole_is_not_trusted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_commit_that_was_killed_is_a_hole, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_only_committed_is_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_was_never_finished_is_no_obstacle, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_more_is_wanted_than_the_budget_has, setup, teardown),
        cmocka_unit_test_setup_teardown(other_files_are_not_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(another_budget_is_another_device, setup, teardown),
        cmocka_unit_test_setup_teardown(a_moved_granule_is_out_of_reach_of_those_before, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_full_budget_has_room_to_move, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_moved_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(readers_get_no_way_to_write_in_a_second_life, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_adopted_device_goes_on_as_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_populated_after_all_is_adopted, setup, teardown),
    };
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
