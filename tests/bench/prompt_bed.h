/*
 * tests/bench/prompt_bed.h - an engine that writes and reads whole prompts of opaque blocks in a
 * mapped arena, some of them asked for ahead.
 *
 * The prompt of a seed has its own tokens, and each of its blocks begins with a word that says
 * which it is. What is found is checked against that.
 */
#pragma once

#include "tests/bench/daemon_bed.h"

enum { PROMPT_MAX_BLOCKS = 1024, PROMPT_BLOCK_TOKENS = 16, PROMPT_MAX_FLYING = 8 };

/* Zero is a good value of all but the first two. */
struct prompt_shape {
    uint32_t num_blocks, block_bytes;
    uint32_t num_flying; /* asked for and not yet looked at; 0: 1 */
    bool is_copied;      /* blocks are copied in and out, to and from one buffer */
    uint64_t compute_ns; /* of each block, before it is written */
};

struct prompt {
    uint32_t seed;
    uint64_t sequence, ticket;
    uint32_t tokens[PROMPT_MAX_BLOCKS * PROMPT_BLOCK_TOKENS], slots[PROMPT_MAX_BLOCKS];
    struct kvpool_table table;
};

struct prompt_bed {
    struct prompt_shape shape;
    struct kvpool *kvpool;
    struct kvpool_arena arena;
    uint32_t model;
    uint64_t next_sequence;
    uint64_t num_wrong;  /* words that were another block's, and verbs that failed */
    uint64_t num_missed; /* blocks that were not found */
    char *buffer;        /* of one block */
    struct prompt flying[PROMPT_MAX_FLYING];
};

/* Ends the program where it cannot be had. @flags: enum kvpool_flag, of the session. */
struct prompt_bed *prompt_bed_create(const struct daemon_bed *daemon,
                                     const struct prompt_shape *shape, uint32_t flags);
void prompt_bed_destroy(struct prompt_bed *bed);

/* Prompts from @first_seed on: allocated, written, published, let go of. */
void prompt_bed_put(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_prompts);

/* Prompts @first_seed + (@from ... @from + @num_prompts - 1) % @num_all: found, read, let go of. */
void prompt_bed_get(struct prompt_bed *bed, uint32_t first_seed, uint32_t num_all, uint32_t from,
                    uint32_t num_prompts);

/* Blocks of the prompt @seed that would be found; nothing is moved. */
uint32_t prompt_bed_match(struct prompt_bed *bed, uint32_t seed);
