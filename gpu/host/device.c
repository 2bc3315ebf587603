/* gpu/host/device.c - the host device: its life, its completions, its accounts.
 *
 * The owner thread makes every call. The memory lane commits and decommits, the copy lane moves
 * what is large; both get all they need in an operation and hand it back through `done`. States and
 * charges change in the owner thread only: when an operation is queued, and when it is reaped.
 */
#include "gpu/host/device.h"

#include "gpu/host/workers.h"

#include <errno.h>
#include <stdlib.h>

static const uint32_t MAX_OPERATIONS = 1 << 16;

static bool options_fit(const struct gpu_device_options *options)
{
    return (options->page_bytes == 2 << 20 || options->page_bytes == 64 << 10) &&
           options->budget_bytes > 0 && options->budget_bytes % options->page_bytes == 0 &&
           options->budget_bytes <= INT64_MAX && options->max_arenas > 0 &&
           options->max_arenas < GPU_NO_ARENA && options->max_operations > 0 &&
           options->max_operations <= MAX_OPERATIONS &&
           options->populate_bytes % options->page_bytes == 0 &&
           options->populate_bytes <= options->budget_bytes;
}

static int allocate_tables(struct gpu_device *device)
{
    const struct gpu_device_options *options = &device->options;

    device->arenas = device->system->calloc(options->max_arenas, sizeof(*device->arenas));
    device->ranges = device->system->calloc(options->max_arenas, sizeof(*device->ranges));
    device->ops = device->system->calloc(options->max_operations, sizeof(*device->ops));
    for (uint32_t i = 0; device->arenas && i < options->max_arenas; i++)
        device->arenas[i].file = HOST_FILE_NONE; /* before anything can fail: 0 is a descriptor */
    if (!device->arenas || !device->ranges || !device->ops)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->max_operations; i++)
        host_op_push(&device->free_ops, &device->ops[i]);
    return 0;
}

static int start_lanes(struct gpu_device *device)
{
    device->memory_lane.done = &device->done;
    device->memory_lane.owner = &device->memory;
    device->memory_lane.run = host_memory_run;
    device->memory_lane.idle = host_memory_populate;
    device->copy_lane.done = &device->done;
    device->copy_lane.owner = device;
    device->copy_lane.run = host_copy_run;

    int err = host_lane_init(&device->memory_lane, device->system);
    return err ? err : host_lane_init(&device->copy_lane, device->system);
}

/* @mount_fd: NULL, or that of an earlier process, which stays the caller's after a failure. */
static int device_make(const struct gpu_device_options *options, const struct host_syscalls *system,
                       const int *mount_fd, struct gpu_device **out_device)
{
    if (!options_fit(options))
        return -EINVAL;
    struct gpu_device *device = system->calloc(1, sizeof(*device));
    if (!device)
        return -ENOMEM;

    device->system = system;
    device->options = *options;
    device->copier = block_copiers()[0];
    device->mount.fd = -1;
    device->poll_fd = -1;
    device->memory.reserve = HOST_FILE_NONE;
    int err = host_done_init(&device->done, system);
    if (err)
        goto fail;
    err = allocate_tables(device);
    if (err)
        goto fail;
    err = guard_add(device->ranges, options->max_arenas);
    if (err)
        goto fail;
    device->is_guarded = true;
    if (mount_fd)
        err = host_mount_adopt(&device->mount, system, options, &device->fallbacks, *mount_fd);
    else
        err = host_mount_init(&device->mount, system, options, &device->fallbacks);
    if (err)
        goto fail;
    err = host_memory_init(&device->memory, &device->mount, options, &device->fallbacks);
    if (err)
        goto fail;
    atomic_store(&device->memory.is_held, mount_fd != NULL);
    err = start_lanes(device);
    if (err)
        goto fail;
    err = host_attends_init(device);
    if (err)
        goto fail;
    *out_device = device;
    return 0;

fail:
    if (mount_fd)
        device->mount.fd = -1;
    gpu_device_destroy(device);
    return err;
}

int host_device_create(const struct gpu_device_options *options, const struct host_syscalls *system,
                       struct gpu_device **out_device)
{
    return device_make(options, system, NULL, out_device);
}

int host_device_adopt(const struct gpu_device_options *options, const struct host_syscalls *system,
                      int mount_fd, struct gpu_device **out_device)
{
    return device_make(options, system, &mount_fd, out_device);
}

int gpu_device_create(const struct gpu_device_options *options, struct gpu_device **out_device)
{
    return host_device_create(options, &host_syscalls, out_device);
}

void gpu_device_destroy(struct gpu_device *device)
{
    if (!device)
        return;
    host_attends_finish(device);
    host_lane_finish(&device->memory_lane);
    host_lane_finish(&device->copy_lane);
    for (uint32_t i = 0; device->arenas && device->ranges && i < device->options.max_arenas; i++)
        host_arena_finish(device, i);
    host_memory_finish(&device->memory);
    host_mount_finish(&device->mount);
    if (device->is_guarded)
        guard_remove(device->ranges);
    host_done_finish(&device->done);
    free(device->ops);
    free(device->ranges);
    free(device->arenas);
    free(device);
}

