/*
 * tests/proto/test_key.c - what proto/key.c and proto/key_hash_*.c promise: the keys of KEYS.md.
 *
 * Built twice, once over each variant of the hasher. The expected bytes are Python's.
 */
#include "proto/key.h"
#include "tests/proto/key_vectors.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TOKENS = 131070,
    MAX_BLOCKS = 131072 / 16,
};

static uint32_t tokens[MAX_TOKENS];
static struct key keys[MAX_BLOCKS], others[MAX_BLOCKS];

static const struct key_fingerprint model = {VECTOR_FINGERPRINT_LLAMA};

static int set_up(void **state)
{
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        tokens[i] = i * 2654435761u + 12345;
    for (size_t i = 0; i < sizeof(longest_extra); i++)
        longest_extra[i] = (uint8_t)(i * 7);
    return key_hasher_create((struct key_hasher **)state);
}

static int tear_down(void **state)
{
    key_hasher_destroy(*state);
    return 0;
}

static struct key_root_fields fields_of(const struct root_vector *vector,
                                        const struct key_fingerprint *fingerprint)
{
    return (struct key_root_fields){
        .domain_secret = (const uint8_t *)vector->secret,
        .model = fingerprint,
        .adapter_id = vector->adapter_id,
        .has_adapter_generation = vector->has_generation,
        .adapter_generation = vector->generation,
        .engine_salt = vector->salt,
    };
}

static struct key first_root(struct key_hasher *hasher)
{
    struct key_root_fields fields = fields_of(&root_vectors[0], &model);
    struct key root;

    assert_int_equal(key_root(hasher, &fields, &root), 0);
    return root;
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key));
}

static void assert_all_differ(struct key *all, size_t num_keys)
{
    qsort(all, num_keys, sizeof(*all), compare_keys);
    for (size_t i = 1; i < num_keys; i++)
        assert_int_not_equal(compare_keys(&all[i - 1], &all[i]), 0);
}

static void every_root_is_the_one_that_python_computes(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(root_vectors); i++) {
        struct key_fingerprint fingerprint;
        struct key root;

        memcpy(fingerprint.bytes, root_vectors[i].model, KEY_BYTES);
        struct key_root_fields fields = fields_of(&root_vectors[i], &fingerprint);
        assert_int_equal(key_root(*state, &fields, &root), 0);
        assert_memory_equal(root.bytes, root_vectors[i].key, KEY_BYTES);
    }
}

static void every_block_key_is_the_one_that_python_computes(void **state)
{
    const struct key root = first_root(*state);

    for (size_t i = 0; i < ARRAY_SIZE(chain_vectors); i++) {
        const struct chain_vector *vector = &chain_vectors[i];
        const struct key_prompt prompt = {.parent = &root,
                                          .tokens = tokens,
                                          .num_tokens = vector->num_tokens,
                                          .block_tokens = vector->block_tokens,
                                          .extras = vector->extras,
                                          .num_extras = vector->num_extras,
                                          .out = keys};

        assert_int_equal(key_chain(*state, &prompt), 0);
        for (size_t k = 0; k < vector->num_keys; k++)
            assert_memory_equal(keys[vector->keys[k].at].bytes, vector->keys[k].key, KEY_BYTES);
    }
}

