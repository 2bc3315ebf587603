/* tests/pool/test_demote.c - what pool/demote.c promises: copies below, ahead of evictions. */
#include "tests/pool/fixture.h"

#include <errno.h>

/* 4 pages on the device, 8 on disk; copies are made while fewer than 2 are left. */
static int setup(void **state)
{
    *state = fixture_create_tiers(4, 0, 8, 2);
    return 0;
}
#define tier_test(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

/* Text 1 has blocks 1 and 2, cached, coldest last block first; text 2 has block 3: a page is left.
 */
static void two_cached_one_held(struct fixture *f)
{
    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    must_alloc(f, 2, 2, 4);
    assert_evictable(f, "2,1");
}

static void nothing_is_copied_while_enough_pages_are_left(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0);
}

static void as_many_of_the_coldest_as_pages_are_short_are_copied(void **state)
{
    struct fixture *f = *state;

    two_cached_one_held(f);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 1); /* 2 - 1 pages */
    const struct pool_effect *copy = nth_effect(f, POOL_EFFECT_COPY, 0);
    const struct pool_effect *stored = nth_effect(f, POOL_EFFECT_STORED, 1);
    assert_int_equal(copy->from_arena, arena_of(f, 0, 0, 0));
    assert_int_equal(copy->from_slot, 2);
    assert_int_equal(copy->arena, tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK));
    assert_int_equal(copy->slot, 1);
    assert_memory_equal(copy->key, stored->key, sizeof(*copy->key));
    assert_int_equal(copy->num_form, FIXTURE_BLOCK);
    assert_int_equal(copy->form[0], 1004); /* the second block of text 1 */
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).reserved, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).store_bytes, 10);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 1);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).stores_done, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).store_bytes, 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 1); /* it has its copy */
}

static void evicting_what_has_a_copy_removes_no_key(void **state)
{
    struct fixture *f = *state;

    two_cached_one_held(f);
    advance(f);
    assert_int_equal(copy_done(f, 0, 0), 0);
    must_alloc(f, 3, 3, 8); /* block 4, and that of slot 2 */
    assert_table(f, 3, "4,2");
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(f->found.below, 4);
    const struct pool_tier_stats device = tier_stats(f, POOL_TIER_DEVICE);
    assert_int_equal(device.evictions, 1);
    for (uint32_t skip = 0; skip < POOL_NUM_SKIPS; skip++)
        assert_int_equal(device.skipped[skip], 0);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 1), 1); /* the last place */
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
}

static void what_a_copy_reads_is_skipped_by_evictions(void **state)
{
    struct fixture *f = *state;

    two_cached_one_held(f);
    advance(f);
    must_alloc(f, 3, 3, 8); /* block 1 goes, for block 2 is being read */
    assert_table(f, 3, "4,1");
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_LATE], 1);
    assert_int_equal(alloc(f, .id = 4, .seed = 4, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(alloc(f, .id = 4, .seed = 4, .count = 4), 0);
}

static void a_copy_that_fails_leaves_the_block_where_it_was(void **state)
{
    struct fixture *f = *state;

    two_cached_one_held(f);
    advance(f);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    const struct pool_tier_stats disk = tier_stats(f, POOL_TIER_DISK);
    assert_int_equal(disk.stores_failed, 1);
    assert_int_equal(disk.stores_done, 0);
    assert_int_equal(disk.reserved + disk.evictable, 0);
    assert_int_equal(disk.free, 1);
    assert_evictable(f, "2,1");
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(f->found.below, 0);
}

/* ---- what is stored ---- */

static uint32_t copies_of_all(struct fixture *f)
{
    advance(f);
    return copies_done(f, 0);
}

static void generated_blocks_are_not_stored_by_default(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(append(f, 1, 1, 6, 0), 0); /* block 2 is partly generated, block 3 wholly */
    assert_int_equal(publish(f, 1), 0);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_evictable(f, "3,2,1,4");
    must_alloc(f, 3, 3, 1); /* slot 3: all pages are in use, 2 of the rest are to have copies */
    assert_int_equal(copies_of_all(f), 1);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 0)->from_slot, 1);
}

static void a_session_can_store_all_it_publishes_or_none(void **state)
{
    static const struct {
        enum pool_store store;
        uint32_t copies;
    } rows[] = {{POOL_STORE_ALL, 2}, {POOL_STORE_NONE, 0}};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fixture *f = fixture_create_tiers(3, 0, 8, 3);
        assert_int_equal(pool_session_set_store(f->pool, 0, rows[i].store), 0);
        must_alloc(f, 1, 1, 4);
        assert_int_equal(append(f, 1, 1, 4, 0), 0);
        assert_int_equal(publish(f, 1), 0);
        assert_int_equal(release(f, 1, 0), 0);
        assert_int_equal(copies_of_all(f), rows[i].copies);
        fixture_destroy(f);
    }
}

