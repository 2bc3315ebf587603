/*
 * pool/tier.c - the tiers that a pool has: all devices, and below them host and disk.
 *
 * Every tier is the same machinery. One below the device is one device more: it has a budget of
 * pages, arenas of its own for every (domain, model, group), granules, eviction lists, and for
 * every payer an account, a quota and a place in the tournament. So where a slot comes from
 * (plan.c) and which block goes (evict.c) is answered there as it is on a device.
 */
#include "pool/tier.h"

#include "pool/arena.h"

bool tiers_are_valid(const struct pool_config *config)
{
    const struct pool_tier_config *device = &config->tiers[POOL_TIER_DEVICE];
    uint64_t slots = config->max_blocks, num_tiers = 1;

    if (device->pages || device->max_slots || device->max_store_bytes || device->store_bytes_per_s)
        return false;
    for (uint32_t tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        const struct pool_tier_config *row = &config->tiers[tier];
        if (row->pages > UINT32_MAX || (row->pages > 0) != (row->max_slots > 0))
            return false;
        slots += row->max_slots;
        num_tiers += row->pages > 0;
    }
    return slots < UINT32_MAX / 2 && config->max_arenas <= UINT16_MAX / num_tiers &&
           config->store_when <= POOL_STORE_AT_ONCE;
}

static void tier_init(struct pool *pool, enum pool_tier at)
{
    const struct pool_tier_config *config = &pool->config.tiers[at];
    struct tier *tier = &pool->tiers[at];

    *tier = (struct tier){.is_there = true,
                          .row = pool->num_tiers++,
                          .first_device = pool->num_devices,
                          .max_slots = config->max_slots,
                          .store_credit = (int64_t)(config->store_bytes_per_s * 1000)};
    pool->devices[pool->num_devices++] =
        (struct device){.tier = at, .pages = config->pages, .free_pages = config->pages};
    tier->end_device = pool->num_devices;
    tier->placement = placement_get(pool, 1u << tier->first_device);
    pool->found_tiers |= 1u << at;
}

void tiers_init(struct pool *pool)
{
    const struct pool_config *config = &pool->config;

    for (uint32_t at = 0; at < config->num_devices; at++)
        pool->devices[at] = (struct device){.tier = POOL_TIER_DEVICE,
                                            .pages = config->devices[at].pages,
                                            .watermark = config->devices[at].watermark,
                                            .free_pages = config->devices[at].pages};
    pool->num_devices = config->num_devices;
    pool->tiers[POOL_TIER_DEVICE] = (struct tier){
        .is_there = true, .end_device = config->num_devices, .max_slots = config->max_blocks};
    pool->num_tiers = 1;
    pool->found_tiers = 1u << POOL_TIER_DEVICE;
    for (enum pool_tier at = POOL_TIER_HOST; at < POOL_NUM_TIERS; at++) {
        if (config->tiers[at].pages > 0)
            tier_init(pool, at);
    }
}

int pool_tier_set(struct pool *pool, enum pool_tier at, enum pool_tier_mode mode)
{
    if (at == POOL_TIER_DEVICE || at >= POOL_NUM_TIERS || !pool->tiers[at].is_there ||
        mode > POOL_TIER_OFF)
        return POOL_INVALID;
    pool->tiers[at].mode = mode;
    if (mode == POOL_TIER_OFF)
        pool->found_tiers &= ~(1u << at);
    else
        pool->found_tiers |= 1u << at;
    return 0;
}

int pool_tier_shrink(struct pool *pool, enum pool_tier at, uint64_t pages)
{
    if (at == POOL_TIER_DEVICE || at >= POOL_NUM_TIERS || !pool->tiers[at].is_there)
        return POOL_INVALID;
    struct device *device = &pool->devices[pool->tiers[at].first_device];
    if (device->free_pages != device->pages || pages > device->pages || pages == 0)
        return POOL_INVALID;
    device->pages = device->free_pages = pages;
    return 0;
}

