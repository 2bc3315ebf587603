/* tests/sim/sim_operator.c - events: sessions that come and vanish, operators, what devices do
 * meanwhile. */
#include "tests/sim/sim_tiers.h"

/* ---- sessions ------------------------------------------------------------------------------- */

static bool is_lingering(const struct sim *sim, uint32_t index)
{
    return sim->sessions[index].is_lingering;
}

static bool is_unused(const struct sim *sim, uint32_t index)
{
    return !sim->sessions[index].is_live && !sim->sessions[index].is_lingering;
}

void event_session_open(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, is_unused);

    if (index == SIM_NONE)
        return;
    struct sim_session *session = &sim->sessions[index];
    int answer = pool_session_open(sim->pool, &session->id);
    sim_trace(sim, "session_open %u: %d\n", index, answer);
    sim_settle(sim);
    expect_answer(sim, "session_open", answer, MAY(POOL_LIMIT));
    if (answer != 0)
        return;
    session->is_live = true;
    session->next_name = 1;
    session->is_manual_publish = random_chance(&sim->random, 3);
    answer = pool_session_set_manual_publish(sim->pool, session->id, session->is_manual_publish);
    sim_expect(sim, answer == 0, "set_manual_publish: %d", answer);
    if (sim->store_mix > POOL_STORE_ALL)
        session->store = random_below(&sim->random, POOL_STORE_ALL + 1);
    else
        session->store = sim->store_mix;
    if (session->store == POOL_STORE_PROMPT && random_chance(&sim->random, 2))
        return; /* as it is at first */
    answer = pool_session_set_store(sim->pool, session->id, session->store);
    sim_expect(sim, answer == 0, "set_store: %d", answer);
}

/* Its process is gone already. */
void event_session_end(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);

    if (index != SIM_NONE)
        engine_session_end(sim, index, false);
}

/* The connection is gone; the process still has its memory mapped. */
void event_session_vanish(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);

    if (index != SIM_NONE)
        engine_session_end(sim, index, true);
}

void event_session_detach(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, is_lingering);

    if (index == SIM_NONE)
        return;
    struct sim_session *session = &sim->sessions[index];
    int answer = pool_session_detach(sim->pool, session->id);
    sim_trace(sim, "session_detach %u: %d\n", index, answer);
    sim_expect(sim, answer == 0, "session_detach: %d", answer);
    session->is_lingering = false;
    session->num_lingering = 0;
    sim->has_slices = true;
    sim_settle(sim);
}

/* A process that is no session any more writes into what it had. */
void event_session_linger(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, is_lingering);

    if (index == SIM_NONE || sim->sessions[index].num_lingering == 0)
        return;
    const struct sim_session *session = &sim->sessions[index];
    uint32_t which = random_below(&sim->random, session->num_lingering);
    const uint32_t *at = session->lingering[which];
    sim_trace(sim, "session %u lingers on %u:%u\n", index, at[0], at[1]);
    sim_expect(sim, !device_slot(sim, at[0], at[1])->is_published,
               "%u:%u is published, and a process that is no session may write it", at[0], at[1]);
    device_fill(sim, at[0], at[1], SIM_SCRIBBLE);
}

void event_advance(struct sim *sim)
{
    sim->is_quiet = !sim->has_slices;
    bool is_more = pool_advance(sim->pool, random_below(&sim->random, 8));

    sim_trace(sim, "advance: %s\n", is_more ? "more" : "done");
    if (!is_more && sim->num_attends == 0 && sim->num_copies == 0)
        sim->has_slices = false;
    sim_settle(sim);
}

/* ---- devices -------------------------------------------------------------------------------- */

static bool is_copy(const struct sim *sim, uint32_t index)
{
    const struct sim_copy *copy = &sim->copies[index];

    return copy->is_used && !sim->tiers[copy->from_tier].is_stalled &&
           !sim->tiers[copy->tier].is_stalled;
}

void event_copy_part(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_COPIES, is_copy);

    if (index != SIM_NONE)
        copy_proceed(sim, &sim->copies[index], 1 + random_below(&sim->random, 8));
}

void event_copy_end(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_COPIES, is_copy);

    if (index != SIM_NONE)
        copy_end(sim, &sim->copies[index],
                 copy_draw_fault(sim, &sim->copies[index], sim->failures));
}

