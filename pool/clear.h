/* pool/clear.h - (internal) cleared blocks are swept in slices. */
#pragma once

#include "pool/internal.h"

/* Evicts up to @max_blocks blocks from before a clear, in eviction order; returns how many. */
uint32_t sweep_cleared(struct pool *pool, uint32_t max_blocks);
