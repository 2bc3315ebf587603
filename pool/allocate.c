/*
 * pool/allocate.c - a prompt comes in: match, hold, take the rest, all or nothing.
 *
 * First every matched block of every group is held, so that taking new slots cannot evict them;
 * then all slots are taken together, also those for hits that are below the device only: their
 * copies up are begun then (promote.c). A refusal lets go in exactly the opposite order: nothing
 * changed.
 */
#include "pool/allocate.h"

#include "pool/arriving.h"
#include "pool/demote.h"
#include "pool/payer.h"
#include "pool/place.h"
#include "pool/plan.h"
#include "pool/promote.h"

/* An allocation under way. */
struct admission {
    const struct pool_prompt *prompt;
    const struct pool_alloc_options *options;
    uint32_t shelf, shared_shelf;
    struct match match;
    bool is_resume;
    uint64_t length;        /* tokens of the sequence afterwards */
    uint32_t num_positions; /* of its tables */
};

/* ---- who asks, and may they ----------------------------------------------------------------- */

int prompt_check(const struct pool *pool, const struct pool_prompt *prompt)
{
    if (!payer_exists(pool, prompt->tenant) || !payer_exists(pool, prompt->domain) ||
        !model_exists(pool, prompt->model))
        return POOL_NOT_FOUND;
    if (prompt->domain != prompt->tenant &&
        !payer_may(pool, prompt->domain, prompt->tenant, POOL_MAY_FILL))
        return POOL_NOT_FOUND;
    if (prompt->shared != POOL_NONE) {
        if (!payer_exists(pool, prompt->shared) || !pool->payers[prompt->shared].is_domain)
            return POOL_NOT_FOUND;
        if (pool->payers[prompt->domain].is_domain)
            return POOL_INVALID; /* the operator's and fillers' sequences have one domain */
        if (!payer_may(pool, prompt->shared, prompt->tenant, POOL_MAY_READ))
            return POOL_NOT_FOUND;
    }
    if (prompt->tokens.count == 0 || (prompt->shared != POOL_NONE && !prompt->tokens.shared_keys))
        return POOL_INVALID;
    uint64_t most =
        (uint64_t)pool->config.max_sequence_blocks * pool->models[prompt->model].shape.block_tokens;
    return prompt->tokens.count > most ? POOL_LIMIT : 0;
}

int pool_match(struct pool *pool, const struct pool_prompt *prompt, struct pool_found *out_found)
{
    struct match match;
    uint32_t hits[POOL_NUM_TIERS];
    int answer = prompt_check(pool, prompt);

    if (answer)
        return answer;
    match_find(pool, prompt, shelf_find(pool, prompt->domain, prompt->model),
               prompt->shared == POOL_NONE ? NONE : shelf_find(pool, prompt->shared, prompt->model),
               false, &match);
    uint64_t block_tokens = pool->models[prompt->model].shape.block_tokens;
    out_found->matched = match.num_positions * block_tokens;
    out_found->arriving = arriving_count(pool, prompt, &match) * block_tokens;
    match_tiers(pool, &pool->models[prompt->model], &match, hits);
    out_found->below = (match.num_positions - hits[POOL_TIER_DEVICE]) * block_tokens;
    return 0;
}

/* ---- admission ------------------------------------------------------------------------------ */

/* Blocks of one group that the table has afterwards: all of the own domain's, or just the hits. */
static uint32_t own_blocks(const struct admission *admission, uint32_t group, uint32_t end)
{
    uint32_t start = admission->match.first[group];

    if (start < admission->match.num_shared)
        start = admission->match.num_shared;
    return end > start ? end - start : 0;
}

/* More than the empty pool has, or than the payer's limit allows. */
static bool never_fits(const struct pool *pool, const struct admission *admission)
{
    const struct model *model = &pool->models[admission->prompt->model];
    uint64_t limit = pool->payers[admission->prompt->domain].quota[POOL_TIER_DEVICE].limit,
             pages = 0;

    for (uint32_t group = 0; group < model->shape.num_groups; group++) {
        const struct pool_group *shape = &model->shape.groups[group];
        uint64_t blocks = own_blocks(admission, group, admission->num_positions);
        pages += (blocks + shape->slots - 1) / shape->slots * shape->pages;
    }
    for (uint32_t device = 0; device < pool->config.num_devices; device++) {
        if (placement_has(pool, model->placement, device) &&
            (pages > pool->devices[device].pages || pages > limit))
            return true;
    }
    return false;
}

