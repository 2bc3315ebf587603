/*
 * tests/sim/sim_device.c - simulated devices, and tiers below them: granules, and rows of words.
 *
 * What a device may see, each checked where it happens:
 *  D1  Memory is touched only while its granule is committed, on every rank's device.
 *  D2  Committed granules never exceed a device's or tier's budget, nor its slots.
 *  D3  A slot that a copy writes is read or written by nobody else; one that a copy reads is not
 *      written by an append or another copy, and does not lose its memory. (The rows of an open
 * step behind its complete tokens may be: a copy of a fork then reads what its reader overwrites.)
 *      The same below the device, where a slot has a key only from PRESENT to GONE.
 *  D4  A published row never changes.
 *  D5  Whoever reads a row finds the word of that prefix.
 */
#include "tests/sim/sim_tiers.h"

#include <stdlib.h>

static const struct pool_model_shape *arena_shape(const struct sim *sim,
                                                  const struct sim_arena *arena)
{
    for (uint32_t i = 0; i < sim->num_models; i++)
        if (sim->models[i].id == arena->model)
            return &sim->models[i].shape;
    sim_fail(sim, "arena of an unknown model %u", arena->model);
}

uint32_t device_parts(const struct sim *sim, const struct sim_arena *arena, uint32_t *out)
{
    const struct pool_model_shape *shape = arena_shape(sim, arena);

    if (arena->tier != POOL_TIER_DEVICE) {
        out[0] = POOL_MAX_DEVICES + arena->tier;
        return 1;
    }
    memcpy(out, shape->ranks, shape->num_ranks * sizeof(*out));
    return shape->num_ranks;
}

static uint64_t part_budget(const struct sim *sim, uint32_t part)
{
    return part < POOL_MAX_DEVICES ? sim->config.devices[part].pages
                                   : sim->config.tiers[part - POOL_MAX_DEVICES].pages;
}

static uint32_t arena_max_granules(const struct sim *sim, const struct sim_arena *arena)
{
    uint32_t parts[POOL_MAX_DEVICES], num_parts = device_parts(sim, arena, parts);
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < num_parts; i++)
        if (part_budget(sim, parts[i]) < least)
            least = part_budget(sim, parts[i]);
    return (uint32_t)(least / arena->pages);
}

static void arena_check_shape(struct sim *sim, const struct sim_arena *arena)
{
    const struct pool_model_shape *shape = arena_shape(sim, arena);
    const struct pool_group *group = &shape->groups[arena->group];
    struct pool_granule_shape granule = {group->pages, group->slots};

    sim_expect(sim, arena->group < shape->num_groups, "an arena of no group");
    if (arena->tier != POOL_TIER_DEVICE)
        granule = group->below[arena->tier];
    sim_expect(sim, granule.pages == arena->pages, "pages of an arena");
    sim_expect(sim, granule.slots == arena->slots_per_granule, "slots of an arena");
}

/* Where the pool's arenas are found by whom they are for. */
static void arena_index(struct sim *sim, uint32_t index)
{
    struct sim_arena *arena = &sim->arenas[index];

    for (uint32_t payer = 0; payer < sim->num_payers; payer++)
        for (uint32_t model = 0; model < sim->num_models; model++) {
            if (sim->payers[payer].id != arena->domain || sim->models[model].id != arena->model)
                continue;
            sim->arena_of[arena->tier][payer][model][arena->group] = index;
            arena->family = sim_family(payer, model, arena->group);
        }
}

static void arena_init(struct sim *sim, uint32_t index)
{
    struct sim_arena *arena = &sim->arenas[index];
    struct pool_arena_description about;

    sim_expect(sim, pool_arena_describe(sim->pool, index, &about) == 0, "arena %u unknown", index);
    *arena = (struct sim_arena){.is_used = true,
                                .tier = about.tier,
                                .domain = about.domain,
                                .model = about.model,
                                .group = about.group,
                                .slots_per_granule = about.slots_per_granule,
                                .pages = about.pages_per_granule};
    arena_check_shape(sim, arena);

    const struct pool_model_shape *shape = arena_shape(sim, arena);
    arena->num_layers =
        (shape->num_layers - about.group + shape->num_groups - 1) / shape->num_groups;
    arena->num_ranks = shape->num_ranks;
    arena->max_granules = arena_max_granules(sim, arena);
    arena->rows_per_slot = arena->num_ranks * arena->num_layers * shape->block_tokens;

    size_t num_slots = (size_t)arena->max_granules * arena->slots_per_granule + 1;
    arena->is_committed = calloc(arena->max_granules, sizeof(*arena->is_committed));
    arena->survival = calloc(arena->max_granules, sizeof(*arena->survival));
    arena->rows = malloc(num_slots * arena->rows_per_slot * sizeof(*arena->rows));
    arena->slots = calloc(num_slots, sizeof(*arena->slots));
    arena->records = sim->config.tells_places ? calloc(num_slots, sizeof(*arena->records)) : NULL;
    sim_expect(sim,
               arena->is_committed && arena->survival && arena->rows && arena->slots &&
                   (arena->records || !sim->config.tells_places),
               "out of memory");
    arena_index(sim, index);
}

