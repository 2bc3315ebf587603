/* tests/gpu/test_attend_odd.c - attention at the edges of what it takes, on every version. */
#include "gpu/host/workers.h"
#include "tests/gpu/attend_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct gpu_step_limits limits = {
    .max_sequences = 40, .max_rows = 1024, .max_blocks = 8192, .max_kv_heads = 4};

static const char *version; /* all tests run with each */
static struct gpu_workers *workers;
static struct gpu_attention *attention;
static struct gpu_step_plan *plan;

/* clang-format off */
#define HEADS(q, kv) .num_q_heads = q, .num_kv_heads = kv
#define DIMS(k, v) .k_dim = k, .v_dim = v
#define FULL_SHAPE(...) .shape = {.num_layers = 1, __VA_ARGS__}
#define SHAPE(...) FULL_SHAPE(.is_causal = true, __VA_ARGS__)
#define STEPS(...) .sequences = {__VA_ARGS__}, .has_lse = true

/* length_before and num_rows of each sequence are in STEPS. */
static const struct odd_case {
    const char *what;
    struct attend_case drawn;
} odd_cases[] = {
    {"blocks of one token", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 1, .kv_dtype = GPU_F16),
        .num_sequences = 3, .num_prefix = 70, STEPS({70, 1}, {99, 2}, {71, 20})}},
    {"blocks of 5 tokens", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 5, .kv_dtype = GPU_BF16),
        .num_sequences = 3, .num_prefix = 70, STEPS({70, 1}, {99, 2}, {71, 20})}},
    {"blocks of 256 tokens", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 256, .kv_dtype = GPU_F32),
        .num_sequences = 3, .num_prefix = 256, STEPS({256, 1}, {511, 2}, {300, 20})}},
    {"128 query heads on one", {SHAPE(HEADS(128, 1), DIMS(128, 128), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 2, .num_prefix = 96, STEPS({100, 1}, {96, 3})}},
    {"MLA, 128 heads", {SHAPE(HEADS(128, 1), DIMS(576, 512), .block_tokens = 16, .kv_dtype = GPU_BF16, .is_v_in_k = true),
        .num_sequences = 2, .num_prefix = 80, .dtype = GPU_BF16, STEPS({80, 1}, {91, 2})}},
    {"MLA, one head", {SHAPE(HEADS(1, 1), DIMS(576, 512), .block_tokens = 16, .kv_dtype = GPU_F16, .is_v_in_k = true),
        .num_sequences = 2, .num_prefix = 80, STEPS({80, 1}, {91, 2})}},
    {"head dims 16 and 640", {SHAPE(HEADS(9, 1), DIMS(16, 640), .block_tokens = 16, .kv_dtype = GPU_BF16),
        .num_sequences = 2, .dtype = GPU_BF16, STEPS({80, 1}, {91, 20})}},
    {"head dims 640 and 16", {SHAPE(HEADS(5, 1), DIMS(640, 16), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 2, STEPS({80, 1}, {91, 20})}},
    {"a window of one key", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16, .window = 1),
        .num_sequences = 3, .num_prefix = 96, STEPS({100, 1}, {96, 1}, {200, 30})}},
    {"a window over all of it", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16, .window = UINT32_MAX),
        .num_sequences = 2, STEPS({100, 1}, {200, 30})}},
    {"a window, not causal", {FULL_SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16, .window = 7),
        .num_sequences = 2, STEPS({3, 4}, {200, 30})}},
    {"sequences of no length", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 5, STEPS({0, 1}, {0, 0}, {0, 17}, {50, 0}, {0, 1})}},
    {"gaps in the tables", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 3, .num_prefix = 320, .null_every = 2, STEPS({400, 1}, {321, 1}, {500, 20})}},
    {"all options at once", {SHAPE(HEADS(6, 2), DIMS(64, 80), .block_tokens = 5, .kv_dtype = GPU_F16, .window = 33),
        .num_sequences = 3, .num_prefix = 150, .null_every = 3, .soft_cap = 8, .has_sinks = true, .scale = 0.3f,
        STEPS({160, 1}, {171, 1}, {200, 30})}},
    {"scores of a million", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 2, .q_size = 1e6, STEPS({100, 1}, {90, 9})}},
    {"scores far over the cap", {SHAPE(HEADS(12, 1), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 2, .q_size = 1e30, .soft_cap = 30, STEPS({100, 1}, {90, 9})}},
    {"denormals of f16", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_F16),
        .num_sequences = 2, .kv_size = 3e-6, .q_size = 3e5, STEPS({100, 1}, {90, 9})}},
    {"K and V of 1e-30", {SHAPE(HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .kv_dtype = GPU_BF16),
        .num_sequences = 2, .kv_size = 1e-30, .q_size = 1e30, STEPS({100, 1}, {90, 9})}},
};
/* clang-format on */

