/*
 * pool/arriving.h - (internal) single flight: one fill of a prefix, not many.
 *
 * An unfilled sequence promises the blocks that it is filling: the first group's block of each full
 * position stands in the index under the key it will get. Who allocates or matches the same prefix
 * is told how many tokens are arriving, and may wait for the sequence that fills the first of them.
 */
#pragma once

#include "pool/match.h"

/* Positions in one run right behind the match, within its bound, that other sequences fill. */
uint64_t arriving_count(const struct pool *pool, const struct pool_prompt *prompt,
                        const struct match *match);

/* Promises what an unfilled sequence of @length tokens is going to fill. */
void arriving_promise(struct pool *pool, struct sequence *sequence, uint64_t length);

/* The filler published up to @sequence->considered: who waited for no more gets its answer. */
void arriving_published(struct pool *pool, struct sequence *sequence);
/*
 * The filler goes without the positions from @from on: they are promised no more, whoever else
 * holds them, and who waited for them gets a miss. Before its table loses them. Uses pool->path.
 */
void arriving_withdraw(struct pool *pool, struct sequence *sequence, uint32_t from);
/* Misses for all waiters on sequences that are stale, or of a session that ended. */
void arriving_recheck(struct pool *pool);
/* Waiters that @session's own requests are: dropped without a reply. */
void arriving_drop(struct pool *pool, pool_session session);
