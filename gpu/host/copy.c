/* gpu/host/copy.c - copies and scrubs of blocks, in the owner thread or in the copy lane. */
#include "gpu/host/device.h"

#include <errno.h>

/* What it takes to wake a thread and be woken by it, 20-70 us, copies 0.5 to 1.5 MiB. */
static const uint64_t COPY_HERE_BYTES = 1 << 20;

void host_copy_run(void *argument, struct host_op *op)
{
    const struct gpu_device *device = argument;

    for (uint32_t i = 0; i < op->num_parts; i++) {
        const struct host_copy *copy = &op->copies[i];
        if (copy->from)
            device->copier->copy(copy->to, copy->from, copy->bytes);
        else
            device->copier->zero(copy->to, copy->bytes);
    }
    op->status = 0;
}

/* The one place that decides where bytes are moved. */
static void copy_submit(struct gpu_device *device, struct host_op *op)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < op->num_parts; i++)
        bytes += op->copies[i].bytes;
    if (bytes > COPY_HERE_BYTES) {
        host_lane_submit(&device->copy_lane, op);
        return;
    }
    host_copy_run(device, op);
    host_done_add(&device->done, op);
}

static void count_ops(struct gpu_device *device, const struct host_op *op, int change)
{
    for (uint32_t i = 0; i < op->num_parts; i++) {
        if (op->copies[i].from_arena != GPU_NO_ARENA)
            device->arenas[op->copies[i].from_arena].num_ops += (uint32_t)change;
        if (op->copies[i].to_arena != GPU_NO_ARENA)
            device->arenas[op->copies[i].to_arena].num_ops += (uint32_t)change;
    }
}

bool gpu_arena_is_damaged(const struct gpu_device *device, uint32_t number)
{
    return host_arena_find(device, number) && atomic_load(&device->ranges[number].is_damaged);
}

static bool is_damaged(const struct gpu_device *device, uint32_t number)
{
    return number != GPU_NO_ARENA && atomic_load(&device->ranges[number].is_damaged);
}

void host_copy_end(struct gpu_device *device, struct host_op *op)
{
    for (uint32_t i = 0; i < op->num_parts; i++) {
        if (is_damaged(device, op->copies[i].from_arena) ||
            is_damaged(device, op->copies[i].to_arena))
            op->status = -EIO;
    }
    count_ops(device, op, -1);
}

/* The address of a place, and how much lies there: a block, or, with no arena, 0. */
static int place_find(const struct gpu_device *device, const struct gpu_place *place,
                      void **out_address, uint64_t *out_bytes)
{
    if (place->arena == GPU_NO_ARENA) {
        *out_address = place->memory;
        *out_bytes = 0;
        return place->memory ? 0 : -EINVAL;
    }
    const struct host_arena *arena = host_arena_find(device, place->arena);
    if (!arena || place->slot == 0)
        return -EINVAL;
    uint32_t granule = (place->slot - 1) / arena->options.granule.slots;
    if (granule >= arena->options.max_granules || arena->granules[granule] != GRANULE_COMMITTED)
        return -EINVAL;

    *out_address = arena->base + (place->slot - 1) * arena->options.granule.stride_bytes;
    *out_bytes = arena->options.block_bytes;
    return 0;
}

static int copy_resolve(const struct gpu_device *device, const struct gpu_copy *copy,
                        struct host_copy *out_copy)
{
    void *from, *to;
    uint64_t from_bytes, to_bytes;
    int err = place_find(device, &copy->from, &from, &from_bytes);
    if (!err)
        err = place_find(device, &copy->to, &to, &to_bytes);
    if (err)
        return err;
    if ((from_bytes == 0 && to_bytes == 0) || (from_bytes && to_bytes && from_bytes != to_bytes))
        return -EINVAL;

    *out_copy = (struct host_copy){.to = to,
                                   .from = from,
                                   .bytes = from_bytes ? from_bytes : to_bytes,
                                   .from_arena = copy->from.arena,
                                   .to_arena = copy->to.arena};
    return 0;
}

/* A record for so many copies, to be filled in; NULL: none is free. */
static struct host_op *copy_op_take(struct gpu_device *device, uint64_t cookie, uint32_t num_parts)
{
    struct host_op *op = host_op_pop(&device->free_ops);

    if (op) {
        op->kind = OP_COPY;
        op->cookie = cookie;
        op->num_parts = num_parts;
    }
    return op;
}

int gpu_copy(struct gpu_device *device, const struct gpu_copy *copies, size_t num_copies,
             uint64_t cookie)
{
    if (num_copies > GPU_MAX_BATCH)
        return -EINVAL;
    struct host_op *op = copy_op_take(device, cookie, (uint32_t)num_copies);
    if (!op)
        return GPU_BUSY;

    for (size_t i = 0; i < num_copies; i++) {
        int err = copy_resolve(device, &copies[i], &op->copies[i]);
        if (err) {
            host_op_push(&device->free_ops, op);
            return err;
        }
    }
    count_ops(device, op, 1);
    copy_submit(device, op);
    return 0;
}

int gpu_scrub(struct gpu_device *device, uint32_t number, const uint32_t *slots, size_t num_slots,
              uint64_t cookie)
{
    if (num_slots > GPU_MAX_BATCH)
        return -EINVAL;
    struct host_op *op = copy_op_take(device, cookie, (uint32_t)num_slots);
    if (!op)
        return GPU_BUSY;

    for (size_t i = 0; i < num_slots; i++) {
        struct gpu_place place = {.arena = number, .slot = slots[i]};
        struct host_copy *zero = &op->copies[i];
        int err =
            number == GPU_NO_ARENA ? -EINVAL : place_find(device, &place, &zero->to, &zero->bytes);
        if (err) {
            host_op_push(&device->free_ops, op);
            return err;
        }
        zero->from = NULL;
        zero->bytes = device->arenas[number].options.granule.stride_bytes; /* padding too */
        zero->from_arena = GPU_NO_ARENA;
        zero->to_arena = number;
    }
    count_ops(device, op, 1);
    copy_submit(device, op);
    return 0;
}
