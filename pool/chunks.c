/* pool/chunks.c - capped chunks that hold token ids and block tables; forks share them. */
#include "pool/chunks.h"

#include <stdlib.h>

#include "pool/memory.h"

static struct links chunk_links(const struct chunk_store *store)
{
    return (struct links){store->memory + offsetof(struct chunk, link), store->chunk_bytes};
}

int chunks_create(uint32_t num_chunks, uint32_t chunk_bytes, struct chunk_store **out_store)
{
    struct chunk_store *store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    store->memory = memory_take(num_chunks, chunk_bytes);
    if (!store->memory) {
        free(store);
        return -ENOMEM;
    }
    store->chunk_bytes = chunk_bytes;
    store->pool = (struct record_pool){.capacity = num_chunks, .first_free = NONE};
    *out_store = store;
    return 0;
}

void chunks_destroy(struct chunk_store *store)
{
    if (!store)
        return;
    memory_give(store->memory);
    free(store);
}

uint32_t chunk_take(struct chunk_store *store, uint32_t parent)
{
    uint32_t id = record_take(&store->pool, chunk_links(store));

    assert(id != NONE);
    struct chunk *chunk = chunk_at(store, id);
    chunk->parent = parent;
    chunk->refs = 1;
    chunk->count = 0;
    chunk->num_claims = 0;
    return id;
}

void chunk_give(struct chunk_store *store, uint32_t chunk)
{
    chunk_at(store, chunk)->refs = 0;
    record_give(&store->pool, chunk_links(store), chunk);
}

void chain_release(struct chunk_store *store, uint32_t chunk)
{
    while (chunk != NONE && --chunk_at(store, chunk)->refs == 0) {
        uint32_t parent = chunk_at(store, chunk)->parent;
        chunk_give(store, chunk);
        chunk = parent;
    }
}
