/* tests/e2e/poison_block.h - internal: a block that says whose it is, in every word (poison.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define POISON_MAGIC UINT64_C(0x706f69736f6e2121)

/* The first words of a block. */
struct poison_identity {
    uint64_t magic, owner, prefix, generation;
};

/* splitmix64: also draws what engines do. */
uint64_t poison_mix(uint64_t x);

/* @bytes is a multiple of 8, and there is room for an identity. */
void poison_block_make(void *block, uint64_t bytes, const struct poison_identity *identity);
/* Whether all the words behind the first are those of @found, which was read from them. */
bool poison_block_is_exact(const void *block, uint64_t bytes, const struct poison_identity *found);
