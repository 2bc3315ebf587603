/* daemon/lower.c - granules and copies below the device are handed on, and told back. */
#include "daemon/lower.h"

#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/tier_host.h"
#include "offload/host.h"

#include <errno.h>
#include <stdlib.h>

/* ---- life ----------------------------------------------------------------------------------- */

static int queues_init(struct tiers *tiers, uint32_t max_copies)
{
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        for (int which = 0; which < NUM_LOWER_QUEUES; which++) {
            tiers->queues[tier][which] = fifo_of(max_copies);
            tiers->queued[tier][which] =
                calloc(tiers->queues[tier][which].mask + 1, sizeof(*tiers->queued[tier][which]));
            if (!tiers->queued[tier][which])
                return -ENOMEM;
        }
    }
    return 0;
}

int lower_init(struct server *server)
{
    struct tiers *tiers = &server->tiers;
    const struct config *config = server->config;
    uint64_t disk_granules = tier_disk_granules(config);
    uint64_t granules = 2 * (disk_granules + config->host_tier_bytes / config->page_bytes) + 1024;

    tiers->host_source.fd = tiers->disk.source.fd = tiers->disk.opened.fd = -1;
    tiers->is_on = config->host_tier_bytes > 0 || disk_granules > 0;
    if (!tiers->is_on)
        return 0;
    tiers->num_arenas = lower_max_arenas(config);
    tiers->arenas = calloc(tiers->num_arenas, sizeof(*tiers->arenas));
    tiers->tier_of = calloc(tiers->num_arenas, 1);
    tiers->copies = calloc(config->max_transfers, sizeof(*tiers->copies));
    tiers->granule_fifo = fifo_of(granules);
    tiers->granule_work = calloc(tiers->granule_fifo.mask + 1, sizeof(*tiers->granule_work));
    if (!tiers->arenas || !tiers->tier_of || !tiers->copies || !tiers->granule_work)
        return -ENOMEM;
    int err = queues_init(tiers, (uint32_t)config->max_transfers);
    if (!err && config->host_tier_bytes > 0)
        err = tier_host_init(server);
    if (!err && disk_granules > 0)
        err = tier_disk_start(server);
    return err;
}

void lower_finish(struct server *server)
{
    struct tiers *tiers = &server->tiers;

    tier_disk_finish(server); /* before the memory that it reads and writes goes */
    tier_host_finish(server);
    for (uint32_t at = 0; tiers->arenas && at < tiers->num_arenas; at++)
        free(tiers->arenas[at].granules);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        for (int which = 0; which < NUM_LOWER_QUEUES; which++)
            free(tiers->queued[tier][which]);
    }
    free(tiers->arenas);
    free(tiers->tier_of);
    free(tiers->copies);
    free(tiers->granule_work);
}

/* ---- told by the pool ----------------------------------------------------------------------- */

static void queue_granule(struct tiers *tiers, uint32_t arena, uint32_t granule)
{
    struct lower_granule *state = &tiers->arenas[arena].granules[granule];

    if (state->is_queued)
        return;
    state->is_queued = true;
    tiers->granule_work[fifo_push(&tiers->granule_fifo)] = (struct granule_ref){arena, granule};
}

static void emit_commit(struct server *server, uint32_t number, uint32_t granule)
{
    struct lower_arena *arena = lower_arena(server, number);

    if (!arena) {
        server->tiers.counters[lower_tier_of(server, number)].failed_commits++;
        return; /* copies to it fail */
    }
    arena->granules[granule].is_wanted = true;
    queue_granule(&server->tiers, number, granule);
}

static void emit_decommit(struct server *server, uint32_t number, uint32_t granule)
{
    struct lower_arena *arena = &server->tiers.arenas[number];

    if (!arena->is_open)
        return;
    struct lower_granule *state = &arena->granules[granule];
    state->is_wanted = false;
    state->must_leave = state->memory != MEMORY_NONE;
    queue_granule(&server->tiers, number, granule);
}

/* What is written beside the block, while the effect's texts are there. */
static size_t record_of(struct server *server, const struct lower_arena *arena,
                        const struct pool_effect *effect, uint8_t out[RECORD_MAX_PACKED])
{
    struct record record;

    lower_record(server, arena->domain, arena->model, effect, &record);
    return record_pack(&arena->place, &record, out);
}

static void queue_copy(struct tiers *tiers, enum pool_tier tier, int which, uint32_t index)
{
    tiers->queued[tier][which][fifo_push(&tiers->queues[tier][which])] = index;
}

static void emit_copy(struct server *server, const struct pool_effect *effect, enum pool_tier from,
                      enum pool_tier to)
{
    struct tiers *tiers = &server->tiers;
    uint32_t index = (uint32_t)effect->transfer;
    struct lower_copy *copy = &tiers->copies[index];

