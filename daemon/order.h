/*
 * daemon/order.h - verbs of one sequence are carried out in the order in which they came.
 *
 * A line is the unfinished requests of one sequence of one session, by arrival. A request stands in
 * the line of each sequence that it is about (a fork also in its child's, a step in those of all
 * its rows), in all of them at once: so it waits only for older ones, and nobody for ever. The
 * first of a line is being carried out or ready to be. A sequence without unfinished requests has
 * no line.
 *
 *  O1  A request that was put in behind others comes out of order_next() exactly once, when it has
 *      become the first of all its lines; unless it left before.
 *  O2  Claims are taken at start. Who checks order_has_room() is never refused in order_stand().
 *
 * Knows no request: they are numbers below max_requests (records of waiting.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ORDER_NONE = UINT32_MAX };

/* A request in one line. */
struct order_claim {
    uint64_t sequence;
    uint32_t session, request;
    uint32_t next, before; /* in the line; before of the first: ORDER_NONE */
    uint32_t tail;         /* of the first: the last of its line */
    uint32_t next_hashed;  /* of the first: another line of the bucket */
    uint32_t next_own;     /* the same request in another line; or of the free ones */
};

struct order_request {
    uint32_t first_claim, num_behind; /* lines in which somebody stands before it */
    uint32_t next_ready, before_ready;
    bool is_ready;
};

struct order {
    struct order_claim *claims;
    struct order_request *requests;
    uint32_t *buckets, mask;
    uint32_t max_claims, num_claims, num_touched, first_free;
    uint32_t max_requests, ready_head, ready_tail;
};

int order_init(struct order *order, uint32_t max_requests, uint32_t max_claims);
void order_finish(struct order *order);

static inline bool order_has_room(const struct order *order, uint32_t count)
{
    return count <= order->max_claims - order->num_claims;
}

/* Whether the sequence has no line: what is asked of it may be carried out now. */
bool order_is_free(const struct order *order, uint32_t session, uint64_t sequence);

/* At the end of that line; once, also if it is asked for twice: whether it is a claim more. */
bool order_stand(struct order *order, uint32_t request, uint32_t session, uint64_t sequence);

/* It ended, or gave up: out of all its lines; returns how many. What stood behind it may be ready
 * then. */
uint32_t order_leave(struct order *order, uint32_t request);

/* The request that has been ready for longest, to be carried out; ORDER_NONE: none is. */
uint32_t order_next(struct order *order);

/* Asserts that claims, lines and counts agree. For tests. */
void order_check(const struct order *order);
