/* tests/sim/sim_steps.c - events: forward passes, layer by layer, with attends that take their
 * time. */
#include "tests/sim/sim_tiers.h"

static bool is_open_step(const struct sim *sim, uint32_t index)
{
    return sim->steps[index].state == SIM_STEP_OPEN;
}

static bool is_step(const struct sim *sim, uint32_t index)
{
    return sim->steps[index].state != SIM_STEP_FREE;
}

static bool is_attend(const struct sim *sim, uint32_t index)
{
    return sim->attends[index].is_used;
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* The rows of a step that is about to begin, and what they point to. */
struct step_draft {
    struct pool_step_row rows[SIM_MAX_ROWS];
    struct sim_prompt prompts[SIM_MAX_ROWS];
    uint32_t sequences[SIM_MAX_ROWS], num_rows;
    bool is_refused;
};

static bool can_step(const struct sim_sequence *sequence)
{
    return !sequence->cookie && !sequence->is_preempted && !sequence->is_mapped &&
           sequence->step == SIM_NONE;
}

/* As many tokens as an unfilled sequence lacks, or some of them, or new ones too. */
static uint32_t draw_count(struct sim *sim, const struct sim_sequence *sequence)
{
    uint32_t lacking = sequence->length - sequence->num_complete;
    uint32_t room = sim->max_length - sequence->num_complete;
    uint32_t count = lacking;

    if (lacking && random_chance(&sim->random, 3))
        count = 1 + random_below(&sim->random, lacking);
    else if (lacking == 0 || random_chance(&sim->random, 4))
        count += 1 + random_below(&sim->random, random_chance(&sim->random, 3) ? room + 1 : 3);
    return count < room ? count : room;
}

static void draft_add(struct sim *sim, struct step_draft *draft, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];
    uint32_t count = draw_count(sim, sequence), row = draft->num_rows;

    for (uint32_t i = 0; i < row; i++)
        draft->is_refused |= draft->sequences[i] == index;
    draft->is_refused |= !can_step(sequence) || count == 0;
    engine_tokens(sim, sequence, sequence->num_complete, count, sequence->num_complete,
                  &draft->prompts[row]);
    draft->sequences[row] = index;
    draft->rows[row] = (struct pool_step_row){.sequence = sequence->name.id,
                                              .tokens = draft->prompts[row].prompt.tokens};
    draft->num_rows++;
}

static void draft_draw(struct sim *sim, struct step_draft *draft)
{
    uint32_t first = sim_pick(sim, SIM_MAX_SEQUENCES, sim_is_sequence);
    uint32_t want = 1 + random_below(&sim->random, SIM_MAX_ROWS);
    bool is_careless = random_chance(&sim->random, 20);

    draft->num_rows = 0;
    draft->is_refused = false;
    if (first != SIM_NONE && is_careless && can_step(&sim->sequences[first]))
        draft_add(sim, draft, first); /* it comes again below */
    for (uint32_t i = 0; first != SIM_NONE && i < SIM_MAX_SEQUENCES && draft->num_rows < want;
         i++) {
        uint32_t index = (first + i) % SIM_MAX_SEQUENCES;
        const struct sim_sequence *sequence = &sim->sequences[index];
        if (!sequence->is_used || sequence->session != sim->sequences[first].session ||
            sequence->model != sim->sequences[first].model)
            continue;
        if (can_step(sequence) ? sim->max_length > sequence->num_complete : is_careless)
            draft_add(sim, draft, index);
    }
}

static uint32_t draft_askers(const struct sim *sim, const struct step_draft *draft)
{
    uint32_t askers = 0;

    for (uint32_t i = 0; i < draft->num_rows; i++)
        askers |= 1U << sim->sequences[draft->sequences[i]].domain;
    return askers;
}

