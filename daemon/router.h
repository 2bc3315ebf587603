/*
 * daemon/router.h - requests over ZeroMQ: engines' on one ROUTER, operators' on another.
 *
 * Replies are gathered per peer and sent as one message. What ZeroMQ holds of them is counted in
 * bytes, against session-queue-bytes and queue-bytes, until it is written or given up: a Read whose
 * data does not fit is OVERLOADED, and a peer that does not read its replies loses its session,
 * never another's replies.
 */
#pragma once

#include "daemon/call.h"
#include "daemon/source.h"
#include "proto/caps.h"
#include "proto/codec.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ROUTER_MAX_FRAMES = WIRE_MAX_REQUESTS + 2, /* identity, batch, data of each request */
    ROUTER_BATCH = 32,                         /* messages of one pass ... */
    ROUTER_REQUESTS = 256                      /* ... and requests */
};

/* Bytes of replies that ZeroMQ holds, of one session or of several peers. Partner: its own threads,
 * which take away what was sent or given up. */
struct router_queue {
    _Atomic uint64_t num_bytes;
};

struct router_socket {
    void *zmq;
    struct source source;
    int listen_fd; /* ZeroMQ's, guarded */
    bool is_operator, may_have_more;
    char path[108];
};

struct router {
    void *context;
    struct router_socket engines, operators;
    /* replies of one peer, gathered: the bytes of a ReplyBatch */
    struct origin to;
    uint8_t *out;
    size_t num_out, max_out;
    uint32_t num_replies;
    bool has_out;
    struct router_frame *out_frames; /* data behind the replies */
    uint32_t num_out_frames;
    struct router_queue *queues; /* of each session, of operators, of those without a session */
    struct router_queue all;
    struct router_queue *to_queue; /* of @to */
    bool has_lost;                 /* sessions_end_lost() has something to do */
    void *memory;
    struct wire_arena arena; /* what one message is unpacked into */
    struct {
        uint64_t messages, requests, replies, malformed, foreign, oversized, unsendable;
    } counters;
};

int router_init(struct server *server);
void router_finish(struct server *server);

/* Receives messages; carries out each session's slice, the rest is its backlog (turns.h). Returns
 * whether there was one. */
bool router_run(struct server *server);
/* Whether something may have come meanwhile without the descriptor saying so. */
bool router_may_have_more(struct server *server);
/* Sends what is gathered. */
void router_flush(struct server *server);
/* One reply, to be gathered. */
void router_reply(struct server *server, const struct origin *to, wire_reply *reply);

/* Room for a data frame behind the reply that comes next; NULL: no memory, or too much is queued.
 */
void *router_frame(struct server *server, const struct origin *to, size_t num_bytes);
/* ... which is not sent after all. */
void router_frame_drop(struct server *server);
