/* tests/gpu/test_granule.c - what gpu/granule.h promises: whole slots in whole pages, least
 * padding. */
#include "gpu/granule.h"
#include "tests/support/test.h"

#include <errno.h>

static const uint64_t page = 2 << 20;

static void a_granule_is_full_of_slots(void **state)
{
    struct gpu_granule granule;
    (void)state;

    for (uint64_t block_bytes = 1; block_bytes < 40u << 20; block_bytes += block_bytes / 7 + 1) {
        assert_int_equal(gpu_choose_granule(block_bytes, page, &granule), 0);
        assert_int_equal(granule.pages * page, granule.slots * granule.stride_bytes);
        assert_int_equal(granule.stride_bytes % GPU_SLOT_ALIGN, 0);
        assert_int_equal(granule.stride_bytes, block_bytes + granule.padding_bytes);
        assert_true(granule.slots == 1 || granule.pages <= GPU_GRANULE_MAX_PAGES);
    }
}

/* The same by trying every k: what the search by divisors has to equal. */
static uint64_t least_padding(uint64_t block_bytes, uint64_t page_bytes)
{
    uint64_t least = UINT64_MAX;

    for (uint64_t g = 1; g <= GPU_GRANULE_MAX_PAGES; g++) {
        for (uint64_t k = g * page_bytes / block_bytes; k > 0; k--) {
            if (g * page_bytes % k != 0 || g * page_bytes / k % GPU_SLOT_ALIGN != 0)
                continue;
            uint64_t padding = g * page_bytes / k - block_bytes;
            least = padding < least ? padding : least;
            break;
        }
    }
    return least;
}

static void padding_is_the_least_there_is(void **state)
{
    struct gpu_granule granule;
    (void)state;

    for (uint64_t block_bytes = 1000; block_bytes <= 1 << 20; block_bytes += 4159) {
        assert_int_equal(gpu_choose_granule(block_bytes, 64 << 10, &granule), 0);
        assert_int_equal(granule.padding_bytes, least_padding(block_bytes, 64 << 10));
        assert_int_equal(gpu_choose_granule(block_bytes, page, &granule), 0);
        assert_int_equal(granule.padding_bytes, least_padding(block_bytes, page));
    }
}

static void blocks_of_known_models_fit_well(void **state)
{
    /* clang-format off */
    static const struct { uint64_t block_bytes; uint32_t pages, slots; uint64_t padding; } rows[] = {
        {   64 << 10,  1, 32, 0},         /* 64 KiB */
        {    2 << 20,  1,  1, 0},         /* a page */
        { 1572864,     3,  4, 0},         /* 1.5 MiB: 24 layers of 8 heads of 128, bf16 */
        { 1835008,     7,  8, 0},         /* 1.75 MiB: 28 layers */
        { 1124352,     9, 16, 55296},     /* 61 layers of MLA, 576 numbers, 16 tokens: 5 % */
        {   40 << 20, 20,  1, 0},         /* more than 16 pages */
    };
    /* clang-format on */
    struct gpu_granule granule;
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(gpu_choose_granule(rows[i].block_bytes, page, &granule), 0);
        assert_int_equal(granule.pages, rows[i].pages);
        assert_int_equal(granule.slots, rows[i].slots);
        assert_int_equal(granule.padding_bytes, rows[i].padding);
    }
}

static void what_cannot_be_packed_is_refused(void **state)
{
    struct gpu_granule granule = {.pages = 77};
    (void)state;

    assert_int_equal(gpu_choose_granule(0, page, &granule), -EINVAL);
    assert_int_equal(gpu_choose_granule(1, 0, &granule), -EINVAL);
    assert_int_equal(gpu_choose_granule(1, 12288, &granule), -EINVAL);
    assert_int_equal(gpu_choose_granule(UINT64_MAX, page, &granule), -EINVAL);
    assert_int_equal(gpu_choose_granule(UINT64_MAX, 4096, &granule), -EINVAL);
    assert_int_equal(granule.pages, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_granule_is_full_of_slots),
        cmocka_unit_test(padding_is_the_least_there_is),
        cmocka_unit_test(blocks_of_known_models_fit_well),
        cmocka_unit_test(what_cannot_be_packed_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