static void step_open(struct sim *sim, uint32_t index, const struct step_draft *draft)
{
    struct sim_step *step = &sim->steps[index];

    step->num_rows = draft->num_rows;
    step->num_running = step->layers_done = 0;
    step->num_layers = sim_shape(sim, sim->sequences[draft->sequences[0]].model)->num_layers;
    step->session = sim->sequences[draft->sequences[0]].session;
    for (uint32_t i = 0; i < draft->num_rows; i++) {
        struct sim_sequence *sequence = &sim->sequences[draft->sequences[i]];
        uint32_t end = sequence->num_complete + (uint32_t)draft->rows[i].tokens.count;
        uint32_t length = end > sequence->length ? end : sequence->length;

        step->rows[i].sequence = draft->sequences[i];
        step->rows[i].old_length = sequence->length;
        step->rows[i].old_complete = sequence->num_complete;
        step->rows[i].new_length = length;
        step->rows[i].new_complete = end;
        memcpy(sequence->ids, draft->prompts[i].ids, end * sizeof(*sequence->ids));
        memcpy(sequence->hash, draft->prompts[i].hash, end * sizeof(*sequence->hash));
        sequence->length = length;
        sequence->step = index;
        want_note(sim, sequence, length);
    }
}

static void step_check(struct sim *sim, const struct sim_step *step)
{
    for (uint32_t i = 0; i < step->num_rows; i++)
        oracle_check_sequence(sim, &sim->sequences[step->rows[i].sequence]);
}

