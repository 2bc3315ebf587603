/* pool/evict.h - (internal) which cached block goes next, when a granule or an operator asks. */
#pragma once

#include "pool/internal.h"

/* Which blocks may go: POOL_NONE for any domain, or any model. */
struct evict_scope {
    enum pool_tier tier;
    pool_payer domain;
    pool_model model;
    bool is_stale_only; /* from before a clear */
};

/*
 * Evicts up to @max_blocks blocks of a tier, guarantees aside: each time the coldest of the payer
 * furthest over its share. Returns how many; fewer only if there are no more.
 */
uint64_t evict_blocks(struct pool *pool, const struct evict_scope *scope, uint64_t max_blocks);

/* The slot of the arena's coldest block that can go, or NONE. */
uint32_t arena_coldest(const struct pool *pool, const struct arena *arena);

/*
 * The same as granule_evict_all(), from the coldest block up: their slots stay, in that order (but
 * for granules of very many).
 */
void granule_evict_in_order(struct pool *pool, uint32_t granule, pool_payer by);
/* Evicts all blocks of a wholly unheld granule, which is idle then. @by caused it. */
void granule_evict_all(struct pool *pool, uint32_t granule, pool_payer by);