int gpu_device_event_fd(const struct gpu_device *device)
{
    return device->poll_fd >= 0 ? device->poll_fd : device->done.event_fd;
}

/* Answers whether the operation is over, false if it has been queued again. */
static bool op_end(struct gpu_device *device, struct host_op *op)
{
    switch (op->kind) {
    case OP_COMMIT:
    case OP_ADOPT:
        return host_granule_end_commit(device, op);
    case OP_MOVE:
        host_granule_end_move(device, op);
        return true;
    case OP_DECOMMIT:
        return host_granule_end_decommit(device, op);
    case OP_TRIM:
        return host_granule_end_trim(device, op);
    case OP_CLOSE:
        host_arena_end_close(device, op);
        return true;
    case OP_ATTEND:
        return true;
    default:
        host_copy_end(device, op);
        return true;
    }
}

size_t gpu_device_reap(struct gpu_device *device, struct gpu_completion *out, size_t max)
{
    size_t num_reaped = 0;
    struct host_op *op;

    if (device->workers)
        (void)gpu_workers_reap(device->workers); /* ended attends join those that are done */
    while (num_reaped < max && (op = host_done_take(&device->done)) != NULL) {
        if (!op_end(device, op))
            continue;
        out[num_reaped++] = (struct gpu_completion){.cookie = op->cookie, .status = op->status};
        host_op_push(&device->free_ops, op);
    }
    host_done_keep_event(&device->done);
    return num_reaped;
}

void gpu_device_memory(const struct gpu_device *device, struct gpu_memory *out_memory)
{
    const struct host_memory *memory = &device->memory;

    *out_memory = (struct gpu_memory){
        .budget_bytes = device->options.budget_bytes,
        .charged_bytes = device->charged_bytes,
        .populate_bytes = device->options.populate_bytes,
        .populated_bytes =
            atomic_load(&memory->reserve_bytes) + atomic_load(&memory->committed_bytes),
        .populate_status = atomic_load(&memory->populate_status),
    };
}

size_t gpu_device_fallbacks(const struct gpu_device *device, struct gpu_fallback *out, size_t max)
{
    return host_fallbacks_list(&device->fallbacks, out, max);
}

/* Memory of the mount that neither arenas nor the reserve account for: 0 if there is none. */
static int check_mount(const struct gpu_device *device, uint64_t arena_bytes, uint64_t *out_bytes)
{
    const struct host_memory *memory = &device->memory;
    uint64_t physical, reserve_before, reserve_after;
    int tries = 3; /* the reserve may move while we look, but not that often */

    do {
        reserve_before = atomic_load(&memory->reserve_bytes);
        int err = host_mount_physical(&device->mount, &physical);
        if (err)
            return err;
        reserve_after = atomic_load(&memory->reserve_bytes);
    } while (--tries > 0 && reserve_before != reserve_after);

    uint64_t expected =
        arena_bytes + (reserve_before > reserve_after ? reserve_before : reserve_after);
    *out_bytes = physical > expected ? physical - expected : 0;
    return 0;
}

/*
 * Less than its granules account for, with nothing under way: it was truncated or punched, and
 * grown again before anybody touched it. What a failed decommit left may have been punched by us.
 */
static bool is_short(const struct host_arena *arena, const struct gpu_excess *row)
{
    if (row->physical_bytes >= row->charged_bytes || arena->num_ops > 0)
        return false;
    for (uint32_t granule = 0; granule < arena->options.max_granules; granule++) {
        if (arena->granules[granule] == GRANULE_LEFT)
            return false;
    }
    return true;
}

int gpu_device_check_excess(const struct gpu_device *device, struct gpu_excess *out, size_t max)
{
    size_t num_found = 0;
    uint64_t arena_bytes = 0, nobodys_bytes;

    for (uint32_t i = 0; i < device->options.max_arenas; i++) {
        const struct host_arena *arena = &device->arenas[i];
        if (!arena->is_open)
            continue;
        struct gpu_excess row = {.arena = i, .charged_bytes = arena->charged_bytes};
        row.is_damaged = atomic_load(&device->ranges[i].is_damaged);
        int err = host_file_physical(&device->mount, &arena->file, &row.physical_bytes);
        if (err)
            return err;
        if (is_short(arena, &row)) {
            atomic_store(&device->ranges[i].is_damaged, true);
            row.is_damaged = true;
        }
        bool is_over = row.physical_bytes > row.charged_bytes;
        arena_bytes += is_over ? row.physical_bytes : row.charged_bytes;
        if (!is_over && !row.is_damaged)
            continue;
        if (num_found < max)
            out[num_found] = row;
        num_found++;
    }
    int err = check_mount(device, arena_bytes, &nobodys_bytes);
    if (err)
        return err;
    if (nobodys_bytes > 0) {
        if (num_found < max)
            out[num_found] =
                (struct gpu_excess){.arena = GPU_NO_ARENA, .physical_bytes = nobodys_bytes};
        num_found++;
    }
    return (int)num_found;
}
