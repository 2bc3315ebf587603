/*
 * gpu/host/workers.c - threads that carry out jobs cut into parts.
 *
 *  I1  A job is in the queue exactly while parts of it may be left to take (is_queued).
 *  I2  A job is complete when it left the queue and no thread is in it (num_running 0). From then
 *      on no worker touches it: it belongs to the completed list, or to the thread that awaits it.
 *  I3  Everything but next_part and the parts themselves changes under the lock.
 *
 * Waking a sleeping CPU costs tens of microseconds, so submit wakes one worker, and each worker
 * that starts on a job with parts to spare wakes the next.
 */
#include "gpu/host/workers.h"
#include "gpu/host/cpu.h"
#include "gpu/host/lane.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct worker {
    struct gpu_workers *workers;
    pthread_t thread;
    uint32_t index;
    long num_displaced; /* times the kernel took the CPU away: others need it */
};

struct gpu_workers {
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    pthread_cond_t has_ended; /* an awaited job is complete */
    struct gpu_job *queue, **queue_end;
    struct gpu_job *completed, **completed_end;
    _Atomic bool has_completed;  /* the same, for an owner that looks often */
    _Atomic uint32_t num_queued; /* written under the lock, read by spinning workers */
    uint32_t num_sleeping, num_spinning;
    bool is_ending;
    _Atomic bool is_ending_hint; /* the same, for spinning workers */
    int event_fd;
    uint32_t spin_us;
    uint32_t num_threads, num_started;
    struct worker threads[];
};

static _Thread_local uint32_t worker_index;

uint32_t gpu_worker_index(void)
{
    return worker_index;
}

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void pause_briefly(void)
{
    for (int i = 0; i < 16; i++)
        cpu_relax();
}

static void job_unqueue(struct gpu_workers *workers, struct gpu_job *job)
{
    struct gpu_job **link = &workers->queue;

    if (!job->is_queued)
        return;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    if (workers->queue_end == &job->next)
        workers->queue_end = link;
    job->is_queued = false;
    workers->num_queued--;
}

static void job_complete(struct gpu_workers *workers, struct gpu_job *job)
{
    job->is_complete = true;
    if (job->is_awaited) {
        pthread_cond_broadcast(&workers->has_ended);
        return;
    }
    job->next = NULL;
    *workers->completed_end = job;
    workers->completed_end = &job->next;
    workers->has_completed = true;
    (void)eventfd_write(workers->event_fd, 1); /* fails only if it is readable already */
}

/* One more worker for what is queued, unless one is about to see it by itself. */
static void wake_one(struct gpu_workers *workers)
{
    if (workers->num_sleeping > 0 && workers->num_spinning == 0)
        pthread_cond_signal(&workers->has_work);
}

/* Takes parts until none is left. Called and returns with the lock held. */
static void job_work(struct gpu_workers *workers, struct gpu_job *job)
{
    job->num_running++;
    if (job->num_running < job->num_parts)
        wake_one(workers);
    pthread_mutex_unlock(&workers->lock);

    uint32_t part;
    while ((part = job->next_part++) < job->num_parts)
        job->run(job, part);

    pthread_mutex_lock(&workers->lock);
    job_unqueue(workers, job);
    if (--job->num_running == 0)
        job_complete(workers, job);
}

/*
 * Waits a moment for work without sleeping, as long as CPUs are free: not in the round after one
 * in which the kernel gave this CPU to somebody else. Called and returns with the lock held.
 */