    copy->transfer = effect->transfer;
    copy->from_arena = effect->from_arena;
    copy->from_slot = effect->from_slot;
    copy->arena = effect->arena;
    copy->slot = effect->slot;
    copy->since_ms = server->now_ms;
    copy->record_bytes = 0;
    tiers->num_under_way++;
    const struct lower_arena *arena =
        to == POOL_TIER_DISK ? lower_arena(server, copy->arena) : NULL;
    if (arena)
        copy->record_bytes = (uint16_t)record_of(server, arena, effect, copy->record);
    queue_copy(tiers, from > to ? from : to, from > to ? LOWER_FETCH : LOWER_STORE, index);
}

bool lower_emit(struct server *server, const struct pool_effect *effect)
{
    enum pool_tier tier, from;

    if (effect->kind != POOL_EFFECT_COMMIT && effect->kind != POOL_EFFECT_DECOMMIT &&
        effect->kind != POOL_EFFECT_COPY)
        return false;
    tier = lower_tier_of(server, effect->arena);
    if (effect->kind == POOL_EFFECT_COPY) {
        from = lower_tier_of(server, effect->from_arena);
        if (from != POOL_TIER_DEVICE || tier != POOL_TIER_DEVICE)
            emit_copy(server, effect, from, tier);
        return from != POOL_TIER_DEVICE || tier != POOL_TIER_DEVICE;
    }
    if (tier == POOL_TIER_DEVICE)
        return false;
    if (effect->kind == POOL_EFFECT_COMMIT)
        emit_commit(server, effect->arena, effect->index);
    else
        emit_decommit(server, effect->arena, effect->index);
    return true;
}

/* ---- granules ------------------------------------------------------------------------------- */

static uint64_t granule_cookie(struct granule_ref ref)
{
    return (uint64_t)TIER_COOKIE_GRANULE << TIER_COOKIE_SHIFT | (uint64_t)ref.arena << 32 |
           ref.granule;
}

static int memory_take(struct server *server, struct granule_ref ref)
{
    struct lower_arena *arena = &server->tiers.arenas[ref.arena];

    if (arena->tier == POOL_TIER_HOST)
        return gpu_commit(tier_host_device(server), ref.arena, ref.granule, granule_cookie(ref));
    return tier_disk_commit(server, arena, &arena->granules[ref.granule], granule_cookie(ref));
}

static int memory_give(struct server *server, struct granule_ref ref)
{
    struct lower_arena *arena = &server->tiers.arenas[ref.arena];

    if (arena->tier == POOL_TIER_HOST)
        return gpu_decommit(tier_host_device(server), ref.arena, ref.granule, granule_cookie(ref));
    return tier_disk_decommit(server, &arena->granules[ref.granule], granule_cookie(ref));
}

/* Whether it is to be tried again later; else it is under way, there, or not to be had. */
static bool granule_submit(struct server *server, struct granule_ref ref)
{
    struct lower_arena *arena = &server->tiers.arenas[ref.arena];
    struct lower_granule *state = &arena->granules[ref.granule];
    struct lower_counters *counters = &server->tiers.counters[arena->tier];
    int err;

    if (state->must_leave && state->memory == MEMORY_THERE) { /* T1 */
        err = memory_give(server, ref);
        if (err == 0) {
            state->memory = MEMORY_LEAVING;
            counters->decommits++;
        }
        return err != 0;
    }
    if (!state->is_wanted || state->memory != MEMORY_NONE)
        return false;
    err = memory_take(server, ref);
    if (err == 0) {
        state->memory = MEMORY_COMING;
        counters->commits++;
    } else if (err < 0 && err != -EAGAIN && err != -EDQUOT) {
        counters->failed_commits++; /* tried again for the next copy to it */
        return false;
    }
    return err != 0;
}

static void submit_granules(struct server *server)
{
    struct tiers *tiers = &server->tiers;
    uint64_t end = tiers->granule_fifo.tail;

    while (tiers->granule_fifo.head < end) {
        struct granule_ref ref =
            tiers->granule_work[tiers->granule_fifo.head++ & tiers->granule_fifo.mask];
        tiers->arenas[ref.arena].granules[ref.granule].is_queued = false;
        if (granule_submit(server, ref)) {
            tiers->has_waiting = true;
            queue_granule(tiers, ref.arena, ref.granule);
        }
    }
}

