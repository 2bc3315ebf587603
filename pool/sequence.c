/* pool/sequence.c - sequences by name: release, truncate, preempt, and what one can ask of them. */
#include "pool/sequence.h"

#include "pool/arriving.h"
#include "pool/block.h"
#include "pool/grow.h"

/* ---- by name -------------------------------------------------------------------------------- */

static uint64_t name_hash(struct pool_name name)
{
    uint64_t mixed = (name.id ^ (uint64_t)name.session << 40) * UINT64_C(0x9E3779B97F4A7C15);

    return mixed ^ mixed >> 29;
}

uint32_t sequence_find(const struct pool *pool, struct pool_name name)
{
    struct index_walk walk;

    for (uint32_t id = index_first(&pool->sequence_index, name_hash(name), &walk); id != NONE;
         id = index_next(&pool->sequence_index, &walk)) {
        const struct sequence *sequence = &pool->sequences[id];
        if (sequence->id == name.id && sequence->session == name.session)
            return pool->sessions[name.session].state == SESSION_LIVE ? id : NONE;
    }
    return NONE;
}

uint32_t sequence_create(struct pool *pool, struct pool_name name)
{
    uint32_t id = record_take(&pool->sequence_pool, LINKS(pool->sequences, in_session));
    struct session *session = &pool->sessions[name.session];

    assert(id != NONE);
    pool->sequences[id] = (struct sequence){.id = name.id,
                                            .session = name.session,
                                            .is_used = true,
                                            .step = NONE,
                                            .shared = POOL_NONE,
                                            .shared_shelf = NONE,
                                            .token_chunk = NONE,
                                            .table_chunk = NONE};
    for (uint32_t group = 0; group < POOL_MAX_GROUPS; group++)
        pool->sequences[id].growth.old_tails[group] = NONE;
    index_insert(&pool->sequence_index, name_hash(name), id);
    list_push_tail(&session->sequences, LINKS(pool->sequences, in_session), id);
    session->num_sequences++;
    return id;
}

void sequence_destroy(struct pool *pool, uint32_t id)
{
    struct sequence *sequence = &pool->sequences[id];
    struct session *session = &pool->sessions[sequence->session];
    struct links links = LINKS(pool->sequences, in_session);

    index_remove(&pool->sequence_index,
                 name_hash((struct pool_name){sequence->session, sequence->id}), id);
    chain_release(pool->token_chunks, sequence->token_chunk);
    list_remove(&session->sequences, links, id);
    session->num_sequences--;
    sequence->is_used = false;
    record_give(&pool->sequence_pool, links, id);
}

void sequence_let_go(struct pool *pool, uint32_t id)
{
    struct sequence *sequence = &pool->sequences[id];

    arriving_withdraw(pool, sequence, 0);
    grow_forget(pool, sequence);
    pool->batch++;
    table_truncate(pool, sequence, 0);
}

/* ---- verbs that take blocks out of a table --------------------------------------------------- */

static int do_truncate(struct pool *pool, uint32_t id, uint64_t num_tokens)
{
    struct sequence *sequence = &pool->sequences[id];
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens;
    uint32_t length = positions_of(pool, sequence, num_tokens);
    uint32_t full = (uint32_t)(num_tokens / block_tokens);

    if (num_tokens > sequence->num_complete)
        return POOL_INVALID;
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        if (window_start(&pool->models[sequence->model], group, num_tokens) <
                sequence->first_kept[group] &&
            num_tokens > 0)
            return POOL_INVALID; /* a block that the next token reads is gone */
    }
    if (length < sequence->num_positions && !table_can_write(pool, sequence, length, length))
        return POOL_LIMIT;
    arriving_withdraw(pool, sequence, full);
    pool->batch++;
    table_truncate(pool, sequence, length);
    tokens_truncate(pool, sequence, num_tokens);
    sequence->num_complete = num_tokens;
    if (sequence->num_prompt > num_tokens)
        sequence->num_prompt = num_tokens;
    if (sequence->considered > full)
        sequence->considered = full;
    if (sequence->num_shared > length)
        sequence->num_shared = length;
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        if (sequence->first_kept[group] > length)
            sequence->first_kept[group] = length;
    }
    return 0;
}

