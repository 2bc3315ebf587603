/* pool/plan.c - where new slots come from: tried without effect, then carried out. */
#include "pool/plan.h"

#include "pool/evict.h"
#include "pool/payer.h"
#include "pool/place.h"

/* What a granule is to the plan under way. */
enum { UNPLANNED = 0, PLANNED_USE, PLANNED_DROP };

enum { VICTIMS_AHEAD = 4 }; /* of prefetch_victims() */

/* ---- steps, and their undoing --------------------------------------------------------------- */

static uint32_t arena_number(const struct pool *pool, const struct arena *arena)
{
    return (uint32_t)(arena - pool->arenas);
}

static void free_pages_add(struct pool *pool, const struct arena *arena, int64_t sign)
{
    const struct tier *tier = &pool->tiers[arena->tier];

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device))
            pool->devices[device].free_pages += (uint64_t)(sign * (int64_t)arena->pages);
    }
}

static void charge(struct pool *pool, const struct arena *arena, int64_t sign)
{
    account_change_all(pool, arena_payer(pool, arena), arena->placement,
                       sign * (int64_t)arena->pages, 0);
}

static int plan_add(struct pool *pool, enum plan_step_kind kind, uint32_t id)
{
    struct plan *plan = &pool->plan;

    if (plan->num_steps == plan->max_steps)
        return POOL_LIMIT;
    plan->steps[plan->num_steps++] = (struct plan_step){kind, id};
    return 0;
}

/* Carries the accounts along: what later decisions of the plan look at. */
static void step_apply(struct pool *pool, const struct plan_step *step)
{
    if (step->kind == PLAN_OPEN) {
        free_pages_add(pool, &pool->arenas[step->id], -1);
        charge(pool, &pool->arenas[step->id], 1);
        pool->plan.slot_records -= pool->arenas[step->id].slots;
    }
    if (step->kind >= PLAN_OPEN)
        return;

    struct granule *granule = &pool->slots[step->id].first_of;
    const struct arena *arena = &pool->arenas[granule->arena];
    bool is_drop = step->kind == PLAN_DROP_IDLE || step->kind == PLAN_DROP_CACHED;
    if (step->kind == PLAN_DETACH_IDLE || step->kind == PLAN_DROP_IDLE)
        granule_leave_idle(pool, step->id);
    else
        granule_leave_order(pool, step->id);
    if (step->kind == PLAN_DETACH_IDLE)
        charge(pool, arena, 1);
    if (step->kind == PLAN_DROP_CACHED)
        charge(pool, arena, -1);
    if (is_drop) {
        free_pages_add(pool, arena, 1);
        pool->plan.slot_records += arena->slots;
    }
    granule->is_planned = is_drop ? PLANNED_DROP : PLANNED_USE;
}

/* Exactly back: idle granules to their place in the list, wholly unheld ones by their stamp. */
static void step_undo(struct pool *pool, const struct plan_step *step)
{
    if (step->kind == PLAN_OPEN) {
        charge(pool, &pool->arenas[step->id], -1);
        free_pages_add(pool, &pool->arenas[step->id], 1);
        pool->plan.slot_records += pool->arenas[step->id].slots;
    }
    if (step->kind >= PLAN_OPEN)
        return;

    struct granule *granule = &pool->slots[step->id].first_of;
    const struct arena *arena = &pool->arenas[granule->arena];
    if (granule->is_planned == PLANNED_DROP) {
        free_pages_add(pool, arena, -1);
        pool->plan.slot_records -= arena->slots;
    }
    if (step->kind == PLAN_DROP_CACHED)
        charge(pool, arena, 1);
    if (step->kind == PLAN_DETACH_IDLE)
        charge(pool, arena, -1);
    if (step->kind == PLAN_DETACH_IDLE || step->kind == PLAN_DROP_IDLE)
        granule_return_to_idle(pool, step->id);
    else
        granule_enter_order(pool, step->id);
    granule->is_planned = UNPLANNED;
}

static void plan_undo(struct pool *pool, uint32_t down_to)
{
    for (uint32_t at = pool->plan.num_steps; at > down_to; at--)
        step_undo(pool, &pool->plan.steps[at - 1]);
}

