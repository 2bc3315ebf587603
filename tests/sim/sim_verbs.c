/* tests/sim/sim_verbs.c - events: verbs of a sequence, and what each may answer in which state. */
#include "tests/sim/sim_tiers.h"

void expect_answer(struct sim *sim, const char *verb, int answer, unsigned allowed)
{
    sim->answers[answer >= 0 && answer < 15 ? answer : 15]++;
    sim_expect(sim, answer >= 0, "%s: error %d", verb, answer);
    sim_expect(sim, answer == 0 || (allowed & MAY(answer)), "%s: unexpected answer %d", verb,
               answer);
}

void expect_refusal(struct sim *sim, const char *verb, int answer, unsigned allowed)
{
    sim_expect(sim, answer != 0, "%s: should have been refused", verb);
    expect_answer(sim, verb, answer, allowed);
}

struct sim_sequence *pick_sequence(struct sim *sim, sim_filter *can)
{
    if (sim->focus && can(sim, sim->focus - 1))
        return &sim->sequences[sim->focus - 1];

    uint32_t index =
        sim_pick(sim, SIM_MAX_SEQUENCES, random_chance(&sim->random, 8) ? sim_is_sequence : can);

    return index == SIM_NONE ? NULL : &sim->sequences[index];
}

struct sim_sequence *free_sequence(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++)
        if (!sim->sequences[i].is_used)
            return &sim->sequences[i];
    return NULL;
}

static bool is_in_step(const struct sim_sequence *sequence)
{
    return sequence->step != SIM_NONE;
}

/* Not ended: one that has, and whose attends still run, is waited for. */
static bool is_in_open_step(const struct sim *sim, const struct sim_sequence *sequence)
{
    return is_in_step(sequence) && sim->steps[sequence->step].state != SIM_STEP_ENDING;
}

static bool is_not_whole(const struct sim_sequence *sequence)
{
    return sequence->cookie || sequence->is_preempted || !sequence->is_filled ||
           is_in_step(sequence);
}

bool is_mapped_and_whole(const struct sim_sequence *sequence)
{
    return sequence->is_mapped && !is_not_whole(sequence);
}

static bool is_whole(const struct sim *sim, uint32_t index)
{
    return sim->sequences[index].is_used && !is_not_whole(&sim->sequences[index]);
}

static bool can_fill(const struct sim *sim, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];

    return sequence->is_used && !sequence->is_filled && !is_in_step(sequence);
}

static bool can_publish(const struct sim *sim, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];

    return sequence->is_used && sequence->is_filled && !sequence->is_preempted;
}

static bool can_end(const struct sim *sim, uint32_t index)
{
    const struct sim_sequence *sequence = &sim->sequences[index];

    return sequence->is_used && !sequence->is_preempted && !sequence->cookie &&
           !is_in_open_step(sim, sequence);
}

uint64_t digest_before(struct sim *sim)
{
    return sim->has_slices || !random_chance(&sim->random, 8) ? 0 : sim_digest(sim);
}

void digest_after(struct sim *sim, uint64_t before, int answer)
{
    if (answer == 0 || answer == POOL_PENDING)
        return;
    sim_expect(sim, sim->has_slices || sim->num_effects == 0, "a refusal (%d) had effects", answer);
    sim_expect(sim, !before || sim_digest(sim) == before, "a refusal (%d) changed something",
               answer);
}

/* ---- fill, append, publish ------------------------------------------------------------------ */

