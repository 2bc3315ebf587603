/* pool/check_granules.c - invariants of granules, slots and accounts: I1 .. I5 of check.c. */
#include "pool/arena.h"
#include "pool/block.h"
#include "pool/check.h"
#include "pool/granule_order.h"
#include "pool/payer.h"

/* What counting the slots of an arena's granules gives. */
struct slot_counts {
    uint32_t free, held, evictable, reserved, quarantined;
};

static bool granule_is_used(const struct pool *pool, uint32_t id)
{
    const struct granule *granule = &pool->slots[id].first_of;

    return id < pool->slot_pool.num_touched &&
           (granule->where != GRANULE_NOWHERE || granule->num_busy > 0);
}

/* Below the device nothing is held: what is not evictable is being written. */
static bool is_held(const struct pool *pool, const struct slot *slot)
{
    const struct block *block = &pool->blocks[slot->block];

    return block_is_published(pool, block) && block->present & DEVICE_BIT &&
           &pool->slots[block->slot[POOL_TIER_DEVICE]] == slot;
}

static void count_slot(const struct pool *pool, const struct slot *slot, struct slot_counts *counts)
{
    if (slot->state == SLOT_FREE)
        counts->free++;
    else if (slot->state == SLOT_QUARANTINED)
        counts->quarantined++;
    else if (slot->is_evictable)
        counts->evictable++;
    else if (is_held(pool, slot))
        counts->held++;
    else
        counts->reserved++;
}

static void check_granule(const struct pool *pool, uint32_t id, struct slot_counts *counts)
{
    const struct granule *granule = &pool->slots[id].first_of;
    const struct arena *arena = &pool->arenas[granule->arena];
    uint32_t num_busy = 0, num_cached = 0, at = 0;
    uint64_t hottest = 0;

    for (uint32_t slot_id = id; slot_id != NONE; at++) {
        const struct slot *slot = &pool->slots[slot_id];
        bool is_cached = slot->is_evictable && slot->num_readers == 0;

        assert(slot->granule == id && slot->number == 1 + granule->index * arena->slots + at);
        count_slot(pool, slot, counts);
        num_cached += is_cached;
        num_busy += slot->state != SLOT_FREE && !is_cached;
        if (is_cached && slot->stamp > hottest)
            hottest = slot->stamp;
        slot_id = slot->next_in_granule;
    }
    bool is_unheld = num_busy == 0 && num_cached > 0;
    bool is_in_order = granule->where == GRANULE_IN_LIST || granule->where == GRANULE_IN_TREE;
    assert(at == arena->slots && !granule->is_planned);
    assert(granule->num_busy == num_busy && granule->num_cached == num_cached);      /* I2 */
    assert(is_in_order == is_unheld && (!is_unheld || granule->hottest == hottest)); /* I2 */
    assert((granule->where == GRANULE_IDLE) == (num_busy + num_cached == 0));        /* I2 */
}

static void check_arena(const struct pool *pool, uint32_t id)
{
    const struct arena *arena = &pool->arenas[id];
    struct slot_counts counts = {0};
    uint32_t num_granules = 0, num_idle = 0, num_free = 0;

    for (uint32_t granule = 0; granule < pool->slot_pool.num_touched; granule++) {
        if (!granule_is_used(pool, granule) || pool->slots[granule].first_of.arena != id)
            continue;
        check_granule(pool, granule, &counts);
        num_granules++;
        num_idle += pool->slots[granule].first_of.where == GRANULE_IDLE;
    }
    for (uint32_t slot = arena->free.head; slot != NONE; slot = pool->slots[slot].link.next)
        num_free++;
    assert(num_granules == arena->num_granules && num_idle == arena->num_idle);
    assert(counts.free == arena->num_free && num_free == arena->num_free); /* I1 */
    assert(counts.held == arena->num_held);                                /* I1 */
    assert(counts.evictable == arena->num_evictable);                      /* I1 */
    assert(counts.reserved == arena->num_reserved);                        /* I1 */
    assert(counts.quarantined == arena->num_quarantined);                  /* I1 */
    assert(arena->num_free + arena->num_held + arena->num_evictable + arena->num_reserved +
               arena->num_quarantined ==
           arena->num_granules * arena->slots); /* I1 */
}

static void check_account(const struct pool *pool, pool_payer payer, uint32_t device)
{
    const struct account *account = account_of(pool, payer, device);
    uint64_t charged = 0, unheld = 0;

    for (uint32_t id = 0; id < pool->slot_pool.num_touched; id++) {
        const struct granule *granule = &pool->slots[id].first_of;
        if (!granule_is_used(pool, id))
            continue;
        const struct arena *arena = &pool->arenas[granule->arena];
        if (arena_payer(pool, arena) != payer || !placement_has(pool, arena->placement, device))
            continue;
        if (granule->where != GRANULE_IDLE)
            charged += arena->pages;
        if (granule->where == GRANULE_IN_LIST || granule->where == GRANULE_IN_TREE)
            unheld += arena->pages;
    }
    assert(account->charged == charged && account->unheld == unheld); /* I3 */
}

static void check_device(const struct pool *pool, uint32_t device)
{
    const struct device *record = &pool->devices[device];
    uint64_t pages = record->free_pages, takeable = 0, unheld = 0;
    pool_payer best = NONE;

    for (uint32_t id = 0; id < pool->slot_pool.num_touched; id++) {
        if (granule_is_used(pool, id) &&
            placement_has(pool, pool->arenas[pool->slots[id].first_of.arena].placement, device))
            pages += pool->arenas[pool->slots[id].first_of.arena].pages;
    }
    for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
        check_account(pool, payer, device);
        takeable += account_of(pool, payer, device)->takeable;
        unheld += account_of(pool, payer, device)->unheld;
        if (payer_coldest_granule(pool, payer, device, false) != NONE &&
            (best == NONE || payer_is_further_over(pool, payer, best, device)))
            best = payer;
    }
    assert(pages == record->pages);                                               /* I4 */
    assert(takeable == record->takeable_pages && unheld == record->unheld_pages); /* I4 */
    assert(payer_furthest_over(pool, device) == best);                            /* I5 */
}

/* The order's list ascends; the treap is in order, and its number of granules is @out_count's. */
static uint64_t check_treap(const struct pool *pool, uint32_t root, uint64_t low, uint64_t high)
{
    if (root == NONE)
        return 0;
    const struct granule *granule = &pool->slots[root].first_of;
    assert(granule->where == GRANULE_IN_TREE);                  /* I2 */
    assert(low <= granule->hottest && granule->hottest < high); /* I2 */
    return 1 + check_treap(pool, granule->left, low, granule->hottest) +
           check_treap(pool, granule->right, granule->hottest, high);
}

static void check_order(const struct pool *pool, const struct granule_order *order)
{
    uint64_t hottest = 0;

    for (uint32_t id = order->list.head; id != NONE; id = pool->slots[id].first_of.link.next) {
        assert(pool->slots[id].first_of.where == GRANULE_IN_LIST); /* I2 */
        assert(pool->slots[id].first_of.hottest > hottest);        /* I2 */
        hottest = pool->slots[id].first_of.hottest;
    }
    (void)check_treap(pool, order->root, 0, UINT64_MAX);
}

void check_granules(const struct pool *pool)
{
    for (uint32_t id = 0; id < pool->arena_pool.num_used; id++)
        check_arena(pool, id);
    for (uint32_t device = 0; device < pool->num_devices; device++)
        check_device(pool, device);
    for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
        for (uint32_t at = 0; at < pool->num_placements; at++)
            check_order(pool, order_of(pool, payer, at));
    }
}
