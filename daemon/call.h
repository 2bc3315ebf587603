/*
 * daemon/call.h - one request being carried out, from whichever way it came.
 *
 * A handler returns an enum wire_status; or CALL_PENDING, after waiting_begin() (waiting.h), and
 * the reply follows. What the reply says beside its status is written by the row's finish(), then.
 * What a reply points to lives in the server's scratch until it is packed, right after the handler
 * returned.
 */
#pragma once

#include "proto/kvpool.pb-c.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct session;
struct waiting;

enum {
    CALL_PENDING = NUM_STATUSES, /* the reply follows */
    MAX_IDENTITY = 16            /* bytes of a ZeroMQ routing id that is answered */
};

/* Short names for what protoc-c makes. */
typedef Kvpool__Wire__Reply wire_reply;

/* Where the answer goes. */
struct origin {
    uint64_t id;         /* of the request */
    uint64_t session_id; /* 0: none */
    bool is_ring, is_operator;
    uint8_t num_identity;
    uint8_t identity[MAX_IDENTITY];
};

/* Frames that came behind a batch (Write); taken in the order of its requests. */
struct frames {
    struct frame {
        const void *bytes;
        size_t num_bytes;
        void *message; /* the zmq_msg_t that they lie in */
    } * frames;
    uint32_t count, next;
};

/* The sequences that a call is about: whose lines it stands in (turns.h). */
struct step_row_record;
struct call_lines {
    uint8_t kind; /* enum turn_lines */
    uint32_t count;
    const struct step_row_record *rows;
};

struct call {
    struct server *server;
    struct session *session; /* NULL: an operator's */
    const struct origin *origin;
    struct frames *frames; /* NULL: none can be */
    const void *message;   /* of the verb: Kvpool__Wire__Allocate ... */
    uint32_t verb;         /* row of the request table */
    uint64_t deadline_ms;
    struct waiting *waiting; /* reserved for it, if its row says that it may wait */
    struct call_lines lines;
};

/* The one message that a reply carries; shown to people. Must be a constant string. */
static inline int refuse(wire_reply *reply, enum wire_status status, const char *message)
{
    reply->message = (char *)(uintptr_t)message;
    return (int)status;
}

/* The wire status of what the pool answered. */
int status_of_pool(int answer);
