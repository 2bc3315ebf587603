/* pool/match.c - the longest cached prefix of a prompt. */
#include "pool/match.h"

#include "pool/block.h"

/* Positions ahead, or (granule) behind: see search_prefetch(). */
enum { AHEAD_INDEX = 24, AHEAD_BLOCK = 12, BEHIND_GRANULE = 8 };

/* One run of blocks in one domain: @keys and tokens by position, hits from @from up to @bound. */
struct search {
    const struct model *model;
    uint32_t first_arena;
    const struct pool_key *keys;
    const uint32_t *tokens;
    uint32_t from, bound;
    bool is_to_hold; /* what is found will be held at once */
};

static uint32_t search_one(struct pool *pool, const struct search *search, uint32_t group,
                           uint32_t position)
{
    return block_find(pool, search->first_arena + group, &search->keys[position],
                      search->tokens + (size_t)position * search->model->shape.block_tokens);
}

PREFETCHES static inline void prefetch_index(const struct pool *pool, const struct search *search,
                                             uint32_t group, uint32_t position)
{
    if (position < search->bound)
        index_prefetch(&pool->key_index,
                       key_hash(&search->keys[position], search->first_arena + group, false));
}

PREFETCHES static inline void prefetch_block(const struct pool *pool, const struct search *search,
                                             uint32_t group, uint32_t position)
{
    struct index_walk walk;

    if (position >= search->bound)
        return;
    uint32_t id =
        index_first(&pool->key_index,
                    key_hash(&search->keys[position], search->first_arena + group, false), &walk);
    if (id != NONE) {
        __builtin_prefetch(&pool->blocks[id], 1);
        __builtin_prefetch(&pool->block_tokens[(size_t)id * pool->token_stride]);
    }
}

/*
 * The lookups are independent, so memory can work ahead: the index, later the block and its tokens;
 * and, of what was found and is held next, the slot and later the granule. Before the first lookup
 * the way ahead is filled. Measured with tests/bench/bench_pool at 10^6 blocks: 22 ns a block of a
 * long prompt instead of 130, 36 instead of 150 of one of 1,024 tokens.
 */
PREFETCHES static inline void search_prefetch(const struct pool *pool, const struct search *search,
                                              uint32_t group, uint32_t position)
{
    if (position == search->from) {
        for (uint32_t at = 0; at < AHEAD_INDEX; at++)
            prefetch_index(pool, search, group, position + at);
        for (uint32_t at = 0; at < AHEAD_BLOCK; at++)
            prefetch_block(pool, search, group, position + at);
    }
    prefetch_index(pool, search, group, position + AHEAD_INDEX);
    prefetch_block(pool, search, group, position + AHEAD_BLOCK);
}

PREFETCHES static inline void found_prefetch(struct pool *pool, const struct search *search,
                                             uint32_t group, uint32_t position)
{
    if (!search->is_to_hold)
        return;
    block_prefetch_slot(pool, *match_hit(pool, group, position));
    if (position >= search->from + BEHIND_GRANULE)
        block_prefetch_granule(pool, *match_hit(pool, group, position - BEHIND_GRANULE));
}

/*
 * How far all full groups have every block.
 *
 * Hot path, once a block of a prompt: no allocation, no lock, no system call, no log.
 */
static uint32_t search_full(struct pool *pool, const struct search *search)
{
    uint32_t position = search->from;

    for (; position < search->bound; position++) {
        for (uint32_t group = 0; group < search->model->shape.num_groups; group++) {
            if (search->model->shape.groups[group].window > 0)
                continue;
            search_prefetch(pool, search, group, position);
            uint32_t hit = search_one(pool, search, group, position);
            if (hit == NONE)
                return position;
            *match_hit(pool, group, position) = hit;
            found_prefetch(pool, search, group, position);
        }
    }
    return position;
}

/*
 * The longest hit up to @length that a sliding group allows. What is known to be there, from
 * @known[group] up to the length, is not looked up again, so that all of it is one pass at most.
 */
static uint32_t search_window(struct pool *pool, const struct search *search, uint32_t group,
                              uint32_t length, uint32_t *known)
{
    uint32_t block_tokens = search->model->shape.block_tokens;

    if (*known > length)
        *known = length;
    while (length > search->from) {
        uint32_t start = window_start(search->model, group, (uint64_t)length * block_tokens);
        if (start < search->from)
            start = search->from;
        while (*known > start) {
            uint32_t hit = search_one(pool, search, group, *known - 1);
            if (hit == NONE)
                break;
            *match_hit(pool, group, --*known) = hit;
        }
        if (*known <= start)
            break;
        length = --*known; /* a hit that ends behind the missing block needs it: end before it */
    }
    return length;
}

/* The longest hit in one domain on which all groups agree; what it lost to sliding groups. */
static uint32_t search_run(struct pool *pool, const struct search *search, uint32_t *out_lost)
{
    const struct pool_model_shape *shape = &search->model->shape;
    uint32_t known[POOL_MAX_GROUPS];
    uint32_t full = search_full(pool, search);
    uint32_t length = full, before;

    for (uint32_t group = 0; group < shape->num_groups; group++)
        known[group] = length;
    do {
        before = length;
        for (uint32_t group = 0; group < shape->num_groups; group++) {
            if (shape->groups[group].window > 0)
                length = search_window(pool, search, group, length, &known[group]);
        }
    } while (length != before);
    *out_lost = full - length;
    return length;
}

