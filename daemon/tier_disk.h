/*
 * daemon/tier_disk.h - the disk tier: opened beside the loop, its granules given to arenas, its
 * states told to the pool, what an earlier life left on it restored.
 *
 * A disk that is being opened, or has failed, is OFF in the pool; one that is full or read-only is
 * READ_ONLY. It is on again by itself once it answers.
 */
#pragma once

#include "daemon/source.h"
#include "offload/disk.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct server;
struct lower_arena;
struct lower_granule;
struct disk_opening;

enum tier_disk_phase {
    TIER_DISK_NONE,       /* not configured, or given up (disk-optional) */
    TIER_DISK_OPENING,    /* a thread waits for the disk */
    TIER_DISK_RECOVERING, /* in use; headers of before are being read */
    TIER_DISK_READY,
    NUM_TIER_DISK_PHASES
};

/* A granule of an earlier life: which of an arena's it is now. */
struct restored_granule {
    bool is_claimed;
    uint32_t arena, granule;
};

struct tier_disk {
    enum tier_disk_phase phase;
    struct disk *disk;
    struct disk_opening *opening;
    struct source source, opened;
    enum disk_state state;
    uint32_t num_granules;
    uint32_t *free_granules; /* a ring: what was refused goes to its end */
    uint32_t first_free, num_free;
    struct restored_granule *restored; /* by the disk's granule; NULL: recovery is over */
    uint64_t next_tick_ms, opened_ms, recovered_ms;
    bool is_late; /* it was not there when the daemon began to answer */
    struct {
        uint64_t restored_blocks, restored_granules;
        uint64_t dropped_blocks;   /* of an earlier epoch, twice there, or with no record of ours */
        uint64_t foreign_granules; /* of models or domains that are no more */
        uint64_t scanned, to_scan; /* headers */
    } recovery;
};

/* For tests: the next disk is opened with these. */
extern const struct disk_faults *tier_disk_faults;

/* What disk_open() will have; 0: there is no disk tier. */
uint32_t tier_disk_granules(const struct config *config);

/* Begins to open it. */
int tier_disk_start(struct server *server);
/* Waits for it a moment: negative errno if it cannot be had, and has to. */
int tier_disk_await(struct server *server);
void tier_disk_finish(struct server *server);

static inline bool tier_disk_is_busy(const struct tier_disk *disk)
{
    return disk->phase == TIER_DISK_OPENING || disk->phase == TIER_DISK_RECOVERING;
}

/* As gpu_commit() and gpu_decommit(). -EAGAIN: no granule is free yet. */
int tier_disk_commit(struct server *server, const struct lower_arena *arena,
                     struct lower_granule *granule, uint64_t cookie);
int tier_disk_decommit(struct server *server, struct lower_granule *granule, uint64_t cookie);
/* Its memory is gone. */
void tier_disk_left(struct server *server, struct lower_granule *granule);

/* Takes completions, and what the scan found. Whether there was anything. */
bool tier_disk_reap(struct server *server);
void tier_disk_tick(struct server *server);

/* Free granules that lie in a row, at most. */
uint64_t tier_disk_largest_run(const struct tier_disk *disk);

const char *tier_disk_phase_name(enum tier_disk_phase phase);
