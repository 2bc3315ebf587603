/* gpu/host/adopt.c - a device and its arenas made again of the descriptors of an earlier process.
 *
 *  A1  What is wanted is charged when its arena is adopted, before anything else can be: so the
 *      budget has room for all that outlived the process.
 *  A2  No slot is used before its granule was found whole.
 */
#include "gpu/host/device.h"

#include <errno.h>

int gpu_device_keep(const struct gpu_device *device, int *out_fd)
{
    if (device->mount.fd < 0)
        return -ENOENT;
    *out_fd = device->mount.fd;
    return 0;
}

int gpu_arena_keep(const struct gpu_device *device, uint32_t number,
                   struct gpu_arena_files *out_files)
{
    const struct host_arena *arena = host_arena_find(device, number);

    if (!arena)
        return -ENOENT;
    *out_files = (struct gpu_arena_files){.fd = arena->file.fd, .reader_fd = arena->file.reader_fd};
    return 0;
}

int gpu_device_adopt(const struct gpu_device_options *options, int mount_fd,
                     struct gpu_device **out_device)
{
    return host_device_adopt(options, &host_syscalls, mount_fd, out_device);
}

void gpu_device_adopt_end(struct gpu_device *device)
{
    atomic_store(&device->memory.is_held, false);
    host_lane_wake(&device->memory_lane);
}

static bool is_wanted(const uint64_t *granules, uint32_t granule)
{
    return (granules[granule / 64] >> granule % 64 & 1) != 0;
}

/* A1. The lane's account follows at once: what is wanted has its memory already. */
static void want(struct gpu_device *device, uint32_t number, const uint64_t *granules)
{
    struct host_arena *arena = &device->arenas[number];

    for (uint32_t granule = 0; granule < arena->options.max_granules; granule++) {
        if (!is_wanted(granules, granule))
            continue;
        host_granule_charge(device, arena);
        arena->granules[granule] = GRANULE_WANTED;
    }
    atomic_fetch_add(&device->memory.committed_bytes, arena->charged_bytes);
}

int gpu_arena_adopt(struct gpu_device *device, uint32_t number,
                    const struct gpu_arena_options *options, struct gpu_arena_files files,
                    const uint64_t *granules, uint64_t cookie)
{
    const struct host_file file = {.fd = files.fd, .reader_fd = files.reader_fd};
    uint64_t num_wanted = 0;

    if (number >= device->options.max_arenas || !host_arena_options_fit(device, options))
        return -EINVAL;
    if (device->arenas[number].is_open)
        return -EEXIST;
    uint64_t granule_bytes = (uint64_t)options->granule.pages * device->options.page_bytes;
    int err = host_file_check(&device->mount, &file, granule_bytes * options->max_granules,
                              options->is_shared);
    if (err)
        return err;
    for (uint32_t granule = 0; granule < options->max_granules; granule++)
        num_wanted += is_wanted(granules, granule);
    if (num_wanted > (device->options.budget_bytes - device->charged_bytes) / granule_bytes)
        return -EDQUOT;
    if (!device->free_ops.head)
        return GPU_BUSY;
    err = host_arena_begin(device, number, options, &file);
    if (err)
        return err;

    want(device, number, granules);
    struct host_op *op = host_granule_op(device, OP_TRIM, number, 0);
    op->cookie = cookie;
    host_granule_fill_trim(&device->arenas[number], op);
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

int gpu_adopt_granule(struct gpu_device *device, uint32_t number, uint32_t granule, uint64_t cookie)
{
    enum granule_state state;
    int err = host_granule_find(device, number, granule, &state);

    if (err)
        return err;
    if (state != GRANULE_WANTED)
        return state == GRANULE_COMMITTED ? -EALREADY : -ENOENT;
    struct host_op *op = host_granule_op(device, OP_ADOPT, number, granule);
    if (!op)
        return GPU_BUSY;
    op->cookie = cookie;
    device->arenas[number].granules[granule] = GRANULE_COMMITTING;
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

/* Whether @from may go to @to: 0 and the state of @from, or what gpu_move_granule() answers. */
static int move_find(const struct gpu_device *device, struct gpu_granule_ref from,
                     struct gpu_granule_ref to, enum granule_state *out_state)
{
    enum granule_state to_state;
    int err = host_granule_find(device, from.arena, from.granule, out_state);

    if (!err)
        err = host_granule_find(device, to.arena, to.granule, &to_state);
    if (err)
        return err;
    if (*out_state != GRANULE_WANTED && *out_state != GRANULE_COMMITTED)
        return -ENOENT;
    if (to_state != GRANULE_HOLE)
        return -EALREADY;
    if (device->arenas[from.arena].granule_bytes != device->arenas[to.arena].granule_bytes)
        return -EINVAL;
    return atomic_load(&device->ranges[to.arena].is_damaged) ? -EIO : 0;
}

int gpu_move_granule(struct gpu_device *device, struct gpu_granule_ref from,
                     struct gpu_granule_ref to, uint64_t cookie)
{
    enum granule_state state;
    int err = move_find(device, from, to, &state);

    if (err)
        return err;
    struct host_op *op = host_granule_op(device, OP_MOVE, to.arena, to.granule);
    if (!op)
        return GPU_BUSY;

    struct host_arena *source = &device->arenas[from.arena];
    op->cookie = cookie;
    op->from_fd = source->file.fd;
    op->from_arena = from.arena;
    op->from_granule = from.granule;
    op->from_offset = from.granule * source->granule_bytes;
    op->from_state = (uint8_t)state;
    op->from_base = source->base;
    op->from_is_told = state == GRANULE_COMMITTED;
    source->num_ops++;
    source->granules[from.granule] = GRANULE_DECOMMITTING;
    device->arenas[to.arena].granules[to.granule] = GRANULE_COMMITTING;
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

/* G3: the charge of the source stands for both until here, since only one has memory at a time. */
void host_granule_end_move(struct gpu_device *device, struct host_op *op)
{
    struct host_arena *source = &device->arenas[op->from_arena];
    struct host_arena *arena = &device->arenas[op->arena];

    source->num_ops--;
    arena->num_ops--;
    source->granules[op->from_granule] = op->is_gone ? GRANULE_HOLE : op->from_state;
    arena->granules[op->granule] = GRANULE_HOLE;
    if (!op->is_gone)
        return;
    host_granule_uncharge(device, source);
    if (op->status != 0 && !op->is_left)
        return;
    arena->granules[op->granule] = op->status == 0 ? GRANULE_COMMITTED : GRANULE_LEFT;
    host_granule_charge(device, arena);
}
