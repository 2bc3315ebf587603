/*
 * pool/plan.h - (internal) where new slots come from, in any tier.
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

/* All of them in one tier. */
struct slot_request {
    const struct want *wants;
    uint32_t num_wants;
    bool
        has_watermark; /* so much must be left that the first arena's payer could have afterwards */
};

/*
 * Takes all slots wanted, without a block yet: in pool->fresh in the order of the wants.
 * Or POOL_QUOTA, POOL_NO_BLOCKS, POOL_LIMIT, with no effect.
 */
int slots_take(struct pool *pool, const struct slot_request *request);

/* ---- what plan.c and plan_limit.c share ------------------------------------------------------ */

/* The payer that a want's slots are charged to. */
pool_payer want_payer(const struct pool *pool, const struct want *want);

/* A device on which one more granule of the arena would put the plan's payer over its limit, or
 * NONE. */
uint32_t device_over_limit(const struct pool *pool, const struct arena *arena);
/* A device on which the arena's next granule lacks pages (or slot records), or NONE. */
uint32_t device_short(const struct pool *pool, const struct arena *arena);
/* The granule that is idle longest on @device, or NONE. */
uint32_t idle_longest(const struct pool *pool, uint32_t device);
/* Who gives next on @device, or NONE; @has_own: the plan's payer has something to give. */
pool_payer plan_giver(const struct pool *pool, uint32_t device, bool is_at_limit, bool has_own);

/* Whether what goes for a limit is room for any other granule: one device, one size of granule. */
bool limit_leaves_room(const struct pool *pool, const struct slot_request *request);
/* Takes the slots of a request that slots_take() found to succeed, into pool->fresh. */
void limit_take_slots(struct pool *pool, const struct slot_request *request);
