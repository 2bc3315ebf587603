/* tests/daemon/test_share.c - what daemon/share.h promises. */
#include "daemon/share.h"
#include "tests/support/test.h"

#include <stdlib.h>

enum { TOTAL = 24, PAYERS = 6 };

static int make(void **state)
{
    static struct share share;

    assert_int_equal(share_init(&share, TOTAL, PAYERS), 0);
    *state = &share;
    return 0;
}

static int unmake(void **state)
{
    share_finish(*state);
    return 0;
}

static uint32_t take_all(struct share *share, pool_payer payer)
{
    uint32_t count = 0;

    while (share_has(share, payer, 1)) {
        share_take(share, payer, 1);
        share_check(share);
        count++;
    }
    return count;
}

static const bool three[] = {true, false, true, true}, one[] = {false, true};

static void a_tenant_alone_has_everything(void **state)
{
    share_divide(*state, one, 2);
    assert_int_equal(take_all(*state, 1), TOTAL);
}

/* 24 places, 3 tenants: 12 in parts of 4. */
static void nobody_is_locked_out(void **state)
{
    share_divide(*state, three, 4);
    assert_int_equal(take_all(*state, 0), 16); /* its 4, and the 12 that are promised to nobody */
    assert_int_equal(take_all(*state, 2), 4);
    assert_int_equal(take_all(*state, 3), 4);
    share_give(*state, 0, 5); /* over its part: anybody's */
    assert_int_equal(take_all(*state, 3), 5);
    assert_int_equal(take_all(*state, 0), 0);
    share_give(*state, 2, 2); /* its part: it comes back to nobody else */
    assert_int_equal(take_all(*state, 3), 0);
    assert_int_equal(take_all(*state, 2), 2);
}

static void several_are_taken_together_or_not(void **state)
{
    share_divide(*state, three, 4);
    assert_false(share_has(*state, 0, 17));
    assert_true(share_has(*state, 0, 16));
    share_take(*state, 0, 14);
    assert_true(share_has(*state, 2, 6)); /* its 4 and the 2 that are left over */
    assert_false(share_has(*state, 2, 7));
}

static void nobodys_are_taken_from_what_is_left_over(void **state)
{
    share_divide(*state, three, 4);
    assert_int_equal(take_all(*state, POOL_NONE), 12);
    assert_int_equal(take_all(*state, 1), 0); /* no member */
    assert_int_equal(take_all(*state, 0), 4);
}

/* Promises that cannot be kept at once are kept as places are given back. */
static void a_new_member_gets_its_part_in_time(void **state)
{
    struct share *share = *state;

    share_divide(share, one, 2);
    assert_int_equal(take_all(share, 1), TOTAL);
    share_divide(share, three, 4);
    share_check(share);
    assert_false(share_has(share, 0, 1)); /* there is none */
    for (uint32_t i = 0; i < 12; i++)
        share_give(share, 1, 1);
    assert_false(share_has(share, 1, 1));
    assert_int_equal(take_all(share, 0), 4);
    assert_int_equal(take_all(share, 2), 4);
    assert_int_equal(take_all(share, 3), 4);
}

static void counts_agree_whatever_happens(void **state)
{
    struct share *share = *state;
    uint32_t taken[PAYERS] = {0};

    srandom(2);
    for (uint32_t round = 0; round < 20000; round++) {
        pool_payer payer = (pool_payer)random() % PAYERS;
        uint32_t count = 1 + (uint32_t)random() % 3;
        bool members[PAYERS];
        if (random() % 100 == 0) {
            for (uint32_t at = 0; at < PAYERS; at++)
                members[at] = random() % 2;
            share_divide(share, members, PAYERS);
        } else if (random() % 2 && share_has(share, payer, count)) {
            share_take(share, payer, count);
            taken[payer] += count;
        } else if (taken[payer] >= count) {
            share_give(share, payer, count);
            taken[payer] -= count;
        }
        share_check(share);
        assert_int_equal(share->taken[payer], taken[payer]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tenant_alone_has_everything, make, unmake),
        cmocka_unit_test_setup_teardown(nobody_is_locked_out, make, unmake),
        cmocka_unit_test_setup_teardown(several_are_taken_together_or_not, make, unmake),
        cmocka_unit_test_setup_teardown(nobodys_are_taken_from_what_is_left_over, make, unmake),
        cmocka_unit_test_setup_teardown(a_new_member_gets_its_part_in_time, make, unmake),
        cmocka_unit_test_setup_teardown(counts_agree_whatever_happens, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
