/* pool/stats.c - every counter and gauge, once; and what one can ask of an arena. */
#include <string.h>

#include "pool/arena.h"
#include "pool/block.h"

#define COUNTER(field, help)                                                                       \
    {                                                                                              \
#field, help, offsetof(struct counters, field)                                             \
    }
/* clang-format off */
static const struct counter {
    const char *name, *help;
    size_t offset; /* of a uint64_t in struct counters */
} counters[] = {
    COUNTER(query_tokens,         "tokens of allocations and resumes"),
    COUNTER(hit_tokens,           "of them, found in the cache"),
    COUNTER(sliding_lost_tokens,  "tokens of a hit in all full groups, lost to a sliding group"),
    COUNTER(allocations,          "allocations and resumes that were granted"),
    COUNTER(refused_no_blocks,    "allocations and resumes refused for want of slots"),
    COUNTER(refused_quota,        "allocations and resumes refused by a tenant's limit"),
    COUNTER(refused_never_fits,   "allocations and resumes larger than the pool or the limit"),
    COUNTER(refused_limit,        "allocations and resumes refused by a cap of the configuration"),
    COUNTER(evictions,            "cached blocks evicted"),
    COUNTER(granules_moved,       "granules taken from one arena for another"),
    COUNTER(copies,               "blocks copied on write"),
    COUNTER(failed_copies,        "block copies that failed"),
    COUNTER(merged,               "blocks given up for one with the same key"),
    COUNTER(unpublished_in_place, "published tails written in place for want of slots"),
    COUNTER(preemptions,          "sequences preempted"),
    COUNTER(forks,                "sequences forked"),
    COUNTER(token_mismatches,     "hits refused because token ids differ: collisions, or a key bug"),
    COUNTER(stale_completions,    "completions of nothing that is under way"),
    COUNTER(arriving_waits,       "requests that waited for another sequence's fill"),
    COUNTER(arriving_hits,        "of them, filled"),
    COUNTER(arriving_misses,      "of them, given up by the filler, or cancelled"),
    COUNTER(arriving_timeouts,    "of them, beyond their deadline"),
    COUNTER(promotion_waits,      "allocations and resumes that waited for blocks from below"),
    COUNTER(promotion_retries,    "of them, undone because a block was lost, or cleared"),
    COUNTER(promotion_timeouts,   "of them, beyond their deadline"),
    COUNTER(steps,                "steps begun"),
    COUNTER(steps_abandoned,      "steps that ended without their tokens"),
};
/* clang-format on */

/* Sums over all arenas of devices, and over all granules not wholly in use. */
struct sums {
    uint64_t free, held, evictable, reserved, quarantined, granules;
};

static struct sums sum_arenas(const struct pool *pool)
{
    struct sums sums = {0};

    for (uint32_t id = 0; id < pool->arena_pool.num_used; id++) {
        const struct arena *arena = &pool->arenas[id];
        if (arena->tier != POOL_TIER_DEVICE)
            continue;
        sums.free += arena->num_free;
        sums.held += arena->num_held;
        sums.evictable += arena->num_evictable;
        sums.reserved += arena->num_reserved;
        sums.quarantined += arena->num_quarantined;
        sums.granules += arena->num_granules;
    }
    return sums;
}

/* Free slots of granules in use, in 1/1000 of a page: what partly used granules cost. */
static uint64_t partly_used_millipages(const struct pool *pool)
{
    uint64_t millipages = 0;

    for (uint32_t id = 0; id < pool->arena_pool.num_used; id++) {
        const struct arena *arena = &pool->arenas[id];
        if (arena->tier != POOL_TIER_DEVICE)
            continue;
        uint64_t free_in_use = arena->num_free - (uint64_t)arena->num_idle * arena->slots;
        millipages += free_in_use * arena->pages * 1000 / arena->slots;
    }
    return millipages;
}

static void add(struct pool_stat *out, size_t max, size_t *count, struct pool_stat stat)
{
    if (*count < max)
        out[*count] = stat;
    ++*count;
}

