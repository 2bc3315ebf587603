/* offload/disk.h - the disk tier: fixed slots in one preallocated file or block device.
 *
 * The same manners as gpu/gpu.h: calls queue work and return, what they queued ends as a
 * completion, and nothing here waits for the disk. One thread, the owner, makes every call on a
 * disk. Its loop watches disk_event_fd(), takes completions with disk_reap(), and calls disk_tick()
 * about ten times a second. Operations are carried out in no promised order: what depends on
 * another waits for its completion.
 *
 * Space is cut into granules of equal bytes; a granule in use is cut into slots of one stride.
 * Slots of a granule count from 0. A slot holds one block and a record that says what the block is.
 * Both are opaque here; so is the record of a granule, which says whose it is. What is read back is
 * exactly what was written with that record, or the read fails: no other byte reaches the caller.
 *
 * Calls return 0, a negative errno, or DISK_BUSY.
 */
#pragma once

#include "gpu/gpu.h"

struct disk;

enum disk_answer {
    DISK_BUSY = 1, /* no operation record, or max_store_bytes are queued: reap, then try again */
};

enum {
    DISK_ALIGN = 4096,             /* granules and strides are multiples of it, in bytes */
    DISK_MAX_RECORD_BYTES = 448,   /* of a slot */
    DISK_MAX_OWNER_BYTES = 128,    /* of a granule */
    DISK_MAX_SLOTS = 1 << 16,      /* of a granule, at the smallest stride */
    DISK_MAX_BATCH = 64,           /* slots of one disk_erase() */
    DISK_MAX_DEPTH = 256,          /* I/Os in the kernel */
    DISK_MAX_OPERATIONS = 1 << 16, /* operations not yet reaped */
    DISK_ERROR_BYTES = 512,        /* fits every error text of this header */
};

/* --- the disk --- */

enum disk_engine_choice {
    DISK_ENGINE_BEST,    /* io_uring; threads where that cannot be had (a named fallback) */
    DISK_ENGINE_THREADS, /* pread and pwrite in threads, whatever this process may do */
};

struct disk_options {
    const char *path;       /* a directory that exists (files in it: `blocks`, `lock`), or a
                             * block device, which must be empty (zeros) or laid out before */
    uint64_t max_bytes;     /* hard ceiling in physical bytes, of all that is kept there. Needed */
    uint64_t granule_bytes; /* multiple of DISK_ALIGN */
    uint32_t
        min_block_bytes; /* smallest stride, multiple of DISK_ALIGN: space for headers follows */
    uint32_t max_block_bytes; /* largest block: each bounce buffer is that large */
    uint32_t queue_depth;     /* I/Os in the kernel at most; 0: 32 */
    uint32_t num_buffers;     /* bounce buffers, pinned where allowed; 0: queue_depth + 8 */
    uint32_t max_operations;  /* queued and not yet reaped; 0: 1,024 */
    uint64_t max_store_bytes; /* of writes that are not yet over; 0: 4 times all buffers */
    enum disk_engine_choice engine;
    bool without_direct;  /* through the page cache, whatever the file system can do */
    uint32_t num_threads; /* of DISK_ENGINE_THREADS; 0: 4 */
    uint32_t deadline_ms; /* an operation without an end after it ends as -ETIMEDOUT; 0: 10,000 */
    uint32_t probe_ms;    /* a disk that is not DISK_OK is tried again so often; 0: 1,000 */
    const struct disk_faults *faults; /* NULL but in tests. It stays until disk_close() */
};

/*
 * Takes the lock, lays the file out if it is new, and tries a real write and read, which says what
 * engine and whether O_DIRECT can be used: disk_fallbacks(). Reads no header: disk_scan_start().
 * May wait for the disk: not for a loop that has clients.
 *
 * On failure @out_error (DISK_ERROR_BYTES) says what is wrong and what to do about it. -EINVAL: an
 * option, or another layout than the file's. -EBUSY: another process has it, named by its pid.
 * -EPROTO: no file of ours, or of another version. -EDQUOT: it has more than max_bytes. -ENOSPC,
 * -EROFS, -EACCES and the like come from the system.
 */
int disk_open(const struct disk_options *options, struct disk **out_disk, char *out_error);

/*
 * Drops what is queued, waits deadline_ms for what the kernel has, makes the rest durable and lets
 * go of the lock. -ETIMEDOUT: the kernel has not given back all buffers; they, a thread and the
 * lock stay as they are until the process ends, or this is called again. Takes NULL.
 */
int disk_close(struct disk *disk);

/* Readable while there is something to reap (completions or scanned headers), and now and then when
 * there is not. The disk's own: not to be read or closed. */
int disk_event_fd(const struct disk *disk);

struct disk_layout {
    uint32_t num_granules;
    uint64_t granule_bytes;
    uint32_t max_slots;  /* of a granule, at the smallest stride */
    uint64_t file_bytes; /* size of the file, or the part of the device that is used */
    bool is_new;         /* laid out by this disk_open(): there is nothing to scan */
};

void disk_layout(const struct disk *disk, struct disk_layout *out_layout);

