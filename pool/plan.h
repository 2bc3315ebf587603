/*
 * pool/plan.h - (internal) where new device slots come from.
 *
 * For a new block in an arena, in this order: (1) the arena's free slots; (2) a granule not in use,
 * uncommitted or idle in another arena; (3) eviction: of the payer furthest over its share, walking
 * its evictable blocks from the coldest up, the first block of the arena itself, or the first
 * granule to be complete, whichever comes first. At its limit a payer takes from itself only.
 *
 * All or nothing: a plan is made without effect, and carried out only if it gives all that is
 * wanted.
 */
#pragma once

#include "pool/internal.h"

struct want {
    uint32_t arena, count;
};

struct slot_request {
    const struct want *wants;
    uint32_t num_wants;
    bool
        has_watermark; /* so much must be left that the first arena's payer could have afterwards */
};

/*
 * Takes all slots wanted: private blocks held once each, in pool->fresh in the order of the wants.
 * Or POOL_QUOTA, POOL_NO_BLOCKS, POOL_LIMIT, with no effect.
 */
int slots_take(struct pool *pool, const struct slot_request *request);
