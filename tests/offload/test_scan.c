/* tests/offload/test_scan.c - what an earlier life left is found, and only what can be believed. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    (void)bed_setup(state);
    assert_int_equal(bed_open(*state), 0);
    return 0;
}

static void reopen(struct bed *bed)
{
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
}

/* Finds the block of @slot. */
static bool has(const struct disk_found *found, const uint64_t *records, size_t num,
                struct disk_slot slot, uint64_t seed)
{
    for (size_t i = 0; i < num; i++) {
        if (found[i].slot.granule == slot.granule && found[i].slot.index == slot.index)
            return found[i].bytes == BED_BLOCK && records[i] == seed;
    }
    return false;
}

static void a_new_disk_has_nothing(void **state)
{
    struct bed *bed = *state;
    struct disk_scan scan;

    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 0);
    disk_scan_progress(bed->disk, &scan);
    assert_int_equal(scan.num_headers, 0);
    assert_int_equal(disk_scan_start(bed->disk), -EALREADY);
}

static void blocks_and_granules_outlive_the_process(void **state)
{
    struct bed *bed = *state;
    struct disk_found found[32];
    struct disk_granule granule;
    struct disk_scan scan;
    uint64_t records[32];

    assert_int_equal(bed_use(bed, 2, BED_STRIDE), 0);
    assert_int_equal(bed_use(bed, 5, 16384), 0);
    for (uint32_t i = 0; i < BED_SLOTS; i += 2)
        assert_int_equal(bed_write(bed, SLOT(2, i), 200 + i, BED_BLOCK), 0);
    assert_int_equal(bed_write(bed, SLOT(5, 3), 503, BED_BLOCK), 0);
    reopen(bed);

    assert_int_equal(disk_granule_describe(bed->disk, 5, &granule), 0);
    assert_true(granule.is_used);
    assert_int_equal(granule.stride_bytes, 16384);
    assert_int_equal(granule.num_slots, 4);
    assert_int_equal(granule.owner_bytes, 10);
    assert_memory_equal(granule.owner, "owner of 5", 10);
    assert_int_equal(disk_granule_describe(bed->disk, 4, &granule), 0);
    assert_false(granule.is_used);
    assert_int_equal(bed_read(bed, SLOT(5, 3), 503, BED_BLOCK), -ENODATA); /* not given out yet */

    assert_int_equal(bed_scan(bed, found, records, 32), 5);
    for (uint32_t i = 0; i < BED_SLOTS; i += 2)
        assert_true(has(found, records, 5, SLOT(2, i), 200 + i));
    assert_true(has(found, records, 5, SLOT(5, 3), 503));
    assert_int_equal(bed_read(bed, SLOT(2, 4), 204, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(5, 3), 503, BED_BLOCK), 0);
    disk_scan_progress(bed->disk, &scan);
    assert_int_equal(scan.num_headers, BED_SLOTS + 4);
    assert_int_equal(scan.num_read, BED_SLOTS + 4);
    assert_int_equal(scan.num_found, 5);
    assert_int_equal(scan.num_damaged, 0);
}

static void what_is_erased_freed_or_of_an_earlier_use_is_gone(void **state)
{
    struct bed *bed = *state;
    struct disk_found found[8];
    uint64_t records[8];
    struct disk_slot erased[] = {SLOT(0, 0), SLOT(0, 2)};

    for (uint32_t g = 0; g < 3; g++) {
        assert_int_equal(bed_use(bed, g, BED_STRIDE), 0);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(bed_write(bed, SLOT(g, i), g * 10 + i, BED_BLOCK), 0);
    }
    disk_erase(bed->disk, erased, 2);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 0, BED_BLOCK), -ENODATA);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 77, BED_BLOCK), 0); /* after the clearing */
    assert_int_equal(bed_free(bed, 1), 0);
    assert_int_equal(bed_free(bed, 2), 0);
    assert_int_equal(bed_use(bed, 2, BED_STRIDE), 0); /* anew: none of its blocks comes back */
    assert_int_equal(bed_write(bed, SLOT(2, 1), 99, BED_BLOCK), 0);
    reopen(bed);
    assert_int_equal(bed_scan(bed, found, records, 8), 3);
    assert_true(has(found, records, 3, SLOT(0, 0), 77));
    assert_true(has(found, records, 3, SLOT(0, 1), 1));
    assert_true(has(found, records, 3, SLOT(2, 1), 99));
}

static void slots_used_before_the_scan_are_not_given_out(void **state)
{
    struct bed *bed = *state;
    struct disk_found found[16];
    uint64_t records[16];
    struct disk_slot erased = SLOT(0, 1);

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_use(bed, 1, BED_STRIDE), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(bed_write(bed, SLOT(0, i), i, BED_BLOCK), 0);
        assert_int_equal(bed_write(bed, SLOT(1, i), 10 + i, BED_BLOCK), 0);
    }
    reopen(bed);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 50, BED_BLOCK), 0);
    disk_erase(bed->disk, &erased, 1);
    assert_int_equal(bed_free(bed, 1), 0);
    assert_int_equal(bed_use(bed, 1, BED_STRIDE), 0);
    assert_int_equal(bed_scan(bed, found, records, 16), 2);
    assert_true(has(found, records, 2, SLOT(0, 2), 2));
    assert_true(has(found, records, 2, SLOT(0, 3), 3));
    assert_int_equal(bed_read(bed, SLOT(0, 0), 50, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 1), 1, BED_BLOCK), -ENODATA);
}

