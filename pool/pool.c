/* pool/pool.c - takes all memory at start, and gives it back. */
#include <stdlib.h>

#include "pool/chunks.h"
#include "pool/grow.h"
#include "pool/memory.h"
#include "pool/plan.h"
#include "pool/tier.h"

enum {
    TOKEN_CHUNK_BYTES = 2048, /* 21 positions of 16 tokens; more where one would not fit */
    TABLE_CHUNK_BYTES = 512   /* 61 positions of one group; 7 of 8 groups */
};

void pool_config_init(struct pool_config *config, uint32_t max_blocks, uint64_t pages)
{
    *config = (struct pool_config){.devices = {{.pages = pages}},
                                   .num_devices = 1,
                                   .max_blocks = max_blocks,
                                   .max_block_tokens = 16,
                                   .max_sequences = 16384,
                                   .max_sequence_blocks = 65536,
                                   .max_tokens = UINT64_C(16) * max_blocks,
                                   .max_payers = 512,
                                   .max_models = 64,
                                   .max_arenas = 4096,
                                   .max_sessions = 1024,
                                   .max_transfers = 4096,
                                   .max_waiters = 4096,
                                   .max_steps = 1024,
                                   .max_step_rows = 512};
}

/* Keeps count of what is taken. */
static void *take(struct pool *pool, uint64_t count, uint64_t bytes)
{
    pool->bytes += count * bytes;
    return memory_take(count, bytes);
}

static void records_init(struct record_pool *records, uint64_t capacity)
{
    *records = (struct record_pool){.capacity = (uint32_t)capacity, .first_free = NONE};
}

static bool config_is_valid(const struct pool_config *config)
{
    if (config->num_devices == 0 || config->num_devices > POOL_MAX_DEVICES ||
        config->max_blocks == 0 || config->max_blocks >= UINT32_MAX / 2 || !config->sink.emit ||
        config->max_block_tokens == 0 || config->max_block_tokens > POOL_MAX_BLOCK_TOKENS ||
        config->max_arenas > UINT16_MAX || config->max_sequence_blocks == 0)
        return false;
    for (uint32_t device = 0; device < config->num_devices; device++) {
        if (config->devices[device].pages == 0 || config->devices[device].pages > UINT32_MAX)
            return false;
    }
    return tiers_are_valid(config);
}

/* Granules: never more than pages, nor than slots. */
static uint64_t max_granules(const struct pool *pool)
{
    uint64_t granules = 0;

    for (uint32_t at = 0; at < POOL_NUM_TIERS; at++) {
        const struct tier *tier = &pool->tiers[at];
        uint64_t pages = 0;
        for (uint32_t device = tier->first_device; device < tier->end_device; device++)
            pages += pool->devices[device].pages;
        granules += pages < tier->max_slots ? pages : tier->max_slots;
    }
    return granules;
}

static uint64_t max_slots(const struct pool *pool)
{
    uint64_t slots = 0;

    for (uint32_t at = 0; at < POOL_NUM_TIERS; at++)
        slots += pool->tiers[at].max_slots;
    return slots;
}

static bool take_blocks(struct pool *pool)
{
    const struct pool_config *config = &pool->config;
    uint64_t blocks = max_slots(pool); /* a block has a slot somewhere */

    pool->token_stride = config->max_block_tokens <= 32 ? config->max_block_tokens : 32;
    records_init(&pool->block_pool, blocks);
    records_init(&pool->slot_pool, blocks);
    pool->blocks = take(pool, blocks, sizeof(*pool->blocks));
    pool->block_tokens = take(pool, blocks, pool->token_stride * sizeof(uint32_t));
    pool->slots = take(pool, blocks, sizeof(*pool->slots));
    if (index_init(&pool->key_index, blocks) ||
        index_init(&pool->granule_index, max_granules(pool)))
        return false;
    pool->bytes += index_bytes(&pool->key_index) + index_bytes(&pool->granule_index);
    return pool->blocks && pool->block_tokens && pool->slots;
}

