/* pool/place.c - what a block has in one tier: a slot, absent, incoming or present. */
#include "pool/place.h"

#include "pool/demote.h"

/* ---- who wants to know ---------------------------------------------------------------------- */

void tell_present(struct pool *pool, uint32_t id, const struct pool_key *parent)
{
    const struct slot *slot = &pool->slots[id];
    const struct block *block = &pool->blocks[slot->block];

    if (!pool->config.tells_places)
        return;
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_PRESENT,
                                     .arena = granule_of_slot(pool, id)->arena,
                                     .slot = slot->number,
                                     .generation = slot->generation,
                                     .key = &block->key,
                                     .parent = parent,
                                     .form = block_form(pool, slot->block),
                                     .num_form = arena_form_words(pool, block->arena),
                                     .is_unstorable = block->is_unwanted,
                                     .is_generated = !block->is_wanted && !block->is_unwanted});
}

void tell_gone(struct pool *pool, uint32_t id)
{
    if (pool->config.tells_places)
        emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_GONE,
                                         .arena = granule_of_slot(pool, id)->arena,
                                         .slot = pool->slots[id].number});
}

/* ---- the eviction list ---------------------------------------------------------------------- */

void evictable_push(struct pool *pool, struct arena *arena, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    slot->stamp = ++pool->stamp;
    slot->is_evictable = 1;
    slot->is_passed = 0;
    list_push_tail(&arena->evictable, LINKS(pool->slots, link), id);
    arena->num_evictable++;
    if (arena->demote_next == NONE)
        arena->demote_next = id;
}

/* ---- a place comes -------------------------------------------------------------------------- */

void place_attach(struct pool *pool, uint32_t block, uint32_t slot)
{
    enum pool_tier tier = slot_tier(pool, slot);

    assert(pool->slots[slot].state == SLOT_TAKEN && pool->blocks[block].slot[tier] == NONE);
    pool->slots[slot].block = block;
    pool->blocks[block].slot[tier] = slot;
}

void place_incoming(struct pool *pool, uint32_t id, uint32_t transfer)
{
    struct slot *slot = &pool->slots[id];
    struct block *block = &pool->blocks[slot->block];
    unsigned bit = 1u << slot_tier(pool, id);

    slot->is_incoming = 1;
    slot->link.next = transfer;
    block->present &= ~bit & 7u;
    block->incoming |= bit & 7u;
}

void place_cache(struct pool *pool, uint32_t id)
{
    evictable_push(pool, slot_arena(pool, id), id);
    if (pool->slots[id].num_readers == 0)
        granule_let_go(pool, pool->slots[id].granule);
}

/* Transfers of a quarantined slot ended: free, or still with the session it was taken from. */
static void quarantine_touched(struct pool *pool, uint32_t id)
{
    const struct slot *slot = &pool->slots[id];
    pool_session taker = slot->link.prev;

    if (slot->is_incoming || slot->num_readers > 0)
        return;
    if (taker != NONE && pool->sessions[taker].is_attached)
        list_push_tail(&pool->sessions[taker].quarantined, LINKS(pool->slots, link), id);
    else
        slot_end_quarantine(pool, id);
}

void place_arrived(struct pool *pool, uint32_t id, bool is_good)
{
    struct slot *slot = &pool->slots[id];
    struct arena *arena = slot_arena(pool, id);
    unsigned bit = 1u << arena->tier;

    slot->is_incoming = 0;
    if (slot->state == SLOT_QUARANTINED) {
        quarantine_touched(pool, id);
        return;
    }
    struct block *block = &pool->blocks[slot->block];
    block->incoming &= ~bit & 7u;
    if (!is_good)
        return;
    bool is_cleared = block->state == BLOCK_PUBLISHED && !block_is_current(pool, block);
    if (is_cleared && (arena->tier != POOL_TIER_DEVICE || block->holds == 0)) {
        place_drop(pool, id);
        return;
    }
    block->present |= bit & 7u;
    if (!block_is_published(pool, block))
        return; /* a tail that was copied; or cleared, and held */
    arena->num_reserved--;
    if (arena->tier == POOL_TIER_DEVICE && block->holds > 0)
        arena->num_held++;
    else
        place_cache(pool, id);
    tell_present(pool, id, NULL);
}

/* ---- a transfer reads it -------------------------------------------------------------------- */

void place_pin(struct pool *pool, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    assert(slot->num_readers < MAX_READERS);
    if (slot->num_readers++ == 0 && slot->is_evictable)
        granule_count(pool, slot->granule, 1, -1);
}

/* An evictable slot that no transfer reads any more is the hottest of its arena from now on. */
static void cache_again(struct pool *pool, uint32_t id)
{
    struct arena *arena = slot_arena(pool, id);

    evictable_remove(pool, arena, id);
    evictable_push(pool, arena, id);
    granule_let_go(pool, pool->slots[id].granule);
}

static bool is_stale(const struct pool *pool, const struct slot *slot)
{
    return !block_is_current(pool, &pool->blocks[slot->block]);
}