void device_move_arenas(struct sim *sim, const uint32_t *new_index)
{
    static struct sim_arena old[SIM_MAX_ARENAS];

    memcpy(old, sim->arenas, sizeof(old));
    memset(sim->arenas, 0, sizeof(sim->arenas));
    memset(sim->arena_of, 0xff, sizeof(sim->arena_of));
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        if (!old[i].is_used)
            continue;
        sim_expect(sim, !sim->arenas[new_index[i]].is_used, "two arenas are one");
        sim->arenas[new_index[i]] = old[i];
        arena_index(sim, new_index[i]);
    }
}

void device_finish(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        free(sim->arenas[i].is_committed);
        free(sim->arenas[i].rows);
        free(sim->arenas[i].slots);
        free(sim->arenas[i].records);
        free(sim->arenas[i].survival);
    }
}

static void granule_set_rows(struct sim_arena *arena, uint32_t granule, uint64_t word)
{
    size_t per_granule = (size_t)arena->slots_per_granule * arena->rows_per_slot;
    uint64_t *rows = arena->rows + granule * per_granule + arena->rows_per_slot;

    for (size_t i = 0; i < per_granule; i++)
        rows[i] = word;
}

static void check_slots(struct sim *sim, enum pool_tier tier)
{
    uint64_t slots = 0, most = tier == POOL_TIER_DEVICE ? sim->config.max_blocks
                                                        : sim->config.tiers[tier].max_slots;

    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        if (sim->arenas[i].is_used && sim->arenas[i].tier == tier)
            slots += (uint64_t)sim->arenas[i].num_granules * sim->arenas[i].slots_per_granule;
    sim_expect(sim, slots <= most, "D2: tier %u has %lu slots of %lu", tier, slots, most);
}

void device_count(struct sim *sim, const struct sim_arena *arena, int sign)
{
    uint32_t parts[POOL_MAX_DEVICES], num_parts = device_parts(sim, arena, parts);

    for (uint32_t i = 0; i < num_parts; i++) {
        sim->committed_pages[parts[i]] += (uint64_t)(int64_t)sign * arena->pages;
        sim_expect(sim, sim->committed_pages[parts[i]] <= part_budget(sim, parts[i]),
                   "D2: device %u has %lu pages committed", parts[i],
                   sim->committed_pages[parts[i]]);
    }
    check_slots(sim, arena->tier);
}

void device_commit(struct sim *sim, uint32_t index, uint32_t granule)
{
    sim_expect(sim, index < SIM_MAX_ARENAS, "commit in arena %u", index);
    if (!sim->arenas[index].is_used)
        arena_init(sim, index);

    struct sim_arena *arena = &sim->arenas[index];
    sim_trace(sim, "  commit %u:%u\n", index, granule);
    sim_expect(sim, granule < arena->max_granules, "granule %u:%u out of range", index, granule);
    sim_expect(sim, !arena->is_committed[granule], "granule %u:%u has memory", index, granule);

    survival_end(sim, index, granule);
    arena->is_committed[granule] = true;
    arena->num_granules++;
    device_count(sim, arena, 1);
    granule_set_rows(arena, granule, 0);
}

void device_decommit(struct sim *sim, uint32_t index, uint32_t granule)
{
    sim_expect(sim, index < SIM_MAX_ARENAS && sim->arenas[index].is_used, "decommit in %u", index);

    struct sim_arena *arena = &sim->arenas[index];
    sim_trace(sim, "  decommit %u:%u\n", index, granule);
    sim_expect(sim, granule < arena->max_granules && arena->is_committed[granule],
               "granule %u:%u has no memory", index, granule);
    for (uint32_t i = 1; i <= arena->slots_per_granule; i++) {
        struct sim_slot *slot = &arena->slots[granule * arena->slots_per_granule + i];
        sim_expect(sim, !slot->num_reading && !slot->num_writing,
                   "D3: granule %u:%u leaves under a copy", index, granule);
        sim_expect(sim, !slot->is_published, "granule %u:%u leaves with a key", index, granule);
        slot->is_poisoned = false;
        slot->was_free = true;
    }
    survival_end(sim, index, granule);
    granule_set_rows(arena, granule, SIM_POISON);
    arena->is_committed[granule] = false;
    arena->num_granules--;
    device_count(sim, arena, -1);
}

