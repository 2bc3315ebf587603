/* daemon/effects.c - granules gain and lose memory, blocks are copied, replies are passed on. */
#include "daemon/effects.h"

#include "daemon/server.h"
#include "offload/host.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What an operation of the device is, in its cookie. */
enum {
    COOKIE_GRANULE = 1,
    COOKIE_COPY = 2,
    COOKIE_ATTEND = 3,
    COOKIE_TRIM = 4,
    COOKIE_LOWER = 5, /* a copy with an end below the device */
    COOKIE_ADOPT = EFFECTS_COOKIE_ADOPT,
    COOKIE_SHIFT = EFFECTS_COOKIE_SHIFT,
    COOKIE_CLOSE = 7,
    AHEAD_GRANULES = 8
};

int effects_init(struct server *server, uint32_t max_transfers)
{
    struct effects *effects = &server->effects;
    const struct config *config = server->config;
    uint64_t pages = config->pool_bytes / config->page_bytes;
    /* Wanted, or on their way out; and what is ahead in each arena. */
    uint64_t granules = 2 * pages + AHEAD_GRANULES * config->max_arenas + 1024;

    effects->max_arenas = lower_max_arenas(config);
    effects->max_pages = (uint32_t)pages;
    effects->ahead_granules = AHEAD_GRANULES;
    effects->granule_fifo = fifo_of(granules);
    effects->commit_fifo = fifo_of(granules);
    effects->copy_fifo = fifo_of(max_transfers);
    effects->reply_fifo = fifo_of(config->max_sequences + config->max_waiters + config->max_steps);
    effects->arenas = calloc(effects->max_arenas, sizeof(*effects->arenas));
    effects->granule_work = calloc(effects->granule_fifo.mask + 1, sizeof(*effects->granule_work));
    effects->commits = calloc(effects->commit_fifo.mask + 1, sizeof(*effects->commits));
    effects->copies = calloc(effects->copy_fifo.mask + 1, sizeof(*effects->copies));
    effects->replies = calloc(effects->reply_fifo.mask + 1, sizeof(*effects->replies));
    effects->transfers = calloc(max_transfers, sizeof(*effects->transfers));
    if (!effects->arenas || !effects->granule_work || !effects->commits || !effects->copies ||
        !effects->replies || !effects->transfers)
        return -ENOMEM;
    return 0;
}

void effects_finish(struct server *server)
{
    struct effects *effects = &server->effects;

    for (uint32_t arena = 0; effects->arenas && arena < effects->max_arenas; arena++)
        free(effects->arenas[arena].granules);
    free(effects->arenas);
    free(effects->granule_work);
    free(effects->commits);
    free(effects->copies);
    free(effects->replies);
    free(effects->transfers);
}

/* ---- arenas --------------------------------------------------------------------------------- */

int effects_prepare_arena(struct server *server, uint32_t number)
{
    struct effects *effects = &server->effects;
    struct arena_memory *arena = &effects->arenas[number];
    struct pool_arena_description description;

    if (number >= effects->max_arenas || pool_arena_describe(server->pool, number, &description) ||
        description.tier != POOL_TIER_DEVICE)
        return -ENOENT;
    if (arena->granules)
        return 0;
    struct gpu_arena_options options;
    arena_options(server, &description, (uint64_t)effects->max_pages * server->config->page_bytes,
                  &options);
    /* once an arena, not on the request path of later ones */
    arena->granules = calloc(options.max_granules, sizeof(*arena->granules));
    if (!arena->granules)
        return -ENOMEM;
    arena->options = options;
    arena->max_granules = options.max_granules;
    arena->granule = options.granule;
    arena->block_bytes = options.block_bytes;
    arena->domain = description.domain;
    arena->model = description.model;
    arena->group = description.group;
    return 0;
}

int effects_open_arena(struct server *server, uint32_t number)
{
    int err = effects_prepare_arena(server, number);

    if (err)
        return err;
    struct arena_memory *arena = &server->effects.arenas[number];
    if (arena->is_open)
        return 0;
    err = server->pinned ? host_tier_arena_open(server->pinned, number, &arena->options)
                         : gpu_arena_open(server->device, number, &arena->options);
    if (err)
        return err;
    arena->is_open = true;
    survive_opened(server, number, server->device);
    return 0;
}

