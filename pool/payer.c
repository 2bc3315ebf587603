/* pool/payer.c - who pays: quotas, accounts, and who is furthest over its share. */
#include "pool/payer.h"

#include "pool/granule_order.h"

#define MAX_WEIGHT UINT32_MAX

/* ---- who is furthest over its share --------------------------------------------------------- */

/*
 * charged - pages * weight / total_weight, times total_weight to stay exact: pages and the total
 * weight are below 2^33 and 2^48, so it takes 128 bits.
 */
__extension__ typedef __int128 int128;

static int128 over_share(const struct pool *pool, pool_payer payer, uint32_t device)
{
    int128 charged = account_of(pool, payer, device)->charged;
    int128 pages = pool->devices[device].pages;

    uint64_t total_weight = pool->tiers[pool->devices[device].tier].total_weight;

    return charged * total_weight - pages * quota_of(pool, payer, device)->weight;
}

bool payer_is_further_over(const struct pool *pool, pool_payer a, pool_payer b, uint32_t device)
{
    int128 over_a = over_share(pool, a, device), over_b = over_share(pool, b, device);

    return over_a != over_b ? over_a > over_b : a < b;
}

/* The device of a tier on which @payer is furthest over, relative to the device's pages. */
static uint32_t worst_device(const struct pool *pool, const struct tier *tier, pool_payer payer)
{
    uint32_t worst = tier->first_device;

    for (uint32_t device = worst + 1; device < tier->end_device; device++) {
        if (over_share(pool, payer, device) * (int128)pool->devices[worst].pages >
            over_share(pool, payer, worst) * (int128)pool->devices[device].pages)
            worst = device;
    }
    return worst;
}

bool payer_is_further_over_anywhere(const struct pool *pool, enum pool_tier tier, pool_payer a,
                                    pool_payer b)
{
    uint32_t device_a = worst_device(pool, &pool->tiers[tier], a);
    uint32_t device_b = worst_device(pool, &pool->tiers[tier], b);
    int128 over_a = over_share(pool, a, device_a) * (int128)pool->devices[device_b].pages;
    int128 over_b = over_share(pool, b, device_b) * (int128)pool->devices[device_a].pages;

    return over_a != over_b ? over_a > over_b : a < b;
}

/* Whether the payer keeps its guarantee, on every rank's device, without a granule of @arena. */
static bool stays_guaranteed(const struct pool *pool, pool_payer payer, const struct arena *arena)
{
    const struct tier *tier = &pool->tiers[arena->tier];
    uint64_t least = pool->payers[payer].quota[arena->tier].guarantee + arena->pages;

    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        if (placement_has(pool, arena->placement, device) &&
            account_of(pool, payer, device)->charged < least)
            return false;
    }
    return true;
}

uint32_t payer_coldest_granule(const struct pool *pool, pool_payer payer, uint32_t device,
                               bool ignore_guarantee)
{
    uint32_t best = NONE;

    for (uint32_t at = 0; at < pool->num_placements; at++) {
        if (!placement_has(pool, at, device))
            continue;
        uint32_t first = granule_order_first(pool, order_of(pool, payer, at));
        if (first == NONE)
            continue;
        const struct granule *granule = &pool->slots[first].first_of;
        if (!ignore_guarantee && !stays_guaranteed(pool, payer, &pool->arenas[granule->arena]))
            continue;
        if (best == NONE || granule->hottest < pool->slots[best].first_of.hottest)
            best = first;
    }
    return best;
}

/* Has a wholly unheld granule on @device, and keeps its guarantee without it. */
static bool can_give(const struct pool *pool, pool_payer payer, uint32_t device)
{
    if (account_of(pool, payer, device)->unheld == 0)
        return false;
    return quota_of(pool, payer, device)->guarantee == 0 ||
           payer_coldest_granule(pool, payer, device, false) != NONE;
}

/*
 * The leaf of @payer is winners[size + payer]; winners[1] won. Goes up only as far as something can
 * change, for every hit on an unheld block comes through here: nowhere, if neither the payer's
 * share
 * (@is_share_same) nor its being able to give changed; else not beyond a match that another payer
 * wins as before.
 */
