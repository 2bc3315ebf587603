/*
 * tests/pool/model_slots.c - the naive model's slots: where a new block comes from, and where one
 * that is let go of goes.
 */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 int128;

/* ---- granules ---- */

static uint32_t granule_of(const struct arena *arena, uint32_t slot)
{
    return (slot - 1) / arena->per_granule;
}

static bool is_granule_free(const struct arena *arena, uint32_t granule)
{
    uint32_t first = 1 + granule * arena->per_granule;

    for (uint32_t slot = first; slot < first + arena->per_granule; slot++)
        if (arena->slots[slot].state != SLOT_FREE)
            return false;
    return true;
}

/* Called after a slot was taken or freed: its granule begins or ceases to be idle. */
static void update_granule(struct slots *slots, uint32_t arena_index, uint32_t slot)
{
    struct arena *arena = &slots->arenas[arena_index];
    uint32_t granule = granule_of(arena, slot);
    bool is_idle = is_granule_free(arena, granule);

    if (is_idle && arena->granules[granule] == GRANULE_USED) {
        arena->granules[granule] = GRANULE_IDLE;
        places_add(&slots->idle, arena_index, granule); /* "idle longest first" */
    } else if (!is_idle && arena->granules[granule] == GRANULE_IDLE) {
        arena->granules[granule] = GRANULE_USED;
        places_remove(&slots->idle, places_find(&slots->idle, arena_index, granule));
    }
}

/* "new ones join an arena at its lowest unused granule index", "its slots in ascending order" */
static void add_granule(struct slots *slots, uint32_t arena_index)
{
    struct arena *arena = &slots->arenas[arena_index];
    uint32_t granule = 0;

    while (granule < arena->num_granules && arena->granules[granule] != GRANULE_ABSENT)
        granule++;
    if (granule == arena->num_granules) {
        arena->num_granules++;
        arena->granules = grow(arena->granules, &arena->granules_capacity, arena->num_granules,
                               sizeof(*arena->granules));
        arena->num_slots = 1 + arena->num_granules * arena->per_granule;
        size_t old = arena->slots_capacity;
        arena->slots =
            grow(arena->slots, &arena->slots_capacity, arena->num_slots, sizeof(*arena->slots));
        assert(old <= arena->slots_capacity);
    }
    uint32_t first = 1 + granule * arena->per_granule;
    for (uint32_t slot = first; slot < first + arena->per_granule; slot++) {
        arena->slots[slot] = (struct slot){.state = SLOT_FREE, .key = NO_INDEX};
        places_add(&arena->free, arena_index, slot);
    }
    arena->granules[granule] = GRANULE_IDLE;
    places_add(&slots->idle, arena_index, granule);
}

static void remove_granule(struct slots *slots, uint32_t arena_index, uint32_t granule)
{
    struct arena *arena = &slots->arenas[arena_index];
    uint32_t first = 1 + granule * arena->per_granule;

    assert(arena->granules[granule] == GRANULE_IDLE);
    for (uint32_t slot = first; slot < first + arena->per_granule; slot++)
        places_remove(&arena->free, places_find(&arena->free, arena_index, slot));
    arena->granules[granule] = GRANULE_ABSENT;
    places_remove(&slots->idle, places_find(&slots->idle, arena_index, granule));
}

/* "A tenant is charged for every granule that has a block of its in use or cached." */
uint64_t charged(const struct slots *slots, uint32_t payer)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < slots->num_arenas; i++) {
        const struct arena *arena = &slots->arenas[i];
        for (size_t granule = 0; arena->payer == payer && granule < arena->num_granules; granule++)
            sum += arena->granules[granule] == GRANULE_USED;
    }
    return sum;
}

/* ---- holds ---- */

static struct slot *slot_at(struct slots *slots, struct place place)
{
    return &slots->arenas[place.arena].slots[place.index];
}

void hold(struct slots *slots, struct place place)
{
    struct slot *slot = slot_at(slots, place);

    assert(slot->state != SLOT_FREE);
    if (slot->holds++ == 0)
        places_remove(&slots->cold, places_find(&slots->cold, place.arena, place.index));
}

