/* tests/gpu/test_attends.c - attends of a device: over its arenas, ended by its completions. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 16, DIM = 64, HEADS = 2, LENGTH = 4 * TOKENS, COOKIE = 77 };

/* K and V of one head in f32: 4 full blocks in slots 3, 1, 4, 2, and one new row behind them. */
static const uint32_t slots[] = {3, 1, 4, 2, 5};
static const struct gpu_attend_shape shape = {.num_layers = 1,
                                              .num_q_heads = HEADS,
                                              .num_kv_heads = 1,
                                              .k_dim = DIM,
                                              .v_dim = DIM,
                                              .block_tokens = TOKENS,
                                              .kv_dtype = GPU_F32,
                                              .is_causal = true};
static const uint64_t block_bytes = 2ull * TOKENS * DIM * sizeof(float);

struct fixture {
    struct gpu_device *device;
    struct gpu_step_plan *plan;
    float q[HEADS * DIM], k[DIM], v[DIM], out[HEADS * DIM];
};

static struct fixture fixture;

/* Every key is 0, so all weights are equal, and V of token t is t everywhere: the mean comes out.
 */
static void fill_blocks(struct gpu_device *device)
{
    struct gpu_granule granule;

    assert_int_equal(gpu_choose_granule(block_bytes, PAGE, &granule), 0);
    for (uint32_t token = 0; token < LENGTH; token++) {
        char *block =
            (char *)gpu_arena_base(device, 0) + (slots[token / TOKENS] - 1) * granule.stride_bytes;
        float *v = (float *)block + (TOKENS + token % TOKENS) * DIM;
        for (uint32_t i = 0; i < DIM; i++)
            v[i] = (float)token;
    }
}

static int set_up(void **state, uint32_t num_workers)
{
    const struct gpu_device_options options = {.budget_bytes = 2 * PAGE,
                                               .page_bytes = PAGE,
                                               .max_arenas = 1,
                                               .max_operations = 2,
                                               .num_workers = num_workers,
                                               .attend_inline_us = num_workers ? 1 : 0};
    const struct gpu_step_limits limits = {
        .max_sequences = 1, .max_rows = 1, .max_blocks = 8, .max_kv_heads = 1};

    memset(&fixture, 0, sizeof(fixture));
    fixture.device = device_create_with(&options);
    arena_open(fixture.device, 0, block_bytes, 1, false);
    assert_int_equal(commit_now(fixture.device, 0, 0), 0);
    fill_blocks(fixture.device);
    assert_int_equal(
        gpu_step_plan_create(gpu_device_attention(fixture.device), &limits, &fixture.plan), 0);
    for (uint32_t i = 0; i < DIM; i++)
        fixture.v[i] = LENGTH; /* the new token's */
    *state = &fixture;
    return 0;
}

static int with_workers(void **state)
{
    return set_up(state, 1);
}

static int without_workers(void **state)
{
    return set_up(state, 0);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    gpu_step_plan_destroy(f->plan);
    gpu_device_destroy(f->device);
    return 0;
}

static void build_plan(struct fixture *f)
{
    struct gpu_granule granule;

    assert_int_equal(gpu_choose_granule(block_bytes, PAGE, &granule), 0);
    const struct gpu_attend_run run = {.base = gpu_arena_base(f->device, 0),
                                       .stride = granule.stride_bytes,
                                       .num_slots = ARRAY_SIZE(slots),
                                       .slots = slots};
    const struct gpu_attend_sequence sequence = {
        .runs = &run, .num_runs = 1, .length_before = LENGTH, .num_rows = 1};
    assert_int_equal(gpu_step_plan_build(f->plan, &shape, &sequence, 1), 0);
}

/* Attends once, and waits for the completion if there is to be one. */
static int attend(struct fixture *f)
{
    const struct gpu_attend_layer layer = {
        .dtype = GPU_F32, .q = f->q, .k = f->k, .v = f->v, .out = f->out};
    int answer = gpu_device_attend(f->device, f->plan, &layer, COOKIE);

    return answer == GPU_ATTEND_QUEUED ? device_wait(f->device, COOKIE) : answer;
}

static void an_attend_gives_the_mean_of_the_values_where_all_keys_are_equal(void **state)
{
    struct fixture *f = *state;

    build_plan(f);
    for (uint32_t times = 0; times < 3; times++) { /* it may be repeated */
        memset(f->out, 0xff, sizeof(f->out));
        assert_int_equal(attend(f), 0);
        for (uint32_t i = 0; i < HEADS * DIM; i++)
            assert_true(fabsf(f->out[i] - LENGTH / 2.0f) < 1e-4f); /* mean of 0 .. LENGTH */
    }
}

static void a_nan_in_a_query_ends_as_an_error_of_that_attend(void **state)
{
    struct fixture *f = *state;

    build_plan(f);
    f->q[3] = NAN;
    assert_int_equal(attend(f), -EDOM);
    f->q[3] = 0;
    assert_int_equal(attend(f), 0);
}

static void attends_give_their_operation_records_back(void **state)
{
    struct fixture *f = *state;

    build_plan(f);
    for (uint32_t times = 0; times < 10; times++) /* there are two */
        assert_int_equal(attend(f), 0);
}

static void an_arena_that_nobody_harmed_is_not_damaged(void **state)
{
    struct fixture *f = *state;

    assert_false(gpu_arena_is_damaged(f->device, 0));
}

static void nothing_of_workers_and_queued_attends_outlives_a_device(void **state)
{
    struct fixture *f = *state;
    uint32_t num_descriptors = 0, num_mappings = 0;

    for (uint32_t round = 0; round < 30; round++) {
        if (round == 10) /* the C library keeps stacks of threads: it has those it wants now */
            num_descriptors = count_descriptors(), num_mappings = count_mappings();
        build_plan(f);
        const struct gpu_attend_layer layer = {
            .dtype = GPU_F32, .q = f->q, .k = f->k, .v = f->v, .out = f->out};
        assert_int_equal(gpu_device_attend(f->device, f->plan, &layer, COOKIE), GPU_ATTEND_QUEUED);
        gpu_device_destroy(f->device); /* first: it carries out what is queued */
        gpu_step_plan_destroy(f->plan);
        assert_true(fabsf(f->out[0] - LENGTH / 2.0f) < 1e-4f);
        assert_int_equal(with_workers(state), 0);
    }
    assert_int_equal(count_descriptors(), num_descriptors);
    assert_true(count_mappings() <= num_mappings + 2);
}

static void signals_of_the_process_go_to_no_worker(void **state)
{
    sigset_t all, before, waiting;

    (void)state;
    sigfillset(&all);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &all, &before), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0); /* would end the process in any other thread */
    poll(NULL, 0, 20);
    assert_int_equal(sigpending(&waiting), 0);
    assert_int_equal(sigismember(&waiting, SIGUSR1), 1);
    int number;
    assert_int_equal(sigwait(&waiting, &number), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

#define BOTH(test)                                                                                 \
    {#test " (workers)", test, with_workers, teardown, NULL},                                      \
    {                                                                                              \
#test " (owner)", test, without_workers, teardown, NULL                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(an_attend_gives_the_mean_of_the_values_where_all_keys_are_equal),
        BOTH(a_nan_in_a_query_ends_as_an_error_of_that_attend),
        BOTH(attends_give_their_operation_records_back),
        BOTH(an_arena_that_nobody_harmed_is_not_damaged),
        cmocka_unit_test_setup_teardown(nothing_of_workers_and_queued_attends_outlives_a_device,
                                        with_workers, teardown),
        cmocka_unit_test_setup_teardown(signals_of_the_process_go_to_no_worker, with_workers,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
