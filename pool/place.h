/*
 * pool/place.h - (internal) what a block has in one tier: a slot, absent, incoming or present.
 *
 *   place_attach -> (absent) -> place_incoming -> INCOMING -> place_arrived -> PRESENT
 *   PRESENT -> (held, or) evictable -> place_evict, place_drop -> gone
 *
 * Below the device nobody holds anything: a place there is evictable as soon as it is present. On
 * the device it is while the block is published and nobody holds it. A slot whose block goes while
 * a transfer still touches it, or a process of an ended session may, has no block any more, and is
 * QUARANTINED until that ends.
 */
#pragma once

#include "pool/arena.h"
#include "pool/block.h"

static inline struct arena *slot_arena(const struct pool *pool, uint32_t slot)
{
    return &pool->arenas[granule_of_slot(pool, slot)->arena];
}
static inline enum pool_tier slot_tier(const struct pool *pool, uint32_t slot)
{
    return slot_arena(pool, slot)->tier;
}

/* Every evictable slot of an arena enters and leaves its list here. */
void evictable_push(struct pool *pool, struct arena *arena, uint32_t slot);
static inline void evictable_remove(struct pool *pool, struct arena *arena, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    list_remove(&arena->evictable, LINKS(pool->slots, link), id);
    slot->is_evictable = 0;
    arena->num_evictable--;
    arena->num_passed -= slot->is_passed;
    if (arena->demote_next == id)
        arena->demote_next = slot->link.next;
}
/* Undoes the last evictable_remove() that was not undone. */
static inline void evictable_restore(struct pool *pool, struct arena *arena, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    list_restore(&arena->evictable, LINKS(pool->slots, link), id);
    slot->is_evictable = 1;
    arena->num_evictable++;
    arena->num_passed += slot->is_passed;
    if (arena->demote_next == slot->link.next)
        arena->demote_next = id; /* it was this one, or is before it and passed again */
}

/* The slot, taken, is the block's in its tier; absent. */
void place_attach(struct pool *pool, uint32_t block, uint32_t slot);
/* @transfer is going to write it. */
void place_incoming(struct pool *pool, uint32_t slot, uint32_t transfer);
/* The transfer ended: present if @is_good, and the block may be found there; else absent. */
void place_arrived(struct pool *pool, uint32_t slot, bool is_good);
/* A taken slot's block is here, now, and cached: it is evictable, the hottest of all. */
void place_cache(struct pool *pool, uint32_t slot);

/* A transfer reads it: it stays where it is in the order, and is skipped. */
void place_pin(struct pool *pool, uint32_t slot);
/* @is_used: for something that was asked for: the place is the hottest of its arena then. */
void place_unpin(struct pool *pool, uint32_t slot, bool is_used);

/*
 * An evictable place goes, @by caused it (NONE: a clear, or the operator); with the last one the
 * block. The slot goes to the tail of the free list.
 */
void place_evict(struct pool *pool, uint32_t slot, pool_payer by);
/* A place goes whatever it is, but one that is held; and with the last one the block. */
void place_drop(struct pool *pool, uint32_t slot);
/* A slot has no block any more; whoever may touch it still decides whether it is free. */
void slot_vacate(struct pool *pool, uint32_t slot, uint32_t end, pool_session taker);
/* Nobody can touch a quarantined slot any more. */
void slot_end_quarantine(struct pool *pool, uint32_t slot);

/* Tells, if it is wanted, that a slot has, or has no more, a published block. */
void tell_present(struct pool *pool, uint32_t slot, const struct pool_key *parent);
void tell_gone(struct pool *pool, uint32_t slot);
