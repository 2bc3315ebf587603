/*
 * tests/sim/sim_below.c - events: tiers below the device that are switched, stall, fill up, or lose
 * bits; what sessions want to be stored; and what must hold of tiers between events.
 */
#include "tests/sim/sim_tiers.h"

static bool has_tier(const struct sim *sim, uint32_t tier)
{
    return sim->config.tiers[tier].pages > 0;
}

static uint32_t draw_tier(struct sim *sim)
{
    return sim_pick(sim, POOL_NUM_TIERS, has_tier);
}

/* ---- events --------------------------------------------------------------------------------- */

/* Much is published and let go of, so that tiers fill, and what left the device is wanted again. */
void event_churn(struct sim *sim)
{
    if (!sim->has_below)
        return;
    event_alloc(sim);
    event_publish(sim);
    event_release(sim);
    event_copy_end(sim);
    if (random_chance(&sim->random, 4))
        event_fork(sim);
    if (random_chance(&sim->random, 4))
        event_preempt(sim);
    if (random_chance(&sim->random, 4))
        event_advance(sim);
    sim->is_quiet = false;
}

void event_tier_set(struct sim *sim)
{
    uint32_t tier = random_below(&sim->random, POOL_NUM_TIERS);
    enum pool_tier_mode mode = random_chance(&sim->random, 2)
                                   ? POOL_TIER_ON
                                   : (enum pool_tier_mode)random_below(&sim->random, 3);

    int answer = pool_tier_set(sim->pool, tier, mode);
    sim_trace(sim, "tier_set %u %u: %d\n", tier, mode, answer);
    sim_expect(sim, answer == (has_tier(sim, tier) ? 0 : POOL_INVALID), "tier_set: %d", answer);
    if (answer == 0)
        sim->tiers[tier].mode = mode;
    sim_settle(sim);
}

void event_tier_quota(struct sim *sim)
{
    uint32_t tier = draw_tier(sim), payer = random_below(&sim->random, sim->num_payers);

    if (tier == SIM_NONE)
        return;
    uint32_t pages = (uint32_t)sim->config.tiers[tier].pages;
    struct pool_quota quota = {.guarantee = random_below(&sim->random, pages / 2 + 1),
                               .limit = random_chance(&sim->random, 2)
                                            ? POOL_UNLIMITED
                                            : random_below(&sim->random, pages + 1),
                               .weight = random_below(&sim->random, 4)};
    int answer = pool_tier_quota_set(sim->pool, sim->payers[payer].id, tier, &quota);
    sim_trace(sim, "tier_quota %u of %u: guarantee %lu limit %ld weight %lu: %d\n", tier, payer,
              quota.guarantee, (long)quota.limit, quota.weight, answer);
    bool is_wrong = quota.weight == 0 || quota.guarantee > quota.limit;
    sim_expect(sim, answer == POOL_INVALID || (answer == 0 && !is_wrong), "tier_quota_set: %d",
               answer);
    if (answer == 0)
        sim->payers[payer].below[tier] = quota;
    sim_settle(sim);
}

void event_tier_evict(struct sim *sim)
{
    uint32_t tier = draw_tier(sim);
    uint64_t count = random_below(&sim->random, 6);

    if (tier == SIM_NONE)
        return;
    uint64_t evicted = pool_tier_evict(sim->pool, tier, count);
    sim_trace(sim, "tier_evict %u %lu: %lu\n", tier, count, evicted);
    sim_expect(sim, evicted <= count, "evicted %lu, asked for %lu", evicted, count);
    sim_settle(sim);
}

/* A disk that makes no progress, and does again. */
void event_tier_stall(struct sim *sim)
{
    uint32_t tier = draw_tier(sim);

    if (tier == SIM_NONE || sim->failures == 0)
        return;
    sim->tiers[tier].is_stalled = !sim->tiers[tier].is_stalled && random_chance(&sim->random, 4);
    sim_trace(sim, "tier %u stalls: %d\n", tier, sim->tiers[tier].is_stalled);
    sim->is_idle = false;
}

static bool is_below(const struct sim *sim, uint32_t index)
{
    return sim->arenas[index].is_used && sim->arenas[index].tier != POOL_TIER_DEVICE &&
           sim->arenas[index].num_granules > 0;
}

/* Of whatever is there: a block, one that is being written or read, or nothing. */
void event_bit_flip(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_ARENAS, is_below);

    if (index == SIM_NONE || sim->failures == 0)
        return;
    const struct sim_arena *arena = &sim->arenas[index];
    uint32_t slot = 1 + random_below(&sim->random, arena->max_granules * arena->slots_per_granule);
    if (!arena->is_committed[(slot - 1) / arena->slots_per_granule])
        return;
    sim_trace(sim, "a bit of %u:%u flips\n", index, slot);
    rows_spoil(sim, index, slot);
    sim->arenas[index].slots[slot].is_poisoned = false;
    sim->is_idle = false;
}

void event_set_store(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_SESSIONS, sim_is_session);

    if (index == SIM_NONE || sim->store_mix <= POOL_STORE_ALL)
        return;
    want_note_session(sim, index);
    enum pool_store store = random_below(&sim->random, POOL_STORE_ALL + 1);
    int answer = pool_session_set_store(sim->pool, sim->sessions[index].id, store);
    sim_trace(sim, "set_store %u %u: %d\n", index, store, answer);
    sim_expect(sim, answer == 0, "set_store: %d", answer);
    sim->sessions[index].store = store;
    want_note_session(sim, index);
    sim_settle(sim);
}

