/*
 * tests/sim/sim_oracle.c - what must be true: keys, matches, sequences and their rows.
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

/* ---- matches -------------------------------------------------------------------------------- */

/* The first block of a group that a hit of @length blocks needs. */
static uint32_t first_needed(const struct pool_model_shape *shape, uint32_t group, uint32_t length)
{
    uint32_t window = shape->groups[group].window, end = length * shape->block_tokens;

    return window && end > window - 1 ? (end - (window - 1)) / shape->block_tokens : 0;
}

/* Block @position of a prompt is this one in a group, if the first @num_shared are shared. */
static const struct pool_key *block_key(const struct sim_prompt *prompt, uint32_t position,
                                        uint32_t num_shared, uint32_t *out_payer)
{
    bool is_shared = position < num_shared;

    *out_payer = is_shared ? prompt->shared : prompt->domain;
    return is_shared ? &prompt->shared_keys[position] : &prompt->keys[position];
}

/* Whether all groups have what a hit of @length blocks needs, the first @num_shared from shared. */
static bool is_match(const struct sim *sim, const struct sim_prompt *prompt, uint32_t length,
                     uint32_t num_shared)
{
    const struct pool_model_shape *shape = sim_shape(sim, prompt->model);
    uint32_t payer;

    for (uint32_t group = 0; group < shape->num_groups; group++)
        for (uint32_t at = first_needed(shape, group, length); at < length; at++) {
            const struct pool_key *key = block_key(prompt, at, num_shared, &payer);
            if (!oracle_is_stored(sim, payer, prompt->model, group, key))
                return false;
        }
    return true;
}

/* Where the matched blocks are: a position is where the furthest of its blocks is. */
static void match_count_tiers(const struct sim *sim, const struct sim_prompt *prompt,
                              struct sim_match *match)
{
    const struct pool_model_shape *shape = sim_shape(sim, prompt->model);
    uint32_t length = match->tokens / shape->block_tokens, payer;

    for (uint32_t at = 0; at < length; at++) {
        uint32_t furthest = POOL_TIER_DEVICE;
        for (uint32_t group = 0; group < shape->num_groups; group++) {
            const struct pool_key *key = block_key(prompt, at, match->num_shared, &payer);
            uint32_t tier = at < first_needed(shape, group, length)
                                ? POOL_TIER_DEVICE
                                : oracle_tier(sim, payer, prompt->model, group, key);
            furthest = tier > furthest ? tier : furthest;
        }
        sim_expect(sim, furthest < POOL_NUM_TIERS, "a block is on its way from nowhere");
        match->hits[furthest] += shape->block_tokens;
        if (furthest != POOL_TIER_DEVICE)
            match->below += shape->block_tokens;
        else if (match->below == 0)
            match->present += shape->block_tokens;
    }
}

/* Such shared blocks as are below the device could never come up. */
static bool is_shared_over_limit(const struct sim *sim, const struct sim_prompt *prompt,
                                 const struct sim_match *match)
{
    const struct pool_model_shape *shape = sim_shape(sim, prompt->model);
    uint32_t length = match->tokens / shape->block_tokens, payer;
    uint64_t pages = 0;
    bool is_below = false;

    for (uint32_t group = 0; sim->has_below && group < shape->num_groups; group++) {
        uint32_t count = 0;
        for (uint32_t at = first_needed(shape, group, length); at < match->num_shared; at++) {
            const struct pool_key *key = block_key(prompt, at, match->num_shared, &payer);
            is_below |= oracle_tier(sim, payer, prompt->model, group, key) != POOL_TIER_DEVICE;
            count++;
        }
        pages += (uint64_t)(count + shape->groups[group].slots - 1) / shape->groups[group].slots *
                 shape->groups[group].pages;
    }
    return is_below && pages > sim->payers[prompt->shared].quota.limit;
}

static struct sim_match match_with(const struct sim *sim, const struct sim_prompt *prompt,
                                   bool is_shared)
{
    uint32_t block_tokens = sim_shape(sim, prompt->model)->block_tokens;
    uint32_t count = (uint32_t)prompt->prompt.tokens.count;
    uint32_t most =
        prompt->prompt.is_raw ? count / block_tokens : (count ? (count - 1) / block_tokens : 0);
    uint32_t num_shared = 0, length;
    struct sim_match match = {0};

    if (is_shared)
        for (length = most; length > 0 && num_shared == 0; length--)
            if (is_match(sim, prompt, length, length))
                num_shared = length;
    for (length = most; length > num_shared; length--)
        if (is_match(sim, prompt, length, num_shared))
            break;
    match.tokens = length * block_tokens;
    match.num_shared = num_shared;
    return match;
}

struct sim_match oracle_match(const struct sim *sim, const struct sim_prompt *prompt)
{
    struct sim_match match = match_with(sim, prompt, prompt->shared != SIM_NONE);

    if (match.num_shared > 0 && is_shared_over_limit(sim, prompt, &match))
        match = match_with(sim, prompt, false);
    match_count_tiers(sim, prompt, &match);
    return match;
}

void oracle_count_hits(struct sim *sim, const uint32_t *hits)
{
    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
        sim->tiers[tier].hit_tokens += hits[tier];
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
    if (sequence->is_promoting)
        return; /* nobody knows yet what it will be */
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
