/* tests/daemon/test_capacity.c - what `kvpoold capacity` promises, against values worked out by
 * hand. */
#include "daemon/capacity.h"
#include "daemon/capacity_model.h"
#include "tests/daemon/files.h"

#include <errno.h>
#include <jansson.h>

#define MiB (UINT64_C(1) << 20)
#define GiB (UINT64_C(1) << 30)

static const char *const files[] = {"config.json", NULL};

static struct capacity_memory memory_of(uint64_t bytes, uint64_t page_bytes, uint64_t context)
{
    return (struct capacity_memory){
        .bytes = bytes, .page_bytes = page_bytes, .block_tokens = 16, .context = context};
}

static struct capacity_result compute(const struct capacity_model *model,
                                      struct capacity_memory memory)
{
    struct capacity_result result;
    char error[CAPACITY_ERROR];

    assert_int_equal(capacity_compute(model, &memory, &result, error), 0);
    return result;
}

/* 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB; a block of 16 is one page of 2 MiB. */
static void llama_3_8b_costs_128_kib_a_token(void **state)
{
    const struct capacity_model model = {
        .groups = {{32, 0, 8, 128, 128}}, .num_groups = 1, .value_bytes = 2};
    struct capacity_result result = compute(&model, memory_of(64 * GiB, 2 * MiB, 8192));

    (void)state;
    assert_int_equal(result.token_bytes, 131072);
    assert_int_equal(result.groups[0].block_bytes, 2 * MiB);
    assert_int_equal(result.token_lost_bytes, 0);
    assert_int_equal(result.tokens, 524288); /* 64 GiB / 128 KiB */
    assert_int_equal(result.sequences, 64);  /* 1 GiB each */
    assert_true(result.sequence_bytes == UINT64_C(1) << 30);
    result = compute(&model, memory_of(64 * GiB, 2 * MiB, 8193)); /* one block more */
    assert_int_equal(result.sequences, 63);
}

/* 2 x 30 x 3 x 64 x 2 = 23,040; a block is 368,640 = 5,760 lines of 64 bytes. 17 of them would fit
 * in three pages of 2 MiB (98,304 lines), but do not divide them: 16 do, at 6,144 lines each. */
static void smollm2_costs_23040_bytes_a_token(void **state)
{
    const struct capacity_model model = {
        .groups = {{30, 0, 3, 64, 64}}, .num_groups = 1, .value_bytes = 2};
    struct capacity_result result = compute(&model, memory_of(1 * GiB, 2 * MiB, 2048));

    (void)state;
    assert_int_equal(result.token_bytes, 23040);
    assert_int_equal(result.groups[0].block_bytes, 368640);
    assert_int_equal(result.groups[0].granule.pages, 3);
    assert_int_equal(result.groups[0].granule.slots, 16);
    assert_int_equal(result.groups[0].granule.stride_bytes, 393216);
    assert_int_equal(result.token_lost_bytes, 1536);         /* 24,576 / 16 */
    assert_int_equal(result.tokens, 43520);                  /* 170 granules of 256 tokens */
    assert_int_equal(result.groups[0].sequence_blocks, 128); /* 8 granules, 24 of 512 pages */
    assert_int_equal(result.sequences, 21);
}

/* Gemma 3 1B: 26 layers, one KV head of 256, every sixth full, else a window of 512. */
static const struct capacity_model gemma = {
    .groups = {{4, 0, 1, 256, 256}, {22, 512, 1, 256, 256}}, .num_groups = 2, .value_bytes = 2};

static void a_window_holds_what_it_reaches_into(void **state)
{
    struct capacity_result result = compute(&gemma, memory_of(1 * GiB, 64 << 10, 32768));

    (void)state;
    assert_int_equal(result.groups[0].token_bytes, 4096);
    assert_int_equal(result.groups[1].token_bytes, 22528);
    assert_int_equal(result.token_bytes, 26624);
    assert_int_equal(result.groups[0].sequence_blocks, 2048);
    assert_int_equal(result.groups[1].sequence_blocks, 33); /* 511 tokens before this one, and it */
    /* 64 KiB blocks fill their pages; 360,448 bytes are 5.5 pages: 2 slots in 11, nothing lost. */
    assert_int_equal(result.groups[0].granule.padding_bytes, 0);
    assert_int_equal(result.groups[1].granule.padding_bytes, 0);
    assert_int_equal(result.sequence_bytes, 2048 * 65536 + 33 * 360448);
    /* 16,384 pages; a sequence takes 2,048 + 33 x 5.5 = 2,229.5 of them. */
    assert_int_equal(result.sequences, 7);
    /* A cached block takes 1 + 5.5 pages: 2,520 pairs, and the odd one needs a granule of 11. */
    assert_int_equal(result.tokens, 2520 * 16);
}

