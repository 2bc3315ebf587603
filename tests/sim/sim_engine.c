/* tests/sim/sim_engine.c - what simulated engines say and write, and what they are told later. */
#include "tests/sim/sim_tiers.h"

const struct pool_model_shape *sim_shape(const struct sim *sim, uint32_t model)
{
    return &sim->models[model].shape;
}

uint32_t sim_arena_of(const struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                      bool is_shared)
{
    uint32_t payer = is_shared ? sequence->shared : sequence->domain;

    sim_expect(sim, payer != SIM_NONE, "a place is shared in a sequence that has no shared domain");
    uint32_t arena = sim->arena_of[POOL_TIER_DEVICE][payer][sequence->model][group];
    sim_expect(sim, arena != SIM_NONE, "a place in an arena without memory");
    return arena;
}

uint32_t sim_pick(struct sim *sim, uint32_t count, sim_filter *accept)
{
    uint32_t first = random_below(&sim->random, count);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = (first + i) % count;
        if (accept(sim, index))
            return index;
    }
    return SIM_NONE;
}

bool sim_is_sequence(const struct sim *sim, uint32_t index)
{
    return sim->sequences[index].is_used;
}

bool sim_is_session(const struct sim *sim, uint32_t index)
{
    return sim->sessions[index].is_live;
}

/* ---- prompts and tokens --------------------------------------------------------------------- */

/* Most prompts begin alike: one token in sim.heat is another one than usual. */
static uint32_t token_draw(struct sim *sim)
{
    return random_chance(&sim->random, sim->heat) ? 1 + random_below(&sim->random, 3) : 0;
}

static void prompt_draw_domains(struct sim *sim, struct sim_prompt *prompt)
{
    prompt->payer = prompt->domain = random_below(&sim->random, sim->num_tenants);
    prompt->shared = SIM_NONE;
    for (uint32_t i = sim->num_tenants; i < sim->num_payers; i++) {
        unsigned rights = sim->payers[i].rights[prompt->payer];
        if ((rights & POOL_MAY_FILL) && random_chance(&sim->random, 3))
            prompt->domain = i;
        else if ((rights & POOL_MAY_READ) && random_chance(&sim->random, 2))
            prompt->shared = i;
    }
    if (prompt->domain != prompt->payer)
        prompt->shared = SIM_NONE;
}

/* Tokens [@first, @first + @count), the first ones as the sequence has them, and their keys. */
static void tokens_make(struct sim *sim, struct sim_prompt *out, uint32_t first, uint32_t count,
                        uint32_t first_key)
{
    uint32_t block_tokens = sim_shape(sim, out->model)->block_tokens, num_keys = 0;
    uint64_t hash = first ? out->hash[first - 1] : oracle_root(out->salt, out->model);

    for (uint32_t i = first; i < first + count; i++) {
        out->hash[i] = hash = oracle_extend(hash, out->ids[i]);
        if ((i + 1) % block_tokens != 0 || i / block_tokens < first_key)
            continue;
        out->keys[num_keys] = oracle_key(out->domain, hash);
        if (out->shared != SIM_NONE)
            out->shared_keys[num_keys] = oracle_key(out->shared, hash);
        num_keys++;
    }
    out->prompt.tokens =
        (struct pool_tokens){.ids = out->ids + first,
                             .count = count,
                             .keys = out->keys,
                             .shared_keys = out->shared != SIM_NONE ? out->shared_keys : NULL};
}

void engine_prompt(struct sim *sim, struct sim_prompt *out)
{
    uint32_t most = random_chance(&sim->random, 4) ? sim->max_length : sim->max_length / 3;
    uint32_t count = random_below(&sim->random, most + 1);

    if (sim->is_long)
        count = sim->max_length / 2 + random_below(&sim->random, sim->max_length / 2);
    if (count == 0 && !random_chance(&sim->random, 8))
        count = 1 + most / 2;
    prompt_draw_domains(sim, out);
    out->model = random_below(&sim->random, sim->num_models);
    out->salt = random_chance(&sim->random, 8);
    for (uint32_t i = 0; i < count; i++)
        out->ids[i] = token_draw(sim);
    tokens_make(sim, out, 0, count, 0);
    out->prompt.tenant = sim->payers[out->payer].id;
    out->prompt.domain = sim->payers[out->domain].id;
    out->prompt.shared = out->shared == SIM_NONE ? POOL_NONE : sim->payers[out->shared].id;
    out->prompt.model = sim->models[out->model].id;
    out->prompt.is_raw = random_chance(&sim->random, 3);
}

