/*
 * pool/payer.h - (internal) who pays: quotas, accounts, and who is furthest over its share.
 *
 * On each device a tournament over all payers has the one to evict from first, kept up to date at
 * every change of an account in O(log payers).
 */
#pragma once

#include "pool/internal.h"

/* Adds to a payer's account on all devices of a placement, and to everything that follows from it.
 */
void account_change_all(struct pool *pool, pool_payer payer, uint32_t placement, int64_t charged,
                        int64_t unheld);

/* Whether @a is further over its share than @b on @device; of equals, whoever was declared first.
 */
bool payer_is_further_over(const struct pool *pool, pool_payer a, pool_payer b, uint32_t device);

/* The same for the device of a tier on which each is furthest over, as a part of that device. */
bool payer_is_further_over_anywhere(const struct pool *pool, enum pool_tier tier, pool_payer a,
                                    pool_payer b);

/*
 * Whom others evict from first on @device: of those that have a wholly unheld granule there and
 * stay above their guarantee without it, the one furthest over its share; or NONE.
 */
pool_payer payer_furthest_over(const struct pool *pool, uint32_t device);

/* The coldest granule that @payer can give on @device and keep its guarantee (or not), or NONE. */
uint32_t payer_coldest_granule(const struct pool *pool, pool_payer payer, uint32_t device,
                               bool ignore_guarantee);

/* A payer's quota on a device. */
static inline const struct pool_quota *quota_of(const struct pool *pool, pool_payer payer,
                                                uint32_t device)
{
    return &pool->payers[payer].quota[pool->devices[device].tier];
}

bool payer_may(const struct pool *pool, pool_payer domain, pool_payer tenant, unsigned rights);