static void worker_spin(struct worker *worker)
{
    struct gpu_workers *workers = worker->workers;
    struct rusage usage;

    if (workers->spin_us == 0)
        return;
    getrusage(RUSAGE_THREAD, &usage);
    bool is_free = usage.ru_nivcsw == worker->num_displaced;
    worker->num_displaced = usage.ru_nivcsw;
    if (!is_free)
        return;

    workers->num_spinning++;
    pthread_mutex_unlock(&workers->lock);
    uint64_t end = now_us() + workers->spin_us;
    while (workers->num_queued == 0 && !workers->is_ending_hint && now_us() < end)
        pause_briefly();
    pthread_mutex_lock(&workers->lock);
    workers->num_spinning--;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct gpu_workers *workers = worker->workers;

    worker_index = worker->index;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        if (!workers->queue && !workers->is_ending)
            worker_spin(worker);
        while (!workers->queue && !workers->is_ending) {
            workers->num_sleeping++;
            pthread_cond_wait(&workers->has_work, &workers->lock);
            workers->num_sleeping--;
        }
        if (!workers->queue)
            break;
        job_work(workers, workers->queue);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static int worker_start(struct gpu_workers *workers, uint32_t i, const int *cpus)
{
    struct worker *worker = &workers->threads[i];
    pthread_attr_t attr;
    sigset_t signals;
    cpu_set_t set;

    worker->workers = workers;
    worker->index = i + 1;
    int err = -pthread_attr_init(&attr);
    if (err)
        return err;
    host_thread_signals(&signals);
    err = -pthread_attr_setsigmask_np(&attr, &signals);
    if (cpus && !err) {
        CPU_ZERO(&set);
        CPU_SET((size_t)cpus[i], &set);
        err = -pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    }
    if (!err)
        err = -pthread_create(&worker->thread, &attr, worker_main, worker);
    pthread_attr_destroy(&attr);
    workers->num_started += !err;
    return err;
}

int gpu_workers_create(const struct gpu_workers_options *options, struct gpu_workers **out)
{
    uint32_t num_threads = options->num_threads;
    struct gpu_workers *workers =
        calloc(1, sizeof(*workers) + num_threads * sizeof(workers->threads[0]));
    if (!workers)
        return -ENOMEM;

    pthread_mutex_init(&workers->lock, NULL); /* on Linux these three do not fail */
    pthread_cond_init(&workers->has_work, NULL);
    pthread_cond_init(&workers->has_ended, NULL);
    workers->queue_end = &workers->queue;
    workers->completed_end = &workers->completed;
    workers->spin_us = options->spin_us;
    workers->num_threads = num_threads;

    int err = 0;
    workers->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (workers->event_fd < 0) {
        err = -errno;
        goto fail;
    }
    for (uint32_t i = 0; i < num_threads; i++) {
        err = worker_start(workers, i, options->cpus);
        if (err)
            goto fail;
    }
    *out = workers;
    return 0;

fail:
    gpu_workers_destroy(workers);
    return err;
}

void gpu_workers_destroy(struct gpu_workers *workers)
{
    if (!workers)
        return;

    pthread_mutex_lock(&workers->lock);
    workers->is_ending = true;
    workers->is_ending_hint = true;
    pthread_cond_broadcast(&workers->has_work);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < workers->num_started; i++)
        pthread_join(workers->threads[i].thread, NULL);
    if (workers->event_fd >= 0)
        close(workers->event_fd);
    pthread_cond_destroy(&workers->has_ended);
    pthread_cond_destroy(&workers->has_work);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

/* Called with the lock held. */
static void job_queue(struct gpu_workers *workers, struct gpu_job *job)
{
    job->next = NULL;
    job->next_part = 0;
    job->num_running = 0;
    job->is_complete = false;
    job->is_queued = true;
    *workers->queue_end = job;
    workers->queue_end = &job->next;
    workers->num_queued++;
}

int gpu_workers_submit(struct gpu_workers *workers, struct gpu_job *job)
{
    if (workers->num_started == 0)
        return -ENXIO; /* nobody would carry it out */

    pthread_mutex_lock(&workers->lock);
    job->is_awaited = false;
    job_queue(workers, job);
    wake_one(workers);
    pthread_mutex_unlock(&workers->lock);
    return 0;
}

void gpu_workers_run(struct gpu_workers *workers, struct gpu_job *job)
{
    pthread_mutex_lock(&workers->lock);
    job->is_awaited = true;
    job_queue(workers, job);
    job_work(workers, job);

    pthread_mutex_unlock(&workers->lock);
    uint64_t end = now_us() + workers->spin_us;
    while (!job->is_complete && now_us() < end)
        pause_briefly();
    pthread_mutex_lock(&workers->lock);
    while (!job->is_complete)
        pthread_cond_wait(&workers->has_ended, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}

int gpu_workers_event_fd(const struct gpu_workers *workers)
{
    return workers->event_fd;
}

size_t gpu_workers_reap(struct gpu_workers *workers)
{
    eventfd_t value;
    size_t num = 0;

    if (!workers->has_completed)
        return 0; /* what comes later makes the event readable later */
    pthread_mutex_lock(&workers->lock);
    (void)eventfd_read(workers->event_fd, &value);
    workers->has_completed = false;
    struct gpu_job *job = workers->completed;
    workers->completed = NULL;
    workers->completed_end = &workers->completed;
    pthread_mutex_unlock(&workers->lock);

    for (struct gpu_job *next; job; job = next, num++) {
        next = job->next; /* done() may submit the job again */
        if (job->done)
            job->done(job);
    }
    return num;
}

uint32_t gpu_workers_num_threads(const struct gpu_workers *workers)
{
    return workers->num_threads;
}
