/* tests/offload/test_disk_plan.c - what offload/disk_plan.c promises: what will be laid out is. */
#include "tests/offload/bed.h"

#include <errno.h>

static void what_is_planned_is_laid_out(void **state)
{
    static const uint64_t sizes[] = {1 << 20, 3 << 20, 5000000};

    (void)state;
    for (size_t at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++) {
        struct bed bed;
        struct disk_layout planned, layout;

        bed_init(&bed, NULL);
        bed.options.max_bytes = sizes[at];
        assert_int_equal(disk_plan(&bed.options, &planned), 0);
        assert_int_equal(bed_open(&bed), 0);
        disk_layout(bed.disk, &layout);
        assert_int_equal(layout.num_granules, planned.num_granules);
        assert_int_equal(layout.max_slots, planned.max_slots);
        assert_int_equal(layout.file_bytes, planned.file_bytes);
        assert_true(planned.num_granules * planned.granule_bytes < sizes[at]);
        bed_finish(&bed);
    }
}

static void what_cannot_be_laid_out_is_refused(void **state)
{
    const struct disk_options good = {
        .max_bytes = 8 << 20, .granule_bytes = 1 << 20, .min_block_bytes = 64 << 10};
    struct disk_layout layout;
    struct disk_options options = good;

    (void)state;
    assert_int_equal(disk_plan(&options, &layout), 0);
    options.max_bytes = 1 << 20; /* a granule, and no room for its headers */
    assert_int_equal(disk_plan(&options, &layout), -EINVAL);
    options = good;
    options.granule_bytes = 4095;
    assert_int_equal(disk_plan(&options, &layout), -EINVAL);
    options = good;
    options.min_block_bytes = 100;
    assert_int_equal(disk_plan(&options, &layout), -EINVAL);
    options = good;
    options.min_block_bytes = 2 << 20; /* more than a granule */
    assert_int_equal(disk_plan(&options, &layout), -EINVAL);
    options = good;
    options.max_bytes = UINT64_C(4) << 30;
    options.granule_bytes = UINT64_C(1) << 30; /* of 262,144 slots */
    options.min_block_bytes = 4096;
    assert_int_equal(disk_plan(&options, &layout), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planned_is_laid_out),
        cmocka_unit_test(what_cannot_be_laid_out_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
