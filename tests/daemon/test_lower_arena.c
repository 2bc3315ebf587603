/* tests/daemon/test_lower_arena.c - what daemon/lower_arena.c promises: what is configured is what
 * the pool is told. */
#include "daemon/config.h"
#include "daemon/lower.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config *load(const char *text)
{
    char path[] = "/tmp/kvpool-lower-XXXXXX";
    struct config *config = NULL;
    struct config_error error;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    if (config_load(path, &config, &error))
        fail_msg("%s", error.texts[0]);
    assert_int_equal(unlink(path), 0);
    return config;
}

static void without_tiers_the_pool_is_as_it_was(void **state)
{
    struct config *config = load("pool-bytes: 64MiB\n");
    struct pool_config pool;

    (void)state;
    pool_config_init(&pool, 1000, 32);
    lower_configure(config, &pool);
    for (int tier = 0; tier < POOL_NUM_TIERS; tier++) {
        assert_int_equal(pool.tiers[tier].pages, 0);
        assert_int_equal(pool.ahead_pages[tier], 0);
    }
    assert_int_equal(lower_max_arenas(config), config->max_arenas);
    config_destroy(config);
}

static void tiers_are_told_to_the_pool(void **state)
{
    struct config *config = load("pool-bytes: 64MiB\nhost-tier-bytes: 32MiB\nahead-bytes: 6MiB\n"
                                 "disk-directory: /nowhere\ndisk-max-bytes: 1GiB\n"
                                 "store-when: second-use\nstore-rate: 5MiB\nmax-arenas: 65536\n");
    struct pool_config pool;

    (void)state;
    pool_config_init(&pool, 1000, 32);
    lower_configure(config, &pool);
    assert_int_equal(pool.tiers[POOL_TIER_HOST].pages, 16);
    assert_int_equal(pool.tiers[POOL_TIER_HOST].store_bytes_per_s, 0); /* memory does not wear */
    assert_int_equal(pool.tiers[POOL_TIER_DISK].pages, 15);            /* of 64 MiB, and headers */
    assert_int_equal(pool.tiers[POOL_TIER_DISK].store_bytes_per_s, 5 << 20);
    assert_int_equal(pool.tiers[POOL_TIER_DISK].max_slots, 1 << 20);
    assert_int_equal(pool.ahead_pages[POOL_TIER_DEVICE], 3);
    assert_int_equal(pool.ahead_pages[POOL_TIER_HOST], 1); /* a sixteenth */
    assert_int_equal(pool.ahead_pages[POOL_TIER_DISK], 0); /* nothing lies below */
    assert_int_equal(pool.store_when, POOL_STORE_SECOND_USE);
    assert_true(lower_max_arenas(config) < 65536); /* of all tiers, in 16 bits */
    assert_int_equal(lower_max_arenas(config), 3 * pool.max_arenas);
    config_destroy(config);
}

static void a_group_gets_the_shape_of_each_tier(void **state)
{
    struct config *config = load("pool-bytes: 64MiB\nhost-tier-bytes: 4MiB\n"
                                 "disk-directory: /nowhere\ndisk-max-bytes: 1GiB\n"
                                 "disk-granule-bytes: 1MiB\ndisk-max-block-bytes: 512KiB\n");
    const struct gpu_granule two_pages = {.pages = 2, .slots = 7, .stride_bytes = 599186};
    const struct gpu_granule three_pages = {.pages = 3, .slots = 1, .stride_bytes = 6 << 20};
    struct pool_group group = {0};

    (void)state;
    lower_shape(config, 100000, &two_pages, &group);
    assert_int_equal(group.pages, 2);
    assert_int_equal(group.slots, 7);
    assert_int_equal(group.block_bytes, 100000);
    assert_int_equal(group.below[POOL_TIER_HOST].pages, 2);
    assert_int_equal(group.below[POOL_TIER_HOST].slots, 7);
    assert_int_equal(group.below[POOL_TIER_DISK].pages, 1);
    assert_int_equal(group.below[POOL_TIER_DISK].slots, 10); /* of 102,400 bytes: whole 4 KiB */
    group = (struct pool_group){0};
    lower_shape(config, 1000, &two_pages, &group);
    assert_int_equal(group.below[POOL_TIER_DISK].slots, 16); /* of disk-min-block-bytes */
    group = (struct pool_group){0};
    lower_shape(config, 524289, &three_pages, &group);
    assert_int_equal(group.below[POOL_TIER_DISK].slots, 0); /* over disk-max-block-bytes */
    assert_int_equal(group.below[POOL_TIER_HOST].slots, 0); /* a granule is more than it has */
    config_destroy(config);
}

static void a_record_goes_there_and_back(void **state)
{
    struct lower_restored kept = {.record = {.generation = 7,
                                             .num_form = 2,
                                             .form = {11, 12},
                                             .has_parent = true,
                                             .is_storable = true,
                                             .is_generated = true}};
    struct pool_restored restored;

    (void)state;
    memset(kept.record.key, 1, sizeof(kept.record.key));
    memset(kept.record.parent, 2, sizeof(kept.record.parent));
    lower_restored(&kept, 99, &restored);
    assert_int_equal(restored.slot, 99);
    assert_int_equal(restored.generation, 7);
    assert_memory_equal(restored.key.bytes, kept.record.key, sizeof(restored.key.bytes));
    assert_non_null(restored.parent);
    assert_memory_equal(restored.parent->bytes, kept.record.parent, sizeof(kept.record.parent));
    assert_int_equal(restored.num_form, 2);
    assert_int_equal(restored.form[1], 12);
    assert_false(restored.is_unstorable);
    assert_true(restored.is_generated);
    kept.record.has_parent = kept.record.is_storable = false;
    lower_restored(&kept, 1, &restored);
    assert_null(restored.parent);
    assert_true(restored.is_unstorable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tiers_the_pool_is_as_it_was),
        cmocka_unit_test(tiers_are_told_to_the_pool),
        cmocka_unit_test(a_group_gets_the_shape_of_each_tier),
        cmocka_unit_test(a_record_goes_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
