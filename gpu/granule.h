/* gpu/granule.h - how blocks of one size are packed into pages. Pure arithmetic, also for pool/. */
#pragma once

#include <stdint.h>

enum {
    GPU_SLOT_ALIGN = 64,        /* every slot begins on a cache line */
    GPU_GRANULE_MAX_PAGES = 16, /* of a granule with several slots */
};

/* An arena gains and loses memory by granules: @pages * page bytes = @slots * @stride_bytes. */
struct gpu_granule {
    uint32_t pages;
    uint32_t slots;
    uint64_t stride_bytes;
    uint64_t padding_bytes; /* of each slot: its stride less its block */
};

/*
 * Chooses the granule with the least padding, and of equals the one with the fewest pages. A
 * block that 16 pages do not hold gets a granule of its own, of as few pages as hold it.
 *
 * -EINVAL: @page_bytes is no power of two of at least 4 KiB, or the block is empty or takes 2^32
 * pages or more.
 */
int gpu_choose_granule(uint64_t block_bytes, uint64_t page_bytes, struct gpu_granule *out_granule);
