/*
 * tests/sim/sim_mapped.c - events: engines that read and write their blocks themselves, when they
 * like.
 *
 * Tokens that a mapped sequence gains are complete at once for the core, and written later: nothing
 * may be published, or read by anybody else, before its engine has said so.
 */
#include "tests/sim/sim_verbs.h"

void write_up_to(struct sim *sim, struct sim_sequence *sequence, uint32_t end)
{
    uint32_t first = sequence->is_mapped ? sequence->num_written : sequence->num_complete;

    if (first >= end)
        return;
    engine_write(sim, sequence, first, end);
    sequence->num_written = end;
}

static bool is_mapped_writer(const struct sim *sim, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];

    return sequence->is_used && sequence->is_mapped && !sequence->is_preempted &&
           !sequence->cookie && sequence->num_written < sequence->length;
}

void event_write(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SEQUENCES, is_mapped_writer);

    if (index == SIM_NONE)
        return;
    struct sim_sequence *sequence = &sim->sequences[index];
    uint32_t lacking = sequence->length - sequence->num_written;
    write_up_to(sim, sequence, sequence->num_written + 1 + random_below(&sim->random, lacking));
    sim_trace(sim, "write %u:%lu up to %u\n", sequence->session, sequence->name.id,
              sequence->num_written);
    sim->is_idle = false;
}

static bool can_publish_up_to(const struct sim *sim, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];

    return sequence->is_used && sequence->is_mapped && !sequence->is_preempted;
}

void event_publish_up_to(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_publish_up_to);

    if (!sequence)
        return;
    uint32_t written = sequence->is_mapped ? sequence->num_written : 0;
    uint32_t end =
        random_chance(&sim->random, 2) ? written : random_below(&sim->random, written + 1);
    int answer = pool_publish_up_to(sim->pool, sequence->name, end);
    sim_trace(sim, "publish_up_to %u:%lu %u: %d\n", sequence->session, sequence->name.id, end,
              answer);
    sim_settle(sim);
    if (!sequence->is_mapped || sequence->is_preempted || sequence->cookie ||
        (!sequence->is_filled && end < sequence->num_complete)) {
        expect_refusal(sim, "publish_up_to", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    expect_answer(sim, "publish_up_to", answer, MAY(POOL_LIMIT));
    if (answer == 0) {
        if (!sequence->is_filled)
            sequence->num_complete = end;
        sequence->is_filled |= end == sequence->length;
        oracle_considered(sim, sequence, end);
    }
    oracle_check_sequence(sim, sequence);
}
