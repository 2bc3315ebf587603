/* tests/pool/test_table.c - what pool/table.c promises: long tables in chunks that forks share. */
#include "tests/pool/fixture.h"

#include <stdlib.h>

/* A chunk has some 60 positions of one group: 150 blocks take three. */
enum { NUM_BLOCKS = 150, LENGTH = NUM_BLOCKS * FIXTURE_BLOCK };

static int setup(void **state)
{
    struct fixture *f = fixture_create(250);

    must_alloc(f, 1, 1, LENGTH);
    *state = f;
    return 0;
}

/* The table of @id is blocks 1, 2, 3 ... @count. */
static void assert_ascending(struct fixture *f, uint64_t id, uint32_t count)
{
    struct pool_place places[250];
    uint32_t num;

    assert_int_equal(pool_table(f->pool, (struct pool_name){0, id}, 0, places, 250, &num), 0);
    assert_int_equal(num, count);
    for (uint32_t at = 0; at < count; at++)
        assert_int_equal(places[at].slot, at + 1);
}

static void a_long_table_is_read_from_its_first_position(void **state)
{
    struct fixture *f = *state;

    assert_ascending(f, 1, NUM_BLOCKS);
    for (uint32_t slot = 1; slot <= NUM_BLOCKS; slot++)
        assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), slot), 1);
}

static void a_fork_can_be_cut_anywhere(void **state)
{
    struct fixture *f = *state;

    for (uint32_t blocks = 0; blocks <= NUM_BLOCKS; blocks++) {
        assert_int_equal(fork_to(f, 1, 2), 0);
        assert_int_equal(truncate_to(f, 2, (uint64_t)blocks * FIXTURE_BLOCK, 0), 0);
        assert_ascending(f, 2, blocks);
        assert_int_equal(release(f, 2, 0), 0);
    }
    assert_ascending(f, 1, NUM_BLOCKS);
    assert_int_equal(stat_of(f, "held"), NUM_BLOCKS);
}

static void a_parent_can_be_cut_under_its_fork(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(fork_to(f, 2, 3), 0);
    assert_int_equal(truncate_to(f, 1, 70 * FIXTURE_BLOCK, 0), 0);
    assert_int_equal(truncate_to(f, 2, 130 * FIXTURE_BLOCK, 0), 0);
    assert_ascending(f, 1, 70);
    assert_ascending(f, 2, 130);
    assert_ascending(f, 3, NUM_BLOCKS);
    assert_int_equal(append(f, 1, 2, 100, 0), 0);
    assert_ascending(f, 3, NUM_BLOCKS);
    assert_int_equal(release(f, 3, 0), 0);
    assert_ascending(f, 2, 130);
}

static void a_fork_costs_no_hold_per_block(void **state)
{
    struct fixture *f = *state;
    enum { NUM_FORKS = 60 };

    for (uint64_t child = 2; child < 2 + NUM_FORKS; child++)
        assert_int_equal(fork_to(f, 1, child), 0);
    assert_int_equal(pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), NUM_BLOCKS), 1 + NUM_FORKS);
    for (uint64_t child = 2; child < 2 + NUM_FORKS; child++)
        assert_int_equal(release(f, child, 0), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "evictable"), NUM_BLOCKS);
}

static void a_window_slides_in_a_table_that_is_shared(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model(f, 9, 1, 1);
    struct pool_place places[90];
    uint32_t num;

    assert_int_equal(alloc(f, .id = 2, .model = model, .seed = 2, .count = 320), 0);
    assert_int_equal(fork_to(f, 2, 3), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(pool_table(f->pool, (struct pool_name){0, 2}, 0, places, 90, &num), 0);
    for (uint32_t at = 0; at < 80; at++) /* 320 - 9 + 1 = 312: from block 78 on */
        assert_int_equal(places[at].slot, at < 78 ? 0 : at + 1);
    assert_ascending(f, 3, 80);
    assert_int_equal(publish(f, 3), 0);
    assert_int_equal(stat_of(f, "evictable"), 78);
}

static void a_table_that_ends_in_slices_is_let_go_of_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(pool_session_end(f->pool, 0, false, NULL), 0);
    while (pool_advance(f->pool, 7))
        pool_check(f->pool);
    assert_int_equal(stat_of(f, "evictable"), NUM_BLOCKS);
    assert_int_equal(stat_of(f, "sequences"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_table_is_read_from_its_first_position, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_fork_can_be_cut_anywhere, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_parent_can_be_cut_under_its_fork, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_fork_costs_no_hold_per_block, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_window_slides_in_a_table_that_is_shared, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_table_that_ends_in_slices_is_let_go_of_once, setup,
                                        fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
