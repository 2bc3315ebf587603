/* tests/pool/test_grow.c - what pool/grow.c promises: appends, and copies of tails that others see.
 */
#include "tests/pool/fixture.h"

#include <errno.h>

/* Sequences 1 and 2 share text 1, 10 tokens, blocks 1, 2 and the tail 3; 1 appends one token. */
static void begin_copy(struct fixture *f)
{
    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
}

static void a_tail_of_ones_own_is_written_in_place(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 3);
    assert_int_equal(append(f, 1, 1, 1, 0), 0);
    assert_table(f, 1, "1");
    assert_int_equal(append(f, 1, 1, 6, 0), 0);
    assert_table(f, 1, "1,2,3");
    assert_text(f, 1, 1, 10);
    assert_int_equal(complete_of(f, 1), 10);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0);
}

static void verbs_of_the_sequence_wait_for_its_copy(void **state)
{
    struct fixture *f = *state;
    pool_step step;

    begin_copy(f);
    assert_int_equal(append(f, 1, 1, 1, 0), POOL_BUSY);
    assert_int_equal(publish(f, 1), POOL_BUSY);
    assert_int_equal(truncate_to(f, 1, 4, 0), POOL_BUSY);
    assert_int_equal(release(f, 1, 0), POOL_BUSY);
    assert_int_equal(preempt(f, 1, 0), POOL_BUSY);
    assert_int_equal(step_one(f, 1, 1, 1, &step), POOL_BUSY);
    assert_int_equal(complete_of(f, 1), 10);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_reply(f, 5, 0);
    assert_int_equal(complete_of(f, 1), 11);
    assert_int_equal(release(f, 1, 0), 0);
}

static void a_failed_copy_leaves_the_old_state(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    assert_reply(f, 5, POOL_FAILED);
    assert_table(f, 1, "1,2,3");
    assert_table(f, 2, "1,2,3");
    assert_text(f, 1, 1, 10);
    assert_int_equal(complete_of(f, 1), 10);
    assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), 3), 2);
    assert_free(f, "4");
    assert_int_equal(stat_of(f, "failed_copies"), 1);
    assert_int_equal(stat_of(f, "transfers"), 0);
    assert_int_equal(append(f, 1, 1, 1, 6), POOL_PENDING);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_reply(f, 6, 0);
    assert_table(f, 1, "1,2,4");
}

static void growth_behind_a_failed_copy_goes_too(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 10, 5), POOL_PENDING);
    assert_table(f, 1, "1,2,4,5,6");
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    assert_table(f, 1, "1,2,3");
    assert_text(f, 1, 1, 10);
    assert_int_equal(stat_of(f, "idle"), 3);
}

static void one_failed_copy_of_several_fails_the_append(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model_of_two(f, 0);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 6), 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 2);
    assert_int_equal(copy_done(f, 1, -EIO), 0);
    assert_int_equal(count_replies(f, 5), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_reply(f, 5, POOL_FAILED);
    assert_table(f, 1, "1,2;1,2");
    assert_table(f, 2, "1,2;1,2");
}

static void a_released_source_of_a_copy_stays_until_the_copy_ends(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    assert_int_equal(release(f, 2, 0), 0);
    assert_free(f, "");
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 16), 0);
    assert_table(f, 3, "5,6,7,8");
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_free(f, "3");
}

static void a_failed_copy_gives_the_released_source_back(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    assert_table(f, 1, "1,2,3");
    assert_int_equal(append(f, 1, 1, 1, 6), 0); /* it is alone: in place */
    assert_table(f, 1, "1,2,3");
}

static void a_tail_that_a_copy_reads_is_not_written_in_place(void **state)
{
    struct fixture *f = *state;

    begin_copy(f);
    assert_int_equal(append(f, 2, 2, 1, 6), POOL_PENDING);
    assert_table(f, 2, "1,2,5");
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_reply(f, 6, 0);
    assert_free(f, "");
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_free(f, "3"); /* nobody has the old tail any more */
}

static void a_published_tail_is_copied_and_stays_cached(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(truncate_to(f, 1, 6, 0), 0);
    assert_int_equal(append(f, 1, 2, 1, 5), POOL_PENDING);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_table(f, 1, "1,3");
    assert_evictable(f, "2");
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void without_a_slot_a_published_tail_loses_its_key(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 2, 24);
    assert_int_equal(truncate_to(f, 1, 6, 0), 0);
    assert_int_equal(append(f, 1, 3, 1, 5), 0);
    assert_table(f, 1, "1,2");
    assert_int_equal(stat_of(f, "unpublished_in_place"), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 4);
}

static void without_a_slot_a_shared_tail_is_refused(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    must_alloc(f, 3, 3, 24);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_NO_BLOCKS);
    assert_table(f, 1, "1,2");
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), 0);
}

