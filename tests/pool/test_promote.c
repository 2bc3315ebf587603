/* tests/pool/test_promote.c - what pool/promote.c promises: sequences wait for blocks from below.
 */
#include "tests/pool/fixture.h"

#include <errno.h>

/*
 * 4 pages on the device, 8 on disk. Text 1 has two full blocks, both on disk only (their disk slots
 * are 1: the second block, 2: the first); copies 0 and 1 brought them there.
 */
static struct fixture *with_text_below(uint64_t host, uint64_t disk)
{
    struct fixture *f = fixture_create_tiers(4, host, disk, 4);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 2);
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(stat_of(f, "evictable"), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    return f;
}

static int setup(void **state)
{
    *state = with_text_below(0, 8);
    return 0;
}
#define tier_test(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static void a_hit_below_the_device_is_answered_when_it_is_there(void **state)
{
    struct fixture *f = *state;
    uint32_t disk = tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK);

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7), POOL_PENDING);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(f->found.below, 8);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 4);
    const struct pool_effect *first = nth_effect(f, POOL_EFFECT_COPY, 2);
    const struct pool_effect *second = nth_effect(f, POOL_EFFECT_COPY, 3);
    assert_true(first->from_arena == disk && second->from_arena == disk);
    assert_int_equal(first->from_slot, 2);
    assert_int_equal(second->from_slot, 1);
    assert_int_equal(first->arena, arena_of(f, 0, 0, 0));
    assert_int_equal(first->form[0], 1000);
    assert_int_equal(second->form[0], 1004);
    assert_int_equal(copy_done(f, 3, 0), 0); /* in any order */
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_reply(f, 7, 0);
    assert_text(f, 2, 1, 10);
    assert_int_equal(stat_of(f, "held"), 2);
    assert_int_equal(stat_of(f, "reserved"), 1); /* the tail */
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).promotions_done, 2);
    assert_int_equal(append(f, 2, 1, 1, 0), 0);
}

static void tokens_are_counted_by_the_tier_that_had_them(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 5, .cookie = 7), POOL_PENDING);
    assert_int_equal(stat_of(f, "hit_tokens"), 0); /* not before it is granted */
    (void)copies_done(f, 2);
    assert_reply(f, 7, 0);
    assert_int_equal(stat_of(f, "hit_tokens"), 4);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).hit_tokens, 4);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 8), POOL_PENDING);
    assert_int_equal(f->found.below, 4); /* the first block is on the device by now */
    (void)copies_done(f, 3);
    assert_reply(f, 8, 0);
    assert_int_equal(stat_of(f, "hit_tokens"), 12);
    assert_int_equal(stat_of(f, "query_tokens"), 8 + 5 + 9);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).hit_tokens, 8);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).hit_tokens, 4);
}

static void everything_else_of_a_waiting_sequence_is_busy(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .is_unfilled = true, .cookie = 7),
                     POOL_PENDING);
    assert_int_equal(publish(f, 2), POOL_BUSY);
    assert_int_equal(append(f, 2, 1, 1, 0), POOL_BUSY);
    assert_int_equal(fill(f, 2), POOL_BUSY);
    assert_int_equal(fork_to(f, 2, 3), POOL_BUSY);
    assert_int_equal(truncate_to(f, 2, 4, 0), POOL_BUSY);
    assert_int_equal(release(f, 2, 0), POOL_BUSY);
    assert_int_equal(preempt(f, 2, 0), POOL_BUSY);
    assert_int_equal(resume(f, 2), POOL_BUSY);
    assert_int_equal(step_one(f, 2, 1, 1, &step), POOL_BUSY);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10), POOL_EXISTS);
    assert_int_equal(pool_may_write(f->pool, (struct pool_name){0, 2}, 0, 2, 1), POOL_INVALID);
    (void)copies_done(f, 2);
    assert_reply(f, 7, 0);
    assert_int_equal(step_one(f, 2, 1, 2, &step), 0);
}

static void a_second_one_waits_for_the_same_copies(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9, .cookie = 7), POOL_PENDING);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 8), POOL_PENDING);
    assert_int_equal(f->found.below, 8);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 4);
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_int_equal(copy_done(f, 3, 0), 0);
    assert_reply(f, 7, 0);
    assert_reply(f, 8, 0);
    assert_int_equal(stat_of(f, "held"), 2);
}

static void a_refusal_changes_nothing(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 2, 2, 8); /* two pages are left, three are wanted */
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 7), POOL_NO_BLOCKS);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 2);
    assert_tier_evictable(f, POOL_TIER_DISK, "1,2");
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8); /* no room is no miss */
}

