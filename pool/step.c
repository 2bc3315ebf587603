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

static uint32_t *rows_of(const struct pool *pool, pool_step step)
{
    return &pool->step_rows[(size_t)step * pool->config.max_step_rows];
}

static struct step *step_find(const struct pool *pool, pool_step step)
{
    if (step >= pool->step_pool.num_touched || pool->steps[step].state == STEP_FREE)
        return NULL;
    return &pool->steps[step];
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
    if (row->tokens.count == 0 || sequence->is_preempted || sequence->is_mapped ||
        sequence->step != POOL_NONE)
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
    out_row->tokens.ids += known;
    out_row->tokens.count -= known;
    return 0;
}

/* Checks all rows into pool->grow_rows; each sequence is marked with the step, to see it only once. */
static int rows_check(struct pool *pool, pool_step step, const struct pool_step_row *rows,
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
            pool->sequences[pool->grow_rows[at].sequence].step = POOL_NONE;
    }
    return answer;
}

static pool_step step_take(struct pool *pool, pool_session session)
{
    pool_step id = record_take(&pool->step_pool, LINKS(pool->steps, link));

    if (id != NONE)
        pool->steps[id] = (struct step){.state = STEP_OPEN, .session = session};
    return id;
}

static void step_give(struct pool *pool, pool_step id)
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
    pool_step id = step_take(pool, session);
    if (id == NONE)
        return POOL_LIMIT;

    struct step *step = &pool->steps[id];
    int answer = rows_check(pool, id, rows, num_rows);
    if (!answer && (answer = grow_begin(pool, pool->grow_rows, num_rows)) != 0) {
        for (uint32_t at = 0; at < num_rows; at++)
            pool->sequences[rows_of(pool, id)[at]].step = POOL_NONE;
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
    *out_step = id;
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
static void step_finish(struct pool *pool, pool_step id)
{
    struct step *step = &pool->steps[id];
    const struct session *session = &pool->sessions[step->session];
    bool is_live = session->state == SESSION_LIVE;

    pool->counters.steps_abandoned += !step->is_commit;
    session_taking(pool, step->session);
    for (uint32_t at = 0; at < step->num_rows; at++) {
        struct sequence *sequence = &pool->sequences[rows_of(pool, id)[at]];
        sequence->step = POOL_NONE;
        row_end(pool, sequence, step->is_commit);
        if (step->is_commit && !session->is_manual_publish)
            (void)sequence_publish(pool, sequence); /* LIMIT: it stays unpublished, not unfinished */
    }
    session_taken(pool);
    list_remove(&pool->sessions[step->session].steps, LINKS(pool->steps, link), id);
    if (step->has_cookie && is_live)
        emit_reply(pool, step->cookie, 0);
    for (uint32_t at = 0; at < step->num_rows && is_live; at++)
        sequence_run_waiting(pool, rows_of(pool, id)[at]);
    step_give(pool, id);
}

/* Ends the step, now or when its last attend does. */
static int step_end(struct pool *pool, pool_step id, bool is_commit)
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

int pool_step_end(struct pool *pool, pool_step id, bool is_commit, uint64_t cookie)
{
    struct step *step = step_find(pool, id);

    if (!step)
        return POOL_NOT_FOUND;
    if (step->state == STEP_ENDING || (is_commit && step->num_layers_done < step->num_layers))
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

void step_abandon(struct pool *pool, pool_step id)
{
    pool->steps[id].has_cookie = false;
    (void)step_end(pool, id, false);
}

/* ---- while it is open ----------------------------------------------------------------------- */

void step_copied(struct pool *pool, pool_step id)
{
    struct step *step = &pool->steps[id];
    bool has_failed = false;

    if (--step->num_copies > 0)
        return;
    for (uint32_t at = 0; at < step->num_rows; at++)
        has_failed |= pool->sequences[rows_of(pool, id)[at]].growth.has_failed;
    step->has_cookie = false;
    uint64_t cookie = step->cookie;
    if (has_failed) {
        (void)step_end(pool, id, false);
    } else {
        for (uint32_t at = 0; at < step->num_rows; at++)
            grow_commit(pool, &pool->sequences[rows_of(pool, id)[at]]);
        step->state = STEP_OPEN;
    }
    emit_reply(pool, cookie, has_failed ? POOL_FAILED : 0);
}

int pool_step_attend(struct pool *pool, pool_step id, uint32_t layer)
{
    struct step *step = step_find(pool, id);

    if (!step)
        return POOL_NOT_FOUND;
    if (step->state != STEP_OPEN || layer >= step->num_layers)
        return POOL_INVALID;
    step->num_running++;
    return 0;
}

int pool_step_attended(struct pool *pool, pool_step id, uint32_t layer, int error)
{
    struct step *step = step_find(pool, id);

    if (!step || step->num_running == 0) {
        pool->counters.stale_completions++;
        return POOL_NOT_FOUND;
    }
    if (layer >= step->num_layers)
        return POOL_INVALID;
    step->num_running--;
    uint64_t *word = &step->layers_done[layer / 64], bit = UINT64_C(1) << layer % 64;
    if (!error && !(*word & bit)) {
        *word |= bit;
        step->num_layers_done++;
    }
    if (step->num_running > 0)
        return 0;
    if (step->state == STEP_ENDING)
        step_finish(pool, id);
    else if (step->num_layers_done == step->num_layers)
        (void)step_end(pool, id, true);
    return 0;
}
