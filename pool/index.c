/* pool/index.c - open addressing from a 64-bit hash to record indices. */
#include "pool/index.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "pool/memory.h"

int index_init(struct index *index, uint64_t max_entries)
{
    uint64_t size = 16;

    while (size < max_entries + max_entries / 2)
        size *= 2;
    if (size > UINT32_MAX)
        return -ENOMEM;
    index->entries = memory_take(size, sizeof(*index->entries));
    if (!index->entries)
        return -ENOMEM;
    index->mask = (uint32_t)(size - 1);
    return 0;
}

void index_finish(struct index *index)
{
    memory_give(index->entries);
    index->entries = NULL;
}

uint64_t index_bytes(const struct index *index)
{
    return ((uint64_t)index->mask + 1) * sizeof(*index->entries);
}

void index_insert(struct index *index, uint64_t hash, uint32_t id)
{
    uint32_t tag = index_tag(hash);
    uint32_t at = tag & index->mask;

    while (index->entries[at].id_plus_1 != 0)
        at = (at + 1) & index->mask;
    index->entries[at] = (struct index_entry){tag, id + 1};
}

/* Closes the hole at @hole: entries behind it that may stand there move up. */
static void close_hole(struct index *index, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & index->mask; index->entries[at].id_plus_1 != 0;
         at = (at + 1) & index->mask) {
        uint32_t home = index->entries[at].tag & index->mask;

        /* It may move if its home is not in (hole, at]. */
        if (((at - home) & index->mask) >= ((at - hole) & index->mask)) {
            index->entries[hole] = index->entries[at];
            hole = at;
        }
    }
    index->entries[hole].id_plus_1 = 0;
}

void index_remove(struct index *index, uint64_t hash, uint32_t id)
{
    uint32_t tag = index_tag(hash);
    uint32_t at = tag & index->mask;

    while (index->entries[at].tag != tag || index->entries[at].id_plus_1 != id + 1) {
        assert(index->entries[at].id_plus_1 != 0);
        at = (at + 1) & index->mask;
    }
    close_hole(index, at);
}