static void what_is_read_is_the_hottest_of_its_tier(void **state)
{
    struct fixture *f = *state;

    assert_tier_evictable(f, POOL_TIER_DISK, "1,2");
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9, .cookie = 7), POOL_PENDING);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 0); /* they are being read */
    assert_int_equal(copy_done(f, 3, 0), 0);                          /* from slot 1 */
    assert_tier_evictable(f, POOL_TIER_DISK, "2,1");
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_tier_evictable(f, POOL_TIER_DISK, "1,2");
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
}

/* ---- copies that fail ---- */

static void a_block_that_cannot_be_read_is_a_miss(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7), POOL_PENDING);
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_int_equal(copy_done(f, 3, -EIO), 0);
    assert_reply(f, 7, POOL_RETRY);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).promotions_failed, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    assert_int_equal(stat_of(f, "sequences"), 0);
    assert_int_equal(stat_of(f, "held") + stat_of(f, "reserved"), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10), 0); /* progress is sure */
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(stat_of(f, "allocations"), 2);
}

static void a_failure_of_the_first_block_waits_for_the_others(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7), POOL_PENDING);
    assert_int_equal(copy_done(f, 2, -EIO), 0);
    assert_int_equal(match(f, .seed = 1, .count = 10), 0);
    assert_int_equal(f->found.matched, 0); /* nobody finds it any more */
    assert_int_equal(copy_done(f, 3, 0), 0);
    assert_reply(f, 7, POOL_RETRY);
    assert_evictable(f, "1"); /* the second block is cached: slot 2 was free before slot 1 */
}

static void the_next_tier_is_tried(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 4, 4, 8, 4);
    config.ahead_pages[POOL_TIER_HOST] = 4;
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 1); /* to the host */
    advance(f);
    assert_int_equal(copies_done(f, 1), 1); /* and from there to disk */
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 5, .cookie = 7), POOL_PENDING);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 2)->from_arena,
                     tier_arena_of(f, 0, 0, 0, POOL_TIER_HOST));
    assert_int_equal(copy_done(f, 2, -EIO), 0);
    assert_int_equal(count_replies(f, 7), 0);
    const struct pool_effect *again = nth_effect(f, POOL_EFFECT_COPY, 3);
    assert_int_equal(again->from_arena, tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK));
    assert_int_equal(again->slot, nth_effect(f, POOL_EFFECT_COPY, 2)->slot);
    assert_int_equal(copy_done(f, 3, 0), 0);
    assert_reply(f, 7, 0);
    assert_int_equal(tier_stats(f, POOL_TIER_HOST).evictable, 0); /* not trusted any more */
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    fixture_destroy(f);
}

/* ---- waiting that ends otherwise ---- */

static void beyond_its_deadline_it_is_undone_and_the_copies_go_on(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7, .deadline_ms = 100),
                     POOL_PENDING);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 8), POOL_PENDING);
    pool_tick(f->pool, 99);
    assert_int_equal(count_replies(f, 7), 0);
    pool_tick(f->pool, 100);
    assert_reply(f, 7, POOL_TIMEOUT);
    assert_int_equal(stat_of(f, "promotion_timeouts"), 1);
    assert_int_equal(length_of(f, 2), 0);
    pool_tick(f->pool, 100000); /* 0 is no deadline */
    assert_int_equal(count_replies(f, 8), 0);
    (void)copies_done(f, 2);
    assert_reply(f, 8, 0);
}

static void what_comes_up_for_nobody_is_cached(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7), POOL_PENDING);
    assert_int_equal(pool_cancel(f->pool, 0, 7), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(pool_cancel(f->pool, 0, 7), POOL_NOT_FOUND);
    assert_int_equal(stat_of(f, "reserved"), 2); /* no slot is reused while it is written */
    assert_int_equal(pool_evict(f->pool, 9), 0);
    (void)copies_done(f, 2);
    assert_int_equal(stat_of(f, "evictable"), 2);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_session_that_ends_waits_for_nothing(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);

    assert_int_equal(alloc(f, .id = 2, .session = other, .seed = 1, .count = 10, .cookie = 7),
                     POOL_PENDING);
    assert_int_equal(pool_session_end(f->pool, other, true, NULL), 0);
    advance(f);
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_int_equal(copy_done(f, 3, -EIO), 0);
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(stat_of(f, "evictable"), 1);
    assert_int_equal(stat_of(f, "quarantined"), 1); /* its own tail, which it may still write */
    assert_int_equal(pool_session_detach(f->pool, other), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(stat_of(f, "sessions"), 1);
}

static void a_clear_sends_waiting_ones_away(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 10, .cookie = 7), POOL_PENDING);
    assert_int_equal(pool_clear(f->pool, 0, POOL_NONE), 0);
    assert_reply(f, 7, POOL_RETRY);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 8), 0);
    assert_int_equal(f->found.matched, 0);
    (void)copies_done(f, 2);
    advance(f);
    assert_int_equal(stat_of(f, "evictable"), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 0);
    assert_int_equal(stat_of(f, "sweeps_pending"), 0);
    assert_int_equal(publish(f, 2), 0);
}

