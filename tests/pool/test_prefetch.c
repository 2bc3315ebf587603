/* tests/pool/test_prefetch.c - what pool/prefetch.c promises: blocks come up ahead of need. */
#include "tests/pool/fixture.h"

#include <errno.h>

/* 4 pages on the device; the four blocks of text 1 are on disk only. */
static int setup(void **state)
{
    struct fixture *f = fixture_create_tiers(4, 0, 8, 4);

    must_alloc(f, 1, 1, 16);
    assert_int_equal(release(f, 1, 0), 0);
    for (uint32_t done = 0; done < 4; done += 2) { /* at a time: half of the tier */
        advance(f);
        assert_int_equal(copies_done(f, done), 2);
    }
    assert_int_equal(pool_evict(f->pool, 4), 4);
    *state = f;
    return 0;
}
#define tier_test(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static void what_was_fetched_ahead_is_hit_at_once(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 17), 0);
    assert_int_equal(got.present, 0);
    assert_int_equal(got.coming, 16);
    assert_int_equal(got.matched, 16);
    assert_int_equal(stat_of(f, "sequences"), 0);
    assert_int_equal(copies_done(f, 4), 4);
    assert_int_equal(stat_of(f, "evictable"), 4);
    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 13), 0);
    assert_int_equal(got.present, 12);
    assert_int_equal(got.coming, 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 8);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 16), 0);
    assert_int_equal(f->found.matched, 12);
    assert_int_equal(f->found.below, 0);
}

static void a_prefix_outlives_its_suffix(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 17), 0);
    assert_int_equal(copies_done(f, 4), 4); /* begun from the last block to the first */
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 4)->form[0], 1012);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 7)->form[0], 1000);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_OFF), 0);
    assert_int_equal(pool_evict(f->pool, 3), 3);
    assert_int_equal(match(f, .seed = 1, .count = 17), 0);
    assert_int_equal(f->found.matched, 4);
}

static void as_much_of_the_prefix_as_there_is_room_for(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    must_alloc(f, 2, 2, 8);
    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 17), 0);
    assert_int_equal(got.present, 0);
    assert_int_equal(got.coming, 8);
    assert_int_equal(got.matched, 16);
    assert_int_equal(copies_done(f, 4), 2);
    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 17), 0); /* not at its own cost */
    assert_int_equal(got.present, 8);
    assert_int_equal(got.coming, 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 6);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 4);
}

static void nothing_present_goes_for_the_rest(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    must_alloc(f, 2, 2, 4); /* other cache, hotter than what comes now */
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 5), 0);
    assert_int_equal(copies_done(f, 4), 1);
    must_alloc(f, 2, 2, 6); /* held again: two pages are left */
    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 17), 0);
    assert_int_equal(got.present, 4);
    assert_int_equal(got.coming, 4);
    assert_int_equal(copies_done(f, 5), 1);
    assert_int_equal(match(f, .seed = 1, .count = 17), 0);
    assert_int_equal(f->found.below, 8);
}

static void an_allocation_waits_for_what_is_fetched(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 9), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9, .cookie = 7), POOL_PENDING);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 6);
    (void)copies_done(f, 4);
    assert_reply(f, 7, 0);
}

static void one_that_fails_is_a_miss(void **state)
{
    struct fixture *f = *state;
    struct pool_prefetched got;

    assert_int_equal(prefetch(f, &got, .seed = 1, .count = 9), 0);
    assert_int_equal(copy_done(f, 4, -EIO), 0); /* the second block */
    assert_int_equal(copy_done(f, 5, 0), 0);
    assert_int_equal(match(f, .seed = 1, .count = 17), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(stat_of(f, "reserved"), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
}

static void a_preempted_sequence_is_fetched_by_name(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 2};
    uint32_t ids[16];
    struct pool_key keys[4];
    struct pool_prefetched got;
    const struct pool_tokens tokens = {ids, 16, keys, NULL};

    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 16, .cookie = 7), POOL_PENDING);
    assert_int_equal(pool_prefetch_sequence(f->pool, name, &tokens, &got), POOL_BUSY);
    (void)copies_done(f, 4);
    assert_int_equal(pool_sequence_tokens(f->pool, name, 0, 16, ids), 0);
    assert_int_equal(pool_sequence_keys(f->pool, name, 0, 4, keys), 0);
    assert_int_equal(pool_prefetch_sequence(f->pool, name, &tokens, &got), POOL_INVALID);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(pool_evict(f->pool, 9), 3); /* it never published its last block */
    assert_int_equal(pool_prefetch_sequence(f->pool, name, &tokens, &got), 0);
    assert_int_equal(got.coming, 12);
    assert_int_equal(copies_done(f, 7), 3);
    assert_int_equal(resume(f, 2), 0);
    assert_int_equal(pool_prefetch_sequence(f->pool, (struct pool_name){0, 9}, &tokens, &got),
                     POOL_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tier_test(what_was_fetched_ahead_is_hit_at_once),
        tier_test(a_prefix_outlives_its_suffix),
        tier_test(as_much_of_the_prefix_as_there_is_room_for),
        tier_test(nothing_present_goes_for_the_rest),
        tier_test(an_allocation_waits_for_what_is_fetched),
        tier_test(one_that_fails_is_a_miss),
        tier_test(a_preempted_sequence_is_fetched_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
