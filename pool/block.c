/* pool/block.c - the life of a block: private, published, held, cached, gone. */
#include "pool/block.h"

#include <string.h>

#include "pool/place.h"
#include "pool/sequence.h"

static struct arena *arena_of(const struct pool *pool, const struct block *block)
{
    return &pool->arenas[block->arena];
}

uint32_t block_create(struct pool *pool, uint32_t slot)
{
    uint32_t id = record_take(&pool->block_pool, LINKS(pool->blocks, link));
    uint32_t arena = granule_of_slot(pool, slot)->arena;

    assert(id != NONE);
    struct block *block = &pool->blocks[id];
    *block = (struct block){.state = BLOCK_PRIVATE,
                            .present = DEVICE_BIT,
                            .holds = 1,
                            .slot = {slot, NONE, NONE},
                            .arena = (uint16_t)arena,
                            .epoch = pool->shelves[pool->arenas[arena].shelf].epoch};
    pool->slots[slot].block = id;
    return id;
}

/* ---- keys that go --------------------------------------------------------------------------- */

/* For those who follow keys; 0: it has no slot on the device. */
static uint32_t device_number(const struct pool *pool, const struct block *block)
{
    return block->slot[POOL_TIER_DEVICE] == NONE ? 0 : block_slot(pool, block)->number;
}

static void tell_removed(struct pool *pool, const struct block *block)
{
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_REMOVED,
                                     .arena = block->arena,
                                     .slot = device_number(pool, block),
                                     .key = &block->key});
}

/* Out of the index, if it is in it. A block that is held has no copy below from then on. */
static void forget_key(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->is_promised)
        block_unpromise(pool, id);
    if (block->state != BLOCK_PUBLISHED)
        return;
    if (block->holds > 0 && block_is_current(pool, block) && block->present & DEVICE_BIT) {
        arena_of(pool, block)->num_held--;
        arena_of(pool, block)->num_reserved++;
    }
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        uint32_t slot = block->slot[tier];
        if (block->present >> tier & 1)
            tell_gone(pool, slot);
        if (slot != NONE && tier != POOL_TIER_DEVICE)
            slot_vacate(pool, slot, SLOT_TO_TAIL, NONE);
    }
    block->present &= DEVICE_BIT;
    block->incoming &= DEVICE_BIT;
    block->slot[POOL_TIER_HOST] = block->slot[POOL_TIER_DISK] = NONE;
    index_remove(&pool->key_index, key_hash(&block->key, block->arena, false), id);
    block->state = BLOCK_PRIVATE;
    if (!block->is_told_removed)
        tell_removed(pool, block);
}

void block_destroy(struct pool *pool, uint32_t id, uint32_t end, pool_session taker)
{
    struct block *block = &pool->blocks[id];
    uint32_t slot = block->slot[POOL_TIER_DEVICE];

    assert(block->holds == 0);
    forget_key(pool, id);
    block->state = BLOCK_GONE;
    if (slot != NONE)
        slot_vacate(pool, slot, end, taker);
    record_give(&pool->block_pool, LINKS(pool->blocks, link), id);
}

void block_unpublish(struct pool *pool, uint32_t id)
{
    assert(pool->blocks[id].holds > 0 && block_slot(pool, &pool->blocks[id])->num_readers == 0);
    forget_key(pool, id);
}

/* ---- holds ---------------------------------------------------------------------------------- */

void block_hold(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->holds++ > 0)
        return;
    uint32_t slot_id = block->slot[POOL_TIER_DEVICE];
    const struct slot *slot = &pool->slots[slot_id];
    struct arena *arena = arena_of(pool, block);
    if (!slot->is_evictable)
        return; /* it is on its way to the device */
    evictable_remove(pool, arena, slot_id);
    arena->num_held++;
    if (slot->num_readers == 0)
        granule_hold(pool, slot->granule);
}

void block_hold_undo(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (--block->holds > 0 || !(block->present & DEVICE_BIT))
        return;
    uint32_t slot_id = block->slot[POOL_TIER_DEVICE];
    const struct slot *slot = &pool->slots[slot_id];
    struct arena *arena = arena_of(pool, block);
    evictable_restore(pool, arena, slot_id);
    arena->num_held--;
    if (slot->num_readers == 0)
        granule_count(pool, slot->granule, -1, 1);
}

