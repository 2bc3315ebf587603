/* daemon/turns.c - which lines a request stands in, and how it is kept until it is the first. */
#include "daemon/turns.h"

#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

/* In ZeroMQ's own buffers, which are the memory that comes and goes with requests. */
struct held_request {
    const ProtobufCMessageDescriptor *descriptor; /* NULL: nothing is held */
    zmq_msg_t message, frame;
    bool has_frame, is_in_backlog;
    bool is_kept;          /* also after it was carried out */
    uint32_t next, before; /* in the backlog */
    uint64_t num_bytes;
};

/* The first field, whatever the verb. */
#define FIRST(NAME, FIELD)                                                                         \
    _Static_assert(offsetof(Kvpool__Wire__##NAME, FIELD) ==                                        \
                       offsetof(Kvpool__Wire__SequenceRef, sequence),                              \
                   "the first field of " #NAME)
FIRST(Allocate, sequence);
FIRST(Append, sequence);
FIRST(Resume, sequence);
FIRST(Truncate, sequence);
FIRST(Fork, sequence);
FIRST(Write, sequence);
FIRST(Read, sequence);
FIRST(Attend, step);
FIRST(EndStep, step);

int turns_init(struct server *server, uint32_t max_waiting)
{
    const struct config *config = server->config;
    /* Each is about one sequence or two, but for steps and what belongs to them. */
    uint64_t max_claims = 2 * (uint64_t)max_waiting + config->max_steps * config->max_step_rows;

    if (max_claims >= ORDER_NONE)
        max_claims = ORDER_NONE - 1;
    server->turns.held = calloc(max_waiting, sizeof(*server->turns.held));
    if (!server->turns.held)
        return -ENOMEM;
    return order_init(&server->turns.order, max_waiting, (uint32_t)max_claims);
}

static void held_drop(struct server *server, uint32_t request)
{
    struct held_request *held = &server->turns.held[request];
    uint32_t session = server->waitings.records[request].session;

    if (!held->descriptor)
        return;
    held->descriptor = NULL;
    held->is_kept = false;
    (void)zmq_msg_close(&held->message);
    if (held->has_frame)
        (void)zmq_msg_close(&held->frame);
    server->turns.num_now--;
    server->turns.num_bytes -= held->num_bytes;
    server->sessions.sessions[session].held_bytes -= held->num_bytes;
}

void turns_finish(struct server *server)
{
    for (uint32_t at = 0; server->turns.held && at < server->waitings.max; at++)
        held_drop(server, at);
    free(server->turns.held);
    order_finish(&server->turns.order);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static uint64_t first_field(const struct call *call)
{
    return ((const Kvpool__Wire__SequenceRef *)call->message)->sequence;
}

static void lines_find(struct call *call, enum turn_lines lines)
{
    struct call_lines *of = &call->lines;

    of->kind = (uint8_t)lines;
    of->count = lines == TURN_FORK ? 2 : lines != TURN_NONE;
    if (lines == TURN_ROWS)
        of->count = (uint32_t)((const Kvpool__Wire__Step *)call->message)->n_rows;
    else if (lines == TURN_STEP)
        of->count = steps_rows(call, first_field(call), &of->rows);
}

/* Also after the verb was carried out: a step's rows stay where they are until another begins. */
static uint64_t line_at(const struct call *call, uint32_t at)
{
    switch (call->lines.kind) {
    case TURN_ROWS:
        return ((const Kvpool__Wire__Step *)call->message)->rows[at]->sequence;
    case TURN_STEP:
        return call->lines.rows[at].sequence;
    default:
        return at == 0 ? first_field(call) : ((const Kvpool__Wire__Fork *)call->message)->child;
    }
}

static bool is_first(const struct call *call, uint32_t session)
{
    const struct order *order = &call->server->turns.order;

    for (uint32_t at = 0; at < call->lines.count && order->num_claims > 0; at++) {
        if (!order_is_free(order, session, line_at(call, at)))
            return false;
    }
    return true;
}

void turns_stand(struct call *call)
{
    struct server *server = call->server;
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, call->waiting), count = 0;

    for (uint32_t at = 0; at < call->lines.count; at++)
        count +=
            order_stand(&server->turns.order, request, call->waiting->session, line_at(call, at));
    if (count > 0)
        share_take(&server->tenants.shares[SHARE_CLAIMS], call->session->tenant, count);
}

/* ---- backlogs ------------------------------------------------------------------------------- */

static void backlog_push(struct server *server, struct session *session, uint32_t request)
{
    struct held_request *held = &server->turns.held[request];
    struct backlog *backlog = &session->backlog;

    held->is_in_backlog = true;
    held->next = ORDER_NONE;
    held->before = backlog->tail;
    if (backlog->tail != ORDER_NONE)
        server->turns.held[backlog->tail].next = request;
    else
        backlog->head = request;
    backlog->tail = request;
    server->turns.num_backlog++;
}

static void backlog_remove(struct server *server, struct session *session, uint32_t request)
{
    struct held_request *held = &server->turns.held[request];
    struct backlog *backlog = &session->backlog;

    held->is_in_backlog = false;
    if (held->before != ORDER_NONE)
        server->turns.held[held->before].next = held->next;
    else
        backlog->head = held->next;
    if (held->next != ORDER_NONE)
        server->turns.held[held->next].before = held->before;
    else
        backlog->tail = held->before;
    server->turns.num_backlog--;
}

/* Time passes on the account of whoever was last carried out for. One clock is read a request. */
static bool slice_has_time(struct server *server, struct backlog *backlog)
{
    struct turns *turns = &server->turns;
    uint64_t now_us = server_now_us();

    if (turns->spender)
        turns->spender->spent_us += now_us - turns->mark_us;
    turns->spender = backlog;
    turns->mark_us = now_us;
    if (backlog->pass != server->pass)
        backlog->spent_us = 0;
    backlog->pass = server->pass;
    return backlog->spent_us < TURNS_SLICE_US;
}

/*
 * Whether the session's slice goes on, and nothing older of it waits. What comes through a ring has
 * a bound of its own (RING_BATCH), but waits behind the backlog.
 */
static bool slice_take(const struct call *call)
{
    struct backlog *backlog = &call->session->backlog;

    return backlog->head == ORDER_NONE &&
           (call->origin->is_ring || slice_has_time(call->server, backlog));
}

void turns_leave(struct server *server, struct waiting *waiting)
{
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, waiting);

    if (server->turns.held[request].is_in_backlog)
        backlog_remove(server, &server->sessions.sessions[waiting->session], request);
    held_drop(server, request);
    uint32_t count = order_leave(&server->turns.order, request);
    if (count > 0)
        share_give(&server->tenants.shares[SHARE_CLAIMS],
                   server->sessions.sessions[waiting->session].tenant, count);
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Copies what the request says; its data frame is shared with the message that it came in. */
static int held_make(struct call *call, struct held_request *held)
{
    const ProtobufCMessage *message = call->message;
    size_t num_bytes = protobuf_c_message_get_packed_size(message);
    struct frames *frames = call->frames;
    const struct frame *frame =
        frames && frames->next < frames->count ? &frames->frames[frames->next] : NULL;

    held->num_bytes = num_bytes + (frame ? frame->num_bytes : 0);
    if (call->session->held_bytes + held->num_bytes > call->server->config->session_queue_bytes ||
        call->server->turns.num_bytes + held->num_bytes > call->server->config->queue_bytes)
        return -ENOSPC;
    if (zmq_msg_init_size(&held->message, num_bytes) < 0)
        return -ENOMEM;
    (void)protobuf_c_message_pack(message, zmq_msg_data(&held->message));
    held->has_frame = frame != NULL;
    if (frame) {
        (void)zmq_msg_init(&held->frame);
        (void)zmq_msg_copy(&held->frame, frame->message);
    }
    held->descriptor = message->descriptor;
    call->server->turns.num_bytes += held->num_bytes;
    call->session->held_bytes += held->num_bytes;
    return 0;
}

/* STATUS_OK: it is the first of all its lines; CALL_PENDING: it is not; or there is no room in
 * them. */
static int lines_look(struct call *call, enum turn_lines lines, wire_reply *reply)
{
    struct server *server = call->server;

    lines_find(call, lines);
    if (call->lines.count > 0 && !share_has(&server->tenants.shares[SHARE_CLAIMS],
                                            call->session->tenant, call->lines.count)) {
        server->turns.num_refused++;
        return refuse(reply, STATUS_LIMIT, "too many requests of too many sequences wait");
    }
    return is_first(call, call->waiting->session) ? STATUS_OK : CALL_PENDING;
}

int turns_enter(struct call *call, enum turn_lines lines, wire_reply *reply)
{
    struct server *server = call->server;
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, call->waiting);
    bool is_now = !call->session || slice_take(call);
    int status = lines_look(call, lines, reply);

    if (status != CALL_PENDING && (status != STATUS_OK || is_now))
        return status;
    if (held_make(call, &server->turns.held[request])) {
        server->turns.num_refused++;
        return refuse(reply, STATUS_OVERLOADED, "too much waits for its turn: wait for replies");
    }
    server->turns.num_held++;
    server->turns.num_now++;
    if (is_now)
        turns_stand(call);
    else
        backlog_push(server, call->session, request);
    call->waiting->can_cancel = true;
    return waiting_begin(server, call->waiting, WAITING_TURN);
}

int turns_come(struct call *call, enum turn_lines lines, wire_reply *reply)
{
    int status = lines_look(call, lines, reply);

    if (status == CALL_PENDING)
        turns_stand(call);
    return status;
}

/* ---- carrying out --------------------------------------------------------------------------- */

static void held_run(struct server *server, uint32_t request, bool stands)
{
    struct waiting *waiting = &server->waitings.records[request];
    struct held_request *held = &server->turns.held[request];
    struct frame frame = {.message = &held->frame};
    struct frames frames = {.frames = &frame, .count = held->has_frame};

    if (held->has_frame) {
        frame.bytes = zmq_msg_data(&held->frame);
        frame.num_bytes = zmq_msg_size(&held->frame);
    }
    const void *message =
        wire_message_decode(&server->router.arena, held->descriptor, zmq_msg_data(&held->message),
                            zmq_msg_size(&held->message));
    held->is_kept = false;
    if (dispatch_turn(server, waiting, message, &frames, stands) && !held->is_kept)
        held_drop(server, request); /* its record may be free by now: then it was dropped */
}

bool turns_keep(struct call *call)
{
    uint32_t request = (uint32_t)waiting_cookie(&call->server->waitings, call->waiting);
    struct held_request *held = &call->server->turns.held[request];

    if (!held->descriptor) {
        if (held_make(call, held))
            return false;
        call->server->turns.num_now++;
    }
    held->is_kept = true;
    return true;
}

bool turns_again(struct server *server, struct waiting *waiting)
{
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, waiting);

    if (!server->turns.held[request].descriptor)
        return false;
    held_run(server, request, true); /* it stands in its lines */
    return true;
}