static int do_release(struct pool *pool, uint32_t id)
{
    sequence_let_go(pool, id);
    sequence_destroy(pool, id);
    return 0;
}

void sequence_preempt(struct pool *pool, uint32_t id)
{
    struct sequence *sequence = &pool->sequences[id];

    sequence_let_go(pool, id);
    sequence->is_preempted = true;
    sequence->is_filled = true;
    sequence->num_complete = sequence->length;
    sequence->considered = 0;
    sequence->num_shared = 0;
}

/* All its tokens so far count as prompt: what it published of them is to be kept below. */
static void want_all(struct pool *pool, struct sequence *sequence)
{
    sequence->num_prompt = sequence->length;
    if (pool->num_tiers == 1 || pool->sessions[sequence->session].store == POOL_STORE_NONE)
        return;

    const struct model *model = &pool->models[sequence->model];
    uint64_t block_tokens = model->shape.block_tokens, length = sequence->length;
    uint64_t hit = length > 0 ? (length - 1) / block_tokens * block_tokens : 0;
    (void)table_path(pool, sequence, 0);
    for (uint64_t at = 0; at < length / block_tokens; at++) { /* its tail may be longer than it */
        for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
            uint32_t block = table_at(pool, sequence, 0, (uint32_t)at)[group].block;
            if (block != NONE && block_is_published(pool, &pool->blocks[block]) &&
                at >= window_start(model, group, hit))
                pool->blocks[block].is_wanted = 1;
        }
    }
}

static int do_preempt(struct pool *pool, uint32_t id)
{
    want_all(pool, &pool->sequences[id]);
    sequence_preempt(pool, id);
    pool->counters.preemptions++;
    return 0;
}

static int run_verb(struct pool *pool, uint32_t id, enum waiting_verb verb, uint64_t argument)
{
    switch (verb) {
    case WAITING_TRUNCATE:
        return do_truncate(pool, id, argument);
    case WAITING_RELEASE:
        return do_release(pool, id);
    default:
        return do_preempt(pool, id);
    }
}

void sequence_run_waiting(struct pool *pool, uint32_t id)
{
    struct sequence *sequence = &pool->sequences[id];
    enum waiting_verb verb = sequence->waiting_verb;
    uint64_t cookie = sequence->waiting_cookie;

    if (verb == WAITING_NONE)
        return;
    sequence->waiting_verb = WAITING_NONE;
    emit_reply(pool, cookie, run_verb(pool, id, verb, sequence->waiting_argument));
}

/* Complete tokens, once the step that it is in has ended. */
static uint64_t length_to_come(const struct sequence *sequence, const struct step *step)
{
    return step && !step->is_commit ? sequence->num_complete : sequence->length;
}

/* Carries the verb out, or lets it wait for the attends of a step that ended. */
static int begin_verb(struct pool *pool, struct pool_name name, enum waiting_verb verb,
                      uint64_t argument, uint64_t cookie)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    const struct step *step = step_of(pool, sequence);
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (verb != WAITING_RELEASE && sequence->is_preempted)
        return POOL_INVALID;
    if (verb == WAITING_TRUNCATE &&
        (!sequence->is_filled || argument > length_to_come(sequence, step)))
        return POOL_INVALID;
    if (step && step->state != STEP_ENDING)
        return POOL_INVALID; /* the step is open */
    if (sequence_is_busy(sequence))
        return POOL_BUSY;
    if (!step)
        return run_verb(pool, id, verb, argument);
    sequence->waiting_verb = verb;
    sequence->waiting_argument = argument;
    sequence->waiting_cookie = cookie;
    return POOL_PENDING;
}

int pool_truncate(struct pool *pool, struct pool_name name, uint64_t num_tokens, uint64_t cookie)
{
    return begin_verb(pool, name, WAITING_TRUNCATE, num_tokens, cookie);
}

int pool_release(struct pool *pool, struct pool_name name, uint64_t cookie)
{
    return begin_verb(pool, name, WAITING_RELEASE, 0, cookie);
}

int pool_preempt(struct pool *pool, struct pool_name name, uint64_t cookie)
{
    return begin_verb(pool, name, WAITING_PREEMPT, 0, cookie);
}