static void a_short_sequence_does_not_fill_its_window(void **state)
{
    struct capacity_result result = compute(&gemma, memory_of(1 * GiB, 64 << 10, 100));

    (void)state;
    assert_int_equal(result.groups[0].sequence_blocks, 7);
    assert_int_equal(result.groups[1].sequence_blocks, 7);
}

static void what_fits_is_the_most_that_fits(void **state)
{
    const struct capacity_model model = {
        .groups = {{1, 0, 1, 32, 32}}, .num_groups = 1, .value_bytes = 2};

    (void)state;
    for (uint64_t pages = 1; pages < 40; pages++) { /* 2 KiB blocks: 32 in a page of 64 KiB */
        struct capacity_result result = compute(&model, memory_of(pages << 16, 1 << 16, 48));
        assert_int_equal(result.tokens, pages * 32 * 16);
        assert_int_equal(result.sequences, pages * 32 / 3);
    }
}

static void impossible_geometries_are_refused(void **state)
{
    static const struct {
        struct capacity_model model;
        const char *expected;
    } bad[] = {
        {{.num_groups = 0, .value_bytes = 2}, "no layers"},
        {{.groups = {{1, 0, 1, 1, 1}}, .num_groups = 1}, "dtype"},
        {{.groups = {{0, 0, 1, 1, 1}}, .num_groups = 1, .value_bytes = 2}, "layers"},
        {{.groups = {{1, 1, 1, 1, 1}}, .num_groups = 1, .value_bytes = 2}, "window"},
        {{.groups = {{1, 0, 0, 1, 1}}, .num_groups = 1, .value_bytes = 2}, "KV heads"},
        {{.groups = {{1, 0, 1, 0, 1}}, .num_groups = 1, .value_bytes = 2}, "head dim"},
    };
    struct capacity_memory memory = memory_of(1 * GiB, 2 * MiB, 1);
    struct capacity_result result;
    char error[CAPACITY_ERROR];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(capacity_compute(&bad[i].model, &memory, &result, error), -EINVAL);
        assert_non_null(strstr(error, bad[i].expected));
    }
    memory.page_bytes = 3 * MiB;
    assert_int_equal(capacity_compute(&gemma, &memory, &result, error), -EINVAL);
    memory = memory_of(1024, 2 * MiB, 1);
    assert_int_equal(capacity_compute(&gemma, &memory, &result, error), -EINVAL);
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    const struct capacity_model least = {
        .groups = {{1, 0, 1, 1, 0}}, .num_groups = 1, .value_bytes = 2};
    const struct capacity_model most = {
        .groups = {{512, 0, 4096, 65536, 65536}}, .num_groups = 1, .value_bytes = 4};
    struct capacity_memory memory = memory_of(UINT64_C(1) << 50, 1 << 30, 1 << 30);
    struct capacity_result result;
    char error[CAPACITY_ERROR];

    (void)state;
    memory.block_tokens = 1;
    result = compute(&least, memory);
    assert_true(result.tokens == UINT64_C(1) << 44); /* 64 bytes each */
    memory.block_tokens = 65535;
    result = compute(&most, memory);
    assert_int_equal(result.sequences, 0);
    memory.page_bytes = 4096;
    assert_int_equal(capacity_compute(&most, &memory, &result, error), -EINVAL);
    assert_non_null(strstr(error, "too large"));
}

/* ---- config.json ------------------------------------------------------------------------------
 */

static int read_text(const char *text, struct capacity_model *out, char error[CAPACITY_ERROR])
{
    struct directory directory;

    directory_make(&directory);
    int err = capacity_read_json(directory_write(&directory, files[0], text), out, error);
    directory_remove(&directory, files);
    return err;
}

static struct capacity_model read_good(const char *text)
{
    struct capacity_model model;
    char error[CAPACITY_ERROR] = "";

    if (read_text(text, &model, error) < 0)
        fail_msg("%s", error);
    return model;
}

static void check_group(const struct capacity_group *group, uint64_t layers, uint64_t window,
                        uint64_t kv_heads, uint64_t k_dim, uint64_t v_dim)
{
    assert_int_equal(group->layers, layers);
    assert_int_equal(group->window, window);
    assert_int_equal(group->kv_heads, kv_heads);
    assert_int_equal(group->k_dim, k_dim);
    assert_int_equal(group->v_dim, v_dim);
}

