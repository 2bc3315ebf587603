/* tests/pool/test_pool.c - what pool/pool.c promises: all memory at start, and caps that answer. */
#include "tests/pool/fixture.h"

#include <errno.h>
#include <string.h>

static void nobody(void *context, const struct pool_effect *effect)
{
    (void)context;
    (void)effect;
}

static int try_create(const struct pool_config *config)
{
    struct pool *pool = NULL;
    int err = pool_create(config, &pool);

    pool_destroy(pool);
    return err;
}

#define AT(cap) offsetof(struct pool_config, cap)
static const struct {
    size_t field; /* a uint32_t of the config */
    uint32_t value;
} bad[] = {
    {AT(num_devices), 0},      {AT(num_devices), POOL_MAX_DEVICES + 1},
    {AT(max_blocks), 0},       {AT(max_sequence_blocks), 0},
    {AT(max_block_tokens), 0}, {AT(max_block_tokens), POOL_MAX_BLOCK_TOKENS + 1},
};

static void a_config_must_make_sense(void **state)
{
    struct pool_config good, config;

    (void)state;
    fixture_config(&good, 8);
    assert_int_equal(try_create(&good), -EINVAL); /* no sink */
    good.sink.emit = nobody;
    assert_int_equal(try_create(&good), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        config = good;
        memcpy((char *)&config + bad[i].field, &bad[i].value, sizeof(bad[i].value));
        assert_int_equal(try_create(&config), -EINVAL);
    }
    config = good;
    config.devices[0].pages = 0;
    assert_int_equal(try_create(&config), -EINVAL);
}

static void it_says_what_it_took(void **state)
{
    struct fixture *f = *state;
    struct pool_config config;

    fixture_config(&config, 8);
    config.max_blocks *= 2;
    struct fixture *larger = fixture_create_with(&config);
    uint64_t more = pool_bytes(larger->pool) - pool_bytes(f->pool);
    assert_true(more >= 256 * 64);  /* a block is at least its cache line */
    assert_true(more <= 256 * 512); /* and a few lines more */
    fixture_destroy(larger);
    pool_destroy(NULL);
}

/* A pool of 64 pages with one cap set. */
static struct fixture *create_with_cap(size_t field, uint32_t value)
{
    struct pool_config config;

    fixture_config(&config, 64);
    memcpy((char *)&config + field, &value, sizeof(value));
    return fixture_create_with(&config);
}
#define create_with(cap, value) create_with_cap(offsetof(struct pool_config, cap), value)

/* The refused verb changed nothing that one can see. */
static void assert_limit(struct fixture *f, int answer, uint32_t num_effects)
{
    assert_int_equal(answer, POOL_LIMIT);
    assert_int_equal(f->num_effects, num_effects);
    pool_check(f->pool);
}

static void max_blocks_answers_limit(void **state)
{
    struct fixture *f = create_with(max_blocks, 4);

    (void)state;
    must_alloc(f, 1, 1, 12);
    assert_limit(f, alloc(f, .id = 2, .seed = 2, .count = 8), f->num_effects);
    assert_limit(f, append(f, 1, 1, 8, 0), f->num_effects);
    assert_text(f, 1, 1, 12);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), 0);
    fixture_destroy(f);
}

static void max_sequences_answers_limit(void **state)
{
    struct fixture *f = create_with(max_sequences, 1);

    (void)state;
    must_alloc(f, 1, 1, 4);
    assert_limit(f, alloc(f, .id = 2, .seed = 2, .count = 4), f->num_effects);
    assert_limit(f, fork_to(f, 1, 2), f->num_effects);
    assert_int_equal(stat_of(f, "refused_limit"), 1);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(alloc(f, .id = 2, .seed = 2, .count = 4), 0);
    fixture_destroy(f);
}

static void max_sequence_blocks_answers_limit(void **state)
{
    struct fixture *f = create_with(max_sequence_blocks, 4);

    (void)state;
    assert_limit(f, alloc(f, .id = 1, .seed = 1, .count = 17), f->num_effects);
    must_alloc(f, 1, 1, 16);
    assert_limit(f, append(f, 1, 1, 1, 0), f->num_effects);
    pool_step step;
    assert_limit(f, step_one(f, 1, 1, 1, &step), f->num_effects);
    fixture_destroy(f);
}