static int plan_step(struct pool *pool, enum plan_step_kind kind, uint32_t id)
{
    int answer = plan_add(pool, kind, id);

    if (answer == 0)
        step_apply(pool, &pool->plan.steps[pool->plan.num_steps - 1]);
    return answer;
}

/* ---- one slot ------------------------------------------------------------------------------- */

/* The plan's cursors of this arena, set to the heads of its lists when the plan first sees it. */
static struct arena *plan_arena(struct pool *pool, uint32_t id)
{
    struct arena *arena = &pool->arenas[id];

    if (arena->plan_number != pool->plan.number) {
        arena->plan_number = pool->plan.number;
        arena->plan_free = arena->free.head;
        arena->plan_evictable = arena->plan_ahead = arena->evictable.head;
        arena->plan_behind = NONE;
        arena->plan_fresh = 0;
    }
    return arena;
}

/* A device on which one more granule of the arena would put the payer over its limit, or NONE. */
uint32_t device_over_limit(const struct pool *pool, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device) &&
            account_of(pool, pool->plan.payer, device)->charged + arena->pages > pool->plan.limit)
            return device;
    }
    return NONE;
}

/*
 * A device on which the arena's next granule lacks pages, or NONE. Slot records that are lacking
 * are had like pages: where granules go, theirs are free.
 */
uint32_t device_short(const struct pool *pool, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];

    if (pool->plan.slot_records < (int64_t)arena->slots)
        return (uint32_t)__builtin_ctz(pool->placements[arena->placement].devices);
    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device) &&
            pool->devices[device].free_pages < arena->pages)
            return device;
    }
    return NONE;
}

/* (1) POOL_NO_BLOCKS: no free slot that the limit lets it take. */
static int plan_free_slot(struct pool *pool, struct arena *arena)
{
    for (; arena->plan_free != NONE; arena->plan_free = pool->slots[arena->plan_free].link.next) {
        uint32_t slot = arena->plan_free, id = pool->slots[slot].granule;
        struct granule *granule = &pool->slots[id].first_of;
        int answer = 0;

        if (granule->is_planned == PLANNED_DROP)
            continue;
        if (granule->where == GRANULE_IDLE) {
            if (device_over_limit(pool, arena) != NONE)
                continue;
            answer = plan_step(pool, PLAN_DETACH_IDLE, id);
        } else if (granule->where != GRANULE_NOWHERE) {
            answer = plan_step(pool, PLAN_DETACH_HELD, id);
        }
        arena->plan_free = pool->slots[slot].link.next;
        return answer ? answer : plan_step(pool, PLAN_TAKE_SLOT, slot);
    }
    return POOL_NO_BLOCKS;
}

static int plan_open(struct pool *pool, struct arena *arena)
{
    assert(pool->plan.slot_records >= (int64_t)arena->slots);
    int answer = plan_step(pool, PLAN_OPEN, arena_number(pool, arena));

    if (answer)
        return answer;
    arena->plan_fresh += arena->slots - 1;
    return plan_step(pool, PLAN_TAKE_FRESH, arena_number(pool, arena));
}

/* The granule of another arena that is idle longest on @device, or NONE. */
uint32_t idle_longest(const struct pool *pool, uint32_t device)
{
    uint32_t best = NONE;

    for (uint32_t at = 0; at < pool->num_placements; at++) {
        uint32_t head = pool->placements[at].idle.head;
        if (head != NONE && placement_has(pool, at, device) &&
            (best == NONE ||
             pool->slots[head].first_of.hottest < pool->slots[best].first_of.hottest))
            best = head;
    }
    return best;
}

/* (2) Drops idle granules until the arena's next granule has its pages, or there are none. */
static int plan_idle_pages(struct pool *pool, const struct arena *arena)
{
    uint32_t device, granule;

    while ((device = device_short(pool, arena)) != NONE &&
           (granule = idle_longest(pool, device)) != NONE) {
        int answer = plan_step(pool, PLAN_DROP_IDLE, granule);
        if (answer)
            return answer;
    }
    return 0;
}

/* The slot of the arena's coldest block that can go, from the plan's cursor on, or NONE. */
static uint32_t plan_coldest_slot(const struct pool *pool, struct arena *arena)
{
    while (arena->plan_evictable != NONE) {
        const struct slot *slot = &pool->slots[arena->plan_evictable];
        if (slot->num_readers == 0 &&
            pool->slots[slot->granule].first_of.is_planned != PLANNED_DROP)
            break;
        arena->plan_evictable = slot->link.next;
    }
    return arena->plan_evictable;
}