void let_go(struct slots *slots, struct place place, struct places *batch)
{
    struct slot *slot = slot_at(slots, place);

    assert(slot->holds > 0);
    if (--slot->holds > 0)
        return;
    if (slot->state == SLOT_PUBLISHED) {
        places_add(&slots->cold, place.arena, place.index); /* "to the tail of its list" */
        return;
    }
    slot->state = SLOT_FREE;
    update_granule(slots, place.arena, place.index);
    if (batch)
        places_add(batch, place.arena, place.index);
    else
        places_insert(&slots->arenas[place.arena].free, 0, place.arena, place.index);
}

/* "go to the head of the free slots together, the first let go of is reused first" */
void end_batch(struct slots *slots, struct places *batch)
{
    for (size_t i = batch->num; i > 0; i--) {
        struct place place = batch->items[i - 1];
        places_insert(&slots->arenas[place.arena].free, 0, place.arena, place.index);
    }
    batch->num = 0;
}

/* ---- eviction ---- */

static void evict_block(struct slots *slots, size_t cold_index)
{
    struct place place = slots->cold.items[cold_index];

    places_remove(&slots->cold, cold_index);
    *slot_at(slots, place) = (struct slot){.state = SLOT_FREE, .key = NO_INDEX};
    places_add(&slots->arenas[place.arena].free, place.arena, place.index); /* to the tail */
    update_granule(slots, place.arena, place.index);
    slots->evictions++;
}

size_t num_evictable(const struct slots *slots, uint32_t payer)
{
    size_t sum = 0;

    for (size_t i = 0; i < slots->cold.num; i++)
        sum += slots->arenas[slots->cold.items[i].arena].payer == payer;
    return sum;
}

/* A payer, by how far it is over its share. */
struct rank {
    int128 over; /* times the sum of all weights, so that it is exact */
    uint32_t payer;
};

static struct rank rank_of(const struct naive *naive, const struct slots *slots, uint32_t payer)
{
    uint64_t sum_weights = 0;

    for (size_t i = 0; i < naive->num_payers; i++)
        sum_weights += naive->payers[i].weight;
    return (struct rank){(int128)charged(slots, payer) * sum_weights -
                             (int128)naive->num_granules * naive->payers[payer].weight,
                         payer};
}

/* "the largest charged - blocks * weight / (sum ...), ties to the one declared first" */
static bool is_before(struct rank a, struct rank b)
{
    return a.over > b.over || (a.over == b.over && a.payer < b.payer);
}

/*
 * The first payer after @last (NULL: of all) that has an evictable block, and is above its
 * guarantee or is @asker. With NO_INDEX as asker guarantees do not count.
 */
static bool next_payer(const struct naive *naive, const struct slots *slots, uint32_t asker,
                       const struct rank *last, struct rank *out)
{
    bool has_one = false;

    for (uint32_t payer = 0; payer < naive->num_payers; payer++) {
        struct rank rank = rank_of(naive, slots, payer);
        if (num_evictable(slots, payer) == 0 || (last && !is_before(*last, rank)))
            continue;
        if (asker != NO_INDEX && payer != asker &&
            charged(slots, payer) <= naive->payers[payer].guarantee)
            continue;
        if (!has_one || is_before(rank, *out))
            *out = rank;
        has_one = true;
    }
    return has_one;
}

/* Whether the walk, having reached this block, has seen a whole granule that nobody holds. */
static bool completes_granule(const struct slots *slots, size_t cold_index)
{
    struct place place = slots->cold.items[cold_index];
    const struct arena *arena = &slots->arenas[place.arena];
    uint32_t granule = granule_of(arena, place.index);
    uint32_t first = 1 + granule * arena->per_granule;

    for (uint32_t slot = first; slot < first + arena->per_granule; slot++)
        if (arena->slots[slot].holds > 0)
            return false;
    for (size_t i = cold_index + 1; i < slots->cold.num; i++) {
        struct place later = slots->cold.items[i];
        if (later.arena == place.arena && granule_of(arena, later.index) == granule)
            return false;
    }
    return true;
}

