/* tests/sim/sim_waits.c - events: requests that wait for what another sequence fills, and clocks.
 */
#include "tests/sim/sim_tiers.h"

static bool is_cancellable(const struct sim *sim, uint32_t index)
{
    enum sim_request_kind kind = sim->requests[index].kind;

    return kind == REQUEST_WAIT || kind == REQUEST_ALLOC || kind == REQUEST_RESUME;
}

static bool is_copy_late(const struct sim *sim, uint32_t index)
{
    const struct sim_request *request = &sim->requests[index];
    uint64_t timeout_ms = sim->config.transfer_timeout_ms;

    return timeout_ms && (request->kind == REQUEST_APPEND || request->kind == REQUEST_STEP_BEGIN) &&
           sim->now_ms >= request->since_ms + timeout_ms;
}

void event_wait(struct sim *sim)
{
    uint32_t session = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);
    struct sim_prompt prompt;

    if (session == SIM_NONE)
        return;
    engine_prompt(sim, &prompt);
    if (prompt.prompt.tokens.count == 0)
        return;
    uint32_t match = oracle_match(sim, &prompt).tokens;
    struct pool_found found = {0};
    (void)pool_match(sim->pool, &prompt.prompt, &found);
    uint32_t block_tokens = sim_shape(sim, prompt.model)->block_tokens;
    uint64_t cookie = ++sim->next_cookie;
    uint64_t deadline = sim->now_ms + 1 + random_below(&sim->random, 2000);
    int answer =
        pool_wait_arriving(sim->pool, sim->sessions[session].id, &prompt.prompt, deadline, cookie);
    sim_trace(sim, "wait %u model %u domain %u match %u deadline %lu cookie %lu: %d\n", session,
              prompt.model, prompt.domain, match, deadline, cookie, answer);
    expect_answer(sim, "wait", answer, MAY(POOL_MISS) | MAY(POOL_PENDING) | MAY(POOL_LIMIT));
    sim_expect(sim, answer != 0, "a wait was done at once");
    if (answer == POOL_PENDING) {
        struct sim_fill fill = {.domain = prompt.domain,
                                .model = prompt.model,
                                .position = match / block_tokens,
                                .last = (uint32_t)(match + found.arriving) / block_tokens - 1,
                                .hash = prompt.hash[match + block_tokens - 1]};
        sim_expect(sim, found.arriving > 0 && oracle_has_filler(sim, &fill),
                   "a wait for what nobody fills");
        struct sim_request request = {.kind = REQUEST_WAIT,
                                      .cookie = cookie,
                                      .session = session,
                                      .deadline_ms = deadline,
                                      .fill = fill};
        for (uint32_t at = fill.position; at <= fill.last; at++)
            request.run[at - fill.position] = prompt.hash[(at + 1) * block_tokens - 1];
        engine_request(sim, &request);
    }
    sim_settle(sim);
}

void event_cancel(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_REQUESTS, is_cancellable);
    uint32_t session = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);

    if (session == SIM_NONE)
        return;
    uint64_t cookie = index == SIM_NONE ? sim->next_cookie + 1 : sim->requests[index].cookie;
    bool is_own = index != SIM_NONE && random_chance(&sim->random, 2);
    if (is_own)
        session = sim->requests[index].session;
    bool is_known = index != SIM_NONE && sim->requests[index].session == session;
    if (is_known)
        sim->requests[index].is_cancelled = true;
    int answer = pool_cancel(sim->pool, sim->sessions[session].id, cookie);
    sim_trace(sim, "cancel %u cookie %lu: %d\n", session, cookie, answer);
    sim_expect(sim, answer == (is_known ? 0 : POOL_NOT_FOUND), "cancel: %d", answer);
    sim_settle(sim);
    sim_expect(sim,
               !is_known || sim->requests[index].cookie != cookie ||
                   sim->requests[index].kind == REQUEST_NONE,
               "a cancelled wait goes on");
}

void event_tick(struct sim *sim)
{
    uint32_t passed = random_below(&sim->random, random_chance(&sim->random, 10) ? 5000 : 200);

    sim->is_quiet = !sim->has_slices;
    sim->now_ms += passed;
    tiers_tick(sim, passed);
    sim_trace(sim, "tick %lu\n", sim->now_ms);
    pool_tick(sim->pool, sim->now_ms);
    sim_settle(sim);
    for (uint32_t i = 0; i < SIM_MAX_REQUESTS; i++)
        sim_expect(sim, !is_copy_late(sim, i), "a request waits for copies beyond the timeout");
    for (uint32_t i = 0; i < SIM_MAX_REQUESTS; i++)
        sim_expect(sim, !is_cancellable(sim, i) || sim->requests[i].deadline_ms >= sim->now_ms,
                   "a request waits beyond its deadline");
}
