/* offload/host.h - the host tier: pinned memory below a device, kept by a host device of gpu/.
 *
 * A thin layer: everything is done on host_tier_device() by the calls of gpu/gpu.h, but that its
 * arenas are opened here. Their memory is interleaved over NUMA nodes, and each granule is pinned
 * (mlock) by the thread that commits it, before its commit completes. What this machine does not
 * allow is one named fallback and costs nothing else. One thread, the owner, makes every call.
 */
#pragma once

#include "gpu/gpu.h"

struct host_tier;

struct host_tier_options {
    struct gpu_device_options device; /* budget, pages, arenas, operations, population; no hook */
    uint64_t chunk_bytes;             /* pinned in one call; 0: 64 MiB */
    bool without_pin, without_interleave; /* as if this machine did not allow it */
};

/* Errors as gpu_device_create(). */
int host_tier_create(const struct host_tier_options *options, struct host_tier **out_tier);

/* Waits for what is running, drops what is queued. Takes NULL. */
void host_tier_destroy(struct host_tier *tier);

/* The tier's own: its completions are reaped, its granules committed as any device's. */
struct gpu_device *host_tier_device(const struct host_tier *tier);

/* As gpu_arena_open(). */
int host_tier_arena_open(struct host_tier *tier, uint32_t arena,
                         const struct gpu_arena_options *options);

struct host_tier_stats {
    uint64_t pinned_bytes; /* now; once a pin was refused, at most */
    uint64_t pin_refusals; /* after the first nothing more is pinned */
    uint32_t num_nodes;    /* that memory is interleaved over; 1: it is not */
};

void host_tier_stats(const struct host_tier *tier, struct host_tier_stats *out_stats);

/* Those of the tier, then those of its device: answers how many, the first @max in @out. The texts
 * are the tier's. */
size_t host_tier_fallbacks(const struct host_tier *tier, struct gpu_fallback *out, size_t max);
