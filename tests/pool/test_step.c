/* tests/pool/test_step.c - what pool/step.c promises: tokens become complete layer by layer. */
#include "tests/pool/fixture.h"

#include <errno.h>

/* Sequence 1, 6 tokens of text 1, in a step that brings 4 more. */
static pool_step begin(struct fixture *f)
{
    pool_step step = POOL_NONE;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(step_one(f, 1, 1, 4, &step), 0);
    return step;
}

static int attended(struct fixture *f, pool_step step, uint32_t layer, int error)
{
    int answer = pool_step_attended(f->pool, step, layer, error);

    pool_check(f->pool);
    return answer;
}

static void a_token_is_complete_when_every_layer_has_it(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    assert_table(f, 1, "1,2,3");
    attend(f, step, 1); /* in any order */
    assert_int_equal(complete_of(f, 1), 6);
    attend(f, step, 0);
    assert_int_equal(complete_of(f, 1), 10);
    assert_text(f, 1, 1, 10);
    assert_int_equal(pool_step_attend(f->pool, step, 0), POOL_NOT_FOUND); /* it ended by itself */
}

static void a_layer_may_be_repeated(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    attend(f, step, 0);
    assert_int_equal(complete_of(f, 1), 6);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 10);
}

static void a_failed_layer_is_not_done(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(pool_step_attend(f->pool, step, 1), 0);
    assert_int_equal(attended(f, step, 1, -EIO), 0);
    assert_int_equal(complete_of(f, 1), 6);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 10);
}

static void full_blocks_of_a_committed_step_are_published(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    attend(f, step, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_session_that_publishes_itself_is_left_alone(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pool_session_set_manual_publish(f->pool, 0, true), 0);
    pool_step step = begin(f);
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
}

static void an_abandoned_step_takes_its_tokens_away(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(pool_step_end(f->pool, step, true, 0), POOL_INVALID); /* a layer is missing */
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_text(f, 1, 1, 6);
    assert_table(f, 1, "1,2");
    assert_free(f, "3");
    assert_int_equal(stat_of(f, "steps_abandoned"), 1);
    assert_int_equal(pool_step_end(f->pool, step, false, 0), POOL_NOT_FOUND);
}

static void the_end_waits_for_attends_that_run(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(pool_step_attend(f->pool, step, 1), 0);
    assert_int_equal(pool_step_end(f->pool, step, false, 9), POOL_PENDING);
    assert_int_equal(pool_step_end(f->pool, step, false, 9), POOL_INVALID);
    assert_int_equal(pool_step_attend(f->pool, step, 1), POOL_INVALID);
    assert_int_equal(attended(f, step, 1, 0), 0);
    assert_int_equal(count_replies(f, 9), 0);
    assert_table(f, 1, "1,2,3");
    assert_int_equal(attended(f, step, 0, 0), 0);
    assert_reply(f, 9, 0);
    assert_table(f, 1, "1,2");
    assert_int_equal(attended(f, step, 0, 0), POOL_NOT_FOUND);
    assert_int_equal(stat_of(f, "stale_completions"), 1);
}

static void verbs_that_take_blocks_are_invalid_while_it_is_open(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f), other;

    assert_int_equal(truncate_to(f, 1, 4, 0), POOL_INVALID);
    assert_int_equal(release(f, 1, 0), POOL_INVALID);
    assert_int_equal(preempt(f, 1, 0), POOL_INVALID);
    assert_int_equal(append(f, 1, 1, 1, 0), POOL_INVALID);
    assert_int_equal(fill(f, 1), POOL_INVALID);
    assert_int_equal(step_one(f, 1, 1, 1, &other), POOL_INVALID); /* one open step at most */
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_int_equal(truncate_to(f, 1, 4, 0), 0);
}

static void they_wait_for_attends_of_an_ended_step(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(pool_step_end(f->pool, step, false, 9), POOL_PENDING);
    assert_int_equal(truncate_to(f, 1, 4, 10), POOL_PENDING);
    assert_int_equal(release(f, 1, 11), POOL_BUSY); /* verbs of one sequence keep their order */
    assert_int_equal(count_replies(f, 10), 0);
    assert_int_equal(attended(f, step, 0, 0), 0);
    assert_reply(f, 9, 0);
    assert_reply(f, 10, 0);
    assert_text(f, 1, 1, 4);
    assert_table(f, 1, "1");
}

