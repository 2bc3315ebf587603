/* tests/pool/test_age.c - what pool/age.c promises: a bound for how old a stamp is. */
#include "pool/age.h"
#include "tests/pool/fixture.h"

static void a_stamp_is_no_older_than_the_tick_before_it(void **state)
{
    struct ages ages = {.num = 0};
    (void)state;

    assert_int_equal(ages_of(&ages, 5, 700), 700); /* no tick yet: since the start */
    ages_tick(&ages, 10, false, 1000);             /* stamps up to 10 were given by then */
    ages_tick(&ages, 20, false, 3000);
    assert_int_equal(ages_of(&ages, 10, 4000), 4000);
    assert_int_equal(ages_of(&ages, 11, 4000), 3000);
    assert_int_equal(ages_of(&ages, 20, 4000), 3000);
    assert_int_equal(ages_of(&ages, 21, 4000), 1000);
}

/* A clock that began long before: the machine's. */
static void what_is_of_an_earlier_life_is_as_old_as_this_one(void **state)
{
    struct ages ages = {.num = 0};
    (void)state;

    ages_tick(&ages, 100, true, 5000000);
    assert_int_equal(ages_of(&ages, 7, 5000000), 0);
    assert_int_equal(ages_of(&ages, 7, 5002000), 2000);
    ages_tick(&ages, 101, false, 5004000);
    assert_int_equal(ages_of(&ages, 7, 5009000), 9000);
    assert_int_equal(ages_of(&ages, 101, 5009000), 9000);
    assert_int_equal(ages_of(&ages, 102, 5009000), 5000);
}

static void samples_get_coarser_as_time_goes_on(void **state)
{
    struct ages ages = {.num = 0};
    uint64_t now_ms = 0;
    (void)state;

    for (uint64_t stamp = 1; stamp <= 100000; stamp++) { /* 10 stamps a second */
        now_ms = stamp * 100;
        ages_tick(&ages, stamp, false, now_ms);
    }
    assert_true(ages.num <= AGE_SAMPLES);
    for (uint64_t stamp = 1; stamp <= 100000; stamp += 997) {
        uint64_t age = ages_of(&ages, stamp, now_ms);
        assert_true(age >= now_ms - stamp * 100);
        assert_true(age <= now_ms - stamp * 100 + now_ms / 64 + 1000);
    }
}

static void a_tier_says_how_old_its_coldest_block_is(void **state)
{
    (void)state;
    struct fixture *f = fixture_create_tiers(4, 0, 8, 4);

    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).coldest_age_ms, 0); /* none */
    pool_tick(f->pool, 1000);
    must_alloc(f, 1, 1, 4);
    assert_int_equal(release(f, 1, 0), 0);
    pool_tick(f->pool, 5000);
    assert_int_equal(copies_done(f, 0), 1);
    pool_tick(f->pool, 9000);
    assert_int_equal(tier_stats(f, POOL_TIER_DEVICE).coldest_age_ms, 8000);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).coldest_age_ms, 4000);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stamp_is_no_older_than_the_tick_before_it),
        cmocka_unit_test(what_is_of_an_earlier_life_is_as_old_as_this_one),
        cmocka_unit_test(samples_get_coarser_as_time_goes_on),
        cmocka_unit_test(a_tier_says_how_old_its_coldest_block_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
