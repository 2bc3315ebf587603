/*
 * pool/index.h - (internal) open addressing from a 64-bit hash to record indices.
 *
 * Holds only a tag and the index; the caller compares the record. Linear probing, removal by
 * shifting back (no tombstones), a fixed size of at least 1.5 times what it can ever hold: no
 * allocation after start. Equal hashes may stand in it several times.
 */
#pragma once

#include <stdint.h>

struct index_entry {
    uint32_t tag;
    uint32_t id_plus_1; /* 0: empty */
};

struct index {
    struct index_entry *entries;
    uint32_t mask;
};

/* -ENOMEM. */
int index_init(struct index *index, uint64_t max_entries);
void index_finish(struct index *index);
uint64_t index_bytes(const struct index *index);

void index_insert(struct index *index, uint64_t hash, uint32_t id);
/* The pair must be in it. */
void index_remove(struct index *index, uint64_t hash, uint32_t id);

static inline uint32_t index_tag(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

/* Walks the records that have @hash (or happen to share its tag): for (at = index_first ... */
struct index_walk {
    uint32_t at, tag;
};

static inline uint32_t index_next(const struct index *index, struct index_walk *walk)
{
    for (;; walk->at = (walk->at + 1) & index->mask) {
        const struct index_entry *entry = &index->entries[walk->at];
        if (entry->id_plus_1 == 0)
            return UINT32_MAX;
        if (entry->tag == walk->tag) {
            walk->at = (walk->at + 1) & index->mask;
            return entry->id_plus_1 - 1;
        }
    }
}

static inline uint32_t index_first(const struct index *index, uint64_t hash,
                                   struct index_walk *walk)
{
    walk->tag = index_tag(hash);
    walk->at = walk->tag & index->mask;
    return index_next(index, walk);
}

/* gcc takes a function that only prefetches for one without effect, and drops the call. */
#define PREFETCHES __attribute__((always_inline))

PREFETCHES static inline void index_prefetch(const struct index *index, uint64_t hash)
{
    __builtin_prefetch(&index->entries[index_tag(hash) & index->mask]);
}
