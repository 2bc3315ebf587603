/* tests/pool/test_allocate.c - what pool/allocate.c promises: match, hold, take the rest, or
 * nothing. */
#include "tests/pool/fixture.h"

static void new_blocks_have_ascending_slots(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 10), 0);
    assert_table(f, 1, "1,2,3");
    assert_int_equal(f->found.matched, 0);
    assert_text(f, 1, 1, 10);
}

static void a_hit_is_not_evicted_by_its_own_allocation(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 16);
    must_alloc(f, 2, 2, 16);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(release(f, 2, 0), 0);
    assert_evictable(f, "4,3,2,1,8,7,6,5");
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 32), 0);
    assert_int_equal(f->found.matched, 16);
    assert_table(f, 3, "1,2,3,4,8,7,6,5");
    assert_evictable(f, "");
}

static void the_last_token_of_a_prompt_is_no_hit(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 8), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(alloc(f, .id = 3, .seed = 1, .count = 8, .is_raw = true), 0);
    assert_int_equal(f->found.matched, 8);
}

static void a_refused_allocation_changes_nothing(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 24);
    must_alloc(f, 2, 2, 4);
    must_alloc(f, 3, 3, 4);
    assert_int_equal(release(f, 2, 0), 0);
    assert_int_equal(release(f, 3, 0), 0);
    uint32_t num_effects = f->num_effects;
    uint64_t query_tokens = stat_of(f, "query_tokens");

    /* The hit is block 7; of the four more only 8 can be had. */
    assert_int_equal(alloc(f, .id = 4, .seed = 2, .count = 20), POOL_NO_BLOCKS);
    assert_evictable(f, "7,8");
    assert_free(f, "");
    assert_int_equal(f->num_effects, num_effects);
    assert_int_equal(stat_of(f, "query_tokens"), query_tokens);
    assert_int_equal(stat_of(f, "refused_no_blocks"), 1);
    assert_int_equal(release(f, 4, 0), POOL_NOT_FOUND);
}

static void more_than_the_empty_pool_never_fits(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 33), POOL_NEVER_FITS);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 33, .take = 32), 0);
    assert_int_equal(length_of(f, 1), 32);
}

static void more_than_the_limit_never_fits(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 2, 1);

    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 9), POOL_NEVER_FITS);
    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 8), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = small, .seed = 2, .count = 1), POOL_QUOTA);
}

static void a_tenant_at_its_limit_evicts_its_own_first(void **state)
{
    struct fixture *f = *state;
    pool_payer small = add_tenant(f, 0, 2, 1);

    assert_int_equal(alloc(f, .id = 1, .tenant = small, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .tenant = small, .seed = 2, .count = 4), 0);
    assert_table(f, 2, "2");
    assert_int_equal(stat_of(f, "evictions"), 1);
    assert_int_equal(stat_of(f, "uncommitted"), 6);
}

static void an_allocation_under_the_watermark_is_refused(void **state)
{
    struct pool_config config;

    (void)state;
    fixture_config(&config, 8);
    config.devices[0].watermark = 2;
    struct fixture *f = fixture_create_with(&config);
    must_alloc(f, 1, 1, 32); /* nobody else holds a block: all of the pool */
    assert_int_equal(truncate_to(f, 1, 20, 0), 0);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(append(f, 2, 2, 4, 0), 0); /* it counts for alloc and resume only */
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), 0);
    fixture_destroy(f);
}

static void a_draining_pool_takes_no_new_sequences(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    must_alloc(f, 2, 2, 8);
    assert_int_equal(preempt(f, 2, 0), 0);
    pool_drain(f->pool, true);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), POOL_DRAINING);
    assert_int_equal(fork_to(f, 1, 3), POOL_DRAINING);
    assert_int_equal(append(f, 1, 1, 4, 0), 0);
    assert_int_equal(resume(f, 2), 0);
    pool_drain(f->pool, false);
    assert_int_equal(alloc(f, .id = 3, .seed = 3, .count = 4), 0);
}

static void a_first_part_takes_only_its_blocks(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 8);
    assert_int_equal(alloc(f, .id = 2, .seed = 1, .count = 32, .take = 6), 0);
    assert_int_equal(f->found.matched, 8);
    assert_table(f, 2, "1,2,3,4");
    assert_text(f, 2, 1, 14);
}

static void a_preempted_sequence_is_resumed_from_the_cache(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 1, 10);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_table(f, 1, "");
    assert_int_equal(preempt(f, 1, 0), POOL_INVALID);
    assert_int_equal(resume(f, 1), 0);
    assert_int_equal(f->found.matched, 8);
    assert_table(f, 1, "1,2,3");
    assert_text(f, 1, 1, 10);
    assert_int_equal(resume(f, 1), POOL_INVALID);
}

