/* tests/pool/test_tokens.c - what pool/tokens.c promises: ids and keys in chunks that forks share.
 */
#include "tests/pool/fixture.h"

#include <stdlib.h>

/* A chunk has the ids of some 40 blocks. */
enum { LENGTH = 500 };

static int setup(void **state)
{
    struct fixture *f = fixture_create(250);

    must_alloc(f, 1, 1, LENGTH);
    *state = f;
    return 0;
}

/* Tokens [0, @from) are of text @first, those up to @end of text @second. */
static void assert_two_texts(struct fixture *f, uint64_t id, uint32_t first, uint64_t from,
                             uint32_t second, uint64_t end)
{
    uint32_t ids[1024];

    assert_int_equal(length_of(f, id), end);
    assert_int_equal(pool_sequence_tokens(f->pool, (struct pool_name){0, id}, 0, end, ids), 0);
    for (uint64_t at = 0; at < end; at++)
        assert_int_equal(ids[at], (at < from ? first : second) * 1000 + at);
}

static void any_range_can_be_read(void **state)
{
    struct fixture *f = *state;
    uint32_t ids[LENGTH];

    for (uint64_t first = 0; first <= LENGTH; first += 61) {
        for (uint64_t count = 0; first + count <= LENGTH; count += 37) {
            assert_int_equal(
                pool_sequence_tokens(f->pool, (struct pool_name){0, 1}, first, count, ids), 0);
            for (uint64_t i = 0; i < count; i++)
                assert_int_equal(ids[i], 1000 + first + i);
        }
    }
}

static void forks_go_their_own_ways(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(append(f, 1, 2, 30, 0), 0); /* the tail is full: no copy */
    assert_int_equal(append(f, 2, 3, 50, 0), 0);
    assert_two_texts(f, 1, 1, LENGTH, 2, LENGTH + 30);
    assert_two_texts(f, 2, 1, LENGTH, 3, LENGTH + 50);
}

static void tokens_rolled_back_are_written_anew(void **state)
{
    struct fixture *f = *state;

    for (uint64_t length = LENGTH; length >= 3; length = length * 2 / 3) {
        assert_int_equal(fork_to(f, 1, 2), 0);
        assert_int_equal(truncate_to(f, 2, length, 0), 0);
        int answer = append(f, 2, 2, 90, 5);
        if (answer == POOL_PENDING)
            assert_int_equal(copy_done(f, count_effects(f, POOL_EFFECT_COPY) - 1, 0), 0);
        else
            assert_int_equal(answer, 0);
        assert_two_texts(f, 2, 1, length, 2, length + 90);
        assert_text(f, 1, 1, LENGTH);
        assert_int_equal(release(f, 2, 0), 0);
    }
}

static void keys_follow_the_tokens_in_use(void **state)
{
    struct fixture *f = *state;
    struct pool_key before, after;

    assert_int_equal(pool_sequence_key(f->pool, (struct pool_name){0, 1}, 90, &before), 0);
    assert_int_equal(truncate_to(f, 1, 90 * FIXTURE_BLOCK, 0), 0);
    assert_int_equal(pool_sequence_key(f->pool, (struct pool_name){0, 1}, 90, &after),
                     POOL_INVALID);
    assert_int_equal(append(f, 1, 2, FIXTURE_BLOCK, 0), 0);
    assert_int_equal(pool_sequence_key(f->pool, (struct pool_name){0, 1}, 90, &after), 0);
    assert_memory_not_equal(&before, &after, sizeof(before));
    assert_int_equal(truncate_to(f, 1, 90 * FIXTURE_BLOCK, 0), 0);
    assert_int_equal(append(f, 1, 1, FIXTURE_BLOCK, 0), 0);
    assert_int_equal(pool_sequence_key(f->pool, (struct pool_name){0, 1}, 90, &after), 0);
    assert_memory_equal(&before, &after, sizeof(before));
}

static void forks_share_the_memory_of_their_tokens(void **state)
{
    struct pool_config config;

    (void)state;
    fixture_config(&config, 250);
    config.max_tokens = 1024; /* 1 chunk each for 64 sequences, and 3 or 4 for so many tokens */
    struct fixture *f = fixture_create_with(&config);
    must_alloc(f, 1, 1, 900);
    for (uint64_t child = 2; child <= 60; child++)
        assert_int_equal(fork_to(f, 1, child), 0);
    assert_text(f, 60, 1, 900);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_range_can_be_read, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(forks_go_their_own_ways, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(tokens_rolled_back_are_written_anew, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(keys_follow_the_tokens_in_use, setup, fixture_teardown),
        cmocka_unit_test(forks_share_the_memory_of_their_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
