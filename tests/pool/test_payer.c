/* tests/pool/test_payer.c - what pool/payer.c promises: quotas, rights, and who is charged. */
#include "tests/pool/fixture.h"

static int create(struct fixture *f, uint64_t guarantee, uint64_t limit, uint64_t weight)
{
    pool_payer payer = 77;
    int answer =
        pool_tenant_create(f->pool, &(struct pool_quota){guarantee, limit, weight}, &payer);

    assert_true(answer == 0 || payer == 77);
    return answer;
}

static int set_quota(struct fixture *f, pool_payer payer, uint64_t guarantee, uint64_t limit)
{
    int answer = pool_quota_set(f->pool, payer, &(struct pool_quota){guarantee, limit, 1});

    pool_check(f->pool);
    return answer;
}

static uint64_t charged(const struct fixture *f, pool_payer payer)
{
    struct pool_payer_stats stats;

    assert_int_equal(pool_payer_stats(f->pool, payer, &stats), 0);
    return stats.charged_pages[0];
}

static void a_quota_must_make_sense(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(create(f, 0, POOL_UNLIMITED, 0), POOL_INVALID);
    assert_int_equal(create(f, 0, POOL_UNLIMITED, UINT64_C(1) << 32), POOL_INVALID);
    assert_int_equal(create(f, 3, 2, 1), POOL_INVALID);
    assert_int_equal(create(f, 5, 5, 1), 0);
    assert_int_equal(create(f, 4, 4, 1), POOL_INVALID); /* guarantees add up to 9 of 8 pages */
    assert_int_equal(create(f, 3, 4, 1), 0);
}

static void there_are_so_many_payers(void **state)
{
    struct fixture *f = *state;

    for (int i = 1; i < 8; i++)
        assert_int_equal(create(f, 0, 0, 1), 0);
    assert_int_equal(create(f, 0, 0, 1), POOL_LIMIT);
}

static void cached_blocks_are_charged_and_free_ones_are_not(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(charged(f, 0), 3);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(charged(f, 0), 2);
    assert_int_equal(pool_evict(f->pool, 9), 2);
    assert_int_equal(charged(f, 0), 0);
}

static void a_hit_in_a_shared_domain_is_the_domains(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);

    assert_int_equal(alloc(f, .id = 1, .tenant = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(charged(f, domain), 2);
    assert_int_equal(charged(f, 0), 1);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(charged(f, domain), 2);
}

static void a_limit_set_below_what_is_used_is_no_clean_up(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 12);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(set_quota(f, 0, 0, 2), 0);
    assert_int_equal(charged(f, 0), 4);
    assert_int_equal(stat_of(f, "evictions"), 0);
    assert_int_equal(append(f, 1, 1, 1, 0), 0); /* at its limit it evicts its own */
    assert_int_equal(stat_of(f, "evictions"), 1);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), POOL_QUOTA);
    assert_int_equal(set_quota(f, 0, 0, 5), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), 0);
}

static void a_guarantee_taken_back_is_for_others(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);

    assert_int_equal(set_quota(f, 0, 8, POOL_UNLIMITED), 0);
    must_alloc(f, 1, 1, 32);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(set_quota(f, other, 1, POOL_UNLIMITED), POOL_INVALID);
    assert_int_equal(set_quota(f, 0, 7, POOL_UNLIMITED), 0);
    assert_int_equal(set_quota(f, other, 1, POOL_UNLIMITED), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 4), 0);
    assert_int_equal(set_quota(f, 7, 0, 0), POOL_NOT_FOUND);
}

static void weights_changed_at_run_time_count_at_once(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);
    struct pool_payer_stats stats;

    must_alloc(f, 1, 1, 16);
    assert_int_equal(alloc(f, .id = 2, .tenant = other, .seed = 2, .count = 16), 0);
    assert_int_equal(publish(f, 2), 0);
    assert_int_equal(release(f, 1, 0) | release(f, 2, 0), 0);
    assert_int_equal(pool_quota_set(f->pool, 0, &(struct pool_quota){0, POOL_UNLIMITED, 3}),
                     0); /* 6 and 2 */
    assert_int_equal(pool_evict(f->pool, 4), 4);
    assert_int_equal(pool_payer_stats(f->pool, other, &stats), 0);
    assert_int_equal(stats.evictions_suffered, 4);
}

static void only_fillers_make_sequences_in_a_domain(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f); /* tenant 0 may read */
    const struct request request = {.id = 1, .domain = domain, .seed = 1, .count = 8};

    assert_int_equal(request_alloc(f, &request), POOL_NOT_FOUND);
    assert_int_equal(pool_domain_grant(f->pool, domain, 0, POOL_MAY_FILL), 0);
    assert_int_equal(request_alloc(f, &request), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(charged(f, domain), 2);
    assert_int_equal(charged(f, 0), 0);
    assert_int_equal(match(f, .domain = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(f->found.matched, 8);
}

static void only_readers_start_in_a_domain(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f), other = add_tenant(f, 0, POOL_UNLIMITED, 1);

    assert_int_equal(match(f, .shared = domain, .seed = 1, .count = 9), 0);
    assert_int_equal(match(f, .tenant = other, .shared = domain, .seed = 1, .count = 9),
                     POOL_NOT_FOUND);
    assert_int_equal(match(f, .tenant = domain, .shared = domain, .seed = 1, .count = 9),
                     POOL_INVALID);
    assert_int_equal(pool_domain_grant(f->pool, domain, 0, 0), 0);
    assert_int_equal(match(f, .shared = domain, .seed = 1, .count = 9), POOL_NOT_FOUND);
}

static void rights_are_of_tenants_in_domains(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);

    assert_int_equal(pool_domain_grant(f->pool, 0, 0, POOL_MAY_READ), POOL_INVALID);
    assert_int_equal(pool_domain_grant(f->pool, domain, domain, POOL_MAY_READ), POOL_INVALID);
    assert_int_equal(pool_domain_grant(f->pool, domain, 0, 4), POOL_INVALID);
    assert_int_equal(pool_domain_grant(f->pool, 7, 0, POOL_MAY_READ), POOL_NOT_FOUND);
    assert_int_equal(pool_domain_grant(f->pool, domain, 7, POOL_MAY_READ), POOL_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(a_quota_must_make_sense),
        pool_test(there_are_so_many_payers),
        pool_test(cached_blocks_are_charged_and_free_ones_are_not),
        pool_test(a_hit_in_a_shared_domain_is_the_domains),
        pool_test(a_limit_set_below_what_is_used_is_no_clean_up),
        pool_test(a_guarantee_taken_back_is_for_others),
        pool_test(weights_changed_at_run_time_count_at_once),
        pool_test(only_fillers_make_sequences_in_a_domain),
        pool_test(only_readers_start_in_a_domain),
        pool_test(rights_are_of_tenants_in_domains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
