/* tests/gpu/test_arena.c - what gpu/gpu.h promises of arenas: addresses, granules, one budget. */
#include "gpu/host/device.h"
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static enum source source;

static int setup(void **state)
{
    *state = device_create(source, 8);
    return 0;
}

static int teardown(void **state)
{
    gpu_device_destroy(*state);
    return 0;
}

static int count_excess(const struct gpu_device *device)
{
    return gpu_device_check_excess(device, NULL, 0);
}

static uint64_t charged_bytes(const struct gpu_device *device)
{
    struct gpu_memory memory;

    gpu_device_memory(device, &memory);
    return memory.charged_bytes;
}

static void an_open_arena_has_addresses_and_no_memory(void **state)
{
    arena_open(*state, 0, 1536 * KiB, 100, false);

    assert_int_equal((uintptr_t)gpu_arena_base(*state, 0) % PAGE, 0);
    assert_int_equal(charged_bytes(*state), 0);
    assert_int_equal(count_excess(*state), 0);
    assert_null(gpu_arena_base(*state, 1));
    assert_null(gpu_arena_base(*state, 1000));
}

static void slots_lie_one_stride_apart_across_granules(void **state)
{
    arena_open(*state, 0, 1536 * KiB, 2, false); /* 4 slots in 3 pages */
    assert_int_equal(commit_now(*state, 0, 0), 0);
    assert_int_equal(commit_now(*state, 0, 1), 0);
    char *base = gpu_arena_base(*state, 0);

    for (int slot = 1; slot <= 8; slot++)
        memset(base + (slot - 1) * 1536 * KiB, slot, 1536 * KiB);
    for (int slot = 1; slot <= 8; slot++) {
        assert_int_equal(base[(slot - 1) * 1536 * KiB], slot);
        assert_int_equal(base[slot * 1536 * KiB - 1], slot);
    }
    assert_int_equal(count_excess(*state), 0);
}

static void arenas_of_all_shapes_share_one_budget(void **state)
{
    arena_open(*state, 0, 1536 * KiB, 10, false); /* granules of 3 pages, of 8 */
    arena_open(*state, 1, 2 * MiB, 10, false);    /* of 1 page */

    assert_int_equal(commit_now(*state, 0, 0), 0);
    assert_int_equal(commit_now(*state, 0, 9), 0);
    assert_int_equal(commit_now(*state, 0, 4), -EDQUOT);
    assert_int_equal(commit_now(*state, 1, 0), 0);
    assert_int_equal(commit_now(*state, 1, 1), 0);
    assert_int_equal(commit_now(*state, 1, 2), -EDQUOT);
    assert_int_equal(charged_bytes(*state), 8 * PAGE);
    assert_int_equal(decommit_now(*state, 0, 9), 0);
    assert_int_equal(charged_bytes(*state), 5 * PAGE);
    assert_int_equal(commit_now(*state, 1, 2), 0);
    assert_int_equal(count_excess(*state), 0);
}

static void a_commit_is_charged_when_it_is_queued(void **state)
{
    arena_open(*state, 0, 2 * MiB, 9, false);

    for (uint32_t granule = 0; granule < 8; granule++)
        assert_int_equal(gpu_commit(*state, 0, granule, 5), 0);
    assert_int_equal(gpu_commit(*state, 0, 8, 5), -EDQUOT);
    assert_int_equal(gpu_commit(*state, 0, 0, 5), -EBUSY);
    assert_int_equal(gpu_decommit(*state, 0, 0, 5), -EBUSY);
    assert_int_equal(count_excess(*state), 0); /* also while it is under way */
    for (uint32_t granule = 0; granule < 8; granule++)
        assert_int_equal(device_wait(*state, 5), 0);
}

static void what_a_granule_held_is_gone_when_it_comes_back(void **state)
{
    static const char zeros[4096];

    arena_open(*state, 0, 2 * MiB, 8, false);
    arena_open(*state, 1, 2 * MiB, 8, false);
    for (uint32_t granule = 0; granule < 8; granule++) {
        assert_int_equal(commit_now(*state, 0, granule), 0);
        memset((char *)gpu_arena_base(*state, 0) + granule * PAGE, 0xaa, PAGE);
    }
    for (uint32_t granule = 0; granule < 8; granule++)
        assert_int_equal(decommit_now(*state, 0, granule), 0);

    for (uint32_t granule = 0; granule < 8; granule++) { /* half here, half in another arena */
        assert_int_equal(commit_now(*state, granule % 2, granule), 0);
        const char *at = (const char *)gpu_arena_base(*state, granule % 2) + granule * PAGE;
        for (size_t offset = 0; offset < PAGE; offset += sizeof(zeros))
            assert_memory_equal(at + offset, zeros, sizeof(zeros));
    }
}

