/*
 * pool/block.h - (internal) the life of a block: private, published, held, cached, gone.
 *
 *   block_create -> PRIVATE -> block_publish -> PUBLISHED -> (last place evicted) gone
 *   PRIVATE -> (let go of) gone       PUBLISHED -> block_unpublish -> PRIVATE
 *
 * A block that is held has a slot on the device; a PRIVATE one is held, and has no other place. See
 * place.h for what it has in each tier.
 *
 * A clear changes no block: one from before it (block_is_current() is false) is found no more, and
 * counts as PRIVATE from then on.
 */
#pragma once

#include "pool/internal.h"

enum { DEVICE_BIT = 1u << POOL_TIER_DEVICE };

/* Its slot of the device: it has one. */
static inline struct slot *block_slot(const struct pool *pool, const struct block *block)
{
    return &pool->slots[block->slot[POOL_TIER_DEVICE]];
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
    if (id != NONE && pool->blocks[id].slot[POOL_TIER_DEVICE] != NONE)
        __builtin_prefetch(block_slot(pool, &pool->blocks[id]), 1);
}
PREFETCHES static inline void block_prefetch_granule(const struct pool *pool, uint32_t id)
{
    if (id != NONE && pool->blocks[id].slot[POOL_TIER_DEVICE] != NONE)
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

/* The nearest tier that has a copy that may be read: a published block that was found has one. */
static inline uint32_t block_nearest(const struct pool *pool, const struct block *block)
{
    uint32_t found = block->present & pool->found_tiers;

    if (found == 0)
        found = block->present; /* it is on its way up, and its tier was switched off meanwhile */
    return found == 0 ? POOL_TIER_DEVICE : (uint32_t)__builtin_ctz(found);
}

/* A private block, held once, in a slot of the device that was taken for it. */
uint32_t block_create(struct pool *pool, uint32_t slot);

/* A block with a place on the device, or on its way there. */
void block_hold(struct pool *pool, uint32_t block);
/* Undoes the last block_hold() that was not undone: exactly the order of before. */
void block_hold_undo(struct pool *pool, uint32_t block);
/*
 * Drops one hold. With the last one it is cached; or, unpublished, its slot is free at @end.
 */
void block_let_go(struct pool *pool, uint32_t block, uint32_t end);

/* The block that may be found by @key in @arena, with the same token ids; or NONE. No side effect.
 */
uint32_t block_find(struct pool *pool, uint32_t arena, const struct pool_key *key,
                    const uint32_t *tokens);
/* The same, but also one that only a tier has that is off. @form: what is stored of token ids. */
uint32_t block_find_form(struct pool *pool, uint32_t arena, const struct pool_key *key,
                         const uint32_t *form);

/* What is stored beside the blocks of an arena for their token ids: themselves, or their hash. */
uint32_t arena_form_words(const struct pool *pool, uint32_t arena);
const uint32_t *arena_form(const struct pool *pool, uint32_t arena, const uint32_t *tokens,
                           uint32_t hash[2]);
const uint32_t *block_form(const struct pool *pool, uint32_t block);

/* A name for a block: @parent (NULL: it is the first) and @tokens are only told on. */
struct naming {
    const struct pool_key *key, *parent;
    const uint32_t *tokens;
    bool is_wanted, is_unwanted; /* below the device */
};
/* Of a private block. If a block below the device has the key, its places become this one's. */
void block_publish(struct pool *pool, uint32_t block, const struct naming *naming);
/* A published block that nobody holds, in a slot that was taken for it. */
uint32_t block_restore(struct pool *pool, uint32_t slot, const struct pool_restored *restored);
/* Takes the key of a held block away, and its copies below, so that it can be written. */
void block_unpublish(struct pool *pool, uint32_t block);
/* No tier has it any more, and nobody holds it: see place.c. */
void block_destroy(struct pool *pool, uint32_t block, uint32_t end, pool_session taker);

/* Single flight: another sequence may wait for this private block, which @filler fills. */
void block_promise(struct pool *pool, uint32_t block, const struct pool_key *key, uint32_t filler);
void block_unpromise(struct pool *pool, uint32_t block);
/* The filler of the block promised under @key, or NONE. */
uint32_t block_find_promise(const struct pool *pool, uint32_t arena, const struct pool_key *key);
