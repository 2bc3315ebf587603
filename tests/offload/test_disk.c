/* tests/offload/test_disk.c - what a healthy disk promises, by each engine. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static enum disk_engine_choice engine;
static bool without_direct;

static int setup(void **state)
{
    (void)bed_setup(state);
    struct bed *bed = *state;
    bed->options.engine = engine;
    bed->options.without_direct = without_direct;
    assert_int_equal(bed_open(bed), 0);
    return 0;
}

static void what_was_written_is_read_back(void **state)
{
    struct bed *bed = *state;
    static const uint32_t sizes[] = {1, 511, 512, 4095, 4096, 4097, BED_BLOCK, BED_STRIDE};

    assert_int_equal(bed_use(bed, 3, BED_STRIDE), 0);
    for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
        assert_int_equal(bed_write(bed, SLOT(3, i), 100 + i, sizes[i]), 0);
    for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
        assert_int_equal(bed_read(bed, SLOT(3, i), 100 + i, sizes[i]), 0);
    /* A slot takes a new block, and then has that one. */
    assert_int_equal(bed_write(bed, SLOT(3, 2), 7, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(3, 2), 7, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(3, 1), 101, 511), 0);
}

static void a_read_of_another_length_is_no_block(void **state)
{
    struct bed *bed = *state;

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK - 1), -EBADMSG);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), -ENODATA);
}

static void calls_out_of_bounds_change_nothing(void **state)
{
    struct bed *bed = *state;
    struct disk_layout layout;
    char memory[16];

    disk_layout(bed->disk, &layout);
    assert_true(layout.is_new);
    assert_int_equal(layout.max_slots, BED_GRANULE / 4096);
    assert_int_equal(bed_use(bed, layout.num_granules, BED_STRIDE), -EINVAL);
    assert_int_equal(bed_use(bed, 0, 0), -EINVAL);
    assert_int_equal(bed_use(bed, 0, 4097), -EINVAL);
    assert_int_equal(bed_use(bed, 0, BED_GRANULE + 4096), -EINVAL);
    assert_int_equal(bed_free(bed, 0), -EALREADY);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, 10), -EINVAL); /* not in use */
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), -EALREADY);
    assert_int_equal(bed_write(bed, SLOT(0, BED_SLOTS), 1, 10), -EINVAL);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_STRIDE + 1), -EINVAL);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory, 0, NULL, 0, 1), -EINVAL);
    assert_int_equal(
        disk_write(bed->disk, SLOT(0, 0), memory, 16, memory, DISK_MAX_RECORD_BYTES + 1, 1),
        -EINVAL);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, 10), -ENODATA);
    assert_int_equal(bed_write(bed, SLOT(0, BED_SLOTS - 1), 1, BED_STRIDE), 0);
    assert_int_equal(bed_free(bed, 0), 0);
    assert_int_equal(bed_read(bed, SLOT(0, BED_SLOTS - 1), 1, BED_STRIDE), -EINVAL);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_read(bed, SLOT(0, BED_SLOTS - 1), 1, BED_STRIDE), -ENODATA);
}

static void many_at_once_all_end_once(void **state)
{
    enum { NUM = 12 * BED_SLOTS };
    struct bed *bed = *state;
    char *memory = calloc(2 * NUM, BED_STRIDE);
    uint32_t num_ended[2 * NUM] = {0}, num_left = 0;
    struct disk_stats stats;

    for (uint32_t g = 0; g < NUM / BED_SLOTS; g++)
        assert_int_equal(bed_use(bed, g, BED_STRIDE), 0);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < NUM || num_left > 0;) {
            struct disk_completion done[16];
            struct disk_slot slot = SLOT(i / BED_SLOTS, i % BED_SLOTS);
            char *at = memory + (size_t)(pass * NUM + i) * BED_STRIDE;
            int answer = DISK_BUSY;
            if (i < NUM && pass == 0) {
                bed_fill(at, i, BED_BLOCK);
                answer = disk_write(bed->disk, slot, at, BED_BLOCK, &i, sizeof(i), i);
            } else if (i < NUM) {
                answer = disk_read(bed->disk, slot, at, BED_BLOCK, NUM + i);
            }
            if (answer == 0) {
                num_left++, i++;
                continue;
            }
            assert_int_equal(answer, DISK_BUSY);
            struct pollfd event = {.fd = disk_event_fd(bed->disk), .events = POLLIN};
            assert_int_equal(poll(&event, 1, 10000), 1);
            size_t num = disk_reap(bed->disk, done, ARRAY_SIZE(done));
            for (size_t n = 0; n < num; n++) {
                assert_int_equal(done[n].status, 0);
                num_ended[done[n].cookie]++;
                num_left--;
            }
        }
    }
    for (uint32_t i = 0; i < 2 * NUM; i++) {
        assert_int_equal(num_ended[i], 1);
        assert_true(bed_is(memory + (size_t)i * BED_STRIDE, i % NUM, BED_BLOCK));
    }
    disk_stats(bed->disk, &stats);
    assert_int_equal(stats.writes, NUM);
    assert_int_equal(stats.reads, NUM);
    assert_int_equal(stats.queued_bytes, 0);
    assert_int_equal(stats.num_queued, 0);
    assert_in_range(stats.header_writes, 1, NUM);
    free(memory);
}