void *effects_address(struct server *server, uint32_t number, uint32_t slot)
{
    const struct arena_memory *arena = &server->effects.arenas[number];

    if (number >= server->effects.max_arenas || !arena->is_open || arena->is_closing || slot == 0)
        return NULL;
    uint32_t granule = (slot - 1) / arena->granule.slots;
    if (granule >= arena->max_granules || arena->granules[granule].memory != MEMORY_THERE)
        return NULL;
    return (char *)gpu_arena_base(server->device, number) +
           (uint64_t)(slot - 1) * arena->granule.stride_bytes;
}

/* ---- told by the pool ----------------------------------------------------------------------- */

static void queue_granule(struct effects *effects, uint32_t arena, uint32_t granule)
{
    struct granule_state *state = &effects->arenas[arena].granules[granule];

    if (state->is_queued)
        return;
    state->is_queued = true;
    effects->granule_work[fifo_push(&effects->granule_fifo)] = (struct granule_ref){arena, granule};
}

static bool commit_is_due(const struct effects *effects, const struct commit_effect *commit)
{
    const struct granule_state *state =
        &effects->arenas[commit->ref.arena].granules[commit->ref.granule];

    return state->is_wanted && state->number == commit->number &&
           (state->memory != MEMORY_THERE || state->must_leave);
}

/* Full only while a commit hangs and others come and go before it: those that are past go. */
static void commits_compact(struct effects *effects)
{
    struct fifo *fifo = &effects->commit_fifo;
    uint64_t kept = fifo->head;

    for (uint64_t at = fifo->head; at < fifo->tail; at++) {
        const struct commit_effect commit = effects->commits[at & fifo->mask];
        if (commit_is_due(effects, &commit))
            effects->commits[kept++ & fifo->mask] = commit;
    }
    fifo->tail = kept;
}

static void emit_commit(struct server *server, uint32_t number, uint32_t granule)
{
    struct effects *effects = &server->effects;
    struct arena_memory *arena = &effects->arenas[number];

    if (effects_open_arena(server, number)) {
        effects->counters.failed_commits++;
        return; /* no address: whatever touches it is answered with FAILED */
    }
    struct granule_state *state = &arena->granules[granule];
    arena->last_wanted = granule;
    effects->num_growing += !arena->is_growing;
    arena->is_growing = true;
    state->is_wanted = true;
    if (state->memory == MEMORY_THERE && !state->must_leave) {
        arena->num_ahead--;
        return;
    }
    if (effects->commit_fifo.tail - effects->commit_fifo.head > effects->commit_fifo.mask)
        commits_compact(effects);
    state->number = effects->next_commit++;
    effects->commits[fifo_push(&effects->commit_fifo)] =
        (struct commit_effect){{number, granule}, state->number};
    if (state->memory == MEMORY_COMING && !state->must_leave)
        arena->num_ahead--;
    else
        queue_granule(effects, number, granule);
}

static void emit_decommit(struct effects *effects, uint32_t number, uint32_t granule)
{
    struct arena_memory *arena = &effects->arenas[number];

    if (!arena->is_open)
        return;
    struct granule_state *state = &arena->granules[granule];
    state->is_wanted = false;
    state->must_leave = state->memory != MEMORY_NONE;
    queue_granule(effects, number, granule);
}

