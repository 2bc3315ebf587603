/* gpu/host/memory.h - internal: gives files memory and takes it back, on the memory lane. */
#pragma once

#include "gpu/host/lane.h"
#include "gpu/host/mount.h"

#include <stdatomic.h>

/*
 * The reserve is a file of the same mount that holds what no granule has: memory is taken from
 * the machine once, at start, and then moves between the reserve and the granules.
 *
 *  M1  reserve_bytes + committed_bytes <= budget_bytes, physically too: the reserve shrinks before
 *      a granule grows.
 *  M2  reserve_bytes is never less than what the file has: raised before it grows, lowered after
 *      it shrank.
 *
 * All of it belongs to the memory lane, except that the owner reads the atomics.
 */
struct host_memory {
    const struct host_syscalls *system;
    struct host_fallbacks *fallbacks;
    const struct gpu_memory_hook *hook; /* or NULL */
    uint64_t budget_bytes, page_bytes, populate_bytes;
    struct host_file reserve;         /* there only if populate_bytes is not 0 */
    _Atomic uint64_t reserve_bytes;   /* its first bytes have memory */
    _Atomic uint64_t committed_bytes; /* of granules, as the lane has done it */
    _Atomic int populate_status;
    bool is_touched; /* the machine has backed all of populate_bytes once */
};

int host_memory_init(struct host_memory *memory, const struct host_mount *mount,
                     const struct gpu_device_options *options, struct host_fallbacks *fallbacks);
void host_memory_finish(struct host_memory *memory);

/* For struct host_lane: carries out all kinds but OP_COPY, and populates in slices. */
void host_memory_run(void *memory, struct host_op *op);
bool host_memory_populate(void *memory);