/*
 * Evicting touches a slot, its block, its granule and its place in the index. They are asked for
 * some victims ahead, so that what is left to wait for is the way from one slot of the list to the
 * next. Measured with tests/bench/bench_pool at 10^6 blocks: 280 ns a block instead of 560.
 */
static void prefetch_victims(struct pool *pool, struct arena *arena, uint32_t count)
{
    for (; count > 0 && arena->plan_ahead != NONE; count--) {
        const struct slot *slot = &pool->slots[arena->plan_ahead];
        if (arena->plan_behind != NONE) {
            const struct block *block = &pool->blocks[pool->slots[arena->plan_behind].block];
            index_prefetch(&pool->key_index, key_hash(&block->key, block->arena, false));
        }
        block_prefetch(pool, slot->block);
        __builtin_prefetch(&pool->slots[slot->granule].first_of, 1);
        if (slot->link.next != NONE)
            __builtin_prefetch(&pool->slots[slot->link.next], 1);
        arena->plan_behind = arena->plan_ahead;
        arena->plan_ahead = slot->link.next;
    }
}

static int plan_evict(struct pool *pool, struct arena *arena, uint32_t slot)
{
    bool is_first = arena->plan_ahead == arena->evictable.head;
    uint32_t id = pool->slots[slot].granule;
    uint32_t where = pool->slots[id].first_of.where;
    int answer = 0;

    if (where == GRANULE_IN_LIST || where == GRANULE_IN_TREE)
        answer = plan_step(pool, PLAN_DETACH_HELD, id);
    arena->plan_evictable = pool->slots[slot].link.next;
    prefetch_victims(pool, arena, is_first ? 1 + VICTIMS_AHEAD : 1);
    return answer ? answer : plan_step(pool, PLAN_EVICT, slot);
}

/*
 * Who gives next: the payer itself at its limit, else whoever is furthest over its share of those
 * that have something to give. @own: the payer has a block of the arena, or a whole granule.
 */
pool_payer plan_giver(const struct pool *pool, uint32_t device, bool is_at_limit, bool has_own)
{
    pool_payer self = pool->plan.payer;
    pool_payer other = is_at_limit ? NONE : payer_furthest_over(pool, device);

    if (!has_own)
        return other == self ? NONE : other;
    if (other == NONE || other == self || payer_is_further_over(pool, self, other, device))
        return self;
    return other;
}

/*
 * (3) One step of the walk. Evicts a block of the arena (the slot is had: 0), or drops a granule
 * (POOL_BUSY: go on), or POOL_NO_BLOCKS. @mark: drops since then did not help if a block does.
 */
static int plan_walk(struct pool *pool, struct arena *arena, uint32_t mark, uint32_t device,
                     bool is_at_limit)
{
    uint32_t slot = plan_coldest_slot(pool, arena);
    uint32_t own = payer_coldest_granule(pool, pool->plan.payer, device, true);
    pool_payer giver = plan_giver(pool, device, is_at_limit, slot != NONE || own != NONE);

    if (giver == NONE)
        return POOL_NO_BLOCKS;
    if (giver != pool->plan.payer)
        own = payer_coldest_granule(pool, giver, device, false);
    else if (slot != NONE &&
             (own == NONE || pool->slots[slot].stamp <= pool->slots[own].first_of.hottest)) {
        plan_undo(pool, mark);
        pool->plan.num_steps = mark;
        return plan_evict(pool, arena, slot);
    }
    int answer = plan_step(pool, PLAN_DROP_CACHED, own);
    return answer ? answer : POOL_BUSY;
}

