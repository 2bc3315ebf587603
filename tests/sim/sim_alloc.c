/*
 * tests/sim/sim_alloc.c - events: verbs that match, and what they must find, wait for and start.
 */
#include "tests/sim/sim_tiers.h"

static bool can_resume(const struct sim *sim, uint32_t index)
{
    return sim->sequences[index].is_used && sim->sequences[index].is_preempted;
}

static void check_found(struct sim *sim, const struct sim_prompt *prompt,
                        const struct sim_match *match, const struct pool_found *found)
{
    uint32_t block_tokens = sim_shape(sim, prompt->model)->block_tokens;
    uint64_t count = prompt->prompt.tokens.count, end = found->matched + found->arriving;

    sim_expect(sim, found->matched == match->tokens, "matched %lu, should be %u", found->matched,
               match->tokens);
    sim_expect(sim, found->below == match->below, "%lu tokens are below, should be %u",
               found->below, match->below);
    sim_expect(sim, found->arriving % block_tokens == 0 && end <= count, "arriving %lu",
               found->arriving);
    for (uint64_t at = found->matched; at < end; at += block_tokens) {
        uint32_t position = (uint32_t)at / block_tokens;
        sim_expect(sim,
                   oracle_has_filler(sim, &(struct sim_fill){prompt->domain, prompt->model,
                                                             position, position,
                                                             prompt->hash[at + block_tokens - 1]}),
                   "nobody fills what is said to be arriving");
    }
}

void event_match(struct sim *sim)
{
    struct sim_prompt prompt;
    struct pool_found found;

    engine_prompt(sim, &prompt);
    struct sim_match match = oracle_match(sim, &prompt);
    uint64_t before = sim->has_slices ? 0 : sim_digest(sim);
    int answer = pool_match(sim->pool, &prompt.prompt, &found);
    sim_trace(sim, "match %lu tokens: %d\n", prompt.prompt.tokens.count, answer);
    sim_settle(sim);
    expect_answer(sim, "match", answer,
                  MAY(POOL_LIMIT) | (prompt.prompt.tokens.count ? 0 : MAY(POOL_INVALID)));
    if (answer == 0)
        check_found(sim, &prompt, &match, &found);
    sim_expect(sim, !before || sim_digest(sim) == before, "a match changed something");
}

/* ---- alloc and resume ----------------------------------------------------------------------- */

static void sequence_set(struct sim *sim, struct sim_sequence *sequence,
                         const struct sim_prompt *prompt, const struct pool_alloc_options *options,
                         const struct pool_found *found)
{
    uint64_t take = options->take, rest = prompt->prompt.tokens.count - found->matched;

    sequence->is_used = true;
    sequence->is_raw = prompt->prompt.is_raw;
    sequence->is_mapped = options->is_mapped;
    sequence->is_preempted = false;
    sequence->is_promoting = false;
    sequence->payer = prompt->payer;
    sequence->domain = prompt->domain;
    sequence->shared = prompt->shared;
    sequence->model = prompt->model;
    sequence->salt = prompt->salt;
    sequence->length = (uint32_t)(found->matched + (take < rest ? take : rest));
    sequence->num_complete = options->is_unfilled ? (uint32_t)found->matched : sequence->length;
    sequence->num_prompt = (uint32_t)prompt->prompt.tokens.count; /* the rest may be appended */
    sequence->num_matched = sequence->num_written = (uint32_t)found->matched;
    sequence->is_filled = !options->is_unfilled;
    sequence->step = SIM_NONE;
    sequence->cookie = 0;
    sequence->growth = 0;
    sequence->label = device_label(sim, prompt->domain, prompt->model);
    sequence->shared_label =
        prompt->shared == SIM_NONE ? 0 : device_label(sim, prompt->shared, prompt->model);
    sequence->considered = (uint32_t)found->matched / sim_shape(sim, prompt->model)->block_tokens;
    memcpy(sequence->ids, prompt->ids, sequence->length * sizeof(*sequence->ids));
    memcpy(sequence->hash, prompt->hash, sequence->length * sizeof(*sequence->hash));
    want_note(sim, sequence, sequence->length);
}

static void options_draw(struct sim *sim, struct pool_alloc_options *out)
{
    *out = (struct pool_alloc_options){
        .is_mapped = random_chance(&sim->random, 5),
        .is_unfilled = random_chance(&sim->random, 2),
        .take = random_chance(&sim->random, 4) ? random_below(&sim->random, sim->max_length)
                                               : POOL_TAKE_ALL,
        .cookie = ++sim->next_cookie,
        .deadline_ms = random_chance(&sim->random, 3)
                           ? 0
                           : sim->now_ms + 1 + random_below(&sim->random, 3000)};
}

