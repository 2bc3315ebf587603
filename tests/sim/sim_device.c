/*
 * tests/sim/sim_device.c - simulated devices: granules, rows of words, copies that take their time.
 *
 * What a device may see, each checked where it happens:
 *  D1  Memory is touched only while its granule is committed, on every rank's device.
 *  D2  Committed granules never exceed a device's budget.
 *  D3  A slot that a copy writes is read or written by nobody else; one that a copy reads is not
 *      written by an append or another copy, and does not lose its memory. (The rows of an open
 * step behind its complete tokens may be: a copy of a fork then reads what its reader overwrites.)
 *  D4  A published row never changes.
 *  D5  Whoever reads a row finds the word of that prefix.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

static const struct pool_model_shape *arena_shape(const struct sim *sim,
                                                  const struct sim_arena *arena)
{
    for (uint32_t i = 0; i < sim->num_models; i++)
        if (sim->models[i].id == arena->model)
            return &sim->models[i].shape;
    sim_fail(sim, "arena of an unknown model %u", arena->model);
}

static uint32_t arena_max_granules(const struct sim *sim, const struct pool_model_shape *shape,
                                   uint32_t pages)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t rank = 0; rank < shape->num_ranks; rank++) {
        uint64_t budget = sim->config.devices[shape->ranks[rank]].pages;
        least = budget < least ? budget : least;
    }
    return (uint32_t)(least / pages);
}

static void arena_init(struct sim *sim, uint32_t index)
{
    struct sim_arena *arena = &sim->arenas[index];
    struct pool_arena_description about;

    sim_expect(sim, pool_arena_describe(sim->pool, index, &about) == 0, "arena %u unknown", index);
    *arena = (struct sim_arena){.is_used = true,
                                .domain = about.domain,
                                .model = about.model,
                                .group = about.group,
                                .slots_per_granule = about.slots_per_granule,
                                .pages = about.pages_per_granule};

    const struct pool_model_shape *shape = arena_shape(sim, arena);
    uint32_t group = about.group;
    sim_expect(sim, group < shape->num_groups, "arena %u: no group %u", index, group);
    sim_expect(sim, shape->groups[group].pages == arena->pages, "arena %u: pages", index);
    sim_expect(sim, shape->groups[group].slots == arena->slots_per_granule, "arena: slots");

    arena->num_layers = (shape->num_layers - group + shape->num_groups - 1) / shape->num_groups;
    arena->num_ranks = shape->num_ranks;
    arena->max_granules = arena_max_granules(sim, shape, arena->pages);
    arena->rows_per_slot = arena->num_ranks * arena->num_layers * shape->block_tokens;

    size_t num_slots = (size_t)arena->max_granules * arena->slots_per_granule + 1;
    arena->is_committed = calloc(arena->max_granules, sizeof(*arena->is_committed));
    arena->rows = malloc(num_slots * arena->rows_per_slot * sizeof(*arena->rows));
    arena->slots = calloc(num_slots, sizeof(*arena->slots));
    sim_expect(sim, arena->is_committed && arena->rows && arena->slots, "out of memory");

    for (uint32_t payer = 0; payer < sim->num_payers; payer++)
        for (uint32_t model = 0; model < sim->num_models; model++)
            if (sim->payers[payer].id == about.domain && sim->models[model].id == about.model)
                sim->arena_of[payer][model][group] = index;
}

void device_finish(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        free(sim->arenas[i].is_committed);
        free(sim->arenas[i].rows);
        free(sim->arenas[i].slots);
    }
}

static void granule_set_rows(struct sim_arena *arena, uint32_t granule, uint64_t word)
{
    size_t per_granule = (size_t)arena->slots_per_granule * arena->rows_per_slot;
    uint64_t *rows = arena->rows + granule * per_granule + arena->rows_per_slot;

    for (size_t i = 0; i < per_granule; i++)
        rows[i] = word;
}

/* Adds @sign times the granule's pages on each rank's device. */
static void granule_count(struct sim *sim, const struct sim_arena *arena, int sign)
{
    const struct pool_model_shape *shape = arena_shape(sim, arena);

    for (uint32_t rank = 0; rank < shape->num_ranks; rank++) {
        uint32_t device = shape->ranks[rank];
        sim->committed_pages[device] += (uint64_t)(int64_t)sign * arena->pages;
        sim_expect(sim, sim->committed_pages[device] <= sim->config.devices[device].pages,
                   "D2: device %u has %lu pages committed", device, sim->committed_pages[device]);
    }
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

    granule_count(sim, arena, 1);
    arena->is_committed[granule] = true;
    arena->num_granules++;
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
    granule_set_rows(arena, granule, SIM_POISON);
    arena->is_committed[granule] = false;
    arena->num_granules--;
    granule_count(sim, arena, -1);
}

