/*
 * tests/bench/pool_bed.h - a pool full of cached prompts, and the table that it is measured
 * against.
 *
 * The pool's slots are handed out in a shuffled order before it is filled, as they are after some
 * days: blocks of one prompt lie anywhere, and nothing is prefetched by luck. One 1 page granule
 * has one block, as with 2 MiB pages and a block of a model of 8 billion weights.
 */
#pragma once

#include "pool/pool.h"
#include "proto/key.h"

enum {
    BED_BLOCK_TOKENS = 16,
    BED_SHORT_BLOCKS = 64,  /* of a prompt of 1,024 tokens */
    BED_LONG_BLOCKS = 8192, /* of a prompt of 131,072 tokens */
    BED_MAX_BLOCKS = BED_LONG_BLOCKS,
    BED_MAX_COPIES = 16384
};

struct bed_shape {
    uint32_t num_blocks;
    uint32_t slots_a_granule; /* 0: 1 */
    uint32_t num_tenants;     /* 0: 1; prompts are theirs in turn */
    uint32_t num_spare;       /* blocks of the budget that are left free */
    uint32_t num_below;       /* slots of a disk tier, which gets a copy of all that is cached */
    bool has_no_long;         /* all prompts are short ones */
    bool is_in_order;         /* slots as a fresh pool has them, ascending */
    bool is_empty;            /* nothing is cached, and in order; no watermark */
};

/* Blocks [first, first + count) of the bed's tokens and keys. */
struct bed_prompt {
    uint32_t first, count;
    pool_payer tenant;
};

struct bed {
    struct bed_shape shape;
    struct pool *pool;
    pool_model model, other_model; /* the other: granules of other shape */
    pool_session session;
    pool_payer *tenants;
    struct key_hasher *hasher;
    struct key root;
    struct bed_prompt *prompts; /* long ones first */
    uint32_t num_prompts, num_long;
    uint32_t *tokens;      /* [block][BED_BLOCK_TOKENS] */
    struct pool_key *keys; /* [block] */
    uint64_t random, num_names;
    uint64_t num_answered; /* replies that were 0 */
    pool_transfer *copies; /* under way, with a tier below */
    uint32_t num_copies;
    uint64_t num_refused; /* answers that were not 0: a benchmark that has any is wrong */

    /* A prompt in hand, in the cache: as it comes from the wire, and its keys. */
    uint32_t hot_tokens[BED_MAX_BLOCKS * BED_BLOCK_TOKENS];
    struct pool_key hot_keys[BED_MAX_BLOCKS];
};

/* Exits if there is no memory. */
struct bed *bed_create(const struct bed_shape *shape);
void bed_destroy(struct bed *bed);

uint64_t bed_random(struct bed *bed);

/* A random prompt is put in hand; is_long: one of the long ones. */
struct pool_prompt bed_pick(struct bed *bed, bool is_long);
/* Prompt @number of all is put in hand. */
struct pool_prompt bed_take(struct bed *bed, uint32_t number);
/* A prompt of @count blocks that nobody ever asked for is put in hand. */
struct pool_prompt bed_make(struct bed *bed, uint32_t count, pool_payer tenant);
/* Names the tokens in hand again. */
void bed_name(struct bed *bed, uint32_t count);

/* Verbs that must succeed: what does not is counted in num_refused. */
struct pool_name bed_alloc(struct bed *bed, const struct pool_prompt *prompt);
void bed_publish(struct bed *bed, struct pool_name name);
void bed_release(struct bed *bed, struct pool_name name);
/* Ends all copies under way. */
void bed_end_copies(struct bed *bed);
/* Goes on until everything that is cached has its copy below. */
void bed_store_all(struct bed *bed);
