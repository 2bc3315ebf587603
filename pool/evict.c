/*
 * pool/evict.c - which cached block goes next, when a granule or an operator asks.
 *
 * Each arena has its cached blocks that nobody holds in one list, coldest first: a block joins at
 * the tail when its last hold is let go of (block.c), and a sequence lets go from its last block to
 * its first, so a prefix outlives its suffix. An allocation takes the head of the list of its own
 * arena, or whole granules of others: plan.c decides, and calls here to carry it out.
 */
#include "pool/evict.h"

#include "pool/payer.h"
#include "pool/place.h"

/* A granule of few slots is gone through once for each of them: no sorting. */
enum { SORTED_SLOTS = 256 };

/* The slot of the coldest block of an arena that can go, or NONE: what a transfer reads is skipped.
 */
static uint32_t coldest_in(const struct pool *pool, const struct arena *arena, bool is_stale_only)
{
    uint32_t id = is_stale_only && arena->num_stale == 0 ? NONE : arena->evictable.head;

    while (id != NONE && pool->slots[id].num_readers > 0)
        id = pool->slots[id].link.next;
    if (id != NONE && is_stale_only && block_is_current(pool, &pool->blocks[pool->slots[id].block]))
        return NONE; /* those from before a clear stand in front */
    return id;
}

uint32_t arena_coldest(const struct pool *pool, const struct arena *arena)
{
    return coldest_in(pool, arena, false);
}

/* The slot of the coldest block of all of a payer's arenas in the scope, or NONE. */
static uint32_t payer_coldest(const struct pool *pool, pool_payer payer,
                              const struct evict_scope *scope)
{
    uint32_t best = NONE;

    for (uint32_t id = pool->payers[payer].first_shelf; id != NONE; id = pool->shelves[id].next) {
        const struct shelf *shelf = &pool->shelves[id];
        if (scope->model != POOL_NONE && shelf->model != scope->model)
            continue;
        for (uint32_t group = 0; group < pool->models[shelf->model].shape.num_groups; group++) {
            uint32_t arena = tier_arena(pool, shelf, scope->tier, group);
            uint32_t slot = coldest_in(pool, &pool->arenas[arena], scope->is_stale_only);
            if (slot != NONE && (best == NONE || pool->slots[slot].stamp < pool->slots[best].stamp))
                best = slot;
        }
    }
    return best;
}

/* ---- whom next: a heap of payers, furthest over its share on top ---------------------------- */

/* Restores the order below @at, whose payer is not as far over as it was. */
static void heap_sift(struct pool *pool, enum pool_tier tier, uint32_t num, uint32_t at)
{
    pool_payer *heap = pool->givers, payer = heap[at];

    for (uint32_t child; (child = 2 * at + 1) < num; at = child) {
        if (child + 1 < num &&
            payer_is_further_over_anywhere(pool, tier, heap[child + 1], heap[child]))
            child++;
        if (!payer_is_further_over_anywhere(pool, tier, heap[child], payer))
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
        heap_sift(pool, scope->tier, num, at);
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
        uint32_t slot = payer_coldest(pool, pool->givers[0], scope);
        if (slot != NONE) {
            place_evict(pool, slot, NONE);
            num_evicted++;
        } else {
            pool->givers[0] = pool->givers[--num];
        }
        heap_sift(pool, scope->tier, num, 0);
    }
    return num_evicted;
}

uint64_t pool_tier_evict(struct pool *pool, enum pool_tier tier, uint64_t count)
{
    const struct evict_scope all = {.tier = tier, .domain = POOL_NONE, .model = POOL_NONE};

    return tier < POOL_NUM_TIERS && pool->tiers[tier].is_there ? evict_blocks(pool, &all, count)
                                                               : 0;
}

uint64_t pool_evict(struct pool *pool, uint64_t count)
{
    return pool_tier_evict(pool, POOL_TIER_DEVICE, count);
}

void granule_evict_all(struct pool *pool, uint32_t granule, pool_payer by)
{
    uint32_t next;

    for (uint32_t id = granule; id != NONE; id = next) {
        next = pool->slots[id].next_in_granule;
        if (pool->slots[id].state == SLOT_TAKEN)
            place_evict(pool, id, by);
    }
}

/* The slot of the granule's coldest cached block, or NONE. */
static uint32_t granule_coldest(const struct pool *pool, uint32_t granule)
{
    uint32_t best = NONE;

    for (uint32_t id = granule; id != NONE; id = pool->slots[id].next_in_granule) {
        if (pool->slots[id].is_evictable &&
            (best == NONE || pool->slots[id].stamp < pool->slots[best].stamp))
            best = id;
    }
    return best;
}

void granule_evict_in_order(struct pool *pool, uint32_t granule, pool_payer by)
{
    uint32_t slot;

    if (slot_arena(pool, granule)->slots > SORTED_SLOTS) {
        granule_evict_all(pool, granule, by);
        return;
    }
    while ((slot = granule_coldest(pool, granule)) != NONE)
        place_evict(pool, slot, by);
}
