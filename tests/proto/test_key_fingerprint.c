/* tests/proto/test_key_fingerprint.c - what proto/key_fingerprint.c promises: the table of KEYS.md.
 */
#include "proto/key.h"
#include "tests/support/test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/proto/key_vectors.h"

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static const uint32_t layers[] = {0, 1, 2, 3, 4, 5};

static const struct key_layer_group llama_groups[] = {{KEY_GROUP_FULL, 0, layers, 4}};
static const struct key_layer_group gemma_groups[] = {{KEY_GROUP_FULL, 0, &layers[5], 1},
                                                      {KEY_GROUP_SLIDING, 1024, layers, 5}};

static const struct key_model llama = {.name = TEXT("llama"),
                                       .weights_revision = TEXT("r1"),
                                       .num_layers = 4,
                                       .groups = llama_groups,
                                       .num_groups = 1,
                                       .num_kv_heads = 8,
                                       .k_head_dim = 128,
                                       .v_head_dim = 128,
                                       .dtype = TEXT("bf16"),
                                       .block_tokens = 16,
                                       .rope_kind = TEXT("default"),
                                       .rope_theta = 500000};

static const struct key_model gemma = {.name = TEXT("gemma"),
                                       .weights_revision = TEXT("r7"),
                                       .num_layers = 6,
                                       .groups = gemma_groups,
                                       .num_groups = 2,
                                       .num_kv_heads = 1,
                                       .k_head_dim = 256,
                                       .v_head_dim = 256,
                                       .dtype = TEXT("f16"),
                                       .block_tokens = 32,
                                       .rope_kind = TEXT("yarn"),
                                       .rope_theta = 10000,
                                       .rope_dims = 64,
                                       .rope_scaling = TEXT("{\"factor\":4.0}"),
                                       .tp = {2, true, 1}};

static const struct key_model opaque = {.name = TEXT("llama"),
                                        .weights_revision = TEXT("r1"),
                                        .block_tokens = 16,
                                        .tp = {8, true, 0},
                                        .pp = {2, true, 1},
                                        .layout_name = TEXT("engine/nhd"),
                                        .layout_version = 3,
                                        .opaque_block_bytes = 2097152};

static int set_up(void **state)
{
    return key_hasher_create((struct key_hasher **)state);
}

static int tear_down(void **state)
{
    key_hasher_destroy(*state);
    return 0;
}

static struct key_fingerprint fingerprint_of(struct key_hasher *hasher,
                                             const struct key_model *model)
{
    struct key_fingerprint fingerprint;

    assert_int_equal(key_fingerprint(hasher, model, &fingerprint), 0);
    return fingerprint;
}

static void every_fingerprint_is_the_one_that_python_computes(void **state)
{
    assert_memory_equal(fingerprint_of(*state, &llama).bytes, VECTOR_FINGERPRINT_LLAMA, KEY_BYTES);
    assert_memory_equal(fingerprint_of(*state, &gemma).bytes, VECTOR_FINGERPRINT_GEMMA, KEY_BYTES);
    assert_memory_equal(fingerprint_of(*state, &opaque).bytes, VECTOR_FINGERPRINT_OPAQUE,
                        KEY_BYTES);
}

static void models_that_differ_in_anything_have_different_fingerprints(void **state)
{
    static const uint32_t odd[] = {0, 1, 3}, all[] = {0, 1, 2, 3};
    static const struct key_layer_group split[] = {{KEY_GROUP_FULL, 0, &all[0], 2},
                                                   {KEY_GROUP_FULL, 0, &all[2], 2}};
    static const struct key_layer_group swapped[] = {{KEY_GROUP_FULL, 0, &all[2], 2},
                                                     {KEY_GROUP_FULL, 0, &all[0], 2}};
    static const struct key_layer_group few = {KEY_GROUP_FULL, 0, odd, 3};
    static const struct key_layer_group sliding = {KEY_GROUP_SLIDING, 4, all, 4};
    static const struct key_layer_group wider = {KEY_GROUP_SLIDING, 5, all, 4};
    struct key_model models[32];
    struct key_fingerprint found[ARRAY_SIZE(models)];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        models[i] = llama;
    models[n++].layout_version = 0; /* itself */
    models[n++].name = (struct key_bytes)TEXT("llamb");
    models[n++].name = (struct key_bytes)TEXT("llamar1");
    models[n++].weights_revision = (struct key_bytes)TEXT("r2");
    models[n++].num_layers = 5;
    models[n].groups = split, models[n++].num_groups = 2;
    models[n].groups = swapped, models[n++].num_groups = 2;
    models[n++].groups = &few;
    models[n++].groups = &sliding;
    models[n++].groups = &wider;
    models[n++].num_kv_heads = 4;
    models[n++].k_head_dim = 64;
    models[n++].v_head_dim = 64;
    models[n++].v_head_dim = 0;
    models[n++].dtype = (struct key_bytes)TEXT("f16");
    models[n++].block_tokens = 32;
    models[n++].rope_kind = (struct key_bytes)TEXT("yarn");
    models[n++].rope_kind = (struct key_bytes){0};
    models[n++].rope_kind = (struct key_bytes)TEXT("");
    models[n++].rope_theta = 500000.5;
    models[n++].rope_dims = 64;
    models[n++].rope_scaling = (struct key_bytes)TEXT("4");
    models[n++].rope_scaling = (struct key_bytes)TEXT("");
    models[n++].tp = (struct key_shard){2, false, 0};
    models[n++].pp = (struct key_shard){2, false, 0};
    models[n++].cp = (struct key_shard){2, false, 0};
    models[n++].tp = (struct key_shard){2, true, 0};
    models[n++].tp = (struct key_shard){2, true, 1};
    models[n++].layout_name = (struct key_bytes)TEXT("nhd");
    models[n++].layout_version = 1;
    models[n].layout_name = (struct key_bytes)TEXT("nhd"), models[n++].opaque_block_bytes = 4096;
    models[n].layout_name = (struct key_bytes)TEXT("nhd"), models[n++].opaque_block_bytes = 8192;
    assert_int_equal(n, ARRAY_SIZE(models));

    for (size_t i = 0; i < n; i++) {
        found[i] = fingerprint_of(*state, &models[i]);
        for (size_t before = 0; before < i; before++)
            assert_memory_not_equal(&found[i], &found[before], sizeof(found[i]));
    }
}

