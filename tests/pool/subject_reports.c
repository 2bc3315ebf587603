/* tests/pool/subject_reports.c - the shell's lines that show or change the whole pool, and tables.
 */
#include "tests/pool/subject_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables --------------------------------------------------------------------------------- */

static void print_group(const struct core *core, struct pool_name id, uint32_t group,
                        const struct pool_sequence_description *sequence, struct text *answer)
{
    struct pool_place *places = NULL;
    uint32_t count = 0;
    pool_payer shared = sequence->shared;

    (void)pool_table(core->pool, id, group, NULL, 0, &count);
    places = calloc(count + 1, sizeof(*places));
    assert(places);
    (void)pool_table(core->pool, id, group, places, count, &count);
    if (core->payers[sequence->domain].is_domain)
        shared = sequence->domain; /* the operator's own: all of it is the domain's */
    for (uint32_t i = 0; i < count; i++) {
        bool is_shared = places[i].slot != 0 && (places[i].is_shared || shared == sequence->domain);
        text_add(answer, "%s%s%s%u", i ? "," : "", is_shared ? core->payers[shared].text : "",
                 is_shared ? ":" : "", places[i].slot);
    }
    free(places);
}

void core_print_table(const struct core *core, struct pool_name id, struct text *answer)
{
    struct pool_sequence_description sequence;
    int err = pool_describe(core->pool, id, &sequence);

    assert(err == 0);
    text_add(answer, "table=");
    for (uint32_t group = 0; group < core->shapes[sequence.model].num_groups; group++) {
        if (group > 0)
            text_add(answer, ";");
        print_group(core, id, group, &sequence, answer);
    }
}

void core_answer_table(struct core *core, int result, struct pool_name id, struct text *answer)
{
    if (core_refused(answer, result))
        return;
    core_settle(core);
    text_add(answer, "ok ");
    core_print_table(core, id, answer);
}

void core_table(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);
    struct pool_sequence_description description;

    if (!sequence)
        return;
    (void)pool_describe(core->pool, sequence->id, &description);
    text_add(answer, "len=%llu ", (unsigned long long)description.length);
    core_print_table(core, sequence->id, answer);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* The arena that model=, group= and tenant= name; POOL_NONE: not used yet. False: it has answered.
 */
static bool resolve_arena(const struct core *core, const struct script_command *command,
                          uint32_t *out_arena, struct text *answer)
{
    pool_model model;
    pool_payer payer;

    if (!core_resolve(core, command, &model, &payer, answer))
        return false;
    if (command->group >= core->shapes[model].num_groups) {
        text_add(answer, "error: group=%llu: the model has %u groups",
                 (unsigned long long)command->group, core->shapes[model].num_groups);
        return false;
    }
    if (pool_arena_find(core->pool, payer, model, (uint32_t)command->group, out_arena))
        *out_arena = POOL_NONE;
    return true;
}

static void print_order(const struct core *core, uint32_t arena, enum pool_order order,
                        struct text *answer)
{
    size_t count = pool_arena_order(core->pool, arena, order, NULL, 0);
    uint32_t *slots = calloc(count + 1, sizeof(*slots));

    assert(slots);
    (void)pool_arena_order(core->pool, arena, order, slots, count);
    for (size_t i = 0; i < count; i++)
        text_add(answer, "%s%u", i ? "," : "", slots[i]);
    free(slots);
}

static uint64_t stat_value(const struct core *core, const char *name)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(core->pool, stats, 128);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    return 0;
}

void core_free_list(struct core *core, const struct script_command *command, struct text *answer)
{
    uint32_t arena;

    if (!resolve_arena(core, command, &arena, answer))
        return;
    text_add(answer, "free=");
    print_order(core, arena, POOL_ORDER_FREE, answer);
    text_add(answer,
             " uncommitted=%llu evictable=", (unsigned long long)stat_value(core, "uncommitted"));
    print_order(core, arena, POOL_ORDER_EVICTABLE, answer);
}

void core_holds(struct core *core, const struct script_command *command, struct text *answer)
{
    uint32_t arena;

    if (!resolve_arena(core, command, &arena, answer))
        return;
    for (size_t i = 0; i < command->num_slots; i++) {
        uint64_t slot = command->slots[i];
        bool is_possible = slot > 0 && slot <= UINT32_MAX && arena != POOL_NONE;
        text_add(answer, "%s%llu:%u", i ? " " : "", (unsigned long long)slot,
                 is_possible ? pool_slot_holds(core->pool, arena, (uint32_t)slot) : 0);
    }
}

void core_evict(struct core *core, const struct script_command *command, struct text *answer)
{
    enum pool_tier tier = *command->tier ? core_find_tier(command->tier) : POOL_TIER_DEVICE;

    text_add(answer, "ok evicted=%llu",
             (unsigned long long)pool_tier_evict(core->pool, tier, command->number));
}

void core_clear(struct core *core, const struct script_command *command, struct text *answer)
{
    pool_payer domain = POOL_NONE;
    pool_model model = POOL_NONE;

    if (*command->tenant)
        domain = core_find_name(core->payers, core->num_payers, command->tenant);
    if (*command->model)
        model = core_find_name(core->models, core->num_models, command->model);
    if ((*command->tenant && domain == POOL_NONE) || (*command->model && model == POOL_NONE)) {
        (void)core_refused(answer, POOL_NOT_FOUND);
        return;
    }
    (void)pool_clear(core->pool, domain, model);
    core_settle(core);
    text_add(answer, "ok");
}

void core_stats(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(core->pool, stats, 128);

    (void)command;
    for (size_t i = 0; i < count; i++)
        text_add(answer, "%s=%llu\n", stats[i].name, (unsigned long long)stats[i].value);
    text_add(answer, "ok");
}

void core_check(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    pool_check(core->pool);
    text_add(answer, "ok");
}
