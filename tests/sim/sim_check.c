/* tests/sim/sim_check.c - what must hold between any two events, and when everything has ended. */
#include "tests/sim/sim_tiers.h"

/* ---- numbers -------------------------------------------------------------------------------- */

static struct pool_payer_stats payer_stats(struct sim *sim, uint32_t payer)
{
    struct pool_payer_stats stats = {0};

    int err = pool_payer_stats(sim->pool, sim->payers[payer].id, &stats);
    sim_expect(sim, err == 0, "payer_stats: %d", err);
    return stats;
}

uint64_t sim_digest(struct sim *sim)
{
    static const enum pool_order orders[] = {POOL_ORDER_FREE, POOL_ORDER_EVICTABLE};
    uint32_t slots[4096];
    uint64_t digest = 1;

    for (uint32_t i = 0; i < sim->num_payers; i++) {
        struct pool_payer_stats stats = payer_stats(sim, i);
        const uint64_t words[] = {stats.held,
                                  stats.evictable,
                                  stats.reserved,
                                  stats.quarantined,
                                  stats.free,
                                  stats.charged_pages[0],
                                  stats.charged_pages[1],
                                  stats.charged_pages[2],
                                  stats.evictions_suffered,
                                  stats.evictions_caused,
                                  stats.query_tokens,
                                  stats.hit_tokens};
        for (size_t j = 0; j < ARRAY_SIZE(words); j++)
            digest = mix64(digest * 3 + words[j]);
    }
    for (uint32_t i = 0; i < POOL_NUM_TIERS; i++) {
        struct pool_tier_stats stats = {0};
        (void)pool_tier_stats(sim->pool, i, &stats);
        digest = mix64(digest * 3 + stats.stores_started + stats.promotions_started * 7 +
                       stats.evictions * 77 + stats.hit_tokens * 777);
    }
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        for (uint32_t j = 0; sim->arenas[i].is_used && j < ARRAY_SIZE(orders); j++) {
            size_t count = pool_arena_order(sim->pool, i, orders[j], slots, ARRAY_SIZE(slots));
            for (size_t k = 0; k < count && k < ARRAY_SIZE(slots); k++)
                digest = mix64(digest * 3 + slots[k]);
            digest = mix64(digest * 3 + count);
        }
    return digest ? digest : 1;
}

/* Slots of all committed granules are one of five things. */
static void check_sums(struct sim *sim)
{
    uint64_t counted = 0, slots = 0;

    for (uint32_t i = 0; i < sim->num_payers; i++) {
        struct pool_payer_stats stats = payer_stats(sim, i);
        counted += stats.held + stats.evictable + stats.reserved + stats.quarantined + stats.free;
    }
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        const struct sim_arena *arena = &sim->arenas[i];
        struct pool_arena_description about;
        if (!arena->is_used)
            continue;
        uint32_t found = SIM_NONE;
        (void)pool_tier_arena_find(sim->pool, arena->domain, arena->model, arena->group,
                                   arena->tier, &found);
        sim_expect(sim, found == i, "arena %u is found as %u", i, found);
        if (arena->tier == POOL_TIER_DEVICE)
            slots += (uint64_t)arena->num_granules * arena->slots_per_granule;
        int err = pool_arena_describe(sim->pool, i, &about);
        sim_expect(sim, err == 0 && about.num_granules == arena->num_granules,
                   "arena %u: %u granules, should be %u", i, about.num_granules,
                   arena->num_granules);
    }
    sim_expect(sim, counted == slots, "%lu slots are counted, there are %lu", counted, slots);
}

/* ---- holds ---------------------------------------------------------------------------------- */

static void count_tables(struct sim *sim, const struct sim_sequence *sequence, uint32_t group)
{
    struct pool_place places[SIM_MAX_POSITIONS];
    uint32_t count = 0;

    int err = pool_table(sim->pool, sequence->name, group, places, ARRAY_SIZE(places), &count);
    sim_expect(sim, err == 0, "table: %d", err);
    for (uint32_t i = 0; i < count; i++)
        if (places[i].slot)
            device_slot(sim, sim_arena_of(sim, sequence, group, places[i].is_shared),
                        places[i].slot)
                ->num_tables++;
}

