/* gpu/host/device.h - internal: what the files of the host device share. */
#pragma once

#include "gpu/host/block_copy.h"
#include "gpu/host/guard.h"
#include "gpu/host/memory.h"

/* Of one granule. It is charged in all states but the first. */
enum granule_state {
    GRANULE_HOLE,         /* no memory, unless a tenant touched it */
    GRANULE_COMMITTING,   /* an operation is queued or running */
    GRANULE_COMMITTED,    /* its slots may be used */
    GRANULE_DECOMMITTING, /* an operation is queued or running */
    GRANULE_LEFT,         /* taking its memory away failed: it may have some */
};

struct host_arena {
    bool is_open, is_closing;
    struct host_file file;
    char *base; /* of the mapping of the whole file: slot 1 */
    uint64_t bytes, granule_bytes, charged_bytes;
    struct gpu_arena_options options;
    uint8_t *granules; /* enum granule_state of each */
    uint32_t num_ops;  /* that name it, not yet reaped */
};

struct gpu_device {
    const struct host_syscalls *system;
    struct gpu_device_options options;
    struct host_fallbacks fallbacks;
    struct host_mount mount;
    struct host_memory memory; /* of the memory lane */
    const struct block_copier *copier;
    uint64_t charged_bytes; /* of all arenas: never over the budget */
    struct host_arena *arenas;
    struct guard_range *ranges; /* one for each of @arenas; the guard reads them */
    bool is_guarded;
    struct host_op *ops; /* all of them */
    struct host_op_list free_ops;
    struct host_done done;
    struct host_lane memory_lane, copy_lane;
    struct gpu_workers *workers; /* NULL: none */
    struct gpu_attention *attention;
    int poll_fd; /* with workers: readable when either's event is; else -1 */
};

int host_attends_init(struct gpu_device *device);
void host_attends_finish(struct gpu_device *device); /* takes a half-built one */

int host_device_create(const struct gpu_device_options *options, const struct host_syscalls *system,
                       struct gpu_device **out_device);

/* NULL if there is no such open arena. */
struct host_arena *host_arena_find(const struct gpu_device *device, uint32_t number);
void host_arena_finish(struct gpu_device *device, uint32_t number); /* takes one never opened */
void host_arena_end_close(struct gpu_device *device, struct host_op *op);

/* The next three answer whether @op is over; false: it was queued again. */
bool host_granule_end_commit(struct gpu_device *device, struct host_op *op);
bool host_granule_end_decommit(struct gpu_device *device, struct host_op *op);
bool host_granule_end_trim(struct gpu_device *device, struct host_op *op);

void host_copy_run(void *device, struct host_op *op);
void host_copy_end(struct gpu_device *device, struct host_op *op);
