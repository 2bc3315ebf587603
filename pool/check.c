/*
 * pool/check.c - what is true between any two calls into the pool.
 *
 * Granules, slots and accounts (check_granules.c)
 *  I1  free + held + evictable + reserved + quarantined = slots of its committed granules, in every
 *      arena of every tier, and each of the five is what counting the slots gives.
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
 * Blocks and places (below)
 *  I10 A published block is in the index under its key; a promised one under its promise.
 *  I11 An evictable slot has a published block; on a device, nobody holds it. It stands in its
 *      arena's list, which ascends by stamp; those from before a clear stand in front, and are
 *      counted; so do those that demote.c has passed.
 *  I12 A block that is held has a slot on the device. A private one is held, and has no other.
 *  I13 A slot is incoming as long as a transfer writes it, and has as many readers as read it.
 *  I14 A slot and its block know each other. Below the device a place is evictable as soon as it
 *      is present; on the device as soon as nobody holds it.
 *  I15 A sequence that waits for promotions waits for a transfer into one of its blocks.
 */
#include "pool/check.h"

#include <string.h>

#include "pool/place.h"
#include "pool/sequence.h"

static bool index_has(const struct pool *pool, uint64_t hash, uint32_t block)
{
    struct index_walk walk;
    uint32_t id = index_first(&pool->key_index, hash, &walk);

    while (id != NONE && id != block)
        id = index_next(&pool->key_index, &walk);
    return id == block;
}

static void check_place(const struct pool *pool, uint32_t id, enum pool_tier tier)
{
    const struct block *block = &pool->blocks[id];
    bool is_present = block->present >> tier & 1, is_incoming = block->incoming >> tier & 1;

    if (block->slot[tier] == NONE) {
        assert(!is_present && !is_incoming); /* I14 */
        return;
    }
    const struct slot *slot = &pool->slots[block->slot[tier]];
    const struct arena *arena = slot_arena(pool, block->slot[tier]);
    assert(slot->block == id && slot->state == SLOT_TAKEN);                           /* I14 */
    assert(arena->tier == tier && arena->group == pool->arenas[block->arena].group && /* I14 */
           arena->shelf == pool->arenas[block->arena].shelf);
    assert(slot->is_incoming == is_incoming && !(is_present && is_incoming)); /* I13 */
    assert(tier == POOL_TIER_DEVICE || is_present || is_incoming);            /* I14 */
    if (tier != POOL_TIER_DEVICE)
        assert(slot->is_evictable == is_present); /* I14 */
    else if (block->state == BLOCK_PUBLISHED)
        assert(slot->is_evictable == (is_present && block->holds == 0)); /* I14 */
    else
        assert(!slot->is_evictable); /* I11 */
}

static void check_block(const struct pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];

    assert(block->state != BLOCK_PUBLISHED ||
           index_has(pool, key_hash(&block->key, block->arena, false), id)); /* I10 */
    assert(!block->is_promised ||
           index_has(pool, key_hash(&block->key, block->arena, true), id)); /* I10 */
    assert(block->holds == 0 || block->slot[POOL_TIER_DEVICE] != NONE);     /* I12 */
    assert(block->state == BLOCK_PUBLISHED || block->holds > 0);            /* I12 */
    assert(block->state == BLOCK_PUBLISHED ||
           (block->slot[POOL_TIER_HOST] == NONE && block->slot[POOL_TIER_DISK] == NONE)); /* I12 */
    assert(block->present || block->incoming || block->holds > 0);
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
        check_place(pool, id, tier);
}

static void check_evictable_list(const struct pool *pool, const struct arena *arena)
{
    uint32_t count = 0, num_stale = 0, num_passed = 0, before = NONE;
    bool is_next_seen = false;
    uint64_t stamp = 0;

    for (uint32_t id = arena->evictable.head; id != NONE; id = pool->slots[id].link.next) {
        const struct slot *slot = &pool->slots[id];
        bool is_stale = !block_is_current(pool, &pool->blocks[slot->block]);
        assert(slot->is_evictable && slot->state == SLOT_TAKEN && !slot->is_incoming); /* I11 */
        assert(slot->link.prev == before && slot->stamp > stamp);                      /* I11 */
        assert(!is_stale || num_stale == count);                                       /* I11 */
        is_next_seen |= id == arena->demote_next;
        assert(is_next_seen || slot->is_passed); /* I11 */
        num_passed += slot->is_passed;
        num_stale += is_stale;
        stamp = slot->stamp;
        before = id;
        count++;
    }
    assert(arena->evictable.tail == before && count == arena->num_evictable); /* I11 */
    assert(num_stale == arena->num_stale);                                    /* I11 */
    assert(num_passed == arena->num_passed &&
           is_next_seen == (arena->demote_next != NONE)); /* I11 */
}

static void check_transfers(struct pool *pool)
{
    uint32_t num_tail_copies = 0;

    for (uint32_t id = 0; id < pool->transfer_pool.num_touched; id++) {
        if (!pool->transfers[id].is_used)
            continue;
        num_tail_copies += pool->transfers[id].kind == TRANSFER_COPY;
        const struct slot *to = &pool->slots[pool->transfers[id].to];
        assert(to->is_incoming && (to->state == SLOT_QUARANTINED || to->link.next == id)); /* I13 */
        struct slot *from = &pool->slots[pool->transfers[id].from];
        assert(from->num_readers > 0); /* I13 */
        from->num_readers = (from->num_readers - 1u) & MAX_READERS;
    }
    assert(num_tail_copies == pool->num_tail_copies); /* I13 */
    for (uint32_t id = 0; id < pool->slot_pool.num_touched; id++)
        assert(pool->slots[id].state == SLOT_FREE || pool->slots[id].num_readers == 0); /* I13 */
    for (uint32_t id = 0; id < pool->transfer_pool.num_touched; id++) {
        struct slot *from = &pool->slots[pool->transfers[id].from];
        if (pool->transfers[id].is_used)
            from->num_readers = (from->num_readers + 1u) & MAX_READERS;
    }
}

static void check_waiting(const struct pool *pool)
{
    uint32_t num_waiting = 0;

    for (uint32_t id = pool->promoting.head; id != NONE;
         id = pool->sequences[id].promotion.link.next) {
        const struct sequence *sequence = &pool->sequences[id];
        uint32_t transfer = sequence->promotion.transfer;
        assert(sequence->is_used && sequence->promotion.is_waiting);
        assert(pool->transfers[transfer].is_used &&
               pool->transfers[transfer].kind == TRANSFER_PROMOTE); /* I15 */
        uint32_t to = pool->transfers[transfer].to;
        assert(pool->slots[to].state == SLOT_TAKEN &&
               pool->blocks[pool->slots[to].block].holds > 0); /* I15 */
        num_waiting++;
    }
    for (uint32_t id = 0; id < pool->sequence_pool.num_touched; id++)
        num_waiting -= pool->sequences[id].is_used && pool->sequences[id].promotion.is_waiting;
    assert(num_waiting == 0); /* I15 */
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
    check_waiting(pool);
}
