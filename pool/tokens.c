/* pool/tokens.c - token ids and keys of sequences, in chunks that forks share. */
#include "pool/table.h"

#include <string.h>

/* A chunk has the keys of its positions, then their token ids. */
static struct pool_key *keys_of(const struct chunk *chunk)
{
    return (struct pool_key *)(chunk + 1);
}

static uint32_t *ids_of(const struct chunk *chunk, const struct model *model)
{
    return (uint32_t *)(keys_of(chunk) + model->token_positions);
}

static uint32_t tokens_per_chunk(const struct model *model)
{
    return model->token_positions * model->shape.block_tokens;
}

void tokens_path(struct pool *pool, const struct sequence *sequence, uint32_t first)
{
    uint32_t size = pool->models[sequence->model].token_positions;
    uint32_t last = (positions_of(pool, sequence, sequence->length) - 1) / size;
    uint32_t chunk = sequence->token_chunk;

    for (uint32_t at = last + 1; at > first / size; at--) {
        pool->token_path[at - 1 - first / size] = chunk;
        chunk = chunk_at(pool->token_chunks, chunk)->parent;
    }
}

static struct chunk *chunk_on_path(const struct pool *pool, const struct model *model,
                                   uint32_t first, uint32_t position)
{
    uint32_t at = position / model->token_positions - first / model->token_positions;

    return chunk_at(pool->token_chunks, pool->token_path[at]);
}

const struct pool_key *tokens_key_at(const struct pool *pool, const struct sequence *sequence,
                                     uint32_t first, uint32_t position)
{
    const struct model *model = &pool->models[sequence->model];

    return &keys_of(chunk_on_path(pool, model, first, position))[position % model->token_positions];
}

const uint32_t *tokens_ids_at(const struct pool *pool, const struct sequence *sequence,
                              uint32_t first, uint32_t position)
{
    const struct model *model = &pool->models[sequence->model];

    return ids_of(chunk_on_path(pool, model, first, position), model) +
           (size_t)(position % model->token_positions) * model->shape.block_tokens;
}

uint64_t tokens_chunks_needed(const struct pool *pool, const struct sequence *sequence,
                              uint64_t count)
{
    uint32_t size = tokens_per_chunk(&pool->models[sequence->model]);
    uint64_t have = (sequence->length + size - 1) / size;
    uint64_t want = (sequence->length + count + size - 1) / size;

    return want - have + (have > 0); /* one for a last chunk that is shared */
}

/* The last chunk, when others have it too, is copied before it is written. */
static void own_last_chunk(struct pool *pool, struct sequence *sequence)
{
    struct chunk_store *store = pool->token_chunks;
    struct chunk *chunk = chunk_at(store, sequence->token_chunk);

    if (chunk->refs == 1)
        return;
    if (chunk->parent != NONE)
        chunk_at(store, chunk->parent)->refs++;
    uint32_t copy = chunk_take(store, chunk->parent);
    memcpy(chunk_at(store, copy) + 1, chunk + 1, chunk_body_bytes(store));
    chunk->refs--;
    sequence->token_chunk = copy;
}

void tokens_add(struct pool *pool, struct sequence *sequence, const struct pool_tokens *tokens)
{
    const struct model *model = &pool->models[sequence->model];
    uint32_t size = tokens_per_chunk(model), block_tokens = model->shape.block_tokens;
    const uint32_t *ids = tokens->ids;
    const struct pool_key *keys = tokens->keys;

    for (uint64_t left = tokens->count; left > 0;) {
        uint32_t at = (uint32_t)(sequence->length % size);
        uint32_t count = left < size - at ? (uint32_t)left : size - at;

        if (at == 0)
            sequence->token_chunk = chunk_take(pool->token_chunks, sequence->token_chunk);
        else
            own_last_chunk(pool, sequence);
        struct chunk *chunk = chunk_at(pool->token_chunks, sequence->token_chunk);
        memcpy(ids_of(chunk, model) + at, ids, count * sizeof(*ids));
        uint32_t first_full = at / block_tokens, end_full = (at + count) / block_tokens;
        if (end_full > first_full) {
            memcpy(keys_of(chunk) + first_full, keys, (end_full - first_full) * sizeof(*keys));
            keys += end_full - first_full;
        }
        ids += count;
        left -= count;
        sequence->length += count;
    }
}

void tokens_truncate(struct pool *pool, struct sequence *sequence, uint64_t num_tokens)
{
    struct chunk_store *store = pool->token_chunks;
    uint32_t size = tokens_per_chunk(&pool->models[sequence->model]);
    uint64_t have = (sequence->length + size - 1) / size;
    uint64_t want = (num_tokens + size - 1) / size;

    for (; have > want; have--) {
        uint32_t chunk = sequence->token_chunk, parent = chunk_at(store, chunk)->parent;
        if (parent != NONE)
            chunk_at(store, parent)->refs++;
        sequence->token_chunk = parent;
        chain_release(store, chunk);
    }
    sequence->length = num_tokens;
}

/* Calls @use for each run of ids in one chunk, from the last to the first: parents are the only
 * links. */
static bool for_each_run(const struct pool *pool, const struct sequence *sequence, uint64_t first,
                         uint64_t count,
                         bool (*use)(const uint32_t *ids, uint64_t count, void *argument,
                                     uint64_t offset),
                         void *argument)
{
    const struct model *model = &pool->models[sequence->model];
    uint32_t size = tokens_per_chunk(model);
    uint32_t chunk = sequence->token_chunk;
    uint64_t start = sequence->length == 0 ? 0 : (sequence->length - 1) / size * size;

    for (; count > 0; start -= size) {
        uint64_t from = start > first ? start : first;
        if (first + count > from) {
            uint64_t num = first + count - from;
            const uint32_t *ids = ids_of(chunk_at(pool->token_chunks, chunk), model);
            if (!use(ids + from % size, num, argument, from - first))
                return false;
            count -= num;
        }
        chunk = chunk_at(pool->token_chunks, chunk)->parent;
    }
    return true;
}

static bool copy_run(const uint32_t *ids, uint64_t count, void *argument, uint64_t offset)
{
    memcpy((uint32_t *)argument + offset, ids, count * sizeof(*ids));
    return true;
}

static bool compare_run(const uint32_t *ids, uint64_t count, void *argument, uint64_t offset)
{
    return memcmp((const uint32_t *)argument + offset, ids, count * sizeof(*ids)) == 0;
}

int tokens_copy(const struct pool *pool, const struct sequence *sequence, uint64_t first,
                uint64_t count, uint32_t *out)
{
    if (first > sequence->length || count > sequence->length - first)
        return POOL_INVALID;
    (void)for_each_run(pool, sequence, first, count, copy_run, out);
    return 0;
}

bool tokens_equal(const struct pool *pool, const struct sequence *sequence, uint64_t first,
                  const uint32_t *ids, uint64_t count)
{
    return for_each_run(pool, sequence, first, count, compare_run, (void *)(uintptr_t)ids);
}