/* It was answered 0 or POOL_PENDING: the sequence is there, @before is what it was (a resume). */
static void sequence_begin(struct sim *sim, struct sim_sequence *sequence,
                           enum sim_request_kind kind, const struct sim_prompt *prompt,
                           const struct pool_alloc_options *options, const struct pool_found *found,
                           const struct sim_match *match)
{
    uint32_t index = (uint32_t)(sequence - sim->sequences);
    struct sim_request request = {.kind = kind,
                                  .cookie = options->cookie,
                                  .session = sequence->session,
                                  .subject = index,
                                  .deadline_ms =
                                      options->deadline_ms ? options->deadline_ms : UINT64_MAX,
                                  .troubles = sim->troubles};

    sim->before[index] = *sequence;
    sequence_set(sim, sequence, prompt, options, found);
    memcpy(request.hits, match->hits, sizeof(request.hits));
    if (found->below == 0) {
        oracle_count_hits(sim, request.hits);
        return;
    }
    sequence->is_promoting = true;
    sequence->cookie = options->cookie;
    engine_request(sim, &request);
}

static void check_pending(struct sim *sim, const char *verb, int answer,
                          const struct sim_match *match)
{
    if (answer == 0)
        sim_expect(sim, match->below == 0, "%s: granted, with %u tokens below", verb, match->below);
    if (answer == POOL_PENDING)
        sim_expect(sim, match->below > 0, "%s: waits for nothing", verb);
}

static uint32_t askers_of(const struct sim_prompt *prompt)
{
    return 1U << prompt->domain | (prompt->shared == SIM_NONE ? 0 : 1U << prompt->shared);
}

void event_alloc(struct sim *sim)
{
    uint32_t session = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);
    struct sim_sequence *sequence = free_sequence(sim), *taken;
    struct sim_prompt prompt;
    struct pool_alloc_options options;
    struct pool_found found;
    struct sim_books books;

    if (session == SIM_NONE || !sequence)
        return;
    engine_prompt(sim, &prompt);
    options_draw(sim, &options);

    struct pool_name name = {sim->sessions[session].id, sim->sessions[session].next_name};
    taken = random_chance(&sim->random, 50) ? pick_sequence(sim, sim_is_sequence) : NULL;
    if (taken)
        name = taken->name;
    struct sim_match match = oracle_match(sim, &prompt);
    uint64_t before = digest_before(sim);
    books_open(sim, &books);
    int answer = pool_alloc(sim->pool, name, &prompt.prompt, &options, &found);
    sim_trace(sim,
              "alloc %u:%lu %lu tokens model %u tenant %u domain %u shared %d%s%s take %ld cookie "
              "%lu: %d\n",
              session, name.id, prompt.prompt.tokens.count, prompt.model, prompt.payer,
              prompt.domain, (int)prompt.shared, options.is_mapped ? " mapped" : "",
              options.is_unfilled ? " unfilled" : "", (long)options.take, options.cookie, answer);
    books_close(sim, &books, askers_of(&prompt));
    digest_after(sim, before, answer);
    check_pending(sim, "alloc", answer, &match);
    bool is_refused = taken || sim->is_draining || prompt.prompt.tokens.count == 0;
    bool is_begun = !is_refused && (answer == 0 || answer == POOL_PENDING);
    if (is_begun) {
        check_found(sim, &prompt, &match, &found);
        sim->sessions[session].next_name++;
        sequence->session = session;
        sequence->name = name;
        sequence_begin(sim, sequence, REQUEST_ALLOC, &prompt, &options, &found, &match);
    }
    sim_settle(sim);
    if (is_refused) {
        expect_refusal(sim, "alloc", answer,
                       MAY(POOL_EXISTS) | MAY(POOL_DRAINING) | MAY(POOL_INVALID) | MAY(POOL_LIMIT));
        return;
    }
    expect_answer(sim, "alloc", answer, NO_ROOM | MAY(POOL_PENDING));
    if (answer != 0)
        return;
    engine_write_new(sim, sequence, (uint32_t)found.matched);
    oracle_check_sequence(sim, sequence);
}