/* Of a large arena some slots each time: the core walks all tables to say who holds one. */
static void check_arena_holds(struct sim *sim, uint32_t index)
{
    struct sim_arena *arena = &sim->arenas[index];
    uint32_t num_slots = arena->max_granules * arena->slots_per_granule,
             stride = 1 + num_slots / 64;

    for (uint32_t i = 1; i <= num_slots; i++) {
        uint32_t tables = arena->slots[i].num_tables;
        arena->slots[i].num_tables = 0;
        if ((i + sim->event) % stride != 0)
            continue;
        uint32_t holds = pool_slot_holds(sim->pool, index, i);
        sim_expect(sim, holds == tables, "%u:%u has %u holds, and is in %u tables", index, i, holds,
                   tables);
    }
}

/* Where no verb is half done, a slot is held as often as tables have it. */
static void check_holds(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++)
        for (uint32_t group = 0; sim->sequences[i].is_used &&
                                 group < sim_shape(sim, sim->sequences[i].model)->num_groups;
             group++)
            count_tables(sim, &sim->sequences[i], group);
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        if (sim->arenas[i].is_used)
            check_arena_holds(sim, i);
}

void sim_check(struct sim *sim)
{
    pool_check(sim->pool);
    check_sums(sim);
    tiers_check(sim);
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++)
        if (sim->sequences[i].is_used)
            oracle_check_sequence(sim, &sim->sequences[i]);
    if (!sim->has_slices && sim->num_copies == 0 && sim->num_requests == 0)
        check_holds(sim);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void finish_attends_and_copies(struct sim *sim)
{
    while (sim->num_attends || sim->num_copies) {
        uint32_t copy = random_below(&sim->random, SIM_MAX_COPIES);
        uint32_t attend = random_below(&sim->random, SIM_MAX_ATTENDS);

        if (sim->copies[copy].is_used)
            copy_end(sim, &sim->copies[copy], copy_draw_fault(sim, &sim->copies[copy], 5));
        if (sim->attends[attend].is_used)
            attend_end(sim, &sim->attends[attend], random_chance(&sim->random, 5) ? -5 : 0);
    }
}

/* Releases everything while sessions live: then nobody fills, and nobody may wait. */
static void release_all(struct sim *sim)
{
    finish_attends_and_copies(sim);
    for (uint32_t i = 0; i < SIM_MAX_STEPS; i++)
        if (sim->steps[i].state != SIM_STEP_FREE) {
            int answer = pool_step_end(sim->pool, sim->steps[i].id, false, ++sim->next_cookie);
            sim_expect(sim, answer == 0, "step_end: %d", answer);
            step_forget(sim, &sim->steps[i], false);
            sim_settle(sim);
        }
    for (uint32_t i = 0; i < SIM_MAX_SEQUENCES; i++) {
        struct sim_sequence *sequence = &sim->sequences[i];
        if (!sequence->is_used)
            continue;
        int answer = pool_release(sim->pool, sequence->name, ++sim->next_cookie);
        sim_expect(sim, answer == 0, "release: %d", answer);
        sequence->is_used = false;
        sim_settle(sim);
    }
    sim_expect(sim, sim->num_requests == 0, "a request waits although nothing is left");
}

/* Pages of the granules that a payer caches in, in each budget. */
static void check_charges(struct sim *sim, uint32_t payer)
{
    struct pool_payer_stats stats = payer_stats(sim, payer);
    uint64_t pages[SIM_MAX_PARTS] = {0};

    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        if (sim->arenas[i].is_used && sim->arenas[i].domain == sim->payers[payer].id)
            device_count_cached(sim, i, pages);
    for (uint32_t d = 0; d < sim->config.num_devices; d++)
        sim_expect(sim, stats.charged_pages[d] == pages[d],
                   "payer %u is charged %lu pages, caches in %lu", payer, stats.charged_pages[d],
                   pages[d]);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        struct pool_payer_tier_stats below = {0};
        (void)pool_payer_tier_stats(sim->pool, sim->payers[payer].id, tier, &below);
        sim_expect(sim, below.charged_pages == pages[POOL_MAX_DEVICES + tier],
                   "payer %u is charged %lu pages in tier %u, caches in %lu", payer,
                   below.charged_pages, tier, pages[POOL_MAX_DEVICES + tier]);
        sim_expect(sim, below.reserved == 0, "payer %u: %lu reserved in tier %u", payer,
                   below.reserved, tier);
    }
}

