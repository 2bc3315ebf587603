/* pool/model.c - registered geometries: groups, granules, the devices of their ranks. */
#include "pool/table.h"
#include "pool/tier.h"

/* So that a granule's counts fit. */
enum { MAX_GRANULE_SLOTS = (1 << 24) - 1 };

uint32_t placement_get(struct pool *pool, uint32_t devices)
{
    for (uint32_t at = 0; at < pool->num_placements; at++) {
        if (pool->placements[at].devices == devices)
            return at;
    }
    if (pool->num_placements == MAX_PLACEMENTS)
        return NONE;
    pool->placements[pool->num_placements] =
        (struct placement){.devices = devices, .idle = LIST_EMPTY};
    return pool->num_placements++;
}

/* The devices of all ranks as a bit set; 0: one is unknown, or twice there. */
static uint32_t rank_devices(const struct pool *pool, const struct pool_model_shape *shape)
{
    uint32_t devices = 0;

    if (shape->num_ranks > POOL_MAX_DEVICES)
        return 0;
    for (uint32_t rank = 0; rank < shape->num_ranks; rank++) {
        uint32_t device = shape->ranks[rank];
        if (device >= pool->config.num_devices || devices >> device & 1)
            return 0;
        devices |= 1u << device;
    }
    return devices;
}

static bool granule_is_valid(uint32_t pages, uint32_t slots)
{
    return pages > 0 && slots > 0 && slots <= MAX_GRANULE_SLOTS;
}

static bool groups_are_valid(const struct pool *pool, const struct pool_model_shape *shape)
{
    if (shape->num_groups == 0 || shape->num_groups > POOL_MAX_GROUPS)
        return false;
    for (uint32_t group = 0; group < shape->num_groups; group++) {
        const struct pool_group *g = &shape->groups[group];
        if (g->window == 1 || !granule_is_valid(g->pages, g->slots))
            return false;
        for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
            if (pool->tiers[tier].is_there && g->below[tier].slots > 0 &&
                !granule_is_valid(g->below[tier].pages, g->below[tier].slots))
                return false;
        }
    }
    return true;
}

/* What plan.c wants to know of all granules of a tier. */
static void granules_note(struct tier *tier, uint32_t pages, uint32_t slots)
{
    tier->has_shared_granules |= slots > 1;
    tier->has_mixed_pages |= tier->granule_pages != 0 && tier->granule_pages != pages;
    tier->granule_pages = pages;
}

int pool_model_register(struct pool *pool, const struct pool_model_shape *shape,
                        pool_model *out_model)
{
    uint32_t devices = rank_devices(pool, shape);

    if (devices == 0 || !groups_are_valid(pool, shape) || shape->block_tokens == 0 ||
        shape->num_layers > POOL_MAX_LAYERS)
        return POOL_INVALID;
    if (shape->block_tokens > pool->config.max_block_tokens || records_left(&pool->model_pool) == 0)
        return POOL_LIMIT;

    struct model model = {.shape = *shape, .placement = placement_get(pool, devices)};
    if (model.placement == NONE || !model_fit_chunks(pool, &model))
        return POOL_LIMIT;
    for (uint32_t group = 0; group < shape->num_groups; group++) {
        const struct pool_group *g = &shape->groups[group];
        granules_note(&pool->tiers[POOL_TIER_DEVICE], g->pages, g->slots);
        for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
            if (pool->tiers[tier].is_there && g->below[tier].slots > 0)
                granules_note(&pool->tiers[tier], g->below[tier].pages, g->below[tier].slots);
        }
    }
    *out_model = pool->model_pool.num_used++; /* models are never given back */
    pool->models[*out_model] = model;
    return 0;
}
