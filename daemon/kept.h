/*
 * daemon/kept.h - the arenas that an earlier daemon left, sorted out of what its keeper had.
 *
 * The keeper knows names and descriptors. "mount.TIER" is the mount of a tier's device; "N.file",
 * "N.reader" (of shared arenas) and "N.records" are arena N, numbers being used once. What is not
 * whole, or not of this version, is removed from the keeper.
 */
#pragma once

#include "daemon/keep.h"
#include "daemon/records.h"

enum { KEPT_TIERS = 4 };

struct kept_arena {
    uint64_t number;
    struct gpu_arena_files files; /* fd -1: they were adopted, or closed */
    struct records *records;      /* NULL: likewise */
};

struct kept {
    int mount_fds[KEPT_TIERS]; /* -1: none */
    struct kept_arena *arenas;
    uint32_t num_arenas, num_dropped; /* names that were of no use */
    int problem; /* of the last one of them that could not be read: negative errno */
    uint64_t next_number;
};

/* Takes over the descriptors of keep_taken(). -ENOMEM: @out_kept is there, but has none of them,
 * and none is kept any more. */
int kept_sort(struct keep *keep, struct kept *out_kept);
void kept_finish(struct kept *kept); /* closes what nobody took over; the keeper still has it */

/* Hands an arena over to the keeper, under a number of its own. -errno of keep_add(): none of it.
 */
int kept_add(struct keep *keep, struct kept *kept, struct gpu_arena_files files,
             const struct records *records, uint64_t *out_number);
void kept_remove(struct keep *keep, uint64_t number);
int kept_add_mount(struct keep *keep, uint32_t tier, int fd);
void kept_remove_mount(struct keep *keep, uint32_t tier);

/* Closes one of the arenas, which stays where it is: others are known by their places. */
void kept_close(struct kept *kept, uint32_t at);
/* Closes one of the arenas, and takes it out; the last one gets its place. The keeper has it still.
 */
void kept_drop(struct kept *kept, uint32_t at);
