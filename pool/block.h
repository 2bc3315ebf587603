/*
 * pool/block.h - (internal) the life of a block: private, published, held, evictable, gone.
 *
 *   block_create -> PRIVATE -> block_publish -> PUBLISHED -> (let go of) evictable -> block_evict
 * -> gone PRIVATE -> (let go of) gone               PUBLISHED -> block_unpublish -> PRIVATE
 *
 * A clear changes no block: one from before it (block_is_current() is false) is found no more, and
 * counts as PRIVATE from then on.
 */
#pragma once

#include "pool/internal.h"

static inline struct slot *block_slot(const struct pool *pool, const struct block *block)
{
    return &pool->slots[block->slot[TIER_DEVICE]];
}
static inline struct shelf *block_shelf(const struct pool *pool, const struct block *block)
{
    return &pool->shelves[pool->arenas[block->arena].shelf];
}
static inline bool block_is_current(const struct pool *pool, const struct block *block)
{
    return block->epoch == block_shelf(pool, block)->epoch;
}
/*
 * Holding or letting go of a block touches its record, its slot's and its granule's: cache lines
 * far apart, each known only from the one before. Whoever goes through many blocks asks at each
 * step for the record of the block that comes PREFETCH_BLOCK steps later, for the slot of the one
 * that comes PREFETCH_SLOT steps later ... NONE: there is none. Measured with
 * tests/bench/bench_pool at 10^6 blocks: allocating a warm prompt took 75 ns a block instead of
 * 230, releasing a long one 31 instead of 80.
 */
enum { PREFETCH_GRANULE = 4, PREFETCH_SLOT = 8, PREFETCH_BLOCK = 12 };

PREFETCHES static inline void block_prefetch(const struct pool *pool, uint32_t id)
{
    if (id != NONE)
        __builtin_prefetch(&pool->blocks[id], 1);
}
PREFETCHES static inline void block_prefetch_slot(const struct pool *pool, uint32_t id)
{
    if (id != NONE)
        __builtin_prefetch(block_slot(pool, &pool->blocks[id]), 1);
}
PREFETCHES static inline void block_prefetch_granule(const struct pool *pool, uint32_t id)
{
    if (id != NONE)
        __builtin_prefetch(&pool->slots[block_slot(pool, &pool->blocks[id])->granule].first_of, 1);
}

/* Has a key, and may be found. */
static inline bool block_is_published(const struct pool *pool, const struct block *block)
{
    return block->state == BLOCK_PUBLISHED && block_is_current(pool, block);
}

/* Where a key of an arena stands in the index; a promise stands elsewhere than a published block.
 */
static inline uint64_t key_hash(const struct pool_key *key, uint32_t arena, bool is_promise)
{
    uint64_t words[2];

    __builtin_memcpy(words, key, sizeof(words));
    return words[0] ^ (((uint64_t)arena << 1 | is_promise) * UINT64_C(0x9E3779B97F4A7C15));
}

/* A private block, held once, in a free slot. The caller knows that records are left. */
uint32_t block_create(struct pool *pool, uint32_t slot);

void block_hold(struct pool *pool, uint32_t block);
/* Undoes the last block_hold() that was not undone: exactly the order of before. */
void block_hold_undo(struct pool *pool, uint32_t block);
/* Drops one hold; with the last one the block is evictable, or (unpublished) its slot free at @end.
 */
void block_let_go(struct pool *pool, uint32_t block, uint32_t end);

/* The block that may be found by @key in @arena, with the same token ids; or NONE. No side effect.
 */
uint32_t block_find(struct pool *pool, uint32_t arena, const struct pool_key *key,
                    const uint32_t *tokens);
/* @parent: the key of the block before it, NULL for the first; only told on. */
void block_publish(struct pool *pool, uint32_t block, const struct pool_key *key,
                   const struct pool_key *parent, const uint32_t *tokens);
/* Takes the key of a held block away, so that it can be written. */
void block_unpublish(struct pool *pool, uint32_t block);
/* @by caused it (NONE: a clear, or the operator). The slot goes to the tail of the free list. */
void block_evict(struct pool *pool, uint32_t block, pool_payer by);

/* A transfer reads it: it stays where it is in the order, and is skipped. */
void block_pin(struct pool *pool, uint32_t block);
void block_unpin(struct pool *pool, uint32_t block);
/* The copy into it ended. If nobody holds it any more, its slot is free now. */
void block_arrived(struct pool *pool, uint32_t block, bool is_good);

/* A quarantined slot is free again: nobody can touch it any more. */
void block_release_quarantine(struct pool *pool, uint32_t block);

/* Single flight: another sequence may wait for this private block, which @filler fills. */
void block_promise(struct pool *pool, uint32_t block, const struct pool_key *key, uint32_t filler);
void block_unpromise(struct pool *pool, uint32_t block);
/* The filler of the block promised under @key, or NONE. */
uint32_t block_find_promise(const struct pool *pool, uint32_t arena, const struct pool_key *key);
