/* pool/table.c - block tables in chunks that forks share. */
#include "pool/table.h"

#include "pool/arena.h"
#include "pool/block.h"

static struct entry *entries_of(const struct chunk *chunk)
{
    return (struct entry *)(chunk + 1);
}

static uint32_t per_chunk(const struct pool *pool, const struct sequence *sequence)
{
    return pool->models[sequence->model].table_positions;
}

bool model_fit_chunks(const struct pool *pool, struct model *model)
{
    uint32_t entry_bytes = model->shape.num_groups * (uint32_t)sizeof(struct entry);
    uint32_t token_bytes = model->shape.block_tokens * 4 + (uint32_t)sizeof(struct pool_key);

    model->table_positions = chunk_body_bytes(pool->table_chunks) / entry_bytes;
    model->token_positions = chunk_body_bytes(pool->token_chunks) / token_bytes;
    return model->table_positions > 0 && model->token_positions > 0;
}

/* The chunk @steps before the last one. */
static uint32_t chunk_back(const struct chunk_store *store, uint32_t last, uint32_t steps)
{
    while (steps-- > 0)
        last = chunk_at(store, last)->parent;
    return last;
}

/* The number of the last chunk, counted from 0; the table is not empty. */
static uint32_t last_number(const struct pool *pool, const struct sequence *sequence)
{
    return (sequence->num_positions - 1) / per_chunk(pool, sequence);
}

struct entry *table_entries(const struct pool *pool, const struct sequence *sequence,
                            uint32_t position)
{
    uint32_t size = per_chunk(pool, sequence);
    uint32_t chunk = chunk_back(pool->table_chunks, sequence->table_chunk,
                                last_number(pool, sequence) - position / size);

    return entries_of(chunk_at(pool->table_chunks, chunk)) +
           (size_t)(position % size) * num_groups_of(pool, sequence);
}

uint32_t table_path(struct pool *pool, const struct sequence *sequence, uint32_t first)
{
    uint32_t length = sequence->num_positions;

    if (first >= length)
        return 0;
    uint32_t count = last_number(pool, sequence) - first / per_chunk(pool, sequence) + 1;
    uint32_t chunk = sequence->table_chunk;
    for (uint32_t at = count; at > 0; at--) {
        pool->path[at - 1] = chunk;
        chunk = chunk_at(pool->table_chunks, chunk)->parent;
    }
    return count;
}

/*
 * How many chunks from that of @position on are shared: those up to the last one with several refs,
 * for the ref of one before it may come from a chunk that is shared.
 */
static uint32_t num_shared_chunks(const struct pool *pool, const struct sequence *sequence,
                                  uint32_t position)
{
    if (position >= sequence->num_positions)
        return 0;
    uint32_t count = last_number(pool, sequence) - position / per_chunk(pool, sequence) + 1;
    uint32_t chunk = sequence->table_chunk;
    while (count > 0 && chunk_at(pool->table_chunks, chunk)->refs == 1) {
        chunk = chunk_at(pool->table_chunks, chunk)->parent;
        count--;
    }
    return count;
}

uint32_t table_chunks_needed(const struct pool *pool, const struct sequence *sequence,
                             uint32_t position, uint32_t length)
{
    uint32_t size = per_chunk(pool, sequence);
    uint32_t have = (sequence->num_positions + size - 1) / size;
    uint32_t want = (length + size - 1) / size;

    return num_shared_chunks(pool, sequence, position) + (want > have ? want - have : 0);
}

/* A copy of the first @count positions of @chunk, behind @parent; its entries are held once more.
 */
static uint32_t chunk_copy(struct pool *pool, uint32_t chunk, uint32_t parent, uint32_t count)
{
    uint32_t copy = chunk_take(pool->table_chunks, parent);
    uint32_t num_groups = chunk_at(pool->table_chunks, chunk)->num_groups;
    uint32_t num_entries = count * num_groups;
    const struct entry *from = entries_of(chunk_at(pool->table_chunks, chunk));
    struct entry *to = entries_of(chunk_at(pool->table_chunks, copy));

    for (uint32_t i = 0; i < num_entries; i++) {
        to[i] = from[i];
        if (to[i].block != NONE)
            block_hold(pool, to[i].block);
    }
    chunk_at(pool->table_chunks, copy)->count = count;
    chunk_at(pool->table_chunks, copy)->num_groups = num_groups & 0xff;
    return copy;
}

