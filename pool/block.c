/* pool/block.c - the life of a block: private, published, held, evictable, gone. */
#include "pool/block.h"

#include <string.h>

#include "pool/arena.h"
#include "pool/sequence.h"

static struct arena *arena_of(const struct pool *pool, const struct block *block)
{
    return &pool->arenas[block->arena];
}

/* The gauge that a held block counts in. */
static uint32_t *held_gauge(const struct pool *pool, const struct block *block)
{
    struct arena *arena = arena_of(pool, block);

    return block_is_published(pool, block) ? &arena->num_held : &arena->num_reserved;
}

uint32_t block_create(struct pool *pool, uint32_t slot_id)
{
    uint32_t id = record_take(&pool->block_pool, LINKS(pool->blocks, link));
    struct slot *slot = &pool->slots[slot_id];
    uint32_t arena_id = granule_of_slot(pool, slot_id)->arena;

    assert(id != NONE);
    slot_take(pool, slot_id);
    slot->block = id;
    struct block *block = &pool->blocks[id];
    *block = (struct block){.state = BLOCK_PRIVATE,
                            .place_state = PLACE_PRESENT,
                            .holds = 1,
                            .arena = (uint16_t)arena_id,
                            .epoch = pool->shelves[pool->arenas[arena_id].shelf].epoch};
    block->slot[TIER_DEVICE] = slot_id;
    pool->arenas[arena_id].num_reserved++;
    return id;
}

/* ---- holds ---------------------------------------------------------------------------------- */

void block_hold(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->holds++ > 0)
        return;
    struct arena *arena = arena_of(pool, block);
    list_remove(&arena->evictable, LINKS(pool->blocks, link), id);
    block->is_evictable = 0;
    arena->num_evictable--;
    arena->num_held++;
    if (block->num_readers == 0)
        granule_hold(pool, block_slot(pool, block)->granule);
}

void block_hold_undo(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (--block->holds > 0)
        return;
    struct arena *arena = arena_of(pool, block);
    list_restore(&arena->evictable, LINKS(pool->blocks, link), id);
    block->is_evictable = 1;
    arena->num_evictable++;
    arena->num_held--;
    if (block->num_readers == 0)
        granule_count(pool, block_slot(pool, block)->granule, -1, 1);
}

static void tell_removed(struct pool *pool, const struct block *block)
{
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_REMOVED,
                                     .arena = block->arena,
                                     .slot = block_slot(pool, block)->number,
                                     .key = &block->key});
}

/* Out of the index, if it is in it. */
static void forget_key(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->is_promised)
        block_unpromise(pool, id);
    if (block->state != BLOCK_PUBLISHED)
        return;
    index_remove(&pool->key_index, key_hash(&block->key, block->arena, false), id);
    block->state = BLOCK_PRIVATE;
    if (!block->is_told_removed)
        tell_removed(pool, block);
}

/* The record goes; the slot goes where @end says. @busy, @cached: what the granule counted it as.
 */
static void block_destroy(struct pool *pool, uint32_t id, uint32_t end, bool was_cached)
{
    struct block *block = &pool->blocks[id];
    uint32_t slot = block->slot[TIER_DEVICE];
    uint32_t granule = pool->slots[slot].granule;

    forget_key(pool, id);
    block->state = BLOCK_GONE;
    block->is_evictable = 0;
    slot_free(pool, slot, end);
    record_give(&pool->block_pool, LINKS(pool->blocks, link), id);
    granule_count(pool, granule, was_cached ? 0 : -1, was_cached ? -1 : 0);
}

static bool is_in_transfer(const struct block *block)
{
    return block->place_state == PLACE_INCOMING || block->num_readers > 0;
}

/*
 * Nobody holds the block, but a transfer, or a process of the ended session @taker, may still touch
 * its slot. The slot waits with the session; or for the transfer, which remembers the session.
 */
static void block_quarantine(struct pool *pool, uint32_t id, pool_session taker)
{
    struct block *block = &pool->blocks[id];

    forget_key(pool, id);
    block_slot(pool, block)->state = SLOT_QUARANTINED;
    arena_of(pool, block)->num_quarantined++;
    block->link.prev = taker;
    if (!is_in_transfer(block))
        list_push_tail(&pool->sessions[taker].quarantined, LINKS(pool->slots, link),
                       block->slot[TIER_DEVICE]);
}

/* The transfers of a quarantined block ended: free, or still with its session. */
static void block_end_transfer(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];
    pool_session taker = block->link.prev;

    if (is_in_transfer(block))
        return;
    if (taker != NONE && pool->sessions[taker].is_attached)
        list_push_tail(&pool->sessions[taker].quarantined, LINKS(pool->slots, link),
                       block->slot[TIER_DEVICE]);
    else
        block_release_quarantine(pool, id);
}

