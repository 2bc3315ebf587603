/*
 * pool/session.c - sessions end in slices, at whatever point their engine died.
 *
 * From the end on nothing of the session can be named. Its sequences are let go of by
 * pool_advance(), a bounded number of blocks at a time, except those that a running attend still
 * writes.
 */
#include "pool/arriving.h"
#include "pool/clear.h"
#include "pool/demote.h"
#include "pool/grow.h"
#include "pool/place.h"
#include "pool/promote.h"
#include "pool/sequence.h"
#include "pool/step.h"

enum { SLICE_BLOCKS = 4096 };

static struct links session_links(const struct pool *pool)
{
    return LINKS(pool->sessions, link);
}

int pool_session_open(struct pool *pool, pool_session *out_session)
{
    uint32_t id;

    while ((id = record_take(&pool->session_pool, session_links(pool))) == NONE) {
        if (!releases_advance(pool)) /* ended sessions have records until they are let go of */
            return POOL_LIMIT;
    }
    pool->sessions[id] = (struct session){.state = SESSION_LIVE,
                                          .sequences = LIST_EMPTY,
                                          .quarantined = LIST_EMPTY,
                                          .steps = LIST_EMPTY};
    *out_session = id;
    return 0;
}

void session_taking(struct pool *pool, pool_session id)
{
    const struct session *session = &pool->sessions[id];

    pool->taking_from = session->state != SESSION_LIVE && session->is_attached ? id : POOL_NONE;
}

void session_taken(struct pool *pool)
{
    pool->taking_from = POOL_NONE;
}

static struct session *session_find(const struct pool *pool, pool_session session)
{
    if (session >= pool->session_pool.num_touched || pool->sessions[session].state == SESSION_FREE)
        return NULL;
    return &pool->sessions[session];
}

int pool_session_set_manual_publish(struct pool *pool, pool_session id, bool is_manual)
{
    struct session *session = session_find(pool, id);

    if (!session || session->state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    session->is_manual_publish = is_manual;
    return 0;
}

int pool_session_end(struct pool *pool, pool_session id, bool is_attached, uint32_t *out_sequences)
{
    struct session *session = session_find(pool, id);
    uint32_t next;

    if (!session || session->state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    if (out_sequences)
        *out_sequences = session->num_sequences;
    session->state = SESSION_ENDING;
    session->is_attached = is_attached;
    list_push_tail(&pool->ending, session_links(pool), id);
    arriving_drop(pool, id);
    promote_drop(pool, id);
    arriving_recheck(pool); /* those who wait for what it fills */
    for (uint32_t step = session->steps.head; step != NONE; step = next) {
        next = pool->steps[step].link.next;
        step_abandon(pool, step);
    }
    return 0;
}

int pool_session_detach(struct pool *pool, pool_session id)
{
    struct session *session = session_find(pool, id);

    if (!session || session->state == SESSION_LIVE || !session->is_attached)
        return POOL_NOT_FOUND;
    session->is_attached = false;
    return 0;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Lets go of up to @max_blocks blocks of one sequence, from its end. Returns how many. */
static uint32_t let_go_slice(struct pool *pool, uint32_t id, uint32_t max_blocks)
{
    struct sequence *sequence = &pool->sequences[id];
    uint32_t num_groups = num_groups_of(pool, sequence), before = sequence->num_positions;
    uint32_t max_positions = (max_blocks - 1) / num_groups + 1;

    if (before <= max_positions) {
        sequence_let_go(pool, id);
        sequence_destroy(pool, id);
        return before * num_groups + 1;
    }
    arriving_withdraw(pool, sequence, 0);
    grow_forget(pool, sequence); /* its copies end on their own: there is no tail to put back */
    sequence->is_growing = false;
    /* Whole chunks only: a cut inside a shared one would need a chunk. */
    uint32_t size = pool->models[sequence->model].table_positions;
    pool->batch++;
    table_truncate(pool, sequence, (before - max_positions) / size * size);
    return (before - sequence->num_positions) * num_groups;
}

/* The first sequence that no running attend writes, or NONE. */
static uint32_t first_idle(const struct pool *pool, const struct session *session)
{
    uint32_t id = session->sequences.head;

    while (id != NONE && pool->sequences[id].step != NONE)
        id = pool->sequences[id].in_session.next;
    return id;
}

/* Nothing is left of it but what still attached processes may write. */
static bool session_is_over(struct session *session)
{
    if (session->state == SESSION_ENDING && session->sequences.head == NONE)
        session->state = SESSION_ENDED;
    return session->state == SESSION_ENDED && !session->is_attached &&
           session->quarantined.head == NONE;
}

/* One slice of a session's end. Returns the blocks it took, 0: it cannot go on now. */
static uint32_t session_advance(struct pool *pool, pool_session id, uint32_t max_blocks)
{
    struct session *session = &pool->sessions[id];
    uint32_t slot = session->quarantined.head;
    uint32_t sequence = first_idle(pool, session);

    if (slot != NONE && !session->is_attached) {
        list_remove(&session->quarantined, LINKS(pool->slots, link), slot);
        slot_end_quarantine(pool, slot);
        return 1;
    }
    if (sequence == NONE)
        return 0;
    session_taking(pool, id);
    uint32_t done = let_go_slice(pool, sequence, max_blocks);
    session_taken(pool);
    return done;
}

/* One slice of everything that ends. Returns the blocks it took; 0: nothing can go on now. */
static uint32_t advance(struct pool *pool, uint32_t max_blocks)
{
    uint32_t num_done = 0, next;

    for (uint32_t id = pool->ending.head; id != NONE; id = next) {
        next = pool->sessions[id].link.next;
        uint32_t done = 1;
        while (num_done < max_blocks && done > 0) {
            done = session_advance(pool, id, max_blocks - num_done);
            num_done += done;
        }
        if (session_is_over(&pool->sessions[id])) {
            pool->sessions[id].state = SESSION_FREE;
            list_remove(&pool->ending, session_links(pool), id);
            record_give(&pool->session_pool, session_links(pool), id);
        }
    }
    if (num_done < max_blocks)
        num_done += sweep_cleared(pool, max_blocks - num_done);
    return num_done;
}

bool pool_advance(struct pool *pool, uint32_t max_blocks)
{
    uint32_t num_done = advance(pool, max_blocks);

    if (num_done < max_blocks)
        num_done += demote_ahead(pool, max_blocks - num_done);
    return num_done >= max_blocks;
}

bool releases_advance(struct pool *pool)
{
    return advance(pool, SLICE_BLOCKS) > 0;
}