void engine_tokens(struct sim *sim, const struct sim_sequence *sequence, uint32_t first,
                   uint32_t count, uint32_t known, struct sim_prompt *out)
{
    uint32_t block_tokens = sim_shape(sim, sequence->model)->block_tokens;

    out->payer = sequence->payer;
    out->domain = sequence->domain;
    out->shared = sequence->shared;
    out->model = sequence->model;
    out->salt = sequence->salt;
    memcpy(out->ids, sequence->ids, sequence->length * sizeof(*out->ids));
    memcpy(out->hash, sequence->hash, sequence->length * sizeof(*out->hash));
    for (uint32_t i = sequence->length; i < first + count; i++)
        out->ids[i] = token_draw(sim);
    tokens_make(sim, out, first, count, known / block_tokens);
    out->prompt.tenant = sim->payers[out->payer].id;
    out->prompt.domain = sim->payers[out->domain].id;
    out->prompt.shared = out->shared == SIM_NONE ? POOL_NONE : sim->payers[out->shared].id;
    out->prompt.model = sim->models[out->model].id;
    out->prompt.is_raw = sequence->is_raw;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void write_group(struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                        uint32_t first, uint32_t end)
{
    const struct pool_model_shape *shape = sim_shape(sim, sequence->model);
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0;

    int err = pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count);
    sim_expect(sim, err == 0, "table: %d", err);
    sim_expect(sim, end <= count * shape->block_tokens, "a table is too short to write %u", end);
    for (uint32_t token = first; token < end; token++) {
        const struct pool_place *place = &places[token / shape->block_tokens];
        sim_expect(sim, place->slot && !place->is_shared, "token %u: no slot to write it", token);
        uint32_t arena = sim_arena_of(sim, sequence, group, false);
        sim_expect(sim, device_slot(sim, arena, place->slot)->num_reading == 0,
                   "D3: write into %u:%u, which a copy reads", arena, place->slot);
        struct sim_row row = {.arena = arena,
                              .slot = place->slot,
                              .token = token % shape->block_tokens,
                              .hash = sequence->hash[token],
                              .label = sequence->label};
        for (row.layer = group; row.layer < shape->num_layers; row.layer += shape->num_groups)
            device_write(sim, &row);
    }
}

void engine_write(struct sim *sim, const struct sim_sequence *sequence, uint32_t first,
                  uint32_t end)
{
    for (uint32_t group = 0; first < end && group < sim_shape(sim, sequence->model)->num_groups;
         group++)
        write_group(sim, sequence, group, first, end);
}

void engine_write_new(struct sim *sim, struct sim_sequence *sequence, uint32_t first)
{
    if (sequence->is_mapped && random_chance(&sim->random, 2)) {
        if (sequence->num_written > first)
            sequence->num_written = first;
        return;
    }
    if (sequence->is_mapped && sequence->num_written < first)
        first = sequence->num_written;
    engine_write(sim, sequence, first, sequence->num_complete);
    sequence->num_written = sequence->num_complete;
}

/* ---- requests that wait --------------------------------------------------------------------- */

void engine_request(struct sim *sim, const struct sim_request *request)
{
    for (uint32_t i = 0; i < SIM_MAX_REQUESTS; i++) {
        if (sim->requests[i].kind != REQUEST_NONE)
            continue;
        sim->requests[i] = *request;
        sim->requests[i].since_ms = sim->now_ms;
        sim->num_requests++;
        return;
    }
    sim_fail(sim, "too many requests wait for the simulator");
}

static void reply_to_append(struct sim *sim, struct sim_sequence *sequence, int answer)
{
    uint32_t first = sequence->length;

    sequence->cookie = 0;
    if (answer == 0) {
        sequence->length = sequence->num_complete = first + sequence->growth;
        sequence->growth = 0;
        engine_write_new(sim, sequence, first);
    } else {
        sim_expect(sim, answer == POOL_FAILED || answer == POOL_TIMEOUT, "append: reply %d",
                   answer);
        sequence->growth = 0;
    }
}

