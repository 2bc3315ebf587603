/* tests/gpu/test_copy.c - what gpu/gpu.h promises of copies and scrubs, on whichever backend. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum source source;

enum { SMALL = 0, OTHER_SMALL = 1, LARGE = 2, ODD = 3 };
static const uint64_t odd_bytes = 100000; /* with padding, and no multiple of a line */

static int setup(void **state)
{
    struct gpu_device *device = device_create(source, 64);

    arena_open(device, SMALL, 64 * KiB, 4, true);
    arena_open(device, OTHER_SMALL, 64 * KiB, 4, false);
    arena_open(device, LARGE, 2 * MiB, 12, false);
    arena_open(device, ODD, odd_bytes, 2, false);
    for (uint32_t arena = SMALL; arena <= OTHER_SMALL; arena++)
        for (uint32_t granule = 0; granule < 2; granule++)
            assert_int_equal(commit_now(device, arena, granule), 0);
    for (uint32_t granule = 0; granule < 12; granule++)
        assert_int_equal(commit_now(device, LARGE, granule), 0);
    assert_int_equal(commit_now(device, ODD, 0), 0);
    *state = device;
    return 0;
}

static int teardown(void **state)
{
    gpu_device_destroy(*state);
    return 0;
}

static char *slot_address(struct gpu_device *device, uint32_t arena, uint32_t slot)
{
    struct gpu_granule odd;

    assert_int_equal(gpu_choose_granule(odd_bytes, PAGE, &odd), 0);
    uint64_t stride = arena == LARGE ? 2 * MiB : arena == ODD ? odd.stride_bytes : 64 * KiB;
    return (char *)gpu_arena_base(device, arena) + (slot - 1) * stride;
}

static struct gpu_place in_arena(uint32_t arena, uint32_t slot)
{
    return (struct gpu_place){.arena = arena, .slot = slot};
}

static struct gpu_place in_memory(void *memory)
{
    return (struct gpu_place){.arena = GPU_NO_ARENA, .memory = memory};
}

static int copy_now(struct gpu_device *device, struct gpu_place from, struct gpu_place to)
{
    struct gpu_copy copy = {.from = from, .to = to};
    int answer = gpu_copy(device, &copy, 1, 21);
    return answer ? answer : device_wait(device, 21);
}

static void a_block_goes_from_slot_to_slot(void **state)
{
    memset(slot_address(*state, SMALL, 3), 3, 64 * KiB);
    memset(slot_address(*state, OTHER_SMALL, 40), 9, 64 * KiB);

    assert_int_equal(copy_now(*state, in_arena(SMALL, 3), in_arena(OTHER_SMALL, 40)), 0);
    assert_memory_equal(slot_address(*state, SMALL, 3), slot_address(*state, OTHER_SMALL, 40),
                        64 * KiB);
    assert_int_equal(slot_address(*state, OTHER_SMALL, 39)[64 * KiB - 1], 0);
    assert_int_equal(slot_address(*state, OTHER_SMALL, 41)[0], 0);
}

static void a_large_block_goes_to_staging_and_back(void **state)
{
    char *staging = aligned_alloc(64, 2 * MiB);

    assert_non_null(staging);
    for (size_t i = 0; i < 2 * MiB; i++)
        slot_address(*state, LARGE, 1)[i] = (char)(i * 7 + (i >> 9));
    assert_int_equal(copy_now(*state, in_arena(LARGE, 1), in_memory(staging)), 0);
    assert_memory_equal(staging, slot_address(*state, LARGE, 1), 2 * MiB);
    assert_int_equal(copy_now(*state, in_memory(staging), in_arena(LARGE, 12)), 0);
    assert_memory_equal(slot_address(*state, LARGE, 12), staging, 2 * MiB);
    free(staging);
}

static void only_the_block_is_copied_and_never_the_padding(void **state)
{
    memset(slot_address(*state, ODD, 1), 1, odd_bytes);
    char *to = slot_address(*state, ODD, 2);
    memset(to, 2, odd_bytes + 64);

    assert_int_equal(copy_now(*state, in_arena(ODD, 1), in_arena(ODD, 2)), 0);
    assert_int_equal(to[odd_bytes - 1], 1);
    assert_int_equal(to[odd_bytes], 2);
}

static void a_batch_is_one_completion(void **state)
{
    struct gpu_copy copies[GPU_MAX_BATCH];

    for (uint32_t i = 0; i < GPU_MAX_BATCH; i++) {
        memset(slot_address(*state, SMALL, i + 1), (int)i, 64 * KiB);
        copies[i] = (struct gpu_copy){.from = in_arena(SMALL, i + 1),
                                      .to = in_arena(OTHER_SMALL, GPU_MAX_BATCH - i)};
    }
    assert_int_equal(gpu_copy(*state, copies, GPU_MAX_BATCH, 99), 0);
    memset(copies, 0, sizeof(copies)); /* the list is the caller's again at once */
    assert_int_equal(device_wait(*state, 99), 0);
    for (uint32_t i = 0; i < GPU_MAX_BATCH; i++)
        assert_memory_equal(slot_address(*state, SMALL, i + 1),
                            slot_address(*state, OTHER_SMALL, GPU_MAX_BATCH - i), 64 * KiB);
}

