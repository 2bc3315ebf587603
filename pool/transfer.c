/* pool/transfer.c - one block moving, from one slot to another. */
#include "pool/transfer.h"

#include "pool/block.h"
#include "pool/grow.h"
#include "pool/step.h"

void transfer_begin(struct pool *pool, uint32_t from, uint32_t to, uint32_t sequence)
{
    uint32_t id = record_take(&pool->transfer_pool, LINKS(pool->transfers, link));

    assert(id != NONE);
    struct transfer *transfer = &pool->transfers[id];
    uint64_t timeout_ms = pool->config.transfer_timeout_ms;
    *transfer =
        (struct transfer){.generation = transfer->generation + 1,
                          .from = from,
                          .to = to,
                          .deadline_ms = timeout_ms ? pool->now_ms + timeout_ms : UINT64_MAX,
                          .sequence = sequence,
                          .is_used = true};
    block_pin(pool, from);
    pool->blocks[to].place_state = PLACE_INCOMING;
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_COPY,
                                     .transfer = public_id(transfer->generation, id),
                                     .from_arena = pool->blocks[from].arena,
                                     .from_slot = block_slot(pool, &pool->blocks[from])->number,
                                     .arena = pool->blocks[to].arena,
                                     .slot = block_slot(pool, &pool->blocks[to])->number});
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
    for (uint32_t id = 0; id < pool->transfer_pool.num_touched; id++) {
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
    pool->counters.copies += error == 0;
    pool->counters.failed_copies += error != 0;
    block_arrived(pool, transfer.to, error == 0);
    block_unpin(pool, transfer.from);
    if (transfer.sequence == NONE)
        return 0;

    struct sequence *sequence = &pool->sequences[transfer.sequence];
    sequence->growth.has_failed |= error != 0;
    if (--sequence->growth.num_copies == 0)
        copies_ended(pool, sequence, sequence->growth.has_failed ? POOL_FAILED : 0);
    return 0;
}