void event_fill(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_fill);

    if (!sequence)
        return;
    bool is_refused =
        sequence->cookie || sequence->is_preempted || sequence->is_filled || is_in_step(sequence);
    if (!is_refused)
        write_up_to(sim, sequence, sequence->length);
    int answer = pool_fill(sim->pool, sequence->name);
    sim_trace(sim, "fill %u:%lu: %d\n", sequence->session, sequence->name.id, answer);
    sim_settle(sim);
    if (is_refused) {
        expect_refusal(sim, "fill", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    expect_answer(sim, "fill", answer, 0);
    sequence->is_filled = true;
    sequence->num_complete = sequence->length;
    oracle_check_sequence(sim, sequence);
}

static uint32_t draw_growth(struct sim *sim, const struct sim_sequence *sequence)
{
    uint32_t room = sim->max_length - sequence->length;
    uint32_t most = random_chance(&sim->random, 3) ? room : (room < 4 ? room : 4);

    return most ? 1 + random_below(&sim->random, most) : 0;
}

void event_append(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, is_whole);
    struct sim_prompt more;
    struct sim_books books;

    if (!sequence)
        return;
    uint32_t first = sequence->length, count = draw_growth(sim, sequence);
    uint64_t cookie = ++sim->next_cookie, before = digest_before(sim);
    engine_tokens(sim, sequence, first, count, first, &more);
    books_open(sim, &books);
    int answer = pool_append(sim->pool, sequence->name, &more.prompt.tokens, cookie);
    sim_trace(sim, "append %u:%lu %u tokens cookie %lu: %d\n", sequence->session, sequence->name.id,
              count, cookie, answer);
    books_close(sim, &books, 1U << sequence->domain);
    digest_after(sim, before, answer);
    if (is_not_whole(sequence) || count == 0) {
        sim_settle(sim);
        expect_refusal(sim, "append", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    if (answer == 0 || answer == POOL_PENDING) {
        memcpy(sequence->ids, more.ids, (first + count) * sizeof(*more.ids));
        memcpy(sequence->hash, more.hash, (first + count) * sizeof(*more.hash));
        want_note(sim, sequence, first + count);
    }
    if (answer == POOL_PENDING) {
        sequence->cookie = cookie;
        sequence->growth = count;
        engine_request(sim,
                       &(struct sim_request){.kind = REQUEST_APPEND,
                                             .cookie = cookie,
                                             .session = sequence->session,
                                             .subject = (uint32_t)(sequence - sim->sequences)});
    }
    sim_settle(sim);
    expect_answer(sim, "append", answer, NO_ROOM | MAY(POOL_PENDING));
    if (answer == 0) {
        sequence->length = sequence->num_complete = first + count;
        engine_write_new(sim, sequence, first);
        oracle_check_sequence(sim, sequence);
    }
}

void event_publish(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_publish);

    if (!sequence)
        return;
    if (is_mapped_and_whole(sequence))
        write_up_to(sim, sequence, sequence->length);
    int answer = pool_publish(sim->pool, sequence->name);
    sim_trace(sim, "publish %u:%lu: %d\n", sequence->session, sequence->name.id, answer);
    sim_settle(sim);
    if (sequence->cookie || sequence->is_preempted) {
        expect_refusal(sim, "publish", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    expect_answer(sim, "publish", answer,
                  MAY(POOL_LIMIT) |
                      (is_not_whole(sequence) ? MAY(POOL_BUSY) | MAY(POOL_INVALID) : 0));
    if (answer == 0 && !is_in_step(sequence)) /* under attends a merge is left for later */
        oracle_considered(sim, sequence, sequence->num_complete);
    oracle_check_sequence(sim, sequence);
}

/* ---- fork, truncate, release, preempt ------------------------------------------------------- */

void event_fork(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_publish), *child = free_sequence(sim);

    if (!sequence || !child)
        return;
    struct sim_session *session = &sim->sessions[sequence->session];
    bool is_taken = random_chance(&sim->random, 50);
    uint64_t id = is_taken ? sequence->name.id : session->next_name;
    if (is_mapped_and_whole(sequence))
        write_up_to(sim, sequence, sequence->length); /* an engine does not fork what it lacks */
    int answer = pool_fork(sim->pool, sequence->name, id);
    sim_trace(sim, "fork %u:%lu %lu: %d\n", sequence->session, sequence->name.id, id, answer);
    sim_settle(sim);
    if (is_taken || sequence->cookie || sequence->is_preempted) {
        expect_refusal(sim, "fork", answer,
                       MAY(POOL_EXISTS) | MAY(POOL_BUSY) | MAY(POOL_INVALID) | MAY(POOL_DRAINING));
        return;
    }
    unsigned may = MAY(POOL_LIMIT);
    if (sim->is_draining)
        may |= MAY(POOL_DRAINING);
    if (is_not_whole(sequence))
        may |= MAY(POOL_BUSY) | MAY(POOL_INVALID);
    expect_answer(sim, "fork", answer, may);
    if (answer != 0)
        return;
    session->next_name++;
    *child = *sequence;
    child->name.id = id;
    child->length = child->num_complete;
    child->step = SIM_NONE;
    child->is_filled = true;
    oracle_check_sequence(sim, child);
    oracle_check_sequence(sim, sequence);
}

struct sim_ending {
    const char *verb;
    enum sim_request_kind kind;
};

/* What truncate, release and preempt have in common: they wait for attends that still run. */
static void end_part(struct sim *sim, struct sim_sequence *sequence, enum sim_request_kind kind,
                     uint32_t length)
{
    static const char *const verbs[] = {[REQUEST_TRUNCATE] = "truncate",
                                        [REQUEST_RELEASE] = "release",
                                        [REQUEST_PREEMPT] = "preempt"};
    uint64_t cookie = ++sim->next_cookie;
    int answer;

    uint32_t num_prompt = sequence->num_prompt;

    want_note(sim, sequence, sequence->length);
    if (kind == REQUEST_PREEMPT) /* all of it counts as prompt */
        sequence->num_prompt = sequence->length;
    want_note(sim, sequence, sequence->length);
    if (kind == REQUEST_TRUNCATE)
        answer = pool_truncate(sim->pool, sequence->name, length, cookie);
    else if (kind == REQUEST_RELEASE)
        answer = pool_release(sim->pool, sequence->name, cookie);
    else
        answer = pool_preempt(sim->pool, sequence->name, cookie);
    sim_trace(sim, "%s %u:%lu %u cookie %lu: %d\n", verbs[kind], sequence->session,
              sequence->name.id, length, cookie, answer);

    struct sim_request request = {.kind = kind,
                                  .cookie = cookie,
                                  .session = sequence->session,
                                  .subject = (uint32_t)(sequence - sim->sequences),
                                  .argument = length};
    bool is_refused = sequence->cookie || is_in_open_step(sim, sequence) ||
                      (kind != REQUEST_RELEASE && sequence->is_preempted) ||
                      (kind == REQUEST_TRUNCATE && !is_in_step(sequence) &&
                       (length > sequence->num_complete || !sequence->is_filled));
    if (is_refused) {
        sequence->num_prompt = num_prompt;
        sim_settle(sim);
        expect_refusal(sim, verbs[kind], answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    expect_answer(sim, verbs[kind], answer,
                  MAY(POOL_PENDING) |
                      (kind == REQUEST_TRUNCATE ? MAY(POOL_INVALID) | MAY(POOL_LIMIT) : 0));
    sim_expect(sim, answer != 0 || !is_in_step(sequence), "%s did not wait for attends",
               verbs[kind]);
    if (answer == 0 || answer == POOL_PENDING) {
        sequence->cookie = cookie;
        engine_request(sim, &request);
    }
    if (answer == 0)
        engine_reply(sim, &(struct pool_effect){.cookie = cookie});
    sim_settle(sim);
    if (sequence->is_used)
        oracle_check_sequence(sim, sequence);
}

void event_truncate(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_end);

    if (!sequence)
        return;
    uint32_t length = random_below(&sim->random, sequence->length + 2);
    if (random_chance(&sim->random, 2)) /* most roll back a little */
        length = sequence->length - (sequence->length ? random_below(&sim->random, 2) : 0);
    end_part(sim, sequence, REQUEST_TRUNCATE, length);
}

void event_release(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_end);

    if (sequence)
        end_part(sim, sequence, REQUEST_RELEASE, 0);
}

void event_preempt(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_end);

    if (sequence)
        end_part(sim, sequence, REQUEST_PREEMPT, 0);
}

/* What was generated is shared, published by one, and preempted by the other. */
void event_branch(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SEQUENCES, is_whole);
    const struct sim_sequence *child = free_sequence(sim);

    if (index == SIM_NONE || !child)
        return;
    sim->focus = index + 1;
    event_append(sim);
    event_fork(sim);
    event_publish(sim);
    if (random_chance(&sim->random, 2))
        event_release(sim);
    sim->focus = child->is_used ? (uint32_t)(child - sim->sequences) + 1 : 0;
    if (sim->focus)
        event_preempt(sim);
    sim->focus = 0;
}

