/*
 * pool/match.h - (internal) the longest cached prefix of a prompt.
 *
 * The hit length is the longest on which all layer groups agree: a full group needs every block, a
 * sliding one those that hold any of the window - 1 tokens before the hit's end. With a shared
 * domain, first that domain alone, then the own one from there on.
 */
#pragma once

#include "pool/internal.h"

struct match {
    uint32_t num_positions; /* of the hit */
    uint32_t num_shared;    /* of them, the first so many are the shared domain's */
    uint32_t num_bound;     /* no hit may be longer */
    uint32_t lost;          /* positions that all full groups have, lost to a sliding group */
    uint32_t first[POOL_MAX_GROUPS]; /* positions before it are out of the window */
    /* By match_hold(): hits without a slot on the device, in own and in shared arenas ... */
    uint32_t below[POOL_MAX_GROUPS], shared_below[POOL_MAX_GROUPS];
    uint32_t num_below;
    bool has_incoming; /* ... and whether there are others that are on their way there */
};

/*
 * A shelf may be NONE. Leaves the blocks in pool->hits: see match_hit(). No side effect, but that
 * memory gets ready for the hits to be held (@is_to_hold).
 */
void match_find(struct pool *pool, const struct pool_prompt *prompt, uint32_t own_shelf,
                uint32_t shared_shelf, bool is_to_hold, struct match *out_match);

/*
 * Holds or un-holds the hits of all groups, those that have a slot on the device; un-holding goes
 * exactly backwards.
 */
void match_hold(struct pool *pool, const struct model *model, struct match *match);
void match_unhold(struct pool *pool, const struct model *model, const struct match *match);

/* Hit positions by the tier where their furthest block is; all of them are of the device else. */
void match_tiers(struct pool *pool, const struct model *model, const struct match *match,
                 uint32_t out[POOL_NUM_TIERS]);

static inline uint32_t *match_hit(struct pool *pool, uint32_t group, uint32_t position)
{
    return &pool->hits[(size_t)group * pool->config.max_sequence_blocks + position];
}

/* The first position of a sliding group that still matters to whoever goes on at @num_tokens. */
static inline uint32_t window_start(const struct model *model, uint32_t group, uint64_t num_tokens)
{
    uint32_t window = model->shape.groups[group].window;

    if (window == 0 || num_tokens < window)
        return 0;
    return (uint32_t)((num_tokens - window + 1) / model->shape.block_tokens);
}