static bool take_payers(struct pool *pool)
{
    const struct pool_config *config = &pool->config;
    uint64_t payers = config->max_payers, devices = pool->num_devices;
    uint64_t arenas = (uint64_t)config->max_arenas * pool->num_tiers;

    records_init(&pool->payer_pool, payers);
    records_init(&pool->model_pool, config->max_models);
    records_init(&pool->shelf_pool, config->max_arenas);
    records_init(&pool->arena_pool, arenas);
    pool->payers = take(pool, payers, sizeof(*pool->payers));
    pool->accounts = take(pool, payers * devices, sizeof(*pool->accounts));
    pool->orders = take(pool, payers * MAX_PLACEMENTS, sizeof(*pool->orders));
    pool->rights = take(pool, payers * payers, sizeof(*pool->rights));
    pool->evictions = take(pool, payers * payers, sizeof(*pool->evictions));
    pool->models = take(pool, config->max_models, sizeof(*pool->models));
    pool->shelves = take(pool, config->max_arenas, sizeof(*pool->shelves));
    pool->arenas = take(pool, arenas, sizeof(*pool->arenas));
    for (pool->tournament_size = 1; pool->tournament_size < payers;)
        pool->tournament_size *= 2;
    for (uint32_t device = 0; device < devices; device++) {
        struct device *record = &pool->devices[device];
        record->winners = take(pool, 2 * (uint64_t)pool->tournament_size, sizeof(uint32_t));
        if (!record->winners)
            return false;
        for (uint32_t at = 0; at < 2 * pool->tournament_size; at++)
            record->winners[at] = NONE;
    }
    return pool->payers && pool->accounts && pool->orders && pool->rights && pool->evictions &&
           pool->models && pool->shelves && pool->arenas;
}

/* Chunks for max_tokens in 16-token blocks, and one partly used for each sequence. */
static bool take_chunks(struct pool *pool)
{
    const struct pool_config *config = &pool->config;
    uint64_t token_bytes = 16 * sizeof(uint32_t) + sizeof(struct pool_key); /* of a full block */
    uint64_t token_chunks =
        config->max_sequences + config->max_tokens / 16 * token_bytes / (TOKEN_CHUNK_BYTES - 256);
    uint64_t table_chunks = config->max_sequences + config->max_tokens / 16 / 16;
    uint32_t chunk_bytes = (uint32_t)(sizeof(struct chunk) + sizeof(struct pool_key)) +
                           config->max_block_tokens * (uint32_t)sizeof(uint32_t);

    chunk_bytes = chunk_bytes < TOKEN_CHUNK_BYTES ? TOKEN_CHUNK_BYTES : (chunk_bytes + 7) & ~7u;
    pool->bytes += token_chunks * chunk_bytes + table_chunks * TABLE_CHUNK_BYTES;
    return token_chunks < UINT32_MAX && table_chunks < UINT32_MAX &&
           !chunks_create((uint32_t)token_chunks, chunk_bytes, &pool->token_chunks) &&
           !chunks_create((uint32_t)table_chunks, TABLE_CHUNK_BYTES, &pool->table_chunks);
}

static bool take_sequences(struct pool *pool)
{
    const struct pool_config *config = &pool->config;

    records_init(&pool->sequence_pool, config->max_sequences);
    records_init(&pool->session_pool, config->max_sessions);
    records_init(&pool->step_pool, config->max_steps);
    records_init(&pool->transfer_pool, config->max_transfers);
    records_init(&pool->waiter_pool, config->max_waiters);
    pool->sequences = take(pool, config->max_sequences, sizeof(*pool->sequences));
    pool->sessions = take(pool, config->max_sessions, sizeof(*pool->sessions));
    pool->steps = take(pool, config->max_steps, sizeof(*pool->steps));
    pool->step_rows =
        take(pool, (uint64_t)config->max_steps * config->max_step_rows, sizeof(uint32_t));
    pool->transfers = take(pool, config->max_transfers, sizeof(*pool->transfers));
    pool->waiters = take(pool, config->max_waiters, sizeof(*pool->waiters));
    if (!take_chunks(pool) || index_init(&pool->sequence_index, config->max_sequences))
        return false;
    pool->bytes += index_bytes(&pool->sequence_index);
    return pool->sequences && pool->sessions && pool->steps && pool->step_rows && pool->transfers &&
           pool->waiters;
}

