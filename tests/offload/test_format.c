/* tests/offload/test_format.c - where things are, by hand, and hashes, by xxHash's own vectors. */
#include "tests/offload/bed.h"

#include <stdlib.h>
#include <string.h>

/* 64 MiB granules of up to 1,024 slots of 64 KiB: one has 512 KiB of headers. */
static void the_layout_is_as_computed_by_hand(void **state)
{
    struct format_layout layout;

    (void)state;
    format_layout_set(&layout, 64 << 20, 1024, 100);
    assert_int_equal(layout.granules_offset, 8192);
    /* 100 entries of 256 bytes are 25,600: seven pages. */
    assert_int_equal(layout.headers_offset, 8192 + 28672);
    assert_int_equal(layout.granule_headers_bytes, 524288);
    assert_int_equal(layout.data_offset, 36864 + 52428800);
    assert_int_equal(layout.file_bytes, 52465664 + 6710886400);
    assert_int_equal(format_granule_offset(&layout, 3), 8960);
    assert_int_equal(format_header_offset(&layout, SLOT(2, 5)), 36864 + 1048576 + 2560);
    assert_int_equal(format_data_offset(&layout, SLOT(2, 5), 131072),
                     52465664 + 134217728 + 655360);
}

static void headers_of_a_granule_are_whole_pages(void **state)
{
    struct format_layout layout;

    (void)state;
    format_layout_set(&layout, 12 << 10, 3, 2);
    assert_int_equal(layout.granule_headers_bytes, 4096);
    assert_int_equal(format_header_offset(&layout, SLOT(1, 0)), 8192 + 4096 + 4096);
}

static void the_most_granules_under_the_ceiling(void **state)
{
    struct format_layout layout;
    uint64_t least;

    (void)state;
    for (uint64_t max = 1 << 20; max < 64 << 20; max += 12345) {
        assert_true(format_layout_fit(&layout, 65536, 16, max, &least));
        /* With slack: 16 KiB, and 48 bytes a slot. */
        assert_true(layout.file_bytes + 16384 + layout.num_granules * 768ull <= max);
        uint32_t num = layout.num_granules + 1;
        format_layout_set(&layout, 65536, 16, num);
        assert_true(layout.file_bytes + 16384 + num * 768ull > max);
    }
    assert_false(format_layout_fit(&layout, 65536, 16, least - 1, &least));
    assert_true(format_layout_fit(&layout, 65536, 16, least, &least));
    assert_int_equal(layout.num_granules, 1);
}

/* xxHash 0.8, its sanity test: XXH3 of its pseudo-random buffer, without and with a seed. */
static void hashes_are_those_of_xxhash(void **state)
{
    static const struct {
        size_t bytes;
        uint64_t seed, hash;
    } vectors[] = {
        {0, 0, 0x2D06800538D394C2},    {0, 0x9E3779B185EBCA8D, 0xA8A6B918B2F0364A},
        {1, 0, 0xC44BDFF4074EECDB},    {6, 0, 0x27B56A84CD2D7325},
        {2048, 0, 0xDD59E2C3A5F038E0}, {2048, 0x9E3779B185EBCA8D, 0x66F81670669ABABC},
        {2367, 0, 0xCB37AEB9E5D361ED}, {2367, 0x9E3779B185EBCA8D, 0xD2DB3415B942B42A},
    };
    const struct hash_kernel *kernels[] = {&hash_plain, hash_choose()};
    uint8_t buffer[2367], copy[2367];
    uint64_t number = 2654435761;

    (void)state;
    for (size_t i = 0; i < sizeof(buffer); i++) {
        buffer[i] = (uint8_t)(number >> 56);
        number *= 11400714785074694797ull;
    }
    for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
        for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
            size_t bytes = vectors[i].bytes;
            memset(copy, 0, sizeof(copy));
            assert_int_equal(kernels[k]->hash(buffer, bytes, vectors[i].seed), vectors[i].hash);
            assert_int_equal(kernels[k]->copy(copy, buffer, bytes, vectors[i].seed),
                             vectors[i].hash);
            assert_memory_equal(copy, buffer, bytes);
        }
    }
}

/* Of blocks, which are copied in parts: the same as of the whole. */
static void large_blocks_hash_as_one(void **state)
{
    static uint8_t buffer[300001], copy[300001];
    const struct hash_kernel *best = hash_choose();

    (void)state;
    bed_fill(buffer, 1, sizeof(buffer));
    for (uint32_t bytes = 16000; bytes <= sizeof(buffer); bytes += 40571) {
        uint64_t hash = hash_plain.hash(buffer, bytes, 5);
        assert_int_equal(best->hash(buffer, bytes, 5), hash);
        assert_int_equal(best->copy(copy, buffer, bytes, 5), hash);
        assert_memory_equal(copy, buffer, bytes);
        assert_int_not_equal(best->hash(buffer, bytes, 6), hash);
    }
}

static void a_record_without_bytes_has_a_hash(void **state)
{
    (void)state;
    assert_int_not_equal(format_record_hash(NULL, 0), 0);
    assert_int_not_equal(format_record_hash("a", 1), format_record_hash("b", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_is_as_computed_by_hand),
        cmocka_unit_test(headers_of_a_granule_are_whole_pages),
        cmocka_unit_test(the_most_granules_under_the_ceiling),
        cmocka_unit_test(hashes_are_those_of_xxhash),
        cmocka_unit_test(large_blocks_hash_as_one),
        cmocka_unit_test(a_record_without_bytes_has_a_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