/* ---- resume ---- */

static void a_preempted_sequence_comes_back_from_below(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(4, 0, 8, 4);

    must_alloc(f, 1, 1, 6);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 2);
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(resume_waiting(f, 1, 0, 7, 50), POOL_PENDING);
    assert_int_equal(f->found.below, 8);
    pool_tick(f->pool, 50);
    assert_reply(f, 7, POOL_TIMEOUT);
    assert_text(f, 1, 1, 10); /* preempted as before */
    assert_int_equal(preempt(f, 1, 0), POOL_INVALID);
    (void)copies_done(f, 2);
    assert_int_equal(resume_waiting(f, 1, 0, 8, 0), 0); /* they are cached by now */
    assert_int_equal(f->found.matched, 8);
    fixture_destroy(f);
}

static void a_resume_loses_tokens_only_when_it_is_granted(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 12, .cookie = 6), POOL_PENDING);
    (void)copies_done(f, 2);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(resume_waiting(f, 2, 1, 7, 0), POOL_PENDING); /* 8 + 1 of its 12 tokens */
    assert_int_equal(pool_cancel(f->pool, 0, 7), 0);
    assert_text(f, 2, 1, 12);
    assert_int_equal(resume_waiting(f, 2, 1, 8, 0), POOL_PENDING);
    (void)copies_done(f, 4);
    assert_reply(f, 8, 0);
    assert_text(f, 2, 1, 9);
    assert_int_equal(complete_of(f, 2), 9);
}

/* ---- other blocks of the same key ---- */

static void publishing_takes_over_the_copies_below(void **state)
{
    struct fixture *f = *state;

    /* The hit may not have the prompt's last token, so block 2 is filled anew. */
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 8, .cookie = 7), POOL_PENDING);
    assert_int_equal(f->found.matched, 4);
    (void)copies_done(f, 2);
    uint32_t num_stored = count_effects(f, POOL_EFFECT_STORED);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), num_stored); /* it could be found */
    assert_int_equal(stat_of(f, "merged"), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 2);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(pool_evict(f->pool, 9), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 2);
}

static void what_is_on_its_way_is_no_block_to_merge_with(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 8, .cookie = 7), POOL_PENDING);
    assert_int_equal(copy_done(f, 2, 0), 0);
    assert_reply(f, 7, 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 8), POOL_PENDING);
    assert_int_equal(publish(f, 2), 0); /* its own block 2 stays, unpublished */
    assert_table(f, 2, "2,1");
    assert_int_equal(stat_of(f, "merged"), 0);
    assert_int_equal(copy_done(f, 3, 0), 0);
    assert_reply(f, 8, 0);
    assert_table(f, 3, "2,3,4");
}

static void a_tail_written_in_place_loses_its_copies_below(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(2, 0, 8, 2);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    (void)copies_done(f, 0);
    assert_int_equal(
        request_alloc(f, &(struct request){.id = 2, .seed = 1, .count = 8, .is_raw = true}), 0);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(truncate_to(f, 2, 6, 0), 0);
    assert_int_equal(append(f, 2, 2, 1, 0), 0); /* no slot for a copy of its tail */
    assert_int_equal(stat_of(f, "unpublished_in_place"), 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    fixture_destroy(f);
}

/* ---- a shared domain ---- */

static void a_shared_block_comes_up_in_its_domains_arena(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(4, 0, 8, 4);
    pool_payer domain = add_domain(f);
    struct pool_payer_stats stats;

    assert_int_equal(pool_domain_grant(f->pool, domain, 0, POOL_MAY_READ | POOL_MAY_FILL), 0);
    assert_int_equal(alloc(f, .id = 1, .domain = domain, .seed = 1, .count = 4), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    (void)copies_done(f, 0);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 6, .cookie = 7),
                     POOL_PENDING);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 1)->arena, arena_of(f, domain, 0, 0));
    (void)copies_done(f, 1);
    assert_reply(f, 7, 0);
    assert_table(f, 2, "s1,1");
    assert_int_equal(pool_payer_stats(f->pool, domain, &stats), 0);
    assert_int_equal(stats.charged_pages[0], 1);
    assert_int_equal(stats.held, 1);
    fixture_destroy(f);
}

