/*
 * tests/sim/sim_restart.c - a crash at any effect, and what comes back of each tier.
 *
 * A crash ends the event that it is in: effects of its verb up to then are carried out, the others
 * are not, and copies under way are left as they are. Engines are gone. What is there after it:
 *  - every slot with a record (of the device and the tiers below) is given back to a new pool;
 *  - a copy to a lower tier may have its record already, whether its data are whole or not;
 *  - the record of a slot whose block is gone may be there still, on disk;
 *  - a record may be torn: then nothing is known of its slot;
 *  - of a machine that was switched off, what memory had is gone.
 * Whatever of this is not the block that its record says must fail when it is read. And whatever
 * is, is found again: the oracle's matches are exact.
 *
 * Either all granules are claimed before any verb, and their blocks at once or later; or (loose)
 * granules come back one by one while verbs take memory: then some find no room any more.
 */
#include "tests/sim/sim_tiers.h"

#include <stdlib.h>

/* ---- the crash ------------------------------------------------------------------------------ */

void event_crash(struct sim *sim)
{
    if (!sim->config.tells_places || sim->crash_after || random_chance(&sim->random, 2))
        return;
    sim->crash_after = 1 + random_below(&sim->random, 12);
    sim_trace(sim, "a crash after %u effects\n", sim->crash_after);
    sim->is_idle = false;
}

/* The record was written; nobody knows how much of the data. */
static void crash_copy(struct sim *sim, const struct sim_copy *copy)
{
    struct sim_record *record = record_at(sim, copy->arena, copy->slot);
    struct sim_copy rest = *copy;

    if (copy->tier == copy->from_tier || copy->tier == POOL_TIER_DEVICE)
        return;
    if (random_chance(&sim->random, 2))
        return; /* or: only some data */
    *record = copy->record;
    copy_proceed(sim, &rest, UINT32_MAX);
    record->sum = copy_sum(sim, copy);
    record->is_there = true;
    if (random_chance(&sim->random, 2))
        rows_spoil(sim, copy->arena, copy->slot);
}

static void crash_records(struct sim *sim, struct sim_arena *arena, bool is_lost)
{
    uint32_t num_slots = arena->max_granules * arena->slots_per_granule;
    bool is_kept = arena->tier == POOL_TIER_DEVICE || sim->failures == 0;

    for (uint32_t i = 1; i <= num_slots; i++) {
        struct sim_record *record = &arena->records[i];
        if (record->is_stale && random_chance(&sim->random, 4))
            record->is_there = true;
        if (is_lost || (record->is_there && !is_kept && random_chance(&sim->random, 50)))
            record->is_there = false; /* torn */
        record->is_stale = false;
        arena->slots[i] = (struct sim_slot){.was_free = true};
    }
    for (uint32_t granule = 0; granule < arena->max_granules; granule++) {
        if (is_lost)
            arena->survival[granule] = SURVIVAL_NONE;
        else if (arena->is_committed[granule])
            arena->survival[granule] = SURVIVAL_UNCLAIMED;
        arena->is_committed[granule] = false;
    }
    arena->num_granules = 0;
}

static void crash(struct sim *sim)
{
    uint32_t first_kept = POOL_TIER_DEVICE; /* tiers above it lose all */

    sim->counts[COUNT_CRASHES]++;
    if (random_chance(&sim->random, 3))
        first_kept = random_chance(&sim->random, 2) ? POOL_TIER_HOST : POOL_TIER_DISK;
    for (uint32_t i = 0; i < SIM_MAX_COPIES; i++)
        if (sim->copies[i].is_used)
            crash_copy(sim, &sim->copies[i]);
    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++)
        if (sim->arenas[i].is_used)
            crash_records(sim, &sim->arenas[i], sim->arenas[i].tier < first_kept);
    memset(sim->committed_pages, 0, sizeof(sim->committed_pages));
    memset(sim->sessions, 0, sizeof(sim->sessions));
    memset(sim->sequences, 0, sizeof(sim->sequences));
    memset(sim->steps, 0, sizeof(sim->steps));
    memset(sim->requests, 0, sizeof(sim->requests));
    memset(sim->copies, 0, sizeof(sim->copies));
    memset(sim->attends, 0, sizeof(sim->attends));
    sim->num_requests = sim->num_copies = sim->num_attends = 0;
    sim->ended_transfer = sim->ended_step = 0;
    sim->is_draining = sim->has_slices = sim->is_clearing = false;
    sim->num_effects = sim->crash_after = sim->focus = 0;
}

