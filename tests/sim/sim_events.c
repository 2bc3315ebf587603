/* tests/sim/sim_events.c - the table of events, and the loop that draws from it. */
#include "tests/sim/sim_tiers.h"

#include <stddef.h>

/*
 * A row for each thing that may happen next; weights are against each other. Without those that are
 * needed a run comes to a standstill.
 */
/* clang-format off */
static const struct sim_event {
    const char *name;
    void (*run)(struct sim *sim);
    uint32_t weight;
    bool is_needed;
} events[] = {
    {"alloc",          event_alloc,           120, true},
    {"match",          event_match,            10, false},
    {"fill",           event_fill,             25, false},
    {"append",         event_append,           60, false},
    {"publish",        event_publish,          60, false},
    {"write",          event_write,            30, false},
    {"publish up to",  event_publish_up_to,    20, false},
    {"fork",           event_fork,             30, false},
    {"truncate",       event_truncate,         30, false},
    {"release",        event_release,          60, true},
    {"preempt",        event_preempt,          25, false},
    {"branch",         event_branch,           15, false},
    {"resume",         event_resume,           45, false},
    {"inspect",        event_inspect,          10, false},
    {"step begin",     event_step_begin,       60, false},
    {"attend",         event_attend,           90, true},
    {"attend part",    event_attend_part,      40, false},
    {"attend end",     event_attend_end,       80, true},
    {"step end",       event_step_end,         15, false},
    {"step whole",     event_step_whole,       25, false},
    {"wait",           event_wait,             15, false},
    {"cancel",         event_cancel,            6, false},
    {"tick",           event_tick,             10, false},
    {"session open",   event_session_open,     12, true},
    {"session end",    event_session_end,       2, false},
    {"session vanish", event_session_vanish,    3, false},
    {"session detach", event_session_detach,    4, true},
    {"session linger", event_session_linger,   12, false},
    {"advance",        event_advance,          20, true},
    {"copy part",      event_copy_part,        20, false},
    {"copy end",       event_copy_end,         50, true},
    {"stray",          event_stray,             4, false},
    {"free slots",     event_free_slots,       30, false},
    {"evict",          event_evict,            10, false},
    {"clear",          event_clear,             2, false},
    {"drain",          event_drain,             2, false},
    {"quota",          event_quota,             4, false},
    {"grant",          event_grant,             3, false},
    {"churn",          event_churn,           150, true},
    {"prefetch",       event_prefetch,         15, false},
    {"prefetch own",   event_prefetch_sequence, 8, false},
    {"tier set",       event_tier_set,          6, false},
    {"tier quota",     event_tier_quota,        3, false},
    {"tier evict",     event_tier_evict,        3, false},
    {"tier stall",     event_tier_stall,       10, true},
    {"bit flip",       event_bit_flip,          4, false},
    {"set store",      event_set_store,         3, false},
    {"crash",          event_crash,             1, false},
    {"recover",        event_recover,          30, true},
};
/* clang-format on */

static void effect_carry_out(struct sim *sim, const struct sim_effect *kept)
{
    const struct pool_effect *effect = &kept->effect;

    switch (effect->kind) {
    case POOL_EFFECT_COMMIT:
        device_commit(sim, effect->arena, effect->index);
        break;
    case POOL_EFFECT_DECOMMIT:
        device_decommit(sim, effect->arena, effect->index);
        break;
    case POOL_EFFECT_COPY:
        copy_begin(sim, kept);
        break;
    case POOL_EFFECT_REPLY:
        engine_reply(sim, effect);
        break;
    case POOL_EFFECT_STORED:
        oracle_stored(sim, kept);
        break;
    case POOL_EFFECT_REMOVED:
        oracle_removed(sim, kept);
        break;
    case POOL_EFFECT_PRESENT:
        oracle_present(sim, kept);
        break;
    case POOL_EFFECT_GONE:
        oracle_gone(sim, effect->arena, effect->slot);
        break;
    default:
        sim_fail(sim, "an effect of kind %d", (int)effect->kind);
    }
}

