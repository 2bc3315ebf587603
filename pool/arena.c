/* pool/arena.c - arenas, granules and slots: which exist, which are free, who is charged. */
#include "pool/arena.h"

#include "pool/granule_order.h"
#include "pool/payer.h"

/* ---- shelves and arenas --------------------------------------------------------------------- */

uint32_t shelf_find(const struct pool *pool, pool_payer domain, pool_model model)
{
    uint32_t id = pool->payers[domain].first_shelf;

    while (id != NONE && pool->shelves[id].model != model)
        id = pool->shelves[id].next;
    return id;
}

static void arena_make(struct pool *pool, uint32_t shelf, enum pool_tier tier, uint32_t group)
{
    const struct model *model = &pool->models[pool->shelves[shelf].model];
    const struct pool_group *shape = &model->shape.groups[group];
    bool is_device = tier == POOL_TIER_DEVICE;
    uint32_t placement = is_device ? model->placement : pool->tiers[tier].placement;

    pool->arenas[tier_arena(pool, &pool->shelves[shelf], tier, group)] =
        (struct arena){.shelf = shelf,
                       .group = (uint16_t)group,
                       .placement = (uint8_t)placement,
                       .tier = (uint8_t)tier,
                       .pages = is_device ? shape->pages : shape->below[tier].pages,
                       .slots = is_device ? shape->slots : shape->below[tier].slots,
                       .evictable = LIST_EMPTY,
                       .free = LIST_EMPTY,
                       .demote_next = NONE,
                       .batch = NONE};
}

uint32_t shelf_get(struct pool *pool, pool_payer domain, pool_model model)
{
    const struct model *record = &pool->models[model];
    uint32_t num_groups = record->shape.num_groups;
    uint32_t id = shelf_find(pool, domain, model);

    if (id != NONE)
        return id;
    if (records_left(&pool->shelf_pool) == 0 ||
        records_left(&pool->arena_pool) < num_groups * pool->num_tiers)
        return NONE;

    id = pool->shelf_pool.num_used++; /* once used, shelves and arenas are never given back */
    uint32_t first = pool->arena_pool.num_used;
    pool->arena_pool.num_used += num_groups * pool->num_tiers;
    pool->shelves[id] = (struct shelf){.domain = domain,
                                       .model = model,
                                       .first_arena = first,
                                       .next = pool->payers[domain].first_shelf};
    pool->payers[domain].first_shelf = id;
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        for (uint32_t group = 0; group < num_groups && pool->tiers[tier].is_there; group++)
            arena_make(pool, id, tier, group);
    }
    return id;
}

void shelf_unmake_last(struct pool *pool)
{
    const struct shelf *shelf = &pool->shelves[--pool->shelf_pool.num_used];

    pool->payers[shelf->domain].first_shelf = shelf->next; /* it was put in front */
    pool->arena_pool.num_used = shelf->first_arena;
}

static uint64_t granule_hash(uint32_t arena, uint32_t index)
{
    return ((uint64_t)arena << 32 | index) * UINT64_C(0x9E3779B97F4A7C15);
}

uint32_t granule_find(const struct pool *pool, uint32_t arena, uint32_t index)
{
    struct index_walk walk;
    uint32_t id = index_first(&pool->granule_index, granule_hash(arena, index), &walk);

    while (id != NONE &&
           (pool->slots[id].first_of.arena != arena || pool->slots[id].first_of.index != index))
        id = index_next(&pool->granule_index, &walk);
    return id;
}

uint32_t slot_find(const struct pool *pool, uint32_t arena, uint32_t number)
{
    if (arena >= pool->arena_pool.num_used || number == 0)
        return NONE;

    uint32_t granule = granule_find(pool, arena, (number - 1) / pool->arenas[arena].slots);
    if (granule == NONE)
        return NONE;
    uint32_t slot = granule;
    while (pool->slots[slot].number != number)
        slot = pool->slots[slot].next_in_granule;
    return slot;
}

/* ---- where a granule waits ------------------------------------------------------------------ */

static void pages_add(struct pool *pool, const struct arena *arena, size_t member, int64_t sign)
{
    const struct tier *tier = &pool->tiers[arena->tier];

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device)) {
            uint64_t *pages = (uint64_t *)((char *)&pool->devices[device] + member);
            *pages += (uint64_t)(sign * (int64_t)arena->pages);
        }
    }
}

static void granule_enter_idle(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;
    struct arena *arena = &pool->arenas[granule->arena];

    granule->where = GRANULE_IDLE;
    granule->hottest = ++pool->stamp;
    list_push_tail(&pool->placements[arena->placement].idle, LINKS(pool->slots, first_of.link), id);
    arena->num_idle++;
    pages_add(pool, arena, offsetof(struct device, idle_pages), 1);
}