static void a_forgotten_number_of_ranks_is_one_rank(void **state)
{
    struct key_model model = llama;

    model.tp.num_ranks = model.pp.num_ranks = model.cp.num_ranks = 1;
    assert_memory_equal(fingerprint_of(*state, &model).bytes, VECTOR_FINGERPRINT_LLAMA, KEY_BYTES);
}

static void assert_all_refused(struct key_hasher *hasher, const struct key_model *models,
                               size_t num_models)
{
    const struct key_fingerprint untouched = {{0x5a}};

    for (size_t i = 0; i < num_models; i++) {
        struct key_fingerprint fingerprint = untouched;

        assert_int_equal(key_fingerprint(hasher, &models[i], &fingerprint), -EINVAL);
        assert_memory_equal(&fingerprint, &untouched, sizeof(untouched));
    }
}

static void a_model_without_a_mandatory_field_is_refused(void **state)
{
    const struct key_bytes absent = {0}, empty = TEXT("");
    struct key_model models[14];

    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        models[i] = i < 10 ? llama : opaque;
    models[0].name = absent;
    models[1].name = empty;
    models[2].weights_revision = absent;
    models[3].weights_revision = empty;
    models[4].num_layers = 0;
    models[5].num_groups = 0;
    models[6].num_kv_heads = 0;
    models[7].k_head_dim = 0;
    models[8].dtype = absent;
    models[9].block_tokens = 0;
    models[10].opaque_block_bytes = 0; /* and so it lacks all that an attended one needs */
    models[11].layout_name = absent;
    models[12].weights_revision = absent;
    models[13].block_tokens = 0;
    assert_all_refused(*state, models, ARRAY_SIZE(models));
}

static void a_model_beyond_its_bounds_is_refused(void **state)
{
    static const char long_name[KEY_MAX_FIELD_BYTES + 1];
    static const uint32_t backward[] = {1, 0}, beyond[] = {0, 4};
    static const struct key_layer_group groups[] = {
        {KEY_GROUP_FULL, 0, backward, 2},       {KEY_GROUP_FULL, 0, beyond, 2},
        {KEY_GROUP_FULL, 0, layers, 0},         {KEY_GROUP_FULL, 0, NULL, 1},
        {KEY_GROUP_FULL, 8, layers, 4},    /* full with a window */
        {KEY_GROUP_SLIDING, 0, layers, 4}, /* sliding without */
        {(enum key_group_kind)2, 0, layers, 4},
    };
    static const struct key_layer_group shared[] = {{KEY_GROUP_FULL, 0, layers, 4},
                                                    {KEY_GROUP_FULL, 0, layers, 1}};
    struct key_model models[ARRAY_SIZE(groups) + 11];

    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        models[i] = llama;
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        models[i].groups = &groups[i];
    struct key_model *next = &models[ARRAY_SIZE(groups)];
    next->groups = shared, (next++)->num_groups = 2;
    (next++)->groups = NULL;
    (next++)->num_layers = KEY_MAX_LAYERS + 1;
    (next++)->block_tokens = KEY_MAX_BLOCK_TOKENS + 1;
    (next++)->name = (struct key_bytes){long_name, sizeof(long_name)};
    (next++)->rope_kind = (struct key_bytes){NULL, 1};
    (next++)->rope_theta = NAN;
    (next++)->rope_theta = INFINITY;
    (next++)->rope_theta = -1;
    (next++)->tp = (struct key_shard){2, true, 2};
    (next++)->tp = (struct key_shard){0, true, 1};
    assert_ptr_equal(next, &models[ARRAY_SIZE(models)]);
    assert_all_refused(*state, models, ARRAY_SIZE(models));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fingerprint_is_the_one_that_python_computes),
        cmocka_unit_test(models_that_differ_in_anything_have_different_fingerprints),
        cmocka_unit_test(a_forgotten_number_of_ranks_is_one_rank),
        cmocka_unit_test(a_model_without_a_mandatory_field_is_refused),
        cmocka_unit_test(a_model_beyond_its_bounds_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
