/* tests/pool/test_granule_order.c - what pool/granule_order.c promises: the coldest granule first.
 */
#include "pool/granule_order.h"
#include "tests/support/test.h"

enum { NUM_GRANULES = 200 };

static struct slot slots[NUM_GRANULES]; /* each the lowest of a granule */
static struct pool pool = {.slots = slots};
static struct granule_order order;

static int setup(void **state)
{
    (void)state;
    order = (struct granule_order){LIST_EMPTY, NONE};
    return 0;
}

static void insert(uint32_t granule, uint64_t hottest)
{
    slots[granule].first_of = (struct granule){.hottest = hottest};
    granule_order_insert(&pool, &order, granule, NONE);
}

static void take_first(uint32_t expected)
{
    assert_int_equal(granule_order_first(&pool, &order), expected);
    granule_order_remove(&pool, &order, expected);
    assert_int_equal(slots[expected].first_of.where, GRANULE_NOWHERE);
}

static void an_empty_order_has_no_first(void **state)
{
    (void)state;
    assert_int_equal(granule_order_first(&pool, &order), NONE);
}

static void ascending_and_colder_ones_are_a_list(void **state)
{
    (void)state;
    insert(1, 10);
    insert(2, 20);
    insert(0, 5);
    for (uint32_t granule = 0; granule < 3; granule++)
        assert_int_equal(slots[granule].first_of.where, GRANULE_IN_LIST);
    take_first(0);
    take_first(1);
    take_first(2);
    assert_int_equal(granule_order_first(&pool, &order), NONE);
}

static void one_between_comes_out_in_its_place(void **state)
{
    (void)state;
    insert(1, 10);
    insert(2, 30);
    insert(3, 20);
    insert(4, 15);
    assert_int_equal(slots[3].first_of.where, GRANULE_IN_TREE);
    take_first(1);
    take_first(4);
    take_first(3);
    take_first(2);
}

static void any_order_comes_out_ascending(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_GRANULES; i++)
        insert(i, 1 + i * 77 % NUM_GRANULES); /* 77 and 200 have no common divisor: all differ */
    for (uint64_t hottest = 1; hottest <= NUM_GRANULES; hottest++) {
        uint32_t first = granule_order_first(&pool, &order);
        assert_int_equal(slots[first].first_of.hottest, hottest);
        take_first(first);
    }
    assert_int_equal(order.root, NONE);
    assert_int_equal(order.list.head, NONE);
}

static void one_may_leave_from_anywhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_GRANULES; i++)
        insert(i, 1 + i * 77 % NUM_GRANULES);
    for (uint32_t i = 0; i < NUM_GRANULES; i += 2) /* i even: hottest odd */
        granule_order_remove(&pool, &order, i);
    for (uint64_t hottest = 2; hottest <= NUM_GRANULES; hottest += 2) {
        uint32_t first = granule_order_first(&pool, &order);
        assert_int_equal(slots[first].first_of.hottest, hottest);
        take_first(first);
    }
    assert_int_equal(granule_order_first(&pool, &order), NONE);
}

/* 1, 2 ... are in the list; @granule is taken out and comes back beside @near. */
static void take_out_and_put_back(uint32_t granule, uint32_t near, enum granule_where expected)
{
    granule_order_remove(&pool, &order, granule);
    granule_order_insert(&pool, &order, granule, near);
    assert_int_equal(slots[granule].first_of.where, expected);
}

static void one_comes_back_to_the_list_beside_a_neighbour(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 20; i++)
        insert(i, i);
    take_out_and_put_back(10, 9, GRANULE_IN_LIST);
    take_out_and_put_back(10, 11, GRANULE_IN_LIST);
    take_out_and_put_back(10, 5, GRANULE_IN_LIST); /* a few steps on */
    take_out_and_put_back(10, 15, GRANULE_IN_LIST);
    take_out_and_put_back(10, 20, GRANULE_IN_TREE); /* too far */
    take_out_and_put_back(10, 1, GRANULE_IN_TREE);
    take_out_and_put_back(11, 10, GRANULE_IN_TREE); /* no neighbour in the list */
    for (uint32_t i = 1; i <= 20; i++)
        take_first(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_empty_order_has_no_first, setup),
        cmocka_unit_test_setup(ascending_and_colder_ones_are_a_list, setup),
        cmocka_unit_test_setup(one_between_comes_out_in_its_place, setup),
        cmocka_unit_test_setup(one_comes_back_to_the_list_beside_a_neighbour, setup),
        cmocka_unit_test_setup(any_order_comes_out_ascending, setup),
        cmocka_unit_test_setup(one_may_leave_from_anywhere, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
