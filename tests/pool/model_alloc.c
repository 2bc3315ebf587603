/* tests/pool/model_alloc.c - the naive model's alloc, find, resume and append. */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sequence *find_sequence(const struct naive *naive, const char *name)
{
    for (size_t i = 0; i < naive->num_sequences; i++)
        if (strcmp(naive->sequences[i]->name, name) == 0)
            return naive->sequences[i];
    return NULL;
}

void naive_sequence_destroy(struct sequence *sequence)
{
    if (!sequence)
        return;
    for (size_t i = 0; i < sequence->num_extras; i++)
        free((void *)sequence->extras[i].bytes);
    for (size_t group = 0; group < SCRIPT_MAX_GROUPS; group++)
        free(sequence->tables[group].items);
    free(sequence->extras);
    free(sequence->tokens);
    free(sequence);
}

static size_t num_groups(const struct naive *naive, const struct sequence *sequence)
{
    return naive->models[sequence->model].num_groups;
}

void print_tables(const struct naive *naive, const struct sequence *sequence, struct text *answer)
{
    text_add(answer, "table=");
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        const struct places *table = &sequence->tables[group];
        if (group)
            text_add(answer, ";");
        for (size_t i = 0; i < table->num; i++) {
            struct place place = table->items[i];
            const struct payer *payer = &naive->payers[naive->slots.arenas[place.arena].payer];
            if (i)
                text_add(answer, ",");
            if (place.index && payer->is_domain)
                text_add(answer, "%s:", payer->name);
            text_add(answer, "%u", place.index);
        }
    }
}

/* ---- prompts ---- */

static bool can_read(const struct naive *naive, uint32_t domain, uint32_t tenant)
{
    if (domain == NO_INDEX || !naive->payers[domain].is_domain)
        return false;
    if (naive->payers[tenant].is_domain)
        return true; /* the operator; that this makes no sense is said later */
    for (size_t i = 0; i < naive->payers[domain].num_readers; i++)
        if (naive->payers[domain].readers[i] == tenant)
            return true;
    return false;
}

static void add_tokens(struct sequence *sequence, const uint32_t *tokens, size_t num_tokens)
{
    size_t num = sequence->num_tokens + num_tokens;

    sequence->tokens =
        grow(sequence->tokens, &sequence->tokens_capacity, num, sizeof(*sequence->tokens));
    if (num_tokens)
        memcpy(sequence->tokens + sequence->num_tokens, tokens, num_tokens * sizeof(*tokens));
    sequence->num_tokens = num;
}

static struct sequence *sequence_create(const struct script_command *command)
{
    struct sequence *sequence = calloc(1, sizeof(*sequence));

    assert(sequence);
    strcpy(sequence->name, command->name);
    strcpy(sequence->session, command->session);
    sequence->has_salt = command->has_salt;
    sequence->has_adapter = command->has_adapter;
    strcpy(sequence->salt, command->salt);
    strcpy(sequence->adapter, command->adapter);
    sequence->raw = command->raw;
    sequence->mapped = command->mapped;
    add_tokens(sequence, command->tokens, command->num_tokens);
    sequence->extras = calloc(command->num_extras + 1, sizeof(*sequence->extras));
    assert(sequence->extras);
    for (size_t i = 0; i < command->num_extras; i++) {
        struct script_extra *extra = &sequence->extras[sequence->num_extras++];
        *extra = command->extras[i];
        uint8_t *bytes = malloc(extra->num_bytes);
        assert(bytes);
        extra->bytes = memcpy(bytes, command->extras[i].bytes, extra->num_bytes);
    }
    return sequence;
}

/* "error first, then in that order": NOT_FOUND, EXISTS, INVALID. */
int make_prompt(struct naive *naive, const struct script_command *command, struct text *answer,
                struct sequence **out)
{
    uint32_t model, payer, shared = NO_INDEX;
    int result = resolve(naive, command, &model, &payer, answer);

    if (result)
        return result;
    if (*command->layered) {
        shared = find_payer(naive, command->layered);
        if (!can_read(naive, shared, payer))
            return refuse(answer, NOT_FOUND);
    }
    if (command->verb == VERB_ALLOC && find_sequence(naive, command->name))
        return refuse(answer, EXISTS);
    if (command->num_tokens == 0 || (shared != NO_INDEX && naive->payers[payer].is_domain))
        return refuse(answer, INVALID);
    *out = sequence_create(command);
    (*out)->model = model;
    (*out)->payer = payer;
    (*out)->shared = shared;
    return 0;
}

/* ---- allocation ---- */

/* An allocation being tried: how many blocks its tables have in the end, and what it may do. */
struct attempt {
    struct match match;
    size_t num_blocks;
    bool takes_slots;
};

