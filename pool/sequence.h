/* pool/sequence.h - (internal) sequences by name, and what their verbs share. */
#pragma once

#include "pool/table.h"

/* The sequence of that name, or NONE. */
uint32_t sequence_find(const struct pool *pool, struct pool_name name);

/* A record for @name in its live session. The caller checked that one is left and the name is free.
 */
uint32_t sequence_create(struct pool *pool, struct pool_name name);
/* Takes it out of its session; its table and tokens are gone already. */
void sequence_destroy(struct pool *pool, uint32_t sequence);

/* Lets go of all its blocks, the tails that are being copied too; ends its waiters with a miss. */
void sequence_let_go(struct pool *pool, uint32_t sequence);
/* The same; it keeps its tokens, all of them complete. */
void sequence_preempt(struct pool *pool, uint32_t sequence);

static inline uint32_t sequence_id(const struct pool *pool, const struct sequence *sequence)
{
    return (uint32_t)(sequence - pool->sequences);
}

/* From before a clear of something it depends on: publishes nothing any more. */
static inline bool sequence_is_stale(const struct pool *pool, const struct sequence *sequence)
{
    return sequence->epoch != pool->shelves[sequence->shelf].epoch ||
           (sequence->shared != POOL_NONE &&
            sequence->shared_epoch != pool->shelves[sequence->shared_shelf].epoch);
}

/* Something is under way that a new verb has to wait for. */
static inline bool sequence_is_busy(const struct sequence *sequence)
{
    return sequence->is_growing || sequence->promotion.is_waiting ||
           sequence->waiting_verb != WAITING_NONE;
}

static inline struct step *step_of(const struct pool *pool, const struct sequence *sequence)
{
    return sequence->step == NONE ? NULL : &pool->steps[sequence->step];
}

/* Carries on with a verb that waited for attends: 0 or an answer. */
void sequence_run_waiting(struct pool *pool, uint32_t sequence);

/* publish.c: what pool_publish() does, once the state allows it. POOL_LIMIT: no chunk is left. */
int sequence_publish(struct pool *pool, struct sequence *sequence);
/*
 * session.c: what @session lets go of from here on is taken from it, if it has ended and processes
 * of it are still attached: slots that they could write are quarantined. Ends with session_taken().
 */
void session_taking(struct pool *pool, pool_session session);
void session_taken(struct pool *pool);
/* session.c: what a refused allocation does first: releases under way go on. False: there are none.
 */
bool releases_advance(struct pool *pool);
