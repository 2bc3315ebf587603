/*
 * daemon/effects.h - what the pool decided is carried out, and told back when it is done.
 *
 *  E1  A granule that the pool gave back is decommitted before it has memory again.
 *  E2  A copy is handed to the device only when the granules of both its slots have memory.
 *  E3  Nothing is answered about blocks before their granules have memory: effects_mark().
 *  E4  Granules are committed ahead of the pool's need, in each arena that grows, from memory that
 *      no arena wants; what is ahead is given up as soon as another arena wants it.
 */
#pragma once

#include "gpu/gpu.h"
#include "pool/pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct server;

enum granule_memory { MEMORY_NONE, MEMORY_COMING, MEMORY_THERE, MEMORY_LEAVING };

struct granule_state {
    uint8_t memory; /* enum granule_memory */
    bool is_wanted; /* the pool has it */
    bool must_leave;
    bool is_queued;  /* in the list of what is to be done */
    uint64_t number; /* while wanted and without memory: which commit it is */
};

/* A device arena: the memory of one (domain, model, group). */
struct arena_memory {
    bool is_open, is_growing;
    bool is_closing;  /* damaged, and about to be opened anew (mend.h) */
    bool is_reported; /* that it has more memory than it should, or less */
    uint32_t max_granules;
    uint32_t num_ahead; /* E4: with memory, or about to have it, that the pool did not ask for */
    uint32_t last_wanted;
    struct gpu_granule granule;
    uint64_t block_bytes;
    struct gpu_arena_options options;
    pool_payer domain;
    pool_model model;
    uint32_t group;
    struct granule_state *granules;
};

struct granule_ref {
    uint32_t arena, granule;
};

struct commit_effect {
    struct granule_ref ref;
    uint64_t number;
};

struct copy_effect {
    pool_transfer transfer;
    struct gpu_copy copy;
};

struct reply_effect {
    uint64_t cookie;
    int answer;
};

/* A queue of fixed room: a ring, its size a power of two. */
struct fifo {
    uint64_t head, tail, mask;
};

static inline struct fifo fifo_of(uint64_t room)
{
    uint64_t size = 1;

    while (size < room)
        size *= 2;
    return (struct fifo){.mask = size - 1};
}

static inline uint64_t fifo_push(struct fifo *fifo)
{
    assert(fifo->tail - fifo->head <= fifo->mask);
    return fifo->tail++ & fifo->mask;
}

static inline bool fifo_is_empty(const struct fifo *fifo)
{
    return fifo->head == fifo->tail;
}

struct effects {
    struct arena_memory *arenas;
    uint32_t max_arenas, max_pages;
    struct fifo granule_fifo, copy_fifo, reply_fifo, commit_fifo;
    struct granule_ref *granule_work; /* granules to be committed or decommitted */
    struct copy_effect *copies;
    pool_transfer *transfers; /* by record */
    struct reply_effect *replies;
    struct commit_effect *commits; /* wanted, without memory yet, by number */
    uint64_t next_commit;
    uint32_t num_damaged;    /* arenas that are to be replaced */
    uint32_t num_operations; /* given to the device, not reaped */
    bool is_short;           /* a commit waits for memory: a decommit under way, or the system */
    uint32_t ahead_granules, num_growing;
    struct {
        uint64_t commits, commits_ahead, decommits, failed_commits, waits_for_memory, copies;
    } counters;
};

int effects_init(struct server *server, uint32_t max_transfers);
void effects_finish(struct server *server);

/* The pool's sink. */
void effects_emit(void *server, const struct pool_effect *effect);

/* Hands to the device what it takes; takes completions back. Returns whether anything ended. */
bool effects_run(struct server *server);

/* Takes completions back. Returns whether there was one. */
bool effects_reap(struct server *server);

/* Takes away what a tenant committed behind our back. */
void effects_trim(struct server *server, uint32_t arena);

/* What is kept of the arena of the pool's number, before it is opened: -errno. */
int effects_prepare_arena(struct server *server, uint32_t arena);

/* Opens the arena of the pool's number; -errno. Done on its first granule, or for OpenArena. */
int effects_open_arena(struct server *server, uint32_t arena);

/*
 * All memory of a damaged arena goes; what the pool wants of it gets new, once that is done. -EBUSY
 * or the like: something of it is under way. Its blocks are the caller's to clear.
 */
int effects_close_arena(struct server *server, uint32_t arena);

/* Everything that was wanted until now has memory once effects_passed(mark). */
static inline uint64_t effects_mark(const struct effects *effects)
{
    return effects->next_commit;
}
bool effects_passed(struct effects *effects, uint64_t mark);

/* Tries again what the system refused (memory); once in a while. */
void effects_retry(struct server *server);

/* Of an attend that the device may queue: it comes back to steps_attended(). */
struct call;
uint64_t effects_attend_cookie(const struct call *call);

enum { EFFECTS_COOKIE_ADOPT = 6, EFFECTS_COOKIE_SHIFT = 60 }; /* of survive.c's operations */

/* A copy with one end in an arena of the device and the other below it: as gpu_copy(), which ends
 * as lower_copy_ended(@index). */
int effects_copy_lower(struct server *server, const struct gpu_copy *copy, uint32_t index);

/* The address of a slot, its granule having memory; else NULL. */
void *effects_address(struct server *server, uint32_t arena, uint32_t slot);