static void common_models_are_understood(void **state)
{
    struct capacity_model model;

    (void)state;
    model =
        read_good("{\"model_type\": \"llama\", \"num_hidden_layers\": 32, \"hidden_size\": 4096,"
                  "\"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
                  "\"torch_dtype\": \"bfloat16\"}");
    assert_int_equal(model.num_groups, 1);
    assert_int_equal(model.value_bytes, 2);
    check_group(&model.groups[0], 32, 0, 8, 128, 128);

    model = read_good("{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_embd\": 768, \"n_head\": 12,"
                      "\"dtype\": \"float32\"}");
    check_group(&model.groups[0], 12, 0, 12, 64, 64);
    assert_int_equal(model.value_bytes, 4);

    model = read_good("{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 61,"
                      "\"num_attention_heads\": 128, \"hidden_size\": 7168,"
                      "\"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64,"
                      "\"torch_dtype\": \"bfloat16\"}");
    check_group(&model.groups[0], 61, 0, 1, 576, 0);
    assert_int_equal(compute(&model, memory_of(GiB, 2 * MiB, 1)).token_bytes, 70272);
}

static void sliding_windows_are_understood(void **state)
{
    struct capacity_model model;

    (void)state;
#define HEADS "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 256"
    model = read_good("{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 26," HEADS
                      ", \"sliding_window\": 512, \"sliding_window_pattern\": 6}");
    assert_int_equal(model.num_groups, 2);
    check_group(&model.groups[0], 4, 0, 1, 256, 256);
    check_group(&model.groups[1], 22, 512, 1, 256, 256);

    model =
        read_good("{\"torch_dtype\": \"bfloat16\", \"text_config\": {\"model_type\": \"gemma2\","
                  "\"num_hidden_layers\": 26," HEADS ", \"sliding_window\": 4096}}");
    check_group(&model.groups[0], 13, 0, 1, 256, 256);
    check_group(&model.groups[1], 13, 4096, 1, 256, 256);
    assert_int_equal(model.value_bytes, 2);

    model = read_good("{\"num_hidden_layers\": 3," HEADS ", \"sliding_window\": 128,"
                      "\"layer_types\": [\"sliding_attention\", \"full_attention\","
                      "\"sliding_attention\"]}");
    check_group(&model.groups[0], 1, 0, 1, 256, 256);
    check_group(&model.groups[1], 2, 128, 1, 256, 256);

    model = read_good("{\"model_type\": \"mistral\", \"num_hidden_layers\": 32," HEADS
                      ", \"sliding_window\": 4096}");
    assert_int_equal(model.num_groups, 1);
    check_group(&model.groups[0], 32, 4096, 1, 256, 256);

    model = read_good("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 28," HEADS
                      ", \"sliding_window\": 4096, \"use_sliding_window\": false,"
                      "\"max_window_layers\": 21}");
    assert_int_equal(model.num_groups, 1);
    check_group(&model.groups[0], 28, 0, 1, 256, 256);
}

static void what_is_not_understood_is_refused(void **state)
{
    static const char *const bad[][2] = {
        {"{", "config.json:1:"},
        {"[]", "num_hidden_layers"},
        {"{\"num_hidden_layers\": \"32\"}", "num_hidden_layers"},
        {"{\"num_hidden_layers\": 100000}", "num_hidden_layers"},
        {"{\"num_hidden_layers\": 2}", "num_key_value_heads"},
        {"{\"num_hidden_layers\": 2," HEADS ", \"layer_types\": [\"full_attention\"]}",
         "layer_types"},
        {"{\"num_hidden_layers\": 1," HEADS ", \"layer_types\": [\"linear_attention\"]}",
         "layer_types"},
        {"{\"num_hidden_layers\": 1," HEADS ", \"layer_types\": [\"sliding_attention\"]}",
         "sliding_window"},
        {"{\"num_hidden_layers\": 2, \"num_key_value_heads\": [1, 2], \"head_dim\": 8}",
         "num_key_value_heads"},
    };
    struct capacity_model model;
    char error[CAPACITY_ERROR];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(read_text(bad[i][0], &model, error), -EINVAL);
        if (!strstr(error, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], error);
    }
    assert_int_equal(capacity_read_json("/nowhere", &model, error), -ENOENT);
    assert_int_equal(capacity_read_json("/", &model, error), -EINVAL);
}

/* ---- the command ------------------------------------------------------------------------------
 */

static char *output;