static void a_publisher_that_wants_nothing_stored_wins(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);

    assert_int_equal(pool_session_set_store(f->pool, other, POOL_STORE_NONE), 0);
    must_alloc(f, 1, 1, 4);
    /* A second session fills the same, unmatched because the hit would be the last token's. */
    assert_int_equal(alloc(f, .id = 1, .session = other, .seed = 1, .count = 4), 0);
    assert_int_equal(pool_publish(f->pool, (struct pool_name){other, 1}), 0); /* merges */
    assert_int_equal(stat_of(f, "merged"), 1);
    assert_int_equal(pool_release(f->pool, (struct pool_name){other, 1}, 0), 0);
    assert_int_equal(release(f, 1, 0), 0);
    must_alloc(f, 2, 2, 12);
    assert_int_equal(copies_of_all(f), 0);
}

static void preempting_makes_all_tokens_prompt(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    must_alloc(f, 2, 2, 8);
    assert_evictable(f, "2,1");
    assert_int_equal(copies_of_all(f), 2);
}

static void a_hit_makes_a_generated_block_prompt(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    must_alloc(f, 2, 1, 9); /* the next turn */
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(release(f, 2, 0), 0);
    must_alloc(f, 3, 2, 8);
    assert_int_equal(copies_of_all(f), 2);
}

/* Which slots of both groups' arenas are being copied, as bit sets. */
static void stored_slots(struct fixture *f, pool_model model, uint32_t *out_full,
                         uint32_t *out_sliding)
{
    *out_full = *out_sliding = 0;
    for (uint32_t i = 0; i < count_effects(f, POOL_EFFECT_COPY); i++) {
        const struct pool_effect *copy = nth_effect(f, POOL_EFFECT_COPY, i);
        *(copy->from_arena == arena_of(f, 0, model, 0) ? out_full : out_sliding) |=
            1u << copy->from_slot;
    }
}

static void of_sliding_groups_the_last_window_is_stored(void **state)
{
    uint32_t full, sliding;

    (void)state;
    struct fixture *f = fixture_create_tiers(12, 0, 16, 12);
    pool_model model = add_model_of_two(f, 5);

    /*
     * 12 tokens: a later prompt can hit 8 of them, and needs the window's 4 tokens before: block 2
     * of 3 in the sliding group; or it goes on behind all 12, and needs block 3.
     */
    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 12), 0);
    assert_table(f, 1, "1,2,3;1,2,3");
    assert_int_equal(publish(f, 1), 0);
    assert_table(f, 1, "1,2,3;0,0,3"); /* what left the window is cached, too */
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    stored_slots(f, model, &full, &sliding);
    assert_int_equal(full, 1u << 1 | 1u << 2 | 1u << 3);
    assert_int_equal(sliding, 1u << 2 | 1u << 3);
    (void)copies_done(f, 0);
    fixture_destroy(f);
}

static void a_preempt_wants_the_last_window_too(void **state)
{
    uint32_t full, sliding;

    (void)state;
    struct fixture *f = fixture_create_tiers(12, 0, 16, 12);
    pool_model model = add_model_of_two(f, 5);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 1), 0);
    assert_int_equal(append(f, 1, 1, 11, 0), 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(publish(f, 1), 0); /* generated: nothing of it is to be stored */
    assert_table(f, 2, "1,2,3;1,2,3");
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    stored_slots(f, model, &full, &sliding);
    assert_int_equal(full, 1u << 1 | 1u << 2 | 1u << 3);
    assert_int_equal(sliding, 1u << 2 | 1u << 3); /* as of a prompt of 12 tokens */
    (void)copies_done(f, 0);
    fixture_destroy(f);
}

static void a_preempt_does_not_want_the_block_that_its_tail_was_cut_from(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 3);
    assert_int_equal(append(f, 1, 1, 1, 0), 0);
    assert_int_equal(publish(f, 1), 0); /* its 4th token is generated */
    assert_int_equal(truncate_to(f, 1, 3, 0), 0);
    assert_int_equal(preempt(f, 1, 0), 0); /* and is none of its tokens */
    must_alloc(f, 2, 2, 12);
    assert_evictable(f, "1");
    assert_int_equal(copies_of_all(f), 0);
}

/* ---- when ---- */

static void at_once_stores_what_is_published(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 8, 0, 8, 0);
    config.store_when = POOL_STORE_AT_ONCE;
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 10);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 2);
    (void)copies_done(f, 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 2);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).held, 2);
    fixture_destroy(f);
}

static void second_use_stores_what_an_allocation_hits(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 8, 0, 8, 8);
    config.store_when = POOL_STORE_SECOND_USE;
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0); /* all pages short, but used once */
    must_alloc(f, 2, 1, 6);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 1);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 0)->from_slot, 1);
    (void)copies_done(f, 0);
    fixture_destroy(f);
}

/* ---- caps ---- */

static void max_store_bytes_bounds_what_is_under_way(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 4, 0, 8, 4);
    config.tiers[POOL_TIER_DISK].max_store_bytes = 20; /* two blocks */
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 16);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 2);
    assert_int_equal(pool_evict(f->pool, 1), 1); /* the coldest that is not read: block 2 */
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_BUSY], 1);
    assert_int_equal(copy_done(f, 0, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 3);
    (void)copies_done(f, 1);
    fixture_destroy(f);
}

