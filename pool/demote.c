/*
 * pool/demote.c - copies of blocks are made below, ahead of their eviction.
 *
 * An eviction never waits for a copy: it takes the coldest block whether it has one below or not.
 * So while a tier is short of pages, the coldest blocks of each of its arenas are copied down
 * ahead, as many as will be evicted before there is room again. demote_next goes through the
 * eviction list once, from the cold end; what stands before it has been looked at (is_passed).
 *
 * What may not be stored now for want of a slot, or by a cap, stays where it is, and the cursor
 * with it; if it is evicted before it can be, that is counted, and nobody waited.
 *
 * What a copy reads cannot be evicted. So that a slow disk costs misses and never NO_BLOCKS, no
 * more than half of a tier is read by stores at a time, however small it is and however many arenas
 * have blocks in it.
 */
#include "pool/demote.h"

#include "pool/place.h"
#include "pool/plan.h"
#include "pool/transfer.h"

enum { MAX_ARENAS_A_CALL = 64, PAGE_PARTS = 1 << 16 };

enum store_result { STORE_BEGUN, STORE_NOT_NEEDED, STORE_NOT_NOW };

/* ---- what, where to, and whether it may be -------------------------------------------------- */

static bool is_to_be_stored(const struct pool *pool, const struct block *block)
{
    return block->is_wanted && !block->is_unwanted && block_is_published(pool, block) &&
           (pool->config.store_when != POOL_STORE_SECOND_USE || block->is_reused);
}

static bool has_copy_below(const struct block *block, enum pool_tier tier)
{
    return (block->present | block->incoming) >> (tier + 1) != 0;
}

/*
 * The arena that an arena's blocks are stored in: of the next tier below that keeps the group, and
 * is on. NONE: there is none; @out_is_off: but there is one that is not on.
 */
static uint32_t arena_below(const struct pool *pool, const struct arena *arena, bool *out_is_off)
{
    const struct shelf *shelf = &pool->shelves[arena->shelf];

    *out_is_off = false;
    for (enum pool_tier tier = arena->tier + 1u; tier < POOL_NUM_TIERS; tier++) {
        if (!pool->tiers[tier].is_there)
            continue;
        uint32_t below = tier_arena(pool, shelf, tier, arena->group);
        if (pool->arenas[below].slots > 0 && pool->tiers[tier].mode == POOL_TIER_ON)
            return below;
        *out_is_off |= pool->arenas[below].slots > 0;
    }
    return NONE;
}

static uint64_t block_bytes(const struct pool *pool, const struct arena *arena)
{
    const struct shelf *shelf = &pool->shelves[arena->shelf];

    return pool->models[shelf->model].shape.groups[arena->group].block_bytes;
}

/* What a block takes of its tier, in pages x PAGE_PARTS. */
static uint64_t share_of(const struct arena *arena)
{
    return (uint64_t)arena->pages * PAGE_PARTS / arena->slots;
}

/* Whether one more block of the arena is more than stores may read of its tier; one always may. */
static bool is_read_enough(const struct pool *pool, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];
    uint64_t pages = 0;

    for (uint32_t device = tier->first_device; device < tier->end_device; device++)
        pages += pool->devices[device].pages;
    return tier->being_read > 0 && tier->being_read + share_of(arena) > pages * PAGE_PARTS / 2;
}

/* The cap that is in the way of one more block of @arena in @below, or POOL_NUM_SKIPS. */
static enum pool_skip cap_reached(const struct pool *pool, const struct arena *arena,
                                  const struct arena *below)
{
    const struct pool_tier_config *config = &pool->config.tiers[below->tier];
    const struct tier *tier = &pool->tiers[below->tier];

    /* Half of the transfers are left to verbs, which wait for theirs. */
    if (records_left(&pool->transfer_pool) <= pool->transfer_pool.capacity / 2 ||
        is_read_enough(pool, arena) ||
        (config->max_store_bytes > 0 && tier->store_bytes > 0 &&
         tier->store_bytes + block_bytes(pool, below) > config->max_store_bytes))
        return POOL_SKIP_BUSY;
    if (config->store_bytes_per_s > 0 && tier->store_credit <= 0)
        return POOL_SKIP_RATE;
    return POOL_NUM_SKIPS;
}

void count_skipped(struct pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[pool->slots[id].block];
    const struct arena *arena = slot_arena(pool, id);
    bool is_off;

    if (!is_to_be_stored(pool, block) || has_copy_below(block, arena->tier))
        return;
    uint32_t below = arena_below(pool, arena, &is_off);
    enum pool_skip skip = POOL_SKIP_OFF;
    if (below == NONE && !is_off)
        return; /* it is in the last tier */
    if (below != NONE && (skip = cap_reached(pool, arena, &pool->arenas[below])) == POOL_NUM_SKIPS)
        skip = pool->arenas[below].is_full ? POOL_SKIP_FULL : POOL_SKIP_LATE;
    pool->tiers[arena->tier].skipped[skip]++;
}

/* ---- one block ------------------------------------------------------------------------------ */

static enum store_result store(struct pool *pool, uint32_t from)
{
    const struct arena *arena = slot_arena(pool, from);
    uint32_t block = pool->slots[from].block;
    bool is_off;

