/* tests/pool/model_report.c - the naive model's free-list, holds, stats, evict, clear and check. */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The arena that model=, group= and tenant= name. 0, or it has answered. */
static int resolve_arena(const struct naive *naive, const struct script_command *command,
                         uint32_t *out_arena, struct text *answer)
{
    uint32_t model, payer;
    int result = resolve(naive, command, &model, &payer, answer);

    if (result)
        return result;
    if (command->group >= naive->models[model].num_groups)
        return answer_error(answer, "group=%llu: the model has %zu groups",
                            (unsigned long long)command->group, naive->models[model].num_groups);
    *out_arena = find_arena(naive, payer, model, command->group);
    return 0;
}

/* The places of @arena among @places, as a comma list. */
static void print_slots(const struct places *places, uint32_t arena, struct text *answer)
{
    const char *comma = "";

    for (size_t i = 0; i < places->num; i++) {
        if (places->items[i].arena != arena)
            continue;
        text_add(answer, "%s%u", comma, places->items[i].index);
        comma = ",";
    }
}

void run_free_list(struct naive *naive, const struct script_command *command, struct text *answer)
{
    uint32_t arena;

    if (resolve_arena(naive, command, &arena, answer))
        return;
    text_add(answer, "free=");
    print_slots(&naive->slots.arenas[arena].free, arena, answer);
    text_add(answer, " uncommitted=%llu evictable=", (unsigned long long)naive->slots.uncommitted);
    print_slots(&naive->slots.cold, arena, answer);
}

/* "holds of a slot not in use prints :0" */
void run_holds(struct naive *naive, const struct script_command *command, struct text *answer)
{
    uint32_t arena_index;

    if (resolve_arena(naive, command, &arena_index, answer))
        return;
    const struct arena *arena = &naive->slots.arenas[arena_index];
    for (size_t i = 0; i < command->num_slots; i++) {
        uint64_t slot = command->slots[i];
        text_add(answer, "%s%llu:%u", i ? " " : "", (unsigned long long)slot,
                 slot && slot < arena->num_slots ? arena->slots[slot].holds : 0);
    }
}

void run_evict(struct naive *naive, const struct script_command *command, struct text *answer)
{
    uint64_t num_evicted = 0;

    while (num_evicted < command->number && evict_one(naive, &naive->slots))
        num_evicted++;
    text_add(answer, "ok evicted=%llu", (unsigned long long)num_evicted);
}

/* "evicts all evictable blocks in the order in which evict would and starts a new epoch" */
void run_clear(struct naive *naive, const struct script_command *command, struct text *answer)
{
    (void)command;
    while (evict_one(naive, &naive->slots))
        ;
    /* "Held blocks ... are found no more, and when let go their slots are free at once" */
    for (size_t i = 0; i < naive->slots.num_arenas; i++) {
        struct arena *arena = &naive->slots.arenas[i];
        for (size_t slot = 1; slot < arena->num_slots; slot++) {
            if (arena->slots[slot].state == SLOT_PUBLISHED)
                arena->slots[slot].state = SLOT_PRIVATE;
            arena->slots[slot].key = NO_INDEX;
        }
    }
    naive->epoch++;
    text_add(answer, "ok");
}

/* Slots of committed granules by what they are. */
struct census {
    uint64_t free, held, evictable, reserved, granules;
};

static void count_arena(const struct arena *arena, struct census *census)
{
    for (uint32_t granule = 0; granule < arena->num_granules; granule++) {
        uint32_t first = 1 + granule * arena->per_granule;
        if (arena->granules[granule] == GRANULE_ABSENT)
            continue;
        census->granules++;
        for (uint32_t slot = first; slot < first + arena->per_granule; slot++) {
            bool is_held = arena->slots[slot].holds > 0;
            census->free += arena->slots[slot].state == SLOT_FREE;
            census->reserved += arena->slots[slot].state == SLOT_PRIVATE;
            census->held += arena->slots[slot].state == SLOT_PUBLISHED && is_held;
            census->evictable += arena->slots[slot].state == SLOT_PUBLISHED && !is_held;
        }
    }
}

