/* tests/pool/model_match.c - the naive model's keys, and what is found by them. */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

static bool is_key(const struct key *key, uint32_t before, const uint32_t *tokens,
                   size_t num_tokens, const uint8_t *extra, size_t num_extra)
{
    return key->is_used && key->before == before && key->num_tokens == num_tokens &&
           key->num_extra == num_extra &&
           (!num_tokens || memcmp(key->tokens, tokens, num_tokens * sizeof(*tokens)) == 0) &&
           (!num_extra || memcmp(key->extra, extra, num_extra) == 0);
}

static void *copy_bytes(const void *bytes, size_t num_bytes)
{
    if (!num_bytes)
        return NULL;
    void *copy = malloc(num_bytes);
    assert(copy);
    return memcpy(copy, bytes, num_bytes);
}

static uint32_t make_key(struct naive *naive, uint32_t before, const uint32_t *tokens,
                         size_t num_tokens, const uint8_t *extra, size_t num_extra)
{
    size_t index = 0;

    while (index < naive->num_keys && naive->keys[index].is_used)
        index++;
    if (index == naive->num_keys)
        naive->keys =
            grow(naive->keys, &naive->keys_capacity, ++naive->num_keys, sizeof(*naive->keys));
    naive->keys[index] = (struct key){.is_used = true,
                                      .before = before,
                                      .tokens = copy_bytes(tokens, num_tokens * sizeof(*tokens)),
                                      .num_tokens = num_tokens,
                                      .extra = copy_bytes(extra, num_extra),
                                      .num_extra = num_extra};
    return (uint32_t)index;
}

static uint32_t find_key(struct naive *naive, uint32_t before, const uint32_t *tokens,
                         size_t num_tokens, const uint8_t *extra, size_t num_extra, bool make)
{
    for (size_t i = 0; i < naive->num_keys; i++)
        if (is_key(&naive->keys[i], before, tokens, num_tokens, extra, num_extra))
            return (uint32_t)i;
    if (!make)
        return NO_INDEX;
    return make_key(naive, before, tokens, num_tokens, extra, num_extra);
}

/* Salt and adapter; which domain, model and group is a matter of the arena that is searched. */
uint32_t root_key(struct naive *naive, const struct sequence *sequence, bool make)
{
    char identity[2 * (SCRIPT_MAX_NAME + 1)] = {0};

    if (sequence->has_salt)
        strcpy(identity, sequence->salt);
    if (sequence->has_adapter)
        strcpy(identity + SCRIPT_MAX_NAME + 1, sequence->adapter);
    return find_key(naive, NO_INDEX, NULL, 0, (const uint8_t *)identity, sizeof(identity), make);
}

static const struct script_extra *extra_of(const struct sequence *sequence, size_t block)
{
    for (size_t i = 0; i < sequence->num_extras; i++)
        if (sequence->extras[i].block == block)
            return &sequence->extras[i];
    return NULL;
}

uint32_t next_key(struct naive *naive, const struct sequence *sequence, uint32_t before,
                  size_t block, bool make)
{
    const struct script_extra *extra = extra_of(sequence, block);

    if (before == NO_INDEX)
        return NO_INDEX;
    assert((block + 1) * naive->block_tokens <= sequence->num_tokens);
    return find_key(naive, before, sequence->tokens + block * naive->block_tokens,
                    naive->block_tokens, extra ? extra->bytes : NULL, extra ? extra->num_bytes : 0,
                    make);
}

/* Forgets the keys that no block has and that come before none that a block has. */
void sweep_keys(struct naive *naive)
{
    if (naive->num_keys < naive->sweep_at)
        return;
    for (size_t i = 0; i < naive->num_keys; i++)
        naive->keys[i].is_marked = false;
    for (size_t i = 0; i < naive->slots.num_arenas; i++) {
        const struct arena *arena = &naive->slots.arenas[i];
        for (size_t slot = 1; slot < arena->num_slots; slot++) {
            uint32_t key =
                arena->slots[slot].state == SLOT_PUBLISHED ? arena->slots[slot].key : NO_INDEX;
            for (; key != NO_INDEX && !naive->keys[key].is_marked; key = naive->keys[key].before)
                naive->keys[key].is_marked = true;
        }
    }
    size_t num_used = 0;
    for (size_t i = 0; i < naive->num_keys; i++) {
        struct key *key = &naive->keys[i];
        num_used += key->is_marked;
        if (key->is_marked || !key->is_used)
            continue;
        free(key->tokens);
        free(key->extra);
        *key = (struct key){0};
    }
    while (naive->num_keys && !naive->keys[naive->num_keys - 1].is_used)
        naive->num_keys--;
    naive->sweep_at = naive->num_keys + num_used + 64;
}

uint32_t find_slot(const struct arena *arena, uint32_t key)
{
    for (uint32_t slot = 1; key != NO_INDEX && slot < arena->num_slots; slot++)
        if (arena->slots[slot].state == SLOT_PUBLISHED && arena->slots[slot].key == key)
            return slot;
    return 0;
}

/* ---- match ---- */

/* "at most floor((n-1)/B) of them, floor(n/B) with raw" */
size_t match_bound(const struct naive *naive, const struct sequence *prompt)
{
    return (prompt->num_tokens - (prompt->raw ? 0 : 1)) / naive->block_tokens;
}