bool table_own(struct pool *pool, struct sequence *sequence, uint32_t position)
{
    struct chunk_store *store = pool->table_chunks;
    uint32_t num_shared = num_shared_chunks(pool, sequence, position);

    if (num_shared == 0)
        return false;
    uint32_t num_path = table_path(pool, sequence, position);
    uint32_t parent = chunk_at(store, pool->path[0])->parent;
    uint32_t last_shared = pool->path[num_shared - 1];
    if (parent != NONE)
        chunk_at(store, parent)->refs++;
    for (uint32_t at = 0; at < num_shared; at++)
        parent = chunk_copy(pool, pool->path[at], parent, chunk_at(store, pool->path[at])->count);
    chunk_at(store, last_shared)->refs--; /* others have it: it stays */
    if (num_shared < num_path)
        chunk_at(store, pool->path[num_shared])->parent = parent;
    else
        sequence->table_chunk = parent;
    return true;
}

struct entry *table_add(struct pool *pool, struct sequence *sequence)
{
    struct chunk_store *store = pool->table_chunks;
    uint32_t num_groups = num_groups_of(pool, sequence);
    struct chunk *chunk =
        sequence->num_positions == 0 ? NULL : chunk_at(store, sequence->table_chunk);

    if (!chunk || chunk->count == per_chunk(pool, sequence)) {
        sequence->table_chunk = chunk_take(store, sequence->table_chunk);
        chunk = chunk_at(store, sequence->table_chunk);
        chunk->num_groups = num_groups & 0xff;
    }
    assert(chunk->refs == 1);
    struct entry *entries = entries_of(chunk) + (size_t)chunk->count * num_groups;
    for (uint32_t group = 0; group < num_groups; group++)
        entries[group] = (struct entry){.block = NONE, .number = 0};
    chunk->count++;
    if (sequence->num_positions++ == 0)
        pool->num_holding++;
    return entries;
}

bool table_shares_tail(const struct pool *pool, const struct sequence *sequence,
                       const struct entry *entry)
{
    return pool->blocks[entry->block].holds > 1 ||
           chunk_at(pool->table_chunks, sequence->table_chunk)->refs > 1;
}

PREFETCHES static inline void prefetch_entries(const struct pool *pool, const struct entry *entries,
                                               uint32_t at)
{
    block_prefetch(pool, at >= PREFETCH_BLOCK ? entries[at - PREFETCH_BLOCK].block : NONE);
    block_prefetch_slot(pool, at >= PREFETCH_SLOT ? entries[at - PREFETCH_SLOT].block : NONE);
    block_prefetch_granule(pool,
                           at >= PREFETCH_GRANULE ? entries[at - PREFETCH_GRANULE].block : NONE);
}

/* Lets go of the entries of an own chunk from its position @from on, last to first. */
static void let_go_of_positions(struct pool *pool, struct chunk *chunk, uint32_t from,
                                uint32_t num_groups)
{
    const struct entry *entries = entries_of(chunk);

    for (uint32_t position = chunk->count; position-- > from;) {
        for (uint32_t at = position * num_groups; at < (position + 1) * num_groups; at++) {
            prefetch_entries(pool, entries, at);
            if (entries[at].block != NONE)
                block_let_go(pool, entries[at].block, SLOT_TO_BATCH);
        }
    }
    chunk->count = from;
}

/* Drops the last chunk of the table: lets go of its blocks if the sequence alone has it. */
static void drop_last_chunk(struct pool *pool, struct sequence *sequence)
{
    struct chunk_store *store = pool->table_chunks;
    struct chunk *chunk = chunk_at(store, sequence->table_chunk);
    uint32_t parent = chunk->parent;

    if (chunk->refs > 1) {
        chunk->refs--;
        if (parent != NONE)
            chunk_at(store, parent)->refs++; /* the sequence's, beside the chunk's */
    } else {
        let_go_of_positions(pool, chunk, 0, num_groups_of(pool, sequence));
        chunk_give(store, sequence->table_chunk);
    }
    sequence->table_chunk = parent;
}

void table_truncate(struct pool *pool, struct sequence *sequence, uint32_t length)
{
    struct chunk_store *store = pool->table_chunks;
    uint32_t size = per_chunk(pool, sequence), num_groups = num_groups_of(pool, sequence);
    bool had_blocks = sequence->num_positions > 0;

    while (sequence->num_positions > length) {
        uint32_t start = last_number(pool, sequence) * size; /* of the last chunk */
        if (start >= length) {
            drop_last_chunk(pool, sequence);
            sequence->num_positions = start;
            continue;
        }
        struct chunk *chunk = chunk_at(store, sequence->table_chunk);
        if (chunk->refs > 1) {
            if (chunk->parent != NONE)
                chunk_at(store, chunk->parent)->refs++;
            uint32_t copy = chunk_copy(pool, sequence->table_chunk, chunk->parent, length - start);
            chunk->refs--;
            sequence->table_chunk = copy;
        } else {
            let_go_of_positions(pool, chunk, length - start, num_groups);
        }
        sequence->num_positions = length;
    }
    if (had_blocks && length == 0)
        pool->num_holding--;
}
