/*
 * tests/sim/sim_oracle.c - what must be true: keys that can be found, matches, sequences and their
 * rows.
 */
#include "tests/sim/sim.h"

/* ---- prefixes and keys ---------------------------------------------------------------------- */

uint64_t oracle_root(uint64_t salt, uint32_t model)
{
    return mix64(mix64(salt + 0x1234567) + model + 1);
}

uint64_t oracle_extend(uint64_t hash, uint32_t token)
{
    return mix64(hash * 3 + token + 1);
}

/* The domain is in the key; the prefix can be had back from it. */
struct pool_key oracle_key(uint32_t payer, uint64_t hash)
{
    uint64_t words[4] = {hash ^ mix64(payer + 77), mix64(hash + payer), mix64(hash * 5 + payer),
                         mix64(hash * 7 + payer)};
    struct pool_key key;

    memcpy(key.bytes, words, sizeof(key.bytes));
    return key;
}

uint64_t oracle_key_hash(const struct pool_key *key, uint32_t payer)
{
    uint64_t word;

    memcpy(&word, key->bytes, sizeof(word));
    return word ^ mix64(payer + 77);
}

/* ---- keys that can be found ----------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t arena, const struct pool_key *key)
{
    uint64_t word;

    memcpy(&word, key->bytes + 8, sizeof(word));
    return (uint32_t)((word + arena * 0x9e3779b1U) % SIM_BUCKETS);
}

void oracle_init(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_BUCKETS; i++)
        sim->buckets[i] = SIM_NONE;
    for (uint32_t i = 0; i < SIM_MAX_STORED; i++)
        sim->stored[i].next = i + 1 < SIM_MAX_STORED ? i + 1 : SIM_NONE;
    sim->first_free_stored = 0;
    memset(sim->arena_of, 0xff, sizeof(sim->arena_of));
}

static uint32_t stored_find(const struct sim *sim, uint32_t arena, const struct pool_key *key)
{
    uint32_t at = sim->buckets[bucket_of(arena, key)];

    while (at != SIM_NONE && (sim->stored[at].arena != arena || sim->stored[at].is_stale ||
                              memcmp(&sim->stored[at].key, key, sizeof(*key)) != 0))
        at = sim->stored[at].next;
    return at;
}

static uint32_t payer_of(const struct sim *sim, pool_payer id)
{
    for (uint32_t i = 0; i < sim->num_payers; i++)
        if (sim->payers[i].id == id)
            return i;
    sim_fail(sim, "no payer %u", id);
}

static uint32_t model_of(const struct sim *sim, pool_model id)
{
    for (uint32_t i = 0; i < sim->num_models; i++)
        if (sim->models[i].id == id)
            return i;
    sim_fail(sim, "no model %u", id);
}

/* A key is given to complete blocks only: the last row of each layer must be of that prefix. */
static void stored_check_rows(struct sim *sim, const struct sim_effect *effect)
{
    const struct sim_arena *arena = &sim->arenas[effect->effect.arena];
    uint32_t payer = payer_of(sim, arena->domain), model = model_of(sim, arena->model);
    const struct pool_model_shape *shape = sim_shape(sim, model);

    for (uint32_t layer = arena->group; layer < shape->num_layers; layer += shape->num_groups) {
        struct sim_row row = {.arena = effect->effect.arena,
                              .slot = effect->effect.slot,
                              .layer = layer,
                              .token = shape->block_tokens - 1,
                              .hash = oracle_key_hash(&effect->key, payer),
                              .label = device_label(sim, payer, model)};
        device_read(sim, &row);
    }
}

void oracle_stored(struct sim *sim, const struct sim_effect *effect)
{
    uint32_t arena = effect->effect.arena, number = effect->effect.slot;
    struct sim_slot *slot = device_slot(sim, arena, number);
    uint32_t at = sim->first_free_stored;

    sim_trace(sim, "  stored %u:%u\n", arena, number);
    sim_expect(sim, !slot->is_published, "stored %u:%u twice", arena, number);
    sim_expect(sim, stored_find(sim, arena, &effect->key) == SIM_NONE, "stored a key twice");
    sim_expect(sim, at != SIM_NONE, "more keys than blocks");
    stored_check_rows(sim, effect);

    uint32_t *bucket = &sim->buckets[bucket_of(arena, &effect->key)];
    sim->first_free_stored = sim->stored[at].next;
    sim->stored[at] = (struct sim_stored){
        .key = effect->key, .arena = arena, .slot = number, .next = *bucket, .is_used = true};
    *bucket = at;
    slot->is_published = true;
    slot->stored = at;
}