void block_let_go(struct pool *pool, uint32_t id, uint32_t end)
{
    struct block *block = &pool->blocks[id];

    assert(block->holds > 0);
    if (--block->holds > 0)
        return;
    if (!block_is_published(pool, block)) {
        block_destroy(pool, id, end, pool->taking_from);
    } else if (block->present & DEVICE_BIT) {
        arena_of(pool, block)->num_held--;
        place_cache(pool, block->slot[POOL_TIER_DEVICE]);
    } /* else it is on its way to the device, and is cached when it arrives */
}

/* ---- keys ----------------------------------------------------------------------------------- */

static uint32_t arena_block_tokens(const struct pool *pool, uint32_t arena)
{
    return pool->models[pool->shelves[pool->arenas[arena].shelf].model].shape.block_tokens;
}

uint32_t arena_form_words(const struct pool *pool, uint32_t arena)
{
    uint32_t num = arena_block_tokens(pool, arena);

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

const uint32_t *arena_form(const struct pool *pool, uint32_t arena, const uint32_t *tokens,
                           uint32_t hash[2])
{
    uint32_t num = arena_block_tokens(pool, arena);

    if (num <= 32)
        return tokens;
    tokens_hash(tokens, num, hash);
    return hash;
}

static uint32_t *stored_form(const struct pool *pool, uint32_t id)
{
    return &pool->block_tokens[(size_t)id * pool->token_stride];
}

const uint32_t *block_form(const struct pool *pool, uint32_t id)
{
    return stored_form(pool, id);
}

static bool is_found(const struct pool *pool, const struct block *block)
{
    return block->present & pool->found_tiers || block->incoming & DEVICE_BIT;
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
        if (block->arena != arena || !block_is_published(pool, block) || !is_found(pool, block) ||
            memcmp(&block->key, key, sizeof(*key)) != 0)
            continue;
        const uint32_t *form = arena_form(pool, arena, tokens, hash);
        if (memcmp(stored_form(pool, id), form, arena_form_words(pool, arena) * 4u) == 0)
            return id;
        pool->counters.token_mismatches++; /* a collision, or a bug in keys: a miss */
    }
    return NONE;
}

uint32_t block_find_form(struct pool *pool, uint32_t arena, const struct pool_key *key,
                         const uint32_t *form)
{
    struct index_walk walk;

    for (uint32_t id = index_first(&pool->key_index, key_hash(key, arena, false), &walk);
         id != NONE; id = index_next(&pool->key_index, &walk)) {
        const struct block *block = &pool->blocks[id];
        if (block->arena == arena && block_is_published(pool, block) &&
            memcmp(&block->key, key, sizeof(*key)) == 0 &&
            memcmp(stored_form(pool, id), form, arena_form_words(pool, arena) * 4u) == 0)
            return id;
    }
    return NONE;
}

/* Evicts what can be of a block that nobody holds. Whether all of it went, and so the block. */
static bool evict_all(struct pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    for (uint32_t tier = 0; tier < POOL_NUM_TIERS && block->state != BLOCK_GONE; tier++) {
        uint32_t slot = block->slot[tier];
        if (slot != NONE && pool->slots[slot].is_evictable && pool->slots[slot].num_readers == 0)
            place_evict(pool, slot, POOL_NONE);
    }
    return block->state == BLOCK_GONE;
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
        if (block->holds > 0) {
            forget_key(pool, id);
        } else if (!evict_all(pool, id)) { /* a transfer has it: it goes later, without a word */
            tell_removed(pool, block);
            block->is_told_removed = 1;
        }
        return true;
    }
    return false;
}

static void tell_stored(struct pool *pool, const struct block *block, const struct naming *naming)
{
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_STORED,
                                     .arena = block->arena,
                                     .slot = device_number(pool, block),
                                     .key = naming->key,
                                     .parent = naming->parent,
                                     .tokens = naming->tokens,
                                     .num_tokens = arena_block_tokens(pool, block->arena)});
}

