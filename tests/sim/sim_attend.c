/*
 * tests/sim/sim_attend.c - attends under way: they write the rows of their tokens, a part at a
 * time, and read every row before them.
 *
 * An attend keeps the tables that it saw when it was queued, as a worker does: it goes on when its
 * sequence, its step or its session has ended, until the core is told that it has.
 */
#include "tests/sim/sim.h"

static void plan_group(struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                       struct sim_plan_row *row)
{
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0;

    int err = pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count);
    sim_expect(sim, err == 0, "table of a sequence in a step: %d", err);
    for (uint32_t i = 0; i < count; i++) {
        row->slot[i] = places[i].slot;
        row->label[i] = places[i].is_shared ? sequence->shared_label : sequence->label;
        row->arena[i] =
            places[i].slot ? sim_arena_of(sim, sequence, group, places[i].is_shared) : SIM_NONE;
    }
}

struct sim_attend *attend_begin(struct sim *sim, uint32_t step_index, uint32_t layer)
{
    const struct sim_step *step = &sim->steps[step_index];
    struct sim_attend *attend = sim->attends;

    while (attend->is_used)
        attend++;

    const struct sim_sequence *first = &sim->sequences[step->rows[0].sequence];
    const struct pool_model_shape *shape = sim_shape(sim, first->model);
    attend->is_used = true;
    attend->is_attached = false;
    attend->step = step->id;
    attend->sim_step = step_index;
    attend->layer = layer;
    attend->group = layer % shape->num_groups;
    attend->window = shape->groups[attend->group].window;
    attend->num_ranks = shape->num_ranks;
    attend->block_tokens = shape->block_tokens;
    attend->num_rows = step->num_rows;
    sim->num_attends++;

    for (uint32_t i = 0; i < step->num_rows; i++) {
        const struct sim_sequence *sequence = &sim->sequences[step->rows[i].sequence];
        struct sim_plan_row *row = &attend->rows[i];

        memcpy(row->hash, sequence->hash, sequence->length * sizeof(*row->hash));
        row->base = row->num_written = step->rows[i].old_complete;
        row->length = step->rows[i].new_complete;
        plan_group(sim, sequence, attend->group, row);
    }
    return attend;
}

static struct sim_row plan_at(const struct sim_attend *attend, const struct sim_plan_row *row,
                              uint32_t token)
{
    uint32_t position = token / attend->block_tokens;

    return (struct sim_row){.arena = row->arena[position],
                            .slot = row->slot[position],
                            .layer = attend->layer,
                            .token = token % attend->block_tokens,
                            .hash = row->hash[token],
                            .label = row->label[position],
                            .may_be_scribble = attend->is_attached};
}

/* What the query at @query sees, itself included. */
static void attend_read(struct sim *sim, const struct sim_attend *attend,
                        const struct sim_plan_row *row, uint32_t query)
{
    uint32_t first = attend->window && query + 1 > attend->window ? query + 1 - attend->window : 0;

    for (uint32_t token = first; token <= query; token++) {
        struct sim_row at = plan_at(attend, row, token);
        sim_expect(sim, at.slot, "token %u, which a query sees, is out of the window", token);
        device_read(sim, &at);
    }
}

/* A part writes its tokens, and then reads for the last of them. */
void attend_proceed(struct sim *sim, struct sim_attend *attend, uint32_t num_tokens)
{
    for (uint32_t i = 0; i < attend->num_rows && num_tokens; i++) {
        struct sim_plan_row *row = &attend->rows[i];
        uint32_t written = row->num_written;

        while (num_tokens && row->num_written < row->length) {
            sim->is_idle = false;
            struct sim_row at = plan_at(attend, row, row->num_written);
            sim_expect(sim, at.slot, "a new token has no slot");
            device_write(sim, &at);
            row->num_written++;
            num_tokens--;
        }
        if (row->num_written > written)
            attend_read(sim, attend, row, row->num_written - 1);
    }
}

void attend_end(struct sim *sim, struct sim_attend *attend, int error)
{
    pool_step step = attend->step;
    uint32_t layer = attend->layer, sim_step = attend->sim_step;

    if (!error) {
        attend_proceed(sim, attend, UINT32_MAX);
        for (uint32_t i = 0; i < attend->num_rows; i++)
            if (attend->rows[i].length > attend->rows[i].base)
                attend_read(sim, attend, &attend->rows[i], attend->rows[i].length - 1);
    }
    attend->is_used = false;
    sim->num_attends--;
    step_attended(sim, sim_step, step, layer, error);
}