/* "more than the empty pool (or the tenant's limit) has", in granules, a shared domain's aside. */
static bool never_fits(const struct naive *naive, const struct sequence *sequence,
                       const struct attempt *attempt)
{
    uint64_t sum = 0;

    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        const struct places *planned = &naive->planned[group];
        uint64_t per_granule = naive->models[sequence->model].groups[group].per_granule;
        uint64_t blocks = attempt->num_blocks - attempt->match.num_blocks;
        for (size_t i = attempt->match.num_shared; i < planned->num; i++)
            blocks += planned->items[i].index != 0;
        sum += (blocks + per_granule - 1) / per_granule;
    }
    return sum > naive->num_granules || sum > naive->payers[sequence->payer].limit;
}

/* "another sequence holds a block" */
static bool does_another_hold(const struct naive *naive, const struct sequence *sequence)
{
    for (size_t i = 0; i < naive->num_sequences; i++) {
        const struct sequence *other = naive->sequences[i];
        for (size_t group = 0; other != sequence && group < num_groups(naive, other); group++)
            for (size_t block = 0; block < other->tables[group].num; block++)
                if (other->tables[group].items[block].index)
                    return true;
    }
    return false;
}

/* In naive->trial: "holds the matched blocks, then takes new slots, group after group". */
static bool try_alloc(struct naive *naive, const struct sequence *sequence,
                      const struct attempt *attempt, bool ignore_limit)
{
    slots_copy(&naive->trial, &naive->slots);
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        struct places *planned = &naive->planned[group];
        planned->num = attempt->match.num_blocks; /* what an earlier try took is forgotten */
        for (size_t i = 0; i < planned->num; i++)
            if (planned->items[i].index)
                hold(&naive->trial, planned->items[i]);
    }
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        uint32_t slot, arena = find_arena(naive, sequence->payer, sequence->model, group);
        for (size_t i = attempt->match.num_blocks; i < attempt->num_blocks; i++) {
            if (!take_slot(naive, &naive->trial, arena, ignore_limit, &slot))
                return false;
            places_add(&naive->planned[group], arena, slot);
        }
    }
    return true;
}

/* "new slots are taken, another sequence holds a block, and fewer ... would be left" */
static bool is_above_watermark(const struct naive *naive, const struct sequence *sequence,
                               const struct attempt *attempt)
{
    return !attempt->takes_slots || !does_another_hold(naive, sequence) ||
           can_be_had(naive, &naive->trial, sequence->payer) >= naive->watermark;
}

/* Tries; on success naive->trial is what the slots shall be. Else which refusal it is. */
static int attempt_alloc(struct naive *naive, const struct sequence *sequence,
                         const struct attempt *attempt)
{
    if (never_fits(naive, sequence, attempt))
        return NEVER_FITS;
    if (try_alloc(naive, sequence, attempt, false))
        return is_above_watermark(naive, sequence, attempt) ? 0 : NO_BLOCKS;
    /* "QUOTA: only the tenant's limit is in the way" */
    return try_alloc(naive, sequence, attempt, true) && is_above_watermark(naive, sequence, attempt)
               ? QUOTA
               : NO_BLOCKS;
}

static void accept_trial(struct naive *naive)
{
    struct slots slots = naive->slots;

    naive->slots = naive->trial;
    naive->trial = slots;
}

/* What alloc and resume share: @sequence has tokens and no blocks. 0, or it has answered. */
static int allocate(struct naive *naive, struct sequence *sequence,
                    const struct script_command *command, struct text *answer)
{
    struct attempt attempt = {.match = find_match(naive, sequence)};
    uint64_t matched = attempt.match.num_blocks * naive->block_tokens;
    uint64_t beyond = sequence->num_tokens - matched;
    uint64_t arriving = arriving_tokens(naive, sequence, attempt.match.num_blocks);

    /* "the sequence then has matched + N tokens, at most n" */
    uint64_t length = matched + (command->take < beyond ? command->take : beyond);
    attempt.num_blocks = (length + naive->block_tokens - 1) / naive->block_tokens;
    attempt.takes_slots = attempt.num_blocks > attempt.match.num_blocks;
    int refusal = attempt_alloc(naive, sequence, &attempt);
    if (refusal)
        return refuse(answer, (enum refusal)refusal);

    accept_trial(naive);
    naive->query_tokens += sequence->num_tokens;
    naive->hit_tokens += matched;
    sequence->num_tokens = length;
    sequence->num_considered = attempt.match.num_blocks;
    sequence->epoch = naive->epoch;
    sequence->is_unfilled = command->unfilled;
    sequence->is_preempted = false;
    for (size_t group = 0; group < num_groups(naive, sequence); group++)
        places_copy(&sequence->tables[group], &naive->planned[group]);
    if (!sequence->is_unfilled)
        publish(naive, sequence);
    text_add(answer, "ok matched=%llu arriving=%llu ", (unsigned long long)matched,
             (unsigned long long)arriving);
    print_tables(naive, sequence, answer);
    return 0;
}

static void use_session(struct naive *naive, const char *session)
{
    if (!*session)
        return;
    for (size_t i = 0; i < naive->num_sessions; i++)
        if (strcmp(naive->sessions[i], session) == 0)
            return;
    naive->sessions = grow(naive->sessions, &naive->sessions_capacity, naive->num_sessions + 1,
                           sizeof(*naive->sessions));
    strcpy(naive->sessions[naive->num_sessions++], session);
}

