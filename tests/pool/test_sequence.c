/* tests/pool/test_sequence.c - what pool/sequence.c promises: sequences by name, and what they let
 * go. */
#include "tests/pool/fixture.h"

static void a_name_is_of_its_session(void **state)
{
    struct fixture *f = *state;
    pool_session other = add_session(f);
    struct pool_sequence_description description;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(pool_describe(f->pool, (struct pool_name){other, 1}, &description),
                     POOL_NOT_FOUND);
    assert_int_equal(pool_release(f->pool, (struct pool_name){other, 1}, 0), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 1, .session = other, .seed = 2, .count = 4), 0);
    assert_int_equal(pool_release(f->pool, (struct pool_name){other, 1}, 0), 0);
    assert_text(f, 1, 1, 4);
}

static void a_description_says_what_was_asked_for(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);
    struct pool_sequence_description description;

    assert_int_equal(alloc(f, .id = 1, .shared = domain, .seed = 1, .count = 6, .is_mapped = true,
                           .is_unfilled = true),
                     0);
    assert_int_equal(pool_describe(f->pool, (struct pool_name){0, 1}, &description), 0);
    assert_int_equal(description.tenant, 0);
    assert_int_equal(description.domain, 0);
    assert_int_equal(description.shared, domain);
    assert_int_equal(description.length, 6);
    assert_int_equal(description.num_complete, 0);
    assert_true(description.is_mapped && !description.is_filled && !description.is_preempted);
    assert_int_equal(fill(f, 1), 0);
    assert_int_equal(complete_of(f, 1), 6);
    assert_int_equal(fill(f, 1), POOL_INVALID);
}

static void a_release_walks_from_the_last_position_to_the_first(void **state)
{
    struct fixture *f = *state;
    pool_model model = add_model_of_two(f, 0);
    uint32_t slots[4];

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 1, 0), POOL_NOT_FOUND);
    /* Position 2 of both groups, then position 1 of both: evict takes them in that order. */
    assert_int_equal(pool_evict(f->pool, 2), 2);
    for (uint32_t group = 0; group < 2; group++) {
        assert_int_equal(
            pool_arena_order(f->pool, arena_of(f, 0, model, group), POOL_ORDER_EVICTABLE, slots, 4),
            1);
        assert_int_equal(slots[0], 1);
    }
}

static void a_truncated_sequence_lets_go_of_its_end(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 16), 0);
    assert_int_equal(truncate_to(f, 1, 17, 0), POOL_INVALID);
    assert_int_equal(truncate_to(f, 1, 5, 0), 0);
    assert_table(f, 1, "1,2");
    assert_text(f, 1, 1, 5);
    assert_free(f, "4,3");
    assert_int_equal(append(f, 1, 2, 3, 0), 0); /* a roll-back, then other tokens */
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(truncate_to(f, 1, 0, 0), 0);
    assert_table(f, 1, "");
    assert_int_equal(append(f, 1, 3, 1, 0), 0);
}

static void a_preempted_sequence_keeps_its_tokens_only(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_text(f, 1, 1, 10);
    assert_evictable(f, "2,1");
    assert_int_equal(truncate_to(f, 1, 4, 0), POOL_INVALID);
    assert_int_equal(stat_of(f, "preemptions"), 1);
    assert_int_equal(release(f, 1, 0), 0);
}

static void tokens_and_keys_can_be_asked_for(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 1};
    struct pool_key key;
    uint32_t ids[4];

    must_alloc(f, 1, 1, 10);
    assert_int_equal(pool_sequence_tokens(f->pool, name, 3, 4, ids), 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(ids[i], 1003 + i);
    assert_int_equal(pool_sequence_tokens(f->pool, name, 7, 4, ids), POOL_INVALID);
    assert_int_equal(pool_sequence_tokens(f->pool, name, 11, 0, ids), POOL_INVALID);
    assert_int_equal(pool_sequence_tokens(f->pool, name, UINT64_MAX, 2, ids), POOL_INVALID);
    assert_int_equal(pool_sequence_key(f->pool, name, 1, &key), 0);
    assert_memory_equal(&key, nth_effect(f, POOL_EFFECT_STORED, 1)->key, sizeof(key));
    assert_int_equal(pool_sequence_key(f->pool, name, 2, &key), POOL_INVALID);
}

static void a_table_is_copied_as_far_as_there_is_room(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 1};
    struct pool_place places[3] = {{.slot = 77}, {.slot = 77}, {.slot = 77}};
    uint32_t count;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(pool_table(f->pool, name, 0, places, 2, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(places[1].slot, 2);
    assert_int_equal(places[2].slot, 77);
    assert_int_equal(pool_table(f->pool, name, 1, places, 2, &count), POOL_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_name_is_of_its_session),
        pool_test(a_description_says_what_was_asked_for),
        pool_test(a_release_walks_from_the_last_position_to_the_first),
        pool_test(a_truncated_sequence_lets_go_of_its_end),
        pool_test(a_preempted_sequence_keeps_its_tokens_only),
        pool_test(tokens_and_keys_can_be_asked_for),
        pool_test(a_table_is_copied_as_far_as_there_is_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
