/* tests/pool/test_session.c - what pool/session.c promises: sessions end at whatever point. */
#include "tests/pool/fixture.h"

#include <errno.h>

static int end(struct fixture *f, pool_session session, bool is_attached)
{
    int answer = pool_session_end(f->pool, session, is_attached, NULL);

    pool_check(f->pool);
    return answer;
}

static void an_ended_session_names_nothing_any_more(void **state)
{
    struct fixture *f = *state;
    uint32_t num_sequences = 0;

    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(pool_session_end(f->pool, 0, false, &num_sequences), 0);
    assert_int_equal(num_sequences, 2);
    assert_int_equal(publish(f, 1), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), POOL_NOT_FOUND);
    assert_int_equal(end(f, 0, false), POOL_NOT_FOUND);
    assert_int_equal(pool_session_set_manual_publish(f->pool, 0, true), POOL_NOT_FOUND);
    advance(f);
    assert_int_equal(stat_of(f, "sequences"), 0);
    assert_int_equal(stat_of(f, "sessions"), 0);
    assert_evictable(f, "1,2");
}

static void it_lets_go_in_slices(void **state)
{
    struct fixture *f = *state;

    for (uint32_t id = 1; id <= 4; id++)
        must_alloc(f, id, id, 8);
    assert_int_equal(end(f, 0, false), 0);
    assert_int_equal(stat_of(f, "held"), 8); /* nothing yet: the end itself is short */
    assert_true(pool_advance(f->pool, 4));
    pool_check(f->pool);
    assert_true(stat_of(f, "sequences") > 0);
    while (pool_advance(f->pool, 4))
        pool_check(f->pool);
    assert_evictable(f, "2,1,4,3,6,5,8,7");
}

static void slots_of_an_attached_session_are_quarantined(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);

    must_alloc(f, 1, 1, 6); /* one block is published, the tail is not */
    assert_int_equal(end(f, 0, true), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 1);
    assert_evictable(f, "1");
    assert_free(f, "");
    assert_int_equal(alloc(f, .id = 1, .session = other, .seed = 2, .count = 32), POOL_NO_BLOCKS);
    assert_int_equal(pool_session_detach(f->pool, 0), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(stat_of(f, "sessions"), 1);
    assert_int_equal(alloc(f, .id = 1, .session = other, .seed = 2, .count = 32), 0);
    assert_int_equal(pool_session_detach(f->pool, 0), POOL_NOT_FOUND);
}

static void what_the_session_let_go_of_itself_is_free_at_once(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(end(f, 0, true), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_free(f, "2");
}

static void an_end_drops_the_reply_to_an_append_under_copy(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_int_equal(end(f, 0, false), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 2); /* the source's tail and the copy */
    assert_int_equal(stat_of(f, "sequences"), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(count_replies(f, 5), 0);
    assert_int_equal(stat_of(f, "free"), 2);
    advance(f);
    assert_int_equal(stat_of(f, "sessions"), 0);
}

static void a_copy_that_ends_before_the_slices_begin_is_no_matter(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_int_equal(end(f, 0, true), 0);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    advance(f);
    assert_int_equal(count_replies(f, 5), 0);
    assert_int_equal(stat_of(f, "quarantined"), 2);
    assert_int_equal(pool_session_detach(f->pool, 0), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 0);
}

static void an_attached_sessions_copy_is_quarantined_until_detached(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_int_equal(end(f, 0, true), 0);
    advance(f);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 2);
    assert_int_equal(pool_session_detach(f->pool, 0), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 0);
}

static void an_end_waits_only_for_attends_that_run(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    must_alloc(f, 1, 1, 3);
    must_alloc(f, 2, 2, 3);
    assert_int_equal(step_one(f, 1, 1, 2, &step), 0);
    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(end(f, 0, false), 0);
    advance(f);
    assert_int_equal(stat_of(f, "sequences"), 1); /* sequence 2 is gone */
    assert_int_equal(pool_step_attend(f->pool, step, 1), POOL_INVALID);
    assert_int_equal(pool_step_attended(f->pool, step, 0, 0), 0);
    advance(f);
    assert_int_equal(stat_of(f, "sequences"), 0);
    assert_int_equal(stat_of(f, "sessions"), 0);
    assert_int_equal(stat_of(f, "steps_abandoned"), 1);
    assert_int_equal(stat_of(f, "free"), 3);
}

static void a_verb_that_waited_for_attends_gets_no_reply(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    must_alloc(f, 1, 1, 3);
    assert_int_equal(step_one(f, 1, 1, 2, &step), 0);
    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(pool_step_end(f->pool, step, false, 8), POOL_PENDING);
    assert_int_equal(release(f, 1, 9), POOL_PENDING);
    assert_int_equal(end(f, 0, false), 0);
    assert_int_equal(pool_step_attended(f->pool, step, 0, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_REPLY), 0);
    assert_int_equal(stat_of(f, "sequences"), 0);
}

static void slots_of_a_step_are_quarantined_with_the_rest(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(step_one(f, 1, 1, 8, &step), 0);
    assert_int_equal(end(f, 0, true), 0);
    advance(f);
    assert_int_equal(stat_of(f, "quarantined"), 2);
    assert_int_equal(pool_session_detach(f->pool, 0), 0);
    advance(f);
    assert_free(f, "2,3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(an_ended_session_names_nothing_any_more),
        pool_test(it_lets_go_in_slices),
        pool_test(slots_of_an_attached_session_are_quarantined),
        pool_test(what_the_session_let_go_of_itself_is_free_at_once),
        pool_test(an_end_drops_the_reply_to_an_append_under_copy),
        pool_test(a_copy_that_ends_before_the_slices_begin_is_no_matter),
        pool_test(an_attached_sessions_copy_is_quarantined_until_detached),
        pool_test(an_end_waits_only_for_attends_that_run),
        pool_test(a_verb_that_waited_for_attends_gets_no_reply),
        pool_test(slots_of_a_step_are_quarantined_with_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