static void granule_ended(struct server *server, struct granule_ref ref, int status)
{
    struct lower_arena *arena = &server->tiers.arenas[ref.arena];
    struct lower_granule *state = &arena->granules[ref.granule];
    bool is_disk = arena->tier == POOL_TIER_DISK;

    if (state->memory == MEMORY_COMING) {
        state->memory = status == 0 ? MEMORY_THERE : MEMORY_NONE;
        state->must_leave &= status == 0;
        server->tiers.counters[arena->tier].failed_commits += status != 0;
    } else { /* of the disk it is free whatever the status */
        state->memory = status == 0 || is_disk ? MEMORY_NONE : MEMORY_THERE;
        state->must_leave = state->memory == MEMORY_THERE;
    }
    if (is_disk && state->memory == MEMORY_NONE)
        tier_disk_left(server, state);
    if (state->must_leave || (state->is_wanted && status == 0))
        queue_granule(&server->tiers, ref.arena, ref.granule);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* One end of a copy: memory, or a slot of the disk. */
struct copy_end {
    enum pool_tier tier;
    void *memory;
    struct disk_slot slot;
};

/* 1: it has memory; 0: not yet; negative errno: it cannot have. */
static int granule_ready(struct server *server, uint32_t number, uint32_t granule)
{
    struct lower_granule *state = &server->tiers.arenas[number].granules[granule];

    if (state->memory == MEMORY_THERE)
        return !state->must_leave;
    if (state->memory != MEMORY_NONE || state->is_queued)
        return 0;
    /* It could not be had before: perhaps now. */
    bool is_later = granule_submit(server, (struct granule_ref){number, granule});
    if (is_later)
        queue_granule(&server->tiers, number, granule);
    return is_later || state->memory != MEMORY_NONE ? 0 : -ENOSPC;
}

static int lower_end(struct server *server, uint32_t number, uint32_t slot, struct copy_end *out)
{
    const struct lower_arena *arena = lower_arena(server, number);

    if (!arena)
        return -ENOMEM;
    uint32_t granule = (slot - 1) / arena->slots, index = (slot - 1) % arena->slots;
    int ready = granule_ready(server, number, granule);
    if (ready <= 0)
        return ready;
    if (arena->tier == POOL_TIER_DISK)
        out->slot = (struct disk_slot){arena->granules[granule].number, index};
    else
        out->memory = tier_host_address(server, number, slot, arena->stride_bytes);
    return 1;
}

static int device_end(struct server *server, uint32_t number, uint32_t slot, struct copy_end *out)
{
    if (!server->effects.arenas[number].is_open || gpu_arena_is_damaged(server->device, number))
        return -EIO;
    out->memory = effects_address(server, number, slot);
    return out->memory != NULL;
}

static int end_find(struct server *server, uint32_t number, uint32_t slot, struct copy_end *out)
{
    out->tier = lower_tier_of(server, number);
    return out->tier == POOL_TIER_DEVICE ? device_end(server, number, slot, out)
                                         : lower_end(server, number, slot, out);
}

static void copy_end_now(struct server *server, uint32_t index, int status)
{
    struct tiers *tiers = &server->tiers;
    const struct lower_copy *copy = &tiers->copies[index];
    enum pool_tier from = lower_tier_of(server, copy->from_arena),
                   to = lower_tier_of(server, copy->arena);
    struct lower_counters *counters = &tiers->counters[from > to ? from : to];
    /* Both have the same. */
    uint64_t bytes = tiers->arenas[from > to ? copy->from_arena : copy->arena].block_bytes;

    if (status == 0) {
        counters->stored_bytes += to > from ? bytes : 0;
        counters->fetched_bytes += from > to ? bytes : 0;
    } else {
        counters->failed_stores += to > from;
        counters->failed_fetches += from > to;
    }
    tiers->num_under_way--;
    (void)pool_transfer_done(server->pool, copy->transfer, status); /* T2 */
    server->has_more = true;
}

void lower_copy_ended(struct server *server, uint32_t index, int status)
{
    const struct lower_copy *copy = &server->tiers.copies[index];
    const uint32_t ends[] = {copy->from_arena, copy->arena};

    for (size_t at = 0; at < ARRAY_SIZE(ends) && status == 0; at++) {
        bool is_device = lower_tier_of(server, ends[at]) == POOL_TIER_DEVICE;
        if (is_device && gpu_arena_is_damaged(server->device, ends[at]))
            status = -EIO; /* what was read of it, or is there now, is zeros */
    }
    copy_end_now(server, index, status);
}

void lower_ended(struct server *server, uint64_t cookie, int status)
{
    uint64_t body = cookie & ((UINT64_C(1) << TIER_COOKIE_SHIFT) - 1);

    switch (cookie >> TIER_COOKIE_SHIFT) {
    case TIER_COOKIE_GRANULE:
        granule_ended(server, (struct granule_ref){(uint32_t)(body >> 32), (uint32_t)body}, status);
        break;
    case TIER_COOKIE_COPY:
        lower_copy_ended(server, (uint32_t)body, status);
        break;
    case TIER_COOKIE_FOREIGN: {
        struct lower_granule granule = {.number = (uint32_t)body};
        tier_disk_left(server, &granule);
        break;
    }
    }
}

static int copy_hand_on(struct server *server, uint32_t index, const struct copy_end *from,
                        const struct copy_end *to)
{
    struct tiers *tiers = &server->tiers;
    const struct lower_copy *copy = &tiers->copies[index];
    uint64_t cookie = (uint64_t)TIER_COOKIE_COPY << TIER_COOKIE_SHIFT | index;

    if (from->tier == POOL_TIER_DISK)
        return disk_read(tiers->disk.disk, from->slot, to->memory,
                         (uint32_t)tiers->arenas[copy->from_arena].block_bytes, cookie);
    if (to->tier == POOL_TIER_DISK)
        return disk_write(tiers->disk.disk, to->slot, from->memory,
                          (uint32_t)tiers->arenas[copy->arena].block_bytes, copy->record,
                          copy->record_bytes, cookie);
    const struct gpu_copy moved = {
        .from = {from->tier == POOL_TIER_DEVICE ? copy->from_arena : GPU_NO_ARENA, copy->from_slot,
                 from->memory},
        .to = {to->tier == POOL_TIER_DEVICE ? copy->arena : GPU_NO_ARENA, copy->slot, to->memory}};
    return effects_copy_lower(server, &moved, index);
}

enum copy_answer { COPY_GONE, COPY_WAITS, COPY_ALL_WAIT };

static enum copy_answer copy_submit(struct server *server, uint32_t index, int which)
{
    const struct lower_copy *copy = &server->tiers.copies[index];
    struct copy_end from = {0}, to = {0};
    int ready = end_find(server, copy->from_arena, copy->from_slot, &from);

    if (ready > 0)
        ready = end_find(server, copy->arena, copy->slot, &to);
    int err = ready < 0 ? ready : -EAGAIN;
    if (ready > 0)
        err = copy_hand_on(server, index, &from, &to);
    if (err == 0)
        return COPY_GONE;
    bool is_slot_busy = err == -EBUSY && which == LOWER_STORE; /* quarantined: it may yet come */
    if (err > 0)
        return COPY_ALL_WAIT;
    if (err == -EAGAIN || is_slot_busy)
        return COPY_WAITS;
    copy_end_now(server, index, err);
    return COPY_GONE;
}

/* T3. Promotions wait as long as whoever asked for them, then twice as long as the disk may. */
static bool is_late(const struct server *server, uint32_t index, int which)
{
    uint64_t wait_ms = server->config->disk_deadline_ms * (which == LOWER_STORE ? 1 : 2);

    return server->now_ms - server->tiers.copies[index].since_ms > wait_ms;
}

static bool submit_copies(struct server *server, enum pool_tier tier, int which)
{
    struct tiers *tiers = &server->tiers;
    struct fifo *fifo = &tiers->queues[tier][which];
    uint64_t end = fifo->tail;
    bool any = false;

    while (fifo->head < end) {
        uint32_t index = tiers->queued[tier][which][fifo->head++ & fifo->mask];
        if (is_late(server, index, which)) {
            tiers->counters[tier].stores_late += which == LOWER_STORE;
            copy_end_now(server, index, -ETIMEDOUT);
            any = true;
            continue;
        }
        enum copy_answer answer = copy_submit(server, index, which);
        any |= answer == COPY_GONE;
        tiers->has_waiting |= answer != COPY_GONE;
        if (answer == COPY_ALL_WAIT) {
            fifo->head--;
            break;
        }
        if (answer == COPY_WAITS)
            queue_copy(tiers, tier, which, index);
    }
    return any;
}

bool lower_run(struct server *server)
{
    struct tiers *tiers = &server->tiers;
    bool any = false;

    if (tiers->host)
        any |= tier_host_reap(server);
    if (tiers->disk.disk)
        any |= tier_disk_reap(server);
    tiers->has_waiting = false;
    if (!fifo_is_empty(&tiers->granule_fifo))
        submit_granules(server);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        for (int which = 0; which < NUM_LOWER_QUEUES; which++) {
            if (!fifo_is_empty(&tiers->queues[tier][which]))
                any |= submit_copies(server, tier, which);
        }
    }
    server->has_more |= any;
    return any;
}

void lower_tick(struct server *server)
{
    if (server->tiers.disk.phase != TIER_DISK_NONE)
        tier_disk_tick(server);
}
