/* offload/open.c - opens a disk: options, files, layout, cap, tables, thread; and closes it. */
#include "offload/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_DEPTH = 32,
    MORE_BUFFERS = 8,
    DEFAULT_OPERATIONS = 1024,
    DEFAULT_THREADS = 4,
    MAX_THREADS = 64,
    DEFAULT_DEADLINE_MS = 10000,
    DEFAULT_PROBE_MS = 1000,
    MAX_BUFFERS = 4096,
    MAX_SLOTS = 1 << 16, /* of a granule: its headers are read at once */
};

static const uint64_t MAX_BLOCK_BYTES = 1 << 30;
static const uint64_t FREE_STEPS = 64; /* of a file that turned out too large: tries to shrink it */

static void set_defaults(struct disk_options *options)
{
    if (options->queue_depth == 0)
        options->queue_depth = DEFAULT_DEPTH;
    if (options->num_buffers == 0)
        options->num_buffers = options->queue_depth + MORE_BUFFERS;
    if (options->max_operations == 0)
        options->max_operations = DEFAULT_OPERATIONS;
    if (options->num_threads == 0)
        options->num_threads = DEFAULT_THREADS;
    if (options->deadline_ms == 0)
        options->deadline_ms = DEFAULT_DEADLINE_MS;
    if (options->probe_ms == 0)
        options->probe_ms = DEFAULT_PROBE_MS;
    if (options->max_store_bytes == 0)
        options->max_store_bytes = 4ull * options->num_buffers * options->max_block_bytes;
}