/* What disk_open() lays out, or takes as it was laid out, with these options: no system call.
 * -EINVAL: an option, or not even one granule fits max_bytes. A block device may have less. */
int disk_plan(const struct disk_options *options, struct disk_layout *out_layout);

/* A way in which this disk is less than it should be: answers how many, the first @max in @out. */
size_t disk_fallbacks(const struct disk *disk, struct gpu_fallback *out, size_t max);

/* --- granules --- */

struct disk_granule {
    bool is_used;          /* also while disk_granule_use() is under way, not yet a completion */
    uint32_t stride_bytes; /* of used ones, as are the next three */
    uint32_t num_slots;
    uint32_t owner_bytes;
    uint8_t owner[DISK_MAX_OWNER_BYTES];
};

/* After disk_open(): the granules as the earlier life left them. -EINVAL: no such granule. */
int disk_granule_describe(const struct disk *disk, uint32_t granule,
                          struct disk_granule *out_granule);

/*
 * Queued: the granule is used with this stride and owner record; nothing that was in it is found
 * any more, by reads or scans. Slots can be written after its completion. If that has a status, the
 * granule is free. -EALREADY: it is used. -EBUSY: an operation on it is not reaped, or quarantined.
 * -EINVAL: granule, stride (min_block_bytes up to the granule, multiple of DISK_ALIGN) or record.
 */
int disk_granule_use(struct disk *disk, uint32_t granule, uint32_t stride_bytes, const void *owner,
                     size_t owner_bytes, uint64_t cookie);

/*
 * Queued: the granule is free and its blocks are gone, whatever the status: with one, a scan of the
 * next life may find them again. -EALREADY: it is. -EBUSY: as above.
 */
int disk_granule_free(struct disk *disk, uint32_t granule, uint64_t cookie);

/* --- blocks --- */

struct disk_slot {
    uint32_t granule;
    uint32_t index; /* 0 .. num_slots - 1 */
};

/*
 * Queued: @bytes of @memory become the block of the slot, @record (copied at once) its record; both
 * are on the disk, header after data, when it completes with 0. From the call on until then the
 * slot has no block, and none after a status. @memory, of any alignment, stays as it is until the
 * completion and is not looked at after it.
 *
 * -EINVAL: no slot of a used granule, 0 bytes or over its stride or max_block_bytes, a record that
 * is too long. -EBUSY: the slot is being written or read, or quarantined. -ENOSPC, -EROFS, -EIO:
 * the state of the disk (FULL, READ_ONLY, FAILING), nothing was queued.
 */
int disk_write(struct disk *disk, struct disk_slot slot, const void *memory, uint32_t bytes,
               const void *record, size_t record_bytes, uint64_t cookie);

/*
 * Queued: the block of the slot, of which @bytes is the length, comes to @memory. It is verified
 * before the first byte does: with a status @memory is untouched. Status -EBADMSG: what is on the
 * disk is not what was written; the slot has no block any more. -ENODATA: the slot has no block.
 * -EINVAL: as above. -EBUSY: the slot is being written, or quarantined; reads of one slot may be
 * under way together. -EIO: the disk is FAILING.
 */
int disk_read(struct disk *disk, struct disk_slot slot, void *memory, uint32_t bytes,
              uint64_t cookie);

/*
 * The slots have no block from now on; their headers are cleared some time later, with no
 * completion (a crash before leaves blocks that a scan finds again). Slots that are written, read
 * or quarantined are left as they are: erase them after. At most DISK_MAX_BATCH.
 */
void disk_erase(struct disk *disk, const struct disk_slot *slots, size_t num_slots);

/*
 * Ends the operation: its completion comes soon, with -ECANCELED, or with what it came to in the
 * meantime. -ENOENT: none that is queued or running has this cookie.
 */
int disk_cancel(struct disk *disk, uint64_t cookie);

enum disk_completion_kind {
    DISK_ENDED,    /* the operation is over, exactly once */
    DISK_RELEASED, /* the kernel has given back what an ended one had left behind */
};

struct disk_completion {
    uint64_t cookie; /* as given with the operation */
    int status;      /* 0 or negative errno; 0 of DISK_RELEASED */
    enum disk_completion_kind kind;
    /*
     * Of DISK_ENDED with -ETIMEDOUT or -ECANCELED of a write (or of a granule's use or end): the
     * kernel may still write to the slot (the granule's entry). It is quarantined, its calls say
     * -EBUSY, until a DISK_RELEASED with the same cookie, which may never come. Otherwise there is
     * none. The caller's memory is its own in any case.
     */
    bool is_quarantined;
};

/* Ends operations that are over their deadline. @now_ns: CLOCK_MONOTONIC. No system call. */
void disk_tick(struct disk *disk, uint64_t now_ns);

/* Answers up to @max completions. No allocation, no lock; no system call if there is none. */
size_t disk_reap(struct disk *disk, struct disk_completion *out, size_t max);

/* --- what an earlier life left --- */

struct disk_found {
    struct disk_slot slot;
    uint32_t bytes; /* of the block: verified when it is read */
    uint32_t record_bytes;
    const void *record;
};