void device_count_cached(const struct sim *sim, uint32_t index, uint64_t *pages)
{
    const struct sim_arena *arena = &sim->arenas[index];
    uint32_t parts[POOL_MAX_DEVICES], num_parts = device_parts(sim, arena, parts);

    for (uint32_t granule = 0; granule < arena->max_granules; granule++) {
        bool is_cached = false;
        for (uint32_t i = 1; i <= arena->slots_per_granule; i++)
            is_cached |= arena->slots[granule * arena->slots_per_granule + i].is_published;
        for (uint32_t i = 0; is_cached && i < num_parts; i++)
            pages[parts[i]] += arena->pages;
    }
}

struct sim_slot *device_slot(struct sim *sim, uint32_t index, uint32_t slot)
{
    sim_expect(sim, index < SIM_MAX_ARENAS && sim->arenas[index].is_used && slot > 0,
               "slot %u of arena %u", slot, index);

    struct sim_arena *arena = &sim->arenas[index];
    uint32_t granule = (slot - 1) / arena->slots_per_granule;
    sim_expect(sim, granule < arena->max_granules && arena->is_committed[granule],
               "D1: slot %u:%u has no memory", index, slot);
    return &arena->slots[slot];
}

/* ---- rows ----------------------------------------------------------------------------------- */

enum { EPOCHS = 16 }; /* a label is a payer, or 0, and an epoch times this */

uint32_t device_label(const struct sim *sim, uint32_t payer, uint32_t model)
{
    return (sim->payers[payer].is_domain ? 0 : payer + 1) + EPOCHS * sim->epochs[payer][model];
}

uint64_t device_word(uint64_t hash, uint32_t layer, uint32_t rank, uint32_t label)
{
    return hash ^ ((layer + 16 * rank + 256 * label + 1) * 0x9e3779b97f4a7c15ULL);
}

static uint64_t *row_at(struct sim *sim, const struct sim_row *row, uint32_t rank)
{
    struct sim_arena *arena = &sim->arenas[row->arena];
    const struct pool_model_shape *shape = arena_shape(sim, arena);
    uint32_t layer = row->layer / shape->num_groups;

    return arena->rows + (size_t)row->slot * arena->rows_per_slot +
           (size_t)(rank * arena->num_layers + layer) * shape->block_tokens + row->token;
}

void device_write(struct sim *sim, const struct sim_row *row)
{
    struct sim_slot *slot = device_slot(sim, row->arena, row->slot);
    uint32_t num_ranks = sim->arenas[row->arena].num_ranks;

    sim_expect(sim, !slot->num_writing, "D3: write into %u:%u, which is being copied to",
               row->arena, row->slot);
    for (uint32_t rank = 0; rank < num_ranks; rank++) {
        uint64_t word = device_word(row->hash, row->layer, rank, row->label);
        uint64_t *at = row_at(sim, row, rank);
        sim_expect(sim, !slot->is_published || *at == word, "D4: write into published %u:%u",
                   row->arena, row->slot);
        *at = word;
    }
    slot->is_poisoned = false;
}

/* Behind a shared tail that was copied, words of a shared domain of any epoch are right too. */
static bool is_of_copied_tail(const struct sim *sim, const struct sim_row *row, uint32_t rank,
                              uint64_t word)
{
    for (uint32_t epoch = 0; row->label % EPOCHS != 0 && epoch <= sim->last_epoch; epoch++)
        if (word == device_word(row->hash, row->layer, rank, EPOCHS * epoch))
            return true;
    return false;
}

void device_read(struct sim *sim, const struct sim_row *row)
{
    struct sim_slot *slot = device_slot(sim, row->arena, row->slot);
    uint32_t num_ranks = sim->arenas[row->arena].num_ranks;

    sim_expect(sim, !slot->num_writing, "D3: %u:%u is read, and is being copied to", row->arena,
               row->slot);
    for (uint32_t rank = 0; rank < num_ranks; rank++) {
        uint64_t word = *row_at(sim, row, rank);
        if (word == device_word(row->hash, row->layer, rank, row->label) ||
            is_of_copied_tail(sim, row, rank, word) ||
            (row->may_be_scribble && word == SIM_SCRIBBLE))
            continue;
        sim_fail(sim, "D5: %u:%u layer %u token %u rank %u: a wrong row (%s)", row->arena,
                 row->slot, row->layer, row->token, rank,
                 word == SIM_POISON     ? "poison"
                 : word == SIM_SCRIBBLE ? "scribble"
                 : word == 0            ? "never written"
                                        : "of another prefix");
    }
}

void device_fill(struct sim *sim, uint32_t index, uint32_t number, uint64_t word)
{
    struct sim_slot *slot = device_slot(sim, index, number);
    struct sim_arena *arena = &sim->arenas[index];
    uint64_t *rows = arena->rows + (size_t)number * arena->rows_per_slot;

    for (uint32_t i = 0; i < arena->rows_per_slot; i++)
        rows[i] = word;
    slot->is_poisoned = word == SIM_POISON;
}