/* The block gets its key: it can be found. */
static void give_key(struct pool *pool, uint32_t id, const struct pool_key *key,
                     const uint32_t *form)
{
    struct block *block = &pool->blocks[id];

    block->key = *key;
    block->state = BLOCK_PUBLISHED;
    memcpy(stored_form(pool, id), form, arena_form_words(pool, block->arena) * 4u);
    index_insert(&pool->key_index, key_hash(key, block->arena, false), id);
}

/* Gives @id the places that @other, of the same key, has below the device; @other is gone then. */
static void adopt(struct pool *pool, uint32_t id, uint32_t other_id)
{
    struct block *block = &pool->blocks[id], *other = &pool->blocks[other_id];

    assert(other->holds == 0 && other->slot[POOL_TIER_DEVICE] == NONE);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        block->slot[tier] = other->slot[tier];
        if (other->slot[tier] != NONE)
            pool->slots[other->slot[tier]].block = id;
    }
    block->present |= other->present;
    block->incoming |= other->incoming;
    block->is_unwanted |= other->is_unwanted;
    index_remove(&pool->key_index, key_hash(&other->key, other->arena, false), other_id);
    other->state = BLOCK_GONE;
    record_give(&pool->block_pool, LINKS(pool->blocks, link), other_id);
}

void block_publish(struct pool *pool, uint32_t id, const struct naming *naming)
{
    struct block *block = &pool->blocks[id];
    struct arena *arena = arena_of(pool, block);
    uint32_t hash[2], other = NONE;
    const uint32_t *form = arena_form(pool, block->arena, naming->tokens, hash);

    assert(block->state == BLOCK_PRIVATE && block->holds > 0 && block_is_current(pool, block));
    assert(block->present == DEVICE_BIT);
    if (block->is_promised)
        block_unpromise(pool, id);
    while (forget_stale(pool, block->arena, naming->key))
        ;
    if (pool->num_tiers > 1)
        other = block_find_form(pool, block->arena, naming->key, form);
    give_key(pool, id, naming->key, form);
    block->is_wanted = naming->is_wanted;
    block->is_unwanted = naming->is_unwanted;
    arena->num_reserved--;
    arena->num_held++;
    if (other != NONE)
        adopt(pool, id, other);
    else
        tell_stored(pool, block, naming);
    tell_present(pool, block->slot[POOL_TIER_DEVICE], naming->parent);
}

uint32_t block_restore(struct pool *pool, uint32_t slot, const struct pool_restored *restored)
{
    const struct arena *arena = slot_arena(pool, slot);
    const struct shelf *shelf = &pool->shelves[arena->shelf];
    uint32_t device_arena = shelf->first_arena + arena->group;
    const struct naming naming = {
        .key = &restored->key,
        .parent = restored->parent,
        .tokens = arena_block_tokens(pool, device_arena) <= 32 ? restored->form : NULL};
    uint32_t id = record_take(&pool->block_pool, LINKS(pool->blocks, link));

    assert(id != NONE);
    while (forget_stale(pool, device_arena, &restored->key))
        ;
    pool->blocks[id] =
        (struct block){.slot = {NONE, NONE, NONE},
                       .arena = (uint16_t)device_arena,
                       .epoch = shelf->epoch,
                       .is_wanted = !restored->is_unstorable && !restored->is_generated,
                       .is_unwanted = restored->is_unstorable};
    give_key(pool, id, &restored->key, restored->form);
    if (arena->tier == POOL_TIER_DEVICE)
        pool->blocks[id].slot[POOL_TIER_DEVICE] = slot;
    tell_stored(pool, &pool->blocks[id], &naming);
    return id;
}

/* ---- single flight -------------------------------------------------------------------------- */

void block_promise(struct pool *pool, uint32_t id, const struct pool_key *key, uint32_t filler)
{
    struct block *block = &pool->blocks[id];

    assert(block->state == BLOCK_PRIVATE && !block->is_promised);
    block->key = *key;
    block->is_promised = 1;
    block->filler = filler;
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
        const struct sequence *filler = &pool->sequences[block->filler];
        if (pool->sessions[filler->session].state == SESSION_LIVE &&
            !sequence_is_stale(pool, filler))
            return block->filler;
    }
    return NONE;
}
