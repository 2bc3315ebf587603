/* tests/daemon/test_effects.c - the queues of daemon/effects.h. */
#include "daemon/effects.h"
#include "tests/support/test.h"

static void a_queue_has_room_for_what_it_was_made_for(void **state)
{
    (void)state;
    assert_int_equal(fifo_of(1).mask, 0);
    assert_int_equal(fifo_of(4).mask, 3);
    assert_int_equal(fifo_of(5).mask, 7);
    /* 64 TiB of 64 KiB: two granules a page, and some ahead. */
    assert_int_equal(fifo_of((UINT64_C(1) << 31) + 1).mask, UINT32_MAX);
    assert_int_equal(fifo_of((UINT64_C(1) << 32) + 1).mask, (UINT64_C(1) << 33) - 1);
}

static void it_begins_again_behind_its_end(void **state)
{
    struct fifo fifo = fifo_of(2);

    (void)state;
    assert_true(fifo_is_empty(&fifo));
    assert_int_equal(fifo_push(&fifo), 0);
    assert_int_equal(fifo_push(&fifo), 1);
    fifo.head++;
    assert_int_equal(fifo_push(&fifo), 0);
    assert_false(fifo_is_empty(&fifo));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_has_room_for_what_it_was_made_for),
        cmocka_unit_test(it_begins_again_behind_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
