/*
 * tests/sim/sim_stored.c - keys that can be found: from STORED to REMOVED, in turns, and in which
 * tiers they are meanwhile.
 */
#include "tests/sim/sim_tiers.h"

uint32_t sim_family(uint32_t payer, uint32_t model, uint32_t group)
{
    return (payer * SIM_MAX_MODELS + model) * SIM_MAX_GROUPS + group;
}

/* STORED and REMOVED name the device's arena, which may have no memory yet. */
static uint32_t family_of(struct sim *sim, uint32_t index)
{
    struct pool_arena_description about;
    uint32_t payer = 0, model = 0;

    if (sim->arenas[index].is_used)
        return sim->arenas[index].family;
    sim_expect(sim, pool_arena_describe(sim->pool, index, &about) == 0, "arena %u unknown", index);
    while (sim->payers[payer].id != about.domain)
        payer++;
    while (sim->models[model].id != about.model)
        model++;
    return sim_family(payer, model, about.group);
}

static uint32_t bucket_of(uint32_t family, const struct pool_key *key)
{
    uint64_t word;

    memcpy(&word, key->bytes + 8, sizeof(word));
    return (uint32_t)((word + family * 0x9e3779b1U) % SIM_BUCKETS);
}

void oracle_reset(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_BUCKETS; i++)
        sim->buckets[i] = SIM_NONE;
    memset(sim->stored, 0, sizeof(sim->stored));
    for (uint32_t i = 0; i < SIM_MAX_STORED; i++)
        sim->stored[i].next = i + 1 < SIM_MAX_STORED ? i + 1 : SIM_NONE;
    sim->first_free_stored = 0;
}

void oracle_init(struct sim *sim)
{
    oracle_reset(sim);
    memset(sim->arena_of, 0xff, sizeof(sim->arena_of));
}

static uint32_t stored_find(const struct sim *sim, uint32_t family, const struct pool_key *key)
{
    uint32_t at = sim->buckets[bucket_of(family, key)];

    while (at != SIM_NONE && (sim->stored[at].family != family ||
                              memcmp(&sim->stored[at].key, key, sizeof(*key)) != 0))
        at = sim->stored[at].next;
    return at;
}

struct sim_stored *oracle_entry(struct sim *sim, uint32_t family, const struct pool_key *key)
{
    uint32_t at = stored_find(sim, family, key);

    return at == SIM_NONE ? NULL : &sim->stored[at];
}

/* ---- STORED and REMOVED --------------------------------------------------------------------- */

/* The prefixes of its tokens, from what was told of it: they must end in the key's. */
static void stored_name(struct sim_stored *stored, const struct sim_effect *kept, uint32_t payer,
                        uint32_t model)
{
    const struct pool_effect *effect = &kept->effect;
    uint64_t end = oracle_key_hash(&kept->key, payer);

    for (uint64_t salt = 0; effect->tokens && salt < 2 && !stored->has_hashes; salt++) {
        uint64_t hash =
            effect->parent ? oracle_key_hash(&kept->parent, payer) : oracle_root(salt, model);
        for (uint32_t i = 0; i < effect->num_tokens; i++)
            stored->hashes[i] = hash = oracle_extend(hash, kept->ids[i]);
        stored->has_hashes = hash == end;
    }
}

void oracle_stored(struct sim *sim, const struct sim_effect *kept)
{
    uint32_t index = kept->effect.arena, number = kept->effect.slot;
    uint32_t at = sim->first_free_stored, family = family_of(sim, index);
    uint32_t payer = family_payer(family);
    uint32_t model = family_model(family);

    if (number != 0) /* 0: it is not on the device */
        (void)device_slot(sim, index, number);
    sim_trace(sim, "  stored %u:%u\n", index, number);
    sim_expect(sim, stored_find(sim, family, &kept->key) == SIM_NONE, "stored a key twice");
    sim_expect(sim, at != SIM_NONE, "more keys than blocks");

    struct sim_stored *stored = &sim->stored[at];
    uint32_t *bucket = &sim->buckets[bucket_of(family, &kept->key)];
    sim->first_free_stored = stored->next;
    *stored = (struct sim_stored){.key = kept->key,
                                  .serial = ++sim->next_serial,
                                  .family = family,
                                  .next = *bucket,
                                  .is_used = true};
    *bucket = at;
    stored_name(stored, kept, payer, model);
    if (sim->has_below && !sim->is_recovering)
        stored->is_unwanted = want_is_refused(sim, family, oracle_key_hash(&kept->key, payer));
    if (number != 0)
        place_check_rows(sim, index, number, stored);
    if (!sim->config.tells_places)
        place_set(sim, index, number, stored);
}

