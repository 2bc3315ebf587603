/* pool/transfer.c - one block moving, from one slot to another. */
#include "pool/transfer.h"

#include "pool/demote.h"
#include "pool/grow.h"
#include "pool/place.h"
#include "pool/promote.h"
#include "pool/step.h"

static struct transfer *begin(struct pool *pool, uint32_t from, uint32_t to,
                              enum transfer_kind kind)
{
    uint32_t id = record_take(&pool->transfer_pool, LINKS(pool->transfers, link));

    assert(id != NONE);
    struct transfer *transfer = &pool->transfers[id];
    *transfer = (struct transfer){.generation = transfer->generation + 1,
                                  .from = from,
                                  .to = to,
                                  .kind = kind,
                                  .deadline_ms = UINT64_MAX,
                                  .sequence = NONE,
                                  .waiters = LIST_EMPTY,
                                  .is_used = true};
    place_pin(pool, from);
    place_incoming(pool, to, id);
    return transfer;
}

static struct pool_effect copy_effect(const struct pool *pool, const struct transfer *transfer)
{
    const struct slot *from = &pool->slots[transfer->from], *to = &pool->slots[transfer->to];

    return (struct pool_effect){
        .kind = POOL_EFFECT_COPY,
        .transfer = public_id(transfer->generation, (uint32_t)(transfer - pool->transfers)),
        .from_arena = granule_of_slot(pool, transfer->from)->arena,
        .from_slot = from->number,
        .arena = granule_of_slot(pool, transfer->to)->arena,
        .slot = to->number,
        .generation = to->generation};
}

void transfer_copy(struct pool *pool, uint32_t from, uint32_t to, uint32_t sequence)
{
    struct transfer *transfer = begin(pool, pool->blocks[from].slot[POOL_TIER_DEVICE],
                                      pool->blocks[to].slot[POOL_TIER_DEVICE], TRANSFER_COPY);
    uint64_t timeout_ms = pool->config.transfer_timeout_ms;

    transfer->sequence = sequence;
    pool->num_tail_copies++;
    if (timeout_ms)
        transfer->deadline_ms = pool->now_ms + timeout_ms;
    const struct pool_effect effect = copy_effect(pool, transfer);
    emit(pool, &effect);
}

void transfer_move(struct pool *pool, uint32_t from, uint32_t to, enum transfer_kind kind)
{
    uint32_t block = pool->slots[to].block;
    struct pool_effect effect = copy_effect(pool, begin(pool, from, to, kind));

    effect.key = &pool->blocks[block].key;
    effect.form = block_form(pool, block);
    effect.num_form = arena_form_words(pool, pool->blocks[block].arena);
    emit(pool, &effect);
}

void transfers_forget(struct pool *pool, uint32_t sequence)
{
    struct growth *growth = &pool->sequences[sequence].growth;

    for (uint32_t id = 0; growth->num_copies > 0; id++) {
        assert(id < pool->transfer_pool.num_touched);
        if (pool->transfers[id].is_used && pool->transfers[id].sequence == sequence) {
            pool->transfers[id].sequence = NONE;
            growth->num_copies--;
        }
    }
}

/* The last copy of an append ended, or its deadline passed. */
static void append_end(struct pool *pool, struct sequence *sequence, int answer)
{
    bool is_live = pool->sessions[sequence->session].state == SESSION_LIVE;

    sequence->is_growing = false;
    session_taking(pool, sequence->session);
    if (answer) {
        grow_undo(pool, sequence);
    } else {
        grow_commit(pool, sequence);
        sequence->num_complete = sequence->length;
    }
    session_taken(pool);
    if (is_live)
        emit_reply(pool, sequence->growth.cookie, answer);
}

/* What the sequence waited for has ended: it goes on, or its verb is undone. */
static void copies_ended(struct pool *pool, struct sequence *sequence, int answer)
{
    if (sequence->step == NONE)
        append_end(pool, sequence, answer);
    else
        step_copied(pool, sequence->step, answer);
}

void transfers_tick(struct pool *pool)
{
    uint32_t num_touched = pool->num_tail_copies > 0 ? pool->transfer_pool.num_touched : 0;

    for (uint32_t id = 0; id < num_touched; id++) {
        const struct transfer *transfer = &pool->transfers[id];
        if (!transfer->is_used || transfer->sequence == NONE ||
            pool->now_ms < transfer->deadline_ms)
            continue;
        struct sequence *sequence = &pool->sequences[transfer->sequence];
        sequence->growth.has_failed = true;
        copies_ended(pool, sequence,
                     POOL_TIMEOUT); /* forgets the transfers: they end on their own */
    }
}

static void copy_ended(struct pool *pool, const struct transfer *transfer, int error)
{
    pool->num_tail_copies--;
    pool->counters.copies += error == 0;
    pool->counters.failed_copies += error != 0;
    place_arrived(pool, transfer->to, error == 0);
    place_unpin(pool, transfer->from, false);
    if (transfer->sequence == NONE)
        return;

    struct sequence *sequence = &pool->sequences[transfer->sequence];
    sequence->growth.has_failed |= error != 0;
    if (--sequence->growth.num_copies == 0)
        copies_ended(pool, sequence, sequence->growth.has_failed ? POOL_FAILED : 0);
}

int pool_transfer_done(struct pool *pool, pool_transfer public, int error)
{
    uint32_t id = (uint32_t) public;

    if (id >= pool->transfer_pool.num_touched || !pool->transfers[id].is_used ||
        pool->transfers[id].generation != public >> 32) {
        pool->counters.stale_completions++;
        return POOL_NOT_FOUND;
    }

    const struct transfer transfer = pool->transfers[id];
    pool->transfers[id].is_used = false;
    record_give(&pool->transfer_pool, LINKS(pool->transfers, link), id);
    if (transfer.kind == TRANSFER_PROMOTE)
        promote_ended(pool, &transfer, error);
    else if (transfer.kind == TRANSFER_DEMOTE)
        demote_ended(pool, &transfer, error);
    else
        copy_ended(pool, &transfer, error);
    return 0;
}