static void an_empty_batch_completes(void **state)
{
    assert_int_equal(gpu_copy(*state, NULL, 0, 5), 0);
    assert_int_equal(device_wait(*state, 5), 0);
}

static void places_without_memory_are_refused(void **state)
{
    static char memory[64 << 10];
    struct gpu_copy copies[GPU_MAX_BATCH + 1] = {{.from = {0}}};

    assert_int_equal(copy_now(*state, in_arena(SMALL, 0), in_memory(memory)), -EINVAL);  /* null */
    assert_int_equal(copy_now(*state, in_arena(SMALL, 65), in_memory(memory)), -EINVAL); /* hole */
    assert_int_equal(copy_now(*state, in_memory(memory), in_arena(SMALL, 129)), -EINVAL);
    assert_int_equal(copy_now(*state, in_memory(memory), in_arena(SMALL, UINT32_MAX)), -EINVAL);
    assert_int_equal(copy_now(*state, in_memory(memory), in_arena(7, 1)), -EINVAL);
    assert_int_equal(copy_now(*state, in_memory(memory), in_memory(memory)), -EINVAL);
    assert_int_equal(copy_now(*state, in_arena(SMALL, 1), in_memory(NULL)), -EINVAL);
    assert_int_equal(copy_now(*state, in_arena(SMALL, 1), in_arena(LARGE, 1)), -EINVAL);
    assert_int_equal(gpu_copy(*state, copies, GPU_MAX_BATCH + 1, 0), -EINVAL);
    assert_int_equal(decommit_now(*state, SMALL, 1), 0);
    assert_int_equal(copy_now(*state, in_arena(SMALL, 64), in_memory(memory)), -EINVAL);
    assert_int_equal(copy_now(*state, in_arena(SMALL, 32), in_memory(memory)), 0);
}

static void scrubbed_slots_are_zero_to_the_end_of_their_padding(void **state)
{
    static const uint32_t slots[] = {1, 3};
    static const uint32_t hole[] = {1, 1000};
    uint64_t stride = (uint64_t)(slot_address(*state, ODD, 2) - slot_address(*state, ODD, 1));

    memset(slot_address(*state, ODD, 1), 5, 4 * stride);
    assert_int_equal(gpu_scrub(*state, ODD, slots, 2, 31), 0);
    assert_int_equal(device_wait(*state, 31), 0);
    for (uint64_t i = 0; i < 4 * stride; i++)
        if (slot_address(*state, ODD, 1)[i] != (i / stride % 2 == 0 ? 0 : 5))
            fail_msg("byte %lu is wrong", i);
    assert_int_equal(gpu_scrub(*state, ODD, hole, 2, 0), -EINVAL);
    assert_int_equal(gpu_scrub(*state, GPU_NO_ARENA, slots, 2, 0), -EINVAL);
}

/* Copies of both lanes, commits and decommits at once: each ends once, with its own bytes. */
static void operations_of_all_kinds_run_side_by_side(void **state)
{
    struct gpu_completion completions[16];
    uint64_t seen[40] = {0};
    uint32_t num_left = 40;

    for (uint32_t i = 0; i < 12; i++)
        memset(slot_address(*state, LARGE, i + 1), (int)i + 1, 2 * MiB);
    for (uint32_t i = 0; i < 10; i++) {
        struct gpu_copy large = {.from = in_arena(LARGE, i % 5 + 1),
                                 .to = in_arena(LARGE, i % 5 + 6)};
        struct gpu_copy small = {.from = in_arena(SMALL, i + 1),
                                 .to = in_arena(OTHER_SMALL, i + 1)};
        memset(slot_address(*state, SMALL, i + 1), (int)i + 100, 64 * KiB);
        assert_int_equal(gpu_copy(*state, &large, 1, 4 * i), 0);
        assert_int_equal(gpu_copy(*state, &small, 1, 4 * i + 1), 0);
        assert_int_equal(gpu_commit(*state, SMALL + i % 2, 2 + i / 2 % 2, 4 * i + 2) == 0, i < 4);
        if (i >= 4) /* what could not be committed again is another trim */
            assert_int_equal(gpu_trim(*state, ODD, 4 * i + 2), 0);
        assert_int_equal(gpu_trim(*state, SMALL, 4 * i + 3), 0);
    }
    while (num_left > 0) {
        size_t num_reaped = gpu_device_reap(*state, completions, ARRAY_SIZE(completions));
        for (size_t i = 0; i < num_reaped; i++) {
            assert_int_equal(completions[i].status, 0);
            assert_int_equal(seen[completions[i].cookie]++, 0);
        }
        num_left -= (uint32_t)num_reaped;
    }
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(slot_address(*state, LARGE, i + 6)[MiB], i + 1);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(slot_address(*state, OTHER_SMALL, i + 1)[KiB], i + 100);
}

#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(a_block_goes_from_slot_to_slot),
        ON_A_DEVICE(a_large_block_goes_to_staging_and_back),
        ON_A_DEVICE(only_the_block_is_copied_and_never_the_padding),
        ON_A_DEVICE(a_batch_is_one_completion),
        ON_A_DEVICE(an_empty_batch_completes),
        ON_A_DEVICE(places_without_memory_are_refused),
        ON_A_DEVICE(scrubbed_slots_are_zero_to_the_end_of_their_padding),
        ON_A_DEVICE(operations_of_all_kinds_run_side_by_side),
    };
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
