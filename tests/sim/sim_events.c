/* tests/sim/sim_events.c - the table of events, and the loop that draws from it. */
#include "tests/sim/sim_verbs.h"

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
    {"resume",         event_resume,           45, false},
    {"inspect",        event_inspect,          10, false},
    {"step begin",     event_step_begin,       60, false},
    {"attend",         event_attend,           90, true},
    {"attend part",    event_attend_part,      40, false},
    {"attend end",     event_attend_end,       80, true},
    {"step end",       event_step_end,         15, false},
    {"step whole",     event_step_whole,       25, false},
    {"wait",           event_wait,             15, false},
    {"cancel",         event_cancel,            3, false},
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
};
/* clang-format on */

void sim_settle(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->num_effects; i++) {
        const struct sim_effect *kept = &sim->effects[i];
        const struct pool_effect *effect = &kept->effect;

        switch (effect->kind) {
        case POOL_EFFECT_COMMIT:
            device_commit(sim, effect->arena, effect->index);
            break;
        case POOL_EFFECT_DECOMMIT:
            device_decommit(sim, effect->arena, effect->index);
            break;
        case POOL_EFFECT_COPY:
            device_copy(sim, effect);
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
        default:
            sim_fail(sim, "an effect of kind %d", (int)effect->kind);
        }
    }
    sim->num_effects = 0;
    sim->is_idle = false;
}

/* Who waits for what nobody fills was forgotten. */
static void check_waits(struct sim *sim)
{
    for (uint32_t i = 0; sim->num_requests && i < SIM_MAX_REQUESTS; i++) {
        const struct sim_request *request = &sim->requests[i];
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

void sim_run(struct sim *sim, uint64_t seed, const struct sim_options *options)
{
    uint32_t ends[ARRAY_SIZE(events)];

    memset(sim, 0, sizeof(*sim));
    sim->options = *options;
    sim->seed = seed;
    sim->random.state = mix64(seed + 1);
    sim_configure(sim);
    draw_mix(sim, ends);
    event_session_open(sim);
    for (sim->event = 1; sim->event <= options->num_events; sim->event++) {
        sim->is_idle = true;
        for (uint32_t tries = 0; sim->is_idle && tries < 200; tries++)
            run_one(sim, ends);
        check_waits(sim);
        if (sim->event % options->check_every == 0)
            sim_check(sim);
    }
    sim_trace(sim, "wind down\n");
    sim_wind_down(sim);
    sim_finish(sim);
}
