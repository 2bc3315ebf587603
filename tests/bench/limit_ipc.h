/*
 * tests/bench/limit_ipc.h - what a daemon behind a socket or a ring is measured against: processes
 * that do nothing but answer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A ZeroMQ ROUTER that sends back what it gets, and our DEALER to it. */
struct limit_echo {
    pid_t pid;
    char path[108];
    void *context, *socket;
};

/* Forks: before this process has threads. @dir is where its socket goes. 0 or negative errno. */
int limit_echo_start(struct limit_echo *echo, const char *dir);
int limit_echo_connect(struct limit_echo *echo);
void limit_echo_stop(struct limit_echo *echo);

/* One message, and one answer; both exit if the echo is gone. */
void limit_echo_send(struct limit_echo *echo, size_t num_bytes);
void limit_echo_receive(struct limit_echo *echo);
/* @num_messages of @num_bytes, @window outstanding. */
void limit_echo_run(struct limit_echo *echo, size_t num_messages, size_t num_bytes, size_t window);

/* Two rings of one producer each in shared memory, spinning on both sides while it is_active. */
struct limit_ring_memory;
struct limit_ring {
    pid_t pid;
    int wake_fd;
    struct limit_ring_memory *memory;
};
int limit_ring_start(struct limit_ring *ring); /* forks, too */
void limit_ring_stop(struct limit_ring *ring);
/* It spins only between the two: awake before it is measured, asleep behind it. */
void limit_ring_wake(struct limit_ring *ring, bool is_active);
/* Round trips of an entry of 128 bytes for one of 32, as the daemon's rings have. */
void limit_ring_run(struct limit_ring *ring, size_t num_trips);
