/* offload/engine.h - internal: how I/Os get to the kernel and back. One thread makes all calls. */
#pragma once

#include "offload/disk.h"
#include "offload/queue.h"
#include "offload/syscalls.h"

enum { DISK_NO_BUFFER = UINT32_MAX };

enum disk_file {
    DISK_FILE_DATA,  /* with O_DIRECT where that can be had */
    DISK_FILE_TABLE, /* the same file through the page cache, which joins small writes */
    NUM_DISK_FILES,
};

/* One I/O, part of what it is done for. It stays until it is done. */
struct disk_request {
    struct disk_item item; /* links: the lists of whoever has it */
    struct disk_io io;     /* what is still to be done of it */
    enum disk_file file;
    uint32_t buffer_number; /* of the engine's buffers, or DISK_NO_BUFFER */
    int result;             /* bytes or negative errno, once done */
    uint32_t done_bytes;    /* of earlier parts, if the kernel did less than was asked for */
    uint32_t num_tries;     /* that came to nothing */
    void (*end)(void *owner, struct disk_request *request, int status);
    void *owner;
};

struct disk_engine_options {
    const struct disk_syscalls *system;
    int fds[NUM_DISK_FILES];
    int wake_fd;    /* an eventfd: ends disk_engine.run() */
    uint32_t depth; /* started and not done, at most */
    uint32_t num_threads;
    char *buffers; /* num_buffers of buffer_bytes */
    uint64_t buffer_bytes;
    uint32_t num_buffers;
};

struct disk_engine;

struct disk_engine_kind {
    /* What is not available costs less: @out_unpinned is the errno of registering buffers, or 0. */
    int (*create)(const struct disk_engine_options *options, struct disk_engine **out_engine,
                  int *out_unpinned);
    void (*destroy)(struct disk_engine *engine); /* nothing may be under way. Takes NULL */
    void (*start)(struct disk_engine *engine, struct disk_request *request);
    /* Hands what was started to the kernel, waits up to @timeout_ms for something to be done or
     * the wake event, which it clears, and appends what is done. */
    void (*run)(struct disk_engine *engine, int timeout_ms, struct disk_list *done);
};

struct disk_engine {
    const struct disk_engine_kind *kind;
};

extern const struct disk_engine_kind disk_engine_uring, disk_engine_threads;

/* Answers the request of a list's item, which is its first field. */
struct disk_request *disk_request_of(struct disk_item *item);