/* Two blocks of text 1, on the device and on disk. */
static pool_payer shared_text_in_both_tiers(struct fixture *f)
{
    pool_payer domain = add_domain(f);

    assert_int_equal(pool_domain_grant(f->pool, domain, 0, POOL_MAY_READ | POOL_MAY_FILL), 0);
    assert_int_equal(alloc(f, .id = 1, .domain = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 2);
    return domain;
}

static void a_lowered_limit_takes_nothing_from_the_device(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(8, 0, 8, 8);
    pool_payer domain = shared_text_in_both_tiers(f);

    assert_int_equal(pool_quota_set(f->pool, domain, &(struct pool_quota){0, 1, 1}), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(f->found.below, 0);
    fixture_destroy(f);
}

/* One page on disk, which the second block of text 1 has; the first is on the device. */
static void a_store_of_what_an_allocation_hits_does_not_evict_what_it_waits_for(void **state)
{
    (void)state;
    struct pool_config config;
    fixture_tiers_config(&config, 8, 0, 1, 8);
    config.store_when = POOL_STORE_SECOND_USE;
    struct fixture *f = fixture_create_with(&config);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    for (uint32_t round = 0; round < 2; round++) { /* the first block is stored, then the second */
        assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9), 0);
        assert_int_equal(copies_done(f, round), 1);
        assert_int_equal(release(f, 2, 0), 0);
    }
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 1)->from_slot, 2);
    assert_int_equal(pool_evict(f->pool, 1), 1); /* the second one */
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 9, .cookie = 7), POOL_PENDING);
    assert_int_equal(f->found.below, 4);
    assert_int_equal(copies_done(f, 2), 1); /* it comes up, and the first is not stored */
    assert_reply(f, 7, 0);
    fixture_destroy(f);
}

static void shared_blocks_that_could_never_come_up_are_no_hits(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(8, 0, 8, 8);
    pool_payer domain = shared_text_in_both_tiers(f);
    struct pool_prefetched prefetched;

    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(pool_quota_set(f->pool, domain, &(struct pool_quota){0, 1, 1}), 0);
    assert_int_equal(match(f, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(prefetch(f, &prefetched, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(prefetched.matched, 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(alloc(f, .id = 3, .shared = domain, .seed = 1, .count = 5, .cookie = 7),
                     POOL_PENDING); /* one page suffices */
    (void)copies_done(f, 2);
    assert_reply(f, 7, 0);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tier_test(a_hit_below_the_device_is_answered_when_it_is_there),
        tier_test(tokens_are_counted_by_the_tier_that_had_them),
        tier_test(everything_else_of_a_waiting_sequence_is_busy),
        tier_test(a_second_one_waits_for_the_same_copies),
        tier_test(a_refusal_changes_nothing),
        tier_test(what_is_read_is_the_hottest_of_its_tier),
        tier_test(a_block_that_cannot_be_read_is_a_miss),
        tier_test(a_failure_of_the_first_block_waits_for_the_others),
        cmocka_unit_test(the_next_tier_is_tried),
        tier_test(beyond_its_deadline_it_is_undone_and_the_copies_go_on),
        tier_test(what_comes_up_for_nobody_is_cached),
        tier_test(a_session_that_ends_waits_for_nothing),
        tier_test(a_clear_sends_waiting_ones_away),
        cmocka_unit_test(a_preempted_sequence_comes_back_from_below),
        tier_test(a_resume_loses_tokens_only_when_it_is_granted),
        tier_test(publishing_takes_over_the_copies_below),
        tier_test(what_is_on_its_way_is_no_block_to_merge_with),
        cmocka_unit_test(a_tail_written_in_place_loses_its_copies_below),
        cmocka_unit_test(a_shared_block_comes_up_in_its_domains_arena),
        cmocka_unit_test(shared_blocks_that_could_never_come_up_are_no_hits),
        cmocka_unit_test(a_lowered_limit_takes_nothing_from_the_device),
        cmocka_unit_test(a_store_of_what_an_allocation_hits_does_not_evict_what_it_waits_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
