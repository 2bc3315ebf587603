/* gpu/gpu.h - how bytes get into, out of and around one device, whichever backend is linked.
 *
 * Made for a GPU first: calls queue work and return, what they queued ends as a completion, and
 * nothing here waits for the device. One thread, the owner, makes every call on a device. Its loop
 * watches gpu_device_event_fd() and takes completions with gpu_device_reap(). Operations are
 * carried out in no promised order: what depends on another waits for its completion.
 *
 * A device has one budget of bytes, counted in pages. Arenas are named by numbers that the caller
 * chooses; whose they are is not known here. Slots of an arena count from 1, slot 0 is the null
 * block: address(slot) = base + (slot - 1) * stride.
 *
 * Calls return 0, a negative errno, or GPU_BUSY.
 */
#pragma once

#include "gpu/attend.h"
#include "gpu/granule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_device;

enum gpu_answer {
    GPU_BUSY = 1, /* every operation record is in use: reap, then try again */
};

enum {
    GPU_MAX_BATCH = 64,        /* slots of one copy or scrub */
    GPU_NO_ARENA = UINT32_MAX, /* memory that no arena accounts for */
};

/* --- the device --- */

/*
 * Called in the thread that commits and decommits, never in the owner's: @bytes at @address have
 * got memory, by a commit, an adoption or a move that is about to complete (@has_memory), or are
 * about to lose it.
 * @address is NULL when an arena is closed: @bytes of it had memory, and its mapping goes away.
 */
struct gpu_memory_hook {
    void *state;
    void (*changed)(void *state, void *address, uint64_t bytes, bool has_memory);
};

struct gpu_device_options {
    uint64_t budget_bytes;   /* ceiling of all arenas together, in whole pages */
    uint32_t page_bytes;     /* 2 MiB, or 64 KiB for small host pools */
    uint32_t max_arenas;     /* arena numbers are 0 .. max_arenas - 1 */
    uint32_t max_operations; /* queued and not yet reaped */
    uint64_t populate_bytes; /* of the budget: taken from the machine at once, in the background */
    bool without_mount;      /* take the memfd fallback, whatever this process may do */
    uint32_t num_workers; /* threads for attends too large for the owner's; 0: the owner does all */
    const int *worker_cpus;     /* NULL, or the CPU that each is pinned to */
    const char *attend_version; /* one of gpu_attention_version_name(); NULL: the best here */
    uint32_t attend_inline_us;  /* less work than this stays in the owner's thread; 0: 50 */
    const struct gpu_memory_hook *memory_hook; /* NULL, or who follows where memory is */
};

/*
 * Answers at once: memory is taken in the background (gpu_device_memory() tells how far it is).
 * -EINVAL: a size that is no multiple of the page, none, or over 65,536 operations. Host: needs
 * Linux 5.14, and handles SIGBUS as long as there is a device (at most 16: -EMFILE).
 */
int gpu_device_create(const struct gpu_device_options *options, struct gpu_device **out_device);

/* Waits for what is running, drops what is queued. Takes NULL. */
void gpu_device_destroy(struct gpu_device *device);

/* Readable while there are completions to reap, and now and then when there are none. The
 * device's own: not to be read or closed. */
int gpu_device_event_fd(const struct gpu_device *device);

struct gpu_completion {
    uint64_t cookie; /* as given with the operation */
    int status;      /* 0 or negative errno */
};

/* Ends up to @max operations. Hot path: no allocation, no lock; no system call if there is none. */
size_t gpu_device_reap(struct gpu_device *device, struct gpu_completion *out, size_t max);

struct gpu_memory {
    uint64_t budget_bytes;
    uint64_t charged_bytes;   /* granules that have, gain or lose memory: never over the budget */
    uint64_t populate_bytes;  /* asked for at start */
    uint64_t populated_bytes; /* taken from the machine so far: granules and reserve */
    int populate_status;      /* why population stopped before its end: negative errno, or 0 */
};

void gpu_device_memory(const struct gpu_device *device, struct gpu_memory *out_memory);

/* A way in which this device is less than it should be. */
struct gpu_fallback {
    const char *name;
    const char *cost; /* what it costs, and what would end it: for people */
    int reason;       /* negative errno, 0 if it was asked for */
};

/* Answers how many there are; the first @max of them are in @out. */
size_t gpu_device_fallbacks(const struct gpu_device *device, struct gpu_fallback *out, size_t max);

