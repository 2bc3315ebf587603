/* tests/daemon/small_pool.h - a pool of eight blocks of one token, which tenants fight for. */
#pragma once

#include "pool/pool.h"
#include "tests/support/test.h"

struct small_pool {
    struct pool *pool;
    pool_model model;
    pool_session session;
    uint64_t next_sequence;
};

static inline void ignore_effect(void *context, const struct pool_effect *effect)
{
    (void)context;
    (void)effect;
}

static inline void small_pool_init(struct small_pool *small)
{
    struct pool_config config;
    const struct pool_model_shape shape = {
        .block_tokens = 1, .num_layers = 1, .num_groups = 1, .groups = {{0, 1, 1}}, .num_ranks = 1};

    *small = (struct small_pool){.next_sequence = 1};
    pool_config_init(&config, 64, 8);
    config.devices[0].watermark = 0;
    config.sink = (struct pool_sink){.emit = ignore_effect};
    assert_int_equal(pool_create(&config, &small->pool), 0);
    assert_int_equal(pool_model_register(small->pool, &shape, &small->model), 0);
    assert_int_equal(pool_session_open(small->pool, &small->session), 0);
}

static inline pool_payer small_pool_tenant(struct small_pool *small)
{
    const struct pool_quota quota = {.limit = POOL_UNLIMITED, .weight = 1};
    pool_payer tenant;

    assert_int_equal(pool_tenant_create(small->pool, &quota, &tenant), 0);
    return tenant;
}

/* @tenant caches @count blocks that nobody holds, evicting what is in the way. */
static inline void small_pool_fill(struct small_pool *small, pool_payer tenant, uint32_t count)
{
    uint32_t ids[8];
    struct pool_key keys[8];
    struct pool_found found;
    const struct pool_name name = {small->session, small->next_sequence++};

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = i;
        keys[i] = (struct pool_key){{(uint8_t)tenant, (uint8_t)i, (uint8_t)name.id}};
    }
    const struct pool_prompt prompt = {.tenant = tenant,
                                       .domain = tenant,
                                       .shared = POOL_NONE,
                                       .model = small->model,
                                       .tokens = {.ids = ids, .count = count, .keys = keys}};
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    assert_int_equal(pool_alloc(small->pool, name, &prompt, &options, &found), 0);
    assert_int_equal(pool_publish(small->pool, name), 0);
    assert_int_equal(pool_release(small->pool, name, 0), 0);
}
