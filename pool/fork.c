/*
 * pool/fork.c - a sequence with the same tokens and blocks: chunks are shared, nothing is copied.
 *
 * Full blocks and the partial tail are shared alike. The child's table is the parent's last chunk
 * with one more ref; the first of them to append copies the tail block (grow.c).
 */
#include "pool/sequence.h"

/* Whether the chunks are left to cut the child's table where the parent's complete tokens end. */
static bool can_cut(const struct pool *pool, const struct sequence *parent)
{
    return positions_of(pool, parent, parent->num_complete) == parent->num_positions ||
           chunks_left(pool->table_chunks) > 0;
}

/* Shares chunks; what the parent has beyond its complete tokens is not the child's. */
static void share_chunks(struct pool *pool, const struct sequence *parent, struct sequence *child)
{
    if (parent->table_chunk != NONE)
        chunk_at(pool->table_chunks, parent->table_chunk)->refs++;
    if (parent->token_chunk != NONE)
        chunk_at(pool->token_chunks, parent->token_chunk)->refs++;
    if (child->num_positions > 0)
        pool->num_holding++;
    pool->batch++;
    table_truncate(pool, child, positions_of(pool, child, child->num_complete));
    tokens_truncate(pool, child, child->num_complete);
}

int pool_fork(struct pool *pool, struct pool_name name, uint64_t child_name)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct pool_name into = {name.session, child_name};
    if (sequence_find(pool, into) != NONE)
        return POOL_EXISTS;
    const struct sequence *parent = &pool->sequences[id];
    const struct step *step = step_of(pool, parent);
    if (parent->promotion.is_waiting)
        return POOL_BUSY;
    if (parent->is_preempted || !parent->is_filled)
        return POOL_INVALID;
    if (sequence_is_busy(parent) || (step && step->state == STEP_COPYING))
        return POOL_BUSY; /* the copy of its tail is not there yet */
    if (pool->is_draining)
        return POOL_DRAINING;
    if (records_left(&pool->sequence_pool) == 0 || !can_cut(pool, parent))
        return POOL_LIMIT;

    struct sequence *child = &pool->sequences[sequence_create(pool, into)];
    const struct link in_session = child->in_session;
    *child = *parent;
    child->id = child_name;
    child->in_session = in_session;
    child->step = NONE;
    child->num_waiters = 0;
    child->num_promised = 0; /* the promise is the parent's */
    share_chunks(pool, parent, child);
    pool->counters.forks++;
    return 0;
}
