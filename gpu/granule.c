/* gpu/granule.c - the least padding that a whole number of slots in a whole number of pages needs.
 *
 * The stride g * page / k has to be a multiple of 64, so k divides g * page / 64. The page is a
 * power of two, so every such k is an odd divisor of g times a power of two: few to try.
 */
#include "gpu/granule.h"

#include <errno.h>
#include <stdbool.h>

/* The largest k, of form odd * 2^n and dividing @lines, whose stride still holds the block. */
static uint64_t most_slots(uint64_t lines, uint64_t odd, uint64_t block_lines)
{
    uint64_t slots = odd;

    if (slots > lines / block_lines)
        return 0;
    while (slots * 2 <= lines / block_lines && lines % (slots * 2) == 0)
        slots *= 2;
    return slots;
}

static struct gpu_granule granule_of(uint64_t pages, uint64_t page_bytes, uint64_t slots,
                                     uint64_t block_bytes)
{
    uint64_t stride_bytes = pages * page_bytes / slots;

    return (struct gpu_granule){.pages = (uint32_t)pages,
                                .slots = (uint32_t)slots,
                                .stride_bytes = stride_bytes,
                                .padding_bytes = stride_bytes - block_bytes};
}

int gpu_choose_granule(uint64_t block_bytes, uint64_t page_bytes, struct gpu_granule *out_granule)
{
    if (page_bytes < 4096 || (page_bytes & (page_bytes - 1)) != 0 || page_bytes > UINT32_MAX)
        return -EINVAL;
    if (block_bytes == 0 || block_bytes / page_bytes >= UINT32_MAX)
        return -EINVAL;

    uint64_t block_lines = (block_bytes + GPU_SLOT_ALIGN - 1) / GPU_SLOT_ALIGN;
    uint64_t whole_pages = (block_bytes + page_bytes - 1) / page_bytes;
    struct gpu_granule best = granule_of(whole_pages, page_bytes, 1, block_bytes);
    bool is_several = false; /* @best came from the search below */

    for (uint64_t pages = 1; pages <= GPU_GRANULE_MAX_PAGES; pages++) {
        uint64_t lines = pages * (page_bytes / GPU_SLOT_ALIGN);

        for (uint64_t odd = 1; odd <= pages; odd += 2) {
            uint64_t slots = pages % odd == 0 ? most_slots(lines, odd, block_lines) : 0;
            if (slots == 0)
                continue;
            struct gpu_granule granule = granule_of(pages, page_bytes, slots, block_bytes);
            if (!is_several || granule.padding_bytes < best.padding_bytes)
                best = granule;
            is_several = true;
        }
    }
    *out_granule = best;
    return 0;
}