static void evict_granule(struct slots *slots, uint32_t arena_index, uint32_t granule)
{
    const struct arena *arena = &slots->arenas[arena_index];

    for (size_t i = 0; i < slots->cold.num;) {
        struct place place = slots->cold.items[i];
        if (place.arena == arena_index && granule_of(arena, place.index) == granule)
            evict_block(slots, i);
        else
            i++;
    }
}

/*
 * "it ends at the first block of the asker's own arena or the first completed granule"; blocks
 * whose eviction completes no granule stay. With one block a granule that is the coldest block.
 */
static bool walk_payer(struct slots *slots, uint32_t payer, uint32_t arena_index,
                       struct place *out_block)
{
    for (size_t i = 0; i < slots->cold.num; i++) {
        struct place place = slots->cold.items[i];
        if (slots->arenas[place.arena].payer != payer)
            continue;
        *out_block = place;
        if (place.arena == arena_index) {
            evict_block(slots, i);
            return true;
        }
        if (completes_granule(slots, i)) {
            evict_granule(slots, place.arena, granule_of(&slots->arenas[place.arena], place.index));
            return true;
        }
    }
    return false;
}

/* "if one payer's blocks complete nothing, the next is walked" */
static bool evict_for(const struct naive *naive, struct slots *slots, uint32_t arena_index)
{
    uint32_t asker = slots->arenas[arena_index].payer;
    struct rank rank, last;
    struct place block;
    bool has_last = false;

    while (next_payer(naive, slots, asker, has_last ? &last : NULL, &rank)) {
        if (walk_payer(slots, rank.payer, arena_index, &block))
            return true;
        last = rank;
        has_last = true;
    }
    return false;
}

bool evict_one(const struct naive *naive, struct slots *slots)
{
    struct rank rank;

    if (!next_payer(naive, slots, NO_INDEX, NULL, &rank))
        return false;
    for (size_t i = 0; i < slots->cold.num; i++) {
        if (slots->arenas[slots->cold.items[i].arena].payer == rank.payer) {
            evict_block(slots, i); /* "Of its arenas, the coldest block." */
            return true;
        }
    }
    return false;
}

/* ---- taking ---- */

static bool take_free(struct slots *slots, uint32_t arena_index, size_t free_index,
                      uint32_t *out_slot)
{
    struct arena *arena = &slots->arenas[arena_index];
    uint32_t slot = arena->free.items[free_index].index;

    places_remove(&arena->free, free_index);
    arena->slots[slot] = (struct slot){.state = SLOT_PRIVATE, .holds = 1, .key = NO_INDEX};
    update_granule(slots, arena_index, slot);
    *out_slot = slot;
    return true;
}

/* "at its limit a tenant still takes a free slot of its own granules"; else "the asker itself" */
static bool take_at_limit(struct slots *slots, uint32_t arena_index, bool *out_again,
                          uint32_t *out_slot)
{
    struct arena *arena = &slots->arenas[arena_index];
    struct place block;

    *out_again = false;
    for (size_t i = 0; i < arena->free.num; i++)
        if (arena->granules[granule_of(arena, arena->free.items[i].index)] == GRANULE_USED)
            return take_free(slots, arena_index, i, out_slot);
    *out_again = walk_payer(slots, arena->payer, arena_index, &block);
    if (*out_again && block.arena != arena_index && arena->free.num == 0) {
        remove_granule(slots, block.arena, granule_of(&slots->arenas[block.arena], block.index));
        add_granule(slots, arena_index); /* "emptied and handed over" */
    }
    return false;
}

