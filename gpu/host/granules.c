/* gpu/host/granules.c - which granules have memory, and what the budget is charged for them.
 *
 *  G1  charged_bytes of an arena = its granules that are no holes, times granule_bytes.
 *  G2  charged_bytes of the device = the sum over its arenas, and never more than the budget.
 *  G3  A granule's memory is there only while it is charged: charged before the commit is queued,
 *      uncharged after the decommit is done.
 */
#include "gpu/host/device.h"

#include <assert.h>
#include <errno.h>

int host_granule_find(const struct gpu_device *device, uint32_t number, uint32_t granule,
                      enum granule_state *out_state)
{
    const struct host_arena *arena = host_arena_find(device, number);

    if (!arena)
        return -ENOENT;
    if (granule >= arena->options.max_granules)
        return -EINVAL;
    enum granule_state state = arena->granules[granule];
    if (state == GRANULE_COMMITTING || state == GRANULE_DECOMMITTING)
        return -EBUSY;
    *out_state = state;
    return 0;
}

void host_granule_charge(struct gpu_device *device, struct host_arena *arena)
{
    arena->charged_bytes += arena->granule_bytes;
    device->charged_bytes += arena->granule_bytes;
    assert(device->charged_bytes <= device->options.budget_bytes); /* G2 */
}

void host_granule_uncharge(struct gpu_device *device, struct host_arena *arena)
{
    assert(arena->charged_bytes >= arena->granule_bytes); /* G1 */
    arena->charged_bytes -= arena->granule_bytes;
    device->charged_bytes -= arena->granule_bytes;
}

struct host_op *host_granule_op(struct gpu_device *device, enum host_op_kind kind, uint32_t number,
                                uint32_t granule)
{
    struct host_op *op = host_op_pop(&device->free_ops);
    if (!op)
        return NULL;
    struct host_arena *arena = &device->arenas[number];

    op->kind = kind;
    op->arena = number;
    op->granule = granule;
    op->fd = arena->file.fd;
    op->base = arena->base;
    op->offset = granule * arena->granule_bytes;
    op->bytes = arena->granule_bytes;
    op->was_left = arena->granules[granule] == GRANULE_LEFT;
    op->is_left = false;
    arena->num_ops++;
    return op;
}

int gpu_commit(struct gpu_device *device, uint32_t number, uint32_t granule, uint64_t cookie)
{
    enum granule_state state;
    int err = host_granule_find(device, number, granule, &state);
    if (err)
        return err;
    if (state == GRANULE_COMMITTED || state == GRANULE_WANTED)
        return -EALREADY;
    if (atomic_load(&device->ranges[number].is_damaged))
        return -EIO; /* its mapping is no longer that of the file */
    struct host_arena *arena = &device->arenas[number];
    if (state == GRANULE_HOLE &&
        arena->granule_bytes > device->options.budget_bytes - device->charged_bytes)
        return -EDQUOT;
    struct host_op *op = host_granule_op(device, OP_COMMIT, number, granule);
    if (!op)
        return GPU_BUSY;

    op->cookie = cookie;
    if (state == GRANULE_HOLE)
        host_granule_charge(device, arena); /* G3 */
    arena->granules[granule] = GRANULE_COMMITTING;
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

bool host_granule_end_commit(struct gpu_device *device, struct host_op *op)
{
    struct host_arena *arena = &device->arenas[op->arena];

    arena->num_ops--;
    if (op->status == 0) {
        arena->granules[op->granule] = GRANULE_COMMITTED;
    } else if (op->is_left) {
        arena->granules[op->granule] = GRANULE_LEFT;
    } else {
        arena->granules[op->granule] = GRANULE_HOLE;
        host_granule_uncharge(device, arena);
    }
    return true;
}

int gpu_decommit(struct gpu_device *device, uint32_t number, uint32_t granule, uint64_t cookie)
{
    enum granule_state state;
    int err = host_granule_find(device, number, granule, &state);
    if (err)
        return err;
    if (state == GRANULE_HOLE)
        return -EALREADY;
    struct host_op *op = host_granule_op(device, OP_DECOMMIT, number, granule);
    if (!op)
        return GPU_BUSY;

    op->cookie = cookie;
    device->arenas[number].granules[granule] = GRANULE_DECOMMITTING;
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

bool host_granule_end_decommit(struct gpu_device *device, struct host_op *op)
{
    struct host_arena *arena = &device->arenas[op->arena];

    arena->num_ops--;
    if (op->status == 0) {
        arena->granules[op->granule] = GRANULE_HOLE;
        host_granule_uncharge(device, arena); /* G3 */
    } else {
        arena->granules[op->granule] = GRANULE_LEFT;
    }
    return true;
}

/* Fills @op with the runs of holes from its granule on: answers whether there are any. */
static bool fill_trim(const struct host_arena *arena, struct host_op *op)
{
    uint32_t at = op->granule;

    op->num_parts = 0;
    while (at < arena->options.max_granules && op->num_parts < GPU_MAX_BATCH) {
        uint32_t first = at;
        while (at < arena->options.max_granules && arena->granules[at] == GRANULE_HOLE)
            at++;
        if (at > first)
            op->ranges[op->num_parts++] =
                (struct host_range){.offset = first * arena->granule_bytes,
                                    .bytes = (at - first) * arena->granule_bytes};
        else
            at++;
    }
    op->granule = at;
    return op->num_parts > 0;
}

void host_granule_fill_trim(const struct host_arena *arena, struct host_op *op)
{
    (void)fill_trim(arena, op);
}

/* A commit that is queued after it may fill a hole again: the lane keeps their order. */
int gpu_trim(struct gpu_device *device, uint32_t number, uint64_t cookie)
{
    struct host_arena *arena = host_arena_find(device, number);
    if (!arena)
        return -ENOENT;
    struct host_op *op = host_granule_op(device, OP_TRIM, number, 0);
    if (!op)
        return GPU_BUSY;

    op->cookie = cookie;
    (void)fill_trim(arena, op); /* nothing to do is done at once by the lane */
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

bool host_granule_end_trim(struct gpu_device *device, struct host_op *op)
{
    struct host_arena *arena = &device->arenas[op->arena];

    if (op->status == 0 && fill_trim(arena, op)) {
        host_lane_submit(&device->memory_lane, op);
        return false;
    }
    arena->num_ops--;
    return true;
}