static void attention_open(uint32_t num_threads)
{
    struct gpu_workers_options threads = {.num_threads = num_threads};

    if (num_threads > 0)
        assert_int_equal(gpu_workers_create(&threads, &workers), 0);
    struct gpu_attention_options options = {.workers = workers, .version = version, .inline_us = 1};
    assert_int_equal(gpu_attention_create(&options, &attention), 0);
    assert_int_equal(gpu_step_plan_create(attention, &limits, &plan), 0);
}

static void attention_close(void)
{
    gpu_step_plan_destroy(plan);
    gpu_workers_destroy(workers);
    gpu_attention_destroy(attention);
    workers = NULL;
}

static void run_case(const struct odd_case *odd)
{
    struct gpu_attend_layer layer;
    struct attend_data data;

    case_build(&data, &odd->drawn);
    case_layer(&data, &layer);
    assert_int_equal(
        gpu_step_plan_build(plan, &odd->drawn.shape, data.sequences, odd->drawn.num_sequences), 0);
    for (int times = 0; times < 3; times++) { /* a plan serves all layers, and repeats */
        case_forget_out(&data);
        assert_int_equal(gpu_attend_now(plan, &layer), 0);
        double out_error = case_out_error(&data), lse_error = case_lse_error(&data);
        if (!(out_error <= 1) || !(lse_error <= 1))
            fail_msg("%s: out %.3g of its bound, lse %.3g", odd->what, out_error, lse_error);
        assert_true(case_rest_is_untouched(&data));
    }
    case_free(&data);
}

static void odd_shapes_and_tables_give_what_dense_attention_gives(void **state)
{
    (void)state;
    for (uint32_t num_threads = 0; num_threads <= 3; num_threads += 3) {
        attention_open(num_threads);
        for (size_t i = 0; i < ARRAY_SIZE(odd_cases); i++)
            run_case(&odd_cases[i]);
        attention_close();
    }
}

static const struct odd_case *case_named(const char *what)
{
    for (size_t i = 0; i < ARRAY_SIZE(odd_cases); i++)
        if (strcmp(odd_cases[i].what, what) == 0)
            return &odd_cases[i];
    fail();
    return NULL;
}