static int plan_slot(struct pool *pool, uint32_t arena_id)
{
    struct arena *arena = plan_arena(pool, arena_id);
    uint32_t mark = pool->plan.num_steps;
    int answer;

    if (arena->plan_free != NONE && (answer = plan_free_slot(pool, arena)) != POOL_NO_BLOCKS)
        return answer;
    if (arena->plan_fresh > 0) {
        arena->plan_fresh--;
        return plan_step(pool, PLAN_TAKE_FRESH, arena_id);
    }
    for (;;) {
        uint32_t at_limit = device_over_limit(pool, arena);
        if (at_limit == NONE && (answer = plan_idle_pages(pool, arena)) != 0)
            return answer;
        uint32_t device = at_limit != NONE ? at_limit : device_short(pool, arena);
        if (device == NONE)
            return plan_open(pool, arena);
        pool->plan.has_met_limit |= at_limit != NONE;
        answer = plan_walk(pool, arena, mark, device, at_limit != NONE);
        if (answer == POOL_NO_BLOCKS && pool->plan.slot_records < (int64_t)arena->slots)
            return POOL_LIMIT; /* all that the tier may have are held */
        if (answer != POOL_BUSY)
            return answer;
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

/*
 * What could still be had on @device, in pages. With one block a granule that is what the payer may
 * take, its limit aside; with several, whatever granule nobody holds a block of.
 */
static uint64_t pages_left(const struct pool *pool, uint32_t device, pool_payer payer)
{
    const struct device *record = &pool->devices[device];
    const struct account *account = account_of(pool, payer, device);
    uint64_t pages = record->free_pages + record->idle_pages;

    if (pool->tiers[record->tier].has_shared_granules)
        return pages + record->unheld_pages;
    return pages + record->takeable_pages - account->takeable + account->unheld;
}

pool_payer want_payer(const struct pool *pool, const struct want *want)
{
    return arena_payer(pool, &pool->arenas[want->arena]);
}

static const struct tier *request_tier(const struct pool *pool, const struct slot_request *request)
{
    return &pool->tiers[pool->arenas[request->wants[0].arena].tier];
}

static bool leaves_watermark(const struct pool *pool, const struct slot_request *request)
{
    if (!request->has_watermark)
        return true;
    const struct tier *tier = request_tier(pool, request);
    pool_payer payer = want_payer(pool, &request->wants[0]);
    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        bool is_wanted = false;
        for (uint32_t i = 0; i < request->num_wants; i++)
            is_wanted |=
                request->wants[i].count > 0 &&
                placement_has(pool, pool->arenas[request->wants[i].arena].placement, device);
        if (is_wanted && pages_left(pool, device, payer) < pool->devices[device].watermark)
            return false;
    }
    return true;
}

/*
 * Makes the plan, without effect: its accounts are undone again. @out_has_slots: all slots could be
 * had, whatever the answer.
 */
static int plan_make(struct pool *pool, const struct slot_request *request, bool ignore_limits,
                     bool *out_has_slots)
{
    struct plan *plan = &pool->plan;
    int answer = 0;

    plan->number++;
    plan->num_steps = 0;
    plan->has_met_limit = false;
    plan->tier = pool->arenas[request->wants[0].arena].tier;
    plan->slot_records = (int64_t)tier_slots_left(pool, plan->tier);
    for (uint32_t i = 0; i < request->num_wants && !answer; i++) {
        plan->payer = want_payer(pool, &request->wants[i]);
        answer = plan_add(pool, PLAN_FOR, plan->payer);
        plan->limit =
            ignore_limits ? POOL_UNLIMITED : pool->payers[plan->payer].quota[plan->tier].limit;
        for (uint32_t n = 0; n < request->wants[i].count && !answer; n++)
            answer = plan_slot(pool, request->wants[i].arena);
    }
    *out_has_slots = answer == 0;
    if (!answer && !leaves_watermark(pool, request))
        answer = POOL_NO_BLOCKS;
    plan_undo(pool, 0);
    return answer;
}

static void fresh_add(struct pool *pool, uint32_t *num_fresh, uint32_t slot)
{
    slot_take(pool, slot);
    pool->fresh[(*num_fresh)++] = slot;
}

static void plan_carry_out(struct pool *pool)
{
    const struct plan *plan = &pool->plan;
    pool_payer payer = POOL_NONE;
    uint32_t num_fresh = 0;

    for (uint32_t at = 0; at < plan->num_steps; at++) {
        uint32_t id = plan->steps[at].id;
        switch (plan->steps[at].kind) {
        case PLAN_DROP_CACHED:
            granule_evict_all(pool, id, payer);
            granule_drop(pool, id);
            break;
        case PLAN_DROP_IDLE:
            granule_drop(pool, id);
            break;
        case PLAN_OPEN:
            pool->arenas[id].fresh_next = granule_open(pool, id);
            break;
        case PLAN_EVICT:
            place_evict(pool, id, payer);
            fresh_add(pool, &num_fresh, id);
            break;
        case PLAN_FOR:
            payer = id;
            break;
        case PLAN_TAKE_SLOT:
            fresh_add(pool, &num_fresh, id);
            break;
        case PLAN_TAKE_FRESH:
            fresh_add(pool, &num_fresh, pool->arenas[id].fresh_next);
            pool->arenas[id].fresh_next = pool->slots[pool->arenas[id].fresh_next].next_in_granule;
            break;
        default:
            break;
        }
    }
}

/* Whether @pages more, @new_pages of them from the uncommitted, are far from any bound on all
 * devices. */
static bool has_room(const struct pool *pool, const struct slot_request *request, pool_payer payer,
                     uint64_t pages, uint64_t new_pages)
{
    const struct tier *tier = request_tier(pool, request);

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        uint64_t watermark = request->has_watermark ? pool->devices[device].watermark : 0;
        if (new_pages > pool->devices[device].free_pages ||
            account_of(pool, payer, device)->charged + pages >
                quota_of(pool, payer, device)->limit ||
            (watermark > 0 && pages_left(pool, device, payer) < pages + watermark))
            return false;
    }
    return true;
}