static void a_slot_under_way_is_busy(void **state)
{
    struct bed *bed = *state;
    char memory[2][BED_STRIDE];

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    bed_fill(memory[0], 5, BED_BLOCK);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory[0], BED_BLOCK, NULL, 0, 1), 0);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory[0], BED_BLOCK, NULL, 0, 2), -EBUSY);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), memory[1], BED_BLOCK, 2), -EBUSY);
    assert_int_equal(disk_granule_free(bed->disk, 0, 2), -EBUSY);
    assert_int_equal(bed_wait(bed, 1, DISK_ENDED), 0);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), memory[0], BED_BLOCK, 3), 0);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), memory[1], BED_BLOCK, 4), 0);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory[0], BED_BLOCK, NULL, 0, 2), -EBUSY);
    assert_int_equal(bed_wait(bed, 3, DISK_ENDED), 0);
    assert_int_equal(bed_wait(bed, 4, DISK_ENDED), 0);
    assert_true(bed_is(memory[0], 5, BED_BLOCK));
    assert_true(bed_is(memory[1], 5, BED_BLOCK));
}

static void the_store_queue_is_bounded_in_bytes(void **state)
{
    struct bed *bed = *state;
    char memory[BED_STRIDE] = {0};
    struct disk_stats stats;
    int answer = 0;

    bed_close(bed);
    bed->options.max_store_bytes = 2 * BED_BLOCK;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    for (uint32_t i = 0; i < 3; i++)
        answer = disk_write(bed->disk, SLOT(0, i), memory, BED_BLOCK, NULL, 0, i);
    assert_int_equal(answer, DISK_BUSY);
    disk_stats(bed->disk, &stats);
    assert_int_equal(stats.queued_bytes, 2 * BED_BLOCK);
    assert_int_equal(stats.busy, 1);
    assert_int_equal(bed_wait(bed, 0, DISK_ENDED), 0);
    assert_int_equal(bed_wait(bed, 1, DISK_ENDED), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 2), 1, BED_BLOCK), 0);
}

static void loads_find_room_while_stores_fill_the_queue(void **state)
{
    struct bed *bed = *state;
    char memory[BED_STRIDE] = {0};
    uint32_t num_written = 0;

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    for (uint32_t g = 1; g < 13; g++)
        assert_int_equal(bed_use(bed, g, 4096), 0);
    for (uint32_t i = 0; i < 12 * 16; i++) {
        if (disk_write(bed->disk, SLOT(1 + i / 16, i % 16), memory, 4096, NULL, 0, i) == 0)
            num_written++;
    }
    assert_int_equal(num_written, 128 * 3 / 4);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), memory, BED_BLOCK, 5000), 0);
    for (bool is_read = false; !is_read;) { /* what is not over is closed over */
        struct disk_completion done;
        struct pollfd event = {.fd = disk_event_fd(bed->disk), .events = POLLIN};
        assert_int_equal(poll(&event, 1, 10000), 1);
        if (disk_reap(bed->disk, &done, 1) == 0)
            continue;
        assert_int_equal(done.status, 0);
        is_read = done.cookie == 5000;
    }
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_is_read_back),
        CASE(a_read_of_another_length_is_no_block),
        CASE(calls_out_of_bounds_change_nothing),
        CASE(many_at_once_all_end_once),
        CASE(a_slot_under_way_is_busy),
        CASE(the_store_queue_is_bounded_in_bytes),
        CASE(loads_find_room_while_stores_fill_the_queue),
    };

    engine = argc > 1 && !strcmp(argv[1], "threads") ? DISK_ENGINE_THREADS : DISK_ENGINE_BEST;
    without_direct = argc > 2 && !strcmp(argv[2], "buffered");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
