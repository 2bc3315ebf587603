/* daemon/waiting.c - records of requests that wait, and what ends their waiting. */
#include "daemon/waiting.h"

#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>

int waiting_init(struct waitings *waitings, uint32_t max)
{
    waitings->max = max;
    waitings->head = waitings->tail = waitings->first_free = NO_INDEX;
    waitings->records = calloc(max, sizeof(*waitings->records));
    return waitings->records ? 0 : -ENOMEM;
}

void waiting_finish(struct waitings *waitings)
{
    free(waitings->records);
}

static uint32_t index_of(const struct waitings *waitings, const struct waiting *waiting)
{
    return (uint32_t)(waiting - waitings->records);
}

struct waiting *waiting_reserve(struct call *call)
{
    struct waitings *waitings = &call->server->waitings;

    uint32_t at = waitings->first_free;

    if (at == NO_INDEX)
        at = waitings->num_touched;
    if (at == waitings->max)
        return NULL;
    struct waiting *waiting = &waitings->records[at];
    *waiting = (struct waiting){
        .next = waiting->next,
        .generation = waiting->generation,
        .session = call->session ? sessions_index(call->server, call->session) : NO_INDEX,
        .origin = *call->origin,
        .verb = call->verb,
        .deadline_ms = call->deadline_ms,
        .step = NO_INDEX};
    return waiting;
}

/* W2 */
uint64_t waiting_cookie(const struct waitings *waitings, const struct waiting *waiting)
{
    return (uint64_t)waiting->generation << 32 | index_of(waitings, waiting);
}

struct waiting *waiting_find(struct waitings *waitings, uint64_t cookie)
{
    uint32_t at = (uint32_t)cookie;

    if (at >= waitings->max || waitings->records[at].what == WAITING_NOTHING ||
        waitings->records[at].generation != cookie >> 32)
        return NULL;
    return &waitings->records[at];
}

static void count_state(struct waitings *waitings, enum waiting_for what, int by)
{
    waitings->num_memory += what == WAITING_MEMORY ? (uint32_t)by : 0;
    waitings->num_copies += what == WAITING_COPY ? (uint32_t)by : 0;
    waitings->num_keep += what == WAITING_KEEP || what == WAITING_MODEL ? (uint32_t)by : 0;
}

void waiting_turn(struct server *server, struct waiting *waiting, enum waiting_for what)
{
    count_state(&server->waitings, waiting->what, -1);
    waiting->what = what;
    count_state(&server->waitings, what, 1);
}

int waiting_begin(struct server *server, struct waiting *waiting, enum waiting_for what)
{
    struct waitings *waitings = &server->waitings;
    uint32_t at = index_of(waitings, waiting);

    if (waiting->what != WAITING_NOTHING) {
        waiting_turn(server, waiting, what);
        return CALL_PENDING;
    }
    assert(at == (waitings->first_free == NO_INDEX ? waitings->num_touched : waitings->first_free));
    if (waitings->first_free == NO_INDEX)
        waitings->num_touched++;
    else
        waitings->first_free = waiting->next;
    waiting->next = NO_INDEX;
    waiting->before = waitings->tail;
    if (waitings->tail != NO_INDEX)
        waitings->records[waitings->tail].next = at;
    else
        waitings->head = at;
    waitings->tail = at;
    waitings->num_used++;
    waiting_turn(server, waiting, what);
    if (waiting->session != NO_INDEX)
        server->sessions.sessions[waiting->session].num_outstanding++;
    return CALL_PENDING;
}

void waiting_forget(struct server *server, struct waiting *waiting)
{
    struct waitings *waitings = &server->waitings;
    uint32_t at = index_of(waitings, waiting);

    turns_leave(server, waiting);
    if (waiting->is_waiter)
        share_give(&server->tenants.shares[SHARE_WAITERS],
                   server->sessions.sessions[waiting->session].tenant, 1);
    waiting_turn(server, waiting, WAITING_NOTHING);
    if (waiting->before != NO_INDEX)
        waitings->records[waiting->before].next = waiting->next;
    else
        waitings->head = waiting->next;
    if (waiting->next != NO_INDEX)
        waitings->records[waiting->next].before = waiting->before;
    else
        waitings->tail = waiting->before;
    waiting->generation = (waiting->generation + 1) & 0xFFFFFFF; /* W2; 28 bits: effects.c */
    waiting->next = waitings->first_free;
    waitings->first_free = at;
    waitings->num_used--;
}