int pool_session_set_store(struct pool *pool, pool_session session, enum pool_store store)
{
    if (session >= pool->config.max_sessions || pool->sessions[session].state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    if (store > POOL_STORE_ALL)
        return POOL_INVALID;
    pool->sessions[session].store = store;
    return 0;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int pool_tier_arena_find(const struct pool *pool, pool_payer domain, pool_model model,
                         uint32_t group, enum pool_tier tier, uint32_t *out_arena)
{
    uint32_t device_arena;
    int answer = pool_arena_find(pool, domain, model, group, &device_arena);

    if (answer)
        return answer;
    if (tier >= POOL_NUM_TIERS || !pool->tiers[tier].is_there)
        return POOL_NOT_FOUND;
    const struct shelf *shelf = &pool->shelves[pool->arenas[device_arena].shelf];
    uint32_t arena = tier_arena(pool, shelf, tier, group);
    if (pool->arenas[arena].slots == 0)
        return POOL_NOT_FOUND;
    *out_arena = arena;
    return 0;
}

static void add_arena(const struct pool *pool, const struct arena *arena,
                      struct pool_tier_stats *stats)
{
    if (arena->evictable.head != NONE) {
        uint64_t stamp = pool->slots[arena->evictable.head].stamp;
        uint64_t age = ages_of(&pool->ages, stamp, pool->now_ms);
        stats->coldest_age_ms = age > stats->coldest_age_ms ? age : stats->coldest_age_ms;
    }
    stats->free += arena->num_free;
    stats->held += arena->num_held;
    stats->evictable += arena->num_evictable;
    stats->reserved += arena->num_reserved;
    stats->quarantined += arena->num_quarantined;
}

int pool_tier_stats(const struct pool *pool, enum pool_tier at, struct pool_tier_stats *out_stats)
{
    if (at >= POOL_NUM_TIERS || !pool->tiers[at].is_there)
        return POOL_INVALID;

    const struct tier *tier = &pool->tiers[at];
    struct pool_tier_stats stats = {.mode = tier->mode,
                                    .stores_started = tier->stores_started,
                                    .stores_done = tier->stores_done,
                                    .stores_failed = tier->stores_failed,
                                    .store_bytes = tier->store_bytes,
                                    .promotions_started = tier->promotions_started,
                                    .promotions_done = tier->promotions_done,
                                    .promotions_failed = tier->promotions_failed,
                                    .hit_tokens = tier->hit_tokens,
                                    .evictions = tier->evictions};
    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        stats.pages += pool->devices[device].pages;
        stats.uncommitted += pool->devices[device].free_pages;
        stats.idle += pool->devices[device].idle_pages;
    }
    for (uint32_t id = 0; id < pool->arena_pool.num_used; id++) {
        if (pool->arenas[id].tier == at)
            add_arena(pool, &pool->arenas[id], &stats);
    }
    for (uint32_t skip = 0; skip < POOL_NUM_SKIPS; skip++)
        stats.skipped[skip] = tier->skipped[skip];
    *out_stats = stats;
    return 0;
}

int pool_payer_tier_stats(const struct pool *pool, pool_payer payer, enum pool_tier at,
                          struct pool_payer_tier_stats *out_stats)
{
    if (!payer_exists(pool, payer))
        return POOL_NOT_FOUND;
    if (at >= POOL_NUM_TIERS || !pool->tiers[at].is_there)
        return POOL_INVALID;

    const struct tier *tier = &pool->tiers[at];
    struct pool_payer_tier_stats stats = {0};
    for (uint32_t id = pool->payers[payer].first_shelf; id != NONE; id = pool->shelves[id].next) {
        const struct shelf *shelf = &pool->shelves[id];
        for (uint32_t group = 0; group < pool->models[shelf->model].shape.num_groups; group++) {
            const struct arena *arena = &pool->arenas[tier_arena(pool, shelf, at, group)];
            stats.evictable += arena->num_evictable;
            stats.reserved += arena->num_reserved;
            stats.free += arena->num_free;
        }
    }
    for (uint32_t device = tier->first_device; device < tier->end_device; device++)
        stats.charged_pages += account_of(pool, payer, device)->charged;
    *out_stats = stats;
    return 0;
}
