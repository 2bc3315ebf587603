/*
 * tests/sim/sim_copies.c - copies that take their time: of tails, and between tiers.
 *
 * A copy moves row by row, in an order of its own, while other things happen. Its fault is drawn
 * when it ends. One that reads below the device compares what it read with the record's sum, as
 * offload/ does, and fails if they differ; so whatever went wrong below never comes up, and if it
 * does nevertheless (sim_options.is_unverified) the oracle sees it.
 */
#include "tests/sim/sim_tiers.h"

#include <errno.h>

static uint32_t stride_choose(struct sim *sim, uint32_t num_rows)
{
    static const uint32_t primes[] = {1, 7, 11, 13, 17, 19};
    uint32_t stride = primes[random_below(&sim->random, ARRAY_SIZE(primes))];

    return num_rows % stride == 0 ? 1 : stride; /* so that every row comes once */
}

static struct sim_copy *copy_take(struct sim *sim, pool_transfer transfer)
{
    uint32_t index = 0;

    while (index < SIM_MAX_COPIES && sim->copies[index].is_used)
        index++;
    sim_expect(sim, index < SIM_MAX_COPIES, "more copies than max_transfers");
    for (uint32_t i = 0; i < SIM_MAX_COPIES; i++)
        sim_expect(sim, !sim->copies[i].is_used || sim->copies[i].transfer != transfer,
                   "transfer %lu is under way", transfer);
    return &sim->copies[index];
}

/* ---- a copy between tiers begins ------------------------------------------------------------ */

static void store_begin(struct sim *sim, struct sim_copy *copy, struct sim_stored *stored)
{
    const struct sim_arena *to = &sim->arenas[copy->arena];
    const struct pool_tier_config *config = &sim->config.tiers[copy->tier];
    struct sim_tier *tier = &sim->tiers[copy->tier];

    sim->counts[COUNT_STORES]++;
    sim_expect(sim, tier->mode == POOL_TIER_ON, "a copy to tier %u, which is not on", copy->tier);
    sim_expect(sim, !stored->is_stale, "a cleared block is stored");
    sim_expect(sim, stored->slot[copy->tier] == 0, "a copy of what the tier has");
    want_check_store(sim, copy, stored);
    sim_expect(sim,
               config->max_store_bytes == 0 || tier->bytes == 0 ||
                   tier->bytes + copy->bytes <= config->max_store_bytes,
               "%lu bytes are stored at a time, and %lu more", tier->bytes, copy->bytes);
    sim_expect(sim, config->store_bytes_per_s == 0 || (int64_t)tier->credit > 0,
               "more bytes are stored than may be in this time");
    stored->num_leaving++;
    tier->bytes += copy->bytes;
    tier->credit -= copy->bytes * 1000;
    for (uint32_t i = 0; i < sim->num_payers; i++)
        if (sim->payers[i].id == to->domain)
            tier->askers |= 1U << i;
}

/* From tier to tier: a published block, whose record travels with it. */
static void move_begin(struct sim *sim, struct sim_copy *copy, const struct sim_effect *kept)
{
    const struct sim_arena *from = &sim->arenas[copy->from_arena], *to = &sim->arenas[copy->arena];
    const struct sim_slot *source = device_slot(sim, copy->from_arena, copy->from_slot);
    struct sim_stored *stored = oracle_entry(sim, to->family, &kept->key);
    const struct pool_model_shape *shape = NULL;

    sim_expect(sim, from->family == to->family, "a copy to another arena's tier");
    sim_expect(sim, source->is_published && stored, "a copy of a block without a key");
    sim_expect(sim, memcmp(&source->key, &kept->key, sizeof(kept->key)) == 0,
               "a copy of %u:%u with the key of another block", copy->from_arena, copy->from_slot);
    for (uint32_t i = 0; i < sim->num_models; i++)
        if (sim->models[i].id == to->model)
            shape = &sim->models[i].shape;
    copy->bytes = shape->groups[to->group].block_bytes;
    copy->serial = stored->serial;
    record_set(sim, &copy->record, kept, stored);
    sim_expect(sim,
               sim->tiers[copy->from_tier].mode != POOL_TIER_OFF || copy->tier > copy->from_tier,
               "a copy from tier %u, which is off", copy->from_tier);
    if (copy->tier > copy->from_tier) {
        store_begin(sim, copy, stored);
        return;
    }
    sim_expect(sim, copy->tier == POOL_TIER_DEVICE, "a copy up, and not to the device");
    sim_expect(sim, stored->slot[POOL_TIER_DEVICE] == 0 && stored->num_arriving == 0,
               "a copy to the device of what is there, or on its way");
    stored->num_arriving++;
    sim->counts[COUNT_PROMOTIONS]++;
}