void run_stats(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct census census = {0};

    (void)command;
    for (size_t i = 0; i < naive->slots.num_arenas; i++)
        count_arena(&naive->slots.arenas[i], &census);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"blocks", naive->num_granules},
        {"free", census.free},
        {"uncommitted", naive->slots.uncommitted},
        {"held", census.held},
        {"evictable", census.evictable},
        {"reserved", census.reserved},
        {"quarantined", 0}, /* the shell's device finishes at once */
        {"query_tokens", naive->query_tokens},
        {"hit_tokens", naive->hit_tokens},
        {"evictions", naive->slots.evictions},
        {"copies", naive->copies},
        {"merged", naive->merged},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        text_add(answer, "%s=%llu\n", rows[i].name, (unsigned long long)rows[i].value);
    text_add(answer, "ok");
}

/*
 * What is true between two commands:
 *
 *  I1  A slot's holds are the table entries that name it.
 *  I2  A slot is free, or private and held, or published; published and unheld is in the cold list,
 *      once; free and committed is in its arena's free list, once.
 *  I3  No key has two blocks in one arena.
 *  I4  free + held + evictable + reserved = slots of committed granules, in each arena.
 *  I5  The granules of all arenas and the uncommitted ones are the budget.
 *  I6  A granule is idle, and in the idle list once, exactly when all its slots are free.
 *  I7  Nobody is charged more than its limit.
 */
static uint32_t count_holds(const struct naive *naive, uint32_t arena, uint32_t slot)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < naive->num_sequences; i++) {
        const struct sequence *sequence = naive->sequences[i];
        for (size_t group = 0; group < naive->models[sequence->model].num_groups; group++)
            for (size_t block = 0; block < sequence->tables[group].num; block++) {
                struct place place = sequence->tables[group].items[block];
                sum += place.index && place.arena == arena && place.index == slot;
            }
    }
    return sum;
}

static size_t count_places(const struct places *places, uint32_t arena, uint32_t index)
{
    size_t sum = 0;

    for (size_t i = 0; i < places->num; i++)
        sum += places->items[i].arena == arena && places->items[i].index == index;
    return sum;
}

static void check_slot(const struct naive *naive, uint32_t arena_index, uint32_t index)
{
    const struct arena *arena = &naive->slots.arenas[arena_index];
    const struct slot *slot = &arena->slots[index];
    bool is_committed = arena->granules[(index - 1) / arena->per_granule] != GRANULE_ABSENT;
    bool is_cold = slot->state == SLOT_PUBLISHED && slot->holds == 0;
    bool is_free = slot->state == SLOT_FREE && is_committed;

    assert(slot->holds == count_holds(naive, arena_index, index));                 /* I1 */
    assert(slot->state != SLOT_FREE || slot->holds == 0);                          /* I2 */
    assert(slot->state != SLOT_PRIVATE || slot->holds > 0);                        /* I2 */
    assert(count_places(&naive->slots.cold, arena_index, index) == is_cold);       /* I2 */
    assert(count_places(&arena->free, arena_index, index) == is_free);             /* I2 */
    assert(slot->state != SLOT_PUBLISHED || find_slot(arena, slot->key) == index); /* I3 */
}

static void check_arena(const struct naive *naive, uint32_t arena_index)
{
    const struct arena *arena = &naive->slots.arenas[arena_index];
    struct census census = {0};

    for (uint32_t slot = 1; slot < arena->num_slots; slot++)
        check_slot(naive, arena_index, slot);
    count_arena(arena, &census);
    assert(census.free + census.held + census.evictable + census.reserved ==
           census.granules * arena->per_granule); /* I4 */
    for (uint32_t granule = 0; granule < arena->num_granules; granule++) {
        uint32_t first = 1 + granule * arena->per_granule, num_used = 0;
        for (uint32_t slot = first; slot < first + arena->per_granule; slot++)
            num_used += arena->slots[slot].state != SLOT_FREE;
        assert((arena->granules[granule] == GRANULE_USED) == (num_used > 0)); /* I6 */
        assert(count_places(&naive->slots.idle, arena_index, granule) ==
               (arena->granules[granule] == GRANULE_IDLE)); /* I6 */
    }
}

void run_check(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct census census = {0};

    (void)command;
    for (uint32_t i = 0; i < naive->slots.num_arenas; i++) {
        check_arena(naive, i);
        count_arena(&naive->slots.arenas[i], &census);
    }
    assert(census.granules + naive->slots.uncommitted == naive->num_granules); /* I5 */
    for (uint32_t payer = 0; payer < naive->num_payers; payer++)
        assert(charged(&naive->slots, payer) <= naive->payers[payer].limit); /* I7 */
    text_add(answer, "ok");
}
