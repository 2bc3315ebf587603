/* pool/promote.c - blocks come up to the device, and sequences wait for them. */
#include "pool/promote.h"

#include "pool/allocate.h"
#include "pool/place.h"
#include "pool/plan.h"
#include "pool/transfer.h"

static struct links promoting_links(const struct pool *pool)
{
    return LINKS(pool->sequences, promotion.link);
}
static struct links waiter_links(const struct pool *pool)
{
    return LINKS(pool->sequences, promotion.in_transfer);
}

/* ---- one copy ------------------------------------------------------------------------------- */

/* The nearest place below the device that may be read, or NONE. */
static uint32_t source_of(const struct pool *pool, const struct block *block)
{
    uint32_t below = block->present & ~(unsigned)DEVICE_BIT & pool->found_tiers;

    return below == 0 ? NONE : block->slot[__builtin_ctz(below)];
}

/* Begins to copy the block into its slot of the device. Returns the transfer. */
static uint32_t begin_copy(struct pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];
    uint32_t from = source_of(pool, block), to = block->slot[POOL_TIER_DEVICE];

    assert(from != NONE && to != NONE);
    transfer_move(pool, from, to, TRANSFER_PROMOTE);
    pool->tiers[slot_tier(pool, from)].promotions_started++;
    return pool->slots[to].link.next;
}

void promote_copy(struct pool *pool, uint32_t block)
{
    (void)begin_copy(pool, block);
}

/* ---- sequences that wait -------------------------------------------------------------------- */

static void stop_waiting(struct pool *pool, struct sequence *sequence)
{
    struct promotion *promotion = &sequence->promotion;
    uint32_t id = sequence_id(pool, sequence);

    promotion->is_waiting = false;
    list_remove(&pool->promoting, promoting_links(pool), id);
    if (promotion->transfer != NONE)
        list_remove(&pool->transfers[promotion->transfer].waiters, waiter_links(pool), id);
    promotion->transfer = NONE;
}

/* As if the verb had not been called, but that what comes up is cached. */
static void undo(struct pool *pool, struct sequence *sequence, int answer)
{
    uint64_t cookie = sequence->promotion.cookie;
    uint32_t id = sequence_id(pool, sequence);

    stop_waiting(pool, sequence);
    pool->counters.promotion_retries += answer == POOL_RETRY;
    pool->counters.promotion_timeouts += answer == POOL_TIMEOUT;
    if (sequence->promotion.is_resume) {
        sequence_preempt(pool, id);
    } else {
        sequence_let_go(pool, id);
        sequence_destroy(pool, id);
    }
    emit_reply(pool, cookie, answer);
}

static void grant(struct pool *pool, struct sequence *sequence)
{
    stop_waiting(pool, sequence);
    if (sequence->promotion.is_resume)
        resume_end(pool, sequence);
    allocation_count(pool, sequence);
    emit_reply(pool, sequence->promotion.cookie, 0);
}

/* The last block up to the promotion's num_positions that is not present, or NONE. */
static uint32_t last_not_present(struct pool *pool, struct sequence *sequence)
{
    uint32_t num_groups = num_groups_of(pool, sequence);
    struct promotion *promotion = &sequence->promotion;

    (void)table_path(pool, sequence, 0);
    for (; promotion->num_positions > 0; promotion->num_positions--) {
        const struct entry *entries = table_at(pool, sequence, 0, promotion->num_positions - 1);
        for (uint32_t group = num_groups; group-- > 0;) {
            if (entries[group].block != NONE &&
                !(pool->blocks[entries[group].block].present & DEVICE_BIT))
                return entries[group].block;
        }
    }
    return NONE;
}

/* Waits for the next transfer; or the sequence has what it waits for, or will not get it. */
static void wait_on(struct pool *pool, struct sequence *sequence)
{
    uint32_t block = last_not_present(pool, sequence);

    if (block == NONE) {
        grant(pool, sequence);
    } else if (pool->blocks[block].incoming & DEVICE_BIT) {
        uint32_t transfer = block_slot(pool, &pool->blocks[block])->link.next;
        sequence->promotion.transfer = transfer;
        list_push_tail(&pool->transfers[transfer].waiters, waiter_links(pool),
                       sequence_id(pool, sequence));
    } else {
        undo(pool, sequence, POOL_RETRY); /* its copies failed */
    }
}