static void max_tokens_answers_limit(void **state)
{
    struct pool_config config;

    (void)state;
    fixture_config(&config, 250);
    config.max_tokens = 0;
    config.max_sequences = 2; /* a chunk each: 41 blocks of 4 tokens at 48 bytes in 2 KiB */
    struct fixture *f = fixture_create_with(&config);
    assert_limit(f, alloc(f, .id = 1, .seed = 1, .count = 500), f->num_effects);
    must_alloc(f, 1, 1, 4);
    assert_limit(f, append(f, 1, 1, 500, 0), f->num_effects);
    assert_text(f, 1, 1, 4);
    fixture_destroy(f);
}

static void max_arenas_answers_limit(void **state)
{
    struct fixture *f = create_with(max_arenas, 2);
    pool_model two = add_model_of_two(f, 0);

    (void)state;
    must_alloc(f, 1, 1, 4);
    assert_limit(f, alloc(f, .id = 2, .model = two, .seed = 2, .count = 4), f->num_effects);
    fixture_destroy(f);
}

static void max_sessions_answers_limit(void **state)
{
    struct fixture *f = create_with(max_sessions, 1);
    pool_session session;

    (void)state;
    assert_limit(f, pool_session_open(f->pool, &session), f->num_effects);
    assert_int_equal(pool_session_end(f->pool, 0, false, NULL), 0);
    advance(f);
    assert_int_equal(pool_session_open(f->pool, &session), 0);
    fixture_destroy(f);
}

static void max_transfers_answers_limit(void **state)
{
    struct fixture *f = create_with(max_transfers, 1);

    (void)state;
    must_alloc(f, 1, 1, 6);
    must_alloc(f, 3, 3, 6);
    assert_int_equal(fork_to(f, 1, 2), 0);
    assert_int_equal(fork_to(f, 3, 4), 0);
    assert_int_equal(append(f, 1, 1, 1, 5), POOL_PENDING);
    assert_limit(f, append(f, 3, 3, 1, 6), f->num_effects);
    assert_text(f, 3, 3, 6);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_int_equal(append(f, 3, 3, 1, 6), POOL_PENDING);
    assert_int_equal(copy_done(f, 1, 0), 0);
    fixture_destroy(f);
}

static void max_waiters_answers_limit(void **state)
{
    struct fixture *f = create_with(max_waiters, 1);
    const struct request request = {.seed = 1, .count = 9};

    (void)state;
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 8, .is_unfilled = true), 0);
    assert_int_equal(request_wait(f, &request, 100, 7), POOL_PENDING);
    assert_limit(f, request_wait(f, &request, 100, 8), f->num_effects);
    fixture_destroy(f);
}

static void max_steps_answers_limit(void **state)
{
    struct fixture *f = create_with(max_steps, 1);
    pool_step step, other;

    (void)state;
    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_int_equal(step_one(f, 1, 1, 1, &step), 0);
    assert_limit(f, step_one(f, 2, 2, 1, &other), f->num_effects);
    assert_text(f, 2, 2, 4);
    assert_int_equal(pool_step_end(f->pool, step, false, 0), 0);
    assert_int_equal(step_one(f, 2, 2, 1, &other), 0);
    fixture_destroy(f);
}

static void max_step_rows_answers_limit(void **state)
{
    struct fixture *f = create_with(max_step_rows, 1);
    const struct row rows[] = {{1, 1}, {2, 1}};
    pool_step step;

    (void)state;
    must_alloc(f, 1, 1, 4);
    must_alloc(f, 2, 2, 4);
    assert_limit(f, step_begin(f, rows, 2, 1, 0, &step), f->num_effects);
    assert_int_equal(step_begin(f, rows, 1, 1, 0, &step), 0);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_must_make_sense),
        pool_test(it_says_what_it_took),
        cmocka_unit_test(max_blocks_answers_limit),
        cmocka_unit_test(max_sequences_answers_limit),
        cmocka_unit_test(max_sequence_blocks_answers_limit),
        cmocka_unit_test(max_tokens_answers_limit),
        cmocka_unit_test(max_arenas_answers_limit),
        cmocka_unit_test(max_sessions_answers_limit),
        cmocka_unit_test(max_transfers_answers_limit),
        cmocka_unit_test(max_waiters_answers_limit),
        cmocka_unit_test(max_steps_answers_limit),
        cmocka_unit_test(max_step_rows_answers_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
