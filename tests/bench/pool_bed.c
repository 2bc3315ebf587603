/* tests/bench/pool_bed.c - fills a pool with cached prompts, their slots shuffled. */
#include "tests/bench/pool_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/arena.h"
#include "pool/block.h"

enum { SLOTS_BELOW = 64 }; /* of a granule of the disk tier */

static void on_effect(void *context, const struct pool_effect *effect)
{
    struct bed *bed = context;

    if (effect->kind == POOL_EFFECT_COPY && bed->copies)
        bed->copies[bed->num_copies++] = effect->transfer;
    else if (effect->kind == POOL_EFFECT_REPLY)
        bed->num_answered += effect->answer == 0;
}

static void must(int answer, const char *what)
{
    if (answer) {
        fprintf(stderr, "pool_bed: %s: answer %d\n", what, answer);
        exit(1);
    }
}

static void *must_have(void *memory)
{
    must(memory ? 0 : -1, "no memory");
    return memory;
}

static uint32_t or_1(uint32_t value)
{
    return value > 0 ? value : 1;
}

uint64_t bed_random(struct bed *bed)
{
    bed->random ^= bed->random << 13;
    bed->random ^= bed->random >> 7;
    bed->random ^= bed->random << 17;
    return bed->random;
}

/* ---- set-up --------------------------------------------------------------------------------- */

static void create_pool(struct bed *bed)
{
    const struct bed_shape *shape = &bed->shape;
    uint32_t slots = or_1(shape->slots_a_granule);
    struct pool_config config;

    pool_config_init(&config, shape->num_blocks + shape->num_spare,
                     (shape->num_blocks + shape->num_spare) / slots);
    config.max_blocks += 1024; /* pages run out first, not slot records */
    config.devices[0].watermark = shape->is_empty ? 0 : 16;
    config.sink = (struct pool_sink){on_effect, bed};
    if (shape->num_below > 0) {
        config.tiers[POOL_TIER_DISK] = (struct pool_tier_config){
            .pages = shape->num_below / SLOTS_BELOW, .max_slots = shape->num_below};
        config.ahead_pages[POOL_TIER_DEVICE] = config.devices[0].pages;
        config.max_transfers = BED_MAX_COPIES;
        bed->copies = must_have(calloc(BED_MAX_COPIES, sizeof(*bed->copies)));
    }
    config.max_payers = or_1(shape->num_tenants) + 1;
    config.max_tokens = UINT64_C(32) * config.max_blocks;
    must(pool_create(&config, &bed->pool), "pool_create");
    for (uint32_t i = 0; i < or_1(shape->num_tenants); i++)
        must(pool_tenant_create(bed->pool, &(struct pool_quota){0, POOL_UNLIMITED, 1},
                                &bed->tenants[i]),
             "pool_tenant_create");
    struct pool_model_shape model = {
        .block_tokens = BED_BLOCK_TOKENS,
        .num_layers = 32,
        .num_groups = 1,
        .groups = {{.pages = 1, .slots = slots, .below = {[POOL_TIER_DISK] = {1, SLOTS_BELOW}}}},
        .num_ranks = 1};
    must(pool_model_register(bed->pool, &model, &bed->model), "pool_model_register");
    model.groups[0].slots = slots + 1;
    must(pool_model_register(bed->pool, &model, &bed->other_model), "pool_model_register");
    must(pool_session_open(bed->pool, &bed->session), "pool_session_open");
}

static void create_prompts(struct bed *bed)
{
    uint32_t num = bed->shape.num_blocks, first = 0;
    uint32_t tenants = or_1(bed->shape.num_tenants);

    bed->num_long = bed->shape.has_no_long ? 0 : num / 4 / BED_LONG_BLOCKS;
    while (first < num) {
        uint32_t count = bed->num_prompts < bed->num_long ? BED_LONG_BLOCKS : BED_SHORT_BLOCKS;
        if (count > num - first)
            count = num - first;
        bed->prompts[bed->num_prompts] =
            (struct bed_prompt){first, count, bed->tenants[bed->num_prompts % tenants]};
        bed->num_prompts++;
        for (uint32_t i = 0; i < count * BED_BLOCK_TOKENS; i++)
            bed->tokens[(size_t)first * BED_BLOCK_TOKENS + i] = (uint32_t)bed_random(bed) % 151936;
        const struct key_prompt prompt = {.parent = &bed->root,
                                          .tokens = &bed->tokens[(size_t)first * BED_BLOCK_TOKENS],
                                          .num_tokens = (size_t)count * BED_BLOCK_TOKENS,
                                          .block_tokens = BED_BLOCK_TOKENS,
                                          .out = (struct key *)&bed->keys[first]};
        must(key_chain(bed->hasher, &prompt), "key_chain");
        first += count;
    }
}

/*
 * Takes every slot, and gives them back in random order. Below the verbs, for a sequence for each
 * block would need a chunk for each.
 */
static void shuffle_slots(struct bed *bed)
{
    struct pool *pool = bed->pool;
    uint32_t num = bed->shape.num_blocks;
    uint32_t *order = must_have(calloc(num, sizeof(*order)));
    uint32_t arena = pool->shelves[shelf_get(pool, bed->tenants[0], bed->model)].first_arena;

    for (uint32_t i = 0; i < num; i++) {
        if (pool->arenas[arena].free.head == NONE)
            (void)granule_open(pool, arena);
        uint32_t slot = pool->arenas[arena].free.head;
        slot_take(pool, slot);
        order[i] = block_create(pool, slot);
    }
    for (uint32_t i = num - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(bed_random(bed) % (i + 1)), swap = order[i];
        order[i] = order[other];
        order[other] = swap;
    }
    for (uint32_t i = 0; i < num; i++)
        block_let_go(pool, order[i], SLOT_TO_HEAD);
    free(order);
}

