/*
 * pool/plan_limit.c - new slots for a payer at its limit: its own evictions leave room behind.
 *
 * plan.c has found that all slots can be had. Here they are taken one by one, for good.
 */
#include "pool/evict.h"
#include "pool/payer.h"
#include "pool/place.h"
#include "pool/plan.h"

/* The arena's first free slot that the limit lets the payer take, or NONE. */
static uint32_t first_free_slot(const struct pool *pool, const struct arena *arena)
{
    bool is_at_limit = device_over_limit(pool, arena) != NONE;
    uint32_t slot = arena->free.head;

    while (slot != NONE && is_at_limit && granule_of_slot(pool, slot)->where == GRANULE_IDLE)
        slot = pool->slots[slot].link.next;
    return slot;
}

/*
 * One eviction of the walk, for good: a block of the arena, or a whole granule of another one,
 * which is idle then and in @out_emptied. False: there is nothing more to give.
 */
static bool evict_one_step(struct pool *pool, struct arena *arena, uint32_t *out_emptied)
{
    uint32_t at_limit = device_over_limit(pool, arena);
    uint32_t device = at_limit != NONE ? at_limit : device_short(pool, arena);
    uint32_t slot = arena_coldest(pool, arena);
    uint32_t own = payer_coldest_granule(pool, pool->plan.payer, device, true);
    pool_payer giver = plan_giver(pool, device, at_limit != NONE, slot != NONE || own != NONE);

    if (giver == NONE)
        return false;
    if (giver != pool->plan.payer)
        own = payer_coldest_granule(pool, giver, device, false);
    else if (slot != NONE &&
             (own == NONE || pool->slots[slot].stamp <= pool->slots[own].first_of.hottest))
        own = NONE;
    *out_emptied = own;
    if (own == NONE)
        place_evict(pool, slot, pool->plan.payer);
    else
        granule_evict_in_order(pool, own, pool->plan.payer);
    return true;
}

/*
 * Whether what goes for a limit is room for any other granule: one device, one size, and slot
 * records for whatever is opened.
 */
bool limit_leaves_room(const struct pool *pool, const struct slot_request *request)
{
    enum pool_tier id = pool->arenas[request->wants[0].arena].tier;
    const struct tier *tier = &pool->tiers[id];
    uint64_t most_slots = 0;

    if (tier->end_device - tier->first_device > 1 || tier->has_mixed_pages)
        return false;
    for (uint32_t i = 0; i < request->num_wants; i++)
        most_slots +=
            (uint64_t)request->wants[i].count * pool->arenas[request->wants[i].arena].slots;
    if (most_slots > tier_slots_left(pool, id))
        return false;
    for (uint32_t i = 0; i < request->num_wants; i++) {
        pool_payer payer = want_payer(pool, &request->wants[i]);
        if (account_of(pool, payer, tier->first_device)->charged >
            pool->payers[payer].quota[id].limit)
            return false; /* it was lowered: what goes makes no room */
    }
    return true;
}

/* One step towards a free slot of the arena. @emptied: the granule that the last one emptied. */
static void make_room(struct pool *pool, struct arena *arena, uint32_t *emptied)
{
    bool is_at_limit = device_over_limit(pool, arena) != NONE;
    uint32_t arena_id = (uint32_t)(arena - pool->arenas);

    pool->plan.slot_records = (int64_t)tier_slots_left(pool, pool->plan.tier);
    if (!is_at_limit && *emptied != NONE) {
        granule_drop(pool, *emptied); /* handed over */
        *emptied = NONE;
    }
    uint32_t device = device_short(pool, arena);
    if (is_at_limit || (device != NONE && idle_longest(pool, device) == NONE)) {
        bool has_given = evict_one_step(pool, arena, emptied);
        assert(has_given || is_at_limit); /* the plan found enough */
        if (!has_given)
            pool->plan.limit = POOL_UNLIMITED; /* what just went is there */
    } else if (device != NONE) {
        granule_drop(pool, idle_longest(pool, device));
    } else {
        (void)granule_open(pool, arena_id);
    }
}

/*
 * What has to go for a limit leaves room behind: for each slot anew, the arena's free slots come
 * first, those of idle granules too; without one, an emptied granule is handed over; then granules
 * not in use, then the next eviction. (Where not all granules are alike the plan is carried out as
 * it is.)
 */
void limit_take_slots(struct pool *pool, const struct slot_request *request)
{
    uint32_t num_fresh = 0, slot;

    for (uint32_t i = 0; i < request->num_wants; i++) {
        struct arena *arena = &pool->arenas[request->wants[i].arena];
        pool->plan.payer = want_payer(pool, &request->wants[i]);
        pool->plan.limit = pool->payers[pool->plan.payer].quota[pool->plan.tier].limit;
        for (uint32_t n = 0; n < request->wants[i].count; n++) {
            uint32_t emptied = NONE;
            while ((slot = first_free_slot(pool, arena)) == NONE)
                make_room(pool, arena, &emptied);
            slot_take(pool, slot);
            pool->fresh[num_fresh++] = slot;
        }
    }
}