/* ---- questions ------------------------------------------------------------------------------ */

static void inspect_place(struct sim *sim, const struct sim_sequence *sequence)
{
    uint32_t group = random_below(&sim->random, sim_shape(sim, sequence->model)->num_groups);
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0;

    int err = pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count);
    sim_expect(sim, err == 0, "table: %d", err);
    const struct pool_place *place = &places[count ? random_below(&sim->random, count) : 0];
    if (count == 0 || place->slot == 0)
        return;
    uint32_t arena = sim_arena_of(sim, sequence, group, place->is_shared);
    err = pool_place_verify(sim->pool, arena, place->slot, place->generation);
    sim_expect(sim, err == 0, "verify of a place in a table: %d", err);
    err = pool_place_verify(sim->pool, arena, place->slot, place->generation + 1);
    sim_expect(sim, err == POOL_STALE, "verify of another generation: %d", err);
    sim_expect(sim, pool_slot_holds(sim->pool, arena, place->slot) > 0, "a table without a hold");
}

void event_inspect(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, sim_is_sequence);
    uint32_t ids[SIM_MAX_TOKENS];
    struct pool_key key;

    if (!sequence || sequence->is_promoting)
        return;
    uint32_t length = sequence->length;
    uint32_t block_tokens = sim_shape(sim, sequence->model)->block_tokens;
    int err = pool_sequence_tokens(sim->pool, sequence->name, 0, length, ids);
    sim_expect(sim, err == 0 && memcmp(ids, sequence->ids, length * sizeof(*ids)) == 0,
               "tokens of a sequence: %d", err);
    err = pool_sequence_tokens(sim->pool, sequence->name, 0, length + sequence->growth + 1, ids);
    sim_expect(sim, err == POOL_INVALID, "tokens beyond a sequence: %d", err);
    if (length >= block_tokens && !sequence->is_preempted) {
        uint32_t position = random_below(&sim->random, length / block_tokens);
        err = pool_sequence_key(sim->pool, sequence->name, position, &key);
        uint64_t hash = sequence->hash[(position + 1) * block_tokens - 1];
        sim_expect(sim, err == 0 && oracle_key_hash(&key, sequence->domain) == hash,
                   "key of a sequence: %d", err);
    }
    inspect_place(sim, sequence);
    oracle_check_sequence(sim, sequence);
}