static struct pool_prompt in_hand(const struct bed *bed, uint32_t count, pool_payer tenant)
{
    return (struct pool_prompt){
        .tenant = tenant,
        .domain = tenant,
        .shared = POOL_NONE,
        .model = bed->model,
        .tokens = {bed->hot_tokens, (uint64_t)count * BED_BLOCK_TOKENS, bed->hot_keys, NULL},
        .is_raw = true};
}

struct pool_prompt bed_take(struct bed *bed, uint32_t number)
{
    const struct bed_prompt *prompt = &bed->prompts[number];

    memcpy(bed->hot_tokens, &bed->tokens[(size_t)prompt->first * BED_BLOCK_TOKENS],
           (size_t)prompt->count * BED_BLOCK_TOKENS * sizeof(uint32_t));
    memcpy(bed->hot_keys, &bed->keys[prompt->first], prompt->count * sizeof(struct pool_key));
    return in_hand(bed, prompt->count, prompt->tenant);
}

static void fill(struct bed *bed)
{
    for (uint32_t i = 0; i < bed->num_prompts; i++) {
        const struct pool_prompt prompt = bed_take(bed, i);
        struct pool_name name = bed_alloc(bed, &prompt);
        bed_publish(bed, name);
        bed_release(bed, name);
    }
    must(bed->num_refused > 0, "filling the pool");
}

struct bed *bed_create(const struct bed_shape *shape)
{
    struct bed *bed = must_have(calloc(1, sizeof(*bed)));
    size_t num = shape->num_blocks;

    bed->shape = *shape;
    bed->random = 88172645463325252u;
    bed->tenants = must_have(calloc(or_1(shape->num_tenants), sizeof(*bed->tenants)));
    bed->prompts = must_have(calloc(num / BED_SHORT_BLOCKS + 2, sizeof(*bed->prompts)));
    bed->tokens = must_have(calloc(num * BED_BLOCK_TOKENS, sizeof(*bed->tokens)));
    bed->keys = must_have(calloc(num, sizeof(*bed->keys)));
    must(key_hasher_create(&bed->hasher), "key_hasher_create");
    create_pool(bed);
    if (!shape->is_empty)
        create_prompts(bed);
    if (!shape->is_in_order && !shape->is_empty)
        shuffle_slots(bed);
    if (!shape->is_empty)
        fill(bed);
    return bed;
}

void bed_destroy(struct bed *bed)
{
    pool_destroy(bed->pool);
    key_hasher_destroy(bed->hasher);
    free(bed->copies);
    free(bed->tenants);
    free(bed->prompts);
    free(bed->tokens);
    free(bed->keys);
    free(bed);
}

/* ---- prompts and verbs ---------------------------------------------------------------------- */

struct pool_prompt bed_pick(struct bed *bed, bool is_long)
{
    uint32_t first = is_long ? 0 : bed->num_long;
    uint32_t num =
        (is_long ? bed->num_long : bed->num_prompts - 1) - first; /* the last is shorter */

    return bed_take(bed, first + (uint32_t)(bed_random(bed) % num));
}

struct pool_prompt bed_make(struct bed *bed, uint32_t count, pool_payer tenant)
{
    for (uint32_t i = 0; i < count * BED_BLOCK_TOKENS; i++)
        bed->hot_tokens[i] = (uint32_t)bed_random(bed) % 151936;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t words[4];
        for (size_t word = 0; word < 4; word++)
            words[word] = bed_random(bed);
        memcpy(&bed->hot_keys[i], words, sizeof(words));
    }
    return in_hand(bed, count, tenant);
}

void bed_name(struct bed *bed, uint32_t count)
{
    const struct key_prompt prompt = {.parent = &bed->root,
                                      .tokens = bed->hot_tokens,
                                      .num_tokens = (size_t)count * BED_BLOCK_TOKENS,
                                      .block_tokens = BED_BLOCK_TOKENS,
                                      .out = (struct key *)bed->hot_keys};

    bed->num_refused += key_chain(bed->hasher, &prompt) != 0;
}

struct pool_name bed_alloc(struct bed *bed, const struct pool_prompt *prompt)
{
    const struct pool_alloc_options options = {.take = POOL_TAKE_ALL};
    const struct pool_name name = {bed->session, bed->num_names++};
    struct pool_found found;

    bed->num_refused += pool_alloc(bed->pool, name, prompt, &options, &found) != 0;
    return name;
}

void bed_publish(struct bed *bed, struct pool_name name)
{
    bed->num_refused += pool_publish(bed->pool, name) != 0;
}

void bed_release(struct bed *bed, struct pool_name name)
{
    bed->num_refused += pool_release(bed->pool, name, 0) != 0;
}

void bed_end_copies(struct bed *bed)
{
    for (uint32_t i = 0; i < bed->num_copies; i++)
        bed->num_refused += pool_transfer_done(bed->pool, bed->copies[i], 0) != 0;
    bed->num_copies = 0;
}

void bed_store_all(struct bed *bed)
{
    do {
        bed_end_copies(bed);
        (void)pool_advance(bed->pool, BED_MAX_COPIES / 4);
    } while (bed->num_copies > 0);
}
