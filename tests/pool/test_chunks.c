/* tests/pool/test_chunks.c - what pool/chunks.c promises: capped chunks, shared by count of refs.
 */
#include "pool/chunks.h"
#include "tests/support/test.h"

static int setup(void **state)
{
    struct chunk_store *store = NULL;

    assert_int_equal(chunks_create(4, 128, &store), 0);
    *state = store;
    return 0;
}

static int teardown(void **state)
{
    chunks_destroy(*state);
    return 0;
}

static void a_store_has_so_many_chunks(void **state)
{
    struct chunk_store *store = *state;

    for (uint32_t left = 4; left > 0; left--) {
        assert_int_equal(chunks_left(store), left);
        (void)chunk_take(store, NONE);
    }
    assert_int_equal(chunks_left(store), 0);
}

static void a_chunk_that_was_given_back_is_taken_again(void **state)
{
    struct chunk_store *store = *state;
    uint32_t first = chunk_take(store, NONE);

    chunk_at(store, first)->count = 7;
    chunk_give(store, first);
    assert_int_equal(chunks_left(store), 4);
    assert_int_equal(chunk_take(store, NONE), first);
    assert_int_equal(chunk_at(store, first)->count, 0);
    assert_int_equal(chunk_at(store, first)->refs, 1);
}

static void bodies_do_not_overlap(void **state)
{
    struct chunk_store *store = *state;
    uint32_t first = chunk_take(store, NONE), second = chunk_take(store, NONE);
    char *body = (char *)(chunk_at(store, first) + 1);

    assert_int_equal(chunk_body_bytes(store), 128 - sizeof(struct chunk));
    assert_true(body + chunk_body_bytes(store) <= (char *)chunk_at(store, second));
}

static void a_chain_is_released_up_to_its_first_shared_chunk(void **state)
{
    struct chunk_store *store = *state;
    uint32_t root = chunk_take(store, NONE);

    chunk_at(store, root)->refs++; /* somebody else's */
    uint32_t middle = chunk_take(store, root), last = chunk_take(store, middle);
    chain_release(store, last);
    assert_int_equal(chunks_left(store), 3);
    assert_int_equal(chunk_at(store, root)->refs, 1);
    chain_release(store, root);
    assert_int_equal(chunks_left(store), 4);
    chain_release(store, NONE); /* of an empty sequence */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_store_has_so_many_chunks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chunk_that_was_given_back_is_taken_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(bodies_do_not_overlap, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chain_is_released_up_to_its_first_shared_chunk, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
