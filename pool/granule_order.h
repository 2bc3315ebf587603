/*
 * pool/granule_order.h - (internal) a payer's wholly unheld granules, ordered by their hottest
 * block.
 *
 * This is what makes moving memory between arenas of different shape no walk: going through a
 * payer's evictable blocks from the coldest up, the first granule to be complete is the one whose
 * hottest block is coldest, which is the first here.
 *
 * A granule nearly always becomes wholly unheld by letting go of its newest block, so its place is
 * the tail of a list: O(1). Those for which it is not (an unpublished block was let go of last, a
 * copy ended) go to where they belong in the list, if a neighbour is known; else into a treap by
 * the same order: O(log n) expected.
 */
#pragma once

#include "pool/internal.h"

/*
 * @granule's hottest is set and differs from all others'. @near: one in the list that it may belong
 * beside, or NONE. A copy ahead of an eviction takes the coldest granules out and puts them back:
 * with it a warm hit on them took 54 ns a block later, in the treap 124
 * (tests/bench/bench_pool_tiers).
 */
void granule_order_insert(struct pool *pool, struct granule_order *order, uint32_t granule,
                          uint32_t near);
void granule_order_remove(struct pool *pool, struct granule_order *order, uint32_t granule);

/* The granule whose hottest block is coldest, or NONE. */
uint32_t granule_order_first(const struct pool *pool, const struct granule_order *order);