void place_unpin(struct pool *pool, uint32_t id, bool is_used)
{
    struct slot *slot = &pool->slots[id];

    assert(slot->num_readers > 0);
    slot->num_readers--;
    if (slot->num_readers > 0)
        return;
    if (slot->state == SLOT_QUARANTINED)
        quarantine_touched(pool, id);
    else if (slot->is_evictable && is_used && !is_stale(pool, slot))
        cache_again(pool, id);
    else if (slot->is_evictable)
        granule_count(pool, slot->granule, -1, 1);
}

/* ---- a place goes --------------------------------------------------------------------------- */

/* Out of its arena's counts: of cached blocks, or (held ones are no more) of reserved ones. */
static void leave_gauges(struct pool *pool, struct arena *arena, uint32_t id)
{
    struct slot *slot = &pool->slots[id];

    if (!slot->is_evictable) {
        arena->num_reserved--;
        return;
    }
    evictable_remove(pool, arena, id);
    if (is_stale(pool, slot)) {
        arena->num_stale--;
        pool->sweeps_pending--;
    }
}

void slot_vacate(struct pool *pool, uint32_t id, uint32_t end, pool_session taker)
{
    struct slot *slot = &pool->slots[id];
    struct arena *arena = slot_arena(pool, id);
    bool is_in_transfer = slot->is_incoming || slot->num_readers > 0;
    bool was_cached = slot->is_evictable && slot->num_readers == 0;
    const struct granule *granule = granule_of_slot(pool, id);

    if (was_cached && granule->where != GRANULE_NOWHERE && granule->hottest == slot->stamp &&
        granule->num_cached > 1) /* not the coldest of its arena: its granule's place changes */
        granule_leave_order(pool, slot->granule);
    leave_gauges(pool, arena, id);
    slot->block = NONE;
    if (!is_in_transfer && taker == NONE) {
        slot_free(pool, id, end);
        granule_count(pool, slot->granule, was_cached ? 0 : -1, was_cached ? -1 : 0);
        return;
    }
    slot->state = SLOT_QUARANTINED;
    arena->num_quarantined++;
    if (was_cached)
        granule_count(pool, slot->granule, 1, -1);
    if (is_in_transfer)
        slot->link.prev = taker;
    else
        list_push_tail(&pool->sessions[taker].quarantined, LINKS(pool->slots, link), id);
}

void slot_end_quarantine(struct pool *pool, uint32_t id)
{
    slot_arena(pool, id)->num_quarantined--;
    slot_free(pool, id, SLOT_TO_HEAD);
    granule_count(pool, pool->slots[id].granule, -1, 0);
}

/* The block goes on without this place. */
static void detach(struct pool *pool, uint32_t id)
{
    enum pool_tier tier = slot_tier(pool, id);
    struct block *block = &pool->blocks[pool->slots[id].block];

    if (block->present >> tier & 1)
        tell_gone(pool, id);
    block->present &= ~(1u << tier) & 7u;
    block->incoming &= ~(1u << tier) & 7u;
    block->slot[tier] = NONE;
    slot_vacate(pool, id, SLOT_TO_TAIL, NONE);
}

void place_drop(struct pool *pool, uint32_t id)
{
    uint32_t block_id = pool->slots[id].block;
    const struct block *block = &pool->blocks[block_id];
    unsigned others = (block->present | block->incoming) & ~(1u << slot_tier(pool, id));

    assert(block->holds == 0 || slot_tier(pool, id) != POOL_TIER_DEVICE);
    if (others == 0 && block->holds == 0)
        block_destroy(pool, block_id, SLOT_TO_TAIL, NONE);
    else
        detach(pool, id);
}

static void count_eviction(struct pool *pool, const struct arena *arena, pool_payer by)
{
    pool_payer payer = arena_payer(pool, arena);

    pool->tiers[arena->tier].evictions++;
    if (arena->tier != POOL_TIER_DEVICE)
        return;
    pool->counters.evictions++;
    pool->payers[payer].evictions_suffered++;
    if (by != NONE) {
        pool->payers[by].evictions_caused++;
        pool->evictions[(size_t)by * pool->config.max_payers + payer]++;
    }
}

/*
 * What left a tier is, below it, used as lately as it was there: the order below is that of leaving
 * the tiers above.
 */
static void refresh_below(struct pool *pool, const struct block *block, enum pool_tier tier)
{
    unsigned below = block->present >> (tier + 1) << (tier + 1);

    if (below == 0 || !block_is_current(pool, block))
        return;
    uint32_t id = block->slot[__builtin_ctz(below)];
    const struct slot *slot = &pool->slots[id];
    if (!slot->is_evictable || slot->num_readers > 0)
        return;
    granule_hold(pool, slot->granule);
    cache_again(pool, id);
}

void place_evict(struct pool *pool, uint32_t id, pool_payer by)
{
    const struct slot *slot = &pool->slots[id];
    const struct arena *arena = slot_arena(pool, id);
    uint32_t block = slot->block;

    assert(slot->is_evictable && slot->num_readers == 0);
    count_eviction(pool, arena, by);
    if (pool->num_tiers > 1) {
        count_skipped(pool, id);
        refresh_below(pool, &pool->blocks[block], arena->tier);
    }
    place_drop(pool, id);
}
