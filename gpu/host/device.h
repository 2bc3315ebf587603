/* gpu/host/device.h - internal: what the files of the host device share. */
#pragma once

#include "gpu/host/block_copy.h"
#include "gpu/host/guard.h"
#include "gpu/host/memory.h"

/* Of one granule. It is charged in all states but the first. */
enum granule_state {
    GRANULE_HOLE,         /* no memory, unless a tenant touched it */
    GRANULE_WANTED,       /* it has memory of an earlier process, not looked at yet */
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
int host_device_adopt(const struct gpu_device_options *options, const struct host_syscalls *system,
                      int mount_fd, struct gpu_device **out_device);

/* NULL if there is no such open arena. */
struct host_arena *host_arena_find(const struct gpu_device *device, uint32_t number);
/* The parts of an open: a record and addresses for @file, which is the caller's after a failure. */
bool host_arena_options_fit(const struct gpu_device *device,
                            const struct gpu_arena_options *options);
int host_arena_begin(struct gpu_device *device, uint32_t number,
                     const struct gpu_arena_options *options, const struct host_file *file);
void host_arena_finish(struct gpu_device *device, uint32_t number); /* takes one never opened */
void host_arena_end_close(struct gpu_device *device, struct host_op *op);

/* G1, G2: in the accounts of both. */
void host_granule_charge(struct gpu_device *device, struct host_arena *arena);
void host_granule_uncharge(struct gpu_device *device, struct host_arena *arena);
/* 0 and the state of the granule, or why no operation can be queued on it. */
int host_granule_find(const struct gpu_device *device, uint32_t number, uint32_t granule,
                      enum granule_state *out_state);
/* A record of an operation on it; NULL: none is free. */
struct host_op *host_granule_op(struct gpu_device *device, enum host_op_kind kind, uint32_t number,
                                uint32_t granule);

/* The next three answer whether @op is over; false: it was queued again. */
bool host_granule_end_commit(struct gpu_device *device, struct host_op *op);
bool host_granule_end_decommit(struct gpu_device *device, struct host_op *op);
bool host_granule_end_trim(struct gpu_device *device, struct host_op *op);
void host_granule_end_move(struct gpu_device *device, struct host_op *op);
/* @op takes the memory of what is charged for nothing. */
void host_granule_fill_trim(const struct host_arena *arena, struct host_op *op);

void host_copy_run(void *device, struct host_op *op);
void host_copy_end(struct gpu_device *device, struct host_op *op);