static bool take_scratch(struct pool *pool)
{
    const struct pool_config *config = &pool->config;
    uint64_t positions = config->max_sequence_blocks, rows = config->max_step_rows;
    uint64_t wants = (rows > 0 ? rows : 1) * POOL_MAX_GROUPS;

    pool->max_fresh = positions * POOL_MAX_GROUPS + wants;
    /* A slot takes up to two steps; a granule of several pages drops several. Over it: LIMIT. */
    pool->plan.max_steps = (uint32_t)(4 * pool->max_fresh + wants + 4096);
    pool->givers = take(pool, config->max_payers, sizeof(*pool->givers));
    pool->hits = take(pool, positions * POOL_MAX_GROUPS, sizeof(uint32_t));
    pool->fresh = take(pool, pool->max_fresh, sizeof(uint32_t));
    pool->path = take(pool, positions, sizeof(uint32_t));
    pool->token_path = take(pool, positions, sizeof(uint32_t));
    pool->wants = take(pool, wants, sizeof(*pool->wants));
    pool->grow_rows = take(pool, rows, sizeof(*pool->grow_rows));
    pool->plan.steps = take(pool, pool->plan.max_steps, sizeof(*pool->plan.steps));
    return pool->givers && pool->hits && pool->fresh && pool->path && pool->token_path &&
           pool->wants && pool->grow_rows && pool->plan.steps;
}

int pool_create(const struct pool_config *config, struct pool **out_pool)
{
    if (!config_is_valid(config))
        return -EINVAL;
    struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->config = *config;
    pool->bytes = sizeof(*pool);
    pool->ending = LIST_EMPTY;
    pool->waiting = LIST_EMPTY;
    pool->promoting = LIST_EMPTY;
    pool->stamp = pool->cold_stamp = COLD_STAMPS;
    tiers_init(pool);
    pool->taking_from = POOL_NONE;
    if (!take_blocks(pool) || !take_payers(pool) || !take_sequences(pool) || !take_scratch(pool)) {
        pool_destroy(pool); /* takes a half-built pool */
        return -ENOMEM;
    }
    *out_pool = pool;
    return 0;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    void *const memory[] = {
        pool->blocks,    pool->block_tokens, pool->slots,      pool->payers,    pool->accounts,
        pool->orders,    pool->rights,       pool->models,     pool->shelves,   pool->arenas,
        pool->sequences, pool->sessions,     pool->steps,      pool->step_rows, pool->transfers,
        pool->waiters,   pool->hits,         pool->fresh,      pool->path,      pool->token_path,
        pool->wants,     pool->grow_rows,    pool->plan.steps, pool->givers,    pool->evictions};
    for (size_t i = 0; i < ARRAY_SIZE(memory); i++)
        memory_give(memory[i]);
    for (uint32_t device = 0; device < MAX_DEVICES; device++)
        memory_give(pool->devices[device].winners);
    index_finish(&pool->key_index);
    index_finish(&pool->granule_index);
    index_finish(&pool->sequence_index);
    chunks_destroy(pool->token_chunks);
    chunks_destroy(pool->table_chunks);
    free(pool);
}

uint64_t pool_bytes(const struct pool *pool)
{
    return pool->bytes;
}

void pool_drain(struct pool *pool, bool is_draining)
{
    pool->is_draining = is_draining;
}