/* --- attention: plans and layers in gpu/attend.h --- */

/* What plans are made with: gpu_step_plan_create(). The device's own. */
struct gpu_attention *gpu_device_attention(const struct gpu_device *device);

/*
 * gpu_attend() whose end is a completion: 0 is done at once, without one; GPU_ATTEND_QUEUED is
 * followed by one with @cookie and the status. GPU_BUSY: no operation record is free. What the
 * blocks' arenas have come to meanwhile is the caller's to ask: gpu_arena_is_damaged().
 */
int gpu_device_attend(struct gpu_device *device, struct gpu_step_plan *plan,
                      const struct gpu_attend_layer *layer, uint64_t cookie);

/* --- arenas: memory that engines can map --- */

struct gpu_arena_options {
    struct gpu_granule granule;
    uint64_t block_bytes;  /* what a copy of a slot moves */
    uint32_t max_granules; /* address space is reserved for all of them */
    bool is_shared;        /* of a shared domain: can be exported read-only */
};

enum gpu_access {
    GPU_READ,  /* of shared arenas: a descriptor that not even root can turn into a writable one */
    GPU_WRITE, /* its holder can spoil the arena: write, punch and truncate. Only its own tenant */
};

/*
 * Reserves addresses; the arena has no memory yet. Host: takes one descriptor, two if shared, and
 * one mapping, of at most 64 TiB. -EEXIST: the number is in use. -EINVAL: the granule does not fit
 * the block or the page. -ENOMEM, -EMFILE and the like come from the system.
 */
int gpu_arena_open(struct gpu_device *device, uint32_t arena,
                   const struct gpu_arena_options *options);

/*
 * Queued. All memory of the arena goes back to the budget, also from under those that still map
 * it; then the number is free. -EBUSY: operations on this arena are not reaped yet. Close an
 * arena after those that were given it are gone: what they do to the file then is not seen by
 * number, only as GPU_NO_ARENA in gpu_device_check_excess().
 */
int gpu_arena_close(struct gpu_device *device, uint32_t arena, uint64_t cookie);

/* Its memory was pulled away from under the daemon by its own tenant: what it reads as is zeros. */
bool gpu_arena_is_damaged(const struct gpu_device *device, uint32_t arena);

/* The address of slot 1, the same as long as the arena is open. NULL if it is not. */
void *gpu_arena_base(const struct gpu_device *device, uint32_t arena);

/*
 * A new descriptor with its own file description, to be closed by the caller, never inherited.
 * -EINVAL: GPU_READ of an arena that is not shared.
 */
int gpu_arena_export(struct gpu_device *device, uint32_t arena, enum gpu_access access,
                     int *out_fd);

/*
 * Queued: memory for granule number @granule, zeroed and resident (commit), or back to the budget
 * (decommit). A granule that was decommitted reads as zero when it is committed again, for this
 * arena or another one: nothing crosses domains.
 *
 * Commit: -EDQUOT: the budget is charged in full. -EALREADY: it has memory, or is to be adopted.
 * -EIO: the arena is damaged. Its status may be -ENOSPC or -ENOMEM: the machine has less than the
 * budget says, or a tenant has taken more than its granules (gpu_device_check_excess() names it).
 * Decommit: -EALREADY: it has none. After a failed one the granule is charged still, what it
 * holds is undefined, and decommit (or commit) can be tried again. Both: -EBUSY: one is under way.
 */
int gpu_commit(struct gpu_device *device, uint32_t arena, uint32_t granule, uint64_t cookie);
int gpu_decommit(struct gpu_device *device, uint32_t arena, uint32_t granule, uint64_t cookie);

/* Queued: takes away what tenants committed behind our back, by touching holes of the arena. */
int gpu_trim(struct gpu_device *device, uint32_t arena, uint64_t cookie);

struct gpu_excess {
    uint32_t arena;          /* or GPU_NO_ARENA */
    uint64_t physical_bytes; /* that its file really has */
    uint64_t charged_bytes;  /* that its granules account for */
    bool is_damaged;         /* its memory was pulled away from under the daemon: close it */
};

/*
 * Compares physical pages with charged granules: answers how many arenas have more than they
 * should or are damaged; the first @max are in @out. Meant for once a second. -errno if the
 * system would not tell.
 */
