/* tests/pool/test_pool_create.c - pool_create() when memory runs out at the first, second, third
 * ... time. */
#include "pool/pool.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The linker sends every allocation here (--wrap): the one with number fail_at fails. */
static int num_allocations, fail_at;
static long num_live;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

static int is_failing(void)
{
    return ++num_allocations == fail_at;
}

static void *count_live(void *memory)
{
    num_live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return is_failing() ? NULL : count_live(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_failing() ? NULL : count_live(__real_calloc(count, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_failing() ? NULL : count_live(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *memory)
{
    num_live -= memory != NULL;
    __real_free(memory);
}

static void ignore(void *context, const struct pool_effect *effect)
{
    (void)context;
    (void)effect;
}

static struct pool_config small_config(void)
{
    struct pool_config config;

    pool_config_init(&config, 64, 16);
    config.sink.emit = ignore;
    return config;
}

static void a_pool_without_memory_leaves_nothing_behind(void **state)
{
    struct pool_config config = small_config();
    struct pool *untouched = (struct pool *)state, *pool = untouched;
    int err = -ENOMEM;

    for (fail_at = 1; err; fail_at++) {
        num_allocations = 0;
        num_live = 0;
        err = pool_create(&config, &pool);
        if (num_allocations >= fail_at) { /* it was reached */
            assert_int_equal(err, -ENOMEM);
            assert_ptr_equal(pool, untouched);
            assert_int_equal(num_live, 0);
        }
        assert_true(fail_at < 1000);
    }
    assert_int_equal(err, 0);
    assert_true(fail_at > 2); /* at least one failure was seen */
    pool_destroy(pool);
    assert_int_equal(num_live, 0);
}

static void a_pool_takes_no_memory_after_its_creation(void **state)
{
    struct pool_config config = small_config();
    struct pool_quota quota = {.limit = POOL_UNLIMITED, .weight = 1};
    struct pool_model_shape shape = {.block_tokens = 4,
                                     .num_layers = 1,
                                     .num_groups = 1,
                                     .groups = {{.pages = 1, .slots = 2}},
                                     .num_ranks = 1};
    uint32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct pool_key keys[2] = {{{1}}, {{2}}};
    struct pool_prompt prompt = {.shared = POOL_NONE,
                                 .tokens = {.ids = ids, .count = ARRAY_SIZE(ids), .keys = keys}};
    struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    struct pool_found found;
    struct pool_name name = {.id = 1};
    struct pool *pool;

    (void)state;
    fail_at = 0;
    num_live = 0;
    assert_int_equal(pool_create(&config, &pool), 0);
    num_allocations = 0;
    assert_int_equal(pool_tenant_create(pool, &quota, &prompt.tenant), 0);
    prompt.domain = prompt.tenant;
    assert_int_equal(pool_model_register(pool, &shape, &prompt.model), 0);
    assert_int_equal(pool_session_open(pool, &name.session), 0);
    assert_int_equal(pool_alloc(pool, name, &prompt, &options, &found), 0);
    assert_int_equal(pool_publish(pool, name), 0);
    assert_int_equal(pool_fork(pool, name, 2), 0);
    assert_int_equal(pool_release(pool, name, 1), 0);
    assert_int_equal(pool_session_end(pool, name.session, false, NULL), 0);
    while (pool_advance(pool, 1))
        ;
    pool_check(pool);
    assert_int_equal(num_allocations, 0);
    pool_destroy(pool);
    assert_int_equal(num_live, 0);
}

static void a_destroyed_pool_may_be_null(void **state)
{
    (void)state;
    pool_destroy(NULL);
}

static void a_wrong_configuration_is_refused(void **state)
{
    struct pool *pool;
    struct pool_config config = small_config();

    (void)state;
    fail_at = 0;
    config.num_devices = 0;
    assert_int_equal(pool_create(&config, &pool), -EINVAL);
    config = small_config();
    config.sink.emit = NULL;
    assert_int_equal(pool_create(&config, &pool), -EINVAL);
    config = small_config();
    config.max_blocks = 0;
    assert_int_equal(pool_create(&config, &pool), -EINVAL);
    config = small_config();
    config.max_block_tokens = POOL_MAX_BLOCK_TOKENS + 1;
    assert_int_equal(pool_create(&config, &pool), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_without_memory_leaves_nothing_behind),
        cmocka_unit_test(a_pool_takes_no_memory_after_its_creation),
        cmocka_unit_test(a_destroyed_pool_may_be_null),
        cmocka_unit_test(a_wrong_configuration_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