    if (!is_to_be_stored(pool, &pool->blocks[block]) ||
        has_copy_below(&pool->blocks[block], arena->tier))
        return STORE_NOT_NEEDED;
    uint32_t below = arena_below(pool, arena, &is_off);
    if (below == NONE)
        return is_off ? STORE_NOT_NOW : STORE_NOT_NEEDED;
    if (pool->slots[from].num_readers == MAX_READERS ||
        cap_reached(pool, arena, &pool->arenas[below]) != POOL_NUM_SKIPS)
        return STORE_NOT_NOW;
    const struct want want = {below, 1};
    pool->arenas[below].is_full =
        slots_take(pool, &(struct slot_request){.wants = &want, .num_wants = 1}) != 0;
    if (pool->arenas[below].is_full)
        return STORE_NOT_NOW;

    struct tier *tier = arena_tier(pool, &pool->arenas[below]);
    uint64_t bytes = block_bytes(pool, &pool->arenas[below]);
    tier->stores_started++;
    tier->store_bytes += bytes;
    tier->store_credit -= (int64_t)(bytes * 1000);
    arena_tier(pool, arena)->being_read += share_of(arena);
    place_attach(pool, block, pool->fresh[0]);
    transfer_move(pool, from, pool->fresh[0], TRANSFER_DEMOTE);
    return STORE_BEGUN;
}

void demote_now(struct pool *pool, uint32_t block)
{
    if (pool->num_tiers > 1 && pool->blocks[block].present & DEVICE_BIT)
        (void)store(pool, pool->blocks[block].slot[POOL_TIER_DEVICE]);
}

void demote_ended(struct pool *pool, const struct transfer *transfer, int error)
{
    const struct arena *arena = slot_arena(pool, transfer->to);
    struct tier *tier = arena_tier(pool, arena);

    tier->store_bytes -= block_bytes(pool, arena);
    arena_tier(pool, slot_arena(pool, transfer->from))->being_read -=
        share_of(slot_arena(pool, transfer->from));
    tier->stores_done += error == 0;
    tier->stores_failed += error != 0;
    place_arrived(pool, transfer->to, error == 0);
    if (error && pool->slots[transfer->to].state == SLOT_TAKEN)
        place_drop(pool, transfer->to);
    place_unpin(pool, transfer->from, false);
}

void demote_tick(struct pool *pool, uint64_t passed_ms)
{
    for (uint32_t at = 0; at < POOL_NUM_TIERS; at++) {
        uint64_t rate = pool->config.tiers[at].store_bytes_per_s;
        struct tier *tier = &pool->tiers[at];
        int64_t most = (int64_t)(rate * 1000);
        uint64_t more = passed_ms < 1000 ? passed_ms * rate : (uint64_t)most;

        tier->store_credit += (int64_t)more;
        if (tier->store_credit > most)
            tier->store_credit = most;
    }
}

/* ---- ahead of evictions --------------------------------------------------------------------- */

/* Pages that the arena can still get without evicting anything: what is no whole granule is none.
 */
static uint64_t room_of(const struct pool *pool, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];
    pool_payer payer = arena_payer(pool, arena);
    uint64_t limit = pool->payers[payer].quota[arena->tier].limit;
    uint64_t room = tier_slots_left(pool, arena->tier) / arena->slots * arena->pages;

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        const struct device *record = &pool->devices[device];
        uint64_t charged = account_of(pool, payer, device)->charged;
        if (!placement_has(pool, arena->placement, device))
            continue;
        if (record->free_pages + record->idle_pages < room)
            room = record->free_pages + record->idle_pages;
        if (limit < charged + room)
            room = limit > charged ? limit - charged : 0;
    }
    return room - room % arena->pages;
}

/* How many of the arena's coldest blocks are to have a copy below now. */
static uint64_t target_of(const struct pool *pool, const struct arena *arena)
{
    uint64_t ahead = pool->config.ahead_pages[arena->tier];

    if (ahead == 0 || arena->slots == 0 || arena->demote_next == NONE)
        return 0;
    uint64_t room = room_of(pool, arena);
    return room >= ahead ? 0 : (ahead - room + arena->pages - 1) / arena->pages * arena->slots;
}

static uint32_t demote_arena(struct pool *pool, struct arena *arena, uint32_t max_blocks)
{
    uint64_t target = target_of(pool, arena);
    uint32_t num_done = 0;

    while (num_done < max_blocks && arena->num_passed < target && arena->demote_next != NONE) {
        struct slot *slot = &pool->slots[arena->demote_next];
        if (!slot->is_passed && store(pool, arena->demote_next) == STORE_NOT_NOW)
            break;
        arena->num_passed += !slot->is_passed;
        slot->is_passed = 1;
        arena->demote_next = slot->link.next;
        num_done++;
    }
    return num_done;
}

uint32_t demote_ahead(struct pool *pool, uint32_t max_blocks)
{
    uint32_t num_arenas = pool->arena_pool.num_used, num_done = 0;
    uint32_t num_calls = num_arenas < MAX_ARENAS_A_CALL ? num_arenas : MAX_ARENAS_A_CALL;

    if (pool->num_tiers == 1)
        return 0;
    for (; num_calls > 0 && num_done < max_blocks; num_calls--) {
        if (++pool->demote_arena >= num_arenas)
            pool->demote_arena = 0;
        num_done += demote_arena(pool, &pool->arenas[pool->demote_arena], max_blocks - num_done);
    }
    return num_done;
}
