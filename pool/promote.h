/*
 * pool/promote.h - (internal) blocks come up to the device, and sequences wait for them.
 *
 * A block on its way has its slot on the device already, INCOMING; whoever hits it then holds it
 * and waits for the same transfer. A sequence waits for one transfer at a time: that of its last
 * block that is not present; when it ends, it looks for the one before. So nothing is recorded for
 * each block of each sequence.
 *
 * A copy that fails drops the place that it read. The next tier below that has the block is tried;
 * if there is none the block loses its key, and every sequence that holds it is undone, as soon as
 * it finds it.
 */
#pragma once

#include "pool/internal.h"

/*
 * Begins copies for the sequence's hits that got their slot just now, and its waiting: for those,
 * and for others' that are on their way.
 */
void promote_begin(struct pool *pool, struct sequence *sequence);
/* Begins the copy of one published block, which has its slot of the device. */
void promote_copy(struct pool *pool, uint32_t block);
void promote_ended(struct pool *pool, const struct transfer *transfer, int error);

/* Undoes what waits beyond its deadline; what waits for blocks from before a clear. */
void promote_tick(struct pool *pool);
void promote_recheck(struct pool *pool);
/* @session ended: nothing of it waits any more, without a reply. */
void promote_drop(struct pool *pool, pool_session session);
/* Undoes the session's waiting request of that cookie: 0, or POOL_NOT_FOUND. */
int promote_cancel(struct pool *pool, pool_session session, uint64_t cookie);
