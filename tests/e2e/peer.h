/* tests/e2e/peer.h - other processes of a test, and blocks whose bytes say whose they are. */
#pragma once

#include "client-lib/kvpool.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;

/* A child of the test, and the test's end of a socket to it. */
struct peer {
    pid_t pid;
    int fd;
};

/*
 * Runs @run in a child: @parent_fd is its end of the socket, @other_fd is as given here. A failed
 * assertion aborts the child; returning ends it with 0. Other descriptors above 2 that the
 * test had are closed in it.
 */
void peer_start(struct peer *peer, void (*run)(int parent_fd, int other_fd), int other_fd);
/* Sends @signal, or with 0 closes the socket, which asks it to end; its status, or 128 + signal. */
int peer_finish(struct peer *peer, int signal);

void peer_pair(int out_fds[2]);
/* One packet, with a descriptor if @fd is not -1. 0, or -1: the other end is gone. */
int peer_send(int fd, const void *packet, size_t num_bytes, int with_fd);
int peer_receive(int fd, void *packet, size_t num_bytes, int *out_fd);

/* A number of one tenant or domain, as List says it. */
uint64_t payer_read(const struct daemon *daemon, const char *payer, const char *member);
void payer_await(const struct daemon *daemon, const char *payer, const char *member, uint64_t value,
                 unsigned ms);

/* What a block's bytes are made of. */
uint64_t block_tag(uint64_t owner, uint64_t index, uint64_t generation);
void block_fill(void *block, uint64_t num_bytes, uint64_t tag);
bool block_is(const void *block, uint64_t num_bytes, uint64_t tag);

static inline void *block_at(const struct kvpool_arena *arena, uint32_t slot)
{
    return (char *)arena->base + (uint64_t)(slot - 1) * arena->stride_bytes;
}