void oracle_removed(struct sim *sim, const struct sim_effect *kept)
{
    uint32_t index = kept->effect.arena, number = kept->effect.slot;
    uint32_t family = family_of(sim, index), at = stored_find(sim, family, &kept->key);

    sim_trace(sim, "  removed %u:%u\n", index, number);
    sim_expect(sim, at != SIM_NONE, "removed %u:%u, a key that is not stored", index, number);
    if (!sim->config.tells_places)
        place_unset(sim, index, number);

    struct sim_stored *stored = &sim->stored[at];
    uint32_t *link = &sim->buckets[bucket_of(family, &stored->key)];
    while (*link != at)
        link = &sim->stored[*link].next;
    *link = stored->next;
    *stored = (struct sim_stored){.next = sim->first_free_stored};
    sim->first_free_stored = at;
}

/* From now on nothing older is found; its REMOVED may come later. */
void oracle_cleared(struct sim *sim, uint32_t payer, uint32_t model)
{
    for (uint32_t i = 0; i < sim->num_payers; i++)
        for (uint32_t j = 0; j < sim->num_models; j++) {
            if ((payer != SIM_NONE && payer != i) || (model != SIM_NONE && model != j))
                continue;
            if (++sim->epochs[i][j] > sim->last_epoch)
                sim->last_epoch = sim->epochs[i][j];
            uint32_t first = sim_family(i, j, 0);
            for (uint32_t k = 0; k < SIM_MAX_STORED; k++)
                sim->stored[k].is_stale |= sim->stored[k].is_used &&
                                           sim->stored[k].family >= first &&
                                           sim->stored[k].family < first + SIM_MAX_GROUPS;
        }
    sim->troubles++;
}

/* ---- what can be found ---------------------------------------------------------------------- */

static const struct sim_stored *find(const struct sim *sim, uint32_t payer, uint32_t model,
                                     uint32_t group, const struct pool_key *key)
{
    uint32_t at = stored_find(sim, sim_family(payer, model, group), key);

    return at == SIM_NONE || sim->stored[at].is_stale ? NULL : &sim->stored[at];
}

bool oracle_is_stored(const struct sim *sim, uint32_t payer, uint32_t model, uint32_t group,
                      const struct pool_key *key)
{
    const struct sim_stored *stored = find(sim, payer, model, group, key);
    bool is_found = stored && stored->num_arriving > 0;

    for (uint32_t tier = 0; stored && tier < POOL_NUM_TIERS; tier++)
        is_found |= stored->slot[tier] && sim->tiers[tier].mode != POOL_TIER_OFF;
    return is_found;
}

uint32_t oracle_tier(const struct sim *sim, uint32_t payer, uint32_t model, uint32_t group,
                     const struct pool_key *key)
{
    const struct sim_stored *stored = find(sim, payer, model, group, key);
    uint32_t off = POOL_NUM_TIERS;

    for (uint32_t tier = 0; stored && tier < POOL_NUM_TIERS; tier++) {
        if (stored->slot[tier] && sim->tiers[tier].mode != POOL_TIER_OFF)
            return tier;
        if (stored->slot[tier] && off == POOL_NUM_TIERS)
            off = tier;
    }
    return off; /* it is on its way from there */
}

void oracle_check_stored(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MAX_STORED; i++) {
        const struct sim_stored *stored = &sim->stored[i];
        bool is_somewhere = stored->num_arriving + stored->num_leaving > 0;
        for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
            is_somewhere |= stored->slot[tier] != 0;
        sim_expect(sim, !stored->is_used || stored->is_stale || is_somewhere,
                   "a key is stored, and in no tier");
    }
}
