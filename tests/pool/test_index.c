/* tests/pool/test_index.c - what pool/index.c promises: records by hash, whatever collides. */
#include "pool/index.h"
#include "tests/support/test.h"

static struct index table;

static int setup(void **state)
{
    (void)state;
    return index_init(&table, 64);
}

static int teardown(void **state)
{
    (void)state;
    index_finish(&table);
    return 0;
}

/* How often @id is found under @hash. */
static uint32_t count(uint64_t hash, uint32_t id)
{
    struct index_walk walk;
    uint32_t num = 0;

    for (uint32_t found = index_first(&table, hash, &walk); found != UINT32_MAX;
         found = index_next(&table, &walk))
        num += found == id;
    return num;
}

static void what_was_inserted_is_found_under_its_hash_only(void **state)
{
    (void)state;
    index_insert(&table, 42, 7);
    assert_int_equal(count(42, 7), 1);
    assert_int_equal(count(43, 7), 0);
    assert_int_equal(count(42, 8), 0);
}

static void equal_hashes_stand_beside_each_other(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 10; id++)
        index_insert(&table, 42, id);
    index_remove(&table, 42, 4);
    for (uint32_t id = 0; id < 10; id++)
        assert_int_equal(count(42, id), id != 4);
}

/* Hashes that all start in the last places, and wrap around the end. */
static uint64_t crowded(uint32_t id)
{
    return table.mask - id % 3 + ((uint64_t)id << 20);
}

static void a_removal_leaves_no_hole_that_hides_others(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 64; id++)
        index_insert(&table, crowded(id), id);
    for (uint32_t removed = 0; removed < 64; removed++) {
        index_remove(&table, crowded(removed), removed);
        for (uint32_t id = 0; id < 64; id++)
            assert_int_equal(count(crowded(id), id), id > removed);
    }
    for (uint32_t at = 0; at <= table.mask; at++)
        assert_int_equal(table.entries[at].id_plus_1, 0);
}

static void there_is_room_for_all_and_half_as_many_more(void **state)
{
    (void)state;
    assert_true(table.mask + 1 >= 96);
    assert_int_equal(index_bytes(&table), (table.mask + 1) * sizeof(struct index_entry));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_inserted_is_found_under_its_hash_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(equal_hashes_stand_beside_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(a_removal_leaves_no_hole_that_hides_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(there_is_room_for_all_and_half_as_many_more, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
