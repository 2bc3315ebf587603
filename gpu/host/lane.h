/* gpu/host/lane.h - internal: operations, a thread that carries them out, a list of those done. */
#pragma once

#include "gpu/gpu.h"
#include "gpu/host/syscalls.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* Zeroes @bytes at @to if @from is NULL. */
struct host_copy {
    void *to;
    const void *from;
    uint64_t bytes;
    uint32_t from_arena, to_arena; /* or GPU_NO_ARENA */
};

enum host_op_kind {
    OP_COMMIT,   /* [offset, offset + bytes) of the file gets memory */
    OP_DECOMMIT, /* loses it */
    OP_TRIM,     /* @ranges lose it, which are not charged */
    OP_CLOSE,    /* the whole file does, and then the arena is gone */
    OP_ADOPT,    /* [offset, offset + bytes) has memory of an earlier process: it is looked at */
    OP_MOVE,     /* what [from_offset, + bytes) of @from_fd has goes to it */
    OP_COPY,
    OP_ATTEND, /* carried out by the workers: only its end comes this way */
    NUM_OP_KINDS,
};

struct host_range {
    uint64_t offset, bytes;
};

/* All that a lane needs is in here: it sees no arena. */
struct host_op {
    struct host_op *next;
    enum host_op_kind kind;
    int status;
    uint64_t cookie;
    uint32_t arena, granule; /* of all but OP_COPY */
    bool was_left, is_left;  /* OP_COMMIT: the granule may have pages, before and after */
    int fd;
    char *base; /* where the file is mapped */
    uint64_t offset, bytes;
    uint64_t freed_bytes; /* OP_CLOSE: what was charged for the arena */
    int from_fd;          /* OP_MOVE, as are those that follow */
    uint32_t from_arena, from_granule;
    uint64_t from_offset;
    char *from_base;        /* where that file is mapped */
    bool from_is_told;      /* the memory hook knows of its memory */
    uint8_t from_state;     /* of the granule, before */
    bool is_gone;           /* its memory is */
    struct host_done *done; /* OP_ATTEND: where it ends */
    uint32_t num_parts;     /* of the one of these that the kind uses */
    union {
        struct host_copy copies[GPU_MAX_BATCH];
        struct host_range ranges[GPU_MAX_BATCH];
    };
};

struct host_op_list {
    struct host_op *head, *tail;
};

void host_op_push(struct host_op_list *list, struct host_op *op);
struct host_op *host_op_pop(struct host_op_list *list); /* NULL: empty */

/*
 * Operations on their way to the owner. Every thread may add, with no lock: an owner that asks
 * often must not hold up the lane that would answer.
 *
 *  D1  The event is set by whoever adds to an empty list, and cleared only by the owner, before
 *      it takes the whole list: so it is set while there is something the owner does not have.
 */
struct host_done {
    _Atomic(struct host_op *) newest; /* linked to older ones; partners: add and take */
    struct host_op_list taken;        /* the owner's, oldest first */
    int event_fd;
};

int host_done_init(struct host_done *done, const struct host_syscalls *system);
void host_done_finish(struct host_done *done);
void host_done_add(struct host_done *done, struct host_op *op);

/* NULL: none. After the last call that gave one, host_done_keep_event() has to follow. */
struct host_op *host_done_take(struct host_done *done);

/* Sets the event again if operations were taken that the owner has not asked for. */
void host_done_keep_event(struct host_done *done);

/* What the threads of a device block: signals other than those of their own faults go to the
 * process's other threads, whoever has set up a handler. */
void host_thread_signals(sigset_t *out_blocked);

/* One thread and its queue. */
struct host_lane {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct host_op_list list; /* under the mutex, as is the next */
    bool is_stopping, has_idle;
    struct host_done *done;
    void *owner;
    void (*run)(void *owner, struct host_op *op);
    bool (*idle)(void *owner); /* a slice of work while no operation waits; false: none left */
};

/* @done, @owner, @run and @idle (may be NULL) are set by the caller before. */
int host_lane_init(struct host_lane *lane, const struct host_syscalls *system);
void host_lane_finish(struct host_lane *lane); /* drops what is queued; takes one never begun */
void host_lane_submit(struct host_lane *lane, struct host_op *op);
void host_lane_wake(struct host_lane *lane); /* there is idle work again */
