/*
 * pool/chunks.h - (internal) capped chunks that hold token ids and block tables; forks share them.
 *
 * A chain of chunks goes from the last one back to the first by @parent. Every chunk but the last
 * of a chain is full. @refs counts what points to a chunk: sequences whose last chunk it is, and
 * chunks whose parent it is. So a sequence alone owns the end of its chain up to the last chunk
 * with several refs; that one and all before it are shared, and are copied before they are written.
 *
 * A token chunk has keys and token ids of its positions; ids beyond a sequence's length are
 * garbage. A table chunk has exactly the entries of every sequence that shares it, and each entry
 * is one hold: a fork costs no hold, and the chunk's last release lets go.
 */
#pragma once

#include "pool/internal.h"

struct chunk {
    struct link link; /* free chunks */
    uint32_t parent;
    uint32_t refs;
    uint32_t count;           /* table chunks: positions in use */
    uint32_t num_groups : 8;  /* table chunks */
    uint32_t num_claims : 24; /* scratch of check_tables.c */
    /* 8-byte aligned body follows */
};

struct chunk_store {
    char *memory;
    uint32_t chunk_bytes;
    struct record_pool pool;
};

/* One position of one group's table: the block, and its slot's number, which tables are read for.
 */
struct entry {
    uint32_t block; /* NONE: out of the window */
    uint32_t number;
};

int chunks_create(uint32_t num_chunks, uint32_t chunk_bytes, struct chunk_store **out_store);
void chunks_destroy(struct chunk_store *store);

/* A chunk with one ref, behind @parent, whose ref it takes over. The caller checked chunks_left().
 */
uint32_t chunk_take(struct chunk_store *store, uint32_t parent);
void chunk_give(struct chunk_store *store, uint32_t chunk);

static inline uint32_t chunks_left(const struct chunk_store *store)
{
    return records_left(&store->pool);
}
static inline struct chunk *chunk_at(const struct chunk_store *store, uint32_t chunk)
{
    return (struct chunk *)(store->memory + (size_t)chunk * store->chunk_bytes);
}
static inline uint32_t chunk_body_bytes(const struct chunk_store *store)
{
    return store->chunk_bytes - (uint32_t)sizeof(struct chunk);
}

/* Drops one ref of a chain's last chunk; chunks without refs are free. For token chains. */
void chain_release(struct chunk_store *store, uint32_t chunk);
