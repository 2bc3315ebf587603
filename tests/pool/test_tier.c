/* tests/pool/test_tier.c - what pool/tier.c promises: tiers, their modes, quotas and numbers. */
#include "tests/pool/fixture.h"

static int setup(void **state)
{
    *state = fixture_create_tiers(8, 0, 8, 8);
    return 0;
}
#define tier_test(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static void no_effect(void *context, const struct pool_effect *effect)
{
    (void)context;
    (void)effect;
}

static int create(const struct pool_config *config)
{
    struct pool_config own = *config;
    struct pool *pool = NULL;

    own.sink.emit = no_effect;
    int answer = pool_create(&own, &pool);
    pool_destroy(pool);
    return answer;
}

static void a_configuration_that_cannot_be_is_refused(void **state)
{
    struct pool_config good, config;
    (void)state;

    fixture_tiers_config(&good, 8, 4, 8, 2);
    assert_int_equal(create(&good), 0);
    config = good;
    config.tiers[POOL_TIER_DEVICE].pages = 1; /* it has its devices */
    assert_int_equal(create(&config), -22);
    config = good;
    config.tiers[POOL_TIER_DISK].max_slots = 0;
    assert_int_equal(create(&config), -22);
    config = good;
    config.tiers[POOL_TIER_HOST].pages = 0;
    assert_int_equal(create(&config), -22);
    config = good;
    config.tiers[POOL_TIER_DISK].max_slots = UINT32_MAX / 2;
    assert_int_equal(create(&config), -22);
    config = good;
    config.max_arenas = 30000; /* of each of three tiers: beyond 16 bits */
    assert_int_equal(create(&config), -22);
}

static void every_tier_has_an_arena_of_each_group(void **state)
{
    struct fixture *f = *state;
    struct pool_arena_description description;
    uint32_t arena;

    assert_int_equal(pool_arena_reserve(f->pool, 0, 0), 0);
    assert_int_equal(pool_tier_arena_find(f->pool, 0, 0, 0, POOL_TIER_HOST, &arena),
                     POOL_NOT_FOUND);
    assert_int_equal(pool_tier_arena_find(f->pool, 0, 0, 0, POOL_TIER_DISK, &arena), 0);
    assert_int_equal(pool_arena_describe(f->pool, arena, &description), 0);
    assert_int_equal(description.tier, POOL_TIER_DISK);
    assert_int_equal(description.group, 0);
    assert_int_equal(description.model, 0);
    assert_int_equal(pool_arena_describe(f->pool, arena_of(f, 0, 0, 0), &description), 0);
    assert_int_equal(description.tier, POOL_TIER_DEVICE);
}

static void a_group_may_be_left_out_of_a_tier(void **state)
{
    struct fixture *f = *state;
    const struct pool_model_shape shape = {
        .block_tokens = FIXTURE_BLOCK,
        .num_layers = 2,
        .num_groups = 1,
        .groups = {{.pages = 1, .slots = 1, .below = {[POOL_TIER_DISK] = {0, 0}}}},
        .num_ranks = 1};
    pool_model model;
    uint32_t arena;

    assert_int_equal(pool_model_register(f->pool, &shape, &model), 0);
    assert_int_equal(alloc(f, .id = 1, .model = model, .seed = 1, .count = 32), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0);
    assert_int_equal(pool_tier_arena_find(f->pool, 0, model, 0, POOL_TIER_DISK, &arena),
                     POOL_NOT_FOUND);
    assert_int_equal(pool_evict(f->pool, 1), 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).skipped[POOL_SKIP_OFF], 0); /* no such wish */
}