static void a_release_and_a_preempt_wait_too(void **state)
{
    struct fixture *f = *state;
    const struct row rows[] = {{1, 1}, {2, 1}};
    pool_step step;

    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(step_begin(f, rows, 2, 1, 0, &step), 0);
    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(pool_step_end(f->pool, step, false, 9), POOL_PENDING);
    assert_int_equal(release(f, 1, 10), POOL_PENDING);
    assert_int_equal(preempt(f, 2, 11), POOL_PENDING);
    assert_int_equal(attended(f, step, 0, 0), 0);
    assert_reply(f, 10, 0);
    assert_reply(f, 11, 0);
    assert_int_equal(release(f, 1, 0), POOL_NOT_FOUND);
    assert_table(f, 2, "");
    assert_evictable(f, "1,2");
}

static void a_fork_of_a_running_sequence_has_complete_tokens_only(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_text(f, 2, 1, 6);
    assert_table(f, 2, "1,2");
    attend(f, step, 1);
    assert_text(f, 1, 1, 10);
    assert_text(f, 2, 1, 6);
    assert_int_equal(append(f, 2, 2, 1, 5), POOL_PENDING); /* block 2 is the parent's too */
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_table(f, 1, "1,2,3");
    assert_table(f, 2, "1,4");
}

static void a_fork_survives_the_parents_abandoned_step(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_text(f, 1, 1, 6);
    assert_text(f, 2, 1, 6);
    assert_table(f, 2, "1,2");
    assert_int_equal(append(f, 1, 2, 1, 5), POOL_PENDING);
    assert_int_equal(copy_done(f, 0, 0), 0);
}

static void publish_sees_complete_tokens_only(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(pool_session_set_manual_publish(f->pool, 0, true), 0);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 4), 0);
    assert_int_equal(step_one(f, 1, 1, 4, &step), 0);
    attend(f, step, 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
}

static void unfilled_tokens_are_filled_by_steps(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 10, .is_unfilled = true), 0);
    assert_int_equal(step_one(f, 1, 2, 4, &step), POOL_INVALID); /* other tokens than allocated */
    assert_int_equal(step_one(f, 1, 1, 5, &step), 0);
    assert_table(f, 1, "1,2,3");
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 5);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(step_one(f, 1, 1, 5, &step), 0);
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 10);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
    assert_int_equal(append(f, 1, 1, 1, 0), 0); /* it is filled */
}

static void an_abandoned_fill_can_be_tried_again(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 6, .is_unfilled = true), 0);
    assert_int_equal(step_one(f, 1, 1, 9, &step), 0); /* and three more */
    assert_table(f, 1, "1,2,3");
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_text(f, 1, 1, 6);
    assert_int_equal(complete_of(f, 1), 0);
    assert_int_equal(step_one(f, 1, 1, 6, &step), 0);
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 6);
}

static void a_step_is_all_or_nothing(void **state)
{
    struct fixture *f = *state;
    const struct row rows[] = {{1, 4}, {2, 8}}, unknown[] = {{1, 4}, {9, 1}};
    const struct row twice[] = {{1, 1}, {1, 1}}, nothing[] = {{1, 4}, {2, 0}};
    pool_step step = POOL_NONE;

    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    must_alloc(f, 3, 3, 16);
    assert_int_equal(step_begin(f, rows, 2, 1, 0, &step), POOL_NO_BLOCKS); /* 3 of 2 pages */
    assert_int_equal(step_begin(f, unknown, 2, 1, 0, &step), POOL_NOT_FOUND);
    assert_int_equal(step_begin(f, twice, 2, 1, 0, &step), POOL_INVALID);
    assert_int_equal(step_begin(f, nothing, 2, 1, 0, &step), POOL_INVALID);
    assert_int_equal(step_begin(f, rows, 0, 1, 0, &step), POOL_INVALID);
    assert_int_equal(step, POOL_NONE);
    assert_text(f, 1, 1, 4);
    assert_text(f, 2, 2, 4);
    assert_int_equal(stat_of(f, "uncommitted"), 2);
    assert_int_equal(stat_of(f, "steps"), 0);
    assert_int_equal(step_begin(f, rows, 1, 1, 0, &step), 0); /* none of them is left in a step */
}

