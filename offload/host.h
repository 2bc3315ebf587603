/* offload/host.h - the host tier: pinned memory below a device, kept by a host device of gpu/.
 *
 * A thin layer: arenas, exports, copies and scrubs are those of gpu/gpu.h, made on
 * host_tier_device(). What differs is how memory comes and goes: opening, closing, commit, decommit
 * and reap are made here, so that memory is interleaved over NUMA nodes before it comes and is
 * pinned (mlock), by a thread, before its commit completes. One thread, the owner, makes every
 * call. What this machine does not allow is a named fallback, once, and costs nothing else.
 */
#pragma once

#include "gpu/gpu.h"

struct host_tier;

struct host_tier_options {
    struct gpu_device_options device;     /* budget, pages, arenas, operations, population */
    uint64_t chunk_bytes;                 /* pinned in one call; 0: 64 MiB */
    bool without_pin, without_interleave; /* take the fallback, whatever this process may do */
};

/* Errors as gpu_device_create(). */
int host_tier_create(const struct host_tier_options *options, struct host_tier **out_tier);

/* Waits for what is running, drops what is queued. Takes NULL. */
void host_tier_destroy(struct host_tier *tier);

/* For gpu_arena_base(), gpu_arena_export(), gpu_copy(), gpu_scrub(), gpu_trim(),
 * gpu_device_memory() and gpu_device_check_excess(). Its completions come by host_tier_reap(). The
 * tier's own. */
struct gpu_device *host_tier_device(const struct host_tier *tier);

/* As gpu_device_event_fd(), and gpu_device_reap(): all completions of the tier's device, too. */
int host_tier_event_fd(const struct host_tier *tier);
size_t host_tier_reap(struct host_tier *tier, struct gpu_completion *out, size_t max);

/* As gpu_arena_open() and gpu_arena_close(). */
int host_tier_arena_open(struct host_tier *tier, uint32_t arena,
                         const struct gpu_arena_options *options);
int host_tier_arena_close(struct host_tier *tier, uint32_t arena, uint64_t cookie);

/*
 * As gpu_commit() and gpu_decommit(): the granule is pinned when its commit completes, or the
 * fallback has been entered. Also -EBUSY while a granule is being pinned.
 */
int host_tier_commit(struct host_tier *tier, uint32_t arena, uint32_t granule, uint64_t cookie);
int host_tier_decommit(struct host_tier *tier, uint32_t arena, uint32_t granule, uint64_t cookie);

struct host_tier_stats {
    uint64_t pinned_bytes;    /* now */
    uint64_t committed_bytes; /* granules that are committed: pinned or not */
    uint32_t num_nodes;       /* that memory is interleaved over; 1: it is not */
    uint64_t pin_failures;    /* calls refused; after the first nothing more is tried */
};

void host_tier_stats(const struct host_tier *tier, struct host_tier_stats *out_stats);

/* Of the tier and of its device. @out's texts are the tier's. */
size_t host_tier_fallbacks(const struct host_tier *tier, struct gpu_fallback *out, size_t max);