void event_step_begin(struct sim *sim)
{
    struct step_draft draft;
    struct sim_books books;
    pool_step id = 0;
    uint32_t index = 0;

    while (index < SIM_MAX_STEPS && is_step(sim, index))
        index++;
    draft_draw(sim, &draft);
    if (index == SIM_MAX_STEPS || draft.num_rows == 0)
        return;

    struct sim_step *step = &sim->steps[index];
    uint32_t session = sim->sequences[draft.sequences[0]].session;
    uint64_t cookie = ++sim->next_cookie, before = sim->has_slices ? 0 : sim_digest(sim);
    books_open(sim, &books);
    int answer = pool_step_begin(sim->pool, sim->sessions[session].id, draft.rows, draft.num_rows,
                                 cookie, &id);
    books_close(sim, &books, draft_askers(sim, &draft));
    sim_trace(sim, "step_begin %u:", session);
    for (uint32_t i = 0; i < draft.num_rows; i++)
        sim_trace(sim, " %lu+%lu", draft.rows[i].sequence, draft.rows[i].tokens.count);
    sim_trace(sim, " cookie %lu: %d, step %lx\n", cookie, answer, id);
    if (answer == 0 || answer == POOL_PENDING) {
        sim_expect(sim, !draft.is_refused, "a step should have been refused");
        step_open(sim, index, &draft);
        step->id = id;
        step->state = answer == 0 ? SIM_STEP_OPEN : SIM_STEP_COPYING;
        step->cookie = answer == 0 ? 0 : cookie;
    } else if (before) {
        sim_expect(sim, sim_digest(sim) == before, "a refused step (%d) changed something", answer);
    }
    if (answer == POOL_PENDING)
        engine_request(sim, &(struct sim_request){.kind = REQUEST_STEP_BEGIN,
                                                  .cookie = cookie,
                                                  .session = session,
                                                  .subject = index});
    sim_settle(sim);
    unsigned may = MAY(POOL_PENDING) | MAY(POOL_NEVER_FITS) | MAY(POOL_QUOTA) |
                   MAY(POOL_NO_BLOCKS) | MAY(POOL_LIMIT);
    if (draft.is_refused)
        may |= MAY(POOL_BUSY) | MAY(POOL_INVALID);
    expect_answer(sim, "step_begin", answer, may);
    if (is_step(sim, index))
        step_check(sim, step);
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool has_all_layers(const struct sim_step *step)
{
    return step->layers_done == (1U << step->num_layers) - 1;
}

/* Its rows' tokens are complete, or gone. */
static void step_close(struct sim *sim, struct sim_step *step, bool is_commit)
{
    for (uint32_t i = 0; i < step->num_rows; i++) {
        struct sim_sequence *sequence = &sim->sequences[step->rows[i].sequence];

        sequence->step = SIM_NONE;
        if (is_commit) {
            sequence->num_complete = step->rows[i].new_complete;
            sequence->is_filled = sequence->num_complete == sequence->length;
            /* Whether the pool published it cannot be seen: LIMIT leaves it for the next publish.
             */
        } else {
            sequence->length = step->rows[i].old_length;
        }
    }
    for (uint32_t i = 0; i < SIM_MAX_ATTENDS; i++)
        if (sim->attends[i].is_used && sim->attends[i].sim_step == (uint32_t)(step - sim->steps))
            sim->attends[i].sim_step = SIM_NONE;
    step->state = SIM_STEP_FREE;
    if (step->num_running == 0)
        sim->ended_step = step->id;
}

/* Its session has ended: what runs goes on, and nobody waits for it. */
void step_forget(struct sim *sim, struct sim_step *step, bool is_attached)
{
    for (uint32_t i = 0; i < SIM_MAX_ATTENDS; i++)
        if (sim->attends[i].is_used && sim->attends[i].sim_step == (uint32_t)(step - sim->steps))
            sim->attends[i].is_attached = is_attached;
    step_close(sim, step, false);
}

void step_reply(struct sim *sim, const struct sim_request *request, int answer)
{
    struct sim_step *step = &sim->steps[request->subject];

    sim_expect(sim, step->cookie == request->cookie, "a reply to another step");
    step->cookie = 0;
    if (request->kind == REQUEST_STEP_END) {
        bool is_lacking = step->is_commit && !has_all_layers(step);
        sim_expect(sim, step->state == SIM_STEP_ENDING, "step_end: reply of a step that is open");
        sim_expect(sim, answer == (is_lacking ? POOL_FAILED : 0), "step_end: reply %d", answer);
        step_close(sim, step, step->is_commit && !is_lacking);
    } else if (answer == 0) {
        step->state = SIM_STEP_OPEN;
    } else {
        sim_expect(sim, answer == POOL_FAILED || answer == POOL_TIMEOUT, "step_begin: reply %d",
                   answer);
        step_close(sim, step, false);
    }
}

void event_step_end(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_STEPS, is_step);
    bool is_commit = !random_chance(&sim->random, 3);

    if (index == SIM_NONE)
        return;
    struct sim_step *step = &sim->steps[index], saved = *step;
    uint64_t cookie = ++sim->next_cookie;
    bool can_commit = has_all_layers(step) || step->num_running > 0;
    int answer = pool_step_end(sim->pool, step->id, is_commit, cookie);
    sim_trace(sim, "step_end %lx %s cookie %lu: %d\n", step->id, is_commit ? "commit" : "abandon",
              cookie, answer);
    if (answer == 0 && saved.state == SIM_STEP_COPYING) {
        sim_expect(sim, !is_commit, "a step was committed before it could attend");
    } else if (answer == 0) {
        sim_expect(sim, step->num_running == 0, "a step ended while attends run");
        step_close(sim, step, is_commit);
    } else if (answer == POOL_PENDING) {
        step->state = SIM_STEP_ENDING;
        step->is_commit = is_commit;
        step->cookie = cookie;
        engine_request(sim, &(struct sim_request){.kind = REQUEST_STEP_END,
                                                  .cookie = cookie,
                                                  .session = step->session,
                                                  .subject = index});
    }
    sim_settle(sim); /* abandoned while COPYING: the reply to its begin closes it */
    if (saved.state != SIM_STEP_OPEN || (is_commit && !can_commit))
        sim_expect(sim,
                   answer == POOL_INVALID || answer == POOL_BUSY ||
                       (saved.state == SIM_STEP_COPYING && !is_commit),
                   "step_end: %d in state %d", answer, saved.state);
    expect_answer(sim, "step_end", answer, MAY(POOL_PENDING) | MAY(POOL_INVALID) | MAY(POOL_BUSY));
    for (uint32_t i = 0; i < saved.num_rows; i++)
        if (sim->sequences[saved.rows[i].sequence].is_used)
            oracle_check_sequence(sim, &sim->sequences[saved.rows[i].sequence]);
}

