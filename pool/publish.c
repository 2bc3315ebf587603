/*
 * pool/publish.c - full blocks get their keys; what left the sliding windows is let go of.
 *
 * If a key already has a block (two engines filled the same), the table takes that one and its own
 * slot is free again; a mapped engine reads its tables itself, so it keeps its own, unpublished. If
 * that one is only below the device, the own block takes over its copies.
 */
#include "pool/arena.h"
#include "pool/arriving.h"
#include "pool/block.h"
#include "pool/demote.h"
#include "pool/sequence.h"

/* Where a key will stand in the index is asked for so much earlier: 72 ns a block, not 128. */
enum { KEYS_AHEAD = 12 };

/* Nobody has to wait for what this sequence fills here any more. */
static void end_promise(struct pool *pool, const struct sequence *sequence, uint32_t block)
{
    if (pool->blocks[block].is_promised &&
        pool->blocks[block].filler == sequence_id(pool, sequence))
        block_unpromise(pool, block);
}

/* The table takes @found instead of its own block. */
static void merge(struct pool *pool, struct sequence *sequence, uint32_t first, uint32_t position,
                  uint32_t group, uint32_t found)
{
    if (table_own(pool, sequence, position))
        (void)table_path(pool, sequence, first);

    struct entry *entry = &table_at(pool, sequence, first, position)[group];
    uint32_t own = entry->block;
    end_promise(pool, sequence, own);
    block_hold(pool, found);
    *entry = (struct entry){found, block_slot(pool, &pool->blocks[found])->number};
    block_let_go(pool, own, SLOT_TO_HEAD);
    pool->counters.merged++;
}

static enum pool_store store_of(const struct pool *pool, const struct sequence *sequence)
{
    return pool->sessions[sequence->session].store;
}

/* Whether the block is to be kept below the device. */
static void store_wanted(const struct pool *pool, const struct sequence *sequence, uint32_t group,
                         uint32_t position, struct naming *naming)
{
    const struct model *model = &pool->models[sequence->model];
    uint64_t block_tokens = model->shape.block_tokens, prompt = sequence->num_prompt;
    enum pool_store store = store_of(pool, sequence);

    naming->is_unwanted = store == POOL_STORE_NONE;
    naming->is_wanted = store == POOL_STORE_ALL;
    if (store != POOL_STORE_PROMPT || (position + UINT64_C(1)) * block_tokens > prompt)
        return;
    /* The shortest hit of this prompt ends before its last token: see match.c. */
    uint64_t hit = (prompt - 1) / block_tokens * block_tokens;
    naming->is_wanted = position >= window_start(model, group, hit);
}

static void publish_one(struct pool *pool, struct sequence *sequence, uint32_t first,
                        uint32_t position, uint32_t group)
{
    uint32_t id = table_at(pool, sequence, first, position)[group].block;

    if (id == NONE || position < sequence->num_shared)
        return;
    struct block *block = &pool->blocks[id];
    if (block_is_published(pool, block))
        return;
    if (sequence_is_stale(pool, sequence) || !block_is_current(pool, block)) {
        end_promise(pool, sequence, id);
        return;
    }
    const uint32_t *ids = tokens_ids_at(pool, sequence, first, position);
    struct naming naming = {
        .key = tokens_key_at(pool, sequence, first, position),
        .parent = position == 0 ? NULL : tokens_key_at(pool, sequence, first, position - 1),
        .tokens = ids};
    uint32_t found = block_find(pool, block->arena, naming.key, ids);
    if (found == NONE || pool->blocks[found].slot[POOL_TIER_DEVICE] == NONE) {
        if (pool->num_tiers > 1)
            store_wanted(pool, sequence, group, position, &naming);
        block_publish(pool, id, &naming);
        if (pool->config.store_when == POOL_STORE_AT_ONCE)
            demote_now(pool, id);
    } else if (!sequence->is_mapped && pool->blocks[found].present & DEVICE_BIT) {
        pool->blocks[found].is_unwanted |= store_of(pool, sequence) == POOL_STORE_NONE;
        merge(pool, sequence, first, position, group, found);
    } else { /* a mapped engine reads its own; what is on its way here cannot be read yet */
        end_promise(pool, sequence, id);
    }
}

