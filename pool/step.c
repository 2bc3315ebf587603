/*
 * pool/step.c - one forward pass: tokens become complete layer by layer.
 *
 *   pool_step_begin -> (COPYING: shared tails) -> OPEN: attends, any layer, repeatedly
 *     -> ENDING: ended, attends still run -> gone: committed (all layers), or abandoned
 *
 * Until then its tokens are in the tables and in nothing else: length as others see it, fork,
 * truncate and publish know only complete tokens.
 */
#include "pool/step.h"

#include "pool/grow.h"
#include "pool/sequence.h"

static uint32_t *rows_of(const struct pool *pool, uint32_t step)
{
    return &pool->step_rows[(size_t)step * pool->config.max_step_rows];
}

static struct step *step_find(const struct pool *pool, pool_step public, uint32_t *out_id)
{
    uint32_t id = (uint32_t) public;

    if (id >= pool->step_pool.num_touched || pool->steps[id].state == STEP_FREE ||
        pool->steps[id].generation != public >> 32)
        return NULL;
    *out_id = id;
    return &pool->steps[id];
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* Tokens of an unfilled allocation that wait for their K and V. */
static uint64_t num_unfilled(const struct sequence *sequence)
{
    return sequence->is_filled ? 0 : sequence->length - sequence->num_complete;
}

/* Checks one row, and says what of it is to be appended. */
static int row_check(const struct pool *pool, pool_session session, const struct pool_step_row *row,
                     struct grow_row *out_row)
{
    uint32_t id = sequence_find(pool, (struct pool_name){session, row->sequence});

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (row->tokens.count == 0 || sequence->is_preempted || sequence->is_mapped ||
        pool->models[sequence->model].shape.num_layers == 0 || /* opaque: not attended */
        sequence->step != NONE)
        return POOL_INVALID;
    if (sequence_is_busy(sequence))
        return POOL_BUSY;
    uint64_t known = num_unfilled(sequence);
    if (known > row->tokens.count)
        known = row->tokens.count;
    if (!tokens_equal(pool, sequence, sequence->num_complete, row->tokens.ids, known))
        return POOL_INVALID;
    uint64_t most = (uint64_t)pool->config.max_sequence_blocks *
                    pool->models[sequence->model].shape.block_tokens;
    if (row->tokens.count - known > most - sequence->length)
        return POOL_LIMIT;
    out_row->sequence = id;
    out_row->tokens = row->tokens;
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens;
    out_row->tokens.ids += known;
    out_row->tokens.count -= known;
    if (out_row->tokens.count > 0) /* the blocks that the known ones complete have theirs */
        out_row->tokens.keys +=
            sequence->length / block_tokens - sequence->num_complete / block_tokens;
    return 0;
}

/* Checks all rows into pool->grow_rows; each sequence is marked with the step, to see it only once.
 */
static int rows_check(struct pool *pool, uint32_t step, const struct pool_step_row *rows,
                      uint32_t num_rows)
{
    pool_session session = pool->steps[step].session;
    uint32_t at = 0, model = NONE;
    int answer = 0;

    for (; at < num_rows && !answer; at++) {
        struct grow_row *row = &pool->grow_rows[at];
        answer = row_check(pool, session, &rows[at], row);
        if (answer)
            break;
        struct sequence *sequence = &pool->sequences[row->sequence];
        if (model != NONE && sequence->model != model) {
            answer = POOL_INVALID; /* one forward pass is of one model */
            break;
        }
        model = sequence->model;
        sequence->step = step;
        rows_of(pool, step)[at] = row->sequence;
    }
    if (answer) {
        while (at-- > 0)
            pool->sequences[pool->grow_rows[at].sequence].step = NONE;
    }
    return answer;
}

static uint32_t step_take(struct pool *pool, pool_session session)
{
    uint32_t id = record_take(&pool->step_pool, LINKS(pool->steps, link));

    if (id != NONE)
        pool->steps[id] = (struct step){
            .generation = pool->steps[id].generation + 1, .state = STEP_OPEN, .session = session};
    return id;
}

static void step_give(struct pool *pool, uint32_t id)
{
    pool->steps[id].state = STEP_FREE;
    record_give(&pool->step_pool, LINKS(pool->steps, link), id);
}

int pool_step_begin(struct pool *pool, pool_session session, const struct pool_step_row *rows,
                    uint32_t num_rows, uint64_t cookie, pool_step *out_step)
{
    if (session >= pool->config.max_sessions || pool->sessions[session].state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    if (num_rows == 0)
        return POOL_INVALID;
    if (num_rows > pool->config.max_step_rows)
        return POOL_LIMIT;
    uint32_t id = step_take(pool, session);
    if (id == NONE)
        return POOL_LIMIT;

    struct step *step = &pool->steps[id];
    int answer = rows_check(pool, id, rows, num_rows);
    if (!answer && (answer = grow_begin(pool, pool->grow_rows, num_rows)) != 0) {
        for (uint32_t at = 0; at < num_rows; at++)
            pool->sequences[rows_of(pool, id)[at]].step = NONE;
    }
    if (answer) {
        step_give(pool, id);
        return answer;
    }
    step->num_rows = num_rows;
    step->num_layers = pool->models[pool->sequences[rows_of(pool, id)[0]].model].shape.num_layers;
    for (uint32_t at = 0; at < num_rows; at++) {
        struct sequence *sequence = &pool->sequences[rows_of(pool, id)[at]];
        sequence->growth.new_complete = sequence->num_complete + rows[at].tokens.count;
        step->num_copies += sequence->growth.num_copies > 0;
    }
    list_push_tail(&pool->sessions[session].steps, LINKS(pool->steps, link), id);
    pool->counters.steps++;
    *out_step = public_id(step->generation, id);
    if (step->num_copies == 0)
        return 0;
    step->state = STEP_COPYING;
    step->cookie = cookie;
    step->has_cookie = true;
    return POOL_PENDING;
}

/* ---- end ------------------------------------------------------------------------------------ */

static void row_end(struct pool *pool, struct sequence *sequence, bool is_commit)
{
    if (is_commit) {
        sequence->num_complete = sequence->growth.new_complete;
        sequence->is_filled |= sequence->num_complete == sequence->length;
    } else {
        grow_undo(pool, sequence);
    }
}

/* No attend runs: the rows get or lose their tokens, and what waited for them goes on. */
static void step_finish(struct pool *pool, uint32_t id)
{
    struct step *step = &pool->steps[id];
    const struct session *session = &pool->sessions[step->session];
    bool is_live = session->state == SESSION_LIVE;

    pool->counters.steps_abandoned += !step->is_commit;
    session_taking(pool, step->session);
    for (uint32_t at = 0; at < step->num_rows; at++) {
        struct sequence *sequence = &pool->sequences[rows_of(pool, id)[at]];
        sequence->step = NONE;
        row_end(pool, sequence, step->is_commit);
        if (step->is_commit && !session->is_manual_publish)
            (void)sequence_publish(pool,
                                   sequence); /* LIMIT: it stays unpublished, not unfinished */
    }
    session_taken(pool);
    list_remove(&pool->sessions[step->session].steps, LINKS(pool->steps, link), id);
    if (step->has_cookie && is_live)
        emit_reply(pool, step->cookie, step->answer);
    for (uint32_t at = 0; at < step->num_rows && is_live; at++)
        sequence_run_waiting(pool, rows_of(pool, id)[at]);
    step_give(pool, id);
}

/* Ends the step, now or when its last attend does. */
static int step_end(struct pool *pool, uint32_t id, bool is_commit)
{
    struct step *step = &pool->steps[id];

    step->is_commit = is_commit;
    if (step->num_running > 0) {
        step->state = STEP_ENDING;
        return POOL_PENDING;
    }
    step_finish(pool, id);
    return 0;
}

int pool_step_end(struct pool *pool, pool_step public, bool is_commit, uint64_t cookie)
{
    uint32_t id;
    struct step *step = step_find(pool, public, &id);

    if (!step)
        return POOL_NOT_FOUND;
    if (step->state == STEP_ENDING || (is_commit && step->state == STEP_COPYING) ||
        (is_commit && step->num_layers_done < step->num_layers && step->num_running == 0))
        return POOL_INVALID;
    if (step->state == STEP_COPYING) { /* whoever waits for the copies gets its answer first */
        step->has_cookie = false;
        emit_reply(pool, step->cookie, POOL_FAILED);
    }
    int answer = step_end(pool, id, is_commit);
    if (answer == POOL_PENDING) {
        step->cookie = cookie;
        step->has_cookie = true;
    }
    return answer;
}

void step_abandon(struct pool *pool, uint32_t id)
{
    pool->steps[id].has_cookie = false;
    (void)step_end(pool, id, false);
}

/* ---- while it is open ----------------------------------------------------------------------- */

void step_copied(struct pool *pool, uint32_t id, int answer)
{
    struct step *step = &pool->steps[id];
    uint64_t cookie = step->cookie;

    if (answer) { /* one row's copies will not be there: no row gets its tokens */
        step->has_cookie = false;
        (void)step_end(pool, id, false);
        emit_reply(pool, cookie, answer);
        return;
    }
    if (--step->num_copies > 0)
        return;
    for (uint32_t at = 0; at < step->num_rows; at++)
        grow_commit(pool, &pool->sequences[rows_of(pool, id)[at]]);
    step->has_cookie = false;
    step->state = STEP_OPEN;
    emit_reply(pool, cookie, 0);
}

int pool_step_attend(struct pool *pool, pool_step public, uint32_t layer)
{
    uint32_t id;
    struct step *step = step_find(pool, public, &id);

    if (!step)
        return POOL_NOT_FOUND;
    if (step->state != STEP_OPEN || layer >= step->num_layers)
        return POOL_INVALID;
    step->num_running++;
    return 0;
}

/* A layer is done by its last attend: one that fails has to be repeated. */
static void layer_mark(struct step *step, uint32_t layer, bool is_done)
{
    uint64_t *word = &step->layers_done[layer / 64], bit = UINT64_C(1) << layer % 64;

    step->num_layers_done -= (*word & bit) != 0;
    *word = is_done ? *word | bit : *word & ~bit;
    step->num_layers_done += is_done;
}

int pool_step_attended(struct pool *pool, pool_step public, uint32_t layer, int error)
{
    uint32_t id;
    struct step *step = step_find(pool, public, &id);

    if (!step || step->num_running == 0) {
        pool->counters.stale_completions++;
        return POOL_NOT_FOUND;
    }
    if (layer >= step->num_layers)
        return POOL_INVALID;
    step->num_running--;
    layer_mark(step, layer, error == 0);
    if (step->num_running > 0)
        return 0;
    bool is_whole = step->num_layers_done == step->num_layers;
    if (step->state == STEP_ENDING) {
        step->answer = step->is_commit && !is_whole ? POOL_FAILED : 0;
        step->is_commit &= is_whole;
        step_finish(pool, id);
    } else if (is_whole) {
        (void)step_end(pool, id, true);
    }
    return 0;
}
