/* tests/pool/test_clear.c - what pool/clear.c promises: a new epoch, at once, whatever is in
 * flight. */
#include "tests/pool/fixture.h"

static int clear_all(struct fixture *f)
{
    int answer = pool_clear(f->pool, POOL_NONE, POOL_NONE);

    pool_check(f->pool);
    return answer;
}

static uint64_t matched(struct fixture *f, const struct request *request)
{
    assert_int_equal(request_match(f, request), 0);
    return f->found.matched;
}

static void cleared_blocks_are_found_no_more_at_once(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 2, 8);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(clear_all(f), 0);
    assert_int_equal(matched(f, &(struct request){.seed = 1, .count = 9}), 0);
    assert_int_equal(matched(f, &(struct request){.seed = 2, .count = 9}), 0);
}

static void held_blocks_stay_readable_until_they_are_let_go_of(void **state)
{
    struct fixture *f = *state;
    struct pool_place place;
    uint32_t count;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(pool_table(f->pool, (struct pool_name){0, 1}, 0, &place, 1, &count), 0);
    assert_int_equal(clear_all(f), 0);
    advance(f);
    assert_table(f, 1, "1,2");
    assert_int_equal(pool_place_verify(f->pool, arena_of(f, 0, 0, 0), place.slot, place.generation),
                     0);
    assert_int_equal(stat_of(f, "held"), 0);
    assert_int_equal(stat_of(f, "reserved"), 2);
    assert_int_equal(release(f, 1, 0), 0);
    assert_free(f, "2,1"); /* free at once, as if never published */
}

static void a_sequence_from_before_publishes_nothing_any_more(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8), 0);
    assert_int_equal(clear_all(f), 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 0);
    assert_int_equal(matched(f, &(struct request){.seed = 1, .count = 13}), 0);
}

static void a_resumed_sequence_is_a_new_one(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(clear_all(f), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_int_equal(resume(f, 1), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(matched(f, &(struct request){.seed = 1, .count = 9}), 8);
}

static void only_the_domain_or_the_model_is_cleared(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    pool_model model = add_model(f, 0, 1, 1);

    must_alloc(f, 1, 1, 4);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 1, .count = 4), 0);
    assert_int_equal(alloc(f, .id = 3, .model = model, .seed = 1, .count = 4), 0);
    assert_int_equal(publish(f, 2) | publish(f, 3), 0);
    const struct request own = {.seed = 1, .count = 5},
                         others = {.tenant = other, .seed = 1, .count = 5},
                         models = {.model = model, .seed = 1, .count = 5};

    assert_int_equal(pool_clear(f->pool, other, POOL_NONE), 0);
    assert_int_equal(matched(f, &own), 4);
    assert_int_equal(matched(f, &others), 0);
    assert_int_equal(matched(f, &models), 4);
    assert_int_equal(pool_clear(f->pool, POOL_NONE, model), 0);
    assert_int_equal(matched(f, &own), 4);
    assert_int_equal(matched(f, &models), 0);
    assert_int_equal(pool_clear(f->pool, 0, 0), 0);
    assert_int_equal(matched(f, &own), 0);
    assert_int_equal(pool_clear(f->pool, 7, POOL_NONE), POOL_NOT_FOUND);
    assert_int_equal(pool_clear(f->pool, 0, 7), POOL_NOT_FOUND);
}

static void slots_are_swept_in_slices(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(clear_all(f), 0);
    assert_int_equal(stat_of(f, "sweeps_pending"), 8);
    assert_true(pool_advance(f->pool, 3));
    assert_int_equal(stat_of(f, "sweeps_pending"), 5);
    assert_true(pool_advance(f->pool, 5));
    assert_false(pool_advance(f->pool, 5));
    assert_free(f, "8,7,6,5,4,3,2,1");
    assert_int_equal(stat_of(f, "evictions"), 8);
}

static void a_refused_allocation_sweeps_first(void **state)
{
    struct fixture *f = *state;
    pool_payer other;

    assert_int_equal(pool_quota_set(f->pool, 0, &(struct pool_quota){8, POOL_UNLIMITED, 1}), 0);
    other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(clear_all(f), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .count = 4), 0);
}

static void what_an_open_step_completes_is_not_published(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    must_alloc(f, 1, 1, 3);
    assert_int_equal(step_one(f, 1, 1, 5, &step), 0);
    attend(f, step, 0);
    assert_int_equal(clear_all(f), 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 8);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 0);
}

static void a_cleared_block_that_a_copy_reads_is_swept_after_it(void **state)
{
    struct fixture *f = *state;
    pool_session session = add_session(f);

    (void)session;
    must_alloc(f, 1, 1, 8);
    assert_int_equal(truncate_to(f, 1, 6, 0), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_int_equal(pool_session_end(f->pool, 0, false, NULL), 0);
    advance(f);
    assert_evictable(f, "2,1");
    assert_int_equal(clear_all(f), 0);
    advance(f);
    assert_evictable(f, "2");
    assert_int_equal(copy_done(f, 0, 0), 0);
    advance(f);
    assert_evictable(f, "");
    assert_int_equal(stat_of(f, "idle"), 3);
}

static void a_key_is_removed_before_it_is_stored_anew(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(clear_all(f), 0);
    must_alloc(f, 3, 1, 4); /* one that is held, one that is cached */
    must_alloc(f, 4, 2, 4);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 4);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(cleared_blocks_are_found_no_more_at_once),
        pool_test(held_blocks_stay_readable_until_they_are_let_go_of),
        pool_test(a_sequence_from_before_publishes_nothing_any_more),
        pool_test(a_resumed_sequence_is_a_new_one),
        pool_test(only_the_domain_or_the_model_is_cleared),
        pool_test(slots_are_swept_in_slices),
        pool_test(a_refused_allocation_sweeps_first),
        pool_test(what_an_open_step_completes_is_not_published),
        pool_test(a_cleared_block_that_a_copy_reads_is_swept_after_it),
        pool_test(a_key_is_removed_before_it_is_stored_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
