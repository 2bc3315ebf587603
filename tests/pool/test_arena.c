/* tests/pool/test_arena.c - what pool/arena.c promises: granules, slots, and who is charged. */
#include "tests/pool/fixture.h"

static uint64_t charged(const struct fixture *f, pool_payer payer)
{
    struct pool_payer_stats stats;

    assert_int_equal(pool_payer_stats(f->pool, payer, &stats), 0);
    return stats.charged_pages[0];
}

static void a_granule_of_several_slots_is_used_up_first(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 0, 4, 1);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 20), 0);
    assert_table(f, 1, "1,2,3,4,5");
    assert_int_equal(stat_of(f, "granules"), 2);
    assert_int_equal(stat_of(f, "free"), 3);
    assert_int_equal(charged(f, 0), 2);
}

static void a_granule_takes_all_its_pages(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 0, 4, 3);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 36), POOL_NEVER_FITS);
    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 4), 0);
    assert_int_equal(charged(f, 0), 3);
    assert_int_equal(stat_of(f, "uncommitted"), 5);
    assert_int_equal(alloc(f, .id = 2, .model = model, .seed = 2, .count = 28), 0);
    assert_int_equal(charged(f, 0), 6);
    assert_int_equal(alloc(f, .id = 3, .model = model, .seed = 3, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 8),
                     0); /* two pages are left for others */
}

static void an_idle_granule_moves_to_the_arena_that_asks(void **state)
{
    struct fixture *f = *state;
    pool_model other = add_model(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 32), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "idle"), 8);
    assert_int_equal(charged(f, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .model = other, .seed = 2, .count = 4), 0);

    /* The one that is idle longest held the last position. */
    const struct pool_effect *effect = nth_effect(f, POOL_EFFECT_DECOMMIT, 0);
    assert_int_equal(effect->arena, arena_of(f, 0, 0, 0));
    assert_int_equal(effect->index, 7);
    effect = nth_effect(f, POOL_EFFECT_COMMIT, 8);
    assert_int_equal(effect->arena, arena_of(f, 0, other, 0));
    assert_int_equal(effect->index, 0);
    assert_int_equal(stat_of(f, "granules_moved"), 1);
    assert_free(f, "7,6,5,4,3,2,1");
}

static void a_new_granule_has_the_lowest_unused_index(void **state)
{
    struct fixture *f = *state;
    pool_model other = add_model(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 32), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .model = other, .seed = 2, .count = 8), 0); /* of 8 and 7 */
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 32), 0);
    assert_table(f, 3, "6,5,4,3,2,1,7,8");
}

static void the_null_block_is_nobodys(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 32);
    assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), 0), 0);
    assert_int_equal(pool_place_verify(f->pool, arena_of(f, 0, 0, 0), 0, 0), POOL_STALE);
}

static void a_slot_has_a_new_generation_with_every_block(void **state)
{
    struct fixture *f = *state;
    struct pool_place first, second;
    uint32_t count;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 4), 0);
    assert_int_equal(pool_table(f->pool, (struct pool_name){0, 1}, 0, &first, 1, &count), 0);
    uint32_t arena = arena_of(f, 0, 0, 0);
    assert_int_equal(pool_place_verify(f->pool, arena, first.slot, first.generation), 0);
    assert_int_equal(pool_place_verify(f->pool, arena, 2, first.generation), POOL_STALE);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(pool_place_verify(f->pool, arena, first.slot, first.generation), POOL_STALE);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), 0);
    assert_int_equal(pool_table(f->pool, (struct pool_name){0, 2}, 0, &second, 1, &count), 0);
    assert_int_equal(second.slot, first.slot);
    assert_int_equal(pool_place_verify(f->pool, arena, first.slot, first.generation), POOL_STALE);
    assert_int_equal(pool_place_verify(f->pool, arena, second.slot, second.generation), 0);
}

static void an_arena_is_described(void **state)
{
    struct fixture *f = *state;
    struct pool_arena_description description;
    pool_model model = add_model(f, 0, 4, 3);
    uint32_t arena = POOL_NONE;

    assert_int_equal(pool_arena_find(f->pool, 0, model, 0, &arena), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 20), 0);
    assert_int_equal(pool_arena_find(f->pool, 0, model, 1, &arena), POOL_INVALID);
    assert_int_equal(pool_arena_find(f->pool, 0, model, 0, &arena), 0);
    assert_int_equal(pool_arena_describe(f->pool, arena, &description), 0);
    assert_int_equal(description.domain, 0);
    assert_int_equal(description.model, model);
    assert_int_equal(description.slots_per_granule, 4);
    assert_int_equal(description.pages_per_granule, 3);
    assert_int_equal(description.num_granules, 2);
    assert_int_equal(pool_arena_describe(f->pool, arena + 1, &description), POOL_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_granule_of_several_slots_is_used_up_first),
        pool_test(a_granule_takes_all_its_pages),
        pool_test(an_idle_granule_moves_to_the_arena_that_asks),
        pool_test(a_new_granule_has_the_lowest_unused_index),
        pool_test(the_null_block_is_nobodys),
        pool_test(a_slot_has_a_new_generation_with_every_block),
        pool_test(an_arena_is_described),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