/* ---- between events ------------------------------------------------------------------------- */

void tiers_tick(struct sim *sim, uint64_t passed_ms)
{
    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++) {
        int64_t rate = (int64_t)sim->config.tiers[tier].store_bytes_per_s;
        int64_t credit = (int64_t)sim->tiers[tier].credit + (int64_t)passed_ms * rate;
        sim->tiers[tier].credit = (uint64_t)(credit < rate * 1000 ? credit : rate * 1000);
    }
}

static uint64_t charged_pages(struct sim *sim, uint32_t payer, uint32_t tier)
{
    struct pool_payer_tier_stats stats = {0};

    int err = pool_payer_tier_stats(sim->pool, sim->payers[payer].id, tier, &stats);
    sim_expect(sim, err == 0, "payer_tier_stats: %d", err);
    return stats.charged_pages;
}

void tiers_check_event(struct sim *sim, bool was_restored)
{
    for (uint32_t tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        for (uint32_t payer = 0; has_tier(sim, tier) && payer < sim->num_payers; payer++) {
            uint64_t old = sim->tiers[tier].charged[payer], new = charged_pages(sim, payer, tier);
            uint64_t limit = sim->payers[payer].below[tier].limit;
            sim_expect(sim, was_restored || new <= old || new <= limit,
                       "payer %u is charged %lu pages in tier %u, its limit is %lu", payer, new,
                       tier, limit);
            sim_expect(sim, was_restored || new <= old || sim->tiers[tier].askers >> payer & 1,
                       "payer %u is charged in tier %u, and stored nothing", payer, tier);
            sim_expect(sim,
                       !sim->is_quiet || new >= old || sim->tiers[tier].askers >> payer & 1 ||
                           new >= sim->payers[payer].below[tier].guarantee,
                       "payer %u is evicted to %lu pages in tier %u, its guarantee is %lu", payer,
                       new, tier, sim->payers[payer].below[tier].guarantee);
            sim->tiers[tier].charged[payer] = new;
        }
        sim->tiers[tier].askers = 0;
    }
    sim->is_quiet = false;
}

/* Slots of all committed granules are one of five things: of the tier, and of each payer. */
static void check_tier(struct sim *sim, uint32_t tier, uint64_t *hit_tokens)
{
    struct pool_tier_stats stats;
    uint64_t slots = 0, counted = 0;

    int err = pool_tier_stats(sim->pool, tier, &stats);
    sim_expect(sim, err == 0, "tier_stats: %d", err);
    *hit_tokens += stats.hit_tokens;
    sim_expect(sim, stats.hit_tokens == sim->tiers[tier].hit_tokens,
               "tier %u: %lu hit tokens, should be %lu", tier, stats.hit_tokens,
               sim->tiers[tier].hit_tokens);
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        if (sim->arenas[i].is_used && sim->arenas[i].tier == tier)
            slots += (uint64_t)sim->arenas[i].num_granules * sim->arenas[i].slots_per_granule;
    sim_expect(sim,
               stats.free + stats.held + stats.evictable + stats.reserved + stats.quarantined ==
                   slots,
               "tier %u: slots are counted wrong, there are %lu", tier, slots);
    if (tier == POOL_TIER_DEVICE)
        return;
    sim_expect(sim, stats.held == 0, "%lu blocks are held in tier %u", stats.held, tier);
    sim_expect(sim, stats.mode == sim->tiers[tier].mode, "mode of tier %u", tier);
    sim_expect(sim, stats.store_bytes == sim->tiers[tier].bytes, "%lu bytes are being stored",
               stats.store_bytes);
    sim_expect(sim,
               stats.uncommitted + sim->committed_pages[POOL_MAX_DEVICES + tier] == stats.pages,
               "tier %u: %lu pages uncommitted", tier, stats.uncommitted);
    for (uint32_t payer = 0; payer < sim->num_payers; payer++) {
        struct pool_payer_tier_stats mine = {0};
        (void)pool_payer_tier_stats(sim->pool, sim->payers[payer].id, tier, &mine);
        counted += mine.evictable + mine.reserved + mine.free;
    }
    sim_expect(sim, counted + stats.quarantined == slots, "tier %u: slots of payers: %lu of %lu",
               tier, counted, slots);
}

static uint64_t stat_value(struct sim *sim, const char *name)
{
    static struct pool_stat stats[128];
    size_t count = pool_stats(sim->pool, stats, ARRAY_SIZE(stats));

    for (size_t i = 0; i < count && i < ARRAY_SIZE(stats); i++)
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    sim_fail(sim, "no statistic %s", name);
}

void tiers_check(struct sim *sim)
{
    uint64_t hit_tokens = 0;

    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
        if (tier == POOL_TIER_DEVICE || has_tier(sim, tier))
            check_tier(sim, tier, &hit_tokens);
    sim_expect(sim, hit_tokens == stat_value(sim, "hit_tokens"), "hits of tiers: %lu tokens",
               hit_tokens);
    oracle_check_stored(sim);
}
