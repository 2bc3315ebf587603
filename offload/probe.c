/* offload/probe.c - a real write and read: what works here, and whether a bad disk is back. */
#include "offload/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void fill(char *buffer, uint64_t number)
{
    uint64_t words[SCRATCH_BYTES / sizeof(uint64_t)];

    for (size_t i = 0; i < SCRATCH_BYTES / sizeof(uint64_t); i++)
        words[i] = (number + i) * 0x9e3779b97f4a7c15;
    memcpy(buffer, words, sizeof(words));
}

static void over(struct disk_lane *lane, int status)
{
    struct lane_probe *probe = &lane->probe;

    probe->status = status;
    probe->is_over = true;
    if (!probe->op)
        return;
    lane->free_buffers[lane->num_free++] = probe->request.buffer_number;
    lane_end(lane, probe->op, status);
}

static void was_read(void *owner, struct disk_request *request, int status)
{
    struct disk_lane *lane = owner;
    char expected[SCRATCH_BYTES];

    (void)request;
    fill(expected, lane->probe.number);
    if (status == 0 && memcmp(lane->probe.buffer, expected, SCRATCH_BYTES) != 0)
        status = -EBADMSG;
    over(lane, status);
}

static void do_io(struct disk_lane *lane, bool is_write, uint32_t buffer_number,
                  void (*end)(void *owner, struct disk_request *request, int status))
{
    struct lane_probe *probe = &lane->probe;

    probe->request = (struct disk_request){
        .io = {.kind = DISK_IO_SCRATCH,
               .is_write = is_write,
               .offset = SCRATCH_OFFSET,
               .bytes = SCRATCH_BYTES,
               .buffer = probe->buffer},
        .file = DISK_FILE_DATA,
        .buffer_number = buffer_number,
        .end = end,
        .owner = lane,
    };
    lane_request(lane, &probe->request);
}

static void was_written(void *owner, struct disk_request *request, int status)
{
    struct disk_lane *lane = owner;

    if (status) {
        over(lane, status);
        return;
    }
    memset(lane->probe.buffer, 0, SCRATCH_BYTES);
    do_io(lane, false, request->buffer_number, was_read);
}

void probe_start(struct disk_lane *lane, struct disk_op *op, char *buffer, uint32_t buffer_number)
{
    struct lane_probe *probe = &lane->probe;

    probe->op = op;
    probe->buffer = buffer;
    probe->is_over = false;
    fill(buffer, ++probe->number);
    do_io(lane, true, buffer_number, was_written);
}

static int probe_now(struct disk_lane *lane)
{
    probe_start(lane, NULL, lane->buffers, 0);
    while (!lane->probe.is_over)
        lane_run(lane, 100);
    return lane->probe.status;
}

static bool is_refusal(int status)
{
    return status == -EINVAL || status == -EOPNOTSUPP || status == -ENOSYS;
}

static int try_engine(struct disk_lane *lane, const struct disk_engine_kind *kind)
{
    int unpinned = 0;

    lane->engine_options.fds[DISK_FILE_DATA] = lane->data_fd;
    lane->engine_options.fds[DISK_FILE_TABLE] = lane->table_fd;
    int err = kind->create(&lane->engine_options, &lane->engine, &unpinned);
    if (err)
        return err;
    err = probe_now(lane);
    if (is_refusal(err) && lane->is_direct) {
        /* From now on through the page cache: the engine holds the old descriptor, or its number.
         */
        kind->destroy(lane->engine);
        lane->engine = NULL;
        lane->is_direct = false;
        lane->data_fd = lane->table_fd;
        disk_fallback_enter(lane->fallbacks, DISK_FALLBACK_NO_DIRECT, err);
        lane->engine_options.fds[DISK_FILE_DATA] = lane->data_fd;
        err = kind->create(&lane->engine_options, &lane->engine, &unpinned);
        if (!err)
            err = probe_now(lane);
    }
    if (err && lane->engine) {
        kind->destroy(lane->engine);
        lane->engine = NULL;
    }
    if (!err && unpinned)
        disk_fallback_enter(lane->fallbacks, DISK_FALLBACK_NOT_REGISTERED, unpinned);
    return err;
}

int probe_choose(struct disk_lane *lane)
{
    int err = 0;

    if (lane->options->engine == DISK_ENGINE_BEST) {
        err = try_engine(lane, &disk_engine_uring);
        bool is_disk =
            err == -EIO || err == -ENOSPC || err == -EDQUOT || err == -EROFS || err == -EBADMSG;
        if (!err || is_disk)
            return err;
    }
    disk_fallback_enter(lane->fallbacks, DISK_FALLBACK_NO_URING, err);
    return try_engine(lane, &disk_engine_threads);
}
