/* pool/check_tables.c - invariants of sequences, tables and chunks: I6 .. I9 of check.c. */
#include "pool/block.h"
#include "pool/check.h"
#include "pool/sequence.h"

static struct entry *entries_of(const struct chunk *chunk)
{
    return (struct entry *)(chunk + 1);
}

/* Whether a chunk is on the path of some sequence: it has refs. */
static bool chunk_is_used(const struct chunk_store *store, uint32_t id)
{
    return id < store->pool.num_touched && chunk_at(store, id)->refs > 0;
}

/* Takes every claim away (sign -1) or puts it back: each must come from somewhere, and add up. */
static void claim_refs(const struct pool *pool, struct chunk_store *store, bool of_tables, int sign)
{
    for (uint32_t id = 0; id < pool->sequence_pool.num_touched; id++) {
        const struct sequence *sequence = &pool->sequences[id];
        uint32_t last = of_tables ? sequence->table_chunk : sequence->token_chunk;
        if (sequence->is_used && last != NONE)
            chunk_at(store, last)->num_claims += (unsigned)sign & 0xffffff;
    }
    for (uint32_t id = 0; id < store->pool.num_touched; id++) {
        if (chunk_is_used(store, id) && chunk_at(store, id)->parent != NONE)
            chunk_at(store, chunk_at(store, id)->parent)->num_claims += (unsigned)sign & 0xffffff;
    }
}

static void check_refs(const struct pool *pool, struct chunk_store *store, bool of_tables)
{
    claim_refs(pool, store, of_tables, 1);
    for (uint32_t id = 0; id < store->pool.num_touched; id++) {
        const struct chunk *chunk = chunk_at(store, id);
        assert(!chunk_is_used(store, id) || chunk->refs == chunk->num_claims); /* I7 */
    }
    claim_refs(pool, store, of_tables, -1);
}

/* Adds @sign to the holds of all blocks named by tables and by tails under copy. */
static void claim_holds(struct pool *pool, int sign)
{
    struct chunk_store *store = pool->table_chunks;

    for (uint32_t id = 0; id < store->pool.num_touched; id++) {
        if (!chunk_is_used(store, id))
            continue;
        const struct chunk *chunk = chunk_at(store, id);
        uint32_t count = chunk->count * chunk->num_groups;
        for (uint32_t at = 0; at < count; at++) {
            uint32_t block = entries_of(chunk)[at].block;
            if (block != NONE)
                pool->blocks[block].holds += (uint32_t)sign;
        }
    }
    for (uint32_t id = 0; id < pool->sequence_pool.num_touched; id++) {
        const struct sequence *sequence = &pool->sequences[id];
        if (!sequence->is_used)
            continue;
        for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
            if (sequence->growth.old_tails[group] != NONE)
                pool->blocks[sequence->growth.old_tails[group]].holds += (uint32_t)sign;
        }
    }
}

static void check_holds(struct pool *pool)
{
    claim_holds(pool, -1);
    for (uint32_t id = 0; id < pool->block_pool.num_touched; id++)
        assert(pool->blocks[id].state == BLOCK_GONE || pool->blocks[id].holds == 0); /* I6 */
    claim_holds(pool, 1);
}

static void check_entries(struct pool *pool, const struct sequence *sequence, uint32_t position)
{
    const struct entry *entries = table_at(pool, sequence, 0, position);

    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        uint32_t shelf = position < sequence->num_shared ? sequence->shared_shelf : sequence->shelf;
        assert((entries[group].block == NONE) == (position < sequence->first_kept[group])); /* I8 */
        if (entries[group].block == NONE)
            continue;
        const struct block *block = &pool->blocks[entries[group].block];
        assert(block->arena == pool->shelves[shelf].first_arena + group);         /* I8 */
        assert(block_slot(pool, block)->number == entries[group].number);         /* I8 */
        assert(block_slot(pool, block)->state == SLOT_TAKEN && block->holds > 0); /* I8 */
    }
}

static void check_sequence(struct pool *pool, const struct sequence *sequence)
{
    bool is_live = pool->sessions[sequence->session].state == SESSION_LIVE;
    bool may_be_incomplete = sequence->step != NONE || sequence->is_growing ||
                             !sequence->is_filled || sequence->promotion.is_waiting;

    assert(sequence->num_complete <= sequence->length);
    assert(!is_live || may_be_incomplete || sequence->num_complete == sequence->length); /* I8 */
    if (!is_live)
        return; /* it is being let go of, from its end */
    uint64_t length =
        sequence->promotion.is_waiting ? sequence->promotion.length : sequence->length;
    assert(sequence->num_positions ==
           (sequence->is_preempted ? 0 : positions_of(pool, sequence, length))); /* I8 */
    (void)table_path(pool, sequence, 0);
    for (uint32_t position = 0; position < sequence->num_positions; position++)
        check_entries(pool, sequence, position);
}

void check_tables(struct pool *pool)
{
    uint32_t num_holding = 0, num_waiters = 0;

    check_refs(pool, pool->table_chunks, true);
    check_refs(pool, pool->token_chunks, false);
    check_holds(pool);
    for (uint32_t id = 0; id < pool->sequence_pool.num_touched; id++) {
        if (!pool->sequences[id].is_used)
            continue;
        check_sequence(pool, &pool->sequences[id]);
        num_holding += pool->sequences[id].num_positions > 0;
        num_waiters += pool->sequences[id].num_waiters;
    }
    assert(num_holding == pool->num_holding); /* I9 */
    assert(num_waiters == pool->waiter_pool.num_used);
}

/* Walks all tables: holds are kept by chunk, a fork shares chunks. */
uint32_t pool_slot_holds(const struct pool *pool, uint32_t arena, uint32_t number)
{
    uint32_t count = 0;

    for (uint32_t id = 0; id < pool->sequence_pool.num_touched; id++) {
        const struct sequence *sequence = &pool->sequences[id];
        if (!sequence->is_used)
            continue;
        for (uint32_t at = 0; at < sequence->num_positions; at++) {
            const struct entry *entries = table_entries(pool, sequence, at);
            for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++)
                count += entries[group].block != NONE && entries[group].number == number &&
                         pool->blocks[entries[group].block].arena == arena;
        }
    }
    return count;
}