void block_release_quarantine(struct pool *pool, uint32_t id)
{
    arena_of(pool, &pool->blocks[id])->num_quarantined--;
    block_destroy(pool, id, SLOT_TO_HEAD, false);
}

void block_let_go(struct pool *pool, uint32_t id, uint32_t end)
{
    struct block *block = &pool->blocks[id];

    assert(block->holds > 0);
    if (--block->holds > 0)
        return;
    struct arena *arena = arena_of(pool, block);
    bool is_published = block_is_published(pool, block);
    --*(is_published ? &arena->num_held : &arena->num_reserved);
    if (is_published) {
        block->stamp = ++pool->stamp;
        block->is_evictable = 1;
        list_push_tail(&arena->evictable, LINKS(pool->blocks, link), id);
        arena->num_evictable++;
        if (block->num_readers == 0)
            granule_let_go(pool, block_slot(pool, block)->granule);
    } else if (is_in_transfer(block) || pool->taking_from != NONE) {
        block_quarantine(pool, id, pool->taking_from);
    } else {
        block_destroy(pool, id, end, false);
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

static uint32_t block_tokens_of(const struct pool *pool, const struct block *block)
{
    return pool->models[block_shelf(pool, block)->model].shape.block_tokens;
}

static uint32_t stored_words(const struct pool *pool, const struct block *block)
{
    uint32_t num = block_tokens_of(pool, block);

    return num <= 32 ? num : 2;
}

/* Token ids of a large block are compared by a 64-bit hash of them. */
static void tokens_hash(const uint32_t *tokens, uint32_t count, uint32_t out[2])
{
    uint64_t hash = count;

    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ tokens[i]) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    memcpy(out, &hash, sizeof(hash));
}

/* What is stored beside a block for its token ids: themselves, or their hash in @hash. */
static const uint32_t *stored_form(const struct pool *pool, const struct block *block,
                                   const uint32_t *tokens, uint32_t hash[2])
{
    uint32_t num = pool->models[block_shelf(pool, block)->model].shape.block_tokens;

    if (num <= 32)
        return tokens;
    tokens_hash(tokens, num, hash);
    return hash;
}

static uint32_t *stored_tokens(const struct pool *pool, uint32_t id)
{
    return &pool->block_tokens[(size_t)id * pool->token_stride];
}

/*
 * Hot path, once a block of a prompt: no allocation, no lock, no system call, no log.
 */
uint32_t block_find(struct pool *pool, uint32_t arena, const struct pool_key *key,
                    const uint32_t *tokens)
{
    struct index_walk walk;
    uint32_t hash[2];

    for (uint32_t id = index_first(&pool->key_index, key_hash(key, arena, false), &walk);
         id != NONE; id = index_next(&pool->key_index, &walk)) {
        const struct block *block = &pool->blocks[id];
        if (block->arena != arena || !block_is_published(pool, block) ||
            block->place_state != PLACE_PRESENT || memcmp(&block->key, key, sizeof(*key)) != 0)
            continue;
        const uint32_t *form = stored_form(pool, block, tokens, hash);
        if (memcmp(stored_tokens(pool, id), form, stored_words(pool, block) * 4u) == 0)
            return id;
        pool->counters.token_mismatches++; /* a collision, or a bug in keys: a miss */
    }
    return NONE;
}

/*
 * Takes a block from before a clear, with a key that is published anew, out of the index: whoever
 * follows stored and removed keys sees it removed before it is stored. False: there is none.
 */
static bool forget_stale(struct pool *pool, uint32_t arena, const struct pool_key *key)
{
    struct index_walk walk;

    for (uint32_t id = index_first(&pool->key_index, key_hash(key, arena, false), &walk);
         id != NONE; id = index_next(&pool->key_index, &walk)) {
        struct block *block = &pool->blocks[id];
        if (block->arena != arena || block->state != BLOCK_PUBLISHED || block->is_told_removed ||
            block_is_current(pool, block) || memcmp(&block->key, key, sizeof(*key)) != 0)
            continue;
        if (!block->is_evictable) {
            forget_key(pool, id);
        } else if (block->num_readers == 0) {
            block_evict(pool, id, POOL_NONE);
        } else { /* a transfer reads it: it goes later, without a word */
            tell_removed(pool, block);
            block->is_told_removed = 1;
        }
        return true;
    }
    return false;
}

void block_publish(struct pool *pool, uint32_t id, const struct pool_key *key,
                   const struct pool_key *parent, const uint32_t *tokens)
{
    struct block *block = &pool->blocks[id];
    struct arena *arena = arena_of(pool, block);
    uint32_t hash[2];

    assert(block->state == BLOCK_PRIVATE && block->holds > 0 && block_is_current(pool, block));
    assert(block->place_state == PLACE_PRESENT);
    if (block->is_promised)
        block_unpromise(pool, id);
    while (forget_stale(pool, block->arena, key))
        ;
    block->key = *key;
    block->state = BLOCK_PUBLISHED;
    memcpy(stored_tokens(pool, id), stored_form(pool, block, tokens, hash),
           stored_words(pool, block) * 4u);
    index_insert(&pool->key_index, key_hash(key, block->arena, false), id);
    arena->num_reserved--;
    arena->num_held++;
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_STORED,
                                     .arena = block->arena,
                                     .slot = block_slot(pool, block)->number,
                                     .key = &block->key,
                                     .parent = parent,
                                     .tokens = tokens,
                                     .num_tokens = block_tokens_of(pool, block)});
}

