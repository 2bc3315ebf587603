/*
 * pool/check.c - what is true between any two calls into the pool.
 *
 * Granules, slots and accounts (check_granules.c)
 *  I1  free + held + evictable + reserved + quarantined = slots of its committed granules, in every
 *      arena, and each of the five is what counting the slots gives.
 *  I2  A granule's busy and cached slots are what its slots say; it is idle, wholly unheld (in its
 *      payer's order, by its hottest block) or neither, accordingly.
 *  I3  A payer is charged for the granules of its arenas that have a block, and for nothing else.
 *  I4  Uncommitted pages + pages of granules = pages of the device.
 *  I5  The tournament's winner is whom a scan of all payers finds.
 *
 * Tables (check_tables.c)
 *  I6  A block's holds are the table entries, and the tails under copy, that name it.
 *  I7  A chunk's refs are the sequences and chunks that point to it.
 *  I8  A sequence's tables have every position of its tokens, but for what left the windows; what
 * is incomplete is only what an open step, an append or an unfilled allocation brought. I9  The
 * sequences with a block are counted.
 *
 * Blocks (below)
 *  I10 A published block is in the index under its key; a promised one under its promise.
 *  I11 An evictable block is published, nobody holds it, and it stands in its arena's list, which
 *      ascends by stamp; those from before a clear stand in front, and are counted.
 *  I12 A private block is held, or its slot is quarantined.
 *  I13 A block that a transfer writes is not present; one that it reads is pinned as often.
 */
#include "pool/check.h"

#include <string.h>

#include "pool/block.h"

static bool index_has(const struct pool *pool, uint64_t hash, uint32_t block)
{
    struct index_walk walk;
    uint32_t id = index_first(&pool->key_index, hash, &walk);

    while (id != NONE && id != block)
        id = index_next(&pool->key_index, &walk);
    return id == block;
}

static void check_block(const struct pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];
    const struct slot *slot = block_slot(pool, block);

    assert(slot->block == id && slot->state != SLOT_FREE);
    assert(block->state != BLOCK_PUBLISHED ||
           index_has(pool, key_hash(&block->key, block->arena, false), id)); /* I10 */
    assert(!block->is_promised ||
           index_has(pool, key_hash(&block->key, block->arena, true), id)); /* I10 */
    assert(!block->is_evictable ||
           (block->state == BLOCK_PUBLISHED && block->holds == 0));                     /* I11 */
    assert(block->holds > 0 || block->is_evictable || slot->state == SLOT_QUARANTINED); /* I12 */
    assert(slot->state != SLOT_QUARANTINED || (block->holds == 0 && block->state == BLOCK_PRIVATE));
}

static void check_evictable_list(const struct pool *pool, const struct arena *arena)
{
    uint32_t count = 0, num_stale = 0, before = NONE;
    uint64_t stamp = 0;

    for (uint32_t id = arena->evictable.head; id != NONE; id = pool->blocks[id].link.next) {
        const struct block *block = &pool->blocks[id];
        bool is_stale = !block_is_current(pool, block);
        assert(block->is_evictable && block->link.prev == before && block->stamp > stamp); /* I11 */
        assert(!is_stale || num_stale == count);                                           /* I11 */
        num_stale += is_stale;
        stamp = block->stamp;
        before = id;
        count++;
    }
    assert(arena->evictable.tail == before && count == arena->num_evictable); /* I11 */
    assert(num_stale == arena->num_stale);                                    /* I11 */
}

static void check_transfers(struct pool *pool)
{
    for (uint32_t id = 0; id < pool->transfer_pool.num_touched; id++) {
        if (!pool->transfers[id].is_used)
            continue;
        assert(pool->blocks[pool->transfers[id].to].place_state == PLACE_INCOMING); /* I13 */
        struct block *from = &pool->blocks[pool->transfers[id].from];
        assert(from->num_readers > 0); /* I13 */
        from->num_readers--;
    }
    for (uint32_t id = 0; id < pool->block_pool.num_touched; id++)
        assert(pool->blocks[id].state == BLOCK_GONE || pool->blocks[id].num_readers == 0); /* I13 */
    for (uint32_t id = 0; id < pool->transfer_pool.num_touched; id++) {
        if (pool->transfers[id].is_used)
            pool->blocks[pool->transfers[id].from].num_readers++;
    }
}

void pool_check(struct pool *pool)
{
    uint64_t num_stale = 0;
    uint32_t num_blocks = 0;

    check_granules(pool);
    check_tables(pool);
    for (uint32_t id = 0; id < pool->block_pool.num_touched; id++) {
        if (pool->blocks[id].state == BLOCK_GONE)
            continue;
        check_block(pool, id);
        num_blocks++;
    }
    assert(num_blocks == pool->block_pool.num_used);
    for (uint32_t id = 0; id < pool->arena_pool.num_used; id++) {
        check_evictable_list(pool, &pool->arenas[id]);
        num_stale += pool->arenas[id].num_stale;
    }
    assert(num_stale == pool->sweeps_pending); /* I11 */
    check_transfers(pool);
}
