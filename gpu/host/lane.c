/* gpu/host/lane.c - queues between the owner thread and the threads that work for it. */
#include "gpu/host/lane.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

void host_op_push(struct host_op_list *list, struct host_op *op)
{
    op->next = NULL;
    if (list->tail)
        list->tail->next = op;
    else
        list->head = op;
    list->tail = op;
}

struct host_op *host_op_pop(struct host_op_list *list)
{
    struct host_op *op = list->head;

    if (!op)
        return NULL;
    list->head = op->next;
    if (!list->head)
        list->tail = NULL;
    return op;
}

int host_done_init(struct host_done *done, const struct host_syscalls *system)
{
    done->event_fd = system->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return done->event_fd < 0 ? -errno : 0;
}

void host_done_finish(struct host_done *done)
{
    if (done->event_fd >= 0)
        (void)close(done->event_fd);
    done->event_fd = -1;
}

static void set_event(struct host_done *done)
{
    static const uint64_t one = 1;
    (void)!write(done->event_fd, &one, sizeof(one));
}

void host_done_add(struct host_done *done, struct host_op *op)
{
    struct host_op *newest = atomic_load_explicit(&done->newest, memory_order_relaxed);

    do
        op->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&done->newest, &newest, op, memory_order_release,
                                                  memory_order_relaxed));
    if (!newest)
        set_event(done); /* D1 */
}

static void take_all(struct host_done *done)
{
    uint64_t count;

    if (!atomic_load_explicit(&done->newest, memory_order_relaxed))
        return;
    (void)!read(done->event_fd, &count, sizeof(count)); /* D1: before */
    struct host_op *op = atomic_exchange_explicit(&done->newest, NULL, memory_order_acquire);
    struct host_op *oldest = NULL;
    done->taken.tail = op;
    while (op) {
        struct host_op *older = op->next;
        op->next = oldest;
        oldest = op;
        op = older;
    }
    done->taken.head = oldest;
}

struct host_op *host_done_take(struct host_done *done)
{
    if (!done->taken.head)
        take_all(done);
    return host_op_pop(&done->taken);
}

void host_done_keep_event(struct host_done *done)
{
    if (done->taken.head)
        set_event(done);
}

/* Waits for an operation, with slices of idle work until there is none left. NULL: stop. */
static struct host_op *next_op(struct host_lane *lane)
{
    (void)pthread_mutex_lock(&lane->mutex);
    lane->has_idle = lane->idle != NULL;
    while (!lane->is_stopping && !lane->list.head) {
        if (!lane->has_idle) {
            (void)pthread_cond_wait(&lane->wake, &lane->mutex);
            continue;
        }
        lane->has_idle = false; /* host_lane_wake() may say otherwise meanwhile */
        (void)pthread_mutex_unlock(&lane->mutex);
        bool has_more = lane->idle(lane->owner);
        (void)pthread_mutex_lock(&lane->mutex);
        lane->has_idle |= has_more;
    }
    struct host_op *op = lane->is_stopping ? NULL : host_op_pop(&lane->list);
    (void)pthread_mutex_unlock(&lane->mutex);
    return op;
}

static void *lane_main(void *argument)
{
    struct host_lane *lane = argument;
    struct host_op *op;

    while ((op = next_op(lane)) != NULL) {
        lane->run(lane->owner, op);
        host_done_add(lane->done, op);
    }
    return NULL;
}

void host_thread_signals(sigset_t *out_blocked)
{
    (void)sigfillset(out_blocked);
    (void)sigdelset(out_blocked, SIGBUS);
    (void)sigdelset(out_blocked, SIGSEGV);
    (void)sigdelset(out_blocked, SIGFPE);
    (void)sigdelset(out_blocked, SIGILL);
}

int host_lane_init(struct host_lane *lane, const struct host_syscalls *system)
{
    sigset_t blocked, before;

    (void)pthread_mutex_init(&lane->mutex, NULL);
    (void)pthread_cond_init(&lane->wake, NULL);
    host_thread_signals(&blocked);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int err = -system->thread_create(&lane->thread, NULL, lane_main, lane);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    lane->has_thread = err == 0;
    if (err) {
        (void)pthread_cond_destroy(&lane->wake);
        (void)pthread_mutex_destroy(&lane->mutex);
    }
    return err;
}

void host_lane_finish(struct host_lane *lane)
{
    if (!lane->has_thread)
        return;
    (void)pthread_mutex_lock(&lane->mutex);
    lane->is_stopping = true;
    (void)pthread_cond_signal(&lane->wake);
    (void)pthread_mutex_unlock(&lane->mutex);
    (void)pthread_join(lane->thread, NULL);
    (void)pthread_cond_destroy(&lane->wake);
    (void)pthread_mutex_destroy(&lane->mutex);
    lane->has_thread = false;
}

void host_lane_submit(struct host_lane *lane, struct host_op *op)
{
    (void)pthread_mutex_lock(&lane->mutex);
    host_op_push(&lane->list, op);
    (void)pthread_cond_signal(&lane->wake);
    (void)pthread_mutex_unlock(&lane->mutex);
}

void host_lane_wake(struct host_lane *lane)
{
    (void)pthread_mutex_lock(&lane->mutex);
    lane->has_idle = lane->idle != NULL;
    (void)pthread_cond_signal(&lane->wake);
    (void)pthread_mutex_unlock(&lane->mutex);
}
