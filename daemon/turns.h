/*
 * daemon/turns.h - requests that wait for their turn (order.h): kept as they came, carried out when
 * those before them have ended.
 *
 * A request that arrives while an earlier one of the same sequence is unfinished is packed into
 * memory of its own and becomes a waiting record like any other: its deadline, Cancel and its
 * session's end resolve it, and it counts among its session's outstanding requests. One that cannot
 * be answered at once stands in its lines until its record is given back.
 *
 * What is kept is counted in bytes: of a session against session-queue-bytes, of all against
 * queue-bytes.
 */
#pragma once

#include "daemon/call.h"
#include "daemon/order.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TURNS_BATCH = 32 /* of one pass of the loop */
};

/* Which sequences a verb is about: a column of the request table. */
enum turn_lines {
    TURN_NONE = 0,
    TURN_SEQUENCE, /* the message's first field */
    TURN_FORK,     /* ... and the child */
    TURN_ROWS,     /* of a Step */
    TURN_STEP      /* those of the step that the message's first field names */
};

struct held_request;

struct turns {
    struct order order;
    struct held_request *held; /* of each waiting record */
    uint64_t num_bytes;        /* of all that is held */
    uint64_t num_now, num_held, num_refused;
};

int turns_init(struct server *server, uint32_t max_waiting);
void turns_finish(struct server *server);

/*
 * Before a verb is carried out: STATUS_OK, go on; CALL_PENDING: it waits for its turn; or why it
 * can do neither. Fills call->lines.
 */
int turns_enter(struct call *call, enum turn_lines lines, wire_reply *reply);
/* It was carried out and its reply follows: what comes later waits for it. */
void turns_stand(struct call *call);
/* Its record is given back, or what it did is not the session's any more. */
void turns_leave(struct server *server, struct waiting *waiting);

/* Carries out what is ready, up to TURNS_BATCH. Returns whether there was any. */
bool turns_run(struct server *server);