void promote_begin(struct pool *pool, struct sequence *sequence)
{
    struct promotion *promotion = &sequence->promotion;
    uint32_t num_groups = num_groups_of(pool, sequence);

    (void)table_path(pool, sequence, 0);
    for (uint32_t at = 0; at < promotion->num_positions; at++) {
        for (uint32_t group = 0; group < num_groups; group++) {
            uint32_t block = table_at(pool, sequence, 0, at)[group].block;
            if (block != NONE &&
                !((pool->blocks[block].present | pool->blocks[block].incoming) & DEVICE_BIT))
                promote_copy(pool, block);
        }
    }
    promotion->is_waiting = true;
    promotion->transfer = NONE;
    list_push_tail(&pool->promoting, promoting_links(pool), sequence_id(pool, sequence));
    pool->counters.promotion_waits++;
    wait_on(pool, sequence);
}

/* ---- a copy ends ---------------------------------------------------------------------------- */

/* Those that waited for it go on. */
static void wake(struct pool *pool, struct list waiters)
{
    uint32_t next;

    for (uint32_t id = waiters.head; id != NONE; id = next) {
        next = pool->sequences[id].promotion.in_transfer.next;
        pool->sequences[id].promotion.transfer = NONE;
        wait_on(pool, &pool->sequences[id]);
    }
}

/* The place is not trusted any more. */
static void drop_source(struct pool *pool, uint32_t slot)
{
    if (pool->slots[slot].state == SLOT_TAKEN)
        place_drop(pool, slot);
}

/* The block, still there, comes from another tier; or it is lost. Who waits goes on waiting. */
static void try_next(struct pool *pool, uint32_t id, struct list waiters)
{
    struct block *block = &pool->blocks[id];

    if (source_of(pool, block) != NONE && block_is_published(pool, block)) {
        uint32_t transfer = begin_copy(pool, id);
        pool->transfers[transfer].waiters = waiters;
        for (uint32_t at = waiters.head; at != NONE;
             at = pool->sequences[at].promotion.in_transfer.next)
            pool->sequences[at].promotion.transfer = transfer;
        return;
    }
    if (block->holds == 0)
        place_drop(pool, block->slot[POOL_TIER_DEVICE]);
    else if (block->state == BLOCK_PUBLISHED)
        block_unpublish(pool, id);
    wake(pool, waiters);
}

void promote_ended(struct pool *pool, const struct transfer *transfer, int error)
{
    uint32_t from = transfer->from, to = transfer->to;
    uint32_t block = pool->slots[to].state == SLOT_TAKEN ? pool->slots[to].block : NONE;
    struct tier *tier = &pool->tiers[slot_tier(pool, from)];

    tier->promotions_done += error == 0;
    tier->promotions_failed += error != 0;
    place_arrived(pool, to, error == 0);
    place_unpin(pool, from, error == 0);
    if (error)
        drop_source(pool, from);
    /* Dropping its last place ends a block that nobody holds. */
    bool is_lost = error && block != NONE && pool->slots[to].state == SLOT_TAKEN &&
                   pool->slots[to].block == block;
    if (is_lost)
        try_next(pool, block, transfer->waiters);
    else
        wake(pool, transfer->waiters);
}

/* ---- waiting ends otherwise ----------------------------------------------------------------- */

void promote_tick(struct pool *pool)
{
    uint32_t next;

    for (uint32_t id = pool->promoting.head; id != NONE; id = next) {
        struct sequence *sequence = &pool->sequences[id];
        next = sequence->promotion.link.next;
        if (sequence->promotion.deadline_ms != 0 && pool->now_ms >= sequence->promotion.deadline_ms)
            undo(pool, sequence, POOL_TIMEOUT);
    }
}

void promote_recheck(struct pool *pool)
{
    uint32_t next;

    for (uint32_t id = pool->promoting.head; id != NONE; id = next) {
        next = pool->sequences[id].promotion.link.next;
        if (sequence_is_stale(pool, &pool->sequences[id]))
            undo(pool, &pool->sequences[id], POOL_RETRY);
    }
}

void promote_drop(struct pool *pool, pool_session session)
{
    uint32_t next;

    for (uint32_t id = pool->promoting.head; id != NONE; id = next) {
        next = pool->sequences[id].promotion.link.next;
        if (pool->sequences[id].session == session)
            stop_waiting(pool, &pool->sequences[id]);
    }
}

int promote_cancel(struct pool *pool, pool_session session, uint64_t cookie)
{
    for (uint32_t id = pool->promoting.head; id != NONE;
         id = pool->sequences[id].promotion.link.next) {
        struct sequence *sequence = &pool->sequences[id];
        if (sequence->session == session && sequence->promotion.cookie == cookie) {
            undo(pool, sequence, POOL_MISS);
            return 0;
        }
    }
    return POOL_NOT_FOUND;
}