/* The byte 'A' @num_bytes times, or absent. */
static struct key_bytes as(int num_bytes)
{
    static const char bytes[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    return num_bytes < 0 ? (struct key_bytes){0} : (struct key_bytes){bytes, (size_t)num_bytes};
}

/* Identities whose values, written one after the other, are all TOTAL times 'A', in any order. */
static void identities_with_equal_concatenations_have_different_keys(void **state)
{
    enum { TOTAL = 24, GENERATION_BYTES = 8 };
    const struct key_fingerprint all_a = {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    size_t num_keys = 0;

    for (int generation = 0; generation <= 1; generation++) {
        const int num_bytes = TOTAL - generation * GENERATION_BYTES;
        for (int adapter = -1; adapter <= num_bytes; adapter++) {
            const int num_left = num_bytes - (adapter > 0 ? adapter : 0);
            for (int salt = -1; salt <= num_left; salt++) {
                const int num_extra = num_left - (salt > 0 ? salt : 0);
                const struct key_root_fields fields = {.domain_secret = all_a.bytes,
                                                       .model = &all_a,
                                                       .adapter_id = as(adapter),
                                                       .has_adapter_generation = generation,
                                                       .adapter_generation = 0x4141414141414141,
                                                       .engine_salt = as(salt)};
                const struct key_extra extra = {0, as(num_extra).bytes, (size_t)num_extra};
                struct key root;
                const struct key_prompt prompt = {.parent = &root,
                                                  .tokens = tokens,
                                                  .num_tokens = 16,
                                                  .block_tokens = 16,
                                                  .extras = &extra,
                                                  .num_extras = 1,
                                                  .out = &keys[num_keys++]};

                assert_int_equal(key_root(*state, &fields, &root), 0);
                assert_int_equal(key_chain(*state, &prompt), 0);
            }
        }
    }
    assert_true(num_keys > 500);
    assert_all_differ(keys, num_keys);
}

static void identities_that_differ_in_anything_have_different_keys(void **state)
{
    static const uint8_t secrets[2][KEY_BYTES] = {VECTOR_SECRET, {1}};
    static const struct key_fingerprint models[2] = {{VECTOR_FINGERPRINT_LLAMA},
                                                     {VECTOR_FINGERPRINT_GEMMA}};
    static const struct key_bytes strings[4] = {{0}, {"", 0}, {"a", 1}, {"b", 1}};
    static const struct key_extra extras[4] = {{0}, {0, "a", 1}, {0, "b", 1}, {0, "a\0", 2}};
    size_t num_keys = 0;

    for (unsigned pick = 0; pick < 2 * 2 * 4 * 4 * 4 * 4; pick++) {
        const unsigned generation = pick >> 6 & 3; /* none, 0, 1, 2 */
        const struct key_root_fields fields = {.domain_secret = secrets[pick & 1],
                                               .model = &models[pick >> 1 & 1],
                                               .adapter_id = strings[pick >> 2 & 3],
                                               .engine_salt = strings[pick >> 4 & 3],
                                               .has_adapter_generation = generation > 0,
                                               .adapter_generation = generation - 1};
        struct key root;
        const struct key_prompt prompt = {.parent = &root,
                                          .tokens = tokens,
                                          .num_tokens = 16,
                                          .block_tokens = 16,
                                          .extras = &extras[pick >> 8],
                                          .num_extras = 1,
                                          .out = &keys[num_keys++]};

        assert_int_equal(key_root(*state, &fields, &root), 0);
        assert_int_equal(key_chain(*state, &prompt), 0);
    }
    assert_all_differ(keys, num_keys);
}

static void a_block_differs_by_its_tokens_their_number_and_its_parent(void **state)
{
    const uint32_t zeros[17] = {0};
    struct key parents[2] = {{{1}}, {{2}}};
    struct key found[5];
    const struct key_prompt prompts[] = {
        {.parent = &parents[0],
         .tokens = zeros,
         .num_tokens = 16,
         .block_tokens = 16,
         .out = found},
        {&parents[1], 0, zeros, 16, 16, NULL, 0, &found[1]},
        {&parents[0], 0, zeros, 17, 17, NULL, 0, &found[2]},
        {&parents[0], 0, zeros, 8, 8, NULL, 0, &found[3]},
        {&parents[0], 0, tokens, 16, 16, NULL, 0, &found[4]},
    };

    assert_int_equal(key_chains(*state, prompts, ARRAY_SIZE(prompts)), 0);
    assert_all_differ(found, ARRAY_SIZE(found));
}

/* Some extras of every length class, in blocks of their own. */
static const struct key_extra some_extras[] = {
    {1, "offset 1", 8}, {2, "0123456789abcdef", 16}, {5, longest_extra, 300}, {7, "z", 1}};

static void a_chain_continued_from_anywhere_equals_one_call(void **state)
{
    const struct key root = first_root(*state);

    for (uint32_t block_tokens = 1; block_tokens <= 33; block_tokens++) {
        struct key_prompt prompt = {.parent = &root,
                                    .tokens = tokens,
                                    .num_tokens = 9 * block_tokens,
                                    .block_tokens = block_tokens,
                                    .extras = some_extras,
                                    .num_extras = ARRAY_SIZE(some_extras),
                                    .out = keys};

        assert_int_equal(key_chain(*state, &prompt), 0);
        for (uint32_t first = 1; first < 9; first++) {
            prompt.parent = &keys[first - 1];
            prompt.first_block = first;
            prompt.tokens = &tokens[first * block_tokens];
            prompt.num_tokens = (9 - first) * block_tokens;
            prompt.out = others;
            assert_int_equal(key_chain(*state, &prompt), 0);
            assert_memory_equal(others, &keys[first], (9 - first) * sizeof(struct key));
        }
    }
}

static void a_key_may_be_written_over_its_own_parent(void **state)
{
    struct key running = first_root(*state);
    const struct key_prompt prompt = {.parent = &running,
                                      .tokens = tokens,
                                      .num_tokens = 16,
                                      .block_tokens = 16,
                                      .out = &running};

    assert_int_equal(key_chain(*state, &prompt), 0);
    assert_string_equal(chain_vectors[2].name, "16 tokens a block");
    assert_memory_equal(running.bytes, chain_vectors[2].keys[0].key, KEY_BYTES);
}

static void many_prompts_in_one_call_equal_single_calls(void **state)
{
    const struct key root = first_root(*state);
    struct key_prompt prompts[40];
    size_t num_keys = 0;

    for (uint32_t i = 0; i < ARRAY_SIZE(prompts); i++) {
        prompts[i] = (struct key_prompt){.parent = &root,
                                         .tokens = &tokens[i],
                                         .num_tokens = i * 11, /* the first has none */
                                         .block_tokens = 1 + i % 5 * 8,
                                         .extras = some_extras,
                                         .num_extras = i % 4,
                                         .out = &keys[num_keys]};
        num_keys += prompts[i].num_tokens / prompts[i].block_tokens;
    }
    assert_int_equal(key_chains(*state, prompts, ARRAY_SIZE(prompts)), 0);

    for (size_t i = 0; i < ARRAY_SIZE(prompts); i++) {
        const struct key *expected = prompts[i].out;

        prompts[i].out = others;
        assert_int_equal(key_chain(*state, &prompts[i]), 0);
        assert_memory_equal(others, expected,
                            prompts[i].num_tokens / prompts[i].block_tokens * sizeof(struct key));
    }
}

static void unaligned_inputs_give_the_same_keys(void **state)
{
    enum { NUM_TOKENS = 80 };
    static uint8_t moved[NUM_TOKENS * 4 + 64 + 16];
    const struct key root = first_root(*state);
    struct key_extra extra = {1, some_extras[1].bytes, some_extras[1].num_bytes};
    struct key_prompt prompt = {.parent = &root,
                                .tokens = tokens,
                                .num_tokens = NUM_TOKENS,
                                .block_tokens = 20,
                                .extras = &extra,
                                .num_extras = 1,
                                .out = keys};

    assert_int_equal(key_chain(*state, &prompt), 0);
    for (size_t by = 1; by < 64; by++) {
        memcpy(moved + by, tokens, NUM_TOKENS * 4);
        memcpy(moved + by + NUM_TOKENS * 4, some_extras[1].bytes, 16);
        prompt.tokens = moved + by;
        extra.bytes = moved + by + NUM_TOKENS * 4;
        prompt.out = others;
        assert_int_equal(key_chain(*state, &prompt), 0);
        assert_memory_equal(others, keys, NUM_TOKENS / 20 * sizeof(struct key));
    }
}

static void an_extra_of_no_bytes_is_no_extra(void **state)
{
    const struct key root = first_root(*state);
    const struct key_extra empty = {0, "", 0};
    struct key_prompt prompt = {
        .parent = &root, .tokens = tokens, .num_tokens = 16, .block_tokens = 16, .out = keys};

    assert_int_equal(key_chain(*state, &prompt), 0);
    prompt.extras = &empty;
    prompt.num_extras = 1;
    prompt.out = others;
    assert_int_equal(key_chain(*state, &prompt), 0);
    assert_memory_equal(keys, others, sizeof(struct key));
}

/* @bad must be refused alone, and behind good prompts, and then no key at all may be written. */
static void assert_refused(struct key_hasher *hasher, struct key_prompt bad)
{
    const struct key untouched = {{0x5a}};
    struct key root = {{7}}, out[2] = {untouched, untouched};
    struct key_prompt prompts[2] = {{&root, 0, tokens, 16, 16, NULL, 0, &out[0]}, bad};

    if (bad.out)
        prompts[1].out = &out[1];
    assert_int_equal(key_chain(hasher, &prompts[1]), -EINVAL);
    assert_int_equal(key_chains(hasher, prompts, 2), -EINVAL);
    assert_memory_equal(&out[0], &untouched, sizeof(untouched));
    assert_memory_equal(&out[1], &untouched, sizeof(untouched));
}

static void a_prompt_beyond_its_bounds_is_refused_and_writes_nothing(void **state)
{
    static const struct key_extra unsorted[] = {{1, "a", 1}, {0, "b", 1}};
    static const struct key_extra twice[] = {{1, "a", 1}, {1, "b", 1}};
    static const struct key_extra too_long = {0, longest_extra, KEY_MAX_EXTRA_BYTES + 1};
    static const struct key_extra no_bytes = {0, NULL, 1};
    const struct key root = {{1}};
    const struct key_prompt good = {&root, 0, tokens, 16, 16, NULL, 0, keys};
    struct key_prompt bad[12];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = good;
    bad[0].block_tokens = 0;
    bad[1].block_tokens = KEY_MAX_BLOCK_TOKENS + 1;
    bad[2].parent = NULL;
    bad[3].tokens = NULL;
    bad[4].out = NULL;
    bad[5].num_extras = 1; /* of none */
    bad[6].extras = unsorted, bad[6].num_extras = 2;
    bad[7].extras = twice, bad[7].num_extras = 2;
    bad[8].extras = &too_long, bad[8].num_extras = 1;
    bad[9].extras = &no_bytes, bad[9].num_extras = 1;
    bad[10].num_tokens = SIZE_MAX;
    bad[11].first_block = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_refused(*state, bad[i]);
    assert_int_equal(key_chain(*state, &good), 0);
}

static void a_root_without_secret_or_model_or_beyond_its_bounds_is_refused(void **state)
{
    const struct key untouched = {{0x5a}};
    const struct key_root_fields good = fields_of(&root_vectors[4], &model);
    struct key_root_fields bad[6] = {good, good, good, good, good, good};
    struct key root = untouched;

    bad[0].domain_secret = NULL;
    bad[1].model = NULL;
    bad[2].adapter_id = (struct key_bytes){NULL, 1};
    bad[3].adapter_id = (struct key_bytes){longest_extra, KEY_MAX_FIELD_BYTES + 1};
    bad[4].engine_salt = (struct key_bytes){NULL, 1};
    bad[5].engine_salt = (struct key_bytes){longest_extra, KEY_MAX_FIELD_BYTES + 1};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(key_root(*state, &bad[i], &root), -EINVAL);
    assert_memory_equal(&root, &untouched, sizeof(root));
    assert_int_equal(key_root(*state, &good, &root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_root_is_the_one_that_python_computes),
        cmocka_unit_test(every_block_key_is_the_one_that_python_computes),
        cmocka_unit_test(identities_with_equal_concatenations_have_different_keys),
        cmocka_unit_test(identities_that_differ_in_anything_have_different_keys),
        cmocka_unit_test(a_block_differs_by_its_tokens_their_number_and_its_parent),
        cmocka_unit_test(a_chain_continued_from_anywhere_equals_one_call),
        cmocka_unit_test(a_key_may_be_written_over_its_own_parent),
        cmocka_unit_test(many_prompts_in_one_call_equal_single_calls),
        cmocka_unit_test(unaligned_inputs_give_the_same_keys),
        cmocka_unit_test(an_extra_of_no_bytes_is_no_extra),
        cmocka_unit_test(a_prompt_beyond_its_bounds_is_refused_and_writes_nothing),
        cmocka_unit_test(a_root_without_secret_or_model_or_beyond_its_bounds_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
