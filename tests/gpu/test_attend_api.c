/* tests/gpu/test_attend_api.c - what gpu/attend.h promises beside right numbers. */
#include "gpu/host/workers.h"
#include "tests/gpu/attend_case.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static const struct gpu_step_limits limits = {
    .max_sequences = 40, .max_rows = 1024, .max_blocks = 8192, .max_kv_heads = 4};

static const char *version; /* all tests run with each */
static uint32_t inline_us = 1;
static struct gpu_workers *workers;
static struct gpu_attention *attention;
static struct gpu_step_plan *plan;
static struct attend_case drawn;
static struct attend_data data;
static struct gpu_attend_layer layer;

static void begin(uint32_t num_sequences, uint32_t length, uint32_t num_rows, uint32_t num_prefix)
{
    struct gpu_attention_options options = {
        .workers = workers, .version = version, .inline_us = inline_us};

    drawn = (struct attend_case){.seed = 5,
                                 .num_sequences = num_sequences,
                                 .num_prefix = num_prefix,
                                 .dtype = GPU_F32,
                                 .has_lse = true};
    drawn.shape = (struct gpu_attend_shape){.num_layers = 1,
                                            .num_q_heads = 4,
                                            .num_kv_heads = 2,
                                            .k_dim = 64,
                                            .v_dim = 64,
                                            .block_tokens = 16,
                                            .kv_dtype = GPU_F16,
                                            .is_causal = true};
    for (uint32_t s = 0; s < num_sequences; s++) {
        drawn.sequences[s].length_before = length;
        drawn.sequences[s].num_rows = num_rows;
    }
    case_build(&data, &drawn);
    case_layer(&data, &layer);
    assert_int_equal(gpu_attention_create(&options, &attention), 0);
    assert_int_equal(gpu_step_plan_create(attention, &limits, &plan), 0);
}

static int build(void)
{
    return gpu_step_plan_build(plan, &drawn.shape, data.sequences, drawn.num_sequences);
}

static void end(void)
{
    gpu_step_plan_destroy(plan);
    gpu_attention_destroy(attention);
    case_free(&data);
}

static void a_shared_prefix_is_read_once(void **state)
{
    struct gpu_step_facts facts;

    (void)state;
    begin(32, 640, 1, 640);
    assert_int_equal(build(), 0);
    gpu_step_plan_describe(plan, &facts);
    assert_int_equal(facts.num_shared_tasks, 1);
    assert_int_equal(facts.num_key_reads, 640 + 32);
    assert_int_equal(facts.num_rows, 32);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_true(case_out_error(&data) <= 1);
    end();
}

static void without_room_for_partials_it_is_right_all_the_same(void **state)
{
    struct gpu_step_limits tight = limits;
    struct gpu_step_facts facts;

    (void)state;
    begin(8, 640, 1, 640);
    gpu_step_plan_destroy(plan);
    tight.max_partial_bytes = 64;
    assert_int_equal(gpu_step_plan_create(attention, &tight, &plan), 0);
    assert_int_equal(build(), 0);
    gpu_step_plan_describe(plan, &facts);
    assert_int_equal(facts.num_partials, 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_true(case_out_error(&data) <= 1);
    end();
}

static void an_attend_can_be_repeated(void **state)
{
    size_t bytes;
    void *first;

    (void)state;
    begin(3, 100, 5, 0);
    bytes = (size_t)data.num_rows * 4 * 64 * 4;
    first = malloc(bytes);
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    memcpy(first, data.out, bytes);
    layer.k = layer.v = NULL; /* they are in the blocks */
    case_forget_out(&data);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_memory_equal(first, data.out, bytes);
    free(first);
    end();
}

static void a_row_that_sees_no_key_gives_zero_and_is_counted(void **state)
{
    (void)state;
    begin(2, 40, 1, 0);
    for (uint32_t i = 0; i < 3; i++)
        data.slots[1][i] = 0; /* all of the second sequence's blocks are gone */
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), -EINVAL); /* nowhere to write its K and V */
    layer.k = layer.v = NULL;
    data.sequences[0].length_before =
        39; /* whose token is there, as K of the first was not written */
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_int_equal(gpu_attention_num_masked(attention), 4);
    for (uint32_t i = 0; i < 4 * 64; i++)
        assert_true(((float *)data.out)[4 * 64 + i] == 0);
    for (uint32_t head = 0; head < 4; head++)
        assert_true(data.lse[4 + head] == -INFINITY);
    end();
}

static void what_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e6f /* infinite as f16 */};

    (void)state;
    begin(2, 100, 3, 0);
    assert_int_equal(build(), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad) * 3; i++) {
        void *arrays[] = {data.k, data.v, data.q};
        float *element = (float *)arrays[i % 3] + 77 + i, kept = *element;
        if (i % 3 == 2 && bad[i / 3] == 1e6f)
            continue; /* q is not stored */
        *element = bad[i / 3];
        assert_int_equal(gpu_attend_now(plan, &layer), -EDOM);
        *element = kept;
    }
    assert_int_equal(gpu_attend_now(plan, &layer), 0); /* and all is well again */
    assert_true(case_out_error(&data) <= 1);
    end();
}