/*
 * Nothing is in the way: free slots and uncommitted pages suffice, far from limit and watermark.
 * The usual case, and the same result as a plan's.
 *
 * Hot path: no allocation, no lock, no system call, no log.
 */
static bool take_at_ease(struct pool *pool, const struct slot_request *request, uint64_t total)
{
    uint64_t pages = 0, new_pages = 0; /* at most: charged, and taken from the uncommitted */
    uint64_t new_slots = 0;
    uint32_t num_fresh = 0;

    for (uint32_t i = 0; i < request->num_wants; i++) {
        const struct arena *arena = &pool->arenas[request->wants[i].arena];
        pages += (uint64_t)request->wants[i].count * arena->pages;
        if (total > arena->num_free) {
            new_pages += (uint64_t)request->wants[i].count * arena->pages;
            new_slots += (uint64_t)request->wants[i].count * arena->slots;
        }
    }
    if (new_slots > tier_slots_left(pool, pool->arenas[request->wants[0].arena].tier))
        return false;
    for (uint32_t i = 0; i < request->num_wants; i++) {
        if (!has_room(pool, request, want_payer(pool, &request->wants[i]), pages, new_pages))
            return false;
    }
    for (uint32_t i = 0; i < request->num_wants; i++) {
        struct arena *arena = &pool->arenas[request->wants[i].arena];
        for (uint32_t n = 0; n < request->wants[i].count; n++) {
            if (arena->free.head == NONE)
                (void)granule_open(pool, request->wants[i].arena);
            fresh_add(pool, &num_fresh, arena->free.head);
        }
    }
    return true;
}

static bool has_limit(const struct pool *pool, const struct slot_request *request)
{
    enum pool_tier tier = pool->arenas[request->wants[0].arena].tier;

    for (uint32_t i = 0; i < request->num_wants; i++) {
        pool_payer payer = want_payer(pool, &request->wants[i]);
        if (pool->payers[payer].quota[tier].limit != POOL_UNLIMITED)
            return true;
    }
    return false;
}

int slots_take(struct pool *pool, const struct slot_request *request)
{
    uint64_t total = 0;
    bool has_slots, has_slots_without_limit;

    for (uint32_t i = 0; i < request->num_wants; i++)
        total += request->wants[i].count;
    if (total > pool->max_fresh)
        return POOL_LIMIT;
    if (total == 0 || take_at_ease(pool, request, total))
        return 0;
    int answer = plan_make(pool, request, false, &has_slots);
    if (answer == 0 && pool->plan.has_met_limit && limit_leaves_room(pool, request))
        limit_take_slots(pool, request);
    else if (answer == 0)
        plan_carry_out(pool);
    else if (answer == POOL_NO_BLOCKS && !has_slots && has_limit(pool, request) &&
             plan_make(pool, request, true, &has_slots_without_limit) == 0)
        answer = POOL_QUOTA; /* it is only the limit that is in the way of the slots */
    return answer;
}