void granule_leave_idle(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;
    struct arena *arena = &pool->arenas[granule->arena];

    list_remove(&pool->placements[arena->placement].idle, LINKS(pool->slots, first_of.link), id);
    granule->where = GRANULE_NOWHERE;
    arena->num_idle--;
    pages_add(pool, arena, offsetof(struct device, idle_pages), -1);
}

void granule_return_to_idle(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;
    struct arena *arena = &pool->arenas[granule->arena];

    granule->where = GRANULE_IDLE; /* idle as long as before: it keeps its stamp */
    list_restore(&pool->placements[arena->placement].idle, LINKS(pool->slots, first_of.link), id);
    arena->num_idle++;
    pages_add(pool, arena, offsetof(struct device, idle_pages), 1);
}

static void enter_order_near(struct pool *pool, uint32_t id, uint32_t near)
{
    const struct arena *arena = &pool->arenas[pool->slots[id].first_of.arena];
    pool_payer payer = arena_payer(pool, arena);

    granule_order_insert(pool, order_of(pool, payer, arena->placement), id, near);
    account_change_all(pool, payer, arena->placement, 0, arena->pages);
}

void granule_enter_order(struct pool *pool, uint32_t id)
{
    enter_order_near(pool, id, NONE);
}

void granule_leave_order(struct pool *pool, uint32_t id)
{
    const struct arena *arena = &pool->arenas[pool->slots[id].first_of.arena];
    pool_payer payer = arena_payer(pool, arena);

    granule_order_remove(pool, order_of(pool, payer, arena->placement), id);
    account_change_all(pool, payer, arena->placement, 0, -(int64_t)arena->pages);
}

/* The granule's evictable slot with the largest stamp; there is one. */
static uint32_t hottest_slot(const struct pool *pool, uint32_t granule)
{
    uint32_t hottest = NONE;

    for (uint32_t id = granule; id != NONE; id = pool->slots[id].next_in_granule) {
        if (pool->slots[id].is_evictable &&
            (hottest == NONE || pool->slots[id].stamp > pool->slots[hottest].stamp))
            hottest = id;
    }
    return hottest;
}

/* A granule in its payer's list that is about as cold as an evictable slot, or NONE. */
static uint32_t granule_near(const struct pool *pool, uint32_t slot)
{
    uint32_t granule = pool->slots[slot].granule, colder = slot, hotter = slot;

    for (uint32_t steps = 0; steps < 8; steps++) {
        colder = colder == NONE ? NONE : pool->slots[colder].link.prev;
        hotter = hotter == NONE ? NONE : pool->slots[hotter].link.next;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t other = i == 0 ? colder : hotter;
            uint32_t near = other == NONE ? granule : pool->slots[other].granule;
            if (near != granule && pool->slots[near].first_of.where == GRANULE_IN_LIST)
                return near;
        }
    }
    return NONE;
}

void granule_count(struct pool *pool, uint32_t id, int busy, int cached)
{
    struct granule *granule = &pool->slots[id].first_of;
    const struct arena *arena = &pool->arenas[granule->arena];
    bool was_used = granule->num_busy + granule->num_cached > 0;
    bool was_busy = granule->num_busy > 0;

    granule->num_busy += (uint32_t)busy;
    granule->num_cached += (uint32_t)cached;
    if (was_busy && granule->num_busy > 0)
        return; /* in use and held, as before */
    bool is_used = granule->num_busy + granule->num_cached > 0;
    bool is_unheld = granule->num_busy == 0 && granule->num_cached > 0;
    bool was_unheld = granule->where == GRANULE_IN_LIST || granule->where == GRANULE_IN_TREE;

    if (granule->where == GRANULE_IDLE && is_used)
        granule_leave_idle(pool, id);
    if (was_unheld && !is_unheld)
        granule_leave_order(pool, id);
    if (is_used != was_used)
        account_change_all(pool, arena_payer(pool, arena), arena->placement,
                           is_used ? arena->pages : -(int64_t)arena->pages, 0);
    if (is_unheld && !was_unheld) {
        uint32_t slot = hottest_slot(pool, id);
        granule->hottest = pool->slots[slot].stamp;
        enter_order_near(pool, id, granule_near(pool, slot));
    }
    if (!is_used && granule->where != GRANULE_IDLE)
        granule_enter_idle(pool, id);
}

void granule_hold(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;

    if (granule->num_busy++ == 0) /* it was wholly unheld; and is in use, as before */
        granule_leave_order(pool, id);
    granule->num_cached--;
}

void granule_let_go(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;

    granule->num_cached++;
    if (--granule->num_busy > 0)
        return;
    granule->hottest = pool->stamp;
    granule_enter_order(pool, id);
}

