/* tests/daemon/test_order.c - what daemon/order.h promises. */
#include "daemon/order.h"
#include "tests/support/test.h"

#include <stdlib.h>

enum { REQUESTS = 16, CLAIMS = 24, SESSIONS = 2, SEQUENCES = 3 };

static int make(void **state)
{
    static struct order order;

    assert_int_equal(order_init(&order, REQUESTS, CLAIMS), 0);
    *state = &order;
    return 0;
}

static int unmake(void **state)
{
    order_finish(*state);
    return 0;
}

static void requests_of_one_sequence_come_in_their_order(void **state)
{
    struct order *order = *state;

    assert_true(order_is_free(order, 0, 7));
    order_stand(order, 1, 0, 7);
    assert_false(order_is_free(order, 0, 7));
    order_stand(order, 2, 0, 7);
    order_stand(order, 3, 0, 7);
    assert_int_equal(order_next(order), ORDER_NONE);
    order_leave(order, 1);
    assert_int_equal(order_next(order), 2);
    assert_int_equal(order_next(order), ORDER_NONE);
    order_leave(order, 2);
    assert_int_equal(order_next(order), 3);
    order_leave(order, 3);
    assert_true(order_is_free(order, 0, 7));
    assert_int_equal(order->num_claims, 0);
}

static void other_sequences_and_sessions_are_not_in_the_way(void **state)
{
    struct order *order = *state;

    order_stand(order, 1, 0, 7);
    assert_true(order_is_free(order, 0, 8));
    assert_true(order_is_free(order, 1, 7));
    order_leave(order, 1);
}

static void a_request_of_several_sequences_waits_for_all(void **state)
{
    struct order *order = *state;

    order_stand(order, 1, 0, 1);
    order_stand(order, 2, 0, 2);
    order_stand(order, 3, 0, 1); /* a step of both */
    order_stand(order, 3, 0, 2);
    order_stand(order, 4, 0, 2);
    order_leave(order, 1);
    assert_int_equal(order_next(order), ORDER_NONE);
    order_leave(order, 2);
    assert_int_equal(order_next(order), 3);
    assert_int_equal(order_next(order), ORDER_NONE);
    order_leave(order, 3);
    assert_int_equal(order_next(order), 4);
    order_leave(order, 4);
}

static void one_that_names_a_sequence_twice_does_not_wait_for_itself(void **state)
{
    struct order *order = *state;

    order_stand(order, 1, 0, 5);
    order_stand(order, 1, 0, 5);
    assert_int_equal(order->num_claims, 1);
    order_stand(order, 2, 0, 5);
    order_stand(order, 2, 0, 5);
    order_leave(order, 1);
    assert_int_equal(order_next(order), 2);
    order_leave(order, 2);
}

static void one_that_gives_up_is_passed_over(void **state)
{
    struct order *order = *state;

    for (uint32_t request = 1; request <= 4; request++)
        order_stand(order, request, 0, 5);
    order_leave(order, 3); /* in the middle */
    order_leave(order, 4); /* the last one */
    order_stand(order, 5, 0, 5);
    order_leave(order, 1);
    order_leave(order, 2); /* ready, and gone before it was taken */
    assert_int_equal(order_next(order), 5);
    assert_int_equal(order_next(order), ORDER_NONE);
    order_leave(order, 5);
}

static void room_is_told_before(void **state)
{
    struct order *order = *state;

    assert_true(order_has_room(order, CLAIMS));
    assert_false(order_has_room(order, CLAIMS + 1));
    for (uint32_t at = 0; at < CLAIMS; at++)
        order_stand(order, 0, 0, at);
    assert_false(order_has_room(order, 1));
    order_leave(order, 0);
    assert_true(order_has_room(order, CLAIMS));
}

/* ---- random, against what is plainly right -------------------------------------------------- */

struct plain {
    uint64_t number; /* by arrival; 0: not there */
    bool wants[SEQUENCES], is_taken;
    uint32_t session;
};

/* An older one of the same session that wants a sequence of it is there. */
static bool is_behind(const struct plain *all, const struct plain *one)
{
    for (uint32_t at = 0; at < REQUESTS; at++) {
        const struct plain *other = &all[at];
        if (other->number == 0 || other->number >= one->number || other->session != one->session)
            continue;
        for (uint32_t sequence = 0; sequence < SEQUENCES; sequence++)
            if (other->wants[sequence] && one->wants[sequence])
                return true;
    }
    return false;
}

static void take_all(struct order *order, struct plain *all)
{
    uint32_t request, count = 0, expected = 0;

    for (uint32_t at = 0; at < REQUESTS; at++)
        expected += all[at].number > 0 && !all[at].is_taken && !is_behind(all, &all[at]);
    while ((request = order_next(order)) != ORDER_NONE) {
        assert_true(all[request].number > 0 && !all[request].is_taken);
        assert_false(is_behind(all, &all[request]));
        all[request].is_taken = true;
        count++;
    }
    assert_int_equal(count, expected);
}

static void any_order_of_coming_and_going_keeps_the_lines(void **state)
{
    struct order *order = *state;
    struct plain all[REQUESTS] = {0};
    uint64_t number = 1;

    srandom(1);
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t request = (uint32_t)random() % REQUESTS;
        struct plain *one = &all[request];
        if (one->number > 0) {
            order_leave(order, request);
            *one = (struct plain){0};
        } else if (order_has_room(order, SEQUENCES)) {
            bool is_free = true;
            *one = (struct plain){.number = number++, .session = (uint32_t)random() % SESSIONS};
            for (uint32_t sequence = 0; sequence < SEQUENCES; sequence++) {
                one->wants[sequence] = random() % 2;
                if (one->wants[sequence])
                    is_free &= order_is_free(order, one->session, sequence);
            }
            for (uint32_t sequence = 0; sequence < SEQUENCES; sequence++)
                if (one->wants[sequence])
                    order_stand(order, request, one->session, sequence);
            assert_int_equal(is_free, !is_behind(all, one));
            one->is_taken = is_free; /* carried out at once */
        }
        take_all(order, all);
        order_check(order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_of_one_sequence_come_in_their_order, make, unmake),
        cmocka_unit_test_setup_teardown(other_sequences_and_sessions_are_not_in_the_way, make,
                                        unmake),
        cmocka_unit_test_setup_teardown(a_request_of_several_sequences_waits_for_all, make, unmake),
        cmocka_unit_test_setup_teardown(one_that_names_a_sequence_twice_does_not_wait_for_itself,
                                        make, unmake),
        cmocka_unit_test_setup_teardown(one_that_gives_up_is_passed_over, make, unmake),
        cmocka_unit_test_setup_teardown(room_is_told_before, make, unmake),
        cmocka_unit_test_setup_teardown(any_order_of_coming_and_going_keeps_the_lines, make,
                                        unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
