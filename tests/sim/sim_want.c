/*
 * tests/sim/sim_want.c - what sessions want to be kept below the device.
 *
 * Publishing cannot be seen from outside in all its order, so this errs to one side: a block may
 * be stored only if some session that ever had it wanted that (a filter of what was wanted, over
 * the run), and may not if all that had it when it was stored forbade it.
 */
#include "tests/sim/sim_tiers.h"

static uint32_t want_bit(uint32_t family, uint64_t hash)
{
    return (uint32_t)(mix64(hash + family * 0x9e3779b97f4a7c15ULL) % SIM_WANT_BITS);
}

bool want_is_noted(const struct sim *sim, uint32_t family, uint64_t hash)
{
    uint32_t bit = want_bit(family, hash);

    return sim->wanted[bit / 64] >> bit % 64 & 1;
}

static void note(struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                 uint64_t hash)
{
    const uint32_t payers[] = {sequence->domain, sequence->shared};

    for (uint32_t i = 0; i < ARRAY_SIZE(payers); i++) {
        if (payers[i] == SIM_NONE)
            continue;
        uint32_t bit = want_bit(sim_family(payers[i], sequence->model, group), hash);
        sim->wanted[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* The first position of a group that the shortest hit of so many prompt tokens needs. */
static uint32_t first_wanted(const struct pool_model_shape *shape, uint32_t group,
                             uint32_t num_prompt)
{
    uint32_t window = shape->groups[group].window, block_tokens = shape->block_tokens;
    uint32_t end = num_prompt ? (num_prompt - 1) / block_tokens * block_tokens : 0;

    return window && end > window - 1 ? (end - (window - 1)) / block_tokens : 0;
}

static uint32_t first_hit(const struct pool_model_shape *shape, uint32_t group,
                          uint32_t num_matched)
{
    return first_wanted(shape, group, num_matched + 1);
}

void want_note(struct sim *sim, const struct sim_sequence *sequence, uint32_t length)
{
    const struct pool_model_shape *shape = sim_shape(sim, sequence->model);
    enum pool_store store = sim->sessions[sequence->session].store;
    uint32_t end = length / shape->block_tokens;

    if (!sim->has_below || store == POOL_STORE_NONE)
        return;
    if (store == POOL_STORE_PROMPT && end > sequence->num_prompt / shape->block_tokens)
        end = sequence->num_prompt / shape->block_tokens;
    for (uint32_t group = 0; group < shape->num_groups; group++) {
        uint32_t first =
            store == POOL_STORE_PROMPT ? first_wanted(shape, group, sequence->num_prompt) : 0;
        for (uint32_t at = first; at < end; at++)
            note(sim, sequence, group, sequence->hash[(at + 1) * shape->block_tokens - 1]);
        /* What it hit was of use, wherever the window of its whole prompt is. */
        for (uint32_t at = first_hit(shape, group, sequence->num_matched);
             at < sequence->num_matched / shape->block_tokens; at++)
            note(sim, sequence, group, sequence->hash[(at + 1) * shape->block_tokens - 1]);
    }
}

void want_note_session(struct sim *sim, uint32_t session)
{
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++)
        if (sim->sequences[i].is_used &&
            (session == SIM_NONE || sim->sequences[i].session == session))
            want_note(sim, &sim->sequences[i], sim->sequences[i].length);
}

bool want_is_refused(const struct sim *sim, uint32_t family, uint64_t hash)
{
    uint32_t payer = family_payer(family);
    uint32_t model = family_model(family);
    uint32_t block_tokens = sim_shape(sim, model)->block_tokens, num_refusing = 0;

    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++) {
        const struct sim_sequence *sequence = &sim->sequences[i];
        if (!sequence->is_used || sequence->domain != payer || sequence->model != model)
            continue;
        uint32_t length = sequence->length + sequence->growth, end = block_tokens;
        while (end <= length && sequence->hash[end - 1] != hash)
            end += block_tokens;
        if (end > length)
            continue;
        if (sim->sessions[sequence->session].store != POOL_STORE_NONE)
            return false;
        num_refusing++;
    }
    return num_refusing > 0;
}

void want_check_store(struct sim *sim, const struct sim_copy *copy, const struct sim_stored *stored)
{
    const struct sim_arena *from = &sim->arenas[copy->from_arena];
    uint32_t payer = family_payer(from->family);
    uint64_t hash = oracle_key_hash(&stored->key, payer);

    sim_expect(sim, !stored->is_unwanted, "a block is stored that its publisher wants nowhere");
    sim_expect(sim,
               sim->config.store_when != POOL_STORE_EVICTED ||
                   sim->config.ahead_pages[copy->from_tier] > 0,
               "a block is stored, and nothing is to be");
    if (copy->from_tier != POOL_TIER_DEVICE)
        return; /* it was wanted when it came there */
    want_note_session(sim, SIM_NONE);
    sim_expect(sim, want_is_noted(sim, from->family, hash), "a block is stored that nobody wants");
}