void sim_settle(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->num_effects; i++) {
        effect_carry_out(sim, &sim->effects[i]);
        if (sim->crash_after && --sim->crash_after == 0)
            longjmp(sim->crash, 1);
    }
    sim->num_effects = 0;
    sim->is_idle = false;
}

/* Who waits for what nobody fills was forgotten. */
static void check_waits(struct sim *sim)
{
    bool is_coming = false;

    for (uint32_t i = 0; sim->num_copies && i < SIM_MAX_COPIES; i++)
        is_coming |= sim->copies[i].is_used && sim->copies[i].tier < sim->copies[i].from_tier;
    for (uint32_t i = 0; sim->num_requests && i < SIM_MAX_REQUESTS; i++) {
        const struct sim_request *request = &sim->requests[i];
        sim_expect(sim,
                   is_coming || (request->kind != REQUEST_ALLOC && request->kind != REQUEST_RESUME),
                   "request %lu waits, and nothing comes up", request->cookie);
        sim_expect(sim, request->kind != REQUEST_WAIT || oracle_has_filler(sim, &request->fill),
                   "request %lu waits for what nobody fills", request->cookie);
    }
}

/* Each run has its own mix: some events are left out, some come often. */
static void draw_mix(struct sim *sim, uint32_t *out_ends)
{
    static const uint32_t factors[] = {0, 1, 2, 2, 2, 2, 4, 8};
    uint32_t end = 0;

    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        uint32_t factor = factors[random_below(&sim->random, ARRAY_SIZE(factors))];
        end += events[i].weight * (factor || !events[i].is_needed ? factor : 1);
        out_ends[i] = end;
    }
}

static void run_one(struct sim *sim, const uint32_t *ends)
{
    uint32_t draw = random_below(&sim->random, ends[ARRAY_SIZE(events) - 1]), which = 0;

    while (draw >= ends[which])
        which++;
    sim_trace(sim, "%lu: %s\n", sim->event, events[which].name);
    events[which].run(sim);
}

/* An event; or, if it crashes, the restart after it. */
static void run_or_crash(struct sim *sim, const uint32_t *ends)
{
    bool was_recovering = sim->is_recovering;

    if (setjmp(sim->crash) != 0) {
        sim_restart(sim);
        return;
    }
    sim->is_idle = true;
    for (uint32_t tries = 0; sim->is_idle && tries < 200; tries++)
        run_one(sim, ends);
    tiers_check_event(sim, was_recovering);
}

/* The last event: with options.is_crash it is cut short, or the crash comes right behind it. */
static void run_last(struct sim *sim, const uint32_t *ends)
{
    uint64_t crashes = sim->counts[COUNT_CRASHES];

    sim->crash_after = 1 + random_below(&sim->random, 6);
    run_or_crash(sim, ends);
    if (sim->counts[COUNT_CRASHES] == crashes)
        sim_restart(sim);
    sim_recover_all(sim);
    for (uint32_t i = 0; i < 20; i++)
        event_match(sim);
}

void sim_run(struct sim *sim, uint64_t seed, const struct sim_options *options)
{
    uint32_t ends[ARRAY_SIZE(events)];

    memset(sim, 0, offsetof(struct sim, num_effects));
    sim->num_effects = 0;
    sim->options = *options;
    sim->seed = seed;
    sim->random.state = mix64(seed + 1);
    sim_configure(sim);
    draw_mix(sim, ends);
    event_session_open(sim);
    for (sim->event = 1; sim->event <= options->num_events; sim->event++) {
        bool is_last = options->is_crash && sim->event == options->num_events;
        if (is_last && sim->config.tells_places)
            run_last(sim, ends);
        else
            run_or_crash(sim, ends);
        check_waits(sim);
        if (sim->event % options->check_every == 0)
            sim_check(sim);
    }
    sim_trace(sim, "wind down\n");
    sim->crash_after = 0;
    sim_recover_all(sim);
    sim_wind_down(sim);
    sim_finish(sim);
}
