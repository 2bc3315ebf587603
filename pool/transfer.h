/*
 * pool/transfer.h - (internal) one block moving, from one slot to another.
 *
 * While it is under way its source is neither evicted, reused nor written (it stays where it is in
 * the order and is skipped), and its destination is reserved: let go of earlier, it is quarantined
 * until the transfer ends. Only a completed transfer makes the destination present.
 */
#pragma once

#include "pool/internal.h"

/* Begins a copy of block @from into block @to, for which @sequence waits. A record is left. */
void transfer_copy(struct pool *pool, uint32_t from, uint32_t to, uint32_t sequence);
/*
 * Begins a copy of a block from one of its places to another, which it has a slot for already. A
 * record is left. See demote.c and promote.c for what follows from its end.
 */
void transfer_move(struct pool *pool, uint32_t from_slot, uint32_t to_slot,
                   enum transfer_kind kind);
/* Ends the waiting of verbs whose copies are beyond their deadline. */
void transfers_tick(struct pool *pool);
/* @sequence does not wait for its transfers any more. */
void transfers_forget(struct pool *pool, uint32_t sequence);
