/* tests/pool/test_block.c - what pool/block.c promises: private, published, held, evictable, gone.
 */
#include "tests/pool/fixture.h"

#include <string.h>

static uint32_t holds(const struct fixture *f, uint32_t slot)
{
    return pool_slot_holds(f->pool, arena_of(f, 0, 0, 0), slot);
}

static void a_block_is_private_until_it_is_published(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8), 0);
    assert_int_equal(stat_of(f, "reserved"), 2);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(stat_of(f, "reserved"), 0);
    assert_int_equal(stat_of(f, "held"), 2);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_published_block_is_cached_when_it_is_let_go_of(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "held"), 0);
    assert_int_equal(stat_of(f, "evictable"), 2);
    assert_int_equal(match(f, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_private_block_is_free_when_it_is_let_go_of(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 12), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(stat_of(f, "evictable"), 0);
    assert_free(f, "3,2,1"); /* the first let go of in front */
}

static void a_block_stays_until_its_last_hold_is_let_go_of(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 1, 9);
    assert_int_equal(holds(f, 1), 2);
    assert_int_equal(holds(f, 3), 1);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(holds(f, 1), 1);
    assert_evictable(f, "");
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(holds(f, 1), 0);
    assert_evictable(f, "2,1");
}

static void events_say_what_may_be_found(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
    assert_int_equal(nth_effect(f, POOL_EFFECT_STORED, 0)->slot, 1);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
    const struct pool_effect *removed = nth_effect(f, POOL_EFFECT_REMOVED, 0);
    assert_int_equal(removed->slot, 2);
    assert_memory_equal(removed->key, nth_effect(f, POOL_EFFECT_STORED, 1)->key,
                        sizeof(*removed->key));
}

static void an_evicted_slot_is_reused_last(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 4);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 8), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_free(f, "3,2");
    assert_int_equal(pool_evict(f->pool, 9), 1);
    assert_free(f, "3,2,1");
}

/* One block of @count tokens with the key of 5s: matched tokens. */
static uint64_t match_block(struct fixture *f, pool_model model, uint32_t *ids, uint32_t count)
{
    struct pool_key key;
    const struct pool_prompt prompt = {
        .shared = POOL_NONE, .model = model, .tokens = {ids, count, &key, NULL}, .is_raw = true};

    memset(&key, 5, sizeof(key));
    assert_int_equal(pool_match(f->pool, &prompt, &f->found), 0);
    return f->found.matched;
}

/* Publishes one block of @count tokens under the key of 5s, then asks with one other token. */
static void check_collision(struct fixture *f, pool_model model, uint32_t *ids, uint32_t count)
{
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    struct pool_key key;
    const struct pool_prompt prompt = {
        .shared = POOL_NONE, .model = model, .tokens = {ids, count, &key, NULL}};

    memset(&key, 5, sizeof(key));
    assert_int_equal(pool_alloc(f->pool, (struct pool_name){0, 1}, &prompt, &options, &f->found),
                     0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(match_block(f, model, ids, count), count);
    ids[count - 1]++;
    assert_int_equal(match_block(f, model, ids, count), 0);
    assert_int_equal(stat_of(f, "token_mismatches"), 1);
}

static void a_key_with_other_tokens_is_a_miss_and_counted(void **state)
{
    uint32_t ids[FIXTURE_BLOCK] = {1, 2, 3, 4};

    check_collision(*state, 0, ids, FIXTURE_BLOCK);
}

static void tokens_of_a_large_block_are_compared_by_their_hash(void **state)
{
    struct pool_config config;
    const struct pool_model_shape shape = {
        .block_tokens = 40, .num_groups = 1, .groups = {{0, 1, 1}}, .num_ranks = 1};
    uint32_t ids[40] = {1, 2, 3, 4};
    pool_model model;

    (void)state;
    fixture_config(&config, 8);
    config.max_block_tokens = 40;
    struct fixture *f = fixture_create_with(&config);
    assert_int_equal(pool_model_register(f->pool, &shape, &model), 0);
    check_collision(f, model, ids, 40);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_block_is_private_until_it_is_published),
        pool_test(a_published_block_is_cached_when_it_is_let_go_of),
        pool_test(a_private_block_is_free_when_it_is_let_go_of),
        pool_test(a_block_stays_until_its_last_hold_is_let_go_of),
        pool_test(events_say_what_may_be_found),
        pool_test(an_evicted_slot_is_reused_last),
        pool_test(a_key_with_other_tokens_is_a_miss_and_counted),
        cmocka_unit_test(tokens_of_a_large_block_are_compared_by_their_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