/* Completions of what has ended, or never was. */
static void stray_completions(struct sim *sim)
{
    int answer = pool_transfer_done(sim->pool, UINT64_MAX - 1, 0);

    sim_expect(sim, answer == POOL_NOT_FOUND, "done of no transfer: %d", answer);
    if (sim->ended_transfer) {
        answer = pool_transfer_done(sim->pool, sim->ended_transfer, 0);
        sim_expect(sim, answer == POOL_NOT_FOUND, "done of an ended transfer: %d", answer);
    }
    if (sim->ended_step) {
        answer = pool_step_attend(sim->pool, sim->ended_step, 0);
        sim_expect(sim, answer == POOL_NOT_FOUND, "attend of an ended step: %d", answer);
        answer = pool_step_attended(sim->pool, sim->ended_step, 0, 0);
        sim_expect(sim, answer == POOL_NOT_FOUND, "attended of an ended step: %d", answer);
        answer = pool_step_end(sim->pool, sim->ended_step, true, ++sim->next_cookie);
        sim_expect(sim, answer == POOL_NOT_FOUND, "end of an ended step: %d", answer);
    }
}

/* A domain that the tenant may not fill, and a tenant that does not exist. */
static void stray_prompts(struct sim *sim)
{
    struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    struct pool_name name = {0, 1000};
    struct sim_prompt prompt;
    struct pool_found found;

    engine_prompt(sim, &prompt);
    for (uint32_t i = 0; i < sim->num_payers; i++) {
        if (i == prompt.payer || (sim->payers[i].rights[prompt.payer] & POOL_MAY_FILL))
            continue;
        prompt.prompt.domain = sim->payers[i].id;
        int answer = pool_alloc(sim->pool, name, &prompt.prompt, &options, &found);
        sim_expect(sim, answer == POOL_NOT_FOUND, "alloc in a foreign domain: %d", answer);
        answer = pool_match(sim->pool, &prompt.prompt, &found);
        sim_expect(sim, answer == POOL_NOT_FOUND, "match in a foreign domain: %d", answer);
    }
    prompt.prompt.tenant = prompt.prompt.domain = SIM_MAX_PAYERS;
    int answer = pool_match(sim->pool, &prompt.prompt, &found);
    sim_expect(sim, answer == POOL_NOT_FOUND, "match of no tenant: %d", answer);
}

/* Whatever does not exist is NOT_FOUND, and has no effect. */
void event_stray(struct sim *sim)
{
    struct pool_name nobody = {random_below(&sim->random, 1000) + 1000, 1};
    uint32_t session = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);
    uint64_t before = sim_digest(sim);

    stray_completions(sim);
    stray_prompts(sim);
    restore_stray(sim);
    int answer = pool_fill(sim->pool, nobody);
    sim_expect(sim, answer == POOL_NOT_FOUND, "fill in no session: %d", answer);
    if (session != SIM_NONE) {
        nobody = (struct pool_name){sim->sessions[session].id, UINT64_MAX};
        answer = pool_release(sim->pool, nobody, ++sim->next_cookie);
        sim_expect(sim, answer == POOL_NOT_FOUND, "release of no sequence: %d", answer);
        answer = pool_session_detach(sim->pool, nobody.session);
        sim_expect(sim, answer == POOL_NOT_FOUND, "detach of a live session: %d", answer);
    }
    sim_expect(sim, sim->num_effects == 0 && sim_digest(sim) == before,
               "a stray call did something");
    sim->is_idle = false;
}

/* Poisons the free slots of an arena: whoever still reads one will see it. */
void event_free_slots(struct sim *sim)
{
    uint32_t index = random_below(&sim->random, SIM_MAX_ARENAS), slots[4096];

    for (uint32_t i = 0; i < SIM_MAX_ARENAS && !sim->arenas[index].is_used; i++)
        index = (index + 1) % SIM_MAX_ARENAS;
    if (!sim->arenas[index].is_used)
        return;
    size_t count = pool_arena_order(sim->pool, index, POOL_ORDER_FREE, slots, ARRAY_SIZE(slots));
    for (size_t i = 0; i < count && i < ARRAY_SIZE(slots); i++) {
        struct sim_slot *slot = device_slot(sim, index, slots[i]);
        sim_expect(sim, !slot->is_published && !slot->num_reading && !slot->num_writing,
                   "D3: %u:%u is free and in use", index, slots[i]);
        int answer = pool_place_verify(sim->pool, index, slots[i], slot->generation);
        sim_expect(sim, answer == POOL_STALE, "%u:%u is free, and verified: %d", index, slots[i],
                   answer);
        slot->was_free = true;
        if (!slot->is_poisoned)
            device_fill(sim, index, slots[i], SIM_POISON);
    }
}