static void a_step_is_of_one_model(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 0, 1, 1);
    const struct row rows[] = {{1, 1}, {2, 1}};
    pool_step step;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(alloc(f, .id = 2, .model = model, .seed = 2, .count = 4), 0);
    assert_int_equal(step_begin(f, rows, 2, 1, 0, &step), POOL_INVALID);
    assert_int_equal(release(f, 1, 0) | release(f, 2, 0), 0);
}

/* Sequences 1 and 2 share a tail; 3 has its own; a step of 1, 2 and 3 copies for 1 and 2. */
static int begin_copying(struct fixture *f, pool_step *out_step)
{
    const struct row rows[] = {{1, 1}, {2, 1}, {3, 1}};

    must_alloc(f, 1, 1, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    must_alloc(f, 3, 3, 4);
    return step_begin(f, rows, 3, 1, 9, out_step);
}

static void attends_wait_for_copies_of_shared_tails(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(begin_copying(f, &step), POOL_PENDING);
    uint32_t num_copies = count_effects(f, POOL_EFFECT_COPY);
    assert_int_equal(pool_step_attend(f->pool, step, 0), POOL_INVALID);
    assert_int_equal(fork_to(f, 1, 4), POOL_BUSY);
    for (uint32_t i = 0; i < num_copies; i++) {
        assert_int_equal(count_replies(f, 9), 0);
        assert_int_equal(copy_done(f, i, 0), 0);
    }
    assert_reply(f, 9, 0);
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 7);
    assert_int_equal(complete_of(f, 2), 7);
    assert_int_equal(complete_of(f, 3), 5);
}

static void a_failed_copy_undoes_the_whole_step(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(begin_copying(f, &step), POOL_PENDING);
    uint32_t num_copies = count_effects(f, POOL_EFFECT_COPY);
    for (uint32_t i = 0; i < num_copies; i++)
        assert_int_equal(copy_done(f, i, i == 0 ? -EIO : 0), 0);
    assert_reply(f, 9, POOL_FAILED);
    assert_table(f, 1, "1,2");
    assert_table(f, 2, "1,2");
    assert_table(f, 3, "3");
    assert_text(f, 1, 1, 6);
    assert_text(f, 2, 1, 6);
    assert_text(f, 3, 3, 4);
    assert_int_equal(stat_of(f, "transfers"), 0);
    assert_int_equal(release(f, 1, 0), 0);
}

static void a_step_abandoned_under_copy_leaves_the_tails(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(begin_copying(f, &step), POOL_PENDING);
    uint32_t num_copies = count_effects(f, POOL_EFFECT_COPY);
    assert_int_equal(pool_step_end(f->pool, step, false, 10), 0);
    assert_reply(f, 9, POOL_FAILED);
    assert_table(f, 1, "1,2");
    assert_table(f, 2, "1,2");
    assert_int_equal(stat_of(f, "quarantined"), num_copies); /* the device still writes there */
    for (uint32_t i = 0; i < num_copies; i++)
        assert_int_equal(copy_done(f, i, 0), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_reply(f, 9, POOL_FAILED);
    assert_int_equal(count_replies(f, 10), 0);
}

static void steps_are_not_for_mapped_or_preempted_sequences(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 4, .is_mapped = true), 0);
    assert_int_equal(step_one(f, 1, 1, 1, &step), POOL_INVALID);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(step_one(f, 2, 2, 1, &step), POOL_INVALID);
    assert_int_equal(pool_step_begin(f->pool, 7, NULL, 1, 0, &step), POOL_NOT_FOUND);
}

static void a_layer_that_the_model_lacks_is_invalid(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    assert_int_equal(pool_step_attend(f->pool, step, 2), POOL_INVALID);
    assert_int_equal(pool_step_attended(f->pool, step, 0, 0), POOL_NOT_FOUND);
    assert_int_equal(stat_of(f, "stale_completions"), 1);
}