static void an_append_is_all_or_nothing(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 3);
    must_alloc(f, 2, 2, 24);
    assert_int_equal(append(f, 1, 1, 6, 0),
                     POOL_NO_BLOCKS); /* one more block can be had, not two */
    assert_text(f, 1, 1, 3);
    assert_table(f, 1, "1");
    assert_int_equal(stat_of(f, "uncommitted"), 1);
    assert_int_equal(append(f, 1, 1, 5, 0), 0);
}

static void an_append_at_the_limit_is_a_matter_of_quota(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 4), 0);
    assert_int_equal(append(f, 1, 1, 1, 0), POOL_QUOTA);
    assert_text(f, 1, 1, 4);
}

static void only_a_filled_sequence_in_its_blocks_is_appended_to(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(append(f, 1, 1, 1, 0), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 4, .is_unfilled = true), 0);
    assert_int_equal(append(f, 1, 1, 1, 0), POOL_INVALID);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(append(f, 1, 1, 0, 0), POOL_INVALID);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_int_equal(append(f, 1, 1, 1, 0), POOL_INVALID);
}

/* Sequence 2 starts with 6 tokens of the domain's blocks 1 and 2, and appends one of its own. */
static void begin_shared_copy(struct fixture *f)
{
    pool_payer domain = add_domain(f);

    assert_int_equal(alloc(f, .id = 1, .tenant = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(truncate_to(f, 2, 6, 0), 0);
    assert_table(f, 2, "s1,s2");
    assert_int_equal(append(f, 2, 2, 1, 5), POOL_PENDING);
}

static void a_shared_domains_tail_is_copied_into_ones_own_arena(void **state)
{
    struct fixture *f = *state;

    begin_shared_copy(f);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_table(f, 2, "s1,1");
    assert_int_equal(append(f, 2, 2, 1, 0), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 3);
}

static void a_failed_copy_leaves_the_shared_domains_tail(void **state)
{
    struct fixture *f = *state;

    begin_shared_copy(f);
    assert_int_equal(copy_done(f, 0, -EIO), 0);
    assert_reply(f, 5, POOL_FAILED);
    assert_table(f, 2, "s1,s2");
    assert_int_equal(append(f, 2, 2, 1, 6), POOL_PENDING);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_table(f, 2, "s1,1");
}

static void one_block_is_read_by_so_many_copies_at_a_time(void **state)
{
    enum { MOST = 2047 }; /* 11 bits of a slot */
    struct pool_config config;
    (void)state;

    fixture_config(&config, 40);
    config.max_blocks = 4096;
    config.max_tokens = 1 << 20;
    config.max_sequences = config.max_transfers = MOST + 2;
    struct fixture *f = fixture_create_with(&config);
    pool_model model = add_model(f, 0, 128, 1);
    const struct pool_key key = {{1}};
    const uint32_t id = 7;
    const struct pool_tokens token = {&id, 1, &key, NULL};

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 2), 0);
    for (uint64_t child = 2; child <= MOST + 2; child++)
        assert_int_equal(pool_fork(f->pool, (struct pool_name){0, 1}, child), 0);
    for (uint64_t child = 2; child <= MOST + 1; child++)
        assert_int_equal(pool_append(f->pool, (struct pool_name){0, child}, &token, 0),
                         POOL_PENDING);
    assert_int_equal(pool_append(f->pool, (struct pool_name){0, MOST + 2}, &token, 0), POOL_LIMIT);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(pool_append(f->pool, (struct pool_name){0, MOST + 2}, &token, 0),
                     POOL_PENDING);
    pool_check(f->pool);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_tail_of_ones_own_is_written_in_place),
        pool_test(verbs_of_the_sequence_wait_for_its_copy),
        pool_test(a_failed_copy_leaves_the_old_state),
        pool_test(growth_behind_a_failed_copy_goes_too),
        pool_test(one_failed_copy_of_several_fails_the_append),
        pool_test(a_released_source_of_a_copy_stays_until_the_copy_ends),
        pool_test(a_failed_copy_gives_the_released_source_back),
        pool_test(a_tail_that_a_copy_reads_is_not_written_in_place),
        pool_test(a_published_tail_is_copied_and_stays_cached),
        pool_test(without_a_slot_a_published_tail_loses_its_key),
        pool_test(without_a_slot_a_shared_tail_is_refused),
        pool_test(an_append_is_all_or_nothing),
        pool_test(an_append_at_the_limit_is_a_matter_of_quota),
        pool_test(only_a_filled_sequence_in_its_blocks_is_appended_to),
        pool_test(a_shared_domains_tail_is_copied_into_ones_own_arena),
        pool_test(a_failed_copy_leaves_the_shared_domains_tail),
        cmocka_unit_test(one_block_is_read_by_so_many_copies_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