/* What @payer's arenas have for each block and group: naive->found[which], 0 where nothing. */
static size_t look_up(struct naive *naive, const struct sequence *prompt, int which, uint32_t payer,
                      size_t bound)
{
    size_t num_groups = naive->models[prompt->model].num_groups, block = 0;
    uint32_t arenas[SCRIPT_MAX_GROUPS];
    uint32_t key = root_key(naive, prompt, false);

    for (size_t group = 0; group < num_groups; group++) {
        naive->found[which][group].num = 0;
        arenas[group] = find_arena(naive, payer, prompt->model, group);
    }
    for (; block < bound; block++) {
        key = next_key(naive, prompt, key, block, false);
        if (key == NO_INDEX)
            break; /* no block of any arena has this prefix, nor a longer one */
        for (size_t group = 0; group < num_groups; group++)
            places_add(&naive->found[which][group], arenas[group],
                       find_slot(&naive->slots.arenas[arenas[group]], key));
    }
    return block;
}

/* "a full group needs every block, a sliding one those that hold any of the W-1 tokens before" */
static bool is_needed(const struct naive *naive, uint32_t window, size_t block, size_t hit_blocks)
{
    uint64_t block_end = (block + 1) * naive->block_tokens;
    uint64_t hit_end = hit_blocks * naive->block_tokens;

    return block < hit_blocks && (window == 0 || block_end + window - 1 > hit_end);
}

/* The block of a hit whose first @num_shared blocks come from the shared domain. */
static struct place found_at(const struct naive *naive, size_t group, size_t block,
                             size_t num_shared)
{
    const struct places *places = &naive->found[block < num_shared ? 1 : 0][group];

    return block < places->num ? places->items[block] : (struct place){0, 0};
}

/* Whether all groups have what a hit of @hit_blocks needs. */
static bool can_hit(const struct naive *naive, const struct sequence *prompt, size_t hit_blocks,
                    size_t num_shared)
{
    const struct kv_model *model = &naive->models[prompt->model];

    for (size_t group = 0; group < model->num_groups; group++)
        for (size_t block = hit_blocks; block-- > 0;)
            if (is_needed(naive, model->groups[group].window, block, hit_blocks) &&
                found_at(naive, group, block, num_shared).index == 0)
                return false;
    return true;
}

static void plan_hit(struct naive *naive, const struct sequence *prompt, struct match match)
{
    const struct kv_model *model = &naive->models[prompt->model];

    for (size_t group = 0; group < model->num_groups; group++) {
        naive->planned[group].num = 0;
        for (size_t block = 0; block < match.num_blocks; block++) {
            struct place place = {0, 0}; /* "the rest being 0" */
            if (is_needed(naive, model->groups[group].window, block, match.num_blocks))
                place = found_at(naive, group, block, match.num_shared);
            places_add(&naive->planned[group], place.arena, place.index);
        }
    }
}

/*
 * "With layered=D first D alone, as long as it matches on all groups; from there on the tenant's
 * own blocks, up to the longest length on which all groups agree with that beginning."
 */
struct match find_match(struct naive *naive, const struct sequence *prompt)
{
    size_t bound = match_bound(naive, prompt), own, shared = 0;
    struct match match;

    own = look_up(naive, prompt, 0, prompt->payer, bound);
    if (prompt->shared != NO_INDEX)
        shared = look_up(naive, prompt, 1, prompt->shared, bound);
    match.num_shared = shared;
    while (match.num_shared && !can_hit(naive, prompt, match.num_shared, match.num_shared))
        match.num_shared--;
    match.num_blocks = own > match.num_shared ? own : match.num_shared;
    while (match.num_blocks > match.num_shared &&
           !can_hit(naive, prompt, match.num_blocks, match.num_shared))
        match.num_blocks--;
    plan_hit(naive, prompt, match);
    return match;
}

/* ---- arriving ---- */

static bool is_same_extra(const struct sequence *a, const struct sequence *b, size_t block)
{
    const struct script_extra *left = extra_of(a, block), *right = extra_of(b, block);

    if (!left || !right)
        return left == right;
    return left->num_bytes == right->num_bytes &&
           memcmp(left->bytes, right->bytes, left->num_bytes) == 0;
}

/* Whether @other fills @block under the key that @prompt looks for. */
static bool is_filling(const struct naive *naive, const struct sequence *other,
                       const struct sequence *prompt, size_t block)
{
    size_t num_tokens = (block + 1) * naive->block_tokens;

    if (other == prompt || !other->is_unfilled || other->epoch != naive->epoch)
        return false;
    if (block < other->num_considered || num_tokens > other->num_tokens)
        return false; /* it found that block, or does not fill all of it */
    if (other->payer != prompt->payer || other->model != prompt->model ||
        other->has_salt != prompt->has_salt || other->has_adapter != prompt->has_adapter ||
        strcmp(other->salt, prompt->salt) != 0 || strcmp(other->adapter, prompt->adapter) != 0)
        return false;
    for (size_t i = 0; i <= block; i++)
        if (!is_same_extra(other, prompt, i))
            return false;
    return memcmp(other->tokens, prompt->tokens, num_tokens * sizeof(*prompt->tokens)) == 0;
}

/* "the tokens, in one run from matched on and within match's bound, whose blocks another fills" */
uint64_t arriving_tokens(const struct naive *naive, const struct sequence *prompt,
                         size_t num_matched)
{
    size_t bound = match_bound(naive, prompt), block = num_matched;

    for (; block < bound; block++) {
        bool has_filler = false;
        for (size_t i = 0; i < naive->num_sequences && !has_filler; i++)
            has_filler = is_filling(naive, naive->sequences[i], prompt, block);
        if (!has_filler)
            break;
    }
    return (block - num_matched) * naive->block_tokens;
}