static int take_slots(struct pool *pool, const struct admission *admission)
{
    const struct match *match = &admission->match;
    struct want wants[2 * POOL_MAX_GROUPS];
    uint32_t num_groups = pool->models[admission->prompt->model].shape.num_groups;
    uint32_t count = admission->num_positions - match->num_positions;
    struct slot_request request = {.wants = wants,
                                   .num_wants = num_groups,
                                   .has_watermark =
                                       count + match->num_below > 0 && pool->num_holding > 0};

    if (match->num_below > records_left(&pool->transfer_pool))
        return POOL_LIMIT;
    for (uint32_t group = 0; group < num_groups; group++)
        wants[group] = (struct want){pool->shelves[admission->shelf].first_arena + group,
                                     match->below[group] + count};
    if (match->num_below > 0 && match->num_shared > 0) {
        for (uint32_t group = 0; group < num_groups; group++)
            wants[request.num_wants++] =
                (struct want){pool->shelves[admission->shared_shelf].first_arena + group,
                              match->shared_below[group]};
    }
    return slots_take(pool, &request);
}

/* Matches, holds and takes slots, or answers why not, with no effect. */
static int admit(struct pool *pool, struct admission *admission)
{
    const struct pool_prompt *prompt = admission->prompt;
    const struct model *model = &pool->models[prompt->model];
    uint32_t block_tokens = model->shape.block_tokens;

    match_find(pool, prompt, admission->shelf, admission->shared_shelf, true, &admission->match);
    uint64_t matched = (uint64_t)admission->match.num_positions * block_tokens;
    uint64_t rest = prompt->tokens.count - matched;
    admission->length =
        matched + (admission->options->take < rest ? admission->options->take : rest);
    admission->num_positions = (uint32_t)((admission->length + block_tokens - 1) / block_tokens);
    if (never_fits(pool, admission))
        return POOL_NEVER_FITS;
    match_hold(pool, model, &admission->match);
    int answer = take_slots(pool, admission);
    if (answer)
        match_unhold(pool, model, &admission->match);
    return answer;
}

static int admit_or_advance(struct pool *pool, struct admission *admission)
{
    int answer;

    do
        answer = admit(pool, admission);
    while ((answer == POOL_NO_BLOCKS || answer == POOL_QUOTA) && releases_advance(pool));
    return answer;
}

/* ---- the sequence --------------------------------------------------------------------------- */

/* Where the slots of each group begin in pool->fresh: for own arenas, then for shared ones. */
static void fresh_split(const struct admission *admission, uint32_t num_groups,
                        uint32_t own[POOL_MAX_GROUPS], uint32_t shared[POOL_MAX_GROUPS])
{
    const struct match *match = &admission->match;
    uint32_t num_new = admission->num_positions - match->num_positions, at = 0;

    for (uint32_t group = 0; group < num_groups; group++) {
        own[group] = at;
        at += match->below[group] + num_new;
    }
    for (uint32_t group = 0; group < num_groups; group++) {
        shared[group] = at;
        at += match->shared_below[group];
    }
}

/* A hit that is below the device gets a slot there, and this table's hold. */
static void hold_below(struct pool *pool, uint32_t block, uint32_t slot)
{
    place_attach(pool, block, slot);
    pool->blocks[block].holds++;
}

/* Fills the tables with the hits and the new blocks. */
static void fill_tables(struct pool *pool, struct sequence *sequence,
                        const struct admission *admission)
{
    const struct match *match = &admission->match;
    uint32_t num_groups = num_groups_of(pool, sequence);
    uint32_t own[POOL_MAX_GROUPS], shared[POOL_MAX_GROUPS];

    fresh_split(admission, num_groups, own, shared);
    for (uint32_t at = 0; at < admission->num_positions; at++) {
        struct entry *entries = table_add(pool, sequence);
        for (uint32_t group = 0; group < num_groups; group++) {
            uint32_t *next = at < match->num_shared ? &shared[group] : &own[group];
            if (at < match->first[group])
                continue;
            uint32_t block = at < match->num_positions ? *match_hit(pool, group, at)
                                                       : block_create(pool, pool->fresh[(*next)++]);
            if (pool->blocks[block].slot[POOL_TIER_DEVICE] == NONE)
                hold_below(pool, block, pool->fresh[(*next)++]);
            entries[group] = (struct entry){block, block_slot(pool, &pool->blocks[block])->number};
        }
    }
}

/* What an allocation says of the blocks that it hit: their tokens are prompt, and used again. */
static void mark_hits(struct pool *pool, const struct sequence *sequence, const struct match *match)
{
    bool is_wanted = pool->sessions[sequence->session].store != POOL_STORE_NONE;

    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        for (uint32_t at = match->first[group]; at < match->num_positions; at++) {
            uint32_t block = *match_hit(pool, group, at);
            pool->blocks[block].is_reused = 1;
            pool->blocks[block].is_wanted |= is_wanted;
            if (pool->config.store_when == POOL_STORE_SECOND_USE)
                demote_now(pool, block);
        }
    }
}