static void a_granule_shape_that_cannot_be_is_refused(void **state)
{
    struct fixture *f = *state;
    struct pool_model_shape shape = {
        .block_tokens = FIXTURE_BLOCK,
        .num_layers = 2,
        .num_groups = 1,
        .groups = {{.pages = 1, .slots = 1, .below = {[POOL_TIER_DISK] = {0, 3}}}},
        .num_ranks = 1};
    pool_model model;

    assert_int_equal(pool_model_register(f->pool, &shape, &model), POOL_INVALID);
    shape.groups[0].below[POOL_TIER_DISK] = (struct pool_granule_shape){1, 1u << 24};
    assert_int_equal(pool_model_register(f->pool, &shape, &model), POOL_INVALID);
    shape.groups[0].below[POOL_TIER_DISK] = (struct pool_granule_shape){0, 0};
    shape.groups[0].below[POOL_TIER_HOST] = (struct pool_granule_shape){0, 3}; /* not there */
    assert_int_equal(pool_model_register(f->pool, &shape, &model), 0);
}

/* Text 1, one block, on disk only. */
static void stored_text(struct fixture *f)
{
    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 1);
    assert_int_equal(pool_evict(f->pool, 1), 1);
}

static void what_a_tier_has_is_not_found_while_it_is_off(void **state)
{
    struct fixture *f = *state;

    stored_text(f);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_OFF), 0);
    assert_int_equal(match(f, .seed = 1, .count = 5), 0);
    assert_int_equal(f->found.matched, 0);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_READ_ONLY), 0);
    assert_int_equal(match(f, .seed = 1, .count = 5), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).mode, POOL_TIER_READ_ONLY);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DEVICE, POOL_TIER_OFF), POOL_INVALID);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_HOST, POOL_TIER_OFF), POOL_INVALID);
}

static void a_block_published_while_its_tier_is_off_is_the_same_block(void **state)
{
    struct fixture *f = *state;

    stored_text(f);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_OFF), 0);
    must_alloc(f, 2, 1, 4);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1); /* it was never removed */
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_ON), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(pool_evict(f->pool, 9), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
}

static void copies_under_way_go_on_while_it_is_off(void **state)
{
    struct fixture *f = *state;

    stored_text(f);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 5, .cookie = 7), POOL_PENDING);
    assert_int_equal(pool_tier_set(f->pool, POOL_TIER_DISK, POOL_TIER_OFF), 0);
    assert_int_equal(copy_done(f, 1, 0), 0);
    assert_reply(f, 7, 0);
}

/* ---- quotas --------------------------------------------------------------------------------- */

static uint64_t charged(const struct fixture *f, pool_payer payer, enum pool_tier tier)
{
    struct pool_payer_tier_stats stats;

    assert_int_equal(pool_payer_tier_stats(f->pool, payer, tier, &stats), 0);
    return stats.charged_pages;
}

static void store(struct fixture *f, pool_payer tenant, uint32_t seed, uint64_t count)
{
    uint32_t num_copies = count_effects(f, POOL_EFFECT_COPY);

    assert_int_equal(alloc(f, .id = 9, .tenant = tenant, .seed = seed, .count = count), 0);
    assert_int_equal(publish(f, 9), 0);
    assert_int_equal(release(f, 9, 0), 0);
    do
        num_copies += copies_done(f, num_copies), advance(f);
    while (num_copies < count_effects(f, POOL_EFFECT_COPY));
}

static void a_tenant_at_its_limit_below_evicts_its_own(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);

    assert_int_equal(pool_tier_quota_set(f->pool, 0, POOL_TIER_DISK,
                                         &(struct pool_quota){.limit = 2, .weight = 1}),
                     0);
    store(f, other, 1, 8);
    store(f, 0, 2, 16);
    assert_int_equal(charged(f, 0, POOL_TIER_DISK), 2);
    assert_int_equal(charged(f, other, POOL_TIER_DISK), 2);
    assert_int_equal(charged(f, 0, POOL_TIER_DEVICE), 4); /* its limit is of the disk */
}

