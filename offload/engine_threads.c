/* offload/engine_threads.c - I/Os by pread and pwrite in a few threads, where there is no io_uring.
 */
#include "offload/engine.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

struct threads_engine {
    struct disk_engine base; /* first */
    const struct disk_engine_options *options;
    pthread_t *threads;
    uint32_t num_threads;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct disk_list started; /* under the mutex, as is the next */
    bool is_stopping;
    struct disk_queue done; /* its event is the wake event */
};

static struct threads_engine *engine_of(struct disk_engine *engine)
{
    return (struct threads_engine *)engine;
}

static void carry_out(const struct threads_engine *engine, struct disk_request *request)
{
    const struct disk_syscalls *system = engine->options->system;
    const struct disk_io *io = &request->io;
    int fd = engine->options->fds[request->file];
    ssize_t num;

    if (io->is_write)
        num = system->pwrite(fd, io->buffer, io->bytes, (off_t)io->offset);
    else
        num = system->pread(fd, io->buffer, io->bytes, (off_t)io->offset);
    request->result = num < 0 ? -errno : (int)num;
}

static void *thread_main(void *argument)
{
    struct threads_engine *engine = argument;
    struct disk_item *item;

    for (;;) {
        (void)pthread_mutex_lock(&engine->mutex);
        while (!(item = disk_list_pop(&engine->started)) && !engine->is_stopping)
            (void)pthread_cond_wait(&engine->wake, &engine->mutex);
        (void)pthread_mutex_unlock(&engine->mutex);
        if (!item)
            return NULL;
        carry_out(engine, disk_request_of(item));
        disk_queue_add(&engine->done, item);
    }
}

static void threads_destroy(struct disk_engine *base)
{
    struct threads_engine *engine = engine_of(base);

    if (!engine)
        return;
    (void)pthread_mutex_lock(&engine->mutex);
    engine->is_stopping = true;
    (void)pthread_cond_broadcast(&engine->wake);
    (void)pthread_mutex_unlock(&engine->mutex);
    for (uint32_t i = 0; i < engine->num_threads; i++)
        (void)pthread_join(engine->threads[i], NULL);
    (void)pthread_cond_destroy(&engine->wake);
    (void)pthread_mutex_destroy(&engine->mutex);
    free(engine->threads);
    free(engine);
}

static int threads_create(const struct disk_engine_options *options,
                          struct disk_engine **out_engine, int *out_unpinned)
{
    const struct disk_syscalls *system = options->system;
    struct threads_engine *engine = system->calloc(1, sizeof(*engine));
    if (!engine)
        return -ENOMEM;

    engine->base.kind = &disk_engine_threads;
    engine->options = options;
    engine->done.event_fd = options->wake_fd;
    (void)pthread_mutex_init(&engine->mutex, NULL);
    (void)pthread_cond_init(&engine->wake, NULL);
    engine->threads = system->calloc(options->num_threads, sizeof(*engine->threads));
    int err = engine->threads ? 0 : -ENOMEM;
    while (!err && engine->num_threads < options->num_threads) {
        err = -system->thread_create(&engine->threads[engine->num_threads], NULL, thread_main,
                                     engine);
        engine->num_threads += err == 0;
    }
    if (engine->num_threads == 0) { /* fewer than asked for will do */
        threads_destroy(&engine->base);
        return err;
    }
    *out_unpinned = 0;
    *out_engine = &engine->base;
    return 0;
}

static void threads_start(struct disk_engine *base, struct disk_request *request)
{
    struct threads_engine *engine = engine_of(base);

    (void)pthread_mutex_lock(&engine->mutex);
    disk_list_push(&engine->started, &request->item);
    (void)pthread_cond_signal(&engine->wake);
    (void)pthread_mutex_unlock(&engine->mutex);
}

static void threads_run(struct disk_engine *base, int timeout_ms, struct disk_list *done)
{
    struct threads_engine *engine = engine_of(base);
    struct pollfd event = {.fd = engine->options->wake_fd, .events = POLLIN};

    if (poll(&event, 1, timeout_ms) == 1)
        disk_event_clear(engine->options->wake_fd);
    disk_queue_take(&engine->done, done);
}

const struct disk_engine_kind disk_engine_threads = {
    .create = threads_create,
    .destroy = threads_destroy,
    .start = threads_start,
    .run = threads_run,
};