static void answer(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    struct session *session = NULL;

    waiting->is_answered = true;
    if (waiting->session != NO_INDEX) {
        session = &server->sessions.sessions[waiting->session];
        session->num_outstanding--;
    }
    dispatch_reply(server, session, &waiting->origin, waiting->verb, reply);
}

void waiting_end(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    if (!waiting->is_answered)
        answer(server, waiting, reply);
    waiting_forget(server, waiting);
}

void waiting_answer_early(struct server *server, struct waiting *waiting, int status)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;

    reply.status = (uint32_t)status;
    server->waitings.num_timeouts += status == STATUS_TIMEOUT;
    server->waitings.num_cancelled += status == STATUS_CANCELLED;
    answer(server, waiting, &reply);
    if (waiting->what == WAITING_MEMORY || waiting->what == WAITING_COPY ||
        waiting->what == WAITING_TURN || waiting->what == WAITING_KEEP ||
        waiting->what == WAITING_MODEL) {
        if (request_types[waiting->verb].settle) /* nothing comes back that would */
            request_types[waiting->verb].settle(server, waiting, status);
        waiting_forget(server, waiting);
    }
}

void waiting_pool_reply(struct server *server, uint64_t cookie, int pool_answer)
{
    struct waiting *waiting = waiting_find(&server->waitings, cookie);

    if (!waiting) {
        server->waitings.num_late++;
        return;
    }
    if (waiting->is_promised && prompts_settle(server, waiting, pool_answer))
        return;
    dispatch_result(server, waiting, status_of_pool(pool_answer));
}

void waiting_pass_memory(struct server *server)
{
    struct waitings *waitings = &server->waitings;
    uint32_t next;

    for (uint32_t at = waitings->head; at != NO_INDEX && waitings->num_memory > 0; at = next) {
        struct waiting *waiting = &waitings->records[at];
        next = waiting->next;
        if (waiting->what == WAITING_MEMORY && effects_passed(&server->effects, waiting->mark))
            dispatch_result(server, waiting, STATUS_OK);
    }
}

/* Carried out again, now that they may be. */
static bool has_passed(const struct server *server, const struct waiting *waiting)
{
    if (waiting->what == WAITING_MODEL)
        return state_model_is_settled(server, (uint32_t)waiting->mark);
    return waiting->what == WAITING_KEEP && survive_passed(server, waiting->mark);
}

void waiting_pass_keep(struct server *server)
{
    struct waitings *waitings = &server->waitings;
    uint32_t next;

    for (uint32_t at = waitings->head; at != NO_INDEX && waitings->num_keep > 0; at = next) {
        struct waiting *waiting = &waitings->records[at];
        next = waiting->next;
        if (has_passed(server, waiting))
            (void)turns_again(server, waiting);
    }
}

void waiting_tick(struct server *server)
{
    struct waitings *waitings = &server->waitings;
    uint32_t next;

    for (uint32_t at = waitings->head; at != NO_INDEX; at = next) {
        struct waiting *waiting = &waitings->records[at];
        next = waiting->next;
        if (!waiting->is_answered && waiting->deadline_ms <= server->now_ms)
            waiting_answer_early(server, waiting, STATUS_TIMEOUT);
    }
}

void waiting_drop_session(struct server *server, uint32_t session)
{
    struct waitings *waitings = &server->waitings;
    uint32_t next;

    for (uint32_t at = waitings->head; at != NO_INDEX; at = next) {
        struct waiting *waiting = &waitings->records[at];
        next = waiting->next;
        if (waiting->session != session)
            continue;
        waiting->is_answered = true;
        turns_leave(server,
                    waiting); /* also of what stays: the session's place is another's soon */
        if (waiting->what == WAITING_NAMES)
            waiting->session = NO_INDEX; /* W3 */
        else if (waiting->what != WAITING_ATTEND)
            waiting_forget(server, waiting);
    }
}

struct waiting *waiting_find_request(struct server *server, uint32_t session, uint64_t id)
{
    struct waitings *waitings = &server->waitings;

    for (uint32_t at = waitings->head; at != NO_INDEX; at = waitings->records[at].next) {
        struct waiting *waiting = &waitings->records[at];
        if (waiting->session == session && waiting->origin.id == id && !waiting->is_answered)
            return waiting;
    }
    return NULL;
}