void event_resume(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_resume);
    struct sim_prompt prompt;
    struct pool_alloc_options options;
    struct pool_found found;
    struct sim_books books;

    if (!sequence)
        return;
    engine_tokens(sim, sequence, 0, sequence->length, 0, &prompt);
    options_draw(sim, &options);
    struct sim_match match = oracle_match(sim, &prompt);
    uint64_t before = digest_before(sim);
    books_open(sim, &books);
    int answer = pool_resume(sim->pool, sequence->name, &prompt.prompt.tokens, &options, &found);
    sim_trace(sim, "resume %u:%lu cookie %lu: %d\n", sequence->session, sequence->name.id,
              options.cookie, answer);
    books_close(sim, &books, askers_of(&prompt));
    digest_after(sim, before, answer);
    bool is_refused = sequence->cookie || !sequence->is_preempted || sequence->length == 0;
    bool is_begun = !is_refused && (answer == 0 || answer == POOL_PENDING);
    if (is_begun) {
        check_pending(sim, "resume", answer, &match);
        check_found(sim, &prompt, &match, &found);
        options.is_mapped = sequence->is_mapped;
        sequence_begin(sim, sequence, REQUEST_RESUME, &prompt, &options, &found, &match);
    }
    sim_settle(sim);
    if (is_refused) {
        expect_refusal(sim, "resume", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
        return;
    }
    expect_answer(sim, "resume", answer,
                  NO_ROOM | MAY(POOL_NOT_FOUND) | MAY(POOL_DRAINING) | MAY(POOL_PENDING));
    if (answer != 0)
        return;
    engine_write_new(sim, sequence, (uint32_t)found.matched);
    oracle_check_sequence(sim, sequence);
}

/* ---- prefetch ------------------------------------------------------------------------------- */

static void check_prefetched(struct sim *sim, const struct sim_prompt *prompt,
                             const struct sim_match *match, const struct pool_prefetched *found)
{
    uint32_t block_tokens = sim_shape(sim, prompt->model)->block_tokens;

    sim_expect(sim, found->matched == match->tokens, "prefetch matched %lu, should be %u",
               found->matched, match->tokens);
    sim_expect(sim, found->present == match->present, "%lu tokens are present, should be %u",
               found->present, match->present);
    sim_expect(
        sim, found->coming % block_tokens == 0 && found->present + found->coming <= found->matched,
        "%lu tokens come", found->coming);
}

void event_prefetch(struct sim *sim)
{
    struct sim_prompt prompt;
    struct pool_prefetched found;
    struct sim_books books;

    engine_prompt(sim, &prompt);
    struct sim_match match = oracle_match(sim, &prompt);
    books_open(sim, &books);
    int answer = pool_prefetch(sim->pool, &prompt.prompt, &found);
    sim_trace(sim, "prefetch %lu tokens: %d\n", prompt.prompt.tokens.count, answer);
    books_close(sim, &books, askers_of(&prompt));
    expect_answer(sim, "prefetch", answer,
                  MAY(POOL_LIMIT) | (prompt.prompt.tokens.count ? 0 : MAY(POOL_INVALID)));
    if (answer == 0)
        check_prefetched(sim, &prompt, &match, &found);
    sim_settle(sim);
}

void event_prefetch_sequence(struct sim *sim)
{
    struct sim_sequence *sequence = pick_sequence(sim, can_resume);
    struct sim_prompt prompt;
    struct pool_prefetched found;
    struct sim_books books;

    if (!sequence)
        return;
    engine_tokens(sim, sequence, 0, sequence->length, 0, &prompt);
    struct sim_match match = oracle_match(sim, &prompt);
    books_open(sim, &books);
    int answer = pool_prefetch_sequence(sim->pool, sequence->name, &prompt.prompt.tokens, &found);
    sim_trace(sim, "prefetch_sequence %u:%lu: %d\n", sequence->session, sequence->name.id, answer);
    books_close(sim, &books, askers_of(&prompt));
    bool is_refused = sequence->cookie || !sequence->is_preempted || sequence->length == 0;
    if (answer == 0 && !is_refused)
        check_prefetched(sim, &prompt, &match, &found);
    sim_settle(sim);
    if (is_refused)
        expect_refusal(sim, "prefetch_sequence", answer, MAY(POOL_BUSY) | MAY(POOL_INVALID));
    else
        expect_answer(sim, "prefetch_sequence", answer, MAY(POOL_NOT_FOUND) | MAY(POOL_LIMIT));
}
