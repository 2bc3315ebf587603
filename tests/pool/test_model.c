/* tests/pool/test_model.c - what pool/model.c promises: geometries, and the devices of their ranks.
 */
#include "tests/pool/fixture.h"

#include <string.h>

static const struct pool_model_shape good = {.block_tokens = FIXTURE_BLOCK,
                                             .num_layers = 2,
                                             .num_groups = 1,
                                             .groups = {{0, 1, 1}},
                                             .num_ranks = 1};

static int try(struct fixture *f, struct pool_model_shape shape)
{
    pool_model model = 77;
    int answer = pool_model_register(f->pool, &shape, &model);

    assert_true(answer == 0 || model == 77);
    return answer;
}

/* The good shape with one field changed. */
static int try_with(struct fixture *f, size_t field, uint32_t value)
{
    struct pool_model_shape shape = good;

    memcpy((char *)&shape + field, &value, sizeof(value));
    return try(f, shape);
}

#define AT(field) offsetof(struct pool_model_shape, field)
/* clang-format off */
static const struct {
    size_t field; /* a uint32_t of the shape */
    uint32_t value;
} bad[] = {
    {AT(block_tokens),     0},
    {AT(num_groups),       0},
    {AT(num_groups),       POOL_MAX_GROUPS + 1},
    {AT(num_layers),       POOL_MAX_LAYERS + 1},
    {AT(num_ranks),        0},
    {AT(num_ranks),        POOL_MAX_DEVICES + 1},
    {AT(num_ranks),        2}, /* both on device 0 */
    {AT(ranks[0]),         1}, /* there is one device */
    {AT(groups[0].window), 1},
    {AT(groups[0].pages),  0},
    {AT(groups[0].slots),  0},
};
/* clang-format on */

static void what_makes_no_sense_is_invalid(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(try_with(*state, bad[i].field, bad[i].value), POOL_INVALID);
    assert_int_equal(try(*state, good), 0);
}

static void over_a_cap_the_answer_is_limit(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(try_with(f, AT(block_tokens), FIXTURE_BLOCK + 1), POOL_LIMIT);
    for (int i = 1; i < 8; i++)
        assert_int_equal(try(f, good), 0);
    assert_int_equal(try(f, good), POOL_LIMIT);
}

/* Two devices of 4 and 2 pages, and a model with a rank on each. */
static struct fixture *create_two_devices(pool_model *out_both, pool_model *out_second)
{
    struct pool_config config;
    struct pool_model_shape shape = good;

    fixture_config(&config, 4);
    config.devices[1].pages = 2;
    config.num_devices = 2;
    struct fixture *f = fixture_create_with(&config);
    shape.ranks[0] = 1;
    assert_int_equal(pool_model_register(f->pool, &shape, out_second), 0);
    shape.num_ranks = 2;
    shape.ranks[0] = 0;
    shape.ranks[1] = 1;
    assert_int_equal(pool_model_register(f->pool, &shape, out_both), 0);
    return f;
}

static void a_granule_takes_pages_on_every_ranks_device(void **state)
{
    pool_model both, second;
    struct fixture *f = create_two_devices(&both, &second);
    struct pool_payer_stats stats;

    (void)state;
    assert_int_equal(alloc(f, .id = 1, .model = both, .seed = 1, .count = 4), 0);
    assert_int_equal(alloc(f, .id = 2, .model = second, .seed = 2, .count = 4), 0);
    assert_int_equal(pool_payer_stats(f->pool, 0, &stats), 0);
    assert_int_equal(stats.charged_pages[0], 1);
    assert_int_equal(stats.charged_pages[1], 2);
    assert_int_equal(stat_of(f, "uncommitted"), 3);
    fixture_destroy(f);
}

static void one_full_device_refuses(void **state)
{
    pool_model both, second;
    struct fixture *f = create_two_devices(&both, &second);

    (void)state;
    assert_int_equal(alloc(f, .id = 1, .model = second, .seed = 1, .count = 8), 0);
    assert_int_equal(alloc(f, .id = 2, .model = both, .seed = 2, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(alloc(f, .id = 2, .model = both, .seed = 2, .count = 12), POOL_NEVER_FITS);
    assert_int_equal(stat_of(f, "uncommitted"), 4);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 16), 0); /* device 0 has all its pages */
    fixture_destroy(f);
}

static void a_rank_evicts_on_the_device_that_is_short(void **state)
{
    pool_model both, second;
    struct fixture *f = create_two_devices(&both, &second);

    (void)state;
    must_alloc(f, 1, 1, 4); /* colder, but on device 0, which has pages */
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .model = second, .seed = 2, .count = 8), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(alloc(f, .id = 3, .model = both, .seed = 3, .count = 4), 0);
    assert_int_equal(stat_of(f, "evictions"), 1);
    assert_evictable(f, "1");
    fixture_destroy(f);
}

static void each_device_has_its_watermark(void **state)
{
    struct pool_config config;
    struct pool_model_shape shape = good;
    pool_model second;

    (void)state;
    fixture_config(&config, 4);
    config.devices[1] = (struct pool_device){.pages = 4, .watermark = 2};
    config.num_devices = 2;
    struct fixture *f = fixture_create_with(&config);
    shape.ranks[0] = 1;
    assert_int_equal(pool_model_register(f->pool, &shape, &second), 0);
    must_alloc(f, 1, 1, 12);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), 0);
    assert_int_equal(alloc(f, .id = 3, .model = second, .seed = 3, .count = 12), POOL_NO_BLOCKS);
    assert_int_equal(alloc(f, .id = 3, .model = second, .seed = 3, .count = 8), 0);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(what_makes_no_sense_is_invalid),
        pool_test(over_a_cap_the_answer_is_limit),
        cmocka_unit_test(a_granule_takes_pages_on_every_ranks_device),
        cmocka_unit_test(one_full_device_refuses),
        cmocka_unit_test(a_rank_evicts_on_the_device_that_is_short),
        cmocka_unit_test(each_device_has_its_watermark),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
