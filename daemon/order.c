/* daemon/order.c - lines over arrays taken at start; the first of a line is what its bucket finds.
 */
#include "daemon/order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define NONE ORDER_NONE

int order_init(struct order *order, uint32_t max_requests, uint32_t max_claims)
{
    uint32_t size = 64;

    while (size < max_requests)
        size *= 2;
    *order = (struct order){.mask = size - 1,
                            .max_claims = max_claims,
                            .max_requests = max_requests,
                            .first_free = NONE,
                            .ready_head = NONE,
                            .ready_tail = NONE};
    order->claims = calloc(max_claims, sizeof(*order->claims));
    order->requests = calloc(max_requests, sizeof(*order->requests));
    order->buckets = calloc(size, sizeof(*order->buckets));
    if (!order->claims || !order->requests || !order->buckets)
        return -ENOMEM;
    for (uint32_t at = 0; at < size; at++)
        order->buckets[at] = NONE;
    for (uint32_t at = 0; at < max_requests; at++)
        order->requests[at].first_claim = NONE;
    return 0;
}

void order_finish(struct order *order)
{
    free(order->claims);
    free(order->requests);
    free(order->buckets);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct order *order, uint32_t session, uint64_t sequence)
{
    uint64_t mixed = (sequence ^ (uint64_t)session << 40) * UINT64_C(0x9E3779B97F4A7C15);

    return &order->buckets[(mixed ^ mixed >> 32) & order->mask];
}

/* Where the first of the line is named, or would be. */
static uint32_t *line_find(const struct order *order, uint32_t session, uint64_t sequence)
{
    uint32_t *link = bucket_of(order, session, sequence);

    while (*link != NONE &&
           (order->claims[*link].sequence != sequence || order->claims[*link].session != session))
        link = &order->claims[*link].next_hashed;
    return link;
}

bool order_is_free(const struct order *order, uint32_t session, uint64_t sequence)
{
    return order->num_claims == 0 || *line_find(order, session, sequence) == NONE;
}

/* Those never used are not touched before: an idle daemon has no memory for them. */
static uint32_t claim_take(struct order *order)
{
    uint32_t at = order->first_free;

    assert(order->num_claims < order->max_claims); /* O2 */
    if (at != NONE)
        order->first_free = order->claims[at].next_own;
    else
        at = order->num_touched++;
    order->num_claims++;
    return at;
}

bool order_stand(struct order *order, uint32_t request, uint32_t session, uint64_t sequence)
{
    struct order_request *record = &order->requests[request];
    uint32_t *line = line_find(order, session, sequence);

    if (*line != NONE && order->claims[order->claims[*line].tail].request == request)
        return false;
    uint32_t at = claim_take(order);
    struct order_claim *claim = &order->claims[at];
    *claim = (struct order_claim){.sequence = sequence,
                                  .session = session,
                                  .request = request,
                                  .next = NONE,
                                  .before = NONE,
                                  .tail = at,
                                  .next_hashed = NONE,
                                  .next_own = record->first_claim};
    record->first_claim = at;
    if (*line == NONE) {
        *line = at;
        return true;
    }
    struct order_claim *first = &order->claims[*line];
    claim->before = first->tail;
    order->claims[first->tail].next = at;
    first->tail = at;
    record->num_behind++;
    return true;
}

/* ---- ready ---------------------------------------------------------------------------------- */

static void ready_push(struct order *order, uint32_t request)
{
    struct order_request *record = &order->requests[request];

    record->is_ready = true;
    record->next_ready = NONE;
    record->before_ready = order->ready_tail;
    if (order->ready_tail != NONE)
        order->requests[order->ready_tail].next_ready = request;
    else
        order->ready_head = request;
    order->ready_tail = request;
}

static void ready_remove(struct order *order, uint32_t request)
{
    struct order_request *record = &order->requests[request];

    record->is_ready = false;
    if (record->before_ready != NONE)
        order->requests[record->before_ready].next_ready = record->next_ready;
    else
        order->ready_head = record->next_ready;
    if (record->next_ready != NONE)
        order->requests[record->next_ready].before_ready = record->before_ready;
    else
        order->ready_tail = record->before_ready;
}

uint32_t order_next(struct order *order)
{
    uint32_t request = order->ready_head;

    if (request != NONE)
        ready_remove(order, request);
    return request;
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* The first of a line goes: the second is found in its place. */
static void first_leave(struct order *order, uint32_t at)
{
    struct order_claim *claim = &order->claims[at];
    uint32_t *line = line_find(order, claim->session, claim->sequence);

    assert(*line == at);
    if (claim->next == NONE) {
        *line = claim->next_hashed;
        return;
    }
    struct order_claim *second = &order->claims[claim->next];
    second->before = NONE;
    second->tail = claim->tail;
    second->next_hashed = claim->next_hashed;
    *line = claim->next;
    if (--order->requests[second->request].num_behind == 0)
        ready_push(order, second->request); /* O1 */
}

static void claim_leave(struct order *order, uint32_t at)
{
    struct order_claim *claim = &order->claims[at];

    if (claim->before == NONE) {
        first_leave(order, at);
    } else {
        order->claims[claim->before].next = claim->next;
        if (claim->next != NONE)
            order->claims[claim->next].before = claim->before;
        else
            order->claims[*line_find(order, claim->session, claim->sequence)].tail = claim->before;
    }
    claim->next_own = order->first_free;
    order->first_free = at;
    order->num_claims--;
}

uint32_t order_leave(struct order *order, uint32_t request)
{
    struct order_request *record = &order->requests[request];
    uint32_t next, count = 0;

    for (uint32_t at = record->first_claim; at != NONE; at = next, count++) {
        next = order->claims[at].next_own;
        claim_leave(order, at);
    }
    record->first_claim = NONE;
    record->num_behind = 0;
    if (record->is_ready)
        ready_remove(order, request);
    return count;
}

/* ---- check ---------------------------------------------------------------------------------- */

void order_check(const struct order *order)
{
    uint32_t num_claims = 0;

    for (uint32_t request = 0; request < order->max_requests; request++) {
        uint32_t num_behind = 0;
        for (uint32_t at = order->requests[request].first_claim; at != NONE;
             at = order->claims[at].next_own) {
            const struct order_claim *claim = &order->claims[at];
            assert(claim->request == request);
            assert((claim->before == NONE) ==
                   (*line_find(order, claim->session, claim->sequence) == at));
            assert(claim->before == NONE || order->claims[claim->before].next == at);
            num_behind += claim->before != NONE;
            num_claims++;
        }
        assert(num_behind == order->requests[request].num_behind);
        assert(!order->requests[request].is_ready || num_behind == 0);
    }
    assert(num_claims == order->num_claims);
}