static void tournament_update(struct pool *pool, pool_payer payer, uint32_t device,
                              bool is_share_same)
{
    uint32_t *winners = pool->devices[device].winners;
    uint32_t at = pool->tournament_size + payer;
    uint32_t leaf = can_give(pool, payer, device) ? payer : NONE;

    if (is_share_same && winners[at] == leaf)
        return;
    winners[at] = leaf;
    for (at /= 2; at >= 1; at /= 2) {
        uint32_t left = winners[2 * at], right = winners[2 * at + 1], winner = left;
        if (left == NONE || (right != NONE && payer_is_further_over(pool, right, left, device)))
            winner = right;
        if (winner == winners[at] && winner != payer)
            return;
        winners[at] = winner;
    }
}

pool_payer payer_furthest_over(const struct pool *pool, uint32_t device)
{
    return pool->devices[device].winners[1];
}

/* ---- accounts ------------------------------------------------------------------------------- */

static void takeable_update(struct pool *pool, pool_payer payer, uint32_t device)
{
    struct account *account = account_of(pool, payer, device);
    uint64_t guarantee = quota_of(pool, payer, device)->guarantee;
    uint64_t above = account->charged > guarantee ? account->charged - guarantee : 0;
    uint64_t takeable = account->unheld < above ? account->unheld : above;

    pool->devices[device].takeable_pages += takeable - account->takeable;
    account->takeable = takeable;
}

static void account_change(struct pool *pool, pool_payer payer, uint32_t device, int64_t charged,
                           int64_t unheld)
{
    struct account *account = account_of(pool, payer, device);
    const struct tier *tier = &pool->tiers[pool->devices[device].tier];
    bool had_unheld = account->unheld > 0;

    account->charged += (uint64_t)charged;
    account->unheld += (uint64_t)unheld;
    pool->devices[device].unheld_pages += (uint64_t)unheld;
    takeable_update(pool, payer, device);
    if (charged == 0) { /* without a guarantee, whoever has a wholly unheld granule can give it */
        if (had_unheld != (account->unheld > 0) || quota_of(pool, payer, device)->guarantee > 0)
            tournament_update(pool, payer, device, true);
        return;
    }
    /* A granule of several ranks depends on the guarantee on all their devices. */
    for (uint32_t other = tier->first_device; other < tier->end_device; other++)
        tournament_update(pool, payer, other, other != device);
}

void account_change_all(struct pool *pool, pool_payer payer, uint32_t placement, int64_t charged,
                        int64_t unheld)
{
    for (uint32_t left = pool->placements[placement].devices; left != 0; left &= left - 1)
        account_change(pool, payer, (uint32_t)__builtin_ctz(left), charged, unheld);
}

/* ---- quotas and rights ---------------------------------------------------------------------- */

static bool quota_is_valid(const struct pool *pool, enum pool_tier tier,
                           const struct pool_quota *quota, pool_payer except)
{
    const struct tier *record = &pool->tiers[tier];

    if (quota->weight < 1 || quota->weight > MAX_WEIGHT || quota->guarantee > quota->limit)
        return false;
    for (uint32_t device = record->first_device; device < record->end_device; device++) {
        uint64_t left = pool->devices[device].pages;
        for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
            uint64_t guarantee = payer == except ? 0 : pool->payers[payer].quota[tier].guarantee;
            left -= guarantee < left ? guarantee : left;
        }
        if (quota->guarantee > left)
            return false;
    }
    return true;
}

static void weights_changed(struct pool *pool, const struct tier *tier)
{
    for (uint32_t device = tier->first_device; device < tier->end_device; device++) {
        for (pool_payer payer = 0; payer < pool->payer_pool.num_used; payer++) {
            takeable_update(pool, payer, device);
            tournament_update(pool, payer, device, false);
        }
    }
}

static int payer_create(struct pool *pool, const struct pool_quota *quota, bool is_domain,
                        pool_payer *out_payer)
{
    if (!quota_is_valid(pool, POOL_TIER_DEVICE, quota, NONE))
        return POOL_INVALID;
    if (records_left(&pool->payer_pool) == 0)
        return POOL_LIMIT;

    pool_payer payer = pool->payer_pool.num_used++; /* payers are never given back */
    pool->payers[payer] = (struct payer){.is_domain = is_domain, .first_shelf = NONE};
    for (uint32_t at = 0; at < MAX_PLACEMENTS; at++)
        *order_of(pool, payer, at) = (struct granule_order){LIST_EMPTY, NONE};
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        pool->payers[payer].quota[tier] =
            tier == POOL_TIER_DEVICE
                ? *quota
                : (struct pool_quota){.limit = POOL_UNLIMITED, .weight = quota->weight};
        pool->tiers[tier].total_weight += quota->weight;
        weights_changed(pool, &pool->tiers[tier]);
    }
    *out_payer = payer;
    return 0;
}