static void check_nothing_held(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->num_payers; i++) {
        struct pool_payer_stats stats = payer_stats(sim, i);
        sim_expect(sim, stats.held == 0, "payer %u: %lu held at the end", i, stats.held);
        sim_expect(sim, stats.reserved == 0, "payer %u: %lu reserved", i, stats.reserved);
        sim_expect(sim, stats.quarantined == 0, "payer %u: %lu quarantined", i, stats.quarantined);
        check_charges(sim, i);
    }
}

/* Whatever a guarantee says. */
static void evict_all(struct sim *sim)
{
    pool_evict(sim->pool, UINT64_MAX);
    sim_settle(sim);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        if (sim->config.tiers[tier].pages == 0)
            continue;
        pool_tier_evict(sim->pool, tier, UINT64_MAX);
        sim_settle(sim);
        for (uint32_t i = 0; i < sim->num_payers; i++) {
            struct pool_payer_tier_stats below = {0};
            (void)pool_payer_tier_stats(sim->pool, sim->payers[i].id, tier, &below);
            sim_expect(sim, below.evictable == 0 && below.charged_pages == 0,
                       "payer %u: %lu evictable in tier %u, %lu pages", i, below.evictable, tier,
                       below.charged_pages);
        }
    }
}

static void check_all_evicted(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->num_payers; i++) {
        struct pool_quota quota = {.guarantee = 0, .limit = POOL_UNLIMITED, .weight = 1};
        int answer = pool_quota_set(sim->pool, sim->payers[i].id, &quota);
        sim_expect(sim, answer == 0, "quota_set: %d", answer);
    }
    evict_all(sim);
    for (uint32_t i = 0; i < sim->num_payers; i++) {
        struct pool_payer_stats stats = payer_stats(sim, i);
        sim_expect(sim, stats.evictable == 0, "payer %u: %lu evictable", i, stats.evictable);
        for (uint32_t d = 0; d < sim->config.num_devices; d++)
            sim_expect(sim, stats.charged_pages[d] == 0, "payer %u is charged %lu pages", i,
                       stats.charged_pages[d]);
    }
    for (uint32_t i = 0; i < SIM_MAX_STORED; i++)
        sim_expect(sim, !sim->stored[i].is_used, "a key is left");
}

/* Keys here name their prefix: what was found by them had the same token ids. */
static void check_no_mismatch(struct sim *sim)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(sim->pool, stats, ARRAY_SIZE(stats));

    sim_expect(sim, count <= ARRAY_SIZE(stats), "%zu stats", count);
    for (size_t i = 0; i < count; i++)
        sim_expect(sim, strcmp(stats[i].name, "token_mismatches") != 0 || stats[i].value == 0,
                   "%lu token mismatches", stats[i].value);
}

/* Slices, and the copies that they begin. Returns whether there may be more. */
static bool advance_all(struct sim *sim)
{
    bool is_more = pool_advance(sim->pool, 1 + random_below(&sim->random, 8));

    sim_settle(sim);
    is_more |= sim->num_copies > 0;
    finish_attends_and_copies(sim);
    return is_more;
}

void sim_wind_down(struct sim *sim)
{
    if (!sim->options.is_abrupt && random_chance(&sim->random, 2))
        release_all(sim);
    for (uint32_t i = 0; i < SIM_MAX_SESSIONS; i++)
        if (sim->sessions[i].is_live)
            engine_session_end(sim, i, random_chance(&sim->random, 2));
    sim_expect(sim, sim->num_requests == 0, "a request waits, and no session is left");
    finish_attends_and_copies(sim);
    for (uint32_t i = 0; i < SIM_MAX_SESSIONS; i++)
        if (sim->sessions[i].is_lingering) {
            int answer = pool_session_detach(sim->pool, sim->sessions[i].id);
            sim_expect(sim, answer == 0, "session_detach: %d", answer);
            sim->sessions[i].is_lingering = false;
            sim_settle(sim);
        }
    for (uint32_t rounds = 0; advance_all(sim); rounds++)
        sim_expect(sim, rounds < 100000, "slices never end");
    sim->has_slices = false;
    sim_check(sim);
    check_no_mismatch(sim);
    check_nothing_held(sim);
    check_all_evicted(sim);
    sim_check(sim);
}
