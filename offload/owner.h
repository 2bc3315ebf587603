/* offload/owner.h - internal: the owner's side of a disk. */
#pragma once

#include "offload/lane.h"
#include "offload/scan.h"

enum granule_state {
    GRANULE_FREE,
    GRANULE_BEGINNING, /* its entry is being written */
    GRANULE_USED,
    GRANULE_ENDING, /* its entry is being written */
};

/* Of one slot. Zeros: no block that we know of. */
struct slot_hashes {
    uint64_t record; /* 0: no block */
    uint64_t data;   /* without a record 1: what a scan may find there is out of date */
};

/* What is under way in a slot. */
enum {
    SLOT_MAX_READERS = 253, /* the values before are their number */
    SLOT_QUARANTINED,       /* the kernel may write to it */
    SLOT_WRITTEN,
};

struct disk {
    const struct disk_syscalls *system;
    struct disk_options options; /* with all defaults filled in; the path is not kept */
    struct format_layout layout;
    bool is_new, is_device;
    int lock_fd, table_fd, data_fd;
    uint64_t lock_bytes;
    struct disk_fallback_set fallbacks;
    struct disk_queue to_owner;
    bool is_event_set; /* by the owner itself */
    struct disk_lane lane;
    struct disk_scanner scanner;

    struct format_granule *granules; /* their entries */
    uint8_t *granule_states;         /* enum granule_state */
    uint32_t *granule_ops;           /* that are not over or quarantined */
    uint64_t next_generation;
    struct slot_hashes *hashes; /* of max_slots for each granule, as is the next */
    uint8_t *uses;

    struct disk_op *ops; /* all of them */
    struct disk_list free_ops;
    uint32_t num_free_ops;
    struct disk_op *oldest, *newest; /* that are not ended */
    struct disk_op *first_told, *last_told;
    struct disk_list done; /* given back by the lane */
    struct disk_op probe;
    bool is_probing;

    uint64_t now_ns, probed_ns;
    uint32_t num_failures; /* in a row */
    struct disk_stats stats;
};

int disk_open_with(const struct disk_options *options, const struct disk_syscalls *system,
                   struct disk **out_disk, char *out_error);

/* --- open.c: shared with check.c --- */

struct disk_files {
    int lock_fd, table_fd;
    bool is_device;
    uint64_t bytes, physical_bytes, lock_bytes;
};

/* @err, after saying in @out_error what is wrong and what to do. */
int disk_error(char *out_error, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens and locks what is at @path, without changing it if @is_reader. Closed by the next one. */
int disk_files_open(const struct disk_syscalls *system, const char *path, bool is_reader,
                    struct disk_files *out_files, char *out_error);
void disk_files_close(struct disk_files *files);

/* 0 or FORMAT_EMPTY, or an error with its text. */
int disk_superblock_read(const struct disk_syscalls *system, const struct disk_files *files,
                         const char *path, struct format_layout *out_layout, char *out_error);

/* Reads all of it: -EIO if there is less. */
int disk_read_all(const struct disk_syscalls *system, int fd, void *buffer, size_t bytes,
                  uint64_t offset);

/* --- disk.c --- */

size_t disk_slot_number(const struct disk *disk, struct disk_slot slot);
uint32_t disk_num_slots(const struct disk *disk, uint32_t granule);
void disk_take_items(struct disk *disk); /* from the lane and the scan */
void disk_keep_event(struct disk *disk); /* after them, if some were not taken */

/* --- state.c --- */

/* 0: go on. Otherwise what the state of the disk has to say to it. */
int disk_state_refuses(struct disk *disk, bool is_write);
void disk_state_note(struct disk *disk, int status, bool is_write); /* how an operation ended */
void disk_state_probe(struct disk *disk);                           /* if it is time for it */
void disk_state_probed(struct disk *disk);