void allocation_count(struct pool *pool, const struct sequence *sequence)
{
    const struct promotion *promotion = &sequence->promotion;
    struct payer *payer = &pool->payers[sequence->tenant];
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens, matched = 0;

    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++) {
        pool->tiers[tier].hit_tokens += promotion->hits[tier] * block_tokens;
        matched += promotion->hits[tier] * block_tokens;
    }
    pool->counters.allocations++;
    pool->counters.query_tokens += promotion->query_tokens;
    pool->counters.hit_tokens += matched;
    pool->counters.sliding_lost_tokens += promotion->lost * block_tokens;
    payer->query_tokens += promotion->query_tokens;
    payer->hit_tokens += matched;
}

/*
 * 0, or POOL_PENDING: some hits are not on the device yet. Those below it have their slots; @hits
 * says where all of them were.
 */
static int begin_promotion(struct pool *pool, struct sequence *sequence,
                           const struct admission *admission, const uint32_t *hits)
{
    const struct match *match = &admission->match;
    struct promotion *promotion = &sequence->promotion;

    *promotion = (struct promotion){.cookie = admission->options->cookie,
                                    .deadline_ms = admission->options->deadline_ms,
                                    .is_resume = admission->is_resume,
                                    .length = admission->length,
                                    .query_tokens = admission->prompt->tokens.count,
                                    .lost = match->lost,
                                    .num_positions = match->num_positions};
    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
        promotion->hits[tier] = hits[tier];
    if (match->num_below > 0 || match->has_incoming) {
        promote_begin(pool, sequence);
        return POOL_PENDING;
    }
    allocation_count(pool, sequence);
    return 0;
}

/* The sequence has its blocks: everything that follows from the admission. 0 or POOL_PENDING. */
static int sequence_begin(struct pool *pool, struct sequence *sequence,
                          const struct admission *admission, struct pool_found *out_found)
{
    const struct match *match = &admission->match;
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens;
    uint64_t num_arriving = arriving_count(pool, admission->prompt, match);
    uint32_t hits[POOL_NUM_TIERS];

    match_tiers(pool, &pool->models[sequence->model], match, hits); /* while they are there only */
    fill_tables(pool, sequence, admission);
    sequence->shelf = admission->shelf;
    sequence->shared_shelf = admission->shared_shelf;
    sequence->epoch = pool->shelves[admission->shelf].epoch;
    if (admission->shared_shelf != NONE)
        sequence->shared_epoch = pool->shelves[admission->shared_shelf].epoch;
    sequence->num_shared = match->num_shared;
    sequence->considered = match->num_positions;
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++)
        sequence->first_kept[group] = match->first[group];
    sequence->is_mapped = admission->options->is_mapped;
    sequence->is_filled = !admission->options->is_unfilled;
    sequence->num_complete =
        sequence->is_filled ? admission->length : match->num_positions * block_tokens;
    if (!sequence->is_filled)
        arriving_promise(pool, sequence, admission->length);
    out_found->matched = match->num_positions * block_tokens;
    out_found->arriving = num_arriving * block_tokens;
    out_found->below = (match->num_positions - hits[POOL_TIER_DEVICE]) * block_tokens;
    int answer = begin_promotion(pool, sequence, admission, hits);
    if (pool->num_tiers > 1) /* after it: a store takes slots below, not those that are read now */
        mark_hits(pool, sequence, match);
    return answer;
}

static int count_refusal(struct pool *pool, int answer)
{
    struct counters *counters = &pool->counters;

    counters->refused_no_blocks += answer == POOL_NO_BLOCKS;
    counters->refused_quota += answer == POOL_QUOTA;
    counters->refused_never_fits += answer == POOL_NEVER_FITS;
    counters->refused_limit += answer == POOL_LIMIT;
    return answer;
}

/* Where new blocks go, and where it may start; made on first use, and unmade by a refusal. */
static int admit_on_shelves(struct pool *pool, struct admission *admission)
{
    const struct pool_prompt *prompt = admission->prompt;
    uint32_t num_shelves = pool->shelf_pool.num_used;
    int answer = POOL_LIMIT;

    admission->shelf = shelf_get(pool, prompt->domain, prompt->model);
    admission->shared_shelf =
        prompt->shared == POOL_NONE ? NONE : shelf_get(pool, prompt->shared, prompt->model);
    if (admission->shelf != NONE &&
        (prompt->shared == POOL_NONE || admission->shared_shelf != NONE))
        answer = admit_or_advance(pool, admission);
    while (answer && pool->shelf_pool.num_used > num_shelves)
        shelf_unmake_last(pool);
    return answer;
}

