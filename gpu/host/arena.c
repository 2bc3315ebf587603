/* gpu/host/arena.c - opens, exports and closes arenas: one file each, mapped whole and for good. */
#include "gpu/host/device.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static const uint64_t MAX_ARENA_BYTES = 1ull << 46; /* half of what a process can address */

bool host_arena_options_fit(const struct gpu_device *device,
                            const struct gpu_arena_options *options)
{
    const struct gpu_granule *granule = &options->granule;
    uint64_t granule_bytes = (uint64_t)granule->pages * device->options.page_bytes;

    return granule->pages > 0 && granule->slots > 0 && options->max_granules > 0 &&
           granule->stride_bytes % GPU_SLOT_ALIGN == 0 && granule->stride_bytes <= granule_bytes &&
           granule->stride_bytes * granule->slots == granule_bytes && options->block_bytes > 0 &&
           options->block_bytes <= granule->stride_bytes &&
           granule_bytes <= MAX_ARENA_BYTES / options->max_granules &&
           (uint64_t)options->max_granules * granule->slots < UINT32_MAX;
}

struct host_arena *host_arena_find(const struct gpu_device *device, uint32_t number)
{
    if (number >= device->options.max_arenas)
        return NULL;
    struct host_arena *arena = &device->arenas[number];
    return arena->is_open && !arena->is_closing ? arena : NULL;
}

/* Maps the file at a multiple of the page, so that huge pages of the file are huge in the map. */
static int map_file(const struct gpu_device *device, const struct host_arena *arena,
                    char **out_base)
{
    uint64_t align = device->options.page_bytes;
    uint64_t bytes = arena->bytes + align;
    char *reserved = device->system->mmap(NULL, bytes, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return -errno;

    char *base = reserved + (align - (uintptr_t)reserved % align) % align;
    if (device->system->mmap(base, arena->bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_NORESERVE | MAP_FIXED, arena->file.fd,
                             0) == MAP_FAILED) {
        int err = -errno;
        (void)munmap(reserved, bytes);
        return err;
    }
    if (base > reserved)
        (void)munmap(reserved, (size_t)(base - reserved));
    if (base + arena->bytes < reserved + bytes)
        (void)munmap(base + arena->bytes, (size_t)(reserved + bytes - (base + arena->bytes)));
    (void)device->system->madvise(base, arena->bytes, MADV_DONTDUMP); /* tenants' data */
    *out_base = base;
    return 0;
}

int host_arena_begin(struct gpu_device *device, uint32_t number,
                     const struct gpu_arena_options *options, const struct host_file *file)
{
    struct host_arena *arena = &device->arenas[number];

    *arena = (struct host_arena){.file = *file, .options = *options};
    arena->granule_bytes = (uint64_t)options->granule.pages * device->options.page_bytes;
    arena->bytes = arena->granule_bytes * options->max_granules;
    int err = -ENOMEM;
    arena->granules = device->system->calloc(options->max_granules, sizeof(*arena->granules));
    if (!arena->granules)
        goto fail;
    err = map_file(device, arena, &arena->base);
    if (err)
        goto fail;
    arena->is_open = true;
    guard_range_set(&device->ranges[number], arena->base, arena->bytes);
    return 0;

fail:
    arena->file = HOST_FILE_NONE;
    host_arena_finish(device, number);
    return err;
}

int gpu_arena_open(struct gpu_device *device, uint32_t number,
                   const struct gpu_arena_options *options)
{
    struct host_file file;

    if (number >= device->options.max_arenas || !host_arena_options_fit(device, options))
        return -EINVAL;
    if (device->arenas[number].is_open)
        return -EEXIST;
    int err = host_file_create(&device->mount,
                               (uint64_t)options->granule.pages * device->options.page_bytes *
                                   options->max_granules,
                               options->is_shared, &file);
    if (err)
        return err;
    err = host_arena_begin(device, number, options, &file);
    if (err)
        host_file_close(&file);
    return err;
}

void host_arena_finish(struct gpu_device *device, uint32_t number)
{
    struct host_arena *arena = &device->arenas[number];

    guard_range_clear(&device->ranges[number]);
    if (arena->base)
        (void)munmap(arena->base, arena->bytes);
    host_file_close(&arena->file);
    free(arena->granules);
    *arena = (struct host_arena){.file = HOST_FILE_NONE};
}

int gpu_arena_close(struct gpu_device *device, uint32_t number, uint64_t cookie)
{
    struct host_arena *arena = host_arena_find(device, number);
    if (!arena)
        return -ENOENT;
    if (arena->num_ops > 0)
        return -EBUSY;
    struct host_op *op = host_op_pop(&device->free_ops);
    if (!op)
        return GPU_BUSY;

    op->kind = OP_CLOSE;
    op->cookie = cookie;
    op->arena = number;
    op->fd = arena->file.fd;
    op->bytes = arena->bytes;
    op->freed_bytes = arena->charged_bytes;
    arena->num_ops++;
    arena->is_closing = true;
    host_lane_submit(&device->memory_lane, op);
    return 0;
}

/* If the memory could not be had back, the arena stays, charged as before, to be closed again. */
void host_arena_end_close(struct gpu_device *device, struct host_op *op)
{
    struct host_arena *arena = &device->arenas[op->arena];

    arena->num_ops--;
    arena->is_closing = false;
    if (op->status == 0) {
        device->charged_bytes -= arena->charged_bytes;
        host_arena_finish(device, op->arena);
        return;
    }
    for (uint32_t granule = 0; granule < arena->options.max_granules; granule++) {
        if (arena->granules[granule] == GRANULE_COMMITTED ||
            arena->granules[granule] == GRANULE_WANTED)
            arena->granules[granule] = GRANULE_LEFT;
    }
}

void *gpu_arena_base(const struct gpu_device *device, uint32_t number)
{
    const struct host_arena *arena = host_arena_find(device, number);
    return arena ? arena->base : NULL;
}

int gpu_arena_export(struct gpu_device *device, uint32_t number, enum gpu_access access,
                     int *out_fd)
{
    const struct host_arena *arena = host_arena_find(device, number);
    if (!arena)
        return -ENOENT;
    if (access == GPU_READ && !arena->options.is_shared)
        return -EINVAL;
    return host_file_export(&device->mount, &arena->file, access, out_fd);
}