size_t pool_stats(const struct pool *pool, struct pool_stat *out, size_t max)
{
    struct sums sums = sum_arenas(pool);
    uint64_t pages = 0, uncommitted = 0, idle = 0;
    size_t count = 0;

    for (uint32_t device = 0; device < pool->config.num_devices; device++) {
        pages += pool->devices[device].pages;
        uncommitted += pool->devices[device].free_pages;
        idle += pool->devices[device].idle_pages;
    }
    /* clang-format off */
    const struct pool_stat gauges[] = {
        {"blocks",      "budget of all devices, in pages", true, pages},
        {"uncommitted", "pages that no arena has", true, uncommitted},
        {"idle",        "pages of granules without a block", true, idle},
        {"free",        "free slots of committed granules", true, sums.free},
        {"held",        "published blocks that somebody holds", true, sums.held},
        {"evictable",   "cached blocks that nobody holds", true, sums.evictable},
        {"reserved",    "blocks that are not published", true, sums.reserved},
        {"quarantined", "slots that somebody outside may still touch", true, sums.quarantined},
        {"granules",    "committed granules", true, sums.granules},
        {"partly_used_millipages", "free slots in granules in use, in 1/1000 page", true,
         partly_used_millipages(pool)},
        {"sequences",   "sequences, preempted ones included", true, pool->sequence_pool.num_used},
        {"sessions",    "sessions, ending ones included", true, pool->session_pool.num_used},
        {"transfers",   "blocks being copied", true, pool->transfer_pool.num_used},
        {"waiting",     "requests that wait for another sequence's fill", true,
         pool->waiter_pool.num_used},
        {"sweeps_pending", "cleared blocks not swept yet", true, pool->sweeps_pending},
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_SIZE(gauges); i++)
        add(out, max, &count, gauges[i]);
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        uint64_t value;
        memcpy(&value, (const char *)&pool->counters + counters[i].offset, sizeof(value));
        add(out, max, &count, (struct pool_stat){counters[i].name, counters[i].help, false, value});
    }
    return count;
}

/* ---- arenas --------------------------------------------------------------------------------- */

int pool_arena_find(const struct pool *pool, pool_payer domain, pool_model model, uint32_t group,
                    uint32_t *out_arena)
{
    if (!payer_exists(pool, domain) || !model_exists(pool, model))
        return POOL_NOT_FOUND;
    if (group >= pool->models[model].shape.num_groups)
        return POOL_INVALID;
    uint32_t shelf = shelf_find(pool, domain, model);
    if (shelf == NONE)
        return POOL_NOT_FOUND;
    *out_arena = pool->shelves[shelf].first_arena + group;
    return 0;
}

int pool_arena_reserve(struct pool *pool, pool_payer domain, pool_model model)
{
    if (!payer_exists(pool, domain) || !model_exists(pool, model))
        return POOL_NOT_FOUND;
    return shelf_get(pool, domain, model) == NONE ? POOL_LIMIT : 0;
}

int pool_arena_describe(const struct pool *pool, uint32_t id,
                        struct pool_arena_description *out_description)
{
    if (id >= pool->arena_pool.num_used)
        return POOL_NOT_FOUND;
    const struct arena *arena = &pool->arenas[id];
    const struct shelf *shelf = &pool->shelves[arena->shelf];
    *out_description = (struct pool_arena_description){.domain = shelf->domain,
                                                       .model = shelf->model,
                                                       .group = arena->group,
                                                       .tier = arena->tier,
                                                       .slots_per_granule = arena->slots,
                                                       .pages_per_granule = arena->pages,
                                                       .num_granules = arena->num_granules};
    return 0;
}

size_t pool_arena_order(const struct pool *pool, uint32_t id, enum pool_order order, uint32_t *out,
                        size_t max)
{
    size_t count = 0;

    if (id >= pool->arena_pool.num_used)
        return 0;
    const struct arena *arena = &pool->arenas[id];
    uint32_t at = order == POOL_ORDER_FREE ? arena->free.head : arena->evictable.head;
    while (at != NONE) {
        if (count < max)
            out[count] = pool->slots[at].number;
        count++;
        at = pool->slots[at].link.next;
    }
    return count;
}

int pool_place_verify(struct pool *pool, uint32_t arena, uint32_t number, uint32_t generation)
{
    uint32_t slot = slot_find(pool, arena, number);

    if (slot == NONE || pool->slots[slot].state != SLOT_TAKEN ||
        pool->slots[slot].generation != generation)
        return POOL_STALE;
    return 0;
}
