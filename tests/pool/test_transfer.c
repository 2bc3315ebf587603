/* tests/pool/test_transfer.c - what pool/transfer.c promises: a source that stays, a slot reserved.
 */
#include "tests/pool/fixture.h"

#include <errno.h>

/*
 * Sequence 1 has blocks 1 and 2, both published, and 6 of their 8 tokens; it appends, so that block
 * 2 is being copied into block 3.
 */
static void begin_copy(struct fixture *f)
{
    must_alloc(f, 1, 1, 8);
    assert_int_equal(truncate_to(f, 1, 6, 0), 0);
    assert_int_equal(append(f, 1, 2, 1, 5), POOL_PENDING);
}

static void a_copy_names_both_its_places(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    const struct pool_effect *copy = nth_effect(f, POOL_EFFECT_COPY, 0);
    assert_int_equal(copy->from_arena, arena_of(f, 0, 0, 0));
    assert_int_equal(copy->from_slot, 2);
    assert_int_equal(copy->arena, arena_of(f, 0, 0, 0));
    assert_int_equal(copy->slot, 3);
    assert_int_equal(stat_of(f, "transfers"), 1);
    assert_int_equal(stat_of(f, "copies"), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "transfers"), 0);
    assert_int_equal(stat_of(f, "copies"), 1);
}

static void a_released_source_of_a_copy_is_skipped_until_the_copy_ends(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);

    begin_copy(f);
    assert_int_equal(pool_session_end(f->pool, 0, false, NULL), 0);
    advance(f);
    assert_evictable(f, "2,1"); /* where it is in the order */
    assert_int_equal(stat_of(f, "quarantined"), 1);
    assert_int_equal(pool_evict(f->pool, 9), 1); /* block 1 */
    assert_evictable(f, "2");
    assert_int_equal(alloc(f, .id = 1, .session = other, .seed = 3, .count = 24), 0);
    assert_int_equal(alloc(f, .id = 2, .session = other, .seed = 4, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(alloc(f, .id = 2, .session = other, .seed = 4, .count = 8), 0);
    assert_int_equal(stat_of(f, "evictions"), 2);
}

static void a_source_can_be_hit_meanwhile(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
    assert_table(f, 2, "1,2,4");
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    assert_table(f, 1, "1,2");
    assert_reply(f, 5, POOL_FAILED);
}

static void a_granule_with_a_source_does_not_move(void **state)
{
    struct fixture *f = *state;
    pool_session session = add_session(f);
    pool_model other = add_model(f, 0, 1, 1);

    begin_copy(f);
    assert_int_equal(pool_session_end(f->pool, 0, false, NULL), 0);
    advance(f);
    assert_int_equal(alloc(f, .id = 1, .session = session, .model = other, .seed = 3, .count = 28),
                     POOL_NO_BLOCKS); /* 5 uncommitted and block 1's: not those of the copy */
    assert_int_equal(alloc(f, .id = 1, .session = session, .model = other, .seed = 3, .count = 24),
                     0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .session = session, .model = other, .seed = 4, .count = 8),
                     0);
}

static void a_completion_of_nothing_is_counted(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pool_transfer_done(f->pool, 0, 0), POOL_NOT_FOUND);
    begin_copy(f);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(copy_done(f, 0, 0), POOL_NOT_FOUND);
    assert_int_equal(copy_done(f, 0, -EIO), POOL_NOT_FOUND);
    assert_int_equal(pool_transfer_done(f->pool, UINT32_MAX, 0), POOL_NOT_FOUND);
    assert_int_equal(stat_of(f, "stale_completions"), 4);
    assert_int_equal(stat_of(f, "copies"), 1);
    assert_reply(f, 5, 0);
}

static void only_a_completed_copy_can_be_published(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 7);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING); /* it fills block 3, the copy */
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(publish(f, 1), POOL_BUSY);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_late_completion_is_not_another_copys(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    must_alloc(f, 3, 3, 6);
    assert_int_equal(fork_to(f, 3, 4), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(append(f, 3, 3, 1, 6), POOL_PENDING);
    assert_int_equal(copy_done(f, 0, 0), POOL_NOT_FOUND); /* the first one, once more */
    assert_int_equal(count_replies(f, 6), 0);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_reply(f, 6, 0);
}

static void whoever_waits_for_a_copy_too_long_is_told(void **state)
{
    struct pool_config config;

    (void)state;
    fixture_config(&config, 8);
    config.transfer_timeout_ms = 50;
    struct fixture *f = fixture_create_with(&config);
    pool_tick(f->pool, 1000);
    begin_copy(f);
    pool_tick(f->pool, 1049);
    assert_int_equal(count_replies(f, 5), 0);
    pool_tick(f->pool, 1050);
    pool_check(f->pool);
    assert_reply(f, 5, POOL_TIMEOUT);
    assert_table(f, 1, "1,2");
    assert_int_equal(length_of(f, 1), 6);
    assert_int_equal(stat_of(f, "quarantined"), 1); /* the device may still write there */
    assert_int_equal(append(f, 1, 2, 1, 6), POOL_PENDING);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_reply(f, 6, 0);
    assert_table(f, 1, "1,4");
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_reply(f, 5, POOL_TIMEOUT);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_copy_names_both_its_places),
        pool_test(a_released_source_of_a_copy_is_skipped_until_the_copy_ends),
        pool_test(a_source_can_be_hit_meanwhile),
        pool_test(a_granule_with_a_source_does_not_move),
        pool_test(a_completion_of_nothing_is_counted),
        pool_test(only_a_completed_copy_can_be_published),
        pool_test(a_late_completion_is_not_another_copys),
        cmocka_unit_test(whoever_waits_for_a_copy_too_long_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