/* A header torn at any byte, or with any of its bits flipped, is no block. */
static void torn_and_spoilt_headers_are_no_blocks(void **state)
{
    struct bed *bed = *state;
    uint8_t header[sizeof(struct format_header)], torn[sizeof(header)];
    uint64_t random = 1;

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
    uint64_t offset = format_header_offset(&bed->disk->layout, SLOT(0, 1));
    bed_close(bed);
    bed_peek(bed, offset, header, sizeof(header));
    for (size_t at = 0; at < sizeof(header); at++) {
        struct disk_scan scan;
        bool is_tear = at % 2 == 0;
        memcpy(torn, header, sizeof(torn));
        if (is_tear)
            memset(torn + at, 0, sizeof(torn) - at); /* the rest of it was never written */
        else
            torn[at] ^= (uint8_t)(1 << bed_random(&random) % 8);
        if (memcmp(torn, header, sizeof(torn)) == 0)
            continue;
        bed_poke(bed, offset, torn, sizeof(torn));
        assert_int_equal(bed_open(bed), 0);
        assert_int_equal(bed_scan(bed, NULL, NULL, 0), 0);
        disk_scan_progress(bed->disk, &scan);
        assert_int_equal(scan.num_damaged, at > 0);
        assert_int_equal(bed_read(bed, SLOT(0, 1), 1, BED_BLOCK), -ENODATA);
        assert_int_equal(disk_close(bed->disk), 0);
        bed->disk = NULL;
    }
    bed_poke(bed, offset, header, sizeof(header));
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 1);
}

/* At every boundary where a kernel may tear a write: bytes, sectors, pages; and single bits. */
static void torn_and_spoilt_data_is_a_miss(void **state)
{
    struct bed *bed = *state;
    static const uint32_t tears[] = {0, 1, 7, 511, 512, 513, 1024, 4095, 4096, 4097, 6999};
    uint8_t data[BED_BLOCK], torn[BED_BLOCK];
    uint64_t random = 2, records[4];
    struct disk_found found[4];

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
    uint64_t offset = format_data_offset(&bed->disk->layout, SLOT(0, 1), BED_STRIDE);
    bed_close(bed);
    bed_peek(bed, offset, data, sizeof(data));
    assert_true(bed_is(data, 1, sizeof(data)));
    for (size_t i = 0; i < 2 * ARRAY_SIZE(tears); i++) {
        memcpy(torn, data, sizeof(torn));
        if (i < ARRAY_SIZE(tears))
            memset(torn + tears[i], 0, sizeof(torn) - tears[i]);
        else
            torn[bed_random(&random) % sizeof(torn)] ^= (uint8_t)(1 << bed_random(&random) % 8);
        bed_poke(bed, offset, torn, sizeof(torn));
        assert_int_equal(bed_open(bed), 0);
        assert_int_equal(bed_scan(bed, found, records, 4), 1);
        assert_int_equal(bed_read(bed, SLOT(0, 1), 1, BED_BLOCK), -EBADMSG);
        bed_close(bed);
        /* The bad copy was dropped for the next life too: its header is put back. */
        assert_int_equal(bed_open(bed), 0);
        assert_int_equal(bed_scan(bed, found, records, 4), 0);
        assert_int_equal(bed_write(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
        bed_close(bed);
    }
    assert_int_equal(bed_open(bed), 0);
}

/* Headers or data of one slot in the place of another's. */
static void what_is_in_another_slots_place_is_not_believed(void **state)
{
    struct bed *bed = *state;
    uint8_t header[sizeof(struct format_header)], data[BED_STRIDE];

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 2), 2, BED_BLOCK), 0);
    const struct format_layout layout = bed->disk->layout;
    bed_close(bed);
    bed_peek(bed, format_header_offset(&layout, SLOT(0, 1)), header, sizeof(header));
    bed_poke(bed, format_header_offset(&layout, SLOT(0, 3)), header, sizeof(header));
    bed_peek(bed, format_data_offset(&layout, SLOT(0, 1), BED_STRIDE), data, sizeof(data));
    bed_poke(bed, format_data_offset(&layout, SLOT(0, 2), BED_STRIDE), data, sizeof(data));
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 2);
    assert_int_equal(bed_read(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 2), 2, BED_BLOCK), -EBADMSG);
    assert_int_equal(bed_read(bed, SLOT(0, 3), 1, BED_BLOCK), -ENODATA);
}