static void shapes_and_tables_that_cannot_be_are_refused(void **state)
{
    struct gpu_attend_shape good;

    (void)state;
    begin(1, 100, 1, 0);
    good = drawn.shape;
    drawn.shape.k_dim = 72;
    assert_int_equal(build(), -EINVAL);
    drawn.shape = good, drawn.shape.num_q_heads = 3;
    assert_int_equal(build(), -EINVAL);
    drawn.shape = good, drawn.shape.is_v_in_k = true; /* with two KV heads */
    assert_int_equal(build(), -EINVAL);
    drawn.shape = good, drawn.shape.num_layers = 2; /* more than the stride holds */
    data.runs[0][0].stride -= data.runs[0][0].stride % 64;
    assert_int_equal(build(), -EINVAL);
    drawn.shape = good, drawn.shape.num_kv_heads = drawn.shape.num_q_heads = 5;
    assert_int_equal(build(), -ENOSPC);
    drawn.shape = good;
    data.runs[0][0].first_position = 8;
    assert_int_equal(build(), -EINVAL);
    data.runs[0][0].first_position = 0;
    data.sequences[0].num_rows = 2000;
    assert_int_equal(build(), -ENOSPC);
    data.sequences[0].num_rows = 1;
    layer.layer = 1;
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend_now(plan, &layer), -EINVAL);
    end();
}

static void nothing_to_attend_to_is_done_at_once(void **state)
{
    (void)state;
    begin(1, 100, 1, 0);
    drawn.num_sequences = 0;
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend(plan, &layer, NULL, NULL), 0);
    drawn.num_sequences = 1;
    end();
}

static void note_done(void *cookie, int err)
{
    *(int *)cookie = 1 - err;
}

static void much_work_is_queued_and_little_is_not(void **state)
{
    struct gpu_workers_options options = {.num_threads = 2};
    int is_done = 0;

    (void)state;
    assert_int_equal(gpu_workers_create(&options, &workers), 0);
    begin(4, 2000, 1, 0);
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend(plan, &layer, note_done, &is_done), GPU_ATTEND_QUEUED);
    assert_int_equal(gpu_attend(plan, &layer, note_done, &is_done), -EBUSY);
    assert_int_equal(build(), -EBUSY);

    struct pollfd ready = {gpu_workers_event_fd(workers), POLLIN, 0};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    assert_int_equal(is_done, 0);
    assert_int_equal(gpu_workers_reap(workers), 1);
    assert_int_equal(is_done, 1);
    assert_true(case_out_error(&data) <= 1);
    end();

    inline_us = 0; /* the default */
    begin(1, 3, 1, 0);
    inline_us = 1;
    assert_int_equal(build(), 0);
    assert_int_equal(gpu_attend(plan, &layer, note_done, &is_done), 0);
    assert_true(case_out_error(&data) <= 1);
    end();
    gpu_workers_destroy(workers);
    workers = NULL;
}

static void the_version_can_be_chosen_by_name(void **state)
{
    const char *name;

    (void)state;
    for (size_t i = 0; (name = gpu_attention_version_name(i)); i++) {
        struct gpu_attention_options options = {.version = name};
        assert_int_equal(gpu_attention_create(&options, &attention), 0);
        assert_string_equal(gpu_attention_version(attention), name);
        gpu_attention_destroy(attention);
    }
    struct gpu_attention_options options = {.version = "mmx"};
    assert_int_equal(gpu_attention_create(&options, &attention), -ENOTSUP);
}

/* COMPRESSION 12.8: s = {0, ln 2 | ln 4}, v = {1, 2 | 3} gives 17/7 and ln 7, also with a sink. */
static void the_vector_of_the_specification_comes_out(void **state)
{
    static const double scores[] = {0, 0.6931471805599453, 1.3862943611198906};
    const float no_sinks[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sinks[4] = {0};

    (void)state;
    begin(1, 2, 1, 0);
    layer.scale = 1;
    memset(data.q, 0, 4 * 64 * sizeof(float));
    for (int head = 0; head < 4; head++)
        ((float *)data.q)[head * 64] = 1;
    for (uint32_t head = 0; head < 2; head++)
        for (uint32_t d = 0; d < 64; d++)
            for (uint32_t j = 0; j < 3; j++) {
                char *block = data.arenas[0];
                void *k = j < 2 ? block + (head * 16 + j) * 128 : (char *)data.k + head * 256;
                void *v = j < 2 ? block + (32 + head * 16 + j) * 128 : (char *)data.v + head * 256;
                element_set(k, j < 2 ? GPU_F16 : GPU_F32, d, d ? 0 : scores[j]);
                element_set(v, j < 2 ? GPU_F16 : GPU_F32, d, j + 1);
            }
    data.runs[0][0].base = data.arenas[0];
    data.slots[0][0] = 1;
    assert_int_equal(build(), 0);
    layer.sinks = no_sinks;
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_true(fabsf(((float *)data.out)[0] - 17.0f / 7) < 2e-3f);
    assert_true(fabsf(data.lse[0] - logf(7)) < 1e-3f);
    layer.sinks = sinks; /* one more weight of 1, with no value */
    assert_int_equal(gpu_attend_now(plan, &layer), 0);
    assert_true(fabsf(((float *)data.out)[255] - 17.0f / 8) < 2e-3f);
    assert_true(fabsf(data.lse[3] - logf(8)) < 1e-3f);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_prefix_is_read_once),
        cmocka_unit_test(without_room_for_partials_it_is_right_all_the_same),
        cmocka_unit_test(an_attend_can_be_repeated),
        cmocka_unit_test(a_row_that_sees_no_key_gives_zero_and_is_counted),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(shapes_and_tables_that_cannot_be_are_refused),
        cmocka_unit_test(nothing_to_attend_to_is_done_at_once),
        cmocka_unit_test(much_work_is_queued_and_little_is_not),
        cmocka_unit_test(the_version_can_be_chosen_by_name),
        cmocka_unit_test(the_vector_of_the_specification_comes_out),
    };

    int num_failed = 0;
    for (size_t i = 0; (version = gpu_attention_version_name(i)); i++)
        num_failed += cmocka_run_group_tests_name(version, tests, NULL, NULL);
    return num_failed;
}
