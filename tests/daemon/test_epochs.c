/* tests/daemon/test_epochs.c - what daemon/epochs.h promises. */
#include "daemon/epochs.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

static int make(void **state)
{
    static struct epochs epochs;

    assert_int_equal(epochs_init(&epochs), 0);
    epochs_begin(&epochs, "", "", 1000);
    *state = &epochs;
    return 0;
}

static int unmake(void **state)
{
    epochs_finish(*state);
    return 0;
}

static void everything_has_an_epoch_from_the_start(void **state)
{
    assert_int_equal(epochs_of(*state, "a", "llama"), 1000);
    assert_int_equal(epochs_of(*state, "never seen", "nor this"), 1000);
}

static void a_clear_is_of_what_it_names(void **state)
{
    epochs_begin(*state, "a", "llama", 2000);
    assert_int_equal(epochs_of(*state, "a", "llama"), 2000);
    assert_int_equal(epochs_of(*state, "a", "qwen"), 1000);
    assert_int_equal(epochs_of(*state, "b", "llama"), 1000);
    epochs_begin(*state, "", "llama", 3000);
    assert_int_equal(epochs_of(*state, "a", "llama"), 3000);
    assert_int_equal(epochs_of(*state, "b", "llama"), 3000);
    assert_int_equal(epochs_of(*state, "b", "qwen"), 1000);
    epochs_begin(*state, "b", "", 4000);
    assert_int_equal(epochs_of(*state, "b", "qwen"), 4000);
    assert_int_equal(epochs_of(*state, "b", "llama"), 4000);
    assert_int_equal(epochs_of(*state, "a", "llama"), 3000);
}

/* Also with a clock that went back. */
static void numbers_only_grow(void **state)
{
    epochs_begin(*state, "a", "", 500);
    assert_int_equal(epochs_of(*state, "a", "llama"), 1001);
    epochs_begin(*state, "a", "", 500);
    assert_int_equal(epochs_of(*state, "a", "llama"), 1002);
}

static void a_wider_clear_takes_the_place_of_narrower_ones(void **state)
{
    struct epochs *epochs = *state;

    epochs_begin(epochs, "a", "llama", 0);
    epochs_begin(epochs, "a", "qwen", 0);
    epochs_begin(epochs, "b", "llama", 0);
    assert_int_equal(epochs->count, 4);
    epochs_begin(epochs, "a", "", 0);
    assert_int_equal(epochs->count, 3); /* all, b+llama, a */
    assert_int_equal(epochs_of(epochs, "b", "llama"), 1003);
    epochs_begin(epochs, "", "", 0);
    assert_int_equal(epochs->count, 1);
    assert_int_equal(epochs_of(epochs, "b", "llama"), 1005);
}

/* No room: more than was asked for is cleared, never less. */
static void a_full_table_clears_everything(void **state)
{
    struct epochs *epochs = *state;
    char name[32];

    for (uint32_t at = 0; at + 1 < EPOCH_MAX_RULES; at++) {
        (void)snprintf(name, sizeof(name), "tenant-%u", at);
        epochs_begin(epochs, name, "", 0);
    }
    assert_int_equal(epochs->count, EPOCH_MAX_RULES);
    epochs_begin(epochs, "one more", "llama", 0);
    assert_int_equal(epochs->count, 1);
    assert_int_equal(epochs_of(epochs, "one more", "llama"), 1000 + EPOCH_MAX_RULES);
    assert_int_equal(epochs_of(epochs, "tenant-3", "qwen"), 1000 + EPOCH_MAX_RULES);
}

static void what_is_too_long_is_not_taken(void **state)
{
    char name[200];

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_false(epochs_add(*state, name, "", 5000));
    assert_false(epochs_add(*state, "", name, 5000));
    assert_true(epochs_add(*state, "a", "", 5000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_has_an_epoch_from_the_start, make, unmake),
        cmocka_unit_test_setup_teardown(a_clear_is_of_what_it_names, make, unmake),
        cmocka_unit_test_setup_teardown(numbers_only_grow, make, unmake),
        cmocka_unit_test_setup_teardown(a_wider_clear_takes_the_place_of_narrower_ones, make,
                                        unmake),
        cmocka_unit_test_setup_teardown(a_full_table_clears_everything, make, unmake),
        cmocka_unit_test_setup_teardown(what_is_too_long_is_not_taken, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