static void reply_to_wait(struct sim *sim, const struct sim_request *request, int answer)
{
    sim_expect(sim, answer == 0 || answer == POOL_MISS || answer == POOL_TIMEOUT, "wait: %d",
               answer);
    sim_expect(sim, answer != POOL_TIMEOUT || request->deadline_ms <= sim->now_ms,
               "a waiter timed out before its deadline");

    const struct sim_fill *fill = &request->fill;
    bool is_stored = false; /* the last of them is: earlier ones may have been evicted again */
    for (uint32_t i = 0; i <= fill->last - fill->position; i++) {
        struct pool_key key = oracle_key(fill->domain, request->run[i]);
        is_stored |= oracle_is_stored(sim, fill->domain, fill->model, 0, &key);
    }
    sim_expect(sim, answer != 0 || is_stored, "a waiter was told of what is not published");
}

/* Present all of it; or as if it had not been called. */
static void reply_to_alloc(struct sim *sim, const struct sim_request *request,
                           struct sim_sequence *sequence, int answer)
{
    uint32_t matched = sequence->num_matched;

    sim_expect(sim, sequence->is_promoting, "a reply to what does not wait");
    sim_expect(sim, answer != POOL_TIMEOUT || request->deadline_ms <= sim->now_ms,
               "an allocation timed out before its deadline");
    sim_expect(sim, answer != POOL_MISS || request->is_cancelled, "MISS of what nobody cancelled");
    sim_expect(sim, answer != POOL_RETRY || request->troubles < sim->troubles || sim->is_clearing,
               "RETRY, and no copy failed");
    sim_expect(sim,
               answer == 0 || answer == POOL_TIMEOUT || answer == POOL_MISS || answer == POOL_RETRY,
               "alloc: reply %d", answer);
    sequence->cookie = 0;
    sequence->is_promoting = false;
    if (answer == 0) {
        sim->counts[COUNT_HITS_BELOW]++;
        oracle_count_hits(sim, request->hits);
        engine_write_new(sim, sequence, matched);
    } else if (request->kind == REQUEST_RESUME) {
        *sequence = sim->before[request->subject];
    } else {
        sequence->is_used = false;
    }
}

static void reply_to_sequence(struct sim *sim, const struct sim_request *request, int answer)
{
    struct sim_sequence *sequence = &sim->sequences[request->subject];

    sim_expect(sim, sequence->is_used && sequence->cookie == request->cookie, "reply to nobody");
    if (request->kind == REQUEST_ALLOC || request->kind == REQUEST_RESUME) {
        reply_to_alloc(sim, request, sequence, answer);
        return;
    }
    if (request->kind == REQUEST_APPEND) {
        reply_to_append(sim, sequence, answer);
        return;
    }
    sequence->cookie = 0;
    if (request->kind == REQUEST_TRUNCATE && (answer == POOL_INVALID || answer == POOL_LIMIT))
        return; /* its step was abandoned or left it unfilled; no chunk is left to cut a shared one
                 */
    sim_expect(sim, answer == 0, "reply %d to a verb that cannot fail", answer);
    if (request->kind == REQUEST_TRUNCATE) {
        uint32_t full = request->argument / sim_shape(sim, sequence->model)->block_tokens;
        sequence->length = sequence->num_complete = request->argument;
        if (sequence->num_written > sequence->length)
            sequence->num_written = sequence->length;
        if (sequence->considered > full)
            sequence->considered = full;
        if (sequence->num_prompt > sequence->length)
            sequence->num_prompt = sequence->length;
    } else if (request->kind == REQUEST_PREEMPT)
        sequence->is_preempted = true;
    else
        sequence->is_used = false;
}

void engine_reply(struct sim *sim, const struct pool_effect *effect)
{
    sim_trace(sim, "  reply %lu: %d\n", effect->cookie, effect->answer);
    for (uint32_t i = 0; i < SIM_MAX_REQUESTS; i++) {
        struct sim_request request = sim->requests[i];
        if (request.kind == REQUEST_NONE || request.cookie != effect->cookie)
            continue;
        sim->requests[i].kind = REQUEST_NONE;
        sim->num_requests--;
        sim->answers[effect->answer >= 0 && effect->answer < 16 ? effect->answer : 16]++;
        if (request.kind == REQUEST_WAIT)
            reply_to_wait(sim, &request, effect->answer);
        else if (request.kind == REQUEST_STEP_BEGIN || request.kind == REQUEST_STEP_END)
            step_reply(sim, &request, effect->answer);
        else
            reply_to_sequence(sim, &request, effect->answer);
        return;
    }
    sim_fail(sim, "a reply to %lu, which does not wait", effect->cookie);
}

