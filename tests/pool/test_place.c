/* tests/pool/test_place.c - what pool/place.c promises: one block, a place in each tier. */
#include "tests/pool/fixture.h"

#include <errno.h>

static int setup(void **state)
{
    *state = fixture_create_tiers(4, 0, 8, 4);
    return 0;
}
#define tier_test(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static const struct pool_effect *last_effect(const struct fixture *f, enum pool_effect_kind kind)
{
    return nth_effect(f, kind, count_effects(f, kind) - 1);
}

/* Text @seed, one block: cached, and with a copy on disk. */
static void cached_and_stored(struct fixture *f, uint64_t id, uint32_t seed)
{
    uint32_t num_copies = count_effects(f, POOL_EFFECT_COPY);

    must_alloc(f, id, seed, 4);
    assert_int_equal(release(f, id, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, num_copies), 1);
}

static void places_are_told_as_they_come_and_go(void **state)
{
    struct fixture *f = *state;
    uint32_t device, disk;

    cached_and_stored(f, 1, 1);
    device = arena_of(f, 0, 0, 0);
    disk = tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK);
    assert_int_equal(count_effects(f, POOL_EFFECT_PRESENT), 2);
    const struct pool_effect *published = nth_effect(f, POOL_EFFECT_PRESENT, 0);
    const struct pool_effect *stored = nth_effect(f, POOL_EFFECT_PRESENT, 1);
    assert_int_equal(published->arena, device);
    assert_int_equal(stored->arena, disk);
    assert_memory_equal(published->key, stored->key, sizeof(*stored->key));
    assert_int_equal(stored->generation, nth_effect(f, POOL_EFFECT_COPY, 0)->generation);
    assert_int_equal(stored->form[2], 1002);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_GONE), 1);
    assert_int_equal(last_effect(f, POOL_EFFECT_GONE)->arena, device);
    assert_int_equal(last_effect(f, POOL_EFFECT_GONE)->slot, 1);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 1), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_GONE), 2);
    assert_int_equal(last_effect(f, POOL_EFFECT_GONE)->arena, disk);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
}

static void nothing_is_told_of_places_unless_it_is_asked_for(void **state)
{
    struct pool_config config;
    (void)state;

    fixture_tiers_config(&config, 4, 0, 8, 4);
    config.tells_places = false;
    struct fixture *f = fixture_create_with(&config);
    cached_and_stored(f, 1, 1);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_PRESENT), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_GONE), 0);
    fixture_destroy(f);
}

static void a_block_written_anew_is_gone_first(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4); /* slot 1 */
    assert_int_equal(pool_clear(f->pool, POOL_NONE, POOL_NONE), 0);
    assert_int_equal(release(f, 1, 0), 0); /* free at once, and told */
    assert_int_equal(last_effect(f, POOL_EFFECT_GONE)->slot, 1);
    assert_free(f, "1");
}

static void what_leaves_the_device_is_the_hottest_below(void **state)
{
    struct fixture *f = *state;

    cached_and_stored(f, 1, 1); /* disk slot 1 */
    cached_and_stored(f, 2, 2); /* disk slot 2 */
    must_alloc(f, 3, 1, 5);     /* text 1 is used again, on the device */
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(release(f, 3, 0), 0);
    assert_tier_evictable(f, POOL_TIER_DISK, "1,2");
    assert_int_equal(pool_evict(f->pool, 2), 2); /* text 2, then text 1 */
    assert_tier_evictable(f, POOL_TIER_DISK, "2,1");
}

static void a_slot_that_loses_its_block_while_written_waits(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f); /* block 1 is being stored */
    assert_int_equal(pool_clear(f->pool, POOL_NONE, POOL_NONE), 0);
    must_alloc(f, 2, 1, 4); /* the same key again: the old block is found no more */
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    advance(f);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).reserved, 1);
    assert_int_equal(stat_of(f, "evictable"), 1); /* read by the copy */
    assert_int_equal(copy_done(f, 0, 0), 0);
    advance(f);
    assert_int_equal(stat_of(f, "evictable"), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).free, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    assert_int_equal(match(f, .seed = 1, .count = 5), 0);
    assert_int_equal(f->found.matched, 4);
}

static void a_slot_written_for_a_block_that_lost_its_key_is_quarantined(void **state)
{
    struct pool_config config;
    (void)state;

    fixture_tiers_config(&config, 4, 0, 8, 0);
    config.store_when = POOL_STORE_AT_ONCE;
    struct fixture *f = fixture_create_with(&config);
    must_alloc(f, 1, 1, 4); /* held, and being stored */
    assert_int_equal(pool_clear(f->pool, POOL_NONE, POOL_NONE), 0);
    must_alloc(f, 2, 1, 4); /* takes the key over */
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).quarantined, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).reserved, 1); /* of the new block */
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 1); /* the copy still reads it */
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).quarantined, 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).free, 1);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    fixture_destroy(f);
}

static void a_waiting_table_keeps_its_slots_when_all_copies_fail(void **state)
{
    struct fixture *f = *state;

    cached_and_stored(f, 1, 1);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 5, .cookie = 7), POOL_PENDING);
    assert_int_equal(stat_of(f, "reserved"), 2);
    assert_int_equal(copy_done(f, 1, -EIO), 0);
    assert_reply(f, 7, POOL_RETRY);
    assert_int_equal(stat_of(f, "reserved"), 0);
    assert_int_equal(stat_of(f, "free"), 2);
    assert_int_equal(last_effect(f, POOL_EFFECT_GONE)->arena,
                     tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tier_test(places_are_told_as_they_come_and_go),
        cmocka_unit_test(nothing_is_told_of_places_unless_it_is_asked_for),
        tier_test(a_block_written_anew_is_gone_first),
        tier_test(what_leaves_the_device_is_the_hottest_below),
        tier_test(a_slot_that_loses_its_block_while_written_waits),
        cmocka_unit_test(a_slot_written_for_a_block_that_lost_its_key_is_quarantined),
        tier_test(a_waiting_table_keeps_its_slots_when_all_copies_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
