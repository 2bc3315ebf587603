/*
 * tests/bench/limit_table.h - what memory allows an index of blocks: digests in one table of
 * 64-byte entries at a load of at most one half, each with a count and the links of one list.
 * Nothing else: no tenants, no tables of sequences, no token ids.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct limit_table;

/* Room for @num_entries; exits if there is no memory. */
struct limit_table *limit_table_create(size_t num_entries);
void limit_table_destroy(struct limit_table *table);
void limit_table_insert(struct limit_table *table, const uint8_t digest[32]);

/* Each reads ahead 12 digests; @digests are in the table. */
void limit_table_find(struct limit_table *table, const uint8_t (*digests)[32], size_t count,
                      uint32_t *out);
/* Counts each up, and takes it out of the list. */
void limit_table_hold(struct limit_table *table, const uint8_t (*digests)[32], size_t count,
                      uint32_t *out);
/* Counts each down, last to first, to the list's tail. */
void limit_table_let_go(struct limit_table *table, const uint32_t *entries, size_t count);
/*
 * Takes @count from the list's head, writes their new digests, touches where those would stand, and
 * puts them at the tail: less than an eviction takes.
 */
void limit_table_replace(struct limit_table *table, const uint8_t (*digests)[32], size_t count);
