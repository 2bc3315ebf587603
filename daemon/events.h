/*
 * daemon/events.h - the stats socket: snapshots, and which blocks can be found (EVENTS.md).
 *
 * Owner thread only. Nothing here waits: a subscriber that does not keep up loses messages, and
 * sees it by their numbers. Without subscribers an event costs an addition.
 */
#pragma once

#include "pool/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct events;
struct stats;

struct events_options {
    void *zmq_context;
    const char *socket_path;
    mode_t socket_mode;
    uint32_t queue;      /* messages kept for a slow subscriber */
    const char *boot_id; /* copied */
    size_t text_bytes;   /* stats_max_text(): a snapshot is written into a buffer of that size */
};

int events_create(const struct events_options *options, struct events **out_events);
void events_destroy(struct events *events); /* takes NULL; removes the socket */

/* A key that may be found from now on, or no more (POOL_EFFECT_STORED, _REMOVED). */
struct events_block {
    bool is_stored;
    struct pool_key key;
    const struct pool_key *parent; /* or NULL: the first block, or not known */
    const uint32_t *tokens;        /* stored; or NULL */
    uint32_t num_tokens;
    const char *domain, *model;
    uint32_t group;
};

/* Queued until events_flush(), or until the buffer is full. May be called from the pool's sink.
 * Token ids of more than 1,024 tokens are left out, names are cut at 256 bytes. */
void events_block(struct events *events, const struct events_block *block);
void events_flush(struct events *events); /* once a pass of the loop */

/* Sends what stats_take() took. Also reads who subscribes: call it each second at least. */
void events_snapshot(struct events *events, const struct stats *stats);

struct events_counters {
    uint64_t blocks;        /* stored and removed, whether or not anyone listened */
    uint64_t messages;      /* sent */
    uint64_t overflows;     /* times a subscriber was found at the end of its queue */
    uint64_t subscriptions; /* now; equal ones count once */
};
struct events_counters events_counters(const struct events *events);
