/* tests/pool/test_arriving.c - what pool/arriving.c promises: one fill of a prefix, not many. */
#include "tests/pool/fixture.h"

static const struct request filler = {.id = 1, .seed = 1, .count = 12, .is_unfilled = true};
static const struct request asker = {.id = 2, .seed = 1, .count = 13};

/* Sequence 1 fills three blocks; a request with cookie 7 waits for them until 100 ms. */
static void begin_waiting(struct fixture *f)
{
    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(request_wait(f, &asker, 100, 7), POOL_PENDING);
}

static void what_another_sequence_fills_is_arriving(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(request_match(f, &asker), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(f->found.arriving, 12);
    assert_int_equal(match(f, .seed = 1, .count = 12), 0);
    assert_int_equal(f->found.arriving, 8); /* within the bound of a match */
    assert_int_equal(match(f, .seed = 2, .count = 12), 0);
    assert_int_equal(f->found.arriving, 0);
}

static void a_waiter_is_answered_when_all_is_published(void **state)
{
    struct fixture *f = *state;

    begin_waiting(f);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_reply(f, 7, 0);
    pool_tick(f->pool, 1000);
    assert_int_equal(release(f, 1, 0), 0);
    assert_reply(f, 7, 0);
    assert_int_equal(stat_of(f, "arriving_hits"), 1);
}

static void a_step_that_fills_a_part_does_not_end_the_wait(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    begin_waiting(f);
    assert_int_equal(step_one(f, 1, 1, 8, &step), 0);
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(step_one(f, 1, 1, 4, &step), 0);
    attend(f, step, 0);
    assert_int_equal(count_replies(f, 7), 0);
    attend(f, step, 1);
    assert_reply(f, 7, 0);
}

static void a_filler_that_goes_without_wakes_with_a_miss(void **state)
{
    struct fixture *f = *state;

    begin_waiting(f);
    assert_int_equal(release(f, 1, 0), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(request_wait(f, &asker, 100, 8), POOL_PENDING);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_reply(f, 8, POOL_MISS);
    assert_int_equal(stat_of(f, "arriving_misses"), 2);
    assert_int_equal(stat_of(f, "waiting"), 0);
}

static void a_filler_truncated_below_it_wakes_with_a_miss(void **state)
{
    struct fixture *f = *state;

    begin_waiting(f);
    assert_int_equal(request_wait(f, &(struct request){.seed = 1, .count = 5}, 100, 8),
                     POOL_PENDING); /* for the first block only */
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(truncate_to(f, 1, 6, 0), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(count_replies(f, 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_reply(f, 8, 0);
    assert_int_equal(request_match(f, &asker), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(f->found.arriving, 0);
}

static void a_dead_filler_wakes_with_a_miss_at_once(void **state)
{
    struct fixture *f = *state;
    pool_session session = add_session(f);
    struct request other = filler;

    other.session = session;
    assert_int_equal(request_alloc(f, &other), 0);
    assert_int_equal(request_wait(f, &asker, 100, 7), POOL_PENDING);
    assert_int_equal(pool_session_end(f->pool, session, false, NULL), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(request_match(f, &asker), 0);
    assert_int_equal(f->found.arriving, 0);
    advance(f);
    assert_reply(f, 7, POOL_MISS);
}

static void a_clear_wakes_with_a_miss(void **state)
{
    struct fixture *f = *state;

    begin_waiting(f);
    assert_int_equal(pool_clear(f->pool, POOL_NONE, POOL_NONE), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(request_match(f, &asker), 0);
    assert_int_equal(f->found.arriving, 0);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_reply(f, 7, POOL_MISS);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    struct fixture *f = *state;

    begin_waiting(f);
    pool_tick(f->pool, 99);
    assert_int_equal(count_replies(f, 7), 0);
    pool_tick(f->pool, 100);
    assert_reply(f, 7, POOL_TIMEOUT);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_reply(f, 7, POOL_TIMEOUT);
    assert_int_equal(stat_of(f, "arriving_timeouts"), 1);
}

static void a_wait_can_be_cancelled_by_its_session_only(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);

    begin_waiting(f);
    assert_int_equal(pool_cancel(f->pool, other, 7), POOL_NOT_FOUND);
    assert_int_equal(pool_cancel(f->pool, 0, 8), POOL_NOT_FOUND);
    assert_int_equal(pool_cancel(f->pool, 0, 7), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(pool_cancel(f->pool, 0, 7), POOL_NOT_FOUND);
    assert_reply(f, 7, POOL_MISS);
}

static void requests_of_an_ended_session_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct request other = asker;

    other.session = add_session(f);
    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(request_wait(f, &other, 100, 7), POOL_PENDING);
    assert_int_equal(pool_session_end(f->pool, other.session, false, NULL), 0);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(publish(f, 1), 0);
    pool_tick(f->pool, 1000);
    assert_int_equal(count_replies(f, 7), 0);
    assert_int_equal(stat_of(f, "waiting"), 0);
}

static void where_nothing_is_arriving_there_is_no_wait(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(request_wait(f, &asker, 100, 7), POOL_MISS);
    must_alloc(f, 1, 1, 12);
    assert_int_equal(request_wait(f, &asker, 100, 7), POOL_MISS);
    assert_int_equal(count_replies(f, 7), 0);
}

static void a_promise_ends_with_its_filler_whoever_holds_the_block(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(fork_to(f, 1, 3), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(request_match(f, &asker), 0);
    assert_int_equal(f->found.arriving, 0);
    assert_int_equal(request_wait(f, &asker, 100, 7), POOL_MISS);
}

static void two_fillers_of_one_prefix_are_merged(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(request_alloc(f, &filler), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 12, .is_unfilled = true), 0);
    assert_int_equal(f->found.arriving, 8);
    assert_table(f, 3, "4,5,6");
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(fill(f, 3), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(publish(f, 3), 0);
    assert_table(f, 3, "1,2,3");
    assert_free(f, "6,5,4");
    assert_int_equal(stat_of(f, "merged"), 3);
}

static void a_filler_that_only_the_shared_domains_clear_made_stale_is_none(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);
    const struct request layered = {.shared = domain, .seed = 1, .count = 9};

    assert_int_equal(
        alloc(f, .id = 1, .shared = domain, .seed = 1, .count = 8, .is_unfilled = true), 0);
    assert_int_equal(request_wait(f, &layered, 100, 7), POOL_PENDING);
    assert_int_equal(pool_clear(f->pool, domain, POOL_NONE), 0);
    assert_reply(f, 7, POOL_MISS);
    assert_int_equal(request_match(f, &layered), 0);
    assert_int_equal(f->found.arriving, 0);
    assert_int_equal(request_wait(f, &layered, 100, 8), POOL_MISS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(what_another_sequence_fills_is_arriving),
        pool_test(a_waiter_is_answered_when_all_is_published),
        pool_test(a_step_that_fills_a_part_does_not_end_the_wait),
        pool_test(a_filler_that_goes_without_wakes_with_a_miss),
        pool_test(a_filler_truncated_below_it_wakes_with_a_miss),
        pool_test(a_dead_filler_wakes_with_a_miss_at_once),
        pool_test(a_clear_wakes_with_a_miss),
        pool_test(a_wait_ends_at_its_deadline),
        pool_test(a_wait_can_be_cancelled_by_its_session_only),
        pool_test(requests_of_an_ended_session_are_dropped),
        pool_test(where_nothing_is_arriving_there_is_no_wait),
        pool_test(a_promise_ends_with_its_filler_whoever_holds_the_block),
        pool_test(two_fillers_of_one_prefix_are_merged),
        pool_test(a_filler_that_only_the_shared_domains_clear_made_stale_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
