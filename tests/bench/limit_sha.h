/*
 * tests/bench/limit_sha.h - how fast this processor can name 16-token blocks: its SHA instructions,
 * interleaved by hand, nothing else. limit_sha_x86.c, or limit_sha_none.c where there are none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIMIT_SHA_PROMPTS = 4 };

bool limit_sha_is_available(void);

/* One chain of 16-token blocks without extra; the head of the next block beside each tail. */
void limit_sha_chain(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                     uint8_t (*out)[32]);

/* LIMIT_SHA_PROMPTS chains of equal length side by side; chain n starts at block n * num_blocks. */
void limit_sha_chains(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                      uint8_t (*out)[32]);