static void whom_a_full_tier_evicts_from_is_furthest_over_its_share(void **state)
{
    struct fixture *f = *state;
    pool_payer heavy = add_tenant(f, 0, POOL_UNLIMITED, 1);
    pool_payer sure = add_tenant(f, 0, POOL_UNLIMITED, 1);

    /* 8 pages of disk: one is sure of its two; the others share the rest. */
    assert_int_equal(pool_tier_quota_set(f->pool, sure, POOL_TIER_DISK,
                                         &(struct pool_quota){2, POOL_UNLIMITED, 1}),
                     0);
    store(f, sure, 1, 8);
    store(f, heavy, 2, 24);
    assert_int_equal(charged(f, heavy, POOL_TIER_DISK), 6);
    store(f, 0, 3, 8);
    assert_int_equal(charged(f, sure, POOL_TIER_DISK), 2);
    assert_int_equal(charged(f, heavy, POOL_TIER_DISK), 4);
    assert_int_equal(charged(f, 0, POOL_TIER_DISK), 2);
}

static void a_quota_below_is_checked_against_its_tier(void **state)
{
    struct fixture *f = *state;
    const struct pool_quota nine = {9, POOL_UNLIMITED, 1}, eight = {8, POOL_UNLIMITED, 1};

    assert_int_equal(pool_tier_quota_set(f->pool, 0, POOL_TIER_DISK, &nine), POOL_INVALID);
    assert_int_equal(pool_tier_quota_set(f->pool, 0, POOL_TIER_DISK, &eight), 0);
    assert_int_equal(pool_tier_quota_set(f->pool, 0, POOL_TIER_HOST, &eight), POOL_INVALID);
    assert_int_equal(pool_tier_quota_set(f->pool, 7, POOL_TIER_DISK, &eight), POOL_NOT_FOUND);
}

static void numbers_of_a_tier_add_up(void **state)
{
    struct fixture *f = *state;
    struct pool_tier_stats stats;

    stored_text(f);
    stats = tier_stats(f, POOL_TIER_DISK);
    assert_int_equal(stats.pages, 8);
    assert_int_equal(stats.uncommitted, 7);
    assert_int_equal(stats.idle, 0);
    assert_int_equal(stats.evictable, 1);
    assert_int_equal(stats.stores_started, 1);
    stats = tier_stats(f, POOL_TIER_DEVICE);
    assert_int_equal(stats.pages, 8);
    assert_int_equal(stats.idle, 1);
    assert_int_equal(stats.free, 1);
    assert_int_equal(pool_tier_stats(f->pool, POOL_TIER_HOST, &stats), POOL_INVALID);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_HOST, 1), 0);
}

/* Before anything is there. */
static void a_tier_can_turn_out_smaller(void **state)
{
    struct fixture *f = *state;
    struct pool_tier_stats stats;

    assert_int_equal(pool_tier_shrink(f->pool, POOL_TIER_DEVICE, 4), POOL_INVALID);
    assert_int_equal(pool_tier_shrink(f->pool, POOL_TIER_DISK, 9), POOL_INVALID);
    assert_int_equal(pool_tier_shrink(f->pool, POOL_TIER_DISK, 0), POOL_INVALID);
    assert_int_equal(pool_tier_shrink(f->pool, POOL_TIER_DISK, 3), 0);
    assert_int_equal(pool_tier_stats(f->pool, POOL_TIER_DISK, &stats), 0);
    assert_int_equal(stats.pages, 3);
    assert_int_equal(stats.uncommitted, 3);
    pool_check(f->pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_that_cannot_be_is_refused),
        tier_test(every_tier_has_an_arena_of_each_group),
        tier_test(a_tier_can_turn_out_smaller),
        tier_test(a_group_may_be_left_out_of_a_tier),
        tier_test(a_granule_shape_that_cannot_be_is_refused),
        tier_test(what_a_tier_has_is_not_found_while_it_is_off),
        tier_test(a_block_published_while_its_tier_is_off_is_the_same_block),
        tier_test(copies_under_way_go_on_while_it_is_off),
        tier_test(a_tenant_at_its_limit_below_evicts_its_own),
        tier_test(whom_a_full_tier_evicts_from_is_furthest_over_its_share),
        tier_test(a_quota_below_is_checked_against_its_tier),
        tier_test(numbers_of_a_tier_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