static void a_repeat_that_fails_leaves_its_layer_to_be_done(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(pool_step_attend(f->pool, step, 0), 0);
    assert_int_equal(attended(f, step, 0, -EIO), 0);
    attend(f, step, 1);
    assert_int_equal(complete_of(f, 1), 6);
    assert_int_equal(pool_step_end(f->pool, step, true, 0), POOL_INVALID);
    attend(f, step, 0);
    assert_int_equal(complete_of(f, 1), 10);
}

static void a_commit_may_be_queued_behind_the_last_attend(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(pool_step_attend(f->pool, step, 1), 0);
    assert_int_equal(pool_step_end(f->pool, step, true, 9), POOL_PENDING);
    assert_int_equal(attended(f, step, 1, 0), 0);
    assert_reply(f, 9, 0);
    assert_int_equal(complete_of(f, 1), 10);
}

static void a_queued_commit_fails_with_its_last_attend(void **state)
{
    struct fixture *f = *state;
    pool_step step = begin(f);

    attend(f, step, 0);
    assert_int_equal(pool_step_attend(f->pool, step, 1), 0);
    assert_int_equal(pool_step_end(f->pool, step, true, 9), POOL_PENDING);
    assert_int_equal(attended(f, step, 1, -EIO), 0);
    assert_reply(f, 9, POOL_FAILED);
    assert_text(f, 1, 1, 6);
    assert_int_equal(stat_of(f, "steps_abandoned"), 1);
}

static void a_step_is_never_mistaken_for_another(void **state)
{
    struct fixture *f = *state;
    pool_step first = begin(f), second;

    attend(f, first, 0);
    attend(f, first, 1);
    assert_int_equal(step_one(f, 1, 1, 1, &second), 0);
    assert_int_equal(pool_step_end(f->pool, first, false, 0), POOL_NOT_FOUND);
    assert_int_equal(pool_step_attended(f->pool, first, 0, 0), POOL_NOT_FOUND);
    assert_int_equal(length_of(f, 1), 11);
}

static void a_row_brings_keys_of_the_blocks_it_completes(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 6, .is_unfilled = true), 0);
    assert_int_equal(step_one(f, 1, 1, 12, &step), 0); /* 6 known tokens, 6 more */
    attend(f, step, 0);
    attend(f, step, 1);
    assert_int_equal(match(f, .seed = 1, .count = 13), 0);
    assert_int_equal(f->found.matched, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_token_is_complete_when_every_layer_has_it),
        pool_test(a_layer_may_be_repeated),
        pool_test(a_failed_layer_is_not_done),
        pool_test(full_blocks_of_a_committed_step_are_published),
        pool_test(a_session_that_publishes_itself_is_left_alone),
        pool_test(an_abandoned_step_takes_its_tokens_away),
        pool_test(the_end_waits_for_attends_that_run),
        pool_test(verbs_that_take_blocks_are_invalid_while_it_is_open),
        pool_test(they_wait_for_attends_of_an_ended_step),
        pool_test(a_release_and_a_preempt_wait_too),
        pool_test(a_fork_of_a_running_sequence_has_complete_tokens_only),
        pool_test(a_fork_survives_the_parents_abandoned_step),
        pool_test(publish_sees_complete_tokens_only),
        pool_test(unfilled_tokens_are_filled_by_steps),
        pool_test(an_abandoned_fill_can_be_tried_again),
        pool_test(a_step_is_all_or_nothing),
        pool_test(a_step_is_of_one_model),
        pool_test(attends_wait_for_copies_of_shared_tails),
        pool_test(a_failed_copy_undoes_the_whole_step),
        pool_test(a_step_abandoned_under_copy_leaves_the_tails),
        pool_test(steps_are_not_for_mapped_or_preempted_sequences),
        pool_test(a_layer_that_the_model_lacks_is_invalid),
        pool_test(a_repeat_that_fails_leaves_its_layer_to_be_done),
        pool_test(a_commit_may_be_queued_behind_the_last_attend),
        pool_test(a_queued_commit_fails_with_its_last_attend),
        pool_test(a_step_is_never_mistaken_for_another),
        pool_test(a_row_brings_keys_of_the_blocks_it_completes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