/* ---- the end of a session ------------------------------------------------------------------- */

/* Notes the unpublished slots that only this session's tables have: its process may write on. */
static void lingering_add(struct sim *sim, struct sim_session *session,
                          const struct sim_sequence *sequence, uint32_t group)
{
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0;

    if (pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count) != 0)
        return;
    for (uint32_t i = 0; i < count && session->num_lingering < SIM_MAX_LINGERING; i++) {
        if (places[i].slot == 0 || places[i].is_shared)
            continue;
        uint32_t arena = sim_arena_of(sim, sequence, group, false);
        if (device_slot(sim, arena, places[i].slot)->is_published)
            continue;
        session->lingering[session->num_lingering][0] = arena;
        session->lingering[session->num_lingering++][1] = places[i].slot;
    }
}

/*
 * A block that was cleared while several sessions held it is nobody's to write; nor is one that a
 * copy for another session still reads, whose hold is in no table any more.
 */
static void lingering_keep_own(struct sim *sim, struct sim_session *session)
{
    uint32_t counts[SIM_MAX_LINGERING] = {0}, kept = 0;
    uint32_t(*list)[2] = session->lingering;

    for (uint32_t i = 0; i < session->num_lingering; i++)
        for (uint32_t j = 0; j < session->num_lingering; j++)
            counts[i] += list[j][0] == list[i][0] && list[j][1] == list[i][1];
    for (uint32_t i = 0; i < session->num_lingering; i++) {
        if (pool_slot_holds(sim->pool, list[i][0], list[i][1]) > counts[i] ||
            device_slot(sim, list[i][0], list[i][1])->num_reading > 0)
            continue;
        list[kept][0] = list[i][0];
        list[kept++][1] = list[i][1];
    }
    session->num_lingering = kept;
}

static void session_forget(struct sim *sim, uint32_t index, bool is_attached)
{
    for (uint32_t i = 0; i < SIM_MAX_STEPS; i++)
        if (sim->steps[i].state != SIM_STEP_FREE && sim->steps[i].session == index)
            step_forget(sim, &sim->steps[i], is_attached);
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++)
        if (sim->sequences[i].is_used && sim->sequences[i].session == index)
            sim->sequences[i].is_used = false;
    for (uint32_t i = 0; i < SIM_MAX_REQUESTS; i++) {
        if (sim->requests[i].kind == REQUEST_NONE || sim->requests[i].session != index)
            continue;
        sim->requests[i].kind = REQUEST_NONE;
        sim->num_requests--;
    }
}

void engine_session_end(struct sim *sim, uint32_t index, bool is_attached)
{
    struct sim_session *session = &sim->sessions[index];
    uint32_t num_sequences = 0, expected = 0;

    session->num_lingering = 0;
    want_note_session(sim, index);
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++) {
        const struct sim_sequence *sequence = &sim->sequences[i];
        if (!sequence->is_used || sequence->session != index)
            continue;
        expected++;
        if (sequence->is_promoting)
            continue; /* its engine was not told of any slot yet */
        for (uint32_t group = 0; is_attached && group < sim_shape(sim, sequence->model)->num_groups;
             group++)
            lingering_add(sim, session, sequence, group);
    }
    lingering_keep_own(sim, session);

    sim_trace(sim, "session_end %u%s\n", index, is_attached ? " attached" : "");
    session_forget(sim, index, is_attached);
    session->is_live = false;
    session->is_lingering = is_attached;
    sim->has_slices = true;
    int err = pool_session_end(sim->pool, session->id, is_attached, &num_sequences);
    sim_expect(sim, err == 0, "session_end: %d", err);
    sim_expect(sim, num_sequences == expected, "a session had %u sequences, should be %u",
               num_sequences, expected);
    sim_settle(sim);
}
