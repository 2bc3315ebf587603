/*
 * pool/restore.c - after a restart: granules and blocks that survived come back.
 *
 * Between pool_restore_granule() and pool_restore_end() the slots of a granule that nothing was
 * restored in yet are QUARANTINED, by nobody and in no list: an allocation that runs meanwhile
 * cannot get them.
 */
#include "pool/place.h"

#define RESTORING (NONE - 1) /* link.prev of such a slot */

static bool is_restoring(const struct slot *slot)
{
    return slot->state == SLOT_QUARANTINED && slot->link.prev == RESTORING;
}

/* A device of the arena that lacks pages for a granule: its budget is spent. */
static bool lacks_pages(const struct pool *pool, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device) &&
            pool->devices[device].free_pages < arena->pages)
            return true;
    }
    return false;
}

int pool_restore_granule(struct pool *pool, uint32_t arena_id, uint32_t index)
{
    if (arena_id >= pool->arena_pool.num_used || pool->arenas[arena_id].slots == 0)
        return POOL_INVALID;
    struct arena *arena = &pool->arenas[arena_id];
    if (index >= UINT32_MAX / arena->slots)
        return POOL_INVALID;
    if (granule_find(pool, arena_id, index) != NONE)
        return POOL_EXISTS;
    if (tier_slots_left(pool, arena->tier) < arena->slots)
        return POOL_LIMIT;
    if (lacks_pages(pool, arena))
        return POOL_NO_BLOCKS;

    for (uint32_t id = granule_open_at(pool, arena_id, index); id != NONE;
         id = pool->slots[id].next_in_granule) {
        slot_take(pool, id);
        pool->slots[id].state = SLOT_QUARANTINED;
        pool->slots[id].link.prev = RESTORING;
        arena->num_reserved--;
        arena->num_quarantined++;
    }
    return 0;
}

/* The slot's record, found from the last one on where that is possible: they come ascending. */
static uint32_t restoring_slot(struct pool *pool, uint32_t arena, uint32_t number)
{
    uint32_t slots = pool->arenas[arena].slots, id = pool->restore_at;

    if (number == 0)
        return NONE;
    uint32_t granule = granule_find(pool, arena, (number - 1) / slots);
    if (granule == NONE)
        return NONE;
    if (id >= pool->slot_pool.num_touched || pool->slots[id].granule != granule ||
        pool->slots[id].number > number)
        id = granule;
    while (pool->slots[id].number != number)
        id = pool->slots[id].next_in_granule;
    pool->restore_at = id;
    return is_restoring(&pool->slots[id]) ? id : NONE;
}

/* Colder than all that was used in this life, but where swept blocks have to stand in front. */
static void cache_cold(struct pool *pool, struct arena *arena, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    if (arena->num_stale > 0 || pool->cold_stamp == 0) {
        evictable_push(pool, arena, id);
        return;
    }
    slot->stamp = pool->cold_stamp--;
    slot->is_evictable = 1;
    slot->is_passed = 0;
    list_push_head(&arena->evictable, LINKS(pool->slots, link), id);
    arena->num_evictable++;
    arena->demote_next = id; /* what is passed behind it is passed again */
}

int pool_restore_block(struct pool *pool, uint32_t arena_id, const struct pool_restored *restored)
{
    if (arena_id >= pool->arena_pool.num_used)
        return POOL_INVALID;
    struct arena *arena = &pool->arenas[arena_id];
    const struct shelf *shelf = &pool->shelves[arena->shelf];
    uint32_t device_arena = shelf->first_arena + arena->group;
    uint32_t id = arena->slots == 0 ? NONE : restoring_slot(pool, arena_id, restored->slot);
    if (id == NONE || restored->num_form != arena_form_words(pool, device_arena))
        return POOL_INVALID;

    uint32_t block = block_find_form(pool, device_arena, &restored->key, restored->form);
    if (block != NONE && pool->blocks[block].slot[arena->tier] != NONE)
        return POOL_EXISTS;
    if (block == NONE)
        block = block_restore(pool, id, restored);

    struct slot *slot = &pool->slots[id];
    slot->state = SLOT_TAKEN;
    slot->block = block;
    if (restored->generation != 0)
        slot->generation = restored->generation;
    if (slot->generation > pool->generation)
        pool->generation = slot->generation;
    pool->blocks[block].slot[arena->tier] = id;
    pool->blocks[block].present |= (1u << arena->tier) & 7u;
    pool->blocks[block].is_unwanted |= restored->is_unstorable;
    arena->num_quarantined--;
    cache_cold(pool, arena, id);
    granule_count(pool, slot->granule, -1, 1);
    return 0;
}

int pool_restore_end(struct pool *pool, uint32_t arena_id, uint32_t index)
{
    if (arena_id >= pool->arena_pool.num_used)
        return POOL_INVALID;
    struct arena *arena = &pool->arenas[arena_id];
    uint32_t granule = granule_find(pool, arena_id, index);
    bool was_restoring = false;

    if (granule == NONE)
        return 0; /* all of it was restored, and evicted meanwhile */
    for (uint32_t id = granule; id != NONE; id = pool->slots[id].next_in_granule) {
        if (!is_restoring(&pool->slots[id]))
            continue;
        was_restoring = true;
        arena->num_quarantined--;
        slot_free(pool, id, SLOT_TO_TAIL);
        granule_count(pool, granule, -1, 0);
    }
    if (was_restoring && pool->slots[granule].first_of.where == GRANULE_IDLE)
        granule_drop(pool, granule);
    return 0;
}
