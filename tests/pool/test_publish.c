/* tests/pool/test_publish.c - what pool/publish.c promises: keys for full blocks, windows that
 * slide. */
#include "tests/pool/fixture.h"

static void only_full_blocks_get_a_key(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 7);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(stat_of(f, "reserved"), 1);
    assert_int_equal(append(f, 1, 1, 1, 0), 0);
    assert_int_equal(stat_of(f, "reserved"), 1); /* append publishes nothing */
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(stat_of(f, "reserved"), 0);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_duplicate_is_given_up_for_the_first_block(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 8), 0);
    assert_table(f, 2, "3,4");
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_table(f, 2, "1,2");
    assert_free(f, "4,3"); /* one by one: the last let go of is reused first */
    assert_int_equal(stat_of(f, "merged"), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
}

static void a_mapped_sequence_keeps_its_own_block(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 8, .is_mapped = true), 0);
    must_alloc(f, 4, 1, 8);
    assert_table(f, 3, "2,1");
    assert_int_equal(publish(f, 3), 0);
    assert_table(f, 3, "2,1");
    assert_int_equal(stat_of(f, "merged"), 0);
    assert_int_equal(release(f, 3, 0), 0);
    assert_free(f, "1,2"); /* unpublished: free at once, not cached */
}

static void a_block_is_considered_once(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4, .is_mapped = true), 0);
    must_alloc(f, 3, 2, 4);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 3, 0), 0);
    assert_int_equal(pool_evict(f->pool, 9), 2); /* the key is free again, but it was considered */
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(stat_of(f, "held"), 0);
    assert_int_equal(truncate_to(f, 2, 3, 0), 0); /* cuts that back */
    assert_int_equal(append(f, 2, 2, 1, 0), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(stat_of(f, "held"), 1);
}

static void blocks_out_of_the_window_are_let_go_of(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 6, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 12), 0);
    assert_table(f, 1, "1,2,3");
    assert_int_equal(publish(f, 1), 0);
    assert_table(f, 1, "0,2,3"); /* 12 - 6 + 1 = 7: block 1 has tokens 4 to 7 */
    assert_int_equal(stat_of(f, "evictable"), 1);
    assert_int_equal(append(f, 1, 1, 1, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_table(f, 1, "0,0,3,4");                            /* 13 - 6 + 1 = 8 */
    assert_int_equal(truncate_to(f, 1, 12, 0), POOL_INVALID); /* it needs token 7 */
    assert_int_equal(truncate_to(f, 1, 13, 0), 0);
}

static void a_fork_keeps_what_the_parents_window_lets_go_of(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 6, 1, 1);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 12), 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_table(f, 1, "0,2,3");
    assert_table(f, 2, "1,2,3");
    assert_int_equal(publish(f, 2), 0);
    assert_table(f, 2, "0,2,3");
    assert_int_equal(stat_of(f, "merged"), 0);
}

static void an_unfilled_or_preempted_sequence_is_not_published(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(publish(f, 1), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8, .is_unfilled = true), 0);
    assert_int_equal(publish(f, 1), POOL_INVALID);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_int_equal(publish(f, 1), POOL_INVALID);
}

static void a_mapped_sequence_is_published_up_to_what_is_written(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 1};

    assert_int_equal(
        alloc(f, .id = 1, .seed = 1, .count = 12, .is_mapped = true, .is_unfilled = true), 0);
    assert_int_equal(pool_publish_up_to(f->pool, name, 13), POOL_INVALID);
    assert_int_equal(pool_publish_up_to(f->pool, name, 7), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(complete_of(f, 1), 7);
    assert_int_equal(pool_publish_up_to(f->pool, name, 6), POOL_INVALID); /* it never goes back */
    assert_int_equal(pool_publish_up_to(f->pool, name, 12), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 3);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(pool_publish_up_to(f->pool, name, 15), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 3);
    assert_int_equal(pool_publish_up_to(f->pool, name, 16), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 4);
    pool_check(f->pool);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(pool_publish_up_to(f->pool, (struct pool_name){0, 2}, 4), POOL_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(only_full_blocks_get_a_key),
        pool_test(a_duplicate_is_given_up_for_the_first_block),
        pool_test(a_mapped_sequence_keeps_its_own_block),
        pool_test(a_block_is_considered_once),
        pool_test(blocks_out_of_the_window_are_let_go_of),
        pool_test(a_fork_keeps_what_the_parents_window_lets_go_of),
        pool_test(an_unfilled_or_preempted_sequence_is_not_published),
        pool_test(a_mapped_sequence_is_published_up_to_what_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
