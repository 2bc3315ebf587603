/* offload/lane.h - internal: the thread that does a disk's I/O.
 *
 * The owner hands it operations and gets them back when they are over. In between an operation has
 * a phase that both change, so that the owner can end what the disk does not:
 *
 *     QUEUED -> KERNEL -> BUSY -> ENDED              a read
 *     QUEUED -> BUSY -> QUEUED -> KERNEL -> ENDED    a write
 *     QUEUED -> KERNEL -> ENDED                      all others
 *     QUEUED, KERNEL -> LEFT                         the owner has ended it
 *
 *  L1  The caller's memory is touched only while BUSY, and only the lane leaves BUSY.
 *  L2  Only the lane frees buffers, and only when the kernel has given them back.
 */
#pragma once

#include "offload/engine.h"
#include "offload/fallback.h"
#include "offload/format.h"
#include "offload/hash.h"

#include <semaphore.h>

enum {
    LANE_MAX_HEADERS = 64,    /* of a batch: one is under way */
    LANE_MAX_GRANULE_OPS = 8, /* in the kernel */
};

enum disk_op_kind {
    OP_WRITE,
    OP_READ,
    OP_GRANULE, /* its entry in the table is written */
    OP_ERASE,   /* headers are cleared */
    OP_PROBE,   /* the scratch area is written and read back */
    NUM_OP_KINDS,
};

enum disk_op_phase {
    PHASE_QUEUED, /* the kernel does not know of it */
    PHASE_BUSY,   /* bytes are copied or verified */
    PHASE_KERNEL, /* or waits for others that are in the kernel */
    PHASE_ENDED,
    PHASE_LEFT, /* ended by the owner: the lane gives it back as soon as it can */
};

struct disk_op {
    struct disk_item item; /* first */
    enum disk_op_kind kind;
    _Atomic int phase; /* enum disk_op_phase */
    struct disk_request request;
    void *memory; /* the caller's: source of a write, destination of a read */
    uint32_t bytes;
    uint64_t offset;      /* of the data, or of the granule's entry */
    uint64_t record_hash; /* as is the next, given with reads, found out by writes */
    uint64_t data_hash;
    int status;
    bool is_counted; /* what failed was an I/O that ended another operation too */

    /* the owner's */
    struct disk_op *older, *newer; /* of those that are not ended */
    uint64_t cookie, deadline_ns;
    struct disk_slot slot;
    struct disk_op *next_told;
    bool is_told; /* of its end, before the lane gave it back */
    int told_status;
    bool is_quarantined;
    bool was_in_kernel;
    bool is_cancelled; /* wanted, as soon as it is not BUSY */
    bool is_use;       /* OP_GRANULE: of disk_granule_use() */

    uint32_t num_slots; /* of OP_ERASE */
    union {
        struct format_header header; /* OP_WRITE: all but the hash of the data is set */
        struct format_granule granule;
        struct disk_slot slots[DISK_MAX_BATCH];
    };
};

/* One header to be written, or cleared. */
struct lane_header {
    uint64_t offset;
    uint32_t order;           /* of two for one slot the later one counts */
    const struct disk_op *op; /* OP_WRITE, OP_ERASE */
    int status;
};

struct lane_run { /* headers side by side */
    struct disk_request request;
    struct disk_lane *lane;
    uint32_t first, num;
};

struct lane_headers {
    struct disk_list waiting; /* operations */
    struct disk_list ops;     /* of the batch under way */
    struct lane_header headers[LANE_MAX_HEADERS];
    struct format_header images[LANE_MAX_HEADERS];
    struct lane_run runs[LANE_MAX_HEADERS];
    uint32_t num, num_running;
};

/* Writes the scratch area and reads it back. */
struct lane_probe {
    struct disk_request request;
    struct disk_op *op; /* NULL: at the start */
    uint64_t number;    /* so that what was there before is not taken for it */
    char *buffer;
    bool is_over;
    int status;
};

struct disk_lane {
    const struct disk_syscalls *system;
    const struct disk_options *options; /* with all defaults filled in */
    const struct format_layout *layout;
    const struct hash_kernel *hashes;
    struct disk_fallback_set *fallbacks;
    struct disk_queue *to_owner;
    struct disk_queue incoming; /* its event ends the engine's wait */
    int data_fd, table_fd;
    bool is_direct;

    struct disk_engine_options engine_options;
    struct disk_engine *engine;
    char *buffers;
    uint64_t buffer_bytes;
    uint32_t num_buffers, num_free;
    uint32_t *free_buffers; /* the first num_free */

    struct disk_list reads, writes, granules, probes; /* that wait */
    struct disk_list copied;                          /* writes that are in a buffer */
    struct disk_list to_verify;                       /* reads that are */
    struct disk_list held, answered;                  /* requests: by a fault; not yet looked at */
    uint32_t num_in_kernel;                           /* all, as are those held */
    uint32_t num_blocks;                              /* of these: data of blocks */
    uint64_t write_bytes;                             /* of these: that are written */
    uint64_t beside_reads_bytes;                      /* writes of so much give way to reads */
    uint32_t num_granule_ops;
    struct lane_headers headers;
    struct lane_probe probe;

    pthread_t thread;
    bool has_thread;
    sem_t started;
    int start_status;
    _Atomic bool is_stopping;

    /* read by the owner */
    _Atomic uint32_t seen_in_kernel, seen_free;
    _Atomic uint64_t header_writes, physical_bytes;
};

/* --- lane.c: the owner's side --- */

/* Starts the thread, which chooses engine and O_DIRECT by trying them. -ETIMEDOUT: it did not get
 * an answer from the disk; then the thread has the lane for good. */
int disk_lane_start(struct disk_lane *lane, uint32_t timeout_ms);

/* Drops what is queued. -ETIMEDOUT: as above. */
int disk_lane_stop(struct disk_lane *lane, uint32_t timeout_ms);

void disk_lane_submit(struct disk_lane *lane, struct disk_op *op);

/* --- lane.c: the lane's side --- */

struct disk_op *disk_op_of(struct disk_item *item);

/* Of the depth, and of the buffers, that reads have for themselves. */
uint32_t lane_for_reads(uint32_t queue_depth);

/* Moves the phase unless the owner has left the operation. */
bool lane_enter(struct disk_op *op, enum disk_op_phase from, enum disk_op_phase to);
void lane_end(struct disk_lane *lane, struct disk_op *op, int status);

/* Starts the I/O that @request says; its end() is called from a later pass. */
void lane_request(struct disk_lane *lane, struct disk_request *request);

/* Submits, waits, and calls end() of the requests that are over. */
void lane_run(struct disk_lane *lane, int timeout_ms);

/* --- blocks.c --- */

void blocks_start_reads(struct disk_lane *lane); /* all that there is room for */
void blocks_start_writes(struct disk_lane *lane);
bool blocks_have_work(const struct disk_lane *lane);
void blocks_work(struct disk_lane *lane); /* a slice of copying and verifying */

/* --- headers.c --- */

void headers_add(struct disk_lane *lane, struct disk_op *op);
void headers_start(struct disk_lane *lane); /* the next batch, unless one is under way */

/* --- probe.c --- */

void probe_start(struct disk_lane *lane, struct disk_op *op, char *buffer, uint32_t buffer_number);
int probe_choose(struct disk_lane *lane); /* at the start: engine and O_DIRECT */