void oracle_removed(struct sim *sim, const struct sim_effect *effect)
{
    uint32_t arena = effect->effect.arena, number = effect->effect.slot;
    struct sim_slot *slot = device_slot(sim, arena, number);

    sim_trace(sim, "  removed %u:%u\n", arena, number);
    sim_expect(sim, slot->is_published, "removed %u:%u, which has no key", arena, number);

    struct sim_stored *stored = &sim->stored[slot->stored];
    uint32_t *link = &sim->buckets[bucket_of(arena, &stored->key)];
    sim_expect(sim, memcmp(&stored->key, &effect->key, sizeof(effect->key)) == 0,
               "removed %u:%u with another key", arena, number);
    while (*link != slot->stored)
        link = &sim->stored[*link].next;
    *link = stored->next;
    stored->is_used = false;
    stored->next = sim->first_free_stored;
    sim->first_free_stored = slot->stored;
    slot->is_published = false;
}

/* From now on nothing older is found; its REMOVED may come later. */
void oracle_cleared(struct sim *sim, uint32_t payer, uint32_t model)
{
    for (uint32_t i = 0; i < SIM_MAX_STORED; i++) {
        struct sim_stored *stored = &sim->stored[i];
        if (!stored->is_used)
            continue;
        const struct sim_arena *arena = &sim->arenas[stored->arena];
        stored->is_stale |= (payer == SIM_NONE || arena->domain == sim->payers[payer].id) &&
                            (model == SIM_NONE || arena->model == sim->models[model].id);
    }
    for (uint32_t i = 0; i < sim->num_payers; i++)
        for (uint32_t j = 0; j < sim->num_models; j++)
            if ((payer == SIM_NONE || payer == i) && (model == SIM_NONE || model == j) &&
                ++sim->epochs[i][j] > sim->last_epoch)
                sim->last_epoch = sim->epochs[i][j];
}

/* ---- matches -------------------------------------------------------------------------------- */

bool oracle_is_stored(const struct sim *sim, uint32_t payer, uint32_t model, uint32_t group,
                      const struct pool_key *key)
{
    uint32_t arena = sim->arena_of[payer][model][group];

    return arena != SIM_NONE && stored_find(sim, arena, key) != SIM_NONE;
}

/* Whether all groups have what a hit of @length blocks needs, the first @num_shared from shared. */
static bool is_match(const struct sim *sim, const struct sim_prompt *prompt, uint32_t length,
                     uint32_t num_shared)
{
    const struct pool_model_shape *shape = sim_shape(sim, prompt->model);
    uint32_t end = length * shape->block_tokens;

    for (uint32_t group = 0; group < shape->num_groups; group++) {
        uint32_t window = shape->groups[group].window;
        uint32_t first =
            window && end > window - 1 ? (end - (window - 1)) / shape->block_tokens : 0;

        for (uint32_t position = first; position < length; position++) {
            bool is_shared = position < num_shared;
            const struct pool_key *keys = is_shared ? prompt->shared_keys : prompt->keys;
            if (!oracle_is_stored(sim, is_shared ? prompt->shared : prompt->domain, prompt->model,
                                  group, &keys[position]))
                return false;
        }
    }
    return true;
}

uint32_t oracle_match(const struct sim *sim, const struct sim_prompt *prompt)
{
    uint32_t block_tokens = sim_shape(sim, prompt->model)->block_tokens;
    uint32_t count = (uint32_t)prompt->prompt.tokens.count;
    uint32_t most =
        prompt->prompt.is_raw ? count / block_tokens : (count ? (count - 1) / block_tokens : 0);
    uint32_t num_shared = 0, length;

    if (prompt->shared != SIM_NONE)
        for (length = most; length > 0 && num_shared == 0; length--)
            if (is_match(sim, prompt, length, length))
                num_shared = length;
    for (length = most; length > num_shared; length--)
        if (is_match(sim, prompt, length, num_shared))
            break;
    return length * block_tokens;
}

bool oracle_has_filler(const struct sim *sim, const struct sim_fill *fill)
{
    uint32_t end = (fill->position + 1) * sim_shape(sim, fill->model)->block_tokens;

    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++) {
        const struct sim_sequence *sequence = &sim->sequences[i];
        if (sequence->is_used && !sequence->is_preempted && sequence->domain == fill->domain &&
            sequence->model == fill->model && sequence->length >= end &&
            sequence->hash[end - 1] == fill->hash && sequence->considered <= fill->last)
            return true;
    }
    return false;
}

