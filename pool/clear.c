/*
 * pool/clear.c - a new epoch: what was cached is found no more, at once, whatever is in flight.
 *
 * Blocks carry the epoch of their shelf from when their slot was taken. A clear only counts the
 * epoch up: lookups skip older blocks, held ones stay readable until they are let go of (and are
 * free then, as if never published), unheld ones are swept by pool_advance(). A sequence carries
 * the epochs that it began under; an older one publishes nothing any more, for its K and V may come
 * from older weights.
 */
#include "pool/clear.h"

#include "pool/arena.h"
#include "pool/arriving.h"
#include "pool/evict.h"
#include "pool/promote.h"

static void shelf_clear(struct pool *pool, struct shelf *shelf)
{
    shelf->epoch++;
    for (uint32_t at = 0; at < num_arenas(pool, shelf); at++) {
        struct arena *arena = &pool->arenas[shelf->first_arena + at];
        arena->num_reserved += arena->num_held; /* held ones count as private from now on */
        arena->num_held = 0;
        pool->sweeps_pending += arena->num_evictable - arena->num_stale;
        arena->num_stale = arena->num_evictable;
    }
}

int pool_clear(struct pool *pool, pool_payer domain, pool_model model)
{
    if ((domain != POOL_NONE && !payer_exists(pool, domain)) ||
        (model != POOL_NONE && !model_exists(pool, model)))
        return POOL_NOT_FOUND;
    for (uint32_t id = 0; id < pool->shelf_pool.num_used; id++) {
        struct shelf *shelf = &pool->shelves[id];
        if ((domain == POOL_NONE || shelf->domain == domain) &&
            (model == POOL_NONE || shelf->model == model))
            shelf_clear(pool, shelf);
    }
    arriving_recheck(pool); /* what is being filled will not be published */
    promote_recheck(pool);  /* and what is on its way up is found no more */
    return 0;
}

uint32_t sweep_cleared(struct pool *pool, uint32_t max_blocks)
{
    struct evict_scope stale = {.domain = POOL_NONE, .model = POOL_NONE, .is_stale_only = true};
    uint64_t num_done = 0;

    for (uint32_t tier = 0; tier < POOL_NUM_TIERS && pool->sweeps_pending > 0; tier++) {
        stale.tier = tier;
        if (pool->tiers[tier].is_there && num_done < max_blocks)
            num_done += evict_blocks(pool, &stale, max_blocks - num_done);
    }
    return (uint32_t)num_done; /* not what is being read */
}
