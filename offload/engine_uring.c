/* offload/engine_uring.c - I/Os by io_uring: registered files and buffers, one submit a pass.
 *
 * The ring is the thread's that created it. The ring polls the wake event too, so that one call
 * waits for both.
 */
#include "offload/engine.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/uio.h>

/* Of a ring, best first. */
static const unsigned ring_flags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
    IORING_SETUP_COOP_TASKRUN,                               /* 5.19 */
    0,
};

struct uring_engine {
    struct disk_engine base; /* first */
    const struct disk_engine_options *options;
    struct io_uring ring;
    bool has_ring, has_buffers, is_wake_armed;
};

static struct uring_engine *engine_of(struct disk_engine *engine)
{
    return (struct uring_engine *)engine;
}

static int ring_create(struct uring_engine *engine)
{
    const struct disk_engine_options *options = engine->options;
    int err = -EINVAL;

    for (size_t i = 0; err == -EINVAL && i < sizeof(ring_flags) / sizeof(ring_flags[0]); i++) {
        struct io_uring_params params = {.flags = ring_flags[i]};
        err = options->system->ring_init(options->depth + 1, &engine->ring, &params);
    }
    engine->has_ring = err == 0;
    if (err)
        return err;
    return options->system->ring_register_files(&engine->ring, options->fds, NUM_DISK_FILES);
}

static int register_buffers(struct uring_engine *engine)
{
    const struct disk_engine_options *options = engine->options;
    struct iovec *iovecs = options->system->calloc(options->num_buffers, sizeof(*iovecs));
    if (!iovecs)
        return -ENOMEM;

    for (uint32_t i = 0; i < options->num_buffers; i++)
        iovecs[i] = (struct iovec){.iov_base = options->buffers + i * options->buffer_bytes,
                                   .iov_len = options->buffer_bytes};
    int err = options->system->ring_register_buffers(&engine->ring, iovecs, options->num_buffers);
    free(iovecs);
    return err;
}

static void uring_destroy(struct disk_engine *base)
{
    struct uring_engine *engine = engine_of(base);

    if (!engine)
        return;
    if (engine->has_ring) {
        /* Otherwise the kernel lets go of them some time after the exit: a device stays in use. */
        (void)io_uring_unregister_files(&engine->ring);
        io_uring_queue_exit(&engine->ring);
    }
    free(engine);
}

static int uring_create(const struct disk_engine_options *options, struct disk_engine **out_engine,
                        int *out_unpinned)
{
    struct uring_engine *engine = options->system->calloc(1, sizeof(*engine));
    if (!engine)
        return -ENOMEM;

    engine->base.kind = &disk_engine_uring;
    engine->options = options;
    int err = ring_create(engine);
    if (err) {
        uring_destroy(&engine->base);
        return err;
    }
    *out_unpinned = register_buffers(engine);
    engine->has_buffers = *out_unpinned == 0;
    *out_engine = &engine->base;
    return 0;
}

/* The ring has an entry for everything that may be under way, and one for the wake event. */
static struct io_uring_sqe *next_entry(struct uring_engine *engine)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&engine->ring);

    assert(entry);
    return entry;
}

static void uring_start(struct disk_engine *base, struct disk_request *request)
{
    struct uring_engine *engine = engine_of(base);
    struct io_uring_sqe *entry = next_entry(engine);
    const struct disk_io *io = &request->io;
    int file = (int)request->file, buffer = (int)request->buffer_number;
    bool is_fixed = engine->has_buffers && request->buffer_number != DISK_NO_BUFFER;

    if (is_fixed && io->is_write)
        io_uring_prep_write_fixed(entry, file, io->buffer, io->bytes, io->offset, buffer);
    else if (is_fixed)
        io_uring_prep_read_fixed(entry, file, io->buffer, io->bytes, io->offset, buffer);
    else if (io->is_write)
        io_uring_prep_write(entry, file, io->buffer, io->bytes, io->offset);
    else
        io_uring_prep_read(entry, file, io->buffer, io->bytes, io->offset);
    entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(entry, request);
}

static void arm_wake(struct uring_engine *engine)
{
    if (engine->is_wake_armed)
        return;
    struct io_uring_sqe *entry = next_entry(engine);
    io_uring_prep_poll_add(entry, engine->options->wake_fd, POLLIN);
    io_uring_sqe_set_data(entry, NULL);
    engine->is_wake_armed = true;
}

static void take_done(struct uring_engine *engine, struct disk_list *done)
{
    struct io_uring_cqe *answer;
    unsigned head, num = 0;

    io_uring_for_each_cqe(&engine->ring, head, answer)
    {
        struct disk_request *request = io_uring_cqe_get_data(answer);
        num++;
        if (!request) {
            engine->is_wake_armed = false;
            disk_event_clear(engine->options->wake_fd);
            continue;
        }
        request->result = answer->res;
        disk_list_push(done, &request->item);
    }
    io_uring_cq_advance(&engine->ring, num);
}

static void uring_run(struct disk_engine *base, int timeout_ms, struct disk_list *done)
{
    struct uring_engine *engine = engine_of(base);
    struct __kernel_timespec timeout = {.tv_sec = timeout_ms / 1000,
                                        .tv_nsec = timeout_ms % 1000 * 1000000LL};
    struct io_uring_cqe *first;

    arm_wake(engine);
    if (timeout_ms > 0)
        (void)io_uring_submit_and_wait_timeout(&engine->ring, &first, 1, &timeout, NULL);
    else
        (void)io_uring_submit_and_get_events(&engine->ring);
    take_done(engine, done);
}

const struct disk_engine_kind disk_engine_uring = {
    .create = uring_create,
    .destroy = uring_destroy,
    .start = uring_start,
    .run = uring_run,
};
