/* tests/pool/test_stats.c - what pool/stats.c promises: every number once, and that they add up. */
#include "tests/pool/fixture.h"

#include <string.h>

static void every_number_has_one_name_and_a_help(void **state)
{
    struct fixture *f = *state;
    struct pool_stat stats[128];
    size_t count = pool_stats(f->pool, stats, ARRAY_SIZE(stats));

    assert_true(count > 0 && count <= ARRAY_SIZE(stats));
    for (size_t i = 0; i < count; i++) {
        assert_true(strlen(stats[i].help) > 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(stats[i].name, stats[k].name);
    }
    assert_int_equal(pool_stats(f->pool, NULL, 0), count);
}

static void slots_add_up(void **state)
{
    struct fixture *f = *state;
    struct pool_payer_stats stats;

    must_alloc(f, 1, 1, 6);
    must_alloc(f, 2, 2, 8);
    must_alloc(f, 3, 3, 7);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(release(f, 3, 0), 0);
    assert_int_equal(stat_of(f, "blocks"), 8);
    assert_int_equal(stat_of(f, "uncommitted"), 2);
    assert_int_equal(stat_of(f, "idle"), 1);
    assert_int_equal(stat_of(f, "granules"), 6);
    assert_int_equal(stat_of(f, "free"), 1);
    assert_int_equal(stat_of(f, "held"), 1);
    assert_int_equal(stat_of(f, "evictable"), 3);
    assert_int_equal(stat_of(f, "reserved"), 1);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(pool_payer_stats(f->pool, 0, &stats), 0);
    assert_int_equal(stats.free + stats.held + stats.evictable + stats.reserved, 6);
    assert_int_equal(stats.charged_pages[0], 5);
    assert_int_equal(pool_payer_stats(f->pool, 1, &stats), POOL_NOT_FOUND);
}

static void the_hit_rate_can_be_recomputed(void **state)
{
    struct fixture *f = *state;
    struct pool_payer_stats stats;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 1, 9);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(resume(f, 2), 0);
    assert_int_equal(stat_of(f, "allocations"), 3);
    assert_int_equal(stat_of(f, "query_tokens"), 8 + 9 + 9);
    assert_int_equal(stat_of(f, "hit_tokens"), 0 + 8 + 8);
    assert_int_equal(pool_payer_stats(f->pool, 0, &stats), 0);
    assert_int_equal(stats.query_tokens, 26);
    assert_int_equal(stats.hit_tokens, 16);
}

static void each_refusal_is_counted_by_its_reason(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 1, 1);

    must_alloc(f, 1, 1, 28);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 8), POOL_NO_BLOCKS);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 33), POOL_NEVER_FITS);
    assert_int_equal(alloc(f, .id = 3, .tenant = small, .seed = 3, .count = 4), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 4, .tenant = small, .seed = 4, .count = 4), POOL_QUOTA);
    assert_int_equal(stat_of(f, "refused_no_blocks"), 1);
    assert_int_equal(stat_of(f, "refused_never_fits"), 1);
    assert_int_equal(stat_of(f, "refused_quota"), 1);
    assert_int_equal(stat_of(f, "allocations"), 2);
}

static void partly_used_granules_are_counted(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 0, 4, 2);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 20), 0);
    assert_int_equal(stat_of(f, "partly_used_millipages"), 1500); /* 3 of 4 slots of 2 pages */
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "partly_used_millipages"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(every_number_has_one_name_and_a_help),
        pool_test(slots_add_up),
        pool_test(the_hit_rate_can_be_recomputed),
        pool_test(each_refusal_is_counted_by_its_reason),
        pool_test(partly_used_granules_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