/* The same arenas, in another order. */
static void reserve_arenas(struct sim *sim)
{
    uint32_t new_index[SIM_MAX_ARENAS], first = random_below(&sim->random, SIM_MAX_ARENAS);

    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        const struct sim_arena *arena = &sim->arenas[(first + i) % SIM_MAX_ARENAS];
        if (!arena->is_used)
            continue;
        int answer = pool_arena_reserve(sim->pool, arena->domain, arena->model);
        sim_expect(sim, answer == 0, "arena_reserve: %d", answer);
        uint32_t *out = &new_index[(first + i) % SIM_MAX_ARENAS];
        answer = pool_tier_arena_find(sim->pool, arena->domain, arena->model, arena->group,
                                      arena->tier, out);
        sim_expect(sim, answer == 0 && *out < SIM_MAX_ARENAS, "tier_arena_find: %d", answer);
    }
    device_move_arenas(sim, new_index);
}

/* ---- granules and blocks come back ---------------------------------------------------------- */

void survival_end(struct sim *sim, uint32_t index, uint32_t granule)
{
    struct sim_arena *arena = &sim->arenas[index];

    arena->survival[granule] = SURVIVAL_NONE;
    for (uint32_t i = 1; arena->records && i <= arena->slots_per_granule; i++)
        arena->records[granule * arena->slots_per_granule + i] = (struct sim_record){0};
}

static void claim(struct sim *sim, uint32_t index, uint32_t granule)
{
    struct sim_arena *arena = &sim->arenas[index];

    int answer = pool_restore_granule(sim->pool, index, granule);
    sim_trace(sim, "restore_granule %u:%u: %d\n", index, granule, answer);
    expect_answer(sim, "restore_granule", answer,
                  sim->is_recovery_loose ? MAY(POOL_NO_BLOCKS) | MAY(POOL_LIMIT) : 0);
    sim_settle(sim);
    if (answer != 0) {
        survival_end(sim, index, granule);
        return;
    }
    arena->survival[granule] = SURVIVAL_CLAIMED;
    arena->is_committed[granule] = true;
    arena->num_granules++;
    device_count(sim, arena, 1);
    answer = pool_restore_granule(sim->pool, index, granule);
    sim_expect(sim, answer == POOL_EXISTS, "restore_granule again: %d", answer);
}

static void restore_slot(struct sim *sim, uint32_t index, uint32_t number)
{
    struct sim_arena *arena = &sim->arenas[index];
    struct sim_record *record = &arena->records[number];
    uint32_t payer = family_payer(arena->family);
    uint32_t model = family_model(arena->family);

    if (record->epoch != sim->epochs[payer][model])
        record->is_there = false; /* from before a clear */
    if (!record->is_there)
        return;
    struct pool_restored restored = {
        .slot = number,
        .generation = random_chance(&sim->random, 8) ? 0 : record->generation,
        .key = record->key,
        .parent = record->has_parent && random_chance(&sim->random, 2) ? &record->parent : NULL,
        .form = record->form,
        .num_form = record->num_form,
        .is_unstorable = record->is_unstorable,
        .is_generated = record->is_generated};
    struct sim_stored *stored = oracle_entry(sim, arena->family, &record->key);
    bool is_there = stored && stored->slot[arena->tier];
    bool is_coming = stored && stored->num_arriving + stored->num_leaving > 0;
    int answer = pool_restore_block(sim->pool, index, &restored);
    sim_trace(sim, "restore_block %u:%u: %d\n", index, number, answer);
    sim_settle(sim);
    if (answer == POOL_EXISTS) {
        sim_expect(sim, is_there || is_coming, "restore_block: EXISTS, and it is not there");
        record->is_there = false;
        return;
    }
    sim_expect(sim, answer == 0 && !is_there, "restore_block: %d", answer);
    stored = oracle_entry(sim, arena->family, &record->key);
    sim_expect(sim, stored, "a restored block is not stored");
    if (!stored->has_hashes && record->has_hashes)
        memcpy(stored->hashes, record->hashes, sizeof(stored->hashes));
    stored->has_hashes |= record->has_hashes;
    stored->is_unwanted |= restored.is_unstorable;
    if (!arena->slots[number].is_published)
        place_set(sim, index, number, stored);
    record->generation = restored.generation; /* 0: the pool's, which nobody was told */
    arena->slots[number].generation = record->generation;
    arena->slots[number].was_free = false;
    sim->counts[COUNT_RESTORED]++;
}