/* A table of one run a block, and a slot of one sequence in the middle of another's table too. */
static void a_slot_in_two_tables_is_read_for_both(void **state)
{
    const struct attend_case *drawn = &case_named("blocks of 5 tokens")->drawn;
    enum { BLOCKS = 32, FROM = 14, TO = 17 }; /* behind the shared prefix */
    struct gpu_attend_run runs[2][BLOCKS] = {{{0}}};
    static const uint32_t first_slot[] = {1};
    struct gpu_attend_sequence sequences[2];
    struct gpu_attend_layer layer;
    struct attend_data data;

    (void)state;
    attention_open(2);
    case_build(&data, drawn);
    case_layer(&data, &layer);
    assert_int_equal(gpu_step_plan_build(plan, &drawn->shape, data.sequences, 3), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    layer.k = layer.v = NULL; /* all is in the blocks */
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t num = 0;
        for (uint32_t r = 0; r < data.sequences[s + 1].num_runs; r++)
            for (uint32_t i = 0; i < data.runs[s + 1][r].num_slots; i++, num++) {
                struct gpu_attend_run *run = &runs[s][num];
                *run = data.runs[s + 1][r];
                run->base = (char *)run->base + (run->slots[i] - 1) * run->stride;
                run->first_position = num * drawn->shape.block_tokens;
                run->num_slots = 1;
                run->slots = first_slot;
            }
        sequences[s] = (struct gpu_attend_sequence){runs[s], num, s == 0 ? 100 : 90, 1};
    }
    memcpy(runs[0][TO].base, runs[1][FROM].base, data.stride);
    assert_int_equal(gpu_step_plan_build(plan, &drawn->shape, sequences, 2), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    size_t bytes = 2ul * 4 * 64 * sizeof(float);
    float *copied = malloc(bytes);
    memcpy(copied, data.out, bytes);
    case_forget_out(&data);
    runs[0][TO].base = runs[1][FROM].base;
    assert_int_equal(gpu_step_plan_build(plan, &drawn->shape, sequences, 2), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_memory_equal(copied, data.out, bytes);
    free(copied);
    case_free(&data);
    attention_close();
}

static struct attend_case plain_case = {
    .shape = {.num_layers = 1, HEADS(4, 2), DIMS(64, 64), .block_tokens = 16, .is_causal = true},
    .num_sequences = 2,
    STEPS({40, 1}, {60, 12})};

/* Products that overflow, up and down: never a number that looks like a result. */
static void scores_beyond_f32_are_refused(void **state)
{
    struct gpu_attend_layer layer;
    struct attend_data data;

    (void)state;
    for (uint32_t heads = 2; heads <= 24; heads += 22) { /* few query vectors, and many */
        attention_open(0);
        plain_case.shape.num_q_heads = heads;
        plain_case.q_size = plain_case.kv_size = 1e25;
        case_build(&data, &plain_case);
        case_layer(&data, &layer);
        assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, data.sequences, 2), 0);
        assert_int_equal(gpu_attend_now(plan, &layer), -EDOM);
        case_free(&data);
        attention_close();
    }
    plain_case.shape.num_q_heads = 4;
    plain_case.q_size = plain_case.kv_size = 0;
}

static void scales_and_sinks_that_are_no_numbers_are_refused(void **state)
{
    static const float bad[] = {-1, NAN, INFINITY, -INFINITY};
    struct gpu_attend_layer layer;
    struct attend_data data;
    float sinks[4] = {0};

    (void)state;
    attention_open(0);
    case_build(&data, &plain_case);
    assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, data.sequences, 2), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        case_layer(&data, &layer);
        layer.scale = bad[i];
        assert_int_equal(gpu_attend_now(plan, &layer), -EINVAL);
        case_layer(&data, &layer);
        layer.soft_cap = bad[i];
        assert_int_equal(gpu_attend_now(plan, &layer), -EINVAL);
    }
    case_layer(&data, &layer);
    layer.sinks = sinks;
    sinks[3] = NAN;
    assert_int_equal(gpu_attend_now(plan, &layer), -EDOM);
    sinks[3] = INFINITY;
    assert_int_equal(gpu_attend_now(plan, &layer), -EDOM);
    sinks[3] = -INFINITY; /* as if there were none */
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    case_free(&data);
    attention_close();
}

static void a_row_that_sees_neither_key_nor_sink_gives_zero(void **state)
{
    float sinks[4] = {-INFINITY, 0, -INFINITY, 0};
    struct gpu_attend_sequence sequence = {.length_before = 40, .num_rows = 1}; /* no table */
    struct gpu_attend_layer layer;
    struct attend_data data;

    (void)state;
    attention_open(0);
    case_build(&data, &plain_case);
    case_layer(&data, &layer);
    layer.k = layer.v = NULL;
    layer.sinks = sinks;
    assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, &sequence, 1), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    for (uint32_t i = 0; i < 4 * 64; i++)
        assert_true(((float *)data.out)[i] == 0);
    assert_true(data.lse[0] == -INFINITY && data.lse[1] == 0);
    assert_int_equal(gpu_attention_num_masked(attention), 2);
    case_free(&data);
    attention_close();
}