/* Each backlog's slice, on from where the last pass ended. */
static uint32_t backlogs_run(struct server *server)
{
    struct turns *turns = &server->turns;
    uint32_t max = server->sessions.max, count = 0;

    for (uint32_t looked = 0; looked < max && turns->num_backlog > 0 && count < TURNS_BATCH;
         looked++) {
        struct session *session = &server->sessions.sessions[turns->next_session];
        turns->next_session = (turns->next_session + 1) % max;
        if (session->state != SESSION_OPEN)
            continue;
        while (session->backlog.head != ORDER_NONE && count < TURNS_BATCH &&
               slice_has_time(server, &session->backlog)) {
            uint32_t request = session->backlog.head;
            backlog_remove(server, session, request);
            held_run(server, request, false);
            count++;
        }
    }
    return count;
}

bool turns_run(struct server *server)
{
    struct turns *turns = &server->turns;

    turns->spender = NULL; /* what the loop did meanwhile is nobody's */
    uint32_t request, count = turns->num_backlog > 0 ? backlogs_run(server) : 0;
    uint32_t end = count + TURNS_BATCH;

    while (count < end && (request = order_next(&turns->order)) != ORDER_NONE) {
        held_run(server, request, true);
        count++;
    }
    turns->spender = NULL;
    return count > 0 || turns->num_backlog > 0; /* slices may be used up: the next pass goes on */
}