/* The hit in the shared domain alone, then from there on in the own one. Either may be NONE. */
static void search_both(struct pool *pool, const struct pool_prompt *prompt, uint32_t own_shelf,
                        uint32_t shared_shelf, bool is_to_hold, struct match *out_match)
{
    const struct model *model = &pool->models[prompt->model];
    uint32_t block_tokens = model->shape.block_tokens;
    uint64_t count = prompt->tokens.count;
    struct match match = {.num_bound =
                              (uint32_t)((prompt->is_raw ? count : count - 1) / block_tokens)};
    struct search search = {model, 0, NULL, prompt->tokens.ids, 0, match.num_bound, is_to_hold};

    if (shared_shelf != NONE) {
        search.first_arena = pool->shelves[shared_shelf].first_arena;
        search.keys = prompt->tokens.shared_keys;
        match.num_shared = search_run(pool, &search, &match.lost);
        search.from = match.num_shared;
    }
    match.num_positions = match.num_shared;
    if (own_shelf != NONE) {
        search.first_arena = pool->shelves[own_shelf].first_arena;
        search.keys = prompt->tokens.keys;
        match.num_positions = search_run(pool, &search, &match.lost);
    }
    for (uint32_t group = 0; group < model->shape.num_groups; group++)
        match.first[group] =
            window_start(model, group, (uint64_t)match.num_positions * block_tokens);
    *out_match = match;
}

/*
 * Some of the shared hits are below the device, and all of them together are more than the shared
 * domain's limit allows there: they could never come up, and whoever asks would be refused for
 * good.
 */
static bool shared_never_fits(struct pool *pool, const struct pool_prompt *prompt,
                              const struct match *match)
{
    const struct pool_model_shape *shape = &pool->models[prompt->model].shape;
    uint64_t pages = 0;

    if (match->num_shared == 0 || pool->num_tiers == 1)
        return false;
    for (uint32_t group = 0; group < shape->num_groups; group++) {
        const struct pool_group *row = &shape->groups[group];
        uint32_t first = match->first[group];
        uint64_t blocks = match->num_shared > first ? match->num_shared - first : 0;
        pages += (blocks + row->slots - 1) / row->slots * row->pages;
    }
    if (pages <= pool->payers[prompt->shared].quota[POOL_TIER_DEVICE].limit)
        return false;
    for (uint32_t group = 0; group < shape->num_groups; group++) {
        for (uint32_t at = match->first[group]; at < match->num_shared; at++) {
            if (!(pool->blocks[*match_hit(pool, group, at)].present & DEVICE_BIT))
                return true;
        }
    }
    return false;
}

void match_find(struct pool *pool, const struct pool_prompt *prompt, uint32_t own_shelf,
                uint32_t shared_shelf, bool is_to_hold, struct match *out_match)
{
    search_both(pool, prompt, own_shelf, shared_shelf, is_to_hold, out_match);
    if (shared_never_fits(pool, prompt, out_match))
        search_both(pool, prompt, own_shelf, NONE, is_to_hold, out_match);
}

/* ---- holds ---------------------------------------------------------------------------------- */

PREFETCHES static inline void prefetch_hits(struct pool *pool, uint32_t group, uint32_t at,
                                            uint32_t end)
{
    const uint32_t *hit = match_hit(pool, group, at);
    uint32_t left = end - at;

    block_prefetch(pool, left > PREFETCH_BLOCK ? hit[PREFETCH_BLOCK] : NONE);
    block_prefetch_slot(pool, left > PREFETCH_SLOT ? hit[PREFETCH_SLOT] : NONE);
    block_prefetch_granule(pool, left > PREFETCH_GRANULE ? hit[PREFETCH_GRANULE] : NONE);
}

void match_hold(struct pool *pool, const struct model *model, struct match *match)
{
    for (uint32_t group = 0; group < model->shape.num_groups; group++) {
        uint32_t end = match->num_positions;
        for (uint32_t at = match->first[group]; at < end; at++) {
            prefetch_hits(pool, group, at, end);
            uint32_t id = *match_hit(pool, group, at);
            const struct block *block = &pool->blocks[id];
            if (block->slot[POOL_TIER_DEVICE] != NONE) {
                match->has_incoming |= block->incoming & DEVICE_BIT;
                block_hold(pool, id);
            } else {
                ++*(at < match->num_shared ? &match->shared_below[group] : &match->below[group]);
                match->num_below++;
            }
        }
    }
}

void match_unhold(struct pool *pool, const struct model *model, const struct match *match)
{
    for (uint32_t group = model->shape.num_groups; group-- > 0;) {
        for (uint32_t at = match->num_positions; at > match->first[group]; at--) {
            uint32_t id = *match_hit(pool, group, at - 1);
            if (pool->blocks[id].slot[POOL_TIER_DEVICE] != NONE)
                block_hold_undo(pool, id);
        }
    }
}

void match_tiers(struct pool *pool, const struct model *model, const struct match *match,
                 uint32_t out[POOL_NUM_TIERS])
{
    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
        out[tier] = 0;
    out[POOL_TIER_DEVICE] = match->num_positions;
    for (uint32_t at = 0; at < match->num_positions && pool->num_tiers > 1; at++) {
        uint32_t furthest = POOL_TIER_DEVICE;
        for (uint32_t group = 0; group < model->shape.num_groups; group++) {
            if (at < match->first[group])
                continue;
            uint32_t nearest = block_nearest(pool, &pool->blocks[*match_hit(pool, group, at)]);
            furthest = nearest > furthest ? nearest : furthest;
        }
        out[POOL_TIER_DEVICE]--;
        out[furthest]++;
    }
}
