/*
 * pool/prefetch.c - blocks are brought up ahead of need, and held by nobody.
 *
 * From the start of the prefix on, position by position, as long as slots can be had. What is on
 * the device already is held meanwhile, so that nothing of the prefix goes for the rest of it, and
 * let go of as a sequence would: it is the hottest of all then, and a prefix outlives its suffix.
 * Copies begin from the last block to the first, for the same reason.
 */
#include "pool/allocate.h"
#include "pool/place.h"
#include "pool/plan.h"
#include "pool/promote.h"

/* Gives slots to all blocks of one position that have none. False: they cannot be had. */
static bool take_position(struct pool *pool, const struct model *model, const struct match *match,
                          uint32_t position)
{
    struct want wants[POOL_MAX_GROUPS];
    uint32_t blocks[POOL_MAX_GROUPS], num_wants = 0;

    for (uint32_t group = 0; group < model->shape.num_groups; group++) {
        if (position < match->first[group])
            continue;
        uint32_t block = *match_hit(pool, group, position);
        if (pool->blocks[block].slot[POOL_TIER_DEVICE] != NONE)
            continue;
        blocks[num_wants] = block;
        wants[num_wants++] = (struct want){pool->blocks[block].arena, 1};
    }
    if (num_wants == 0)
        return true;
    if (slots_take(pool, &(struct slot_request){wants, num_wants, .has_watermark = true}))
        return false;
    for (uint32_t i = 0; i < num_wants; i++) {
        place_attach(pool, blocks[i], pool->fresh[i]);
        pool->blocks[blocks[i]].holds++; /* till all copies are begun */
    }
    return true;
}

/* Takes slots for as much of the match as can be had, and as transfers are left for. */
static uint32_t take_prefix(struct pool *pool, const struct model *model, const struct match *match)
{
    uint32_t num_left = records_left(&pool->transfer_pool), position = 0;

    for (; position < match->num_positions; position++) {
        if (num_left < model->shape.num_groups || !take_position(pool, model, match, position))
            break;
        num_left -= model->shape.num_groups;
    }
    return position;
}

/* Begins the copies of what has a slot and nothing in it, and lets go of all that was held. */
static void begin_and_let_go(struct pool *pool, const struct model *model,
                             const struct match *match)
{
    for (uint32_t at = match->num_positions; at-- > 0;) {
        for (uint32_t group = 0; group < model->shape.num_groups; group++) {
            uint32_t id = at < match->first[group] ? NONE : *match_hit(pool, group, at);
            if (id == NONE || pool->blocks[id].slot[POOL_TIER_DEVICE] == NONE)
                continue;
            if (!((pool->blocks[id].present | pool->blocks[id].incoming) & DEVICE_BIT))
                promote_copy(pool, id);
            block_let_go(pool, id, SLOT_TO_HEAD);
        }
    }
}

/* Leading positions that are on the device. */
static uint32_t count_present(struct pool *pool, const struct model *model,
                              const struct match *match)
{
    for (uint32_t at = 0; at < match->num_positions; at++) {
        for (uint32_t group = 0; group < model->shape.num_groups; group++) {
            if (at >= match->first[group] &&
                !(pool->blocks[*match_hit(pool, group, at)].present & DEVICE_BIT))
                return at;
        }
    }
    return match->num_positions;
}

int pool_prefetch(struct pool *pool, const struct pool_prompt *prompt,
                  struct pool_prefetched *out_prefetched)
{
    struct match match;
    int answer = prompt_check(pool, prompt);

    if (answer)
        return answer;
    const struct model *model = &pool->models[prompt->model];
    uint64_t block_tokens = model->shape.block_tokens;
    match_find(pool, prompt, shelf_find(pool, prompt->domain, prompt->model),
               prompt->shared == POOL_NONE ? NONE : shelf_find(pool, prompt->shared, prompt->model),
               false, &match);
    uint32_t present = count_present(pool, model, &match), end = match.num_positions;
    if (present < end) {
        match_hold(pool, model, &match);
        end = take_prefix(pool, model, &match);
        begin_and_let_go(pool, model, &match);
    }
    *out_prefetched =
        (struct pool_prefetched){.present = present * block_tokens,
                                 .coming = end > present ? (end - present) * block_tokens : 0,
                                 .matched = match.num_positions * block_tokens};
    return 0;
}