/* "(1) the arena's list of free slots; (2) a granule not in use ...; (3) eviction", then again. */
bool take_slot(const struct naive *naive, struct slots *slots, uint32_t arena_index,
               bool ignore_limit, uint32_t *out_slot)
{
    struct arena *arena = &slots->arenas[arena_index];
    uint64_t limit = naive->payers[arena->payer].limit;

    for (;;) {
        if (!ignore_limit && charged(slots, arena->payer) >= limit) {
            bool again;
            if (take_at_limit(slots, arena_index, &again, out_slot))
                return true;
            if (!again)
                return false;
        } else if (arena->free.num) {
            return take_free(slots, arena_index, 0, out_slot);
        } else if (slots->uncommitted) {
            slots->uncommitted--;
            add_granule(slots, arena_index);
        } else if (slots->idle.num) {
            remove_granule(slots, slots->idle.items[0].arena, slots->idle.items[0].index);
            add_granule(slots, arena_index);
        } else if (!evict_for(naive, slots, arena_index)) {
            return false;
        }
    }
}

/* ---- the watermark ---- */

static bool has_one_block_granules(const struct naive *naive)
{
    for (size_t i = 0; i < naive->num_models; i++)
        for (size_t group = 0; group < naive->models[i].num_groups; group++)
            if (naive->models[i].groups[group].per_granule > 1)
                return false;
    return true;
}

/* "uncommitted granules and those without a held block" */
static uint64_t num_unheld_granules(const struct slots *slots)
{
    uint64_t sum = slots->uncommitted;

    for (size_t i = 0; i < slots->num_arenas; i++) {
        const struct arena *arena = &slots->arenas[i];
        for (uint32_t granule = 0; granule < arena->num_granules; granule++) {
            uint32_t first = 1 + granule * arena->per_granule, held = 0;
            for (uint32_t slot = first; slot < first + arena->per_granule; slot++)
                held += arena->slots[slot].holds > 0;
            sum += arena->granules[granule] != GRANULE_ABSENT && held == 0;
        }
    }
    return sum;
}

/* What is left for @asker, its limit aside. */
uint64_t can_be_had(const struct naive *naive, const struct slots *slots, uint32_t asker)
{
    if (!has_one_block_granules(naive))
        return num_unheld_granules(slots);

    uint64_t sum = slots->uncommitted + slots->idle.num;
    for (uint32_t payer = 0; payer < naive->num_payers; payer++) {
        uint64_t evictable = num_evictable(slots, payer), now = charged(slots, payer);
        uint64_t guarantee = payer == asker ? 0 : naive->payers[payer].guarantee;
        uint64_t above = now > guarantee ? now - guarantee : 0;
        sum += evictable < above ? evictable : above;
    }
    return sum;
}

/* ---- copies ---- */

static void arena_copy(struct arena *to, const struct arena *from)
{
    struct arena old = *to;

    *to = *from;
    to->slots_capacity = old.slots_capacity;
    to->slots = grow(old.slots, &to->slots_capacity, from->num_slots, sizeof(*to->slots));
    if (from->num_slots)
        memcpy(to->slots, from->slots, from->num_slots * sizeof(*to->slots));
    to->granules_capacity = old.granules_capacity;
    to->granules =
        grow(old.granules, &to->granules_capacity, from->num_granules, sizeof(*to->granules));
    if (from->num_granules)
        memcpy(to->granules, from->granules, from->num_granules * sizeof(*to->granules));
    to->free = old.free;
    places_copy(&to->free, &from->free);
}

void slots_copy(struct slots *to, const struct slots *from)
{
    to->arenas = grow(to->arenas, &to->arenas_capacity, from->num_arenas, sizeof(*to->arenas));
    for (size_t i = 0; i < from->num_arenas; i++)
        arena_copy(&to->arenas[i], &from->arenas[i]);
    to->num_arenas = from->num_arenas;
    to->uncommitted = from->uncommitted;
    to->evictions = from->evictions;
    places_copy(&to->cold, &from->cold);
    places_copy(&to->idle, &from->idle);
}

void slots_finish(struct slots *slots)
{
    for (size_t i = 0; i < slots->num_arenas; i++) {
        free(slots->arenas[i].slots);
        free(slots->arenas[i].granules);
        free(slots->arenas[i].free.items);
    }
    free(slots->arenas);
    free(slots->cold.items);
    free(slots->idle.items);
}
