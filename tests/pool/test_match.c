/* tests/pool/test_match.c - what pool/match.c promises: the longest cached prefix of a prompt. */
#include "tests/pool/fixture.h"

static uint64_t request_matched(struct fixture *f, const struct request *request)
{
    assert_int_equal(request_match(f, request), 0);
    return f->found.matched;
}
#define matched(f, ...) request_matched(f, &(struct request){__VA_ARGS__})

static void a_hit_ends_at_the_first_missing_block(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 16);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(matched(f, .seed = 1, .count = 17), 16);
    assert_int_equal(pool_evict(f->pool, 2), 2);
    assert_int_equal(matched(f, .seed = 1, .count = 17), 8);
}

static void a_match_has_no_side_effect(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 2, 8);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    uint32_t num_effects = f->num_effects;
    uint64_t query_tokens = stat_of(f, "query_tokens");
    for (int i = 0; i < 100; i++)
        assert_int_equal(matched(f, .seed = 1, .count = 9), 8);
    assert_evictable(f, "2,1,4,3");
    assert_int_equal(f->num_effects, num_effects);
    assert_int_equal(stat_of(f, "query_tokens"), query_tokens);
}

static void tenants_and_models_never_share(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    pool_model model = add_model(f, 0, 1, 1);

    must_alloc(f, 1, 1, 8);
    assert_int_equal(matched(f, .tenant = other, .seed = 1, .count = 9), 0);
    assert_int_equal(matched(f, .model = model, .seed = 1, .count = 9), 0);
}

/*
 * Full and sliding by 5: after 13 tokens the sliding group has let go of blocks 0 and 1. Let go of
 * in turn: sliding 1, 2 (windows), then by release full 3, sliding 3, full 2, full 1.
 */
static pool_model fill_windows(struct fixture *f)
{
    pool_model model = add_model_of_two(f, 5);

    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 13), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_table(f, 1, "1,2,3,4;0,0,3,4");
    assert_int_equal(release(f, 1, 0), 0);
    return model;
}

static void a_sliding_group_needs_its_window_only(void **state)
{
    struct fixture *f = *state;
    pool_model model = fill_windows(f);

    assert_int_equal(pool_evict(f->pool, 2), 2); /* sliding 1 and 2 */
    assert_int_equal(matched(f, .model = model, .seed = 1, .count = 13), 12);
    assert_int_equal(alloc(f, .id = 2, .model = model, .seed = 1, .count = 13), 0);
    assert_table(f, 2, "1,2,3,4;0,0,3,4");
}

static void groups_agree_on_the_longest_hit(void **state)
{
    struct fixture *f = *state;
    pool_model model = fill_windows(f);

    /* 12 tokens are found: full 3 blocks, sliding block 3. At 8 and at 4 the sliding ones are
     * there. */
    assert_int_equal(matched(f, .model = model, .seed = 1, .count = 13), 12);
    assert_int_equal(matched(f, .model = model, .seed = 1, .count = 12), 8);
    assert_int_equal(pool_evict(f->pool, 4), 4); /* sliding 1, 2, full 3, sliding 3 */
    assert_int_equal(matched(f, .model = model, .seed = 1, .count = 13), 0);
    assert_int_equal(alloc(f, .id = 2, .model = model, .seed = 1, .count = 13), 0);
    assert_int_equal(stat_of(f, "sliding_lost_tokens"), 8); /* full 1 and 2 were there */
}

static void a_layered_sequence_matches_the_shared_domain_first(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);

    assert_int_equal(alloc(f, .id = 1, .tenant = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 16), 0);
    assert_int_equal(f->found.matched, 8);
    assert_table(f, 2, "s1,s2,1,2");
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(matched(f, .shared = domain, .seed = 1, .count = 17), 16);
    assert_int_equal(matched(f, .seed = 1, .count = 17), 0); /* the private chain lacks its start */
    assert_int_equal(matched(f, .tenant = domain, .seed = 1, .count = 17), 8);
}

static void private_blocks_are_found_again_when_the_shared_prefix_is_refilled(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);

    assert_int_equal(alloc(f, .id = 1, .tenant = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 16), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(pool_clear(f->pool, domain, POOL_NONE), 0);
    assert_int_equal(matched(f, .shared = domain, .seed = 1, .count = 17), 0);
    must_alloc(f, 3, 1, 8); /* in the private domain */
    assert_int_equal(matched(f, .shared = domain, .seed = 1, .count = 17), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_hit_ends_at_the_first_missing_block),
        pool_test(a_match_has_no_side_effect),
        pool_test(tenants_and_models_never_share),
        pool_test(a_sliding_group_needs_its_window_only),
        pool_test(groups_agree_on_the_longest_hit),
        pool_test(a_layered_sequence_matches_the_shared_domain_first),
        pool_test(private_blocks_are_found_again_when_the_shared_prefix_is_refilled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