void copy_begin(struct sim *sim, const struct sim_effect *kept)
{
    const struct pool_effect *effect = &kept->effect;
    struct sim_copy *copy = copy_take(sim, effect->transfer);
    struct sim_slot *from = device_slot(sim, effect->from_arena, effect->from_slot);
    struct sim_slot *to = device_slot(sim, effect->arena, effect->slot);
    uint32_t num_rows = sim->arenas[effect->arena].rows_per_slot;

    sim_trace(sim, "  copy %lu: %u:%u -> %u:%u\n", effect->transfer, effect->from_arena,
              effect->from_slot, effect->arena, effect->slot);
    sim_expect(sim, num_rows == sim->arenas[effect->from_arena].rows_per_slot, "copy: sizes");
    sim_expect(sim, !to->is_published && !to->num_reading && !to->num_writing && from != to,
               "D3: copy to %u:%u, which is in use", effect->arena, effect->slot);
    sim_expect(sim, !from->num_writing, "D3: copy from %u:%u, which is being copied to",
               effect->from_arena, effect->from_slot);

    *copy = (struct sim_copy){.is_used = true,
                              .transfer = effect->transfer,
                              .from_arena = effect->from_arena,
                              .from_slot = effect->from_slot,
                              .arena = effect->arena,
                              .slot = effect->slot,
                              .from_tier = sim->arenas[effect->from_arena].tier,
                              .tier = sim->arenas[effect->arena].tier,
                              .first = random_below(&sim->random, num_rows),
                              .stride = stride_choose(sim, num_rows)};
    sim_expect(sim, (effect->key != NULL) == (copy->from_tier != copy->tier),
               "only copies between tiers have a key");
    if (effect->key)
        move_begin(sim, copy, kept);
    else
        sim_expect(sim, copy->tier == POOL_TIER_DEVICE, "a tail is copied below the device");
    if (record_at(sim, effect->arena, effect->slot)) /* its bytes go now, whatever a crash leaves */
        record_at(sim, effect->arena, effect->slot)->is_there = false;
    from->num_reading++;
    to->num_writing++;
    to->is_poisoned = false;
    sim->num_copies++;
}

/* ---- and goes on ---------------------------------------------------------------------------- */

void copy_proceed(struct sim *sim, struct sim_copy *copy, uint32_t num_rows)
{
    struct sim_arena *from = &sim->arenas[copy->from_arena], *to = &sim->arenas[copy->arena];
    uint32_t all = to->rows_per_slot;

    (void)device_slot(sim, copy->from_arena, copy->from_slot);
    (void)device_slot(sim, copy->arena, copy->slot);
    sim->is_idle = copy->num_done == all;
    for (; num_rows && copy->num_done < all; num_rows--, copy->num_done++) {
        uint32_t row = (copy->first + copy->num_done * copy->stride) % all;
        to->rows[(size_t)copy->slot * all + row] = from->rows[(size_t)copy->from_slot * all + row];
    }
}

