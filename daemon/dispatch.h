/* daemon/dispatch.h - the one table of requests, and what they share. */
#pragma once

#include "daemon/call.h"
#include "daemon/turns.h"

#include <stddef.h>

enum role { ROLE_SESSION = 1, ROLE_OPERATOR = 2, ROLE_ANY = 3 };

struct request_type {
    const char *name; /* of the oneof's field on the wire */
    int (*handle)(struct call *call, wire_reply *reply);
    /* What follows from a result, answered or not; NULL: nothing. */
    void (*settle)(struct server *server, struct waiting *waiting, int status);
    /* The reply of one that is done: enum wire_status. NULL: nothing but the status. */
    int (*finish)(struct server *server, struct waiting *waiting, wire_reply *reply);
    unsigned roles; /* enum role */
    bool while_draining;
    bool may_wait;         /* a waiting record is reserved before it is handled */
    bool waits_for_memory; /* its reply waits until the granules it took have memory */
    enum turn_lines lines; /* the sequences whose earlier verbs come first */
};

extern const struct request_type request_types[];
extern const size_t num_request_types;

/* Counters of each row. */
struct request_counters {
    uint64_t done, refused;
};

/* Carries one request out, and answers it unless it waits. */
void dispatch_request(struct server *server, struct session *session, const struct origin *origin,
                      uint32_t verb, const void *message, uint32_t deadline_ms,
                      struct frames *frames);

/*
 * One that waited for its turn: carried out now, like one that has just come. False: it was in a
 * backlog (@stands is false), and has to wait for its sequences now.
 */
bool dispatch_turn(struct server *server, struct waiting *waiting, const void *message,
                   struct frames *frames, bool stands);

/* The result of a request that waited is there: settles, waits for memory, finishes. */
void dispatch_result(struct server *server, struct waiting *waiting, int status);

/* Answers: over the ring or the router. */
void dispatch_reply(struct server *server, struct session *session, const struct origin *origin,
                    uint32_t verb, wire_reply *reply);