static void the_rate_is_counted_by_ticks(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 4, 0, 8, 4);
    config.tiers[POOL_TIER_DISK].store_bytes_per_s = 10; /* a block a second */
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 16);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 1); /* one second's worth at once */
    pool_tick(f->pool, 1);
    assert_int_equal(copies_done(f, 1), 1); /* any credit will do */
    assert_int_equal(pool_evict(f->pool, 3), 3);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_RATE], 1);
    pool_tick(f->pool, 900);
    assert_int_equal(copies_done(f, 2), 0); /* 9.99 bytes in debt, 8.99 paid */
    pool_tick(f->pool, 1100);
    assert_int_equal(copies_done(f, 2), 1);
    fixture_destroy(f);
}

static void a_tier_that_is_full_of_what_must_stay_takes_nothing(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pool_tier_quota_set(f->pool, 0, POOL_TIER_DISK,
                                         &(struct pool_quota){.limit = 0, .weight = 1}),
                     0);
    two_cached_one_held(f);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_FULL], 1);
}

static void a_full_tier_evicts_its_own_coldest(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(4, 0, 1, 4);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copy_done(f, 0, 0),
                     0); /* block 2; block 1 found the disk full of what comes */
    advance(f);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 1)->from_slot, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictions, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0); /* both are on the device */
    fixture_destroy(f);
}

/* ---- tiers ---- */

static void the_host_is_copied_to_disk_ahead_of_its_own_evictions(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 4, 2, 8, 4);
    config.ahead_pages[POOL_TIER_HOST] = 1;
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 2); /* to the host, which is full then */
    assert_tier_evictable(f, POOL_TIER_HOST, "1,2");
    advance(f);
    assert_int_equal(copies_done(f, 2), 1);
    const struct pool_effect *copy = nth_effect(f, POOL_EFFECT_COPY, 2);
    assert_int_equal(copy->from_arena, tier_arena_of(f, 0, 0, 0, POOL_TIER_HOST));
    assert_int_equal(copy->from_slot, 1);
    assert_int_equal(copy->arena, tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK));
    fixture_destroy(f);
}

static void a_tier_that_is_not_on_is_passed_over(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(4, 4, 4, 4);

    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_HOST, POOL_TIER_READ_ONLY), 0);
    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 0)->arena,
                     tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK));
    (void)copies_done(f, 0);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_OFF), 0);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(release(f, 2, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 1);
    assert_int_equal(pool_evict(f->pool, 9), 2);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_OFF], 1);
    fixture_destroy(f);
}

static void a_tenant_near_its_limit_is_short_of_pages_alone(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(32, 0, 8, 2);

    assert_int_equal(pool_quota_set(f->pool, 0, &(struct pool_quota){0, 3, 1}), 0);
    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 1); /* 2 of 3 pages: one short */
    fixture_destroy(f);
}

static void what_a_clear_makes_old_is_not_kept_below(void **state)
{
    struct fixture *f = *state;

    two_cached_one_held(f);
    advance(f);
    assert_int_equal(pool_clear(f->pool, POOL_NONE, POOL_NONE), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    const struct pool_tier_stats disk = tier_stats(f, POOL_TIER_DISK);
    assert_int_equal(disk.evictable + disk.reserved, 0);
    advance(f);
    assert_evictable(f, "");
    assert_int_equal(stat_of(f, "sweeps_pending"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tier_test(nothing_is_copied_while_enough_pages_are_left),
        tier_test(as_many_of_the_coldest_as_pages_are_short_are_copied),
        tier_test(evicting_what_has_a_copy_removes_no_key),
        tier_test(what_a_copy_reads_is_skipped_by_evictions),
        tier_test(a_copy_that_fails_leaves_the_block_where_it_was),
        tier_test(generated_blocks_are_not_stored_by_default),
        cmocka_unit_test(a_session_can_store_all_it_publishes_or_none),
        tier_test(a_publisher_that_wants_nothing_stored_wins),
        tier_test(preempting_makes_all_tokens_prompt),
        tier_test(a_hit_makes_a_generated_block_prompt),
        cmocka_unit_test(of_sliding_groups_the_last_window_is_stored),
        cmocka_unit_test(at_once_stores_what_is_published),
        cmocka_unit_test(a_preempt_wants_the_last_window_too),
        tier_test(a_preempt_does_not_want_the_block_that_its_tail_was_cut_from),
        cmocka_unit_test(second_use_stores_what_an_allocation_hits),
        cmocka_unit_test(max_store_bytes_bounds_what_is_under_way),
        cmocka_unit_test(the_rate_is_counted_by_ticks),
        tier_test(a_tier_that_is_full_of_what_must_stay_takes_nothing),
        cmocka_unit_test(a_full_tier_evicts_its_own_coldest),
        cmocka_unit_test(the_host_is_copied_to_disk_ahead_of_its_own_evictions),
        cmocka_unit_test(a_tier_that_is_not_on_is_passed_over),
        cmocka_unit_test(a_tenant_near_its_limit_is_short_of_pages_alone),
        tier_test(what_a_clear_makes_old_is_not_kept_below),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