enum sim_fault copy_draw_fault(struct sim *sim, const struct sim_copy *copy, uint32_t one_in)
{
    if (!random_chance(&sim->random, one_in))
        return FAULT_NONE;
    if (copy->tier == copy->from_tier)
        return FAULT_ERROR;
    return FAULT_ERROR + random_below(&sim->random, copy->tier == POOL_TIER_DEVICE ? 2 : 3);
}

/* Of what is to be written: what goes wrong on the way, or at the destination, is not in it. */
uint64_t copy_sum(struct sim *sim, const struct sim_copy *copy)
{
    if (copy->from_tier == POOL_TIER_DEVICE)
        return rows_sum(sim, copy->from_arena, copy->from_slot);
    return record_at(sim, copy->from_arena, copy->from_slot)->sum;
}

/* What becomes of the rows, and what the core is told. */
static int copy_finish(struct sim *sim, struct sim_copy *copy, enum sim_fault fault)
{
    static const int errors[] = {-EIO, -ENOSPC, -ETIMEDOUT};
    const struct sim_record *source = record_at(sim, copy->from_arena, copy->from_slot);

    sim->counts[COUNT_COPY_FAULTS] += fault != FAULT_NONE;
    if (fault == FAULT_ERROR) {
        device_fill(sim, copy->arena, copy->slot, SIM_POISON);
        return errors[random_below(&sim->random, ARRAY_SIZE(errors))];
    }
    if (fault == FAULT_SHORT) {
        copy_proceed(sim, copy, random_below(&sim->random, 8));
        return -EIO;
    }
    copy_proceed(sim, copy, UINT32_MAX);
    copy->record.sum = copy_sum(sim, copy);
    if (copy->from_tier != POOL_TIER_DEVICE && !sim->options.is_unverified &&
        rows_sum(sim, copy->arena, copy->slot) != source->sum) {
        sim->counts[COUNT_UNVERIFIED]++;
        device_fill(sim, copy->arena, copy->slot, SIM_POISON);
        return -EBADMSG;
    }
    if (fault == FAULT_SILENT)
        rows_spoil(sim, copy->arena, copy->slot);
    return 0;
}

/* Before the core is told, which may begin the next one. */
static void move_ended(struct sim *sim, const struct sim_copy *copy, int error)
{
    struct sim_record *record = record_at(sim, copy->arena, copy->slot);
    struct sim_stored *stored =
        oracle_entry(sim, sim->arenas[copy->arena].family, &copy->record.key);

    if (stored && stored->serial == copy->serial)
        --*(copy->tier == POOL_TIER_DEVICE ? &stored->num_arriving : &stored->num_leaving);
    if (copy->tier != POOL_TIER_DEVICE)
        sim->tiers[copy->tier].bytes -= copy->bytes;
    else
        sim->troubles += error != 0;
    *record = copy->record; /* it is there once it is told to be PRESENT */
    record->is_written = error == 0;
}

void copy_end(struct sim *sim, struct sim_copy *copy, enum sim_fault fault)
{
    int error = copy_finish(sim, copy, fault);
    struct sim_copy ended = *copy;

    device_slot(sim, copy->from_arena, copy->from_slot)->num_reading--;
    device_slot(sim, copy->arena, copy->slot)->num_writing--;
    copy->is_used = false;
    sim->num_copies--;
    sim->ended_transfer = ended.transfer;
    if (ended.tier != ended.from_tier)
        move_ended(sim, &ended, error);

    sim_trace(sim, "transfer_done %lu, %d\n", ended.transfer, error);
    int answer = pool_transfer_done(sim->pool, ended.transfer, error);
    sim_expect(sim, answer == 0, "transfer_done %lu: %d", ended.transfer, answer);
    sim_settle(sim);
    const struct sim_slot *from = &sim->arenas[ended.from_arena].slots[ended.from_slot];
    sim_expect(sim, error == 0 || ended.tier >= ended.from_tier || !from->is_published,
               "%u:%u could not be read, and is still there", ended.from_arena, ended.from_slot);
}