int gpu_device_check_excess(const struct gpu_device *device, struct gpu_excess *out, size_t max);

/* --- memory that outlives the process ---
 *
 * What a device and its arenas consist of are descriptors. A keeper that holds them (the mount, and
 * the files of every arena) holds the memory, and a later process makes a device of them again.
 * What is in which slot, and which arena had which options, is for the caller to have kept.
 * Kept files have their memory in the mount until they are adopted, and nobody is charged for it;
 * and a tenant that has one mapped keeps it alive. So adopt what is of no use too, with no granule
 * wanted, and close that arena.
 */

/* The mount, without which arenas of before cannot be told from other files. The device's own,
 * to be sent to the keeper and not to be closed. -ENOENT: arenas are memfds, there is none. */
int gpu_device_keep(const struct gpu_device *device, int *out_fd);

/* Of an arena. The device's own, likewise. */
struct gpu_arena_files {
    int fd;
    int reader_fd; /* of arenas that can be exported read-only; -1: none */
};
int gpu_arena_keep(const struct gpu_device *device, uint32_t arena,
                   struct gpu_arena_files *out_files);

/*
 * gpu_device_create() on the mount of an earlier process; @mount_fd -1: its arenas are memfds.
 * Memory is populated only after gpu_device_adopt_end(), so that it is not taken from under arenas
 * that are still to be adopted. Takes @mount_fd, on success only. -ESTALE: no such mount, or of
 * another budget.
 */
int gpu_device_adopt(const struct gpu_device_options *options, int mount_fd,
                     struct gpu_device **out_device);
void gpu_device_adopt_end(struct gpu_device *device);

/*
 * gpu_arena_open() with the files and the options of an arena of an earlier process. @granules has
 * a bit (of 64-bit words, lowest first) for each granule that is wanted: charged at once, and not
 * to be used before it is adopted. Queued: all other memory of the files goes. Whatever an earlier
 * process exported still reaches this memory: where that was for writing, copy what is wanted into
 * another arena. Takes the descriptors, on success only. Fails like gpu_arena_open(); -ESTALE: not
 * files of this mount, or of another size. -EDQUOT: more is wanted than the budget has.
 */
int gpu_arena_adopt(struct gpu_device *device, uint32_t arena,
                    const struct gpu_arena_options *options, struct gpu_arena_files files,
                    const uint64_t *granules, uint64_t cookie);

/*
 * Queued: a wanted granule is committed again, with what it holds. Status -ENODATA: some of its
 * memory is gone (the process was killed while it came or went): none is left then, as after any
 * other failure. -ENOENT: it is not wanted. gpu_decommit() gives back what need not be adopted.
 */
int gpu_adopt_granule(struct gpu_device *device, uint32_t arena, uint32_t granule, uint64_t cookie);

struct gpu_granule_ref {
    uint32_t arena, granule;
};

/*
 * Queued: what @from holds goes to @to, and so does the charge: for a budget with no room for both
 * (with room: commit, gpu_copy(), decommit, which a kill in the middle does not harm). @from is
 * wanted or committed, @to has no memory, their granules are of one size. Status -ENODATA: as with
 * gpu_adopt_granule(), and @from stays as it is. Any other failure may leave neither with memory.
 */
int gpu_move_granule(struct gpu_device *device, struct gpu_granule_ref from,
                     struct gpu_granule_ref to, uint64_t cookie);

/* --- copies --- */

/* A slot of an open arena whose granule is committed, or, with GPU_NO_ARENA, @memory. */
struct gpu_place {
    uint32_t arena;
    uint32_t slot;
    void *memory;
};

struct gpu_copy {
    struct gpu_place from, to;
};

/*
 * Queued: each copy moves one block. Source and destination must not overlap, and both stay as
 * they are until completion; the list is the caller's again at once. -EINVAL: over GPU_MAX_BATCH
 * copies, no arena in one, arenas of unequal block_bytes, or a slot without memory. Status -EIO:
 * an arena was damaged meanwhile, nothing copied is valid.
 */
int gpu_copy(struct gpu_device *device, const struct gpu_copy *copies, size_t num_copies,
             uint64_t cookie);

/* Queued: zeroes whole slots, padding too. Refuses what gpu_copy() refuses. */
int gpu_scrub(struct gpu_device *device, uint32_t arena, const uint32_t *slots, size_t num_slots,
              uint64_t cookie);
