/* gpu/host/attends.c - the host device's attends: workers, and their ends among its completions. */
#include "gpu/host/device.h"
#include "gpu/host/workers.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* An idle worker spins this long: about what waking it costs. */
static const uint32_t WORKER_SPIN_US = 50;

/* The owner watches one descriptor: readable when either completions' or workers' is. */
static int watch_both(struct gpu_device *device)
{
    const int fds[] = {device->done.event_fd, gpu_workers_event_fd(device->workers)};

    device->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (device->poll_fd < 0)
        return -errno;
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll_ctl(device->poll_fd, EPOLL_CTL_ADD, fds[i], &event) < 0)
            return -errno;
    }
    return 0;
}

int host_attends_init(struct gpu_device *device)
{
    const struct gpu_device_options *options = &device->options;
    const struct gpu_workers_options workers = {.num_threads = options->num_workers,
                                                .cpus = options->worker_cpus,
                                                .spin_us = WORKER_SPIN_US};
    int err = 0;

    if (options->num_workers > 0)
        err = gpu_workers_create(&workers, &device->workers);
    if (!err && device->workers)
        err = watch_both(device);
    if (!err)
        err = gpu_attention_create(
            &(struct gpu_attention_options){.workers = device->workers,
                                            .version = options->attend_version,
                                            .inline_us = options->attend_inline_us},
            &device->attention);
    return err;
}

void host_attends_finish(struct gpu_device *device)
{
    gpu_workers_destroy(device->workers); /* first: they use what the attention shares */
    gpu_attention_destroy(device->attention);
    if (device->poll_fd >= 0)
        (void)close(device->poll_fd);
}

struct gpu_attention *gpu_device_attention(const struct gpu_device *device)
{
    return device->attention;
}

/* In the owner's thread, from gpu_workers_reap(). */
static void attend_done(void *cookie, int err)
{
    struct host_op *op = cookie;

    op->status = err;
    host_done_add(op->done, op);
}

int gpu_device_attend(struct gpu_device *device, struct gpu_step_plan *plan,
                      const struct gpu_attend_layer *layer, uint64_t cookie)
{
    struct host_op *op = host_op_pop(&device->free_ops);

    if (!op)
        return GPU_BUSY;
    op->kind = OP_ATTEND;
    op->cookie = cookie;
    op->done = &device->done;
    int answer = gpu_attend(plan, layer, attend_done, op);
    if (answer == GPU_ATTEND_QUEUED)
        return GPU_ATTEND_QUEUED;
    host_op_push(&device->free_ops, op);
    return answer;
}