void effects_emit(void *context, const struct pool_effect *effect)
{
    struct server *server = context;
    struct effects *effects = &server->effects;

    if (server->tiers.is_on && lower_emit(server, effect))
        return;
    switch (effect->kind) {
    case POOL_EFFECT_COMMIT:
        emit_commit(server, effect->arena, effect->index);
        break;
    case POOL_EFFECT_DECOMMIT:
        emit_decommit(effects, effect->arena, effect->index);
        break;
    case POOL_EFFECT_COPY:
        effects->copies[fifo_push(&effects->copy_fifo)] = (struct copy_effect){
            .transfer = effect->transfer,
            .copy = {.from = {.arena = effect->from_arena, .slot = effect->from_slot},
                     .to = {.arena = effect->arena, .slot = effect->slot}}};
        break;
    case POOL_EFFECT_REPLY:
        effects->replies[fifo_push(&effects->reply_fifo)] =
            (struct reply_effect){effect->cookie, effect->answer};
        break;
    case POOL_EFFECT_STORED:
    case POOL_EFFECT_REMOVED:
        server_block_event(server, effect);
        break;
    case POOL_EFFECT_PRESENT:
    case POOL_EFFECT_GONE:
        survive_told(server, effect);
        break;
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint64_t granule_cookie(uint32_t arena, uint32_t granule)
{
    return (uint64_t)COOKIE_GRANULE << COOKIE_SHIFT | (uint64_t)arena << 32 | granule;
}

/* Takes memory away that is only ahead, so that a granule that is wanted gets it. */
static void give_up_ahead(struct server *server)
{
    struct effects *effects = &server->effects;

    for (uint32_t number = 0; number < effects->max_arenas; number++) {
        struct arena_memory *arena = &effects->arenas[number];
        for (uint32_t granule = 0; arena->num_ahead > 0 && granule < arena->max_granules;
             granule++) {
            struct granule_state *state = &arena->granules[granule];
            if (state->is_wanted || state->must_leave || state->memory != MEMORY_THERE)
                continue;
            state->must_leave = true;
            arena->num_ahead--;
            queue_granule(effects, number, granule);
            return;
        }
    }
}

/*
 * Its arena is damaged: it never gets memory, and nobody else waits for it. Whatever touches its
 * blocks is answered with FAILED.
 */
static void commit_give_up(struct effects *effects, struct granule_state *state)
{
    effects->counters.failed_commits++;
    state->number = UINT64_MAX;
}

/* Hands one granule to the device. Returns whether it is done with the queue for now. */
static bool granule_submit(struct server *server, struct granule_ref ref)
{
    struct effects *effects = &server->effects;
    struct granule_state *state = &effects->arenas[ref.arena].granules[ref.granule];
    uint64_t cookie = granule_cookie(ref.arena, ref.granule);
    int err;

    if (effects->arenas[ref.arena].is_closing)
        return true; /* it is gone through when the arena is there again */
    if (state->must_leave && state->memory == MEMORY_THERE) {
        err = gpu_decommit(server->device, ref.arena, ref.granule, cookie);
        if (err == 0) {
            state->memory = MEMORY_LEAVING;
            effects->counters.decommits++;
        }
    } else if (state->is_wanted && state->memory == MEMORY_NONE) {
        err = gpu_commit(server->device, ref.arena, ref.granule, cookie);
        if (err == 0) {
            state->memory = MEMORY_COMING;
            effects->counters.commits++;
        } else if (err == -EDQUOT) {
            effects->counters.waits_for_memory++;
        } else if (err < 0) {
            commit_give_up(effects, state);
            return true;
        }
    } else {
        return true; /* an operation on it is under way, or there is nothing to do any more */
    }
    effects->num_operations += err == 0;
    return err == 0;
}

static void submit_granules(struct server *server)
{
    struct effects *effects = &server->effects;
    uint64_t end = effects->granule_fifo.tail;
    uint64_t first_end = end;

    effects->is_short = false;
    while (effects->granule_fifo.head < end) {
        struct granule_ref ref =
            effects->granule_work[effects->granule_fifo.head++ & effects->granule_fifo.mask];
        effects->arenas[ref.arena].granules[ref.granule].is_queued = false;
        if (granule_submit(server, ref))
            continue;
        effects->is_short = true;
        bool is_first = effects->granule_fifo.head <= first_end;
        if (is_first)
            give_up_ahead(server);
        queue_granule(effects, ref.arena, ref.granule);
        end += is_first; /* what was given up is submitted in this pass, each only once */
    }
}

static void granule_end(struct server *server, uint64_t cookie, int status)
{
    struct effects *effects = &server->effects;
    uint32_t number = (uint32_t)(cookie >> 32) & 0xFFFFFFF, granule = (uint32_t)cookie;
    struct arena_memory *arena = &effects->arenas[number];
    struct granule_state *state = &arena->granules[granule];
    bool was_coming = state->memory == MEMORY_COMING;

    if (was_coming) {
        state->memory = status == 0 ? MEMORY_THERE : MEMORY_NONE;
        effects->counters.failed_commits += status != 0;
        if (status != 0 && !state->is_wanted && !state->must_leave)
            arena->num_ahead--;
        state->must_leave &= status == 0;
    } else {
        state->memory = status == 0 ? MEMORY_NONE : MEMORY_THERE;
        state->must_leave = status != 0;
    }
    if (status == 0 || !was_coming) /* a commit that failed waits for effects_retry() */
        queue_granule(effects, number, granule);
    else if (gpu_arena_is_damaged(server->device, number))
        commit_give_up(effects, state);
    else if (state->is_wanted)
        effects->is_short = true;
}

void effects_retry(struct server *server)
{
    struct effects *effects = &server->effects;

    for (uint64_t at = effects->commit_fifo.head; at < effects->commit_fifo.tail; at++) {
        struct granule_ref ref = effects->commits[at & effects->commit_fifo.mask].ref;
        queue_granule(effects, ref.arena, ref.granule);
    }
}

bool effects_passed(struct effects *effects, uint64_t mark)
{
    while (!fifo_is_empty(&effects->commit_fifo)) {
        const struct commit_effect *commit =
            &effects->commits[effects->commit_fifo.head & effects->commit_fifo.mask];
        if (commit_is_due(effects, commit))
            return commit->number >= mark;
        effects->commit_fifo.head++;
    }
    return true;
}

/* ---- anew ----------------------------------------------------------------------------------- */

int effects_close_arena(struct server *server, uint32_t number)
{
    struct effects *effects = &server->effects;
    int err =
        gpu_arena_close(server->device, number, (uint64_t)COOKIE_CLOSE << COOKIE_SHIFT | number);

    if (err)
        return err < 0 ? err : -EBUSY;
    effects->arenas[number].is_closing = true;
    survive_closed(server, number);
    effects->num_operations++;
    return 0;
}

/* It is closed: opened anew, empty, and what the pool wants of it is committed like before. */
static void close_end(struct server *server, uint32_t number, int status)
{
    struct effects *effects = &server->effects;
    struct arena_memory *arena = &effects->arenas[number];

    arena->is_closing = false;
    if (status) { /* it stays as it was, damaged: tried again */
        effects->num_damaged++;
        return;
    }
    arena->is_open = arena->is_reported = false;
    arena->num_ahead = 0;
    for (uint32_t granule = 0; granule < arena->max_granules; granule++) {
        struct granule_state *state = &arena->granules[granule];
        state->memory = MEMORY_NONE;
        state->must_leave = false;
        if (state->is_wanted)
            emit_commit(server, number, granule);
    }
}

/* ---- ahead ---------------------------------------------------------------------------------- */

/*
 * E4: in an arena that has granules in use, the next few indices (the pool takes the lowest) get
 * memory before they are asked for, while the budget has room.
 */
static void commit_ahead(struct server *server, uint32_t number)
{
    struct effects *effects = &server->effects;
    struct arena_memory *arena = &effects->arenas[number];

    for (uint32_t granule = arena->last_wanted;
         arena->num_ahead < effects->ahead_granules && granule < arena->max_granules; granule++) {
        struct granule_state *state = &arena->granules[granule];
        if (state->memory != MEMORY_NONE || state->is_wanted)
            continue;
        if (gpu_commit(server->device, number, granule, granule_cookie(number, granule)))
            return;
        state->memory = MEMORY_COMING;
        arena->num_ahead++;
        effects->num_operations++;
        effects->counters.commits_ahead++;
    }
}

static void commit_all_ahead(struct server *server)
{
    struct effects *effects = &server->effects;

    if (effects->is_short || !fifo_is_empty(&effects->granule_fifo))
        return;
    for (uint32_t number = 0; effects->num_growing > 0 && number < effects->max_arenas; number++) {
        if (!effects->arenas[number].is_growing || effects->arenas[number].is_closing)
            continue;
        effects->arenas[number].is_growing = false;
        effects->num_growing--;
        commit_ahead(server, number);
    }
}

/* ---- copies --------------------------------------------------------------------------------- */

/* 0: not yet; 1: go; -1: it never can. */
static int copy_may_go(struct server *server, const struct copy_effect *copy)
{
    const struct arena_memory *to = &server->effects.arenas[copy->copy.to.arena];

    if (!to->is_open || gpu_arena_is_damaged(server->device, copy->copy.to.arena) ||
        gpu_arena_is_damaged(server->device, copy->copy.from.arena))
        return -1;
    return effects_address(server, copy->copy.to.arena, copy->copy.to.slot) &&
           effects_address(server, copy->copy.from.arena, copy->copy.from.slot);
}

static void copy_end(struct server *server, pool_transfer transfer, int status)
{
    server->effects.counters.copies++;
    (void)pool_transfer_done(server->pool, transfer, status); /* not under way: counted there */
}

/* The pool's number is 64 bits wide: it is kept by its lower half, its record, until the end. */
static uint64_t copy_cookie(struct effects *effects, pool_transfer transfer)
{
    effects->transfers[(uint32_t)transfer] = transfer;
    return (uint64_t)COOKIE_COPY << COOKIE_SHIFT | (uint32_t)transfer;
}

static void submit_copies(struct server *server)
{
    struct effects *effects = &server->effects;
    uint64_t end = effects->copy_fifo.tail;

    while (effects->copy_fifo.head < end) {
        struct copy_effect copy =
            effects->copies[effects->copy_fifo.head++ & effects->copy_fifo.mask];
        int go = copy_may_go(server, &copy);
        int err = go < 0 ? -EIO : GPU_BUSY;
        if (go > 0)
            err = gpu_copy(server->device, &copy.copy, 1, copy_cookie(effects, copy.transfer));
        if (err == GPU_BUSY)
            effects->copies[fifo_push(&effects->copy_fifo)] = copy;
        else if (err)
            copy_end(server, copy.transfer, err);
        else
            effects->num_operations++;
    }
}

int effects_copy_lower(struct server *server, const struct gpu_copy *copy, uint32_t index)
{
    int err = gpu_copy(server->device, copy, 1, (uint64_t)COOKIE_LOWER << COOKIE_SHIFT | index);

    server->effects.num_operations += err == 0;
    return err;
}

void effects_trim(struct server *server, uint32_t arena)
{
    int err = gpu_trim(server->device, arena, (uint64_t)COOKIE_TRIM << COOKIE_SHIFT);

    server->effects.num_operations += err == 0; /* else it is tried again in a second */
}

uint64_t effects_attend_cookie(const struct call *call)
{
    return (uint64_t)COOKIE_ATTEND << COOKIE_SHIFT |
           waiting_cookie(&call->server->waitings, call->waiting);
}

/* It was queued, so its record waits for it, whatever became of its session. */
static void attend_end(struct server *server, uint64_t cookie, int status)
{
    uint64_t of_waiting = cookie & ((UINT64_C(1) << COOKIE_SHIFT) - 1);
    struct waiting *waiting = waiting_find(&server->waitings, of_waiting);

    assert(waiting && waiting->what == WAITING_ATTEND);
    steps_attended(server, waiting, status);
}

/* ---- the loop's part ------------------------------------------------------------------------ */

bool effects_reap(struct server *server)
{
    struct gpu_completion completions[64];
    size_t count, total = 0;

    while ((count = gpu_device_reap(server->device, completions, ARRAY_SIZE(completions))) > 0) {
        for (size_t i = 0; i < count; i++) {
            uint64_t cookie = completions[i].cookie;
            if (cookie >> COOKIE_SHIFT == COOKIE_ADOPT) {
                survive_reaped(server, POOL_TIER_DEVICE, cookie, completions[i].status);
                continue;
            }
            server->effects.num_operations--;
            if (cookie >> COOKIE_SHIFT == COOKIE_COPY)
                copy_end(server, server->effects.transfers[(uint32_t)cookie],
                         completions[i].status);
            else if (cookie >> COOKIE_SHIFT == COOKIE_ATTEND)
                attend_end(server, cookie, completions[i].status);
            else if (cookie >> COOKIE_SHIFT == COOKIE_CLOSE)
                close_end(server, (uint32_t)cookie, completions[i].status);
            else if (cookie >> COOKIE_SHIFT == COOKIE_GRANULE)
                granule_end(server, cookie, completions[i].status);
            else if (cookie >> COOKIE_SHIFT == COOKIE_LOWER)
                lower_copy_ended(server, (uint32_t)cookie, completions[i].status);
        }
        total += count;
    }
    server->has_more |= total > 0; /* what ended may be what a session's end waited for */
    return total > 0;
}

static bool pass_replies(struct server *server)
{
    struct effects *effects = &server->effects;
    bool any = !fifo_is_empty(&effects->reply_fifo);

    while (!fifo_is_empty(&effects->reply_fifo)) {
        struct reply_effect reply =
            effects->replies[effects->reply_fifo.head++ & effects->reply_fifo.mask];
        waiting_pool_reply(server, reply.cookie, reply.answer);
    }
    return any;
}

bool effects_run(struct server *server)
{
    struct effects *effects = &server->effects;
    bool any = false;

    if (effects->num_operations > 0)
        any = effects_reap(server);
    if (!fifo_is_empty(&effects->granule_fifo))
        submit_granules(server);
    if (!fifo_is_empty(&effects->copy_fifo))
        submit_copies(server);
    any |= pass_replies(server);
    if (effects->num_growing > 0)
        commit_all_ahead(server);
    return any;
}