/* ---- granules come and go ------------------------------------------------------------------- */

static uint32_t lowest_unused_index(struct pool *pool, uint32_t arena_id)
{
    struct arena *arena = &pool->arenas[arena_id];

    while (granule_find(pool, arena_id, arena->lowest_hint) != NONE)
        arena->lowest_hint++;
    return arena->lowest_hint;
}

uint32_t granule_open_at(struct pool *pool, uint32_t arena_id, uint32_t index)
{
    struct arena *arena = &pool->arenas[arena_id];
    uint32_t id = NONE, *next = &id;

    for (uint32_t at = 0; at < arena->slots; at++) {
        uint32_t slot_id = record_take(&pool->slot_pool, LINKS(pool->slots, link));
        assert(slot_id != NONE);
        struct slot *slot = &pool->slots[slot_id];
        *next = slot_id;
        next = &slot->next_in_granule;
        slot->granule = id; /* the first of them */
        slot->number = 1 + index * arena->slots + at;
        slot->state = SLOT_FREE;
        list_push_tail(&arena->free, LINKS(pool->slots, link), slot_id);
    }
    *next = NONE;
    pool->slots[id].first_of = (struct granule){.arena = arena_id, .index = index};
    index_insert(&pool->granule_index, granule_hash(arena_id, index), id);
    arena->num_free += arena->slots;
    arena->num_granules++;
    arena_tier(pool, arena)->num_slots += arena->slots;
    pages_add(pool, arena, offsetof(struct device, free_pages), -1);
    granule_enter_idle(pool, id);
    return id;
}

uint32_t granule_open(struct pool *pool, uint32_t arena)
{
    uint32_t index = lowest_unused_index(pool, arena);
    uint32_t id = granule_open_at(pool, arena, index);

    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_COMMIT, .arena = arena, .index = index});
    return id;
}

void granule_drop(struct pool *pool, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;
    struct arena *arena = &pool->arenas[granule->arena];

    assert(granule->where == GRANULE_IDLE);
    granule_leave_idle(pool, id);
    for (uint32_t slot = id; slot != NONE;) {
        uint32_t next = pool->slots[slot].next_in_granule;
        list_remove(&arena->free, LINKS(pool->slots, link), slot);
        if (arena->batch == slot)
            arena->batch = NONE;
        record_give(&pool->slot_pool, LINKS(pool->slots, link), slot);
        slot = next;
    }
    arena->num_free -= arena->slots;
    arena->num_granules--;
    arena_tier(pool, arena)->num_slots -= arena->slots;
    if (granule->index < arena->lowest_hint)
        arena->lowest_hint = granule->index;
    index_remove(&pool->granule_index, granule_hash(granule->arena, granule->index), id);
    pages_add(pool, arena, offsetof(struct device, free_pages), 1);
    pool->counters.granules_moved++;
    emit(pool, &(struct pool_effect){
                   .kind = POOL_EFFECT_DECOMMIT, .arena = granule->arena, .index = granule->index});
    *granule = (struct granule){0};
}

/* ---- slots ---------------------------------------------------------------------------------- */

void slot_take(struct pool *pool, uint32_t id)
{
    struct slot *slot = &pool->slots[id];
    struct arena *arena = &pool->arenas[granule_of_slot(pool, id)->arena];

    assert(slot->state == SLOT_FREE);
    list_remove(&arena->free, LINKS(pool->slots, link), id);
    if (arena->batch == id)
        arena->batch = NONE;
    arena->num_free--;
    arena->num_reserved++;
    slot->state = SLOT_TAKEN;
    slot->block = NONE;
    slot->generation =
        ++pool->generation; /* one counter: a number that moved to another record, too */
    granule_count(pool, slot->granule, 1, 0);
}

void slot_free(struct pool *pool, uint32_t id, enum slot_end end)
{
    struct slot *slot = &pool->slots[id];
    struct arena *arena = &pool->arenas[granule_of_slot(pool, id)->arena];
    struct links links = LINKS(pool->slots, link);
    bool is_first = arena->batch == NONE || arena->batch_number != pool->batch;

    slot->state = SLOT_FREE;
    slot->block = NONE;
    arena->num_free++;
    if (end == SLOT_TO_TAIL) {
        list_push_tail(&arena->free, links, id);
    } else if (end == SLOT_TO_HEAD || is_first) {
        list_push_head(&arena->free, links, id);
    } else {
        list_insert(&arena->free, links, id, pool->slots[arena->batch].link.next);
    }
    if (end == SLOT_TO_BATCH) {
        arena->batch = id;
        arena->batch_number = pool->batch;
    }
}