static void committed_memory_is_resident(void **state)
{
    unsigned char pages[PAGE / 4096];

    arena_open(*state, 0, 2 * MiB, 2, false);
    assert_int_equal(commit_now(*state, 0, 1), 0);
    assert_int_equal(mincore((char *)gpu_arena_base(*state, 0) + PAGE, PAGE, pages), 0);
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
        assert_true(pages[i] & 1);
}

static void wrong_names_and_shapes_are_refused(void **state)
{
    struct gpu_arena_options options = {.granule = {.pages = 1, .slots = 2, .stride_bytes = MiB},
                                        .block_bytes = MiB,
                                        .max_granules = 4};

    assert_int_equal(gpu_arena_open(*state, 8, &options), -EINVAL); /* numbers are 0 to 7 */
    assert_int_equal(gpu_arena_open(*state, 0, &options), 0);
    assert_int_equal(gpu_arena_open(*state, 0, &options), -EEXIST);
    options.block_bytes = MiB + 1;
    assert_int_equal(gpu_arena_open(*state, 1, &options), -EINVAL);
    options.block_bytes = MiB;
    options.granule.slots = 3;
    assert_int_equal(gpu_arena_open(*state, 1, &options), -EINVAL);
    options.granule = (struct gpu_granule){.pages = UINT32_MAX, .slots = 1, .stride_bytes = 64};
    assert_int_equal(gpu_arena_open(*state, 1, &options), -EINVAL);
    options.granule = (struct gpu_granule){0};
    assert_int_equal(gpu_arena_open(*state, 1, &options), -EINVAL);

    assert_int_equal(gpu_commit(*state, 1, 0, 0), -ENOENT);
    assert_int_equal(gpu_commit(*state, 0, 4, 0), -EINVAL);
    assert_int_equal(gpu_decommit(*state, 0, 0, 0), -EALREADY);
    assert_int_equal(gpu_trim(*state, 1, 0), -ENOENT);
    assert_int_equal(gpu_arena_close(*state, 1, 0), -ENOENT);
    assert_int_equal(commit_now(*state, 0, 0), 0);
    assert_int_equal(gpu_commit(*state, 0, 0, 0), -EALREADY);
}

static void with_every_record_in_use_the_answer_is_busy(void **state)
{
    struct gpu_completion completions[64];
    size_t num_reaped = 0;

    arena_open(*state, 0, 2 * MiB, 100, false);
    for (int i = 0; i < 64; i++)
        assert_int_equal(gpu_trim(*state, 0, 0), 0);
    assert_int_equal(gpu_trim(*state, 0, 0), GPU_BUSY);
    assert_int_equal(gpu_commit(*state, 0, 0, 0), GPU_BUSY);
    assert_int_equal(gpu_copy(*state, NULL, 0, 0), GPU_BUSY);
    assert_int_equal(charged_bytes(*state), 0);
    while (num_reaped < 64)
        num_reaped += gpu_device_reap(*state, completions, 3);
    assert_int_equal(commit_now(*state, 0, 0), 0);
}

static void closing_gives_memory_back_even_under_a_mapping(void **state)
{
    struct stat status;
    int fd;

    arena_open(*state, 0, 2 * MiB, 8, false);
    for (uint32_t granule = 0; granule < 8; granule++)
        assert_int_equal(commit_now(*state, 0, granule), 0);
    assert_int_equal(gpu_arena_export(*state, 0, GPU_WRITE, &fd), 0);
    char *tenants = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(tenants, MAP_FAILED);
    memset(tenants, 1, 8 * PAGE);

    assert_int_equal(close_now(*state, 0), 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_blocks, 0);
    assert_int_equal(charged_bytes(*state), 0);
    assert_null(gpu_arena_base(*state, 0));
    (void)munmap(tenants, 8 * PAGE);
    (void)close(fd);

    arena_open(*state, 0, 2 * MiB, 8, true); /* the number is free again */
    assert_int_equal(commit_now(*state, 0, 7), 0);
}

static void an_arena_with_operations_is_not_closed(void **state)
{
    arena_open(*state, 0, 2 * MiB, 8, false);
    assert_int_equal(gpu_commit(*state, 0, 0, 1), 0);
    assert_int_equal(gpu_arena_close(*state, 0, 2), -EBUSY);
    assert_int_equal(device_wait(*state, 1), 0);

    assert_int_equal(gpu_arena_close(*state, 0, 2), 0);
    assert_int_equal(gpu_commit(*state, 0, 1, 3), -ENOENT);
    assert_int_equal(gpu_arena_close(*state, 0, 4), -ENOENT);
    assert_int_equal(device_wait(*state, 2), 0);
}

