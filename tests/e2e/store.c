/* tests/e2e/store.c - prompts whose blocks say what they are: stored, found again, compared. */
#include "tests/e2e/store.h"

#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"
#include "tests/support/test.h"

static const struct kvpool_model stored = {.name = "stored",
                                           .weights_revision = "1",
                                           .dtype = KVPOOL_OPAQUE,
                                           .layout_name = "bytes",
                                           .opaque_block_bytes = STORE_BLOCK};

uint32_t store_register(struct kvpool *kvpool)
{
    uint32_t model = 0;

    assert_int_equal(kvpool_register_model(kvpool, &stored, &model, NULL), 0);
    return model;
}

struct kvpool_prompt store_prompt(uint32_t model, uint32_t seed, uint32_t num_blocks,
                                  uint32_t *tokens)
{
    tokens_make(tokens, (size_t)num_blocks * STORE_TOKENS, seed);
    return (struct kvpool_prompt){.model = model,
                                  .tokens = tokens,
                                  .num_tokens = (size_t)num_blocks * STORE_TOKENS,
                                  .raw = true};
}

int store_put(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks, bool keep)
{
    static uint8_t bytes[STORE_MAX_BLOCKS][STORE_BLOCK];
    uint32_t tokens[STORE_MAX_BLOCKS * STORE_TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, seed, num_blocks, tokens);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;
    int status = kvpool_allocate(kvpool, seed, &prompt, &unfilled, &result);

    if (status)
        return status;
    uint32_t first = (uint32_t)(result.matched / STORE_TOKENS);
    for (uint32_t at = first; at < num_blocks; at++)
        block_fill(bytes[at], STORE_BLOCK, block_tag(seed, at, 1));
    const struct kvpool_blocks blocks = {.sequence = seed,
                                         .first_block = first,
                                         .num_blocks = num_blocks - first,
                                         .data = bytes[first],
                                         .data_bytes =
                                             (uint64_t)(num_blocks - first) * STORE_BLOCK};
    if (first < num_blocks) {
        assert_int_equal(kvpool_write(kvpool, &blocks), 0);
        assert_int_equal(kvpool_fill(kvpool, seed), 0);
        assert_int_equal(kvpool_publish(kvpool, seed), 0);
    }
    if (!keep)
        assert_int_equal(kvpool_release(kvpool, seed), 0);
    return 0;
}

void store_check(struct kvpool *kvpool, uint64_t sequence, uint32_t seed, uint32_t num_blocks)
{
    static uint8_t bytes[STORE_MAX_BLOCKS][STORE_BLOCK];
    const struct kvpool_blocks blocks = {.sequence = sequence,
                                         .num_blocks = num_blocks,
                                         .data = bytes,
                                         .data_bytes = (uint64_t)num_blocks * STORE_BLOCK};

    if (num_blocks == 0)
        return;
    assert_int_equal(kvpool_read(kvpool, &blocks), 0);
    for (uint32_t at = 0; at < num_blocks; at++) {
        if (!block_is(bytes[at], STORE_BLOCK, block_tag(seed, at, 1)))
            fail_msg("block %u of prompt %u is not what was written", at, seed);
    }
}

int store_get(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks,
              struct kvpool_result *out)
{
    uint32_t tokens[STORE_MAX_BLOCKS * STORE_TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, seed, num_blocks, tokens);
    const struct kvpool_allocate_options matched_only = {.unfilled = true, .has_take = true};
    int status = kvpool_allocate(kvpool, seed, &prompt, &matched_only, out);

    if (status)
        return status;
    store_check(kvpool, seed, seed, (uint32_t)(out->matched / STORE_TOKENS));
    assert_int_equal(kvpool_release(kvpool, seed), 0);
    return 0;
}
