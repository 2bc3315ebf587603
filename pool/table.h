/*
 * pool/table.h - (internal) the tables and token ids of a sequence, in chunks that forks share.
 *
 * Positions count blocks from the sequence's start. Chunks are taken only after the caller made
 * sure of them with table_can_write() and tokens_can_write(): past that point nothing fails.
 */
#pragma once

#include "pool/chunks.h"

static inline uint32_t positions_of(const struct pool *pool, const struct sequence *sequence,
                                    uint64_t num_tokens)
{
    uint32_t block_tokens = pool->models[sequence->model].shape.block_tokens;

    return (uint32_t)((num_tokens + block_tokens - 1) / block_tokens);
}
static inline uint32_t num_groups_of(const struct pool *pool, const struct sequence *sequence)
{
    return pool->models[sequence->model].shape.num_groups;
}

/* How many positions and ids fit into a chunk of this model; false: none. */
bool model_fit_chunks(const struct pool *pool, struct model *model);

/* ---- tables ---- */

/* Entries of all groups at one position. */
struct entry *table_entries(const struct pool *pool, const struct sequence *sequence,
                            uint32_t position);

/* Chunks that it takes to write from @position on and to grow to @length positions. */
uint32_t table_chunks_needed(const struct pool *pool, const struct sequence *sequence,
                             uint32_t position, uint32_t length);
static inline bool table_can_write(const struct pool *pool, const struct sequence *sequence,
                                   uint32_t position, uint32_t length)
{
    return table_chunks_needed(pool, sequence, position, length) <= chunks_left(pool->table_chunks);
}
/*
 * Makes the chunks from @position on the sequence's own; each copied entry is one more hold.
 * Returns whether any was copied, which makes what table_path() found invalid.
 */
bool table_own(struct pool *pool, struct sequence *sequence, uint32_t position);
/* Appends a position, all groups out of the window; its chunk is the sequence's own. */
struct entry *table_add(struct pool *pool, struct sequence *sequence);
/* Whether another table has the last block too, through @entry or through its chunk. */
bool table_shares_tail(const struct pool *pool, const struct sequence *sequence,
                       const struct entry *entry);

/*
 * Lets go of all blocks from @length on, from the last position to the first, at each position
 * group after group. Needs a chunk only where it cuts a shared one: see table_can_write(length,
 * length).
 */
void table_truncate(struct pool *pool, struct sequence *sequence, uint32_t length);

/*
 * Fills @pool->path with the table's chunks from that of position @first to the last, to go through
 * the table forwards with table_at(). Returns their number.
 */
uint32_t table_path(struct pool *pool, const struct sequence *sequence, uint32_t first);
/* Entries of all groups at @position, after table_path(first). */
static inline struct entry *table_at(const struct pool *pool, const struct sequence *sequence,
                                     uint32_t first, uint32_t position)
{
    const struct model *model = &pool->models[sequence->model];
    uint32_t size = model->table_positions;
    uint32_t chunk = pool->path[position / size - first / size];

    return (struct entry *)(chunk_at(pool->table_chunks, chunk) + 1) +
           (size_t)(position % size) * model->shape.num_groups;
}

/* ---- token ids and keys ---- */

/* Chunks that it takes to append @count tokens, at most. */
uint64_t tokens_chunks_needed(const struct pool *pool, const struct sequence *sequence,
                              uint64_t count);
/* Appends to sequence->length tokens; keys are of the blocks that become full. */
void tokens_add(struct pool *pool, struct sequence *sequence, const struct pool_tokens *tokens);
void tokens_truncate(struct pool *pool, struct sequence *sequence, uint64_t num_tokens);
bool tokens_equal(const struct pool *pool, const struct sequence *sequence, uint64_t first,
                  const uint32_t *ids, uint64_t count);
/* Copies ids [first, first + count); INVALID beyond the sequence. */
int tokens_copy(const struct pool *pool, const struct sequence *sequence, uint64_t first,
                uint64_t count, uint32_t *out);
/* Like table_path(), into @pool->token_path, for the keys and ids of positions from @first on. */
void tokens_path(struct pool *pool, const struct sequence *sequence, uint32_t first);
const struct pool_key *tokens_key_at(const struct pool *pool, const struct sequence *sequence,
                                     uint32_t first, uint32_t position);
const uint32_t *tokens_ids_at(const struct pool *pool, const struct sequence *sequence,
                              uint32_t first, uint32_t position);