static void touched_holes_are_found_by_arena_and_taken_back(void **state)
{
    struct gpu_excess excess[4];
    int fd;

    arena_open(*state, 3, 2 * MiB, 200, true);
    arena_open(*state, 5, 2 * MiB, 8, true);
    assert_int_equal(commit_now(*state, 3, 1), 0);
    assert_int_equal(commit_now(*state, 5, 0), 0);
    assert_int_equal(gpu_arena_export(*state, 3, GPU_READ, &fd), 0);
    const volatile char *reader = mmap(NULL, 200 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(reader, MAP_FAILED);
    (void)reader[PAGE]; /* committed: nobody minds */
    assert_int_equal(count_excess(*state), 0);
    (void)reader[0];
    (void)reader[199 * PAGE];

    assert_int_equal(gpu_device_check_excess(*state, excess, ARRAY_SIZE(excess)), 1);
    assert_int_equal(excess[0].arena, 3);
    assert_int_equal(excess[0].charged_bytes, PAGE);
    assert_true(excess[0].physical_bytes > PAGE);
    assert_false(excess[0].is_damaged);
    assert_int_equal(trim_now(*state, 3), 0);
    assert_int_equal(count_excess(*state), 0);
    assert_int_equal(charged_bytes(*state), 2 * PAGE);
    (void)munmap((void *)(uintptr_t)reader, 200 * PAGE);
    (void)close(fd);
}

/* More runs of holes than one operation holds. */
static void a_trim_reaches_the_last_hole(void **state)
{
    struct gpu_device_options options = {.budget_bytes = 20 * MiB,
                                         .page_bytes = 64 * KiB,
                                         .max_arenas = 1,
                                         .max_operations = 4,
                                         .without_mount = source == SOURCE_MEMFD};
    struct gpu_device *device = device_create_with(&options);
    struct gpu_arena_options arena = {.block_bytes = 64 * KiB, .max_granules = 300};
    int fd;
    (void)state;

    assert_int_equal(gpu_choose_granule(64 * KiB, 64 * KiB, &arena.granule), 0);
    assert_int_equal(gpu_arena_open(device, 0, &arena), 0);
    for (uint32_t granule = 0; granule < 300; granule += 2)
        assert_int_equal(commit_now(device, 0, granule), 0);
    assert_int_equal(count_excess(device), 0);
    assert_int_equal(gpu_arena_export(device, 0, GPU_WRITE, &fd), 0);
    for (uint32_t granule = 0; granule < 300; granule++)
        assert_int_equal(pwrite(fd, "x", 1, granule * (off_t)(64 * KiB)), 1);
    assert_int_equal(count_excess(device), 1);

    assert_int_equal(trim_now(device, 0), 0);
    assert_int_equal(count_excess(device), 0);
    for (uint32_t granule = 0; granule < 300; granule++)
        assert_int_equal(((char *)gpu_arena_base(device, 0))[granule * 64 * KiB],
                         granule % 2 == 0 ? 'x' : 0);
    (void)close(fd);
    gpu_device_destroy(device);
}

/* Commits and decommits at random against the naive account of it. */
static void the_account_is_that_of_a_naive_model(void **state)
{
    bool is_committed[3][12] = {{false}};
    uint64_t model_bytes = 0;

    srand(1);
    for (uint32_t arena = 0; arena < 3; arena++)
        arena_open(*state, arena, (arena + 1) * 2 * MiB, 12, arena == 0);
    for (int round = 0; round < 600; round++) {
        uint32_t arena = (uint32_t)rand() % 3, granule = (uint32_t)rand() % 12;
        uint64_t bytes = (arena + 1) * PAGE;

        if (is_committed[arena][granule]) {
            assert_int_equal(decommit_now(*state, arena, granule), 0);
            model_bytes -= bytes;
            is_committed[arena][granule] = false;
        } else if (model_bytes + bytes > 8 * PAGE) {
            assert_int_equal(commit_now(*state, arena, granule), -EDQUOT);
        } else {
            assert_int_equal(commit_now(*state, arena, granule), 0);
            model_bytes += bytes;
            is_committed[arena][granule] = true;
        }
        assert_int_equal(charged_bytes(*state), model_bytes);
        assert_int_equal(count_excess(*state), 0);
    }
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static const struct gpu_device_options populated = {.budget_bytes = 256 * MiB,
                                                    .page_bytes = PAGE,
                                                    .max_arenas = 4,
                                                    .max_operations = 64,
                                                    .populate_bytes = 256 * MiB};

static _Atomic bool may_populate;

static int held_madvise(void *address, size_t bytes, int advice)
{
    while (advice == MADV_POPULATE_WRITE && !atomic_load(&may_populate))
        (void)usleep(100);
    return host_syscalls.madvise(address, bytes, advice);
}

static void a_device_answers_before_it_has_its_memory(void **state)
{
    struct gpu_device_options options = populated;
    struct host_syscalls slow_machine = host_syscalls;
    struct gpu_device *device;
    struct gpu_memory memory;
    double best = 1;
    (void)state;

    options.without_mount = source == SOURCE_MEMFD;
    slow_machine.madvise = held_madvise;
    for (int i = 0; i < 5; i++) {
        double start = now();
        atomic_store(&may_populate, false);
        assert_int_equal(host_device_create(&options, &slow_machine, &device), 0);
        arena_open(device, 0, 2 * MiB, 128, false);
        gpu_device_memory(device, &memory);
        best = now() - start < best ? now() - start : best;
        assert_true(memory.populated_bytes <= 8 * MiB); /* at most a slice is under way */
        atomic_store(&may_populate, true);
        gpu_device_destroy(device);
    }
    assert_true(best < 0.2);
}

static void a_device_populates_behind_commits_and_serves_them_from_it(void **state)
{
    struct gpu_device_options options = populated;
    struct gpu_memory memory;
    (void)state;

    options.without_mount = source == SOURCE_MEMFD;
    struct gpu_device *device = device_create_with(&options);
    arena_open(device, 0, 2 * MiB, 128, false);
    for (uint32_t granule = 0; granule < 20; granule++) /* they do not wait for all of it */
        assert_int_equal(commit_now(device, 0, granule), 0);
    do {
        (void)usleep(1000);
        gpu_device_memory(device, &memory);
        assert_int_equal(memory.populate_status, 0);
        assert_true(memory.populated_bytes <= memory.budget_bytes);
        assert_int_equal(count_excess(device), 0);
    } while (memory.populated_bytes < memory.populate_bytes);

    for (uint32_t granule = 20; granule < 128; granule++) /* out of the reserve, to its end */
        assert_int_equal(commit_now(device, 0, granule), 0);
    assert_int_equal(charged_bytes(device), 256 * MiB);
    for (uint32_t granule = 0; granule < 128; granule += 2)
        assert_int_equal(decommit_now(device, 0, granule), 0);
    assert_int_equal(count_excess(device), 0);
    gpu_device_destroy(device);
}

static void nothing_of_a_device_outlives_it(void **state)
{
    uint32_t num_descriptors = count_descriptors(), num_mappings = count_mappings();
    (void)state;

    for (int round = 0; round < 20; round++) {
        struct gpu_device *device = device_create(source, 4);
        arena_open(device, 0, 2 * MiB, 8, true);
        arena_open(device, 1, 2 * MiB, 8, false);
        for (uint32_t granule = 0; granule < 4; granule++)
            assert_int_equal(gpu_commit(device, granule % 2, granule, 0), 0);
        gpu_device_destroy(device); /* with operations queued, running and done */
    }
    assert_int_equal(count_descriptors(), num_descriptors);
    assert_int_equal(count_mappings(), num_mappings);
    gpu_device_destroy(NULL);
}

static void a_device_of_wrong_options_is_refused(void **state)
{
    static const struct gpu_device_options right = {
        .budget_bytes = PAGE, .page_bytes = PAGE, .max_arenas = 1, .max_operations = 1};
    struct gpu_device_options options[6] = {right, right, right, right, right, right};
    struct gpu_device *device = NULL;
    (void)state;

    options[0].budget_bytes = PAGE + 4096;
    options[1].page_bytes = 4096;
    options[2].max_arenas = 0;
    options[3].max_operations = 0;
    options[4].populate_bytes = 2 * PAGE;
    options[5].budget_bytes = 0;
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        assert_int_equal(gpu_device_create(&options[i], &device), -EINVAL);
    assert_null(device);
}

#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(an_open_arena_has_addresses_and_no_memory),
        ON_A_DEVICE(slots_lie_one_stride_apart_across_granules),
        ON_A_DEVICE(arenas_of_all_shapes_share_one_budget),
        ON_A_DEVICE(a_commit_is_charged_when_it_is_queued),
        ON_A_DEVICE(what_a_granule_held_is_gone_when_it_comes_back),
        ON_A_DEVICE(committed_memory_is_resident),
        ON_A_DEVICE(wrong_names_and_shapes_are_refused),
        ON_A_DEVICE(with_every_record_in_use_the_answer_is_busy),
        ON_A_DEVICE(closing_gives_memory_back_even_under_a_mapping),
        ON_A_DEVICE(an_arena_with_operations_is_not_closed),
        ON_A_DEVICE(touched_holes_are_found_by_arena_and_taken_back),
        cmocka_unit_test(a_trim_reaches_the_last_hole),
        ON_A_DEVICE(the_account_is_that_of_a_naive_model),
        cmocka_unit_test(a_device_answers_before_it_has_its_memory),
        cmocka_unit_test(a_device_populates_behind_commits_and_serves_them_from_it),
        cmocka_unit_test(nothing_of_a_device_outlives_it),
        cmocka_unit_test(a_device_of_wrong_options_is_refused),
    };
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