static void a_plan_that_failed_is_empty_and_can_be_built_again(void **state)
{
    struct gpu_attend_sequence broken[2];
    struct gpu_step_facts facts;
    struct gpu_attend_layer layer;
    struct attend_data data;

    (void)state;
    attention_open(2);
    case_build(&data, &plain_case);
    case_layer(&data, &layer);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, data.sequences, 2), 0);
        memcpy(broken, data.sequences, sizeof(broken));
        struct gpu_attend_run run = broken[1].runs[0];
        broken[1].runs = &run; /* wrong in the second sequence: the first was taken already */
        broken[1].num_runs = 1;
        if (i == 0)
            run.first_position = 3;
        else if (i == 1)
            run.stride = 64;
        else
            broken[1].num_rows = 5000;
        assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, broken, 2),
                         i == 2 ? -ENOSPC : -EINVAL);
        gpu_step_plan_describe(plan, &facts);
        assert_int_equal(facts.num_rows + facts.num_tasks + facts.num_partials + facts.cost_ns, 0);
        case_forget_out(&data);
        assert_int_equal(gpu_attend_now(plan, &layer), 0); /* nothing to do */
        assert_true(isnan(((float *)data.out)[0]));
    }
    assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, data.sequences, 2), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_true(case_out_error(&data) <= 1);
    case_free(&data);
    attention_close();
}

static void shapes_and_limits_that_would_overflow_are_refused(void **state)
{
    struct gpu_attend_shape shape = plain_case.shape;
    struct gpu_step_limits too_many = limits;
    struct gpu_step_plan *none;

    (void)state;
    attention_open(0);
    shape.num_layers = shape.block_tokens = UINT32_MAX;
    assert_int_equal(gpu_step_plan_build(plan, &shape, NULL, 0), -EINVAL);
    shape.num_layers = 1 << 30, shape.block_tokens = 1 << 22;
    assert_int_equal(gpu_step_plan_build(plan, &shape, NULL, 0), -EINVAL);
    too_many.max_blocks = UINT32_MAX;
    assert_int_equal(gpu_step_plan_create(attention, &too_many, &none), -EINVAL);
    too_many = limits, too_many.max_sequences = UINT32_MAX / 8 + 1;
    assert_int_equal(gpu_step_plan_create(attention, &too_many, &none), -EINVAL);
    attention_close();
}

/* Workers end with attends queued: these are carried out, and the plan can still be destroyed. */
static void workers_may_end_before_what_is_queued_is_reaped(void **state)
{
    struct gpu_attend_layer layer;
    struct attend_data data;

    (void)state;
    for (int i = 0; i < 20; i++) {
        attention_open(2);
        case_build(&data, &plain_case);
        case_layer(&data, &layer);
        assert_int_equal(gpu_step_plan_build(plan, &plain_case.shape, data.sequences, 2), 0);
        assert_int_equal(gpu_attend(plan, &layer, NULL, NULL), GPU_ATTEND_QUEUED);
        gpu_workers_destroy(workers);
        workers = NULL;
        assert_true(case_out_error(&data) <= 1);
        case_free(&data);
        attention_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes_and_tables_give_what_dense_attention_gives),
        cmocka_unit_test(a_slot_in_two_tables_is_read_for_both),
        cmocka_unit_test(scores_beyond_f32_are_refused),
        cmocka_unit_test(scales_and_sinks_that_are_no_numbers_are_refused),
        cmocka_unit_test(a_row_that_sees_neither_key_nor_sink_gives_zero),
        cmocka_unit_test(a_plan_that_failed_is_empty_and_can_be_built_again),
        cmocka_unit_test(shapes_and_limits_that_would_overflow_are_refused),
        cmocka_unit_test(workers_may_end_before_what_is_queued_is_reaped),
    };

    int num_failed = 0;
    for (size_t i = 0; (version = gpu_attention_version_name(i)); i++)
        num_failed += cmocka_run_group_tests_name(version, tests, NULL, NULL);
    return num_failed;
}