/* ---- operators ------------------------------------------------------------------------------ */

void event_evict(struct sim *sim)
{
    bool is_all =
        sim->has_below && random_chance(&sim->random, 2); /* so that much comes up again */
    uint64_t count = random_below(&sim->random, is_all ? 200 : 6);
    uint64_t evicted = pool_evict(sim->pool, count);

    sim_trace(sim, "evict %lu: %lu\n", count, evicted);
    sim_expect(sim, evicted <= count, "evicted %lu, asked for %lu", evicted, count);
    sim_settle(sim);
}

/* What it waited for is found no more. */
static void check_cleared_waits(struct sim *sim, uint32_t payer, uint32_t model)
{
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++) {
        const struct sim_sequence *sequence = &sim->sequences[i];
        bool is_cleared =
            (payer == SIM_NONE || sequence->domain == payer || sequence->shared == payer) &&
            (model == SIM_NONE || sequence->model == model);
        sim_expect(sim, !sequence->is_used || !sequence->is_promoting || !is_cleared,
                   "an allocation waits for what was cleared");
    }
}

void event_clear(struct sim *sim)
{
    uint32_t payer = random_below(&sim->random, sim->num_payers);
    uint32_t model = random_below(&sim->random, sim->num_models);

    if (sim->has_below && !random_chance(&sim->random, 8))
        return; /* or little lives long enough to be stored, evicted, and wanted again */
    if (random_chance(&sim->random, 4))
        payer = SIM_NONE;
    if (random_chance(&sim->random, 3))
        model = SIM_NONE;
    int answer = pool_clear(sim->pool, payer == SIM_NONE ? POOL_NONE : sim->payers[payer].id,
                            model == SIM_NONE ? POOL_NONE : sim->models[model].id);
    sim_trace(sim, "clear %d %d: %d\n", (int)payer, (int)model, answer);
    sim_expect(sim, answer == 0, "clear: %d", answer);
    sim->is_clearing = true;
    sim_settle(sim);
    sim->is_clearing = false;
    oracle_cleared(sim, payer, model);
    check_cleared_waits(sim, payer, model);
    sim->has_slices = true;
}

void event_drain(struct sim *sim)
{
    sim->is_draining = !sim->is_draining && random_chance(&sim->random, 12);
    sim_trace(sim, "drain %d\n", sim->is_draining);
    pool_drain(sim->pool, sim->is_draining);
    sim_settle(sim);
}

void event_quota(struct sim *sim)
{
    uint32_t pages = (uint32_t)sim->config.devices[0].pages;
    struct pool_quota quota = {.guarantee = random_below(&sim->random, pages / 2),
                               .limit = random_chance(&sim->random, 2)
                                            ? POOL_UNLIMITED
                                            : random_below(&sim->random, pages) + 1,
                               .weight = random_below(&sim->random, 4)};
    uint32_t payer = random_below(&sim->random, sim->num_payers);

    int answer = pool_quota_set(sim->pool, sim->payers[payer].id, &quota);
    sim_trace(sim, "quota %u guarantee %lu limit %ld weight %lu: %d\n", payer, quota.guarantee,
              (long)quota.limit, quota.weight, answer);
    bool is_wrong = quota.weight == 0 || quota.guarantee > quota.limit;
    sim_expect(sim, answer == POOL_INVALID || (answer == 0 && !is_wrong), "quota_set: %d", answer);
    if (answer == 0)
        sim->payers[payer].quota = quota;
    sim_settle(sim);
}

void event_grant(struct sim *sim)
{
    if (sim->num_payers == sim->num_tenants)
        return;
    uint32_t domain =
        sim->num_tenants + random_below(&sim->random, sim->num_payers - sim->num_tenants);
    uint32_t tenant = random_below(&sim->random, sim->num_tenants);
    unsigned rights = random_chance(&sim->random, 4) ? random_below(&sim->random, 4)
                                                     : POOL_MAY_READ | POOL_MAY_FILL;

    int answer =
        pool_domain_grant(sim->pool, sim->payers[domain].id, sim->payers[tenant].id, rights);
    sim_trace(sim, "grant %u in %u: %u\n", tenant, domain, rights);
    sim_expect(sim, answer == 0, "domain_grant: %d", answer);
    sim->payers[domain].rights[tenant] = rights;
    sim_settle(sim);
}

void event_check(struct sim *sim)
{
    sim_check(sim);
}
