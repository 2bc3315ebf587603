/*
 * gpu/host/workers.h - internal: threads that carry out jobs cut into parts.
 *
 * The owner submits; workers take parts in ascending order; when all are carried out the event
 * descriptor becomes readable and gpu_workers_reap() calls done() in the owner's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_workers;

struct gpu_workers_options {
    uint32_t num_threads;
    const int *cpus;  /* NULL, or the CPU that each thread is pinned to (NUMA: list a node's) */
    uint32_t spin_us; /* an idle worker spins this long before it sleeps, if CPUs are free */
};

/* Part of the owner's own struct: nothing is allocated for it. It stays until done(). */
struct gpu_job {
    void (*run)(struct gpu_job *job, uint32_t part); /* in any worker, parts at the same time */
    void (*done)(struct gpu_job *job);               /* NULL: nothing to say */
    uint32_t num_parts;

    /* workers.c's own */
    struct gpu_job *next;
    _Atomic uint32_t next_part;
    uint32_t num_running; /* threads in it, under the lock */
    bool is_queued, is_awaited;
    _Atomic bool is_complete;
};

int gpu_workers_create(const struct gpu_workers_options *options, struct gpu_workers **out);

/* Carries out what is queued; done() of what was not reaped is not called. Takes NULL. */
void gpu_workers_destroy(struct gpu_workers *workers);

int gpu_workers_submit(struct gpu_workers *workers, struct gpu_job *job);

/* Submits, helps, and returns when all parts are carried out. done() is not called. */
void gpu_workers_run(struct gpu_workers *workers, struct gpu_job *job);

/* Readable while something is to be reaped. */
int gpu_workers_event_fd(const struct gpu_workers *workers);

/* Calls done() of every completed job; returns how many there were. */
size_t gpu_workers_reap(struct gpu_workers *workers);

uint32_t gpu_workers_num_threads(const struct gpu_workers *workers);

/* In a worker 1 to num_threads; in any other thread 0. For scratch by thread. */
uint32_t gpu_worker_index(void);