void run_alloc(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence;

    if (make_prompt(naive, command, answer, &sequence))
        return;
    if (allocate(naive, sequence, command, answer)) {
        naive_sequence_destroy(sequence);
        return;
    }
    naive->sequences = grow(naive->sequences, &naive->sequences_capacity, naive->num_sequences + 1,
                            sizeof(struct sequence *));
    naive->sequences[naive->num_sequences++] = sequence;
    use_session(naive, sequence->session);
}

/* "resume is an alloc of the same tokens, ID, session, raw and mapped" */
void run_resume(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence)
        (void)refuse(answer, NOT_FOUND);
    else if (!sequence->is_preempted || sequence->num_tokens == 0)
        (void)refuse(answer, INVALID);
    else if (allocate(naive, sequence, command, answer) == 0)
        use_session(naive, sequence->session);
}

void run_find(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *prompt;

    if (make_prompt(naive, command, answer, &prompt))
        return;
    text_add(answer, "matched=%llu",
             (unsigned long long)(find_match(naive, prompt).num_blocks * naive->block_tokens));
    naive_sequence_destroy(prompt);
}

/* ---- append ---- */

/* The partial last block of a group's table, if there is one. */
static const struct place *partial_tail(const struct naive *naive, const struct sequence *sequence,
                                        size_t group)
{
    if (sequence->num_tokens % naive->block_tokens == 0)
        return NULL;
    return &sequence->tables[group].items[sequence->num_tokens / naive->block_tokens];
}

/*
 * "A tail block that is partial and shared by another table, or published, or in D's arena, is
 * first replaced by a copy"; as a last resort one that is published in the sequence's own arena but
 * held by nobody else is not.
 */
static bool needs_copy(const struct naive *naive, const struct sequence *sequence, size_t group,
                       bool last_resort)
{
    const struct place *tail = partial_tail(naive, sequence, group);

    if (!tail)
        return false;
    const struct arena *arena = &naive->slots.arenas[tail->arena];
    const struct slot *slot = &arena->slots[tail->index];
    bool is_shared = slot->holds > 1 || arena->payer != sequence->payer;
    return is_shared || (slot->state == SLOT_PUBLISHED && !last_resort);
}

/* In naive->trial: "Slots are taken group after group, the copy's first". */
static bool try_append(struct naive *naive, const struct sequence *sequence, size_t num_blocks,
                       bool last_resort, bool ignore_limit)
{
    slots_copy(&naive->trial, &naive->slots);
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        struct places *planned = &naive->planned[group];
        uint32_t slot, arena = find_arena(naive, sequence->payer, sequence->model, group);
        places_copy(planned, &sequence->tables[group]);
        if (needs_copy(naive, sequence, group, last_resort)) {
            if (!take_slot(naive, &naive->trial, arena, ignore_limit, &slot))
                return false;
            planned->items[planned->num - 1] = (struct place){arena, slot};
        }
        while (planned->num < num_blocks) {
            if (!take_slot(naive, &naive->trial, arena, ignore_limit, &slot))
                return false;
            places_add(planned, arena, slot);
        }
    }
    return true;
}

/* After a successful try: "then the old tail is let go of"; or its key is taken away. */
static void replace_tails(struct naive *naive, struct sequence *sequence)
{
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        const struct place *tail = partial_tail(naive, sequence, group);
        if (!tail)
            continue;
        struct place old = *tail,
                     now = naive->planned[group].items[tail - sequence->tables[group].items];
        struct slot *slot = &naive->slots.arenas[old.arena].slots[old.index];
        if (old.arena != now.arena || old.index != now.index) {
            let_go(&naive->slots, old, NULL);
            naive->copies++;
        } else {
            slot->state = SLOT_PRIVATE;
            slot->key = NO_INDEX;
        }
    }
}

void run_append(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (command->num_tokens == 0 || sequence->is_preempted || sequence->is_unfilled) {
        (void)refuse(answer, INVALID);
        return;
    }
    size_t num_tokens = sequence->num_tokens + command->num_tokens;
    size_t num_blocks = (num_tokens + naive->block_tokens - 1) / naive->block_tokens;
    if (!try_append(naive, sequence, num_blocks, false, false) &&
        !try_append(naive, sequence, num_blocks, true, false)) {
        /* "of the last three refusals never NEVER_FITS" */
        bool fits = try_append(naive, sequence, num_blocks, true, true);
        (void)refuse(answer, fits ? QUOTA : NO_BLOCKS);
        return;
    }
    accept_trial(naive);
    replace_tails(naive, sequence);
    for (size_t group = 0; group < num_groups(naive, sequence); group++)
        places_copy(&sequence->tables[group], &naive->planned[group]);
    add_tokens(sequence, command->tokens, command->num_tokens);
    text_add(answer, "ok ");
    print_tables(naive, sequence, answer);
}