/* ---- attends -------------------------------------------------------------------------------- */

static uint32_t draw_layer(struct sim *sim, const struct sim_step *step)
{
    uint32_t layer = random_below(&sim->random, step->num_layers);

    if (!random_chance(&sim->random, 6)) /* seldom one again */
        for (uint32_t i = 0; i < step->num_layers && (step->layers_done & (1U << layer)); i++)
            layer = (layer + 1) % step->num_layers;
    return layer;
}

static void attend_layer(struct sim *sim, uint32_t index, uint32_t layer)
{
    const struct sim_step *step = &sim->steps[index];
    bool is_open = step->state == SIM_STEP_OPEN && layer < step->num_layers;

    int answer = pool_step_attend(sim->pool, step->id, layer);
    sim_trace(sim, "attend step %lx layer %u: %d\n", step->id, layer, answer);
    sim_settle(sim);
    if (!is_open) {
        sim_expect(sim, answer == POOL_INVALID, "attend of a step that is not open: %d", answer);
        return;
    }
    expect_answer(sim, "attend", answer, 0);
    sim->steps[index].num_running++;
    attend_begin(sim, index, layer);
}

void event_attend(struct sim *sim)
{
    uint32_t index =
        sim_pick(sim, SIM_MAX_STEPS, random_chance(&sim->random, 30) ? is_step : is_open_step);

    if (index == SIM_NONE || sim->num_attends == SIM_MAX_ATTENDS)
        return;
    uint32_t layer = draw_layer(sim, &sim->steps[index]);
    attend_layer(sim, index, random_chance(&sim->random, 200) ? SIM_MAX_LAYERS : layer);
}

void event_attend_part(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_ATTENDS, is_attend);

    if (index != SIM_NONE)
        attend_proceed(sim, &sim->attends[index], 1 + random_below(&sim->random, 4));
}

void event_attend_end(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_ATTENDS, is_attend);

    if (index != SIM_NONE)
        attend_end(sim, &sim->attends[index], random_chance(&sim->random, sim->failures) ? -5 : 0);
}

void step_attended(struct sim *sim, uint32_t index, pool_step id, uint32_t layer, int error)
{
    struct sim_step *step = index == SIM_NONE ? NULL : &sim->steps[index];

    if (step) {
        step->num_running--;
        step->layers_done =
            error ? step->layers_done & ~(1U << layer) : step->layers_done | 1U << layer;
    }
    sim_trace(sim, "attended step %lx layer %u, %d\n", id, layer, error);
    int answer = pool_step_attended(sim->pool, id, layer, error);
    sim_expect(sim, answer == 0, "attended: %d", answer);
    if (step && step->state == SIM_STEP_OPEN && step->num_running == 0 && has_all_layers(step))
        step_close(sim, step, true);
    sim_settle(sim);
}

/* A whole forward pass in one event, so that much is computed between the others. */
void event_step_whole(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_STEPS, is_open_step);

    if (index == SIM_NONE)
        return;
    for (uint32_t layer = 0; layer < sim->steps[index].num_layers; layer++) {
        if (!is_open_step(sim, index) || sim->num_attends == SIM_MAX_ATTENDS)
            return;
        attend_layer(sim, index, layer);
        for (uint32_t i = 0; i < SIM_MAX_ATTENDS; i++)
            if (sim->attends[i].is_used && sim->attends[i].sim_step == index &&
                sim->attends[i].layer == layer) {
                attend_end(sim, &sim->attends[i], 0);
                break;
            }
    }
}
