/* gpu/host/memory.c - commit, decommit, and the reserve that commits draw on. */
#include "gpu/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* A commit waits for one slice at most: 5 ms if the machine has the memory, 20 if its host has to
 * find it first (2 s/GiB). */
static const uint64_t SLICE_BYTES = 8 << 20;

int host_memory_init(struct host_memory *memory, const struct host_mount *mount,
                     const struct gpu_device_options *options, struct host_fallbacks *fallbacks)
{
    memory->system = mount->system;
    memory->fallbacks = fallbacks;
    memory->hook = options->memory_hook;
    memory->budget_bytes = options->budget_bytes;
    memory->page_bytes = options->page_bytes;
    memory->populate_bytes = options->populate_bytes;
    memory->reserve = HOST_FILE_NONE;
    if (memory->populate_bytes == 0)
        return 0;
    return host_file_create(mount, memory->budget_bytes, false, &memory->reserve);
}

void host_memory_finish(struct host_memory *memory)
{
    if (memory->bounce)
        (void)munmap(memory->bounce, memory->bounce_bytes);
    host_file_close(&memory->reserve);
}

/* A tenant with root's rights may have marked its file immutable: that is taken back. */
static int allocate(const struct host_memory *memory, int fd, int mode, struct host_range range)
{
    bool is_cleared = false;

    for (;;) {
        if (memory->system->fallocate(fd, mode, (off_t)range.offset, (off_t)range.bytes) == 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EPERM || is_cleared)
            return -errno;
        int none = 0;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &none);
        is_cleared = true;
    }
}

static int punch(const struct host_memory *memory, int fd, uint64_t offset, uint64_t bytes)
{
    struct host_range range = {.offset = offset, .bytes = bytes};

    if (bytes == 0)
        return 0;
    return allocate(memory, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range);
}

/* Makes the pages exist, and makes the daemon's mapping of them complete. */
static int fill(const struct host_memory *memory, int fd, char *at, struct host_range range)
{
    int err = allocate(memory, fd, 0, range);
    if (err)
        return err;
    if (at && memory->system->madvise(at, range.bytes, MADV_POPULATE_WRITE) != 0)
        return -errno;
    return 0;
}

/* Takes from the end of the reserve what the budget has no room for beside @bytes more. */
static int shrink_reserve(struct host_memory *memory, uint64_t bytes)
{
    uint64_t reserve_bytes = atomic_load(&memory->reserve_bytes);
    uint64_t wanted = reserve_bytes + atomic_load(&memory->committed_bytes) + bytes;

    if (wanted <= memory->budget_bytes || reserve_bytes == 0)
        return 0;
    uint64_t excess = wanted - memory->budget_bytes;
    if (excess > reserve_bytes)
        excess = reserve_bytes;
    int err = punch(memory, memory->reserve.fd, reserve_bytes - excess, excess);
    if (!err)
        atomic_store(&memory->reserve_bytes, reserve_bytes - excess); /* M2 */
    return err;
}

static void tell(const struct host_memory *memory, void *address, uint64_t bytes, bool has_memory)
{
    if (memory->hook && bytes > 0)
        memory->hook->changed(memory->hook->state, address, bytes, has_memory);
}

static int commit(struct host_memory *memory, struct host_op *op)
{
    uint64_t before = op->was_left ? op->bytes : 0;
    int err = shrink_reserve(memory, op->bytes - before); /* M1 */
    if (err) {
        op->is_left = op->was_left;
        return err;
    }

    struct host_range range = {.offset = op->offset, .bytes = op->bytes};
    err = fill(memory, op->fd, op->base + op->offset, range);
    if (err)
        op->is_left = punch(memory, op->fd, op->offset, op->bytes) != 0;
    else
        tell(memory, op->base + op->offset, op->bytes, true);
    uint64_t after = !err || op->is_left ? op->bytes : 0;
    atomic_fetch_add(&memory->committed_bytes, after - before);
    return err;
}

static int decommit(struct host_memory *memory, struct host_op *op)
{
    tell(memory, op->base + op->offset, op->bytes, false);
    int err = punch(memory, op->fd, op->offset, op->bytes);
    if (!err)
        atomic_fetch_sub(&memory->committed_bytes, op->bytes);
    return err;
}

static int trim(struct host_memory *memory, struct host_op *op)
{
    int err = 0;

    for (uint32_t i = 0; !err && i < op->num_parts; i++)
        err = punch(memory, op->fd, op->ranges[i].offset, op->ranges[i].bytes);
    return err;
}

static int close_file(struct host_memory *memory, struct host_op *op)
{
    tell(memory, NULL, op->freed_bytes, false);
    int err = punch(memory, op->fd, 0, op->bytes);
    if (!err)
        atomic_fetch_sub(&memory->committed_bytes, op->freed_bytes);
    return err;
}

/* Of a process that was killed while a granule came or went, some pages may be missing. */
static int check_whole(const struct host_memory *memory, int fd, struct host_range range)
{
    off_t hole = memory->system->lseek(fd, (off_t)range.offset, SEEK_HOLE);

    if (hole < 0)
        return errno == ENXIO ? -ENODATA : -errno;
    return (uint64_t)hole < range.offset + range.bytes ? -ENODATA : 0;
}

