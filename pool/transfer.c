/* pool/transfer.c - one block moving, from one slot to another. */
#include "pool/transfer.h"

#include "pool/block.h"
#include "pool/grow.h"
#include "pool/step.h"

void transfer_begin(struct pool *pool, uint32_t from, uint32_t to, uint32_t sequence)
{
    uint32_t id = record_take(&pool->transfer_pool, LINKS(pool->transfers, link));

    assert(id != NONE);
    pool->transfers[id] =
        (struct transfer){.from = from, .to = to, .sequence = sequence, .is_used = true};
    block_pin(pool, from);
    pool->blocks[to].place_state = PLACE_INCOMING;
    emit(pool, &(struct pool_effect){.kind = POOL_EFFECT_COPY,
                                     .transfer = id,
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

/* The last copy of an append ended. */
static void append_end(struct pool *pool, struct sequence *sequence)
{
    bool has_failed = sequence->growth.has_failed;
    bool is_live = pool->sessions[sequence->session].state == SESSION_LIVE;

    sequence->is_growing = false;
    session_taking(pool, sequence->session);
    if (has_failed) {
        grow_undo(pool, sequence);
    } else {
        grow_commit(pool, sequence);
        sequence->num_complete = sequence->length;
    }
    session_taken(pool);
    if (is_live)
        emit_reply(pool, sequence->growth.cookie, has_failed ? POOL_FAILED : 0);
}

int pool_transfer_done(struct pool *pool, pool_transfer id, int error)
{
    if (id >= pool->transfer_pool.num_touched || !pool->transfers[id].is_used) {
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
    if (--sequence->growth.num_copies > 0)
        return 0;
    if (sequence->step == POOL_NONE)
        append_end(pool, sequence);
    else
        step_copied(pool, sequence->step);
    return 0;
}
