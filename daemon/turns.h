/*
 * daemon/turns.h - requests that wait for their turn: kept as they came, carried out when it comes.
 *
 * There are two turns. A session's: what it sends over the socket is carried out for TURNS_SLICE_US
 * in one pass of the loop; the rest is its backlog, and all backlogs are gone through in turn, so
 * that nobody waits for another's batch. And a sequence's (order.h): a request
 * that comes while an earlier one of its sequence is unfinished waits for it. One that cannot be
 * answered at once stands in its lines until its record is given back.
 *
 * A request that waits is packed into memory of its own and is a waiting record like any other: its
 * deadline, Cancel and its session's end resolve it, and it counts among its session's outstanding
 * requests.
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
    TURNS_SLICE_US = 200, /* of one session in one pass of the loop */
    TURNS_BATCH = 128     /* of all sessions' backlogs; of all lines */
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
    struct held_request *held;          /* of each waiting record */
    uint32_t num_backlog, next_session; /* requests; whose backlog is gone on with */
    struct backlog *spender;            /* whose time it is since @mark_us; NULL: nobody's */
    uint64_t mark_us;
    uint64_t num_bytes; /* of all that is held */
    uint64_t num_now, num_held, num_refused;
};

int turns_init(struct server *server, uint32_t max_waiting);
void turns_finish(struct server *server);

/* What a session has of it. */
struct backlog {
    uint32_t head, tail;     /* waiting records; ORDER_NONE: none */
    uint64_t pass, spent_us; /* in that pass */
};

/*
 * Before a verb is carried out: STATUS_OK, go on; CALL_PENDING: it waits for its turn; or why it
 * can do neither. Fills call->lines.
 */
int turns_enter(struct call *call, enum turn_lines lines, wire_reply *reply);
/* One that was in a backlog: STATUS_OK, go on; CALL_PENDING: it stands in its lines; or LIMIT. */
int turns_come(struct call *call, enum turn_lines lines, wire_reply *reply);
/* It was carried out and its reply follows: what comes later waits for it. */
void turns_stand(struct call *call);
/* Its record is given back, or what it did is not the session's any more. */
void turns_leave(struct server *server, struct waiting *waiting);

/* Carries out what is ready. Returns whether there was any, or is more. */
bool turns_run(struct server *server);
