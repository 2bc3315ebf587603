/* tests/pool/test_plan.c - what pool/plan.c promises: where new slots come from, in which order. */
#include "tests/pool/fixture.h"

static void a_free_slot_comes_before_an_uncommitted_granule(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8), 0);
    assert_int_equal(truncate_to(f, 1, 4, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 8), 0);
    assert_table(f, 2, "2,3");
}

static void an_uncommitted_granule_comes_before_an_idle_one(void **state)
{
    struct fixture *f = *state;
    pool_model other = add_model(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .model = other, .seed = 1, .count = 4), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 28), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 0);
    assert_int_equal(append(f, 2, 2, 1, 0), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 1);
}

static void an_idle_granule_comes_before_eviction(void **state)
{
    struct fixture *f = *state;
    pool_model other = add_model(f, 0, 1, 1);

    must_alloc(f, 1, 1, 28);
    assert_int_equal(alloc(f, .id = 2, .model = other, .seed = 2, .count = 4), 0);
    assert_int_equal(release(f, 1, 0) | release(f, 2, 0), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 0);
    assert_int_equal(alloc(f, .id = 4, .seed = 4, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 1);
}

/* 2 pages; a model with two blocks a granule; blocks 1 (text 1), 2 (text 2), 3 and 4 (text 3). */
static struct fixture *create_pairs(pool_model *out_pairs)
{
    struct fixture *f = fixture_create(2);

    *out_pairs = add_model(f, 0, 2, 1);
    for (uint32_t id = 1; id <= 3; id++) {
        assert_int_equal(
            alloc(f, .id = id, .model = *out_pairs, .seed = id, .count = id < 3 ? 4 : 8), 0);
        assert_int_equal(publish(f, id), 0);
    }
    return f;
}

static uint32_t evictable_slots(struct fixture *f, pool_model model, uint32_t *out, size_t max)
{
    return (uint32_t)pool_arena_order(f->pool, arena_of(f, 0, model, 0), POOL_ORDER_EVICTABLE, out,
                                      max);
}

static void the_first_granule_to_be_complete_is_handed_over(void **state)
{
    pool_model pairs;
    struct fixture *f = create_pairs(&pairs);
    uint32_t slots[4];

    (void)state;
    assert_int_equal(release(f, 1, 0) | release(f, 3, 0), 0); /* 1 is coldest, but 2 is held */
    assert_int_equal(alloc(f, .id = 4, .seed = 4, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 2);
    assert_int_equal(evictable_slots(f, pairs, slots, 4), 1);
    assert_int_equal(slots[0], 1); /* its eviction completes no granule: it stays */
    assert_int_equal(stat_of(f, "granules_moved"), 1);
    fixture_destroy(f);
}

static void where_no_granule_completes_nothing_is_evicted(void **state)
{
    pool_model pairs;
    struct fixture *f = create_pairs(&pairs);

    (void)state;
    assert_int_equal(truncate_to(f, 3, 4, 0), 0);
    assert_int_equal(release(f, 1, 0), 0); /* 1 and 4 are cached, 2 and 3 held */
    assert_int_equal(alloc(f, .id = 4, .seed = 4, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(stat_of(f, "evictable"), 2);
    assert_int_equal(alloc(f, .id = 4, .model = pairs, .seed = 4, .count = 4),
                     0); /* its own arena */
    assert_table(f, 4, "4");
    fixture_destroy(f);
}

static void a_larger_granule_empties_as_many_as_it_takes(void **state)
{
    struct fixture *f = *state;
    pool_model large = add_model(f, 0, 2, 3);

    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .model = large, .seed = 2, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 3);
    assert_int_equal(stat_of(f, "uncommitted"), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 3);
    assert_evictable(f, "5,4,3,2,1");
}

static void at_its_limit_a_payer_takes_from_itself_only(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 2, 1);
    pool_model other = add_model(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = small, .model = other, .seed = 2, .count = 8), 0);
    assert_int_equal(stat_of(f, "evictions"), 2);
    /* What it empties is handed over, though six pages are uncommitted. */
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 2);
    assert_int_equal(stat_of(f, "idle"), 0);
}

static void memory_is_decommitted_before_it_is_committed_again(void **state)
{
    struct fixture *f = *state;
    pool_model other = add_model(f, 0, 1, 1);

    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    f->num_effects = 0;
    assert_int_equal(alloc(f, .id = 2, .model = other, .seed = 2, .count = 4), 0);
    assert_int_equal(f->num_effects, 3);
    assert_int_equal(f->effects[0].kind, POOL_EFFECT_REMOVED);
    assert_int_equal(f->effects[1].kind, POOL_EFFECT_DECOMMIT);
    assert_int_equal(f->effects[2].kind, POOL_EFFECT_COMMIT);
}

static void what_a_payer_gives_at_its_limit_is_idle_behind_what_was_before(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 2, 1);
    pool_model other = add_model(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 24), 0);
    assert_int_equal(release(f, 1, 0) | release(f, 2, 0), 0);
    assert_int_equal(stat_of(f, "idle"), 6);
    assert_int_equal(alloc(f, .id = 3, .tenant = small, .model = other, .seed = 3, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 1);
    assert_int_equal(stat_of(f, "idle"), 6);
}

static void a_step_of_several_tenants_counts_who_caused_what(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    const struct row rows[] = {{1, 1}, {2, 1}};
    pool_step step;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 4), 0);
    assert_int_equal(publish(f, 2), 0);
    must_alloc(f, 3, 3, 24);
    assert_int_equal(release(f, 3, 0), 0);
    assert_int_equal(step_begin(f, rows, 2, 1, 0, &step), 0);
    assert_int_equal(pool_evictions(f->pool, 0, 0), 1);
    assert_int_equal(pool_evictions(f->pool, other, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_free_slot_comes_before_an_uncommitted_granule),
        pool_test(an_uncommitted_granule_comes_before_an_idle_one),
        pool_test(an_idle_granule_comes_before_eviction),
        cmocka_unit_test(the_first_granule_to_be_complete_is_handed_over),
        cmocka_unit_test(where_no_granule_completes_nothing_is_evicted),
        pool_test(a_larger_granule_empties_as_many_as_it_takes),
        pool_test(at_its_limit_a_payer_takes_from_itself_only),
        pool_test(memory_is_decommitted_before_it_is_committed_again),
        pool_test(what_a_payer_gives_at_its_limit_is_idle_behind_what_was_before),
        pool_test(a_step_of_several_tenants_counts_who_caused_what),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
