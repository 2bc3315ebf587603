/* pool/arriving.c - single flight: one fill of a prefix, not many. */
#include "pool/arriving.h"

#include "pool/arena.h"
#include "pool/block.h"
#include "pool/demote.h"
#include "pool/promote.h"
#include "pool/sequence.h"
#include "pool/transfer.h"

enum { TICK_BLOCKS = 256 }; /* looked at by one tick, to copy them ahead of their eviction */

/* The sequence that fills @position of @prompt, or NONE. */
static uint32_t filler_at(const struct pool *pool, const struct pool_prompt *prompt,
                          uint32_t position)
{
    uint32_t shelf = shelf_find(pool, prompt->domain, prompt->model);

    if (shelf == NONE)
        return NONE;
    return block_find_promise(pool, pool->shelves[shelf].first_arena,
                              &prompt->tokens.keys[position]);
}

uint64_t arriving_count(const struct pool *pool, const struct pool_prompt *prompt,
                        const struct match *match)
{
    uint32_t position = match->num_positions;

    while (position < match->num_bound && filler_at(pool, prompt, position) != NONE)
        position++;
    return position - match->num_positions;
}

void arriving_promise(struct pool *pool, struct sequence *sequence, uint64_t length)
{
    uint64_t block_tokens = pool->models[sequence->model].shape.block_tokens;
    uint32_t end = (uint32_t)(length / block_tokens);

    uint32_t first = sequence->considered;

    if (first >= end)
        return;
    (void)table_path(pool, sequence, first);
    tokens_path(pool, sequence, first);
    for (uint32_t at = first; at < end; at++)
        block_promise(pool, table_at(pool, sequence, first, at)[0].block,
                      tokens_key_at(pool, sequence, first, at), sequence_id(pool, sequence));
    sequence->num_promised = end;
}

/* ---- waiters -------------------------------------------------------------------------------- */

static struct links waiter_links(const struct pool *pool)
{
    return LINKS(pool->waiters, link);
}

static void waiter_remove(struct pool *pool, uint32_t id)
{
    struct waiter *waiter = &pool->waiters[id];

    pool->sequences[waiter->filler].num_waiters--;
    waiter->is_used = false;
    list_remove(&pool->waiting, waiter_links(pool), id);
    record_give(&pool->waiter_pool, waiter_links(pool), id);
}

static void waiter_resolve(struct pool *pool, uint32_t id, int answer)
{
    struct counters *counters = &pool->counters;
    uint64_t cookie = pool->waiters[id].cookie;

    counters->arriving_hits += answer == 0;
    counters->arriving_misses += answer == POOL_MISS;
    counters->arriving_timeouts += answer == POOL_TIMEOUT;
    waiter_remove(pool, id);
    emit_reply(pool, cookie, answer);
}

/* The last position behind the match that one and the same sequence fills. */
static uint32_t run_end(const struct pool *pool, const struct pool_prompt *prompt,
                        const struct match *match, uint32_t filler)
{
    uint32_t position = match->num_positions;

    while (position + 1 < match->num_bound && filler_at(pool, prompt, position + 1) == filler)
        position++;
    return position;
}

int pool_wait_arriving(struct pool *pool, pool_session session, const struct pool_prompt *prompt,
                       uint64_t deadline_ms, uint64_t cookie)
{
    struct pool_found found;
    struct match match;
    int answer = pool_match(pool, prompt, &found);

    if (answer)
        return answer;
    if (session >= pool->config.max_sessions || pool->sessions[session].state != SESSION_LIVE)
        return POOL_NOT_FOUND;
    if (found.arriving == 0)
        return POOL_MISS;
    match =
        (struct match){.num_positions = (uint32_t)(found.matched /
                                                   pool->models[prompt->model].shape.block_tokens)};
    match.num_bound = match.num_positions +
                      (uint32_t)(found.arriving / pool->models[prompt->model].shape.block_tokens);
    uint32_t filler = filler_at(pool, prompt, match.num_positions);
    uint32_t id = record_take(&pool->waiter_pool, waiter_links(pool));
    if (id == NONE)
        return POOL_LIMIT;
    pool->waiters[id] = (struct waiter){.filler = filler,
                                        .position = run_end(pool, prompt, &match, filler),
                                        .session = session,
                                        .deadline_ms = deadline_ms,
                                        .cookie = cookie,
                                        .is_used = true};
    list_push_tail(&pool->waiting, waiter_links(pool), id);
    pool->sequences[filler].num_waiters++;
    pool->counters.arriving_waits++;
    return POOL_PENDING;
}

