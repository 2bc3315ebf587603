/* tests/pool/test_evict.c - what pool/evict.c promises: which cached block goes next. */
#include "tests/pool/fixture.h"

static void a_prefix_outlives_its_suffix(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 12);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(match(f, .seed = 1, .count = 13), 0);
    assert_int_equal(f->found.matched, 8);
}

static void what_was_let_go_of_first_goes_first(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 2, 8);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_evictable(f, "4,3,2,1");
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_evictable(f, "2,1");
    assert_int_equal(pool_evict(f->pool, 9), 2);
    assert_int_equal(pool_evict(f->pool, 9), 0);
}

static void a_hit_makes_a_block_warm_again(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 5), 0);
    assert_int_equal(release(f, 3, 0), 0);
    assert_evictable(f, "2,1");
}

/* Tenant 0 has 3 cached blocks, @other 5; of 8 pages their shares are 2 and 6. */
static pool_payer fill_by_two(struct fixture *f)
{
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 3);

    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 20), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 2, 0), 0);
    must_alloc(f, 1, 1, 12);
    assert_int_equal(release(f, 1, 0), 0);
    return other;
}

static uint64_t suffered(const struct fixture *f, pool_payer payer)
{
    struct pool_payer_stats stats;

    assert_int_equal(pool_payer_stats(f->pool, payer, &stats), 0);
    return stats.evictions_suffered;
}

static void whoever_is_furthest_over_its_share_loses_a_block(void **state)
{
    struct fixture *f = *state;
    pool_payer other = fill_by_two(f);

    assert_int_equal(pool_evict(f->pool, 1), 1); /* 3 - 2 against 5 - 6 */
    assert_int_equal(suffered(f, 0), 1);
    assert_int_equal(pool_evict(f->pool, 2),
                     2); /* 2 - 2 against -1; 1 - 2 = -1, a tie: the first */
    assert_int_equal(suffered(f, 0), 3);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(suffered(f, other), 1);
}

static void an_allocation_counts_what_it_caused(void **state)
{
    struct fixture *f = *state;
    pool_payer other = fill_by_two(f);
    struct pool_payer_stats stats;

    assert_int_equal(alloc(f, .id = 3, .tenant = other, .seed = 3, .count = 4), 0);
    assert_int_equal(suffered(f, 0), 1);
    assert_int_equal(pool_payer_stats(f->pool, other, &stats), 0);
    assert_int_equal(stats.evictions_caused, 1);
    assert_int_equal(stats.evictions_suffered, 0);
}

static void nobody_else_evicts_below_a_guarantee(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);

    assert_int_equal(pool_quota_set(f->pool, 0, &(struct pool_quota){6, POOL_UNLIMITED, 1}), 0);
    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 12), POOL_NO_BLOCKS);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 8), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), 0); /* its own are its own */
    assert_int_equal(pool_evict(f->pool, 9), 5); /* the operator's word: guarantees aside */
}

static void a_payer_is_judged_on_its_worst_device(void **state)
{
    struct pool_config config;
    const struct pool_model_shape shape = {.block_tokens = FIXTURE_BLOCK,
                                           .num_layers = 1,
                                           .num_groups = 1,
                                           .groups = {{0, 1, 1}},
                                           .num_ranks = 1,
                                           .ranks = {1}};
    pool_model second;

    (void)state;
    fixture_config(&config, 8);
    config.devices[1].pages = 8;
    config.num_devices = 2;
    struct fixture *f = fixture_create_with(&config);
    assert_int_equal(pool_model_register(f->pool, &shape, &second), 0);
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    must_alloc(f, 1, 1, 4); /* 1 of device 0, where its share is 4 */
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .model = second, .seed = 2, .count = 32),
                     0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 1, 0) | release(f, 2, 0), 0);
    assert_int_equal(pool_evict(f->pool, 1), 1); /* of the other: 8 of device 1, share 4 */
    assert_int_equal(suffered(f, other), 1);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_prefix_outlives_its_suffix),
        pool_test(what_was_let_go_of_first_goes_first),
        pool_test(a_hit_makes_a_block_warm_again),
        pool_test(whoever_is_furthest_over_its_share_loses_a_block),
        pool_test(an_allocation_counts_what_it_caused),
        pool_test(nobody_else_evicts_below_a_guarantee),
        cmocka_unit_test(a_payer_is_judged_on_its_worst_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
