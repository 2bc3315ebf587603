/* pool/demote.h - (internal) copies of blocks are made below, ahead of their eviction. */
#pragma once

#include "pool/internal.h"

/* An evictable slot is evicted now: counts why, if it should have had a copy below and has none. */
void count_skipped(struct pool *pool, uint32_t slot);

/* Begins up to @max_blocks copies, ahead of evictions; returns how many blocks it looked at. */
uint32_t demote_ahead(struct pool *pool, uint32_t max_blocks);
/* Begins to store a published block of the device now, if it is to be and may be. */
void demote_now(struct pool *pool, uint32_t block);
/* A copy to a tier below ended. */
void demote_ended(struct pool *pool, const struct transfer *transfer, int error);
/* Time went on: so much more may be stored. */
void demote_tick(struct pool *pool, uint64_t passed_ms);
