/*
 * tests/sim/sim_places.c - which slot has which published block, in each tier, and the record
 * that its medium keeps of it.
 */
#include "tests/sim/sim_tiers.h"

struct sim_record *record_at(struct sim *sim, uint32_t arena, uint32_t slot)
{
    (void)device_slot(sim, arena, slot);
    return sim->arenas[arena].records ? &sim->arenas[arena].records[slot] : NULL;
}

uint64_t rows_sum(const struct sim *sim, uint32_t index, uint32_t slot)
{
    const struct sim_arena *arena = &sim->arenas[index];
    const uint64_t *rows = arena->rows + (size_t)slot * arena->rows_per_slot;
    uint64_t sum = slot ? 1 : 0;

    for (uint32_t i = 0; i < arena->rows_per_slot; i++)
        sum = mix64(sum * 3 + rows[i]);
    return sum;
}

void rows_spoil(struct sim *sim, uint32_t index, uint32_t slot)
{
    struct sim_arena *arena = &sim->arenas[index];
    uint32_t row = random_below(&sim->random, arena->rows_per_slot);

    (void)device_slot(sim, index, slot);
    arena->rows[(size_t)slot * arena->rows_per_slot + row] ^= UINT64_C(1)
                                                              << random_below(&sim->random, 64);
}

void place_check_rows(struct sim *sim, uint32_t index, uint32_t slot,
                      const struct sim_stored *stored)
{
    const struct sim_arena *arena = &sim->arenas[index];
    uint32_t payer = family_payer(arena->family), model = family_model(arena->family);
    const struct pool_model_shape *shape = sim_shape(sim, model);
    uint32_t last = shape->block_tokens - 1;
    for (uint32_t token = stored->has_hashes ? 0 : last; token <= last; token++) {
        struct sim_row row = {.arena = index,
                              .slot = slot,
                              .token = token,
                              .hash = stored->has_hashes ? stored->hashes[token]
                                                         : oracle_key_hash(&stored->key, payer),
                              .label = device_label(sim, payer, model)};
        for (row.layer = arena->group; row.layer < shape->num_layers;
             row.layer += shape->num_groups)
            device_read(sim, &row);
    }
}

void place_set(struct sim *sim, uint32_t index, uint32_t number, struct sim_stored *stored)
{
    struct sim_slot *slot = device_slot(sim, index, number);
    enum pool_tier tier = sim->arenas[index].tier;

    sim_expect(sim, !slot->is_published, "%u:%u is present twice", index, number);
    sim_expect(sim, !slot->num_writing, "%u:%u is present, and being copied to", index, number);
    sim_expect(sim, stored->slot[tier] == 0, "a key is twice in tier %u", tier);
    if (tier == POOL_TIER_DEVICE)
        place_check_rows(sim, index, number, stored);
    stored->slot[tier] = number;
    slot->is_published = true;
    slot->key = stored->key;
}

void place_unset(struct sim *sim, uint32_t index, uint32_t number)
{
    struct sim_slot *slot = device_slot(sim, index, number);
    const struct sim_arena *arena = &sim->arenas[index];

    sim_expect(sim, slot->is_published, "%u:%u goes, and has no key", index, number);
    struct sim_stored *stored = oracle_entry(sim, arena->family, &slot->key);
    if (stored && stored->slot[arena->tier] == number) /* else its key was removed before */
        stored->slot[arena->tier] = 0;
    slot->is_published = false;
}

void record_set(struct sim *sim, struct sim_record *record, const struct sim_effect *kept,
                const struct sim_stored *stored)
{
    const struct pool_effect *effect = &kept->effect;
    const struct sim_arena *arena = &sim->arenas[effect->arena];
    uint32_t payer = family_payer(arena->family);
    uint32_t model = family_model(arena->family);
    uint64_t sum = record->sum;

    *record = (struct sim_record){.generation = effect->generation,
                                  .epoch = sim->epochs[payer][model],
                                  .num_form = effect->num_form,
                                  .has_parent = effect->parent != NULL,
                                  .key = kept->key,
                                  .parent = kept->parent,
                                  .has_hashes = stored->has_hashes,
                                  .is_unstorable = effect->is_unstorable,
                                  .is_generated = effect->is_generated,
                                  .sum = sum};
    sim_expect(sim, effect->num_form <= SIM_MAX_BLOCK_TOKENS, "a form of %u words",
               effect->num_form);
    memcpy(record->form, kept->ids, effect->num_form * sizeof(*record->form));
    memcpy(record->hashes, stored->hashes, sizeof(record->hashes));
}

void oracle_present(struct sim *sim, const struct sim_effect *kept)
{
    const struct pool_effect *effect = &kept->effect;
    struct sim_record *record = record_at(sim, effect->arena, effect->slot);
    const struct sim_arena *arena = &sim->arenas[effect->arena];
    struct sim_stored *stored = oracle_entry(sim, arena->family, &kept->key);

    sim_trace(sim, "  present %u:%u generation %u\n", effect->arena, effect->slot,
              effect->generation);
    sim_expect(sim, sim->config.tells_places, "PRESENT, which nobody asked for");
    sim_expect(sim, stored && !stored->is_stale, "PRESENT of a key that is not stored");
    place_set(sim, effect->arena, effect->slot, stored);
    sim_expect(sim, arena->tier == POOL_TIER_DEVICE || record->is_written,
               "%u:%u is present, and its copy failed", effect->arena, effect->slot);
    sim_expect(sim, arena->tier == POOL_TIER_DEVICE || record->generation == effect->generation,
               "a copy was told another generation than PRESENT");
    sim_expect(sim, effect->is_unstorable || !stored->is_unwanted,
               "%u:%u may be stored below, and its publisher wants it nowhere", effect->arena,
               effect->slot);
    record_set(sim, record, kept, stored);
    if (arena->tier == POOL_TIER_DEVICE)
        record->sum = rows_sum(sim, effect->arena, effect->slot);
    record->is_there = true;
}

void oracle_gone(struct sim *sim, uint32_t arena, uint32_t slot)
{
    struct sim_record *record = record_at(sim, arena, slot);

    sim_trace(sim, "  gone %u:%u\n", arena, slot);
    sim_expect(sim, sim->config.tells_places, "GONE, which nobody asked for");
    if (!device_slot(sim, arena, slot)->is_published && sim->last_epoch > 0)
        return; /* it came up after a clear: nobody was told */
    place_unset(sim, arena, slot);
    sim_expect(sim, record->is_there, "GONE of %u:%u, which has no record", arena, slot);
    record->is_there = false;
    record->is_stale = sim->arenas[arena].tier == POOL_TIER_DISK;
}
