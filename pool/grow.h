/*
 * pool/grow.h - (internal) sequences gain tokens: copy-on-write of their tails, new slots.
 *
 * A tail that others can see (another table has it, it is published, or it is the shared domain's)
 * is replaced by a copy in the sequence's own arena before it is written. Where the copies cannot
 * be had, a published tail of its own that nobody else holds loses its key and is written in place.
 */
#pragma once

#include "pool/sequence.h"

struct grow_row {
    uint32_t sequence;
    struct pool_tokens tokens; /* count 0: nothing to append */
};

/* Appends the tokens of all rows, or nothing. growth.num_copies says which wait for copies. */
int grow_begin(struct pool *pool, const struct grow_row *rows, uint32_t num_rows);
/* The copies of the sequence are there: the old tails are let go of. */
void grow_commit(struct pool *pool, struct sequence *sequence);
/* Takes the tokens away again; tails that were being copied are what they were. */
void grow_undo(struct pool *pool, struct sequence *sequence);
/* Nobody waits for its copies any more: old tails are let go of, transfers end on their own. */
void grow_forget(struct pool *pool, struct sequence *sequence);
