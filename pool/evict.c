/*
 * pool/evict.c - which cached block goes next, when a granule or an operator asks.
 *
 * Each arena has its cached blocks that nobody holds in one list, coldest first: a block joins at the
 * tail when its last hold is let go of (block.c), and a sequence lets go from its last block to its
 * first, so a prefix outlives its suffix. An allocation takes the head of the list of its own arena,
 * or whole granules of others: plan.c decides, and calls here to carry it out.
 */
#include "pool/evict.h"

#include "pool/arena.h"
#include "pool/block.h"
#include "pool/payer.h"

/* The coldest block of one arena that can go, or NONE: blocks that a transfer reads are skipped. */
static uint32_t arena_coldest(const struct pool *pool, const struct arena *arena, bool is_stale_only)
{
    uint32_t id = arena->evictable.head;

    while (id != NONE && pool->blocks[id].num_readers > 0)
        id = pool->blocks[id].link.next;
    if (id != NONE && is_stale_only && block_is_current(pool, &pool->blocks[id]))
        return NONE; /* those from before a clear stand in front */
    return id;
}

/* The coldest block of all of a payer's arenas in the scope, or NONE. */
static uint32_t payer_coldest(const struct pool *pool, pool_payer payer,
                              const struct evict_scope *scope)
{
    uint32_t best = NONE;

    for (uint32_t id = pool->payers[payer].first_shelf; id != NONE; id = pool->shelves[id].next) {
        const struct shelf *shelf = &pool->shelves[id];
        if (scope->model != POOL_NONE && shelf->model != scope->model)
            continue;
        for (uint32_t group = 0; group < pool->models[shelf->model].shape.num_groups; group++) {
            const struct arena *arena = &pool->arenas[shelf->first_arena + group];
            uint32_t block = arena_coldest(pool, arena, scope->is_stale_only);
            if (block != NONE &&
                (best == NONE || pool->blocks[block].stamp < pool->blocks[best].stamp))
                best = block;
        }
    }
    return best;
}

bool evict_next(struct pool *pool, const struct evict_scope *scope)
{
    pool_payer best = NONE;
    uint32_t victim = NONE;

    for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
        if (scope->domain != POOL_NONE && payer != scope->domain)
            continue;
        if (best != NONE && !payer_is_further_over_anywhere(pool, payer, best))
            continue;
        uint32_t block = payer_coldest(pool, payer, scope);
        if (block != NONE) {
            best = payer;
            victim = block;
        }
    }
    if (victim == NONE)
        return false;
    block_evict(pool, victim, NONE);
    return true;
}

uint64_t pool_evict(struct pool *pool, uint64_t count)
{
    const struct evict_scope all = {POOL_NONE, POOL_NONE, false};
    uint64_t num_evicted = 0;

    while (num_evicted < count && evict_next(pool, &all))
        num_evicted++;
    return num_evicted;
}

void granule_evict_all(struct pool *pool, uint32_t granule, pool_payer by)
{
    uint32_t next;

    for (uint32_t id = pool->granules[granule].first_slot; id != NONE; id = next) {
        next = pool->slots[id].next_in_granule;
        if (pool->slots[id].state == SLOT_TAKEN)
            block_evict(pool, pool->slots[id].block, by);
    }
}
