/* offload/lane.c - the thread that does a disk's I/O: its life, its loop, single I/Os. */
#include "offload/lane.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    IDLE_MS = 1000, /* how old physical_bytes may be */
    HELD_MS = 1,
    MAX_TRIES = 16, /* of an I/O that comes to nothing, each time without an error */
};

struct disk_request *disk_request_of(struct disk_item *item)
{
    return (struct disk_request *)item;
}

struct disk_op *disk_op_of(struct disk_item *item)
{
    return (struct disk_op *)item;
}

bool lane_enter(struct disk_op *op, enum disk_op_phase from, enum disk_op_phase to)
{
    int phase = (int)from;

    return atomic_compare_exchange_strong_explicit(&op->phase, &phase, (int)to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

void lane_end(struct disk_lane *lane, struct disk_op *op, int status)
{
    op->status = status;
    int phase = atomic_load_explicit(&op->phase, memory_order_acquire);
    while (phase != PHASE_LEFT &&
           !atomic_compare_exchange_weak_explicit(&op->phase, &phase, PHASE_ENDED,
                                                  memory_order_acq_rel, memory_order_acquire))
        ;
    disk_queue_add(lane->to_owner, &op->item);
}

/* --- single I/Os --- */

static void begin(struct disk_lane *lane, struct disk_request *request)
{
    const struct disk_faults *faults = lane->options->faults;
    int answer = faults && faults->begin ? faults->begin(faults->state, &request->io) : 0;

    if (answer == DISK_FAULT_HOLD) {
        disk_list_push(&lane->held, &request->item);
    } else if (answer < 0) {
        request->result = answer;
        disk_list_push(&lane->answered, &request->item);
    } else {
        lane->engine->kind->start(lane->engine, request);
    }
}

void lane_request(struct disk_lane *lane, struct disk_request *request)
{
    request->num_tries = 0;
    request->result = 0;
    lane->num_in_kernel++;
    begin(lane, request);
}

/* What is left of an I/O that did less than it should. O_DIRECT can only go on at whole pages. */
static bool advance(struct disk_request *request, uint32_t bytes)
{
    uint32_t align = request->file == DISK_FILE_DATA ? DISK_ALIGN : 1;
    uint32_t part = bytes / align * align;

    if (part == 0 && ++request->num_tries >= MAX_TRIES)
        return false;
    request->io.offset += part;
    request->io.bytes -= part;
    request->io.buffer = (char *)request->io.buffer + part;
    return true;
}

static void answer(struct disk_lane *lane, struct disk_request *request)
{
    const struct disk_faults *faults = lane->options->faults;
    int result = request->result;

    if (faults && faults->end)
        result = faults->end(faults->state, &request->io, result);
    bool is_again = result == -EINTR || result == -EAGAIN;
    if (is_again && ++request->num_tries < MAX_TRIES) {
        begin(lane, request);
        return;
    }
    if (result > 0 && (uint32_t)result < request->io.bytes && advance(request, (uint32_t)result)) {
        begin(lane, request);
        return;
    }
    lane->num_in_kernel--;
    bool is_whole = result >= 0 && (uint32_t)result >= request->io.bytes;
    request->end(request->owner, request, is_whole ? 0 : result < 0 ? result : -EIO);
}

static void retry_held(struct disk_lane *lane)
{
    struct disk_list held = lane->held;
    struct disk_item *item;

    lane->held = (struct disk_list){0};
    while ((item = disk_list_pop(&held)) != NULL)
        begin(lane, disk_request_of(item));
}

void lane_run(struct disk_lane *lane, int timeout_ms)
{
    struct disk_list answered;
    struct disk_item *item;

    retry_held(lane);
    if (lane->answered.head)
        timeout_ms = 0;
    else if (lane->held.head && timeout_ms > HELD_MS)
        timeout_ms = HELD_MS;
    lane->engine->kind->run(lane->engine, timeout_ms, &lane->answered);
    answered = lane->answered;
    lane->answered = (struct disk_list){0};
    while ((item = disk_list_pop(&answered)) != NULL)
        answer(lane, disk_request_of(item));
}

/* --- the loop --- */

static void granule_written(void *owner, struct disk_request *request, int status)
{
    struct disk_lane *lane = owner;

    lane->num_granule_ops--;
    lane_end(lane, (struct disk_op *)((char *)request - offsetof(struct disk_op, request)), status);
}

static void start_granules(struct disk_lane *lane)
{
    while (lane->granules.head && lane->num_granule_ops < LANE_MAX_GRANULE_OPS) {
        struct disk_op *op = disk_op_of(disk_list_pop(&lane->granules));
        if (!lane_enter(op, PHASE_QUEUED, PHASE_KERNEL)) {
            lane_end(lane, op, 0);
            continue;
        }
        op->request = (struct disk_request){
            .io = {.kind = DISK_IO_GRANULE,
                   .is_write = true,
                   .offset = op->offset,
                   .bytes = sizeof(op->granule),
                   .buffer = &op->granule},
            .file = DISK_FILE_TABLE,
            .buffer_number = DISK_NO_BUFFER,
            .end = granule_written,
            .owner = lane,
        };
        lane->num_granule_ops++;
        lane_request(lane, &op->request);
    }
}

/* Probes are started as buffers can be had, in front of all else. */
static void start_probes(struct disk_lane *lane)
{
    if (!lane->probes.head || lane->num_free == 0)
        return;
    struct disk_op *op = disk_op_of(disk_list_pop(&lane->probes));
    if (!lane_enter(op, PHASE_QUEUED, PHASE_KERNEL)) {
        lane_end(lane, op, 0);
        return;
    }
    uint32_t number = lane->free_buffers[--lane->num_free];
    probe_start(lane, op, lane->buffers + number * lane->buffer_bytes, number);
}

static void take_incoming(struct disk_lane *lane)
{
    struct disk_list list = {0};
    struct disk_item *item;

    disk_queue_take(&lane->incoming, &list); /* Q1: the engine has cleared the event */
    while ((item = disk_list_pop(&list)) != NULL) {
        struct disk_list *const lists[NUM_OP_KINDS] = {
            [OP_WRITE] = &lane->writes,     [OP_READ] = &lane->reads,
            [OP_GRANULE] = &lane->granules, [OP_ERASE] = &lane->headers.waiting,
            [OP_PROBE] = &lane->probes,
        };
        disk_list_push(lists[disk_op_of(item)->kind], item);
    }
}

static void show(struct disk_lane *lane)
{
    atomic_store_explicit(&lane->seen_in_kernel, lane->num_in_kernel, memory_order_relaxed);
    atomic_store_explicit(&lane->seen_free, lane->num_free, memory_order_relaxed);
}

/* Once a second or so: it may wait for the disk, as the owner may not. */
static void look_at_size(struct disk_lane *lane, struct timespec *last)
{
    struct timespec now;
    struct stat status;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec == last->tv_sec)
        return;
    *last = now;
    if (lane->system->fstat(lane->table_fd, &status) == 0 && S_ISREG(status.st_mode))
        atomic_store_explicit(&lane->physical_bytes, (uint64_t)status.st_blocks * 512,
                              memory_order_relaxed);
}

static void serve(struct disk_lane *lane)
{
    struct timespec last = {0};

    while (!atomic_load_explicit(&lane->is_stopping, memory_order_acquire)) {
        take_incoming(lane);
        start_granules(lane);
        start_probes(lane);
        blocks_start_reads(lane);
        blocks_start_writes(lane);
        headers_start(lane);
        look_at_size(lane, &last);
        show(lane);
        /* Before bytes are copied the kernel gets what was started: it would idle meanwhile. */
        bool has_work = blocks_have_work(lane);
        lane_run(lane, has_work ? 0 : IDLE_MS);
        if (has_work)
            blocks_work(lane);
    }
}

/* What the kernel has is waited for; what it has not is dropped, but for headers: those of blocks
 * that are written, and those to be cleared. */
static void drain(struct disk_lane *lane)
{
    take_incoming(lane);
    lane->writes = lane->copied = (struct disk_list){0};
    while (lane->num_in_kernel > 0 || lane->headers.waiting.head || lane->to_verify.head) {
        blocks_work(lane);
        headers_start(lane);
        show(lane);
        lane_run(lane, lane->to_verify.head ? 0 : IDLE_MS);
    }
    (void)lane->system->fdatasync(lane->table_fd);
}

static void *lane_main(void *argument)
{
    struct disk_lane *lane = argument;

    lane->start_status = probe_choose(lane);
    bool has_started = lane->start_status == 0;
    (void)sem_post(&lane->started);
    if (has_started) {
        serve(lane);
        drain(lane);
    }
    if (lane->engine)
        lane->engine->kind->destroy(lane->engine);
    return NULL;
}

/* --- the owner's side --- */

static struct timespec after_ms(clockid_t clock, uint32_t timeout_ms)
{
    struct timespec end;

    (void)clock_gettime(clock, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    return end;
}

int disk_lane_start(struct disk_lane *lane, uint32_t timeout_ms)
{
    sigset_t blocked, before;

    (void)sem_init(&lane->started, 0, 0);
    /* Signals but those of its own faults go to the process's other threads. */
    (void)sigfillset(&blocked);
    (void)sigdelset(&blocked, SIGBUS);
    (void)sigdelset(&blocked, SIGSEGV);
    (void)sigdelset(&blocked, SIGFPE);
    (void)sigdelset(&blocked, SIGILL);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int err = -lane->system->thread_create(&lane->thread, NULL, lane_main, lane);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    lane->has_thread = err == 0;
    if (err)
        return err;

    struct timespec end = after_ms(CLOCK_REALTIME, timeout_ms);
    while (sem_timedwait(&lane->started, &end) != 0) {
        if (errno != EINTR)
            return -ETIMEDOUT;
    }
    if (lane->start_status == 0)
        return 0;
    (void)pthread_join(lane->thread, NULL);
    lane->has_thread = false;
    return lane->start_status;
}

int disk_lane_stop(struct disk_lane *lane, uint32_t timeout_ms)
{
    if (!lane->has_thread)
        return 0;
    atomic_store_explicit(&lane->is_stopping, true, memory_order_release);
    disk_event_set(lane->incoming.event_fd);
    struct timespec end = after_ms(CLOCK_REALTIME, timeout_ms);
    if (pthread_timedjoin_np(lane->thread, NULL, &end) != 0)
        return -ETIMEDOUT;
    lane->has_thread = false;
    return 0;
}

void disk_lane_submit(struct disk_lane *lane, struct disk_op *op)
{
    atomic_store_explicit(&op->phase, PHASE_QUEUED, memory_order_relaxed);
    disk_queue_add(&lane->incoming, &op->item);
}