static void a_spoilt_granule_entry_is_a_free_granule(void **state)
{
    struct bed *bed = *state;
    struct disk_granule granule;

    assert_int_equal(bed_use(bed, 3, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(3, 0), 1, BED_BLOCK), 0);
    uint64_t offset = format_granule_offset(&bed->disk->layout, 3);
    bed_close(bed);
    bed_poke(bed, offset + offsetof(struct format_granule, owner), "\xff", 1);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_granule_describe(bed->disk, 3, &granule), 0);
    assert_false(granule.is_used);
    assert_int_equal(bed_use(bed, 3, 4096), 0);
    assert_int_equal(bed_write(bed, SLOT(3, 0), 2, 4096), 0);
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 1);
}

static int fail_header_reads(void *state, const struct disk_io *io, int result)
{
    (void)state;
    return io->kind == DISK_IO_HEADER && !io->is_write ? -EIO : result;
}

static void headers_that_cannot_be_read_are_counted(void **state)
{
    struct bed *bed = *state;
    struct disk_faults faults = {.end = fail_header_reads};
    struct disk_scan scan;

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 1, BED_BLOCK), 0);
    bed->options.faults = &faults;
    reopen(bed);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 0);
    disk_scan_progress(bed->disk, &scan);
    assert_int_equal(scan.num_unreadable, BED_SLOTS);
    assert_int_equal(scan.status, -EIO);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), 0); /* it is a free slot */
    bed_close(bed);
    bed->options.faults = NULL;
    assert_int_equal(bed_open(bed), 0);
}

/* More than all batches of a scan hold, given out a few at a time; then closed in the middle. */
static void a_long_scan_waits_for_its_owner(void **state)
{
    struct bed *bed = *state;
    enum { GRANULES = 120 };

    bed_close(bed);
    bed->options.max_bytes = 16 << 20;
    bed->options.path = bed->path;
    char name[300];
    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    assert_int_equal(remove(name), 0);
    assert_int_equal(bed_open(bed), 0);
    for (uint32_t g = 0; g < GRANULES; g++) {
        static char memory[4096];
        assert_int_equal(bed_use(bed, g, 4096), 0);
        for (uint64_t i = 0; i < 16; i++)
            assert_int_equal(
                disk_write(bed->disk, SLOT(g, (uint32_t)i), memory, 4096, &i, sizeof(i), i), 0);
        for (uint32_t i = 0; i < 16; i++)
            assert_int_equal(bed_wait(bed, i, DISK_ENDED), 0);
    }
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), GRANULES * 16);
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_scan_start(bed->disk), 0);
}

static void count(void *state, const struct disk_problem *problem)
{
    uint32_t *num = state;

    assert_non_null(problem->text);
    num[!strcmp(problem->part, "data")]++;
}

static void a_check_finds_what_was_spoilt_and_changes_nothing(void **state)
{
    struct bed *bed = *state;
    uint32_t num[2] = {0};
    struct disk_check check;

    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(bed_write(bed, SLOT(0, i), i, BED_BLOCK), 0);
    assert_int_equal(bed_use(bed, 1, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(1, 0), 10, BED_BLOCK), 0);
    assert_int_equal(bed_free(bed, 1), 0);
    assert_int_equal(bed_use(bed, 1, BED_STRIDE), 0);
    const struct format_layout layout = bed->disk->layout;
    bed_close(bed);
    bed_poke(bed, format_header_offset(&layout, SLOT(0, 1)) + 20, "\xff", 1);
    bed_poke(bed, format_data_offset(&layout, SLOT(0, 2), BED_STRIDE) + 20, "\xff\xff", 2);
    assert_int_equal(disk_check(bed->path, false, count, num, &check, bed->error), 0);
    assert_int_equal(check.granules_used, 2);
    assert_int_equal(check.headers_valid, 3);
    assert_int_equal(check.headers_damaged, 1);
    assert_int_equal(check.headers_stale, 1);
    assert_int_equal(num[0], 1);
    assert_int_equal(num[1], 0);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(disk_check(bed->path, true, count, num, &check, bed->error), 0);
        assert_int_equal(check.data_valid, 2);
        assert_int_equal(check.data_damaged, 1);
        assert_int_equal(num[1], pass + 1);
    }
    bed_poke(bed, 3, "x", 1);
    assert_int_equal(disk_check(bed->path, true, count, num, &check, bed->error), -EPROTO);
    assert_int_equal(num[0] + num[1], 5); /* as before: bed->error says it */
    bed_poke(bed, 3, "d", 1);
    assert_int_equal(bed_open(bed), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_new_disk_has_nothing),
        CASE(blocks_and_granules_outlive_the_process),
        CASE(what_is_erased_freed_or_of_an_earlier_use_is_gone),
        CASE(slots_used_before_the_scan_are_not_given_out),
        CASE(torn_and_spoilt_headers_are_no_blocks),
        CASE(torn_and_spoilt_data_is_a_miss),
        CASE(what_is_in_another_slots_place_is_not_believed),
        CASE(a_spoilt_granule_entry_is_a_free_granule),
        CASE(headers_that_cannot_be_read_are_counted),
        CASE(a_long_scan_waits_for_its_owner),
        CASE(a_check_finds_what_was_spoilt_and_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