int pool_fill(struct pool *pool, struct pool_name name)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (sequence->is_preempted || sequence->is_filled || sequence->step != NONE)
        return POOL_INVALID;
    sequence->is_filled = true;
    sequence->num_complete = sequence->length;
    return 0;
}

/* ---- questions ------------------------------------------------------------------------------ */

int pool_describe(const struct pool *pool, struct pool_name name,
                  struct pool_sequence_description *out_description)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    *out_description = (struct pool_sequence_description){.tenant = sequence->tenant,
                                                          .domain = sequence->domain,
                                                          .shared = sequence->shared,
                                                          .model = sequence->model,
                                                          .length = sequence->length,
                                                          .num_complete = sequence->num_complete,
                                                          .is_preempted = sequence->is_preempted,
                                                          .is_mapped = sequence->is_mapped,
                                                          .is_filled = sequence->is_filled};
    return 0;
}

int pool_sequence_tokens(struct pool *pool, struct pool_name name, uint64_t first, uint64_t count,
                         uint32_t *out)
{
    uint32_t id = sequence_find(pool, name);

    return id == NONE ? POOL_NOT_FOUND : tokens_copy(pool, &pool->sequences[id], first, count, out);
}

int pool_sequence_key(struct pool *pool, struct pool_name name, uint64_t position,
                      struct pool_key *out_key)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    if (position >= sequence->length / pool->models[sequence->model].shape.block_tokens)
        return POOL_INVALID;
    tokens_path(pool, sequence, (uint32_t)position);
    *out_key = *tokens_key_at(pool, sequence, (uint32_t)position, (uint32_t)position);
    return 0;
}

int pool_sequence_keys(struct pool *pool, struct pool_name name, uint64_t first, uint64_t count,
                       struct pool_key *out)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    uint64_t num_full = sequence->length / pool->models[sequence->model].shape.block_tokens;
    if (first > num_full || count > num_full - first)
        return POOL_INVALID;
    if (count == 0)
        return 0;
    tokens_path(pool, sequence, (uint32_t)first);
    for (uint64_t at = 0; at < count; at++)
        out[at] = *tokens_key_at(pool, sequence, (uint32_t)first, (uint32_t)(first + at));
    return 0;
}

/* No other table reaches position @first through a chunk that it shares. */
static bool has_own_chunks(struct pool *pool, const struct sequence *sequence, uint32_t first)
{
    uint32_t num_chunks = table_path(pool, sequence, first);

    for (uint32_t at = 0; at < num_chunks; at++) {
        if (chunk_at(pool->table_chunks, pool->path[at])->refs > 1)
            return false;
    }
    return true;
}

int pool_may_write(struct pool *pool, struct pool_name name, uint32_t group, uint32_t first,
                   uint32_t count)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    if (group >= num_groups_of(pool, sequence) || sequence->step != POOL_NONE || count == 0 ||
        sequence_is_busy(sequence) || first < sequence->num_shared ||
        first > sequence->num_positions || count > sequence->num_positions - first ||
        !has_own_chunks(pool, sequence, first))
        return POOL_INVALID;
    for (uint32_t at = first; at < first + count; at++) {
        uint32_t block = table_at(pool, sequence, first, at)[group].block;
        if (block == NONE || pool->blocks[block].state != BLOCK_PRIVATE ||
            pool->blocks[block].holds > 1 ||
            block_slot(pool, &pool->blocks[block])->num_readers > 0)
            return POOL_INVALID;
    }
    return 0;
}

int pool_table(struct pool *pool, struct pool_name name, uint32_t group, struct pool_place *out,
               uint32_t max, uint32_t *out_count)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    if (group >= num_groups_of(pool, sequence))
        return POOL_INVALID;
    uint32_t count = sequence->num_positions < max ? sequence->num_positions : max;
    (void)table_path(pool, sequence, 0);
    for (uint32_t at = 0; at < count; at++) {
        const struct entry *entry = &table_at(pool, sequence, 0, at)[group];
        bool is_null = entry->block == NONE;
        out[at] = (struct pool_place){
            .slot = entry->number,
            .generation = is_null ? 0 : block_slot(pool, &pool->blocks[entry->block])->generation,
            .is_shared = !is_null && at < sequence->num_shared};
    }
    *out_count = sequence->num_positions;
    return 0;
}