/* Runs `capacity` with @words, "|" between them; its output is in @output. */
static int run(const char *words)
{
    char *argv[32] = {"capacity"}, line[512];
    size_t size;
    int argc = 1;

    (void)snprintf(line, sizeof(line), "%s", words);
    for (char *rest, *word = strtok_r(line, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        argv[argc++] = word;
    free(output);
    FILE *out = stdout, *err = stderr;
    stdout = stderr = open_memstream(&output, &size);
    int status = capacity_command(argc, argv);
    (void)fclose(stdout);
    stdout = out;
    stderr = err;
    return status;
}

static void the_command_says_it_for_people_and_programs(void **state)
{
    json_int_t token_bytes, tokens;

    (void)state;
    assert_int_equal(run("--layers|32|--kv-heads|8|--head-dim|128|--bytes|64GiB"), 0);
    assert_string_equal(
        output, "group 0: 32 layers, full: 128 KiB a token; block 2.0 MiB, stride 2.0 MiB, "
                "1 slot in 1 page\n"
                "a token: 128 KiB, and 0 B lost to granules\n"
                "a sequence of 8192 tokens: 1.0 GiB\n"
                "in 64.0 GiB of 2.0 MiB pages: 524288 tokens cached, or 64 such sequences that "
                "share nothing\n");
    assert_int_equal(
        run("--layers|1|--window|2|--kv-heads|1|--head-dim|64|--bytes|4KiB|--page|4KiB|"
            "--context|1|--block-tokens|8"), /* 256 bytes a token, 2 KiB a block */
        0);
    assert_string_equal(
        output, "group 0: 1 layer, window 2: 256 B a token; block 2.0 KiB, stride 2.0 KiB, "
                "2 slots in 1 page\n"
                "a token: 256 B, and 0 B lost to granules\n"
                "a sequence of 1 token: 2.0 KiB\n"
                "in 4.0 KiB of 4.0 KiB pages: 16 tokens cached, or 2 such sequences that share "
                "nothing\n");
    assert_int_equal(run("--layers|32|--kv-heads|8|--head-dim|128"), 0); /* the pool: 1 GiB */
    assert_non_null(
        strstr(output, " 8192 tokens cached, or 1 such sequence that shares nothing\n"));

    assert_int_equal(run("--layers|4|--kv-heads|1|--head-dim|256|--layers|22|--window|512|--page|"
                         "64KiB|--context|32768|--dtype|bf16|--json"),
                     0);
    json_t *json = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(
        json_unpack(json, "{s:I, s:I}", "bytes_per_token", &token_bytes, "tokens", &tokens), 0);
    assert_int_equal(token_bytes, 26624);
    assert_int_equal(tokens, 2520 * 16);
    json_decref(json);
}

static void the_command_reads_a_file(void **state)
{
    struct directory directory;
    char words[256];

    (void)state;
    directory_make(&directory);
    (void)directory_write(&directory, files[0],
                          "{\"num_hidden_layers\": 30, \"hidden_size\": 576,"
                          "\"num_attention_heads\": 9, \"num_key_value_heads\": 3}");
    (void)snprintf(words, sizeof(words), "--config-json|%.128s|--dtype|f16", directory.file);
    assert_int_equal(run(words), 0);
    assert_non_null(strstr(output, "a token: 22.5 KiB, and 1.5 KiB lost"));
    (void)snprintf(words, sizeof(words), "--config-json|%.128s", directory.file);
    assert_int_equal(run(words), 1);
    assert_non_null(strstr(output, "the dtype is not known"));
    directory_remove(&directory, files);
}

static void the_command_explains_itself(void **state)
{
    static const char *const bad[] = {
        "",
        "--layers|x",
        "--layers",
        "--nonsense",
        "--layers|1|--dtype|f8",
        "--window|4",
        "--layers|1|--config-json|/x",
        "--layers|1|--layers|1|--layers|1|--layers|1|--layers|1|--layers|1|--layers|1|--layers|1|"
        "--layers|1",
    };

    (void)state;
    assert_int_equal(run("--help"), 0);
    assert_non_null(strstr(output, "usage: kvpoold capacity"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(run(bad[i]), 2);
        assert_non_null(strstr(output, "try --help"));
    }
    assert_int_equal(run("--layers|1|--kv-heads|1|--head-dim|64|--bytes|1KiB"), 1);
    assert_int_equal(run("--config-json|/nowhere"), 1);
    assert_non_null(strstr(output, "/nowhere: No such file"));
    free(output);
    output = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_3_8b_costs_128_kib_a_token),
        cmocka_unit_test(smollm2_costs_23040_bytes_a_token),
        cmocka_unit_test(a_window_holds_what_it_reaches_into),
        cmocka_unit_test(a_short_sequence_does_not_fill_its_window),
        cmocka_unit_test(what_fits_is_the_most_that_fits),
        cmocka_unit_test(impossible_geometries_are_refused),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
        cmocka_unit_test(common_models_are_understood),
        cmocka_unit_test(sliding_windows_are_understood),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(the_command_says_it_for_people_and_programs),
        cmocka_unit_test(the_command_reads_a_file),
        cmocka_unit_test(the_command_explains_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
