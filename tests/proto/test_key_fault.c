/* tests/proto/test_key_fault.c - key_hasher_create() with the Nth allocation failing; none after
 * it. */
#include "proto/key.h"
#include "tests/support/test.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>

static long num_allocations; /* ours and OpenSSL's */
static long failing;         /* the one to fail, counted from 1; 0: none */
static long num_held;

static int must_fail(void)
{
    return ++num_allocations == failing;
}

/* The linker's --wrap sends calloc() and free() of proto/ here. */
void *__real_calloc(size_t num, size_t size);
void __real_free(void *memory);

void *__wrap_calloc(size_t num, size_t size)
{
    void *memory = must_fail() ? NULL : __real_calloc(num, size);
    num_held += memory != NULL;
    return memory;
}

void __wrap_free(void *memory)
{
    num_held -= memory != NULL;
    __real_free(memory);
}

static void *library_malloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    void *memory = must_fail() ? NULL : malloc(size);
    num_held += memory != NULL;
    return memory;
}

static void *library_realloc(void *old, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    if (must_fail())
        return NULL;
    void *memory = realloc(old, size);
    num_held += !old && memory;
    return memory;
}

static void library_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    num_held -= memory != NULL;
    __real_free(memory);
}

static void create_fails_whole_at_every_allocation(void **state)
{
    struct key_hasher *hasher = NULL;
    int err = -EIO;

    (void)state;
    assert_int_equal(key_hasher_create(&hasher), 0); /* OpenSSL's own set-up, once a process */
    key_hasher_destroy(hasher);
    hasher = NULL;

    const long num_before = num_held;
    for (long n = 1; err; n++) {
        num_allocations = 0;
        failing = n;
        err = key_hasher_create(&hasher);
        failing = 0;
        if (!err)
            break;
        assert_true(err == -ENOMEM || err == -EIO);
        assert_null(hasher);
        assert_int_equal(num_held, num_before);
        assert_true(n < 100);
    }
    assert_true(num_allocations >= 1);
    key_hasher_destroy(hasher);
    assert_int_equal(num_held, num_before);
}

static void making_keys_allocates_nothing(void **state)
{
    static const uint32_t tokens[65], layer = 0;
    static const struct key_layer_group group = {KEY_GROUP_FULL, 0, &layer, 1};
    static const struct key_model model = {.name = {"m", 1},
                                           .weights_revision = {"r", 1},
                                           .num_layers = 1,
                                           .groups = &group,
                                           .num_groups = 1,
                                           .num_kv_heads = 1,
                                           .k_head_dim = 1,
                                           .dtype = {"f16", 3},
                                           .block_tokens = 16};
    static const uint8_t long_extra[1000];
    const struct key_extra extras[] = {{0, long_extra, 8}, {1, long_extra, sizeof(long_extra)}};
    struct key_fingerprint fingerprint;
    const struct key_root_fields fields = {.domain_secret = long_extra, .model = &fingerprint};
    struct key root, keys[4];
    const struct key_prompt prompt = {&root, 0, tokens, 65, 16, extras, 2, keys};
    struct key_hasher *hasher;

    (void)state;
    if (VARIANT_IS_EVP && OPENSSL_VERSION_MINOR == 0)
        skip(); /* 3.0's EVP allocates its state for every message: see key_hash_evp.c */
    assert_int_equal(key_hasher_create(&hasher), 0);
    num_allocations = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(key_fingerprint(hasher, &model, &fingerprint), 0);
        assert_int_equal(key_root(hasher, &fields, &root), 0);
        assert_int_equal(key_chain(hasher, &prompt), 0);
    }
    assert_int_equal(num_allocations, 0);
    key_hasher_destroy(hasher);
}

static void destroying_nothing_is_allowed(void **state)
{
    (void)state;
    key_hasher_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_fails_whole_at_every_allocation),
        cmocka_unit_test(making_keys_allocates_nothing),
        cmocka_unit_test(destroying_nothing_is_allowed),
    };

    /* Must be the first thing that OpenSSL hears of. */
    if (!CRYPTO_set_mem_functions(library_malloc, library_realloc, library_free))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