static void restore_blocks(struct sim *sim, uint32_t index, uint32_t granule)
{
    struct sim_arena *arena = &sim->arenas[index];
    uint32_t slots = arena->slots_per_granule, first = random_below(&sim->random, slots);

    uint64_t restored = sim->counts[COUNT_RESTORED];
    for (uint32_t i = 0; i < slots; i++)
        restore_slot(sim, index, granule * slots + 1 + (first + i) % slots);
    arena->survival[granule] = SURVIVAL_NONE;
    int answer = pool_restore_end(sim->pool, index, granule);
    sim_trace(sim, "restore_end %u:%u: %d\n", index, granule, answer);
    sim_expect(sim, answer == 0, "restore_end: %d", answer);
    sim_settle(sim);
    sim_expect(sim, sim->counts[COUNT_RESTORED] > restored || !arena->is_committed[granule],
               "nothing of granule %u:%u was restored, and it is still there", index, granule);
}

static bool is_arena(const struct sim *sim, uint32_t index)
{
    return sim->arenas[index].is_used;
}

void restore_stray(struct sim *sim)
{
    uint32_t index = sim_pick(sim, SIM_MAX_ARENAS, is_arena);
    struct pool_restored restored = {.num_form = 1};
    int answer = pool_restore_granule(sim->pool, SIM_MAX_ARENAS, 0);

    sim_expect(sim, answer == POOL_INVALID, "restore_granule in no arena: %d", answer);
    answer = pool_restore_block(sim->pool, SIM_MAX_ARENAS, &restored);
    sim_expect(sim, answer == POOL_INVALID, "restore_block in no arena: %d", answer);
    if (index == SIM_NONE)
        return;
    const struct sim_arena *arena = &sim->arenas[index];
    uint32_t granule = random_below(&sim->random, arena->max_granules);
    if (arena->survival[granule] != SURVIVAL_NONE)
        return;
    restored.slot = granule * arena->slots_per_granule + 1;
    answer = pool_restore_block(sim->pool, index, &restored);
    sim_expect(sim, answer == POOL_INVALID, "restore_block in what is not restored: %d", answer);
    if (!arena->is_committed[granule])
        return;
    answer = pool_restore_granule(sim->pool, index, granule);
    sim_expect(sim, answer == POOL_EXISTS, "restore_granule of what is there: %d", answer);
}

/* Starts anywhere; does the next thing to one granule, or to all. Returns whether there was one. */
static bool recover(struct sim *sim, enum sim_survival state, bool is_one)
{
    uint32_t first = random_below(&sim->random, SIM_MAX_ARENAS);
    bool is_done = false;

    for (uint32_t i = 0; i < SIM_MAX_ARENAS; i++) {
        uint32_t index = (first + i) % SIM_MAX_ARENAS;
        for (uint32_t granule = 0; granule < sim->arenas[index].max_granules; granule++) {
            if (sim->arenas[index].survival[granule] != state)
                continue;
            is_done = true;
            if (state == SURVIVAL_UNCLAIMED)
                claim(sim, index, granule);
            else
                restore_blocks(sim, index, granule);
            if (is_one)
                return true;
        }
    }
    return is_done;
}

void event_recover(struct sim *sim)
{
    if (!sim->is_recovering)
        return;
    enum sim_survival state =
        random_chance(&sim->random, 2) ? SURVIVAL_UNCLAIMED : SURVIVAL_CLAIMED;
    bool is_done = recover(sim, state, true);
    if (!is_done)
        is_done = recover(sim, state ^ SURVIVAL_UNCLAIMED ^ SURVIVAL_CLAIMED, true);
    sim->is_recovering = is_done;
    sim->is_recovery_loose &= is_done;
    sim->is_idle = false;
}

void sim_recover_all(struct sim *sim)
{
    (void)recover(sim, SURVIVAL_UNCLAIMED, false);
    (void)recover(sim, SURVIVAL_CLAIMED, false);
    sim->is_recovering = sim->is_recovery_loose = false;
}

void sim_restart(struct sim *sim)
{
    sim_trace(sim, "crash\n");
    crash(sim);
    pool_destroy(sim->pool);
    oracle_reset(sim);
    sim_register(sim);
    reserve_arenas(sim);
    sim->is_recovering = true;
    sim->is_recovery_loose |= random_chance(&sim->random, 3); /* or the last one's goes on */
    if (!sim->is_recovery_loose)
        (void)recover(sim, SURVIVAL_UNCLAIMED, false);
    if (!sim->is_recovery_loose && random_chance(&sim->random, 2))
        sim_recover_all(sim);
    tiers_check_event(sim, true);
    sim_check(sim);
}