/* Whether publishing this position would take a block out of the table: its key has another. */
static bool would_merge(struct pool *pool, const struct sequence *sequence, uint32_t first,
                        uint32_t position)
{
    const struct entry *entries = table_at(pool, sequence, first, position);

    if (position < sequence->num_shared || sequence->is_mapped)
        return false;
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        uint32_t id = entries[group].block;
        uint32_t found = id == NONE ? NONE
                                    : block_find(pool, pool->blocks[id].arena,
                                                 tokens_key_at(pool, sequence, first, position),
                                                 tokens_ids_at(pool, sequence, first, position));
        if (found != NONE && found != id && pool->blocks[found].present & DEVICE_BIT)
            return true;
    }
    return false;
}

static void publish_full_blocks(struct pool *pool, struct sequence *sequence, uint32_t end)
{
    uint32_t considered = sequence->considered;
    uint32_t first = considered > 0 ? considered - 1 : 0; /* the paths have its parent, too */

    if (considered >= end)
        return;
    (void)table_path(pool, sequence, first);
    tokens_path(pool, sequence, first);
    if (sequence->step != NONE) { /* attends may read its blocks: the merging ones come later */
        uint32_t position = considered;
        while (position < end && !would_merge(pool, sequence, first, position))
            position++;
        end = position;
    }
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        for (uint32_t position = considered; position < end; position++) {
            if (position + KEYS_AHEAD < end)
                index_prefetch(&pool->key_index,
                               key_hash(tokens_key_at(pool, sequence, first, position + KEYS_AHEAD),
                                        pool->shelves[sequence->shelf].first_arena + group, false));
            publish_one(pool, sequence, first, position, group);
        }
    }
    sequence->considered = end;
}

/* Out of the window of whatever comes behind @num_tokens, which no running step can read either. */
static void slide_window(struct pool *pool, struct sequence *sequence, uint32_t group,
                         uint64_t num_tokens)
{
    uint32_t first = sequence->first_kept[group];
    uint32_t start = window_start(&pool->models[sequence->model], group, num_tokens);

    if (start > sequence->considered)
        start = sequence->considered; /* behind it, publishing waits for the step's end */
    if (start <= first)
        return;
    (void)table_own(pool, sequence, first);
    (void)table_path(pool, sequence, first);
    for (uint32_t position = first; position < start; position++) {
        struct entry *entry = &table_at(pool, sequence, first, position)[group];
        if (entry->block != NONE)
            block_let_go(pool, entry->block, SLOT_TO_HEAD);
        *entry = (struct entry){NONE, 0};
    }
    sequence->first_kept[group] = start;
}

/* The first position that publishing may write to. */
static uint32_t first_written(const struct pool *pool, const struct sequence *sequence)
{
    const struct pool_model_shape *shape = &pool->models[sequence->model].shape;
    uint32_t first = sequence->considered;

    for (uint32_t group = 0; group < shape->num_groups; group++) {
        if (shape->groups[group].window > 0 && sequence->first_kept[group] < first)
            first = sequence->first_kept[group];
    }
    return first;
}

static int sequence_publish_up_to(struct pool *pool, struct sequence *sequence, uint64_t num_tokens)
{
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens;

    if (!table_can_write(pool, sequence, first_written(pool, sequence), sequence->num_positions))
        return POOL_LIMIT;
    publish_full_blocks(pool, sequence, (uint32_t)(num_tokens / block_tokens));
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++)
        slide_window(pool, sequence, group, num_tokens);
    arriving_published(pool, sequence);
    return 0;
}

int sequence_publish(struct pool *pool, struct sequence *sequence)
{
    return sequence_publish_up_to(pool, sequence, sequence->num_complete);
}

int pool_publish_up_to(struct pool *pool, struct pool_name name, uint64_t num_tokens)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (!sequence->is_mapped || sequence->is_preempted || num_tokens > sequence->length ||
        (!sequence->is_filled && num_tokens < sequence->num_complete))
        return POOL_INVALID;
    if (sequence_is_busy(sequence))
        return POOL_BUSY;
    if (!sequence->is_filled) {
        sequence->num_complete = num_tokens;
        sequence->is_filled = num_tokens == sequence->length;
    }
    return sequence_publish_up_to(pool, sequence, num_tokens);
}

int pool_publish(struct pool *pool, struct pool_name name)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (sequence->is_preempted || !sequence->is_filled)
        return POOL_INVALID;
    if (sequence_is_busy(sequence))
        return POOL_BUSY;
    return sequence_publish(pool, sequence);
}
