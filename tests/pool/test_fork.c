/* tests/pool/test_fork.c - what pool/fork.c promises: a sequence with the same tokens and blocks.
 */
#include "tests/pool/fixture.h"

static void a_fork_shares_the_partial_tail(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_table(f, 2, "1,2,3");
    assert_text(f, 2, 1, 10);
    for (uint32_t slot = 1; slot <= 3; slot++)
        assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), slot), 2);
    assert_int_equal(stat_of(f, "copies"), 0);
}

static void the_first_to_append_copies_the_tail(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 2, 1, 1, 5), POOL_PENDING);
    const struct pool_effect *copy = nth_effect(f, POOL_EFFECT_COPY, 0);
    assert_int_equal(copy->from_slot, 3);
    assert_int_equal(copy->slot, 4);
    assert_int_equal(count_replies(f, 5), 0);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_reply(f, 5, 0);
    assert_table(f, 2, "1,2,4");
    assert_table(f, 1, "1,2,3");
    assert_int_equal(append(f, 1, 1, 1, 6), 0); /* it has the tail alone now */
    assert_table(f, 1, "1,2,3");
}

static void k_forks_cost_at_most_k_blocks_when_they_diverge(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    for (uint64_t child = 2; child <= 4; child++)
        assert_int_equal(fork_to(f, 1, child), 0);
    for (uint32_t id = 1; id <= 4; id++) {
        if (append(f, id, id + 10, 1, id) == POOL_PENDING)
            assert_int_equal(copy_done(f, id - 1, 0), 0);
    }
    assert_int_equal(stat_of(f, "copies"), 3);
    assert_table(f, 1, "1,2,4");
    assert_table(f, 4, "1,2,3");
    assert_int_equal(stat_of(f, "uncommitted"), 2);
}

static void a_fork_outlives_its_parent(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_table(f, 2, "1,2,3");
    assert_text(f, 2, 1, 10);
    assert_int_equal(append(f, 2, 1, 3, 5), 0);
    assert_table(f, 2, "1,2,3,4");
}

static void only_a_filled_sequence_in_its_blocks_is_forked(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fork_to(f, 1, 2), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 10, .is_unfilled = true), 0);
    assert_int_equal(fork_to(f, 1, 2), POOL_INVALID);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(fork_to(f, 1, 2), POOL_EXISTS);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(fork_to(f, 2, 3), POOL_INVALID);
}

static void a_fork_waits_for_the_copy_of_the_tail(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 2, 1, 1, 5), POOL_PENDING);
    assert_int_equal(fork_to(f, 2, 3), POOL_BUSY);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(fork_to(f, 2, 3), 0);
    assert_table(f, 3, "1,2,4");
}

static void forks_of_forks_share_one_table(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    for (uint64_t child = 2; child <= 20; child++)
        assert_int_equal(fork_to(f, child - 1, child), 0);
    assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), 2), 20);
    assert_int_equal(truncate_to(f, 10, 4, 0), 0);
    assert_int_equal(append(f, 11, 1, 4, 0), 0); /* the tail is full: nothing to copy */
    assert_table(f, 10, "1");
    assert_table(f, 11, "1,2,3");
    assert_table(f, 12, "1,2");
    for (uint64_t id = 1; id <= 20; id++)
        assert_int_equal(release(f, id, 0), 0);
    assert_int_equal(stat_of(f, "evictable"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_fork_shares_the_partial_tail),
        pool_test(the_first_to_append_copies_the_tail),
        pool_test(k_forks_cost_at_most_k_blocks_when_they_diverge),
        pool_test(a_fork_outlives_its_parent),
        pool_test(only_a_filled_sequence_in_its_blocks_is_forked),
        pool_test(a_fork_waits_for_the_copy_of_the_tail),
        pool_test(forks_of_forks_share_one_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
