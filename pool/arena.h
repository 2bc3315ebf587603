/*
 * pool/arena.h - (internal) arenas, granules and slots: which exist, which are free, who is
 * charged.
 *
 * A granule is idle (no block: charged to nobody, its slots in the arena's free list), or in use
 * (charged to the arena's payer); one in use with nothing but cached blocks is wholly unheld, and
 * waits in its payer's granule order.
 */
#pragma once

#include "pool/internal.h"

static inline pool_payer arena_payer(const struct pool *pool, const struct arena *arena)
{
    return pool->shelves[arena->shelf].domain;
}
static inline struct granule *granule_of_slot(const struct pool *pool, uint32_t slot)
{
    return &pool->slots[pool->slots[slot].granule].first_of;
}

static inline struct tier *arena_tier(struct pool *pool, const struct arena *arena)
{
    return &pool->tiers[arena->tier];
}

/* Of @group of a shelf in a tier that the pool has. */
static inline uint32_t tier_arena(const struct pool *pool, const struct shelf *shelf,
                                  enum pool_tier tier, uint32_t group)
{
    return shelf->first_arena +
           pool->tiers[tier].row * pool->models[shelf->model].shape.num_groups + group;
}
/* Those of a shelf follow one another from its first_arena on, tier after tier. */
static inline uint32_t num_arenas(const struct pool *pool, const struct shelf *shelf)
{
    return pool->num_tiers * pool->models[shelf->model].shape.num_groups;
}

/* The shelf of (domain, model), or NONE. */
uint32_t shelf_find(const struct pool *pool, pool_payer domain, pool_model model);
/* Makes it if there is none; NONE: over the cap. */
uint32_t shelf_get(struct pool *pool, pool_payer domain, pool_model model);

/* Undoes the last shelf_get() that made one. */
void shelf_unmake_last(struct pool *pool);

/* The slot record of a block id, or NONE. */
uint32_t slot_find(const struct pool *pool, uint32_t arena, uint32_t number);

/*
 * Gives @arena a granule of uncommitted pages, idle, its slots at the tail of the free list.
 * Returns its first slot.
 */
uint32_t granule_open(struct pool *pool, uint32_t arena);
/* The same with that number, which is not in use, and without a word. */
uint32_t granule_open_at(struct pool *pool, uint32_t arena, uint32_t index);
/* The first slot of the arena's granule of that number, or NONE. */
uint32_t granule_find(const struct pool *pool, uint32_t arena, uint32_t index);
/* Takes an idle granule away from its arena; its pages are uncommitted. */
void granule_drop(struct pool *pool, uint32_t granule);

/*
 * Adds to a granule's counts of busy and cached slots. The one place that charges, uncharges, and
 * moves a granule between idle, in use and wholly unheld.
 */
void granule_count(struct pool *pool, uint32_t granule, int busy, int cached);
/*
 * granule_count(1, -1) for an evictable block that gets its first hold, and granule_count(-1, 1)
 * for one that lost its last hold just now, and so is the hottest of all: every hit comes here.
 */
void granule_hold(struct pool *pool, uint32_t granule);
void granule_let_go(struct pool *pool, uint32_t granule);

/* Enters or leaves the idle list and the granule order, with the pages that follow. plan.c only. */
void granule_leave_idle(struct pool *pool, uint32_t granule);
void granule_leave_order(struct pool *pool, uint32_t granule);
void granule_enter_order(struct pool *pool, uint32_t granule);
/* Undoes the last granule_leave_idle() that was not undone. */
void granule_return_to_idle(struct pool *pool, uint32_t granule);

/* A free slot is reserved for a block: its generation changes, its granule gets busier. */
void slot_take(struct pool *pool, uint32_t slot);

enum slot_end {
    SLOT_TO_TAIL, /* evicted */
    SLOT_TO_HEAD, /* let go of unpublished, alone */
    SLOT_TO_BATCH /* let go of unpublished: behind the last one of the same batch */
};
/* A taken slot has no block any more: it goes into the free list. Counts are the caller's. */
void slot_free(struct pool *pool, uint32_t slot, enum slot_end end);
