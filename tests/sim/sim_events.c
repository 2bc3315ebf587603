/* tests/sim/sim_events.c - the table of events, and the loop that draws from it. */
#include "tests/sim/sim_verbs.h"

/* A row for each thing that may happen next; weights are against each other. */
/* clang-format off */
static const struct sim_event {
    const char *name;
    void (*run)(struct sim *sim);
    uint32_t weight;
} events[] = {
    {"alloc",          event_alloc,          120},
    {"match",          event_match,           10},
    {"fill",           event_fill,            25},
    {"append",         event_append,          60},
    {"publish",        event_publish,         60},
    {"fork",           event_fork,            30},
    {"truncate",       event_truncate,        30},
    {"release",        event_release,         60},
    {"preempt",        event_preempt,         25},
    {"resume",         event_resume,          45},
    {"inspect",        event_inspect,         10},
    {"step begin",     event_step_begin,      60},
    {"attend",         event_attend,          90},
    {"attend part",    event_attend_part,     40},
    {"attend end",     event_attend_end,      80},
    {"step end",       event_step_end,        15},
    {"step whole",     event_step_whole,      25},
    {"wait",           event_wait,            15},
    {"cancel",         event_cancel,           3},
    {"tick",           event_tick,            10},
    {"session open",   event_session_open,    12},
    {"session end",    event_session_end,      2},
    {"session vanish", event_session_vanish,   3},
    {"session detach", event_session_detach,   4},
    {"session linger", event_session_linger,  12},
    {"advance",        event_advance,         20},
    {"copy part",      event_copy_part,       20},
    {"copy end",       event_copy_end,        50},
    {"stray",          event_stray,            4},
    {"free slots",     event_free_slots,      30},
    {"evict",          event_evict,           10},
    {"clear",          event_clear,            2},
    {"drain",          event_drain,            2},
    {"quota",          event_quota,            4},
    {"grant",          event_grant,            3},
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
        end += events[i].weight * factors[random_below(&sim->random, ARRAY_SIZE(factors))];
        if (i == 0 && end == 0)
            end = events[0].weight; /* without sequences nothing happens */
        out_ends[i] = end;
    }
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
        uint32_t draw = random_below(&sim->random, ends[ARRAY_SIZE(ends) - 1]), which = 0;

        while (draw >= ends[which])
            which++;
        sim_trace(sim, "%lu: %s\n", sim->event, events[which].name);
        events[which].run(sim);
        check_waits(sim);
        if (sim->event % options->check_every == 0)
            sim_check(sim);
    }
    sim_trace(sim, "wind down\n");
    sim_wind_down(sim);
    sim_finish(sim);
}