void device_count_cached(const struct sim *sim, uint32_t index, uint64_t *pages)
{
    const struct sim_arena *arena = &sim->arenas[index];
    const struct pool_model_shape *shape = arena_shape(sim, arena);

    for (uint32_t granule = 0; granule < arena->max_granules; granule++) {
        bool is_cached = false;
        for (uint32_t i = 1; i <= arena->slots_per_granule; i++)
            is_cached |= arena->slots[granule * arena->slots_per_granule + i].is_published;
        for (uint32_t rank = 0; is_cached && rank < shape->num_ranks; rank++)
            pages[shape->ranks[rank]] += arena->pages;
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

/* ---- copies --------------------------------------------------------------------------------- */

static uint32_t stride_choose(struct sim *sim, uint32_t num_rows)
{
    static const uint32_t primes[] = {1, 7, 11, 13, 17, 19};
    uint32_t stride = primes[random_below(&sim->random, ARRAY_SIZE(primes))];

    return num_rows % stride == 0 ? 1 : stride; /* so that every row comes once */
}

void device_copy(struct sim *sim, const struct pool_effect *effect)
{
    uint32_t index = 0;

    while (index < SIM_MAX_COPIES && sim->copies[index].is_used)
        index++;
    sim_expect(sim, index < SIM_MAX_COPIES, "more copies than max_transfers");
    for (uint32_t i = 0; i < SIM_MAX_COPIES; i++)
        sim_expect(sim, !sim->copies[i].is_used || sim->copies[i].transfer != effect->transfer,
                   "transfer %lu is under way", effect->transfer);

    struct sim_slot *from = device_slot(sim, effect->from_arena, effect->from_slot);
    struct sim_slot *to = device_slot(sim, effect->arena, effect->slot);
    uint32_t num_rows = sim->arenas[effect->arena].rows_per_slot;
    sim_trace(sim, "  copy %lu: %u:%u -> %u:%u\n", effect->transfer, effect->from_arena,
              effect->from_slot, effect->arena, effect->slot);
    sim_expect(sim, num_rows == sim->arenas[effect->from_arena].rows_per_slot, "copy: sizes");
    sim_expect(sim, !to->is_published && !to->num_reading && !to->num_writing && from != to,
               "D3: copy to %u:%u, which is in use", effect->arena, effect->slot);
    sim_expect(sim, !from->num_writing, "D3: copy from %u:%u, which is being copied to",
               effect->from_arena, effect->from_slot);

    from->num_reading++;
    to->num_writing++;
    to->is_poisoned = false;
    sim->num_copies++;
    sim->copies[index] = (struct sim_copy){.is_used = true,
                                           .transfer = effect->transfer,
                                           .from_arena = effect->from_arena,
                                           .from_slot = effect->from_slot,
                                           .arena = effect->arena,
                                           .slot = effect->slot,
                                           .first = random_below(&sim->random, num_rows),
                                           .stride = stride_choose(sim, num_rows)};
}

void copy_proceed(struct sim *sim, struct sim_copy *copy, uint32_t num_rows)
{
    struct sim_arena *from = &sim->arenas[copy->from_arena], *to = &sim->arenas[copy->arena];
    uint32_t all = to->rows_per_slot;

    (void)device_slot(sim, copy->from_arena, copy->from_slot);
    (void)device_slot(sim, copy->arena, copy->slot);
    sim->is_idle = copy->num_done == all;
    for (; num_rows && copy->num_done < all; num_rows--, copy->num_done++) {
        uint32_t row = (copy->first + copy->num_done * copy->stride) % all;
        to->rows[(size_t)copy->slot * all + row] = from->rows[(size_t)copy->from_slot * all + row];
    }
}

void copy_end(struct sim *sim, struct sim_copy *copy, int error)
{
    struct sim_copy ended = *copy;

    if (error)
        device_fill(sim, copy->arena, copy->slot, SIM_POISON);
    else
        copy_proceed(sim, copy, UINT32_MAX);
    device_slot(sim, copy->from_arena, copy->from_slot)->num_reading--;
    device_slot(sim, copy->arena, copy->slot)->num_writing--;
    copy->is_used = false;
    sim->num_copies--;
    sim->ended_transfer = ended.transfer;

    sim_trace(sim, "transfer_done %lu, %d\n", ended.transfer, error);
    int answer = pool_transfer_done(sim->pool, ended.transfer, error);
    sim_expect(sim, answer == 0, "transfer_done %lu: %d", ended.transfer, answer);
    sim_settle(sim);
}