/* Nothing of it can be allocated: it can be let go of. */
static void an_empty_sequence_is_preempted_but_not_resumed(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 1};
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    const struct pool_tokens none = {0};

    must_alloc(f, 1, 1, 8);
    assert_int_equal(truncate_to(f, 1, 0, 0), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    assert_int_equal(pool_resume(f->pool, name, &none, &options, &f->found), POOL_INVALID);
    assert_int_equal(release(f, 1, 0), 0);
}

static void a_resume_needs_the_sequences_own_tokens(void **state)
{
    struct fixture *f = *state;
    const struct pool_name name = {0, 1};
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    const struct pool_key keys[2] = {{{1}}, {{2}}};
    uint32_t ids[8];

    must_alloc(f, 1, 1, 8);
    assert_int_equal(pool_sequence_tokens(f->pool, name, 0, 8, ids), 0);
    assert_int_equal(preempt(f, 1, 0), 0);
    const struct pool_tokens fewer = {ids, 7, keys, NULL}, same = {ids, 8, keys, NULL};
    assert_int_equal(pool_resume(f->pool, name, &fewer, &options, &f->found), POOL_INVALID);
    ids[3]++;
    assert_int_equal(pool_resume(f->pool, name, &same, &options, &f->found), POOL_INVALID);
    ids[3]--;
    assert_int_equal(pool_resume(f->pool, name, &same, &options, &f->found), 0);
}

static void who_asks_and_for_what_must_exist(void **state)
{
    struct fixture *f = *state;
    pool_payer other = add_tenant(f, 0, POOL_UNLIMITED, 1);

    must_alloc(f, 1, 1, 4);
    assert_int_equal(alloc(f, .id = 1, .seed = 2, .count = 4), POOL_EXISTS);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 0), POOL_INVALID);
    assert_int_equal(alloc(f, .id = 2, .tenant = 7, .count = 4), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 2, .domain = other, .count = 4), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 2, .shared = other, .count = 4), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 2, .model = 1, .count = 4), POOL_NOT_FOUND);
    assert_int_equal(alloc(f, .id = 2, .session = 1, .count = 4), POOL_NOT_FOUND);
}

static void an_allocation_advances_releases_under_way(void **state)
{
    struct fixture *f = *state;
    pool_session session = add_session(f);

    assert_int_equal(alloc(f, .id = 1, .session = session, .seed = 1, .count = 32), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(pool_session_end(f->pool, session, false, NULL), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 32), 0);
}

static void a_refusal_leaves_no_arena_behind(void **state)
{
    struct fixture *f = *state;
    uint32_t arena;

    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 99), POOL_NEVER_FITS);
    assert_int_equal(pool_arena_find(f->pool, 0, 0, 0, &arena), POOL_NOT_FOUND);
}

static void a_resume_asks_for_its_rights_again(void **state)
{
    struct fixture *f = *state;
    pool_payer domain = add_domain(f);

    assert_int_equal(alloc(f, .id = 1, .tenant = domain, .seed = 1, .count = 8), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(alloc(f, .id = 2, .shared = domain, .seed = 1, .count = 10), 0);
    assert_int_equal(preempt(f, 2, 0), 0);
    assert_int_equal(pool_domain_grant(f->pool, domain, 0, 0), 0);
    assert_int_equal(resume(f, 2), POOL_NOT_FOUND);
    assert_int_equal(pool_domain_grant(f->pool, domain, 0, POOL_MAY_READ), 0);
    assert_int_equal(resume(f, 2), 0);
    assert_int_equal(f->found.matched, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(new_blocks_have_ascending_slots),
        pool_test(a_hit_is_not_evicted_by_its_own_allocation),
        pool_test(the_last_token_of_a_prompt_is_no_hit),
        pool_test(a_refused_allocation_changes_nothing),
        pool_test(more_than_the_empty_pool_never_fits),
        pool_test(more_than_the_limit_never_fits),
        pool_test(a_tenant_at_its_limit_evicts_its_own_first),
        cmocka_unit_test(an_allocation_under_the_watermark_is_refused),
        pool_test(a_draining_pool_takes_no_new_sequences),
        pool_test(a_first_part_takes_only_its_blocks),
        pool_test(a_preempted_sequence_is_resumed_from_the_cache),
        pool_test(an_empty_sequence_is_preempted_but_not_resumed),
        pool_test(a_resume_needs_the_sequences_own_tokens),
        pool_test(who_asks_and_for_what_must_exist),
        pool_test(an_allocation_advances_releases_under_way),
        pool_test(a_refusal_leaves_no_arena_behind),
        pool_test(a_resume_asks_for_its_rights_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