void block_unpublish(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    assert(block->holds > 0 && block->num_readers == 0);
    --*held_gauge(pool, block);
    forget_key(pool, id);
    arena_of(pool, block)->num_reserved++;
}

void block_evict(struct pool *pool, uint32_t id, pool_payer by)
{
    struct block *block = &pool->blocks[id];
    struct arena *arena = arena_of(pool, block);
    const struct granule *granule = granule_of_slot(pool, block->slot[TIER_DEVICE]);

    assert(block->is_evictable && block->num_readers == 0);
    if (granule->where != GRANULE_NOWHERE && granule->hottest == block->stamp &&
        granule->num_cached > 1) /* not the coldest of its arena: its granule's place changes */
        granule_leave_order(pool, block_slot(pool, block)->granule);
    list_remove(&arena->evictable, LINKS(pool->blocks, link), id);
    arena->num_evictable--;
    pool->counters.evictions++;
    pool->payers[arena_payer(pool, arena)].evictions_suffered++;
    if (by != NONE) {
        pool->payers[by].evictions_caused++;
        pool->evictions[(size_t)by * pool->config.max_payers + arena_payer(pool, arena)]++;
    }
    if (!block_is_current(pool, block)) {
        arena->num_stale--;
        pool->sweeps_pending--;
    }
    block_destroy(pool, id, SLOT_TO_TAIL, true);
}

/* ---- transfers ------------------------------------------------------------------------------ */

void block_pin(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->num_readers++ == 0 && block->is_evictable)
        granule_count(pool, block_slot(pool, block)->granule, 1, -1);
}

void block_unpin(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    assert(block->num_readers > 0);
    if (--block->num_readers > 0)
        return;
    if (block->is_evictable)
        granule_count(pool, block_slot(pool, block)->granule, -1, 1);
    else if (block->holds == 0)
        block_end_transfer(pool, id);
}

void block_arrived(struct pool *pool, uint32_t id, bool is_good)
{
    struct block *block = &pool->blocks[id];

    block->place_state = is_good ? PLACE_PRESENT : PLACE_ABSENT;
    if (block->holds == 0)
        block_end_transfer(pool, id);
}

/* ---- single flight -------------------------------------------------------------------------- */

void block_promise(struct pool *pool, uint32_t id, const struct pool_key *key, uint32_t filler)
{
    struct block *block = &pool->blocks[id];

    assert(block->state == BLOCK_PRIVATE && !block->is_promised);
    block->key = *key;
    block->is_promised = 1;
    block->link.next = filler;
    index_insert(&pool->key_index, key_hash(key, block->arena, true), id);
}

void block_unpromise(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    index_remove(&pool->key_index, key_hash(&block->key, block->arena, true), id);
    block->is_promised = 0;
}

uint32_t block_find_promise(const struct pool *pool, uint32_t arena, const struct pool_key *key)
{
    struct index_walk walk;

    for (uint32_t id = index_first(&pool->key_index, key_hash(key, arena, true), &walk); id != NONE;
         id = index_next(&pool->key_index, &walk)) {
        const struct block *block = &pool->blocks[id];
        if (!block->is_promised || block->arena != arena || !block_is_current(pool, block) ||
            memcmp(&block->key, key, sizeof(*key)) != 0)
            continue;
        const struct sequence *filler = &pool->sequences[block->link.next];
        if (pool->sessions[filler->session].state == SESSION_LIVE &&
            !sequence_is_stale(pool, filler))
            return block->link.next;
    }
    return NONE;
}