/* Whether a sequence of the prompt can be made: its record, and its chunks. */
static bool caps_leave_room(const struct pool *pool, const struct pool_prompt *prompt)
{
    const struct sequence blank = {.model = prompt->model};
    uint32_t num_positions = positions_of(pool, &blank, prompt->tokens.count);

    return records_left(&pool->sequence_pool) > 0 &&
           table_can_write(pool, &blank, 0, num_positions) &&
           tokens_chunks_needed(pool, &blank, prompt->tokens.count) <=
               chunks_left(pool->token_chunks);
}

int pool_alloc(struct pool *pool, struct pool_name name, const struct pool_prompt *prompt,
               const struct pool_alloc_options *options, struct pool_found *out_found)
{
    struct admission admission = {.prompt = prompt, .options = options};
    int answer = prompt_check(pool, prompt);

    if (answer == POOL_NOT_FOUND || name.session >= pool->config.max_sessions ||
        pool->sessions[name.session].state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    if (sequence_find(pool, name) != NONE)
        return POOL_EXISTS;
    if (answer)
        return count_refusal(pool, answer);
    if (pool->is_draining)
        return POOL_DRAINING;

    while (!caps_leave_room(pool, prompt)) {
        if (!releases_advance(pool))
            return count_refusal(pool, POOL_LIMIT);
    }
    answer = admit_on_shelves(pool, &admission);
    if (answer)
        return count_refusal(pool, answer);

    struct sequence *sequence = &pool->sequences[sequence_create(pool, name)];
    sequence->tenant = prompt->tenant;
    sequence->domain = prompt->domain;
    sequence->shared = prompt->shared;
    sequence->model = prompt->model;
    sequence->is_raw = prompt->is_raw;
    struct pool_tokens tokens = prompt->tokens;
    tokens.count = admission.length;
    tokens_add(pool, sequence, &tokens);
    sequence->num_prompt = prompt->tokens.count;
    return sequence_begin(pool, sequence, &admission, out_found);
}

/* Whether @tokens are the sequence's own. */
static bool tokens_are_same(const struct pool *pool, const struct sequence *sequence,
                            const struct pool_tokens *tokens)
{
    return tokens->count == sequence->length &&
           tokens_equal(pool, sequence, 0, tokens->ids, tokens->count);
}

static struct pool_prompt resume_prompt(const struct sequence *sequence,
                                        const struct pool_tokens *tokens)
{
    return (struct pool_prompt){.tenant = sequence->tenant,
                                .domain = sequence->domain,
                                .shared = sequence->shared,
                                .model = sequence->model,
                                .tokens = *tokens,
                                .is_raw = sequence->is_raw};
}

void resume_end(struct pool *pool, struct sequence *sequence)
{
    if (sequence->length > sequence->promotion.length)
        tokens_truncate(pool, sequence, sequence->promotion.length);
}

int pool_resume(struct pool *pool, struct pool_name name, const struct pool_tokens *tokens,
                const struct pool_alloc_options *options, struct pool_found *out_found)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (!sequence->is_preempted || sequence->length == 0 ||
        !tokens_are_same(pool, sequence, tokens))
        return POOL_INVALID;
    if (!table_can_write(pool, sequence, 0, positions_of(pool, sequence, sequence->length)))
        return count_refusal(pool, POOL_LIMIT);

    const struct pool_prompt prompt = resume_prompt(sequence, tokens);
    struct admission admission = {.prompt = &prompt, .options = options, .is_resume = true};
    struct pool_alloc_options kept = *options;
    kept.is_mapped = sequence->is_mapped;
    admission.options = &kept;
    admission.shelf = sequence->shelf;
    admission.shared_shelf = sequence->shared_shelf;
    int answer = prompt_check(pool, &prompt); /* it may have lost a right meanwhile */
    if (!answer)
        answer = admit_or_advance(pool, &admission);
    if (answer)
        return count_refusal(pool, answer);
    sequence->is_preempted = false;
    answer = sequence_begin(pool, sequence, &admission, out_found);
    if (answer == 0)
        resume_end(pool, sequence);
    return answer;
}

int pool_prefetch_sequence(struct pool *pool, struct pool_name name,
                           const struct pool_tokens *tokens, struct pool_prefetched *out_prefetched)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    const struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (!sequence->is_preempted || sequence->length == 0 ||
        !tokens_are_same(pool, sequence, tokens))
        return POOL_INVALID;
    const struct pool_prompt prompt = resume_prompt(sequence, tokens);
    return pool_prefetch(pool, &prompt, out_prefetched);
}