int pool_tenant_create(struct pool *pool, const struct pool_quota *quota, pool_payer *out_tenant)
{
    return payer_create(pool, quota, false, out_tenant);
}

int pool_domain_create(struct pool *pool, const struct pool_quota *quota, pool_payer *out_domain)
{
    return payer_create(pool, quota, true, out_domain);
}

int pool_tier_quota_set(struct pool *pool, pool_payer payer, enum pool_tier tier,
                        const struct pool_quota *quota)
{
    if (!payer_exists(pool, payer))
        return POOL_NOT_FOUND;
    if (tier >= POOL_NUM_TIERS || !pool->tiers[tier].is_there ||
        !quota_is_valid(pool, tier, quota, payer))
        return POOL_INVALID;
    pool->tiers[tier].total_weight += quota->weight - pool->payers[payer].quota[tier].weight;
    pool->payers[payer].quota[tier] = *quota;
    weights_changed(pool, &pool->tiers[tier]);
    return 0;
}

int pool_quota_set(struct pool *pool, pool_payer payer, const struct pool_quota *quota)
{
    return pool_tier_quota_set(pool, payer, POOL_TIER_DEVICE, quota);
}

static uint8_t *rights_of(const struct pool *pool, pool_payer domain, pool_payer tenant)
{
    return &pool->rights[(size_t)domain * pool->config.max_payers + tenant];
}

int pool_domain_grant(struct pool *pool, pool_payer domain, pool_payer tenant, unsigned rights)
{
    if (!payer_exists(pool, domain) || !payer_exists(pool, tenant))
        return POOL_NOT_FOUND;
    if (!pool->payers[domain].is_domain || pool->payers[tenant].is_domain ||
        (rights & ~(unsigned)(POOL_MAY_READ | POOL_MAY_FILL)) != 0)
        return POOL_INVALID;
    *rights_of(pool, domain, tenant) = (uint8_t)rights;
    return 0;
}

bool payer_may(const struct pool *pool, pool_payer domain, pool_payer tenant, unsigned rights)
{
    return payer_exists(pool, domain) && pool->payers[domain].is_domain &&
           (*rights_of(pool, domain, tenant) & rights) == rights;
}

uint64_t pool_evictions(const struct pool *pool, pool_payer causer, pool_payer sufferer)
{
    if (!payer_exists(pool, causer) || !payer_exists(pool, sufferer))
        return 0;
    return pool->evictions[(size_t)causer * pool->config.max_payers + sufferer];
}

int pool_payer_stats(const struct pool *pool, pool_payer payer, struct pool_payer_stats *out_stats)
{
    if (!payer_exists(pool, payer))
        return POOL_NOT_FOUND;

    const struct payer *record = &pool->payers[payer];
    struct pool_payer_stats stats = {.evictions_suffered = record->evictions_suffered,
                                     .evictions_caused = record->evictions_caused,
                                     .query_tokens = record->query_tokens,
                                     .hit_tokens = record->hit_tokens};
    for (uint32_t id = record->first_shelf; id != NONE; id = pool->shelves[id].next) {
        const struct shelf *shelf = &pool->shelves[id];
        uint32_t num_groups = pool->models[shelf->model].shape.num_groups;
        for (uint32_t group = 0; group < num_groups; group++) {
            const struct arena *arena = &pool->arenas[shelf->first_arena + group];
            stats.held += arena->num_held;
            stats.evictable += arena->num_evictable;
            stats.reserved += arena->num_reserved;
            stats.quarantined += arena->num_quarantined;
            stats.free += arena->num_free;
        }
    }
    for (uint32_t device = 0; device < pool->config.num_devices; device++)
        stats.charged_pages[device] = account_of(pool, payer, device)->charged;
    *out_stats = stats;
    return 0;
}