/* NULL: they fit. */
static const char *wrong_option(const struct disk_options *options)
{
    const uint64_t least = options->min_block_bytes, granule = options->granule_bytes;
    /* clang-format off */
    const struct { bool is_fine; const char *text; } checks[] = {
        {options->max_bytes > 0,
         "a disk tier needs a ceiling: set how many bytes it may take (max_bytes)"},
        {granule > 0 && granule % DISK_ALIGN == 0,
         "granule_bytes has to be a multiple of 4096"},
        {least > 0 && least % DISK_ALIGN == 0 && least <= granule,
         "min_block_bytes has to be a multiple of 4096, and at most granule_bytes"},
        {least > 0 && granule / least <= MAX_SLOTS,
         "granule_bytes is over 65,536 times min_block_bytes: use smaller granules"},
        {options->max_block_bytes > 0 && options->max_block_bytes <= MAX_BLOCK_BYTES,
         "max_block_bytes has to be 1 to 1 GiB"},
        {options->queue_depth <= DISK_MAX_DEPTH, "queue_depth is at most 256"},
        {options->num_buffers <= MAX_BUFFERS, "num_buffers is at most 4,096"},
        {options->max_operations >= 4 && options->max_operations <= DISK_MAX_OPERATIONS,
         "max_operations has to be 4 to 65,536"},
        {options->num_threads <= MAX_THREADS, "num_threads is at most 64"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (!checks[i].is_fine)
            return checks[i].text;
    }
    return NULL;
}

/* --- laying out --- */

static int physical(struct disk *disk, uint64_t *out_bytes)
{
    struct stat status;

    if (disk->system->fstat(disk->table_fd, &status) != 0)
        return -errno;
    *out_bytes = (uint64_t)status.st_blocks * 512 + disk->lock_bytes;
    return 0;
}

/*
 * More than the file system has is not even tried: until that failed, everybody else would find it
 * full. Those that do not say how much they have say 0.
 */
static bool has_room(const struct disk *disk, uint64_t bytes)
{
    struct statvfs room;

    return disk->system->fstatvfs(disk->table_fd, &room) != 0 || room.f_blocks == 0 ||
           bytes <= (uint64_t)room.f_bfree * room.f_frsize;
}

/* Takes the space. What the file system adds may be more than was reckoned with: then the file gets
 * smaller until all of it is under the ceiling. */
static int preallocate(struct disk *disk)
{
    struct format_layout *layout = &disk->layout;
    uint64_t bytes = 0;
    int err = 0;

    for (uint64_t step = 0; step < FREE_STEPS; step++) {
        if (disk->system->ftruncate(disk->table_fd, 0) != 0)
            return -errno;
        if (!has_room(disk, layout->file_bytes))
            return -ENOSPC;
        if (disk->system->ftruncate(disk->table_fd, (off_t)layout->file_bytes) != 0)
            return -errno;
        if (disk->system->fallocate(disk->table_fd, 0, 0, (off_t)layout->file_bytes) != 0) {
            if (errno == EINTR)
                continue;
            if (errno != EOPNOTSUPP && errno != ENOSYS)
                return -errno;
            disk_fallback_enter(&disk->fallbacks, DISK_FALLBACK_NOT_PREALLOCATED, -errno);
        }
        err = physical(disk, &bytes);
        if (err || bytes <= disk->options.max_bytes || layout->num_granules == 1)
            break;
        uint32_t less = layout->num_granules / 256 + 1;
        format_layout_set(layout, layout->granule_bytes, layout->max_slots,
                          layout->num_granules - less);
    }
    return !err && bytes > disk->options.max_bytes ? -EDQUOT : err;
}

/* A device may have the tables of an earlier life. */
static int clear_granules(struct disk *disk)
{
    static const char zeros[DISK_ALIGN];
    const struct format_layout *layout = &disk->layout;

    for (uint64_t at = layout->granules_offset; at < layout->headers_offset; at += sizeof(zeros)) {
        if (disk->system->pwrite(disk->table_fd, zeros, sizeof(zeros), (off_t)at) !=
            (ssize_t)sizeof(zeros))
            return errno ? -errno : -EIO;
    }
    return 0;
}

static int write_superblock(struct disk *disk)
{
    char page[SUPERBLOCK_BYTES] = {0};
    struct format_superblock superblock;

    format_superblock_make(&superblock, &disk->layout);
    memcpy(page, &superblock, sizeof(superblock));
    errno = 0;
    if (disk->system->pwrite(disk->table_fd, page, sizeof(page), 0) != (ssize_t)sizeof(page))
        return errno ? -errno : -EIO;
    return disk->system->fdatasync(disk->table_fd) == 0 ? 0 : -errno;
}

static int lay_out(struct disk *disk, const struct disk_files *files, char *out_error)
{
    struct disk_options *options = &disk->options;
    uint64_t max_bytes = options->max_bytes, least;
    uint32_t max_slots = (uint32_t)(options->granule_bytes / options->min_block_bytes);

    if (files->is_device && files->bytes < max_bytes)
        max_bytes = files->bytes;
    if (!format_layout_fit(&disk->layout, options->granule_bytes, max_slots, max_bytes, &least))
        return disk_error(out_error, -EINVAL,
                          "%s: %" PRIu64 " bytes hold no granule of %" PRIu64
                          ": give at least %" PRIu64 ", or smaller granules",
                          options->path, max_bytes, options->granule_bytes, least);
    int err = files->is_device ? clear_granules(disk) : preallocate(disk);
    if (!err)
        err = write_superblock(disk);
    if (!err) {
        disk->is_new = true;
        return 0;
    }
    if (!files->is_device)
        (void)ftruncate(disk->table_fd, 0); /* gives the space back */
    return disk_error(out_error, err, "%s: %" PRIu64 " bytes could not be taken (%s): %s",
                      options->path, disk->layout.file_bytes, strerror(-err),
                      err == -ENOSPC || err == -EDQUOT ? "make room, or lower the ceiling"
                                                       : "see whether the disk is healthy");
}

static int check_layout(struct disk *disk, const struct disk_files *files, char *out_error)
{
    const struct disk_options *options = &disk->options;
    const struct format_layout *layout = &disk->layout;
    uint32_t max_slots = (uint32_t)(options->granule_bytes / options->min_block_bytes);
    struct format_layout wanted;
    uint64_t least,
        bytes = files->is_device ? layout->file_bytes : files->physical_bytes + files->lock_bytes;

    if (layout->granule_bytes != options->granule_bytes || layout->max_slots != max_slots)
        return disk_error(out_error, -EINVAL,
                          "%s was laid out for granules of %" PRIu64 " bytes and %" PRIu32
                          " slots, not %" PRIu64 " and %" PRIu32
                          ": set these, or remove `blocks` to begin anew",
                          options->path, layout->granule_bytes, layout->max_slots,
                          options->granule_bytes, max_slots);
    if (bytes > options->max_bytes)
        return disk_error(out_error, -EDQUOT,
                          "%s has %" PRIu64 " bytes, the ceiling is %" PRIu64
                          ": raise it, or remove `blocks` to begin anew",
                          options->path, bytes, options->max_bytes);
    if (format_layout_fit(&wanted, options->granule_bytes, max_slots, options->max_bytes, &least) &&
        wanted.num_granules > layout->num_granules + layout->num_granules / 128 + 1)
        disk_fallback_enter(&disk->fallbacks, DISK_FALLBACK_SMALLER, 0);
    return 0;
}

static int open_files(struct disk *disk, char *out_error)
{
    struct disk_files files;
    char name[PATH_MAX];
    int err = disk_files_open(disk->system, disk->options.path, false, &files, out_error);
    if (err)
        return err;

    disk->lock_fd = files.lock_fd;
    disk->table_fd = files.table_fd;
    disk->is_device = files.is_device;
    disk->lock_bytes = files.lock_bytes;
    err = disk_superblock_read(disk->system, &files, disk->options.path, &disk->layout, out_error);
    if (err == FORMAT_EMPTY)
        err = lay_out(disk, &files, out_error);
    else if (!err)
        err = check_layout(disk, &files, out_error);
    if (err)
        return err;

    (void)snprintf(name, sizeof(name), files.is_device ? "%s" : "%s/blocks", disk->options.path);
    if (!disk->options.without_direct)
        disk->data_fd = disk->system->open(name, O_RDWR | O_DIRECT | O_CLOEXEC | O_NOFOLLOW, 0);
    if (disk->data_fd < 0)
        disk_fallback_enter(&disk->fallbacks, DISK_FALLBACK_NO_DIRECT,
                            disk->options.without_direct ? 0 : -errno);
    return 0;
}

/* --- tables --- */

static int read_granules(struct disk *disk, char *out_error)
{
    const struct format_layout *layout = &disk->layout;
    int err =
        disk_read_all(disk->system, disk->table_fd, disk->granules,
                      layout->num_granules * sizeof(*disk->granules), layout->granules_offset);
    if (err)
        return disk_error(out_error, err, "%s: its table of granules cannot be read: %s",
                          disk->options.path, strerror(-err));

    for (uint32_t i = 0; i < layout->num_granules; i++) {
        if (format_granule_verify(&disk->granules[i], layout, i) == 0) {
            disk->granule_states[i] = GRANULE_USED;
            disk->stats.used_granules++;
        } else {
            disk->granules[i] = (struct format_granule){0};
        }
    }
    return 0;
}

static int allocate_tables(struct disk *disk)
{
    const struct disk_syscalls *system = disk->system;
    const struct format_layout *layout = &disk->layout;
    size_t num_slots = (size_t)layout->num_granules * layout->max_slots;

    disk->granules = system->calloc(layout->num_granules, sizeof(*disk->granules));
    disk->granule_states = system->calloc(layout->num_granules, 1);
    disk->granule_ops = system->calloc(layout->num_granules, sizeof(*disk->granule_ops));
    disk->hashes = system->calloc(num_slots, sizeof(*disk->hashes));
    disk->uses = system->calloc(num_slots, 1);
    disk->ops = system->calloc(disk->options.max_operations, sizeof(*disk->ops));
    if (!disk->granules || !disk->granule_states || !disk->granule_ops || !disk->hashes ||
        !disk->uses || !disk->ops)
        return -ENOMEM;
    for (uint32_t i = 0; i < disk->options.max_operations; i++)
        disk_list_push(&disk->free_ops, &disk->ops[i].item);
    disk->num_free_ops = disk->options.max_operations;
    return 0;
}

static int prepare_lane(struct disk *disk)
{
    struct disk_lane *lane = &disk->lane;
    const struct disk_options *options = &disk->options;
    uint32_t more = lane_for_reads(options->queue_depth);

    lane->system = disk->system;
    lane->options = options;
    lane->layout = &disk->layout;
    lane->hashes = hash_choose();
    lane->fallbacks = &disk->fallbacks;
    lane->to_owner = &disk->to_owner;
    lane->is_direct = disk->data_fd >= 0;
    lane->table_fd = disk->table_fd;
    lane->data_fd = lane->is_direct ? disk->data_fd : disk->table_fd;
    lane->num_buffers = lane->num_free = options->num_buffers + more;
    lane->buffer_bytes =
        ((uint64_t)options->max_block_bytes + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
    lane->incoming.event_fd = disk->system->eventfd(0, EFD_CLOEXEC); /* it blocks: see the ring */
    if (lane->incoming.event_fd < 0)
        return -errno;
    lane->free_buffers = disk->system->calloc(lane->num_buffers, sizeof(*lane->free_buffers));
    if (!lane->free_buffers)
        return -ENOMEM;
    for (uint32_t i = 0; i < lane->num_buffers; i++)
        lane->free_buffers[i] = lane->num_buffers - 1 - i;
    char *buffers = disk->system->mmap(NULL, lane->num_buffers * lane->buffer_bytes,
                                       PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED)
        return -errno;
    lane->buffers = buffers;
    (void)madvise(buffers, lane->num_buffers * lane->buffer_bytes, MADV_DONTDUMP);
    /* An I/O is then of a few long segments: with 4 KiB pages 256 KiB were read half as fast. */
    (void)madvise(buffers, lane->num_buffers * lane->buffer_bytes, MADV_HUGEPAGE);
    lane->engine_options = (struct disk_engine_options){
        .system = disk->system,
        .wake_fd = lane->incoming.event_fd,
        .depth = options->queue_depth + more + LANE_MAX_HEADERS + LANE_MAX_GRANULE_OPS + 1,
        .num_threads = options->num_threads,
        .buffers = buffers,
        .buffer_bytes = lane->buffer_bytes,
        .num_buffers = lane->num_buffers,
    };
    return 0;
}

static uint64_t random_generation(void)
{
    uint64_t number = 0;
    struct timespec now;

    if (getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number))
        return number;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int start(struct disk *disk, char *out_error)
{
    const char *path = disk->options.path;

    disk->to_owner.event_fd = disk->system->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int err = disk->to_owner.event_fd < 0 ? -errno : allocate_tables(disk);
    if (!err)
        err = prepare_lane(disk);
    if (err)
        return disk_error(out_error, err,
                          "%s: no memory or descriptors for its tables and buffers (%s): lower "
                          "num_buffers, queue_depth or max_bytes, or raise min_block_bytes",
                          path, strerror(-err));
    err = read_granules(disk, out_error);
    if (err)
        return err;
    disk->next_generation = random_generation();
    err = disk_lane_start(&disk->lane, disk->options.deadline_ms);
    if (err == -ETIMEDOUT)
        return disk_error(out_error, err,
                          "%s: a write and read of 4 KiB took over %" PRIu32
                          " ms: see whether the disk is healthy",
                          path, disk->options.deadline_ms);
    if (err)
        return disk_error(out_error, err,
                          "%s: a write and read of 4 KiB failed (%s): see whether the disk is "
                          "healthy and has room",
                          path, strerror(-err));
    return 0;
}

int disk_open_with(const struct disk_options *options, const struct disk_syscalls *system,
                   struct disk **out_disk, char *out_error)
{
    struct disk_options filled = *options;

    set_defaults(&filled);
    const char *wrong = wrong_option(&filled);
    if (wrong)
        return disk_error(out_error, -EINVAL, "%s", wrong);
    struct disk *disk = system->calloc(1, sizeof(*disk));
    if (!disk)
        return disk_error(out_error, -ENOMEM, "no memory");

    disk->system = system;
    disk->options = filled;
    disk->lock_fd = disk->table_fd = disk->data_fd = -1;
    disk->to_owner.event_fd = disk->lane.incoming.event_fd = -1;
    disk->scanner.system = system;
    int err = open_files(disk, out_error);
    if (!err)
        err = start(disk, out_error);
    if (err) {
        (void)disk_close(disk);
        return err;
    }
    disk->options.path = NULL; /* the caller's */
    *out_disk = disk;
    return 0;
}

int disk_open(const struct disk_options *options, struct disk **out_disk, char *out_error)
{
    return disk_open_with(options, &disk_syscalls, out_disk, out_error);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

int disk_close(struct disk *disk)
{
    if (!disk)
        return 0;
    uint32_t timeout_ms = disk->options.deadline_ms;
    int err = disk_scanner_stop(&disk->scanner, timeout_ms);
    int lane_err = disk_lane_stop(&disk->lane, timeout_ms);
    if (err || lane_err)
        return -ETIMEDOUT; /* threads have all of it, for good */

    if (disk->lane.buffers)
        (void)munmap(disk->lane.buffers, disk->lane.num_buffers * disk->lane.buffer_bytes);
    free(disk->lane.free_buffers);
    close_fd(disk->lane.incoming.event_fd);
    close_fd(disk->to_owner.event_fd);
    close_fd(disk->data_fd);
    close_fd(disk->table_fd);
    close_fd(disk->lock_fd);
    free(disk->ops);
    free(disk->uses);
    free(disk->hashes);
    free(disk->granule_ops);
    free(disk->granule_states);
    free(disk->granules);
    free(disk);
    return 0;
}
