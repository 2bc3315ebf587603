/* pool/tier.c - the tiers below the device: host and disk. */
#include "pool/internal.h"

int pool_tier_quota_set(struct pool *pool, pool_payer payer, enum pool_tier tier,
                        const struct pool_quota *quota)
{
    (void)pool, (void)payer, (void)tier, (void)quota;
    return -ENOSYS;
}

int pool_tier_arena_find(const struct pool *pool, pool_payer domain, pool_model model,
                         uint32_t group, enum pool_tier tier, uint32_t *out_arena)
{
    if (tier != POOL_TIER_DEVICE)
        return POOL_NOT_FOUND;
    return pool_arena_find(pool, domain, model, group, out_arena);
}

int pool_session_set_store(struct pool *pool, pool_session session, enum pool_store store)
{
    (void)pool, (void)session, (void)store;
    return -ENOSYS;
}

int pool_prefetch(struct pool *pool, const struct pool_prompt *prompt,
                  struct pool_prefetched *out_prefetched)
{
    (void)pool, (void)prompt, (void)out_prefetched;
    return -ENOSYS;
}

int pool_prefetch_sequence(struct pool *pool, struct pool_name name,
                           const struct pool_tokens *tokens, struct pool_prefetched *out_prefetched)
{
    (void)pool, (void)name, (void)tokens, (void)out_prefetched;
    return -ENOSYS;
}

int pool_tier_set(struct pool *pool, enum pool_tier tier, enum pool_tier_mode mode)
{
    (void)pool, (void)tier, (void)mode;
    return -ENOSYS;
}

uint64_t pool_tier_evict(struct pool *pool, enum pool_tier tier, uint64_t count)
{
    return tier == POOL_TIER_DEVICE ? pool_evict(pool, count) : 0;
}

int pool_restore_granule(struct pool *pool, uint32_t arena, uint32_t granule)
{
    (void)pool, (void)arena, (void)granule;
    return -ENOSYS;
}

int pool_restore_block(struct pool *pool, uint32_t arena, const struct pool_restored *restored)
{
    (void)pool, (void)arena, (void)restored;
    return -ENOSYS;
}

int pool_restore_end(struct pool *pool, uint32_t arena, uint32_t granule)
{
    (void)pool, (void)arena, (void)granule;
    return -ENOSYS;
}

int pool_tier_stats(const struct pool *pool, enum pool_tier tier, struct pool_tier_stats *out_stats)
{
    (void)pool, (void)tier, (void)out_stats;
    return -ENOSYS;
}

int pool_payer_tier_stats(const struct pool *pool, pool_payer payer, enum pool_tier tier,
                          struct pool_payer_tier_stats *out_stats)
{
    (void)pool, (void)payer, (void)tier, (void)out_stats;
    return -ENOSYS;
}
