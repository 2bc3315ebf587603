/*
 * tests/gpu/test_attend_random.c - random batches against dense attention in float64.
 *
 * usage: test_attend_random [--seed FIRST] [--cases NUM] [--version NAME]
 * With --cases it is the long run: twice that many cases from FIRST on, on every version or NAME.
 */
#include "gpu/host/workers.h"
#include "tests/gpu/attend_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t first_seed;
static uint32_t num_cases = 25;
static const char *only_version;
static struct gpu_workers *workers; /* NULL: all in this thread */

static const struct gpu_step_limits limits = {
    .max_sequences = CASE_MAX_SEQUENCES,
    .max_rows = 4096,
    .max_blocks = 1 << 16,
    .max_kv_heads = 8,
};

/* The versions to be tested. */
static size_t open_versions(struct gpu_attention **out)
{
    const char *version;
    size_t num = 0;

    for (size_t i = 0; (version = gpu_attention_version_name(i)); i++) {
        struct gpu_attention_options options = {
            .workers = workers, .version = version, .inline_us = 1};
        if (!only_version || strcmp(version, only_version) == 0)
            assert_int_equal(gpu_attention_create(&options, &out[num++]), 0);
    }
    return num;
}

/* The truth is worked out once for all versions; each writes K, V and the output again. */
static void run_case(const struct attend_case *drawn, struct gpu_attention **attentions, size_t num)
{
    struct gpu_step_plan *plan;
    struct gpu_attend_layer layer;
    struct attend_data data;

    case_build(&data, drawn);
    case_layer(&data, &layer);
    for (size_t i = 0; i < num; i++) {
        case_forget_out(&data);
        assert_int_equal(gpu_step_plan_create(attentions[i], &limits, &plan), 0);
        assert_int_equal(
            gpu_step_plan_build(plan, &drawn->shape, data.sequences, drawn->num_sequences), 0);
        assert_int_equal(gpu_attend_now(plan, &layer), 0);
        double out_error = case_out_error(&data), lse_error = case_lse_error(&data);
        if (!(out_error <= 1) || !(lse_error <= 1)) {
            case_print(drawn);
            fail_msg("%s: out %.3g of its bound, lse %.3g", gpu_attention_version(attentions[i]),
                     out_error, lse_error);
        }
        assert_true(case_rest_is_untouched(&data));
        gpu_step_plan_destroy(plan);
    }
    case_free(&data);
}

static void run_cases(uint64_t seed, uint32_t num_cases_run)
{
    struct gpu_attention *attentions[8];
    struct attend_case drawn;
    size_t num = open_versions(attentions);

    for (uint32_t i = 0; i < num_cases_run; i++) {
        case_draw(&drawn, seed + i);
        run_case(&drawn, attentions, num);
    }
    while (num > 0)
        gpu_attention_destroy(attentions[--num]);
}

static void every_version_gives_what_dense_attention_gives(void **state)
{
    (void)state;
    run_cases(first_seed, num_cases);
}

static void so_do_worker_threads(void **state)
{
    struct gpu_workers_options options = {.num_threads = 3};

    (void)state;
    assert_int_equal(gpu_workers_create(&options, &workers), 0);
    run_cases(first_seed + num_cases, num_cases);
    gpu_workers_destroy(workers);
    workers = NULL;
}

/* Each head dim x format, few and many query vectors, prefix shared and not. */
static void every_head_dim_and_format_is_covered(void **state)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256};
    struct gpu_attention *attentions[8];
    size_t num = open_versions(attentions);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_SIZE(dims) * 3; n++) {
        struct attend_case drawn = {.seed = n,
                                    .num_sequences = 3,
                                    .num_prefix = 64,
                                    .layer = 1,
                                    .dtype = (enum gpu_dtype)(n % 3),
                                    .has_lse = true};
        drawn.shape = (struct gpu_attend_shape){.num_layers = 2,
                                                .num_q_heads = 4,
                                                .num_kv_heads = 1,
                                                .k_dim = dims[n / 3],
                                                .v_dim = dims[n / 3],
                                                .block_tokens = 16,
                                                .is_causal = true,
                                                .kv_dtype = (enum gpu_dtype)(n % 3)};
        for (uint32_t s = 0; s < 3; s++) {
            drawn.sequences[s].length_before = 79 + s;
            drawn.sequences[s].num_rows = s == 2 ? 21 : 1;
        }
        run_case(&drawn, attentions, num);
    }
    while (num > 0)
        gpu_attention_destroy(attentions[--num]);
}

/* Long enough to be split over threads, and merged. */
static void long_sequences_are_split_and_merged(void **state)
{
    struct gpu_workers_options options = {.num_threads = 2};
    struct attend_case drawn = {.num_sequences = 2, .has_lse = true};

    (void)state;
    drawn.shape = (struct gpu_attend_shape){.num_layers = 1,
                                            .num_q_heads = 4,
                                            .num_kv_heads = 1,
                                            .k_dim = 64,
                                            .v_dim = 64,
                                            .block_tokens = 16,
                                            .kv_dtype = GPU_F16,
                                            .is_causal = true};
    drawn.sequences[0].length_before = 20001, drawn.sequences[0].num_rows = 1;
    drawn.sequences[1].length_before = 9000, drawn.sequences[1].num_rows = 3;
    assert_int_equal(gpu_workers_create(&options, &workers), 0);

    struct gpu_attention *attentions[8];
    size_t num = open_versions(attentions);
    run_case(&drawn, attentions, num);
    while (num > 0)
        gpu_attention_destroy(attentions[--num]);
    gpu_workers_destroy(workers);
    workers = NULL;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            first_seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--cases") == 0)
            num_cases = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--version") == 0)
            only_version = argv[i + 1];
        else
            argc = 0;
    }
    if (argc % 2 == 0) {
        puts("usage: test_attend_random [--seed FIRST] [--cases NUM] [--version NAME]");
        exit(argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_gives_what_dense_attention_gives),
        cmocka_unit_test(so_do_worker_threads),
        cmocka_unit_test(every_head_dim_and_format_is_covered),
        cmocka_unit_test(long_sequences_are_split_and_merged),
    };

    parse(argc, argv);
    printf("versions here:");
    for (size_t i = 0; gpu_attention_version_name(i); i++)
        printf(" %s%s", gpu_attention_version_name(i), i ? "" : " (chosen)");
    puts("");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