/* Calls @resolve for each waiter; it says how the waiter ends, or POOL_PENDING. */
static void for_each_waiter(struct pool *pool,
                            int (*resolve)(const struct pool *pool, const struct waiter *waiter,
                                           uint64_t argument),
                            uint64_t argument)
{
    uint32_t next;

    for (uint32_t id = pool->waiting.head; id != NONE; id = next) {
        next = pool->waiters[id].link.next;
        int answer = resolve(pool, &pool->waiters[id], argument);
        if (answer != POOL_PENDING)
            waiter_resolve(pool, id, answer);
    }
}

static int when_published(const struct pool *pool, const struct waiter *waiter, uint64_t filler)
{
    if (waiter->filler != filler)
        return POOL_PENDING;
    if (sequence_is_stale(pool, &pool->sequences[filler]))
        return POOL_MISS; /* it publishes nothing any more */
    return waiter->position < pool->sequences[filler].considered ? 0 : POOL_PENDING;
}

/* @filler_from: the filler, and above it the first position that it goes without. */
static int when_withdrawn(const struct pool *pool, const struct waiter *waiter,
                          uint64_t filler_from)
{
    (void)pool;
    if (waiter->filler != (uint32_t)filler_from)
        return POOL_PENDING;
    return waiter->position >= filler_from >> 32 ? POOL_MISS : POOL_PENDING;
}

static int when_stale(const struct pool *pool, const struct waiter *waiter, uint64_t unused)
{
    const struct sequence *filler = &pool->sequences[waiter->filler];

    (void)unused;
    if (pool->sessions[filler->session].state != SESSION_LIVE || sequence_is_stale(pool, filler))
        return POOL_MISS;
    return POOL_PENDING;
}

static int when_late(const struct pool *pool, const struct waiter *waiter, uint64_t now_ms)
{
    (void)pool;
    return now_ms >= waiter->deadline_ms ? POOL_TIMEOUT : POOL_PENDING;
}

void arriving_published(struct pool *pool, struct sequence *sequence)
{
    if (sequence->num_waiters > 0)
        for_each_waiter(pool, when_published, sequence_id(pool, sequence));
}

void arriving_withdraw(struct pool *pool, struct sequence *sequence, uint32_t from)
{
    uint32_t id = sequence_id(pool, sequence);
    uint32_t end = sequence->num_promised < sequence->num_positions ? sequence->num_promised
                                                                    : sequence->num_positions;

    if (from < end) {
        (void)table_path(pool, sequence, from);
        for (uint32_t at = from; at < end; at++) {
            uint32_t block = table_at(pool, sequence, from, at)[0].block;
            if (block != NONE && pool->blocks[block].is_promised &&
                pool->blocks[block].filler == id)
                block_unpromise(pool, block);
        }
        sequence->num_promised = from;
    }
    if (sequence->num_waiters > 0)
        for_each_waiter(pool, when_withdrawn, (uint64_t)from << 32 | id);
}

void arriving_recheck(struct pool *pool)
{
    for_each_waiter(pool, when_stale, 0);
}

void arriving_drop(struct pool *pool, pool_session session)
{
    uint32_t next;

    for (uint32_t id = pool->waiting.head; id != NONE; id = next) {
        next = pool->waiters[id].link.next;
        if (pool->waiters[id].session == session)
            waiter_remove(pool, id);
    }
}

int pool_cancel(struct pool *pool, pool_session session, uint64_t cookie)
{
    for (uint32_t id = pool->waiting.head; id != NONE; id = pool->waiters[id].link.next) {
        if (pool->waiters[id].session == session && pool->waiters[id].cookie == cookie) {
            waiter_resolve(pool, id, POOL_MISS);
            return 0;
        }
    }
    return promote_cancel(pool, session, cookie);
}

void pool_tick(struct pool *pool, uint64_t now_ms)
{
    if (now_ms > pool->now_ms)
        demote_tick(pool, now_ms - pool->now_ms);
    pool->now_ms = now_ms;
    for_each_waiter(pool, when_late, now_ms);
    transfers_tick(pool);
    promote_tick(pool);
    ages_tick(&pool->ages, pool->stamp, pool->stamp == COLD_STAMPS, now_ms);
    (void)demote_ahead(pool, TICK_BLOCKS);
}