/*
 * Starts a thread that reads the headers of all granules that were in use at disk_open(). Once.
 * What is found is given out by disk_scan_reap() only: blocks that were not can't be read, and
 * slots may be written meanwhile. Those that were written or erased first are not given out.
 */
int disk_scan_start(struct disk *disk);

/* Answers up to @max found blocks, which can be read from now on; those that are not wanted are to
 * be erased. Their records are valid until the next call. */
size_t disk_scan_reap(struct disk *disk, struct disk_found *out, size_t max);

struct disk_scan {
    bool is_over;            /* everything has been reaped */
    uint64_t num_headers;    /* to be read */
    uint64_t num_read;       /* so far */
    uint64_t num_found;      /* valid, given out or not */
    uint64_t num_damaged;    /* neither valid nor empty: torn or spoilt. Their slots are free */
    uint64_t num_unreadable; /* the disk gave an error */
    int status;              /* of the last error, or 0 */
};

void disk_scan_progress(const struct disk *disk, struct disk_scan *out_scan);

/* --- how it is --- */

enum disk_state {
    DISK_OK,
    DISK_FULL,      /* ENOSPC or EDQUOT: writes are refused */
    DISK_READ_ONLY, /* EROFS: writes are refused */
    DISK_FAILING,   /* many errors or timeouts in a row: everything is refused */
    NUM_DISK_STATES,
};

const char *disk_state_name(enum disk_state state); /* "ok", "full", "read-only", "failing" */

/* Counters since disk_open(), and gauges. */
struct disk_stats {
    enum disk_state state;
    int state_reason;        /* the errno that led to it, negative, or 0 */
    uint64_t physical_bytes; /* of the file (st_blocks), a second old at most; 0 of a device */
    uint64_t max_bytes;
    uint32_t used_granules;
    uint64_t queued_bytes;          /* gauge: writes that are not over */
    uint32_t num_queued;            /* gauge: operations that are not over */
    uint32_t num_in_kernel;         /* gauge: I/Os */
    uint32_t num_quarantined;       /* gauge: operations that were ended and not released */
    uint32_t free_buffers;          /* gauge */
    uint64_t writes, written_bytes; /* that ended with 0, as are the next */
    uint64_t reads, read_bytes;
    uint64_t erases;
    uint64_t header_writes;                 /* I/Os: one holds the headers of many slots */
    uint64_t write_failures, read_failures; /* ended with a status that is not listed below */
    uint64_t corrupt;                       /* reads that did not verify */
    uint64_t timeouts;
    uint64_t cancelled;
    uint64_t busy;           /* answers DISK_BUSY */
    uint64_t refused;        /* calls answered by the state */
    uint64_t erases_skipped; /* headers left uncleared, since no record was free */
    uint64_t probes, state_changes;
};

void disk_stats(const struct disk *disk, struct disk_stats *out_stats);

/* --- offline: fsck --- */

struct disk_problem {
    const char *part;      /* "granule", "header", "data" */
    struct disk_slot slot; /* index of the last two only */
    const char *text;      /* what is wrong */
};

struct disk_check {
    uint64_t granules_used, granules_damaged;
    uint64_t headers_valid;            /* of granules in use, as are the next */
    uint64_t headers_stale;            /* of an earlier use of the granule: no block, no harm */
    uint64_t headers_damaged;          /* torn or spoilt: no block, no harm */
    uint64_t data_valid, data_damaged; /* with @with_data: a read of these is a miss */
    uint64_t unreadable_bytes;
    uint64_t file_bytes, physical_bytes;
};

/*
 * Reads a directory or device that nobody has open and changes nothing. Calls @report (may be NULL)
 * for each problem. 0: read to the end, problems or not. -ENODATA: nothing was ever laid out in it.
 * Other errors and @out_error as disk_open(): what keeps all of it from being read, a superblock
 * above all, is said there alone.
 */
int disk_check(const char *path, bool with_data,
               void (*report)(void *state, const struct disk_problem *problem), void *state,
               struct disk_check *out_check, char *out_error);

/* --- faults, for tests --- */

enum disk_io_kind {
    DISK_IO_DATA,
    DISK_IO_HEADER, /* of one or more slots */
    DISK_IO_GRANULE,
    DISK_IO_SCRATCH, /* the probe's */
};

/* One read or write as the kernel would get it. */
struct disk_io {
    enum disk_io_kind kind;
    bool is_write;
    uint64_t offset; /* in the file */
    uint32_t bytes;
    void *buffer; /* the bounce buffer: a hook may change what is in it */
};

enum { DISK_FAULT_HOLD = 1 };

/* Called in the thread that does the I/O, never in the owner's. Either may be NULL. */
struct disk_faults {
    void *state;
    /* Before the kernel gets it. 0: go on. Negative errno: it ends with this, the kernel is not
     * asked. DISK_FAULT_HOLD: it counts as being in the kernel, and is asked about again in a
     * millisecond. */
    int (*begin)(void *state, const struct disk_io *io);
    /* After the kernel had it: answers the result to go on with, @result being the bytes it did or
     * a negative errno. */
    int (*end)(void *state, const struct disk_io *io, int result);
};