static int adopt(struct host_memory *memory, struct host_op *op)
{
    struct host_range range = {.offset = op->offset, .bytes = op->bytes};
    int err = shrink_reserve(memory, 0); /* M1: it was charged without the lane */

    if (!err)
        err = check_whole(memory, op->fd, range);
    if (!err && memory->system->madvise(op->base + op->offset, op->bytes, MADV_POPULATE_WRITE) != 0)
        err = -errno;
    if (!err) {
        tell(memory, op->base + op->offset, op->bytes, true);
        return 0;
    }
    op->is_left = punch(memory, op->fd, op->offset, op->bytes) != 0;
    if (!op->is_left)
        atomic_fetch_sub(&memory->committed_bytes, op->bytes);
    return err;
}

/* By reads: tenants of before may still truncate this file, and it need not be mapped. */
static int read_whole(const struct host_memory *memory, const struct host_op *op, char *out)
{
    uint64_t done = 0;
    struct host_range range = {.offset = op->from_offset, .bytes = op->bytes};
    int err = check_whole(memory, op->from_fd, range);

    while (!err && done < op->bytes) {
        ssize_t num_read = memory->system->pread(op->from_fd, out + done, op->bytes - done,
                                                 (off_t)(op->from_offset + done));
        if (num_read > 0)
            done += (uint64_t)num_read;
        else if (num_read == 0)
            err = -ENODATA;
        else if (errno != EINTR)
            err = -errno;
    }
    return err;
}

static void bounce_drop(struct host_memory *memory)
{
    if (memory->bounce)
        (void)munmap(memory->bounce, memory->bounce_bytes);
    memory->bounce = NULL;
}

/* Kept from one move to the next: to fault its pages in anew would cost more than the copies. */
static int bounce_take(struct host_memory *memory, uint64_t bytes)
{
    if (memory->bounce && memory->bounce_bytes >= bytes)
        return 0;
    bounce_drop(memory);
    void *bounce = memory->system->mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bounce == MAP_FAILED)
        return -errno;
    memory->bounce = bounce;
    memory->bounce_bytes = bytes;
    return 0;
}

/* M1: the memory is given up at one end before it is taken at the other. */
static int move(struct host_memory *memory, struct host_op *op)
{
    struct host_range range = {.offset = op->offset, .bytes = op->bytes};

    op->is_gone = false;
    int err = bounce_take(memory, op->bytes);
    if (!err)
        err = read_whole(memory, op, memory->bounce);
    if (!err)
        err = punch(memory, op->from_fd, op->from_offset, op->bytes);
    if (err)
        return err;
    op->is_gone = true;
    if (op->from_is_told)
        tell(memory, op->from_base + op->from_offset, op->bytes, false);
    err = fill(memory, op->fd, op->base + op->offset, range);
    if (!err) {
        memcpy(op->base + op->offset, memory->bounce, op->bytes);
        tell(memory, op->base + op->offset, op->bytes, true);
    } else {
        op->is_left = punch(memory, op->fd, op->offset, op->bytes) != 0;
    }
    if (err && !op->is_left)
        atomic_fetch_sub(&memory->committed_bytes, op->bytes);
    return err;
}

void host_memory_run(void *argument, struct host_op *op)
{
    struct host_memory *memory = argument;

    switch (op->kind) {
    case OP_COMMIT:
        op->status = commit(memory, op);
        break;
    case OP_DECOMMIT:
        op->status = decommit(memory, op);
        break;
    case OP_ADOPT:
        op->status = adopt(memory, op);
        break;
    case OP_MOVE:
        op->status = move(memory, op);
        break;
    case OP_TRIM:
        op->status = trim(memory, op);
        break;
    case OP_CLOSE:
        op->status = close_file(memory, op);
        break;
    default:
        op->status = -EINVAL;
    }
}

/* The same pages come back from the machine later, so they are touched in the first pass only. */
static int grow_reserve(struct host_memory *memory, uint64_t bytes)
{
    uint64_t offset = atomic_load(&memory->reserve_bytes);
    struct host_range range = {.offset = offset, .bytes = bytes};
    char *at = NULL;

    atomic_store(&memory->reserve_bytes, offset + bytes); /* M2 */
    int err = fill(memory, memory->reserve.fd, NULL, range);
    if (!err && !memory->is_touched) {
        at = memory->system->mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                  memory->reserve.fd, (off_t)offset);
        err = at == MAP_FAILED ? -errno : 0;
    }
    if (!err && at)
        err = memory->system->madvise(at, bytes, MADV_POPULATE_WRITE) != 0 ? -errno : 0;
    if (at && at != MAP_FAILED)
        (void)munmap(at, bytes);
    if (err && punch(memory, memory->reserve.fd, offset, bytes) == 0)
        atomic_store(&memory->reserve_bytes, offset);
    return err;
}

bool host_memory_populate(void *argument)
{
    struct host_memory *memory = argument;

    bounce_drop(memory); /* no move waits */
    if (atomic_load(&memory->is_held))
        return false;
    uint64_t have = atomic_load(&memory->reserve_bytes) + atomic_load(&memory->committed_bytes);

    if (have >= memory->populate_bytes) {
        memory->is_touched = true;
        return false;
    }
    if (atomic_load(&memory->populate_status) != 0)
        return false;

    uint64_t bytes = memory->populate_bytes - have;
    if (bytes > SLICE_BYTES)
        bytes = SLICE_BYTES;
    int err = grow_reserve(memory, bytes);
    if (err) {
        atomic_store(&memory->populate_status, err);
        host_fallback_enter(memory->fallbacks, FALLBACK_NOT_POPULATED, err);
    }
    return !err;
}
