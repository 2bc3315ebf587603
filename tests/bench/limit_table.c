/* tests/bench/limit_table.c - a bare table of digests, as fast as memory allows. */
#include "tests/bench/limit_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AHEAD = 12, NONE = UINT32_MAX, HUGE_PAGE = 2 << 20 };

struct entry {
    uint8_t digest[32];
    uint32_t refs, is_used, prev, next;
    uint64_t unused[2];
};
_Static_assert(sizeof(struct entry) == 64, "one cache line");

struct limit_table {
    struct entry *entries;
    size_t num_entries, mask;
    uint32_t head, tail;
};

struct limit_table *limit_table_create(size_t num_entries)
{
    struct limit_table *table = calloc(1, sizeof(*table));
    size_t size = 16;

    while (size < 2 * num_entries)
        size *= 2;
    if (table)
        table->entries = aligned_alloc(HUGE_PAGE, (size * sizeof(struct entry) + HUGE_PAGE - 1) /
                                                      HUGE_PAGE * HUGE_PAGE);
    if (!table || !table->entries) {
        fprintf(stderr, "limit_table: no memory\n");
        exit(1);
    }
    (void)madvise(table->entries, size * sizeof(struct entry), MADV_HUGEPAGE);
    memset(table->entries, 0, size * sizeof(struct entry));
    table->mask = size - 1;
    table->head = table->tail = NONE;
    return table;
}

void limit_table_destroy(struct limit_table *table)
{
    free(table->entries);
    free(table);
}

static size_t home(const struct limit_table *table, const uint8_t digest[32])
{
    uint64_t word;

    memcpy(&word, digest, sizeof(word));
    return word & table->mask;
}

static uint32_t find(const struct limit_table *table, const uint8_t digest[32])
{
    size_t at = home(table, digest);

    while (table->entries[at].is_used && memcmp(table->entries[at].digest, digest, 32) != 0)
        at = (at + 1) & table->mask;
    return (uint32_t)at;
}

static void push_tail(struct limit_table *table, uint32_t at)
{
    struct entry *entry = &table->entries[at];

    entry->prev = table->tail;
    entry->next = NONE;
    *(table->tail == NONE ? &table->head : &table->entries[table->tail].next) = at;
    table->tail = at;
}

static void unlink_entry(struct limit_table *table, uint32_t at)
{
    const struct entry *entry = &table->entries[at];

    *(entry->prev == NONE ? &table->head : &table->entries[entry->prev].next) = entry->next;
    *(entry->next == NONE ? &table->tail : &table->entries[entry->next].prev) = entry->prev;
}

void limit_table_insert(struct limit_table *table, const uint8_t digest[32])
{
    uint32_t at = find(table, digest);

    memcpy(table->entries[at].digest, digest, 32);
    table->entries[at].is_used = 1;
    push_tail(table, at);
}

static void read_ahead(const struct limit_table *table, const uint8_t (*digests)[32], size_t i,
                       size_t count)
{
    if (i + AHEAD < count)
        __builtin_prefetch(&table->entries[home(table, digests[i + AHEAD])], 1);
}

void limit_table_find(struct limit_table *table, const uint8_t (*digests)[32], size_t count,
                      uint32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        read_ahead(table, digests, i, count);
        out[i] = find(table, digests[i]);
    }
}

void limit_table_hold(struct limit_table *table, const uint8_t (*digests)[32], size_t count,
                      uint32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        read_ahead(table, digests, i, count);
        out[i] = find(table, digests[i]);
        if (table->entries[out[i]].refs++ == 0)
            unlink_entry(table, out[i]);
    }
}

void limit_table_let_go(struct limit_table *table, const uint32_t *entries, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        if (i >= AHEAD)
            __builtin_prefetch(&table->entries[entries[i - AHEAD]], 1);
        if (--table->entries[entries[i]].refs == 0)
            push_tail(table, entries[i]);
    }
}

void limit_table_replace(struct limit_table *table, const uint8_t (*digests)[32], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t at = table->head;

        read_ahead(table, digests, i, count);
        unlink_entry(table, at);
        table->entries[home(table, digests[i])].unused[0]++;
        memcpy(&table->entries[at].unused, digests[i], sizeof(table->entries[at].unused));
        push_tail(table, at);
    }
}
