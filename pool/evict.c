/*
 * pool/evict.c - which cached block goes next, when a granule or an operator asks.
 *
 * Each arena has its cached blocks that nobody holds in one list, coldest first: a block joins at
 * the tail when its last hold is let go of (block.c), and a sequence lets go from its last block to
 * its first, so a prefix outlives its suffix. An allocation takes the head of the list of its own
 * arena, or whole granules of others: plan.c decides, and calls here to carry it out.
 */
#include "pool/evict.h"

#include "pool/arena.h"
#include "pool/block.h"
#include "pool/payer.h"

/* The coldest block of one arena that can go, or NONE: blocks that a transfer reads are skipped. */
static uint32_t coldest_in(const struct pool *pool, const struct arena *arena, bool is_stale_only)
{
    uint32_t id = is_stale_only && arena->num_stale == 0 ? NONE : arena->evictable.head;

    while (id != NONE && pool->blocks[id].num_readers > 0)
        id = pool->blocks[id].link.next;
    if (id != NONE && is_stale_only && block_is_current(pool, &pool->blocks[id]))
        return NONE; /* those from before a clear stand in front */
    return id;
}

uint32_t arena_coldest(const struct pool *pool, const struct arena *arena)
{
    return coldest_in(pool, arena, false);
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
            uint32_t block = coldest_in(pool, arena, scope->is_stale_only);
            if (block != NONE &&
                (best == NONE || pool->blocks[block].stamp < pool->blocks[best].stamp))
                best = block;
        }
    }
    return best;
}

/* ---- whom next: a heap of payers, furthest over its share on top ---------------------------- */

/* Restores the order below @at, whose payer is not as far over as it was. */
static void heap_sift(struct pool *pool, uint32_t num, uint32_t at)
{
    pool_payer *heap = pool->givers, payer = heap[at];

    for (uint32_t child; (child = 2 * at + 1) < num; at = child) {
        if (child + 1 < num && payer_is_further_over_anywhere(pool, heap[child + 1], heap[child]))
            child++;
        if (!payer_is_further_over_anywhere(pool, heap[child], payer))
            break;
        heap[at] = heap[child];
    }
    heap[at] = payer;
}

static uint32_t heap_make(struct pool *pool, const struct evict_scope *scope)
{
    uint32_t num = 0;

    for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
        if (scope->domain == POOL_NONE || payer == scope->domain)
            pool->givers[num++] = payer;
    }
    for (uint32_t at = num / 2; at-- > 0;)
        heap_sift(pool, num, at);
    return num;
}

/*
 * Only the share of the payer that gives a block changes meanwhile, so the others keep their order:
 * with 1,000 tenants a slice of 256 blocks took 125 us instead of 870 that looked at all of them
 * for each block (tests/bench/bench_pool_bounds).
 */
uint64_t evict_blocks(struct pool *pool, const struct evict_scope *scope, uint64_t max_blocks)
{
    uint32_t num = heap_make(pool, scope);
    uint64_t num_evicted = 0;

    while (num > 0 && num_evicted < max_blocks) {
        uint32_t block = payer_coldest(pool, pool->givers[0], scope);
        if (block != NONE) {
            block_evict(pool, block, NONE);
            num_evicted++;
        } else {
            pool->givers[0] = pool->givers[--num];
        }
        heap_sift(pool, num, 0);
    }
    return num_evicted;
}

uint64_t pool_evict(struct pool *pool, uint64_t count)
{
    return evict_blocks(pool, &(struct evict_scope){POOL_NONE, POOL_NONE, false}, count);
}

void granule_evict_all(struct pool *pool, uint32_t granule, pool_payer by)
{
    uint32_t next;

    for (uint32_t id = granule; id != NONE; id = next) {
        next = pool->slots[id].next_in_granule;
        if (pool->slots[id].state == SLOT_TAKEN)
            block_evict(pool, pool->slots[id].block, by);
    }
}

/* Of the granule's cached blocks. A granule has few slots, and this is the rare case: no sorting.
 */
static uint32_t granule_coldest(const struct pool *pool, uint32_t granule)
{
    uint32_t best = NONE;

    for (uint32_t id = granule; id != NONE; id = pool->slots[id].next_in_granule) {
        uint32_t block = pool->slots[id].state == SLOT_TAKEN ? pool->slots[id].block : NONE;
        if (block != NONE && (best == NONE || pool->blocks[block].stamp < pool->blocks[best].stamp))
            best = block;
    }
    return best;
}

void granule_evict_in_order(struct pool *pool, uint32_t granule, pool_payer by)
{
    uint32_t block;

    while ((block = granule_coldest(pool, granule)) != NONE)
        block_evict(pool, block, by);
}
