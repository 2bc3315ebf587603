/* offload/disk_plan.c - how a disk will be laid out, before it is opened. */
#include "offload/format.h"

#include <errno.h>

int disk_plan(const struct disk_options *options, struct disk_layout *out_layout)
{
    struct format_layout layout;
    uint64_t least;

    if (options->granule_bytes == 0 || options->granule_bytes % DISK_ALIGN != 0 ||
        options->min_block_bytes == 0 || options->min_block_bytes % DISK_ALIGN != 0 ||
        options->min_block_bytes > options->granule_bytes)
        return -EINVAL;
    uint64_t max_slots = options->granule_bytes / options->min_block_bytes;
    if (max_slots > DISK_MAX_SLOTS ||
        !format_layout_fit(&layout, options->granule_bytes, (uint32_t)max_slots, options->max_bytes,
                           &least))
        return -EINVAL;
    *out_layout = (struct disk_layout){.num_granules = layout.num_granules,
                                       .granule_bytes = layout.granule_bytes,
                                       .max_slots = layout.max_slots,
                                       .file_bytes = layout.file_bytes};
    return 0;
}