void oracle_considered(const struct sim *sim, struct sim_sequence *sequence, uint32_t num_tokens)
{
    uint32_t full = num_tokens / sim_shape(sim, sequence->model)->block_tokens;

    if (full > sequence->considered)
        sequence->considered = full;
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* A tail that a copy fills cannot be read yet. */
static bool is_copying_tail(const struct sim *sim, const struct sim_sequence *sequence)
{
    return sequence->growth > 0 ||
           (sequence->step != SIM_NONE && sim->steps[sequence->step].state == SIM_STEP_COPYING);
}

static void check_rows(struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                       const struct pool_place *places)
{
    const struct pool_model_shape *shape = sim_shape(sim, sequence->model);
    uint32_t block_tokens = shape->block_tokens, end = sequence->num_complete;

    if (sequence->is_mapped && sequence->num_written < end)
        end = sequence->num_written;
    if (is_copying_tail(sim, sequence))
        end -= end % block_tokens;
    for (uint32_t token = 0; token < end; token++) {
        const struct pool_place *place = &places[token / block_tokens];
        if (place->slot == 0) {
            token += block_tokens - 1 - token % block_tokens;
            continue;
        }
        struct sim_row row = {.arena = sim_arena_of(sim, sequence, group, place->is_shared),
                              .slot = place->slot,
                              .token = token % block_tokens,
                              .hash = sequence->hash[token],
                              .label = place->is_shared ? sequence->shared_label : sequence->label};
        for (row.layer = group; row.layer < shape->num_layers; row.layer += shape->num_groups)
            device_read(sim, &row);
    }
}

/* Once in a table; and with another generation than before, if it was free in between. */
static void check_place(struct sim *sim, uint32_t arena, const struct pool_place *place)
{
    struct sim_slot *slot = device_slot(sim, arena, place->slot);

    sim_expect(sim, !slot->was_free || slot->generation != place->generation,
               "%u:%u was free, and has its old generation", arena, place->slot);
    sim_expect(sim, slot->mark != sim->mark, "%u:%u is twice in one table", arena, place->slot);
    slot->mark = sim->mark;
    slot->generation = place->generation;
    slot->was_free = false;
}

static void check_table(struct sim *sim, const struct sim_sequence *sequence, uint32_t group)
{
    const struct pool_model_shape *shape = sim_shape(sim, sequence->model);
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0, length = sequence->length, block_tokens = shape->block_tokens;
    uint32_t window = shape->groups[group].window;

    int err = pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count);
    sim_expect(sim, err == 0, "table: %d", err);
    if (sequence->is_preempted)
        length = 0;
    if (sequence->growth)
        length += sequence->growth;
    sim_expect(sim, count == (length + block_tokens - 1) / block_tokens,
               "session %u sequence %lu group %u: table of %u entries, length %u",
               sequence->session, sequence->name.id, group, count, length);
    if (length == 0)
        return;

    bool is_own = false;
    sim->mark++;
    for (uint32_t i = 0; i < count; i++) {
        bool may_be_gone = window && (i + 1) * block_tokens + window <= sequence->num_complete + 1;
        sim_expect(sim, places[i].slot || may_be_gone, "position %u is gone too early", i);
        sim_expect(sim, !places[i].slot || !is_own || !places[i].is_shared,
                   "position %u is shared after one that is not", i);
        is_own |= places[i].slot && !places[i].is_shared;
        if (places[i].slot)
            check_place(sim, sim_arena_of(sim, sequence, group, places[i].is_shared), &places[i]);
    }
    check_rows(sim, sequence, group, places);
}

void oracle_check_sequence(struct sim *sim, const struct sim_sequence *sequence)
{
    struct pool_sequence_description about;

    int err = pool_describe(sim->pool, sequence->name, &about);
    sim_expect(sim, err == 0, "describe: %d", err);
    sim_expect(sim, about.length == sequence->length + sequence->growth,
               "length %lu, should be %u + %u", about.length, sequence->length, sequence->growth);
    sim_expect(sim, sequence->is_preempted || about.num_complete == sequence->num_complete,
               "%lu complete tokens, should be %u", about.num_complete, sequence->num_complete);
    sim_expect(sim, about.is_preempted == sequence->is_preempted, "is_preempted");
    sim_expect(sim, about.is_mapped == sequence->is_mapped, "is_mapped");
    sim_expect(sim, about.tenant == sim->payers[sequence->payer].id, "tenant");
    sim_expect(sim, about.domain == sim->payers[sequence->domain].id, "domain");
    sim_expect(sim, about.model == sim->models[sequence->model].id, "model");
    for (uint32_t group = 0; group < sim_shape(sim, sequence->model)->num_groups; group++)
        check_table(sim, sequence, group);
}
