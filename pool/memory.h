/* pool/memory.h - (internal) the arrays of the pool: zeroed, aligned, in huge pages where large. */
#pragma once

#include <stdint.h>

/*
 * @count records of @bytes each, or NULL. Begins on a cache line, so that a record of 64 bytes is
 * one; an array of some MiB asks for huge pages, for what is looked up at random misses the TLB
 * too. Untouched pages cost nothing. To be given back with memory_give().
 */
void *memory_take(uint64_t count, uint64_t bytes);
void memory_give(void *memory);
