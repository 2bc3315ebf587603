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

#include "pool/arriving.h"
#include "pool/block.h"
#include "pool/evict.h"

static void shelf_clear(struct pool *pool, struct shelf *shelf)
{
    uint32_t num_groups = pool->models[shelf->model].shape.num_groups;

    shelf->epoch++;
    for (uint32_t group = 0; group < num_groups; group++) {
        struct arena *arena = &pool->arenas[shelf->first_arena + group];
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
    return 0;
}

uint32_t sweep_cleared(struct pool *pool, uint32_t max_blocks)
{
    const struct evict_scope stale = {POOL_NONE, POOL_NONE, true};

    if (pool->sweeps_pending == 0)
        return 0;
    return (uint32_t)evict_blocks(pool, &stale, max_blocks); /* not what is being read */
}
