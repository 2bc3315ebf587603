/* offload/scan.h - internal: the threads that read what an earlier life left. */
#pragma once

#include "offload/format.h"
#include "offload/queue.h"
#include "offload/syscalls.h"

enum {
    SCAN_THREADS = 2,
    SCAN_BATCHES = 8,
    SCAN_BATCH_HEADERS = 128,
};

struct scan_batch {
    struct disk_item item; /* first */
    uint32_t num, num_taken;
    struct format_header headers[SCAN_BATCH_HEADERS];
};

struct disk_scanner {
    const struct disk_syscalls *system;
    const struct disk_faults *faults;
    const struct format_layout *layout;
    struct disk_queue *to_owner;
    int fd;
    struct format_granule *uses; /* that are to be read, in order; copies */
    uint32_t num_uses;
    _Atomic uint32_t next_use;
    pthread_t threads[SCAN_THREADS];
    uint32_t num_threads;
    _Atomic uint32_t num_running;
    _Atomic bool is_stopping;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool has_mutex;
    struct disk_list free_batches; /* under the mutex */
    struct scan_batch *batches;    /* all of them, and the one that ends the scan */

    /* the owner's */
    struct disk_list taken; /* not yet given out */
    struct disk_list given; /* their records may be in use until the next call */
    bool is_started, is_over;

    _Atomic uint64_t num_headers, num_read, num_found, num_damaged, num_unreadable;
    _Atomic int status;
};

/* @uses: its granules, is the scanner's from now on. */
int disk_scanner_start(struct disk_scanner *scanner, struct format_granule *uses,
                       uint32_t num_uses);

/* -ETIMEDOUT: a thread waits for the disk, and has the scanner for good. */
int disk_scanner_stop(struct disk_scanner *scanner, uint32_t timeout_ms);

void disk_scanner_give_back(struct disk_scanner *scanner); /* the batches in @given */
