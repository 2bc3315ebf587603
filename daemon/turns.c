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
    bool has_frame;
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
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, call->waiting);

    for (uint32_t at = 0; at < call->lines.count; at++)
        order_stand(&server->turns.order, request, call->waiting->session, line_at(call, at));
}

void turns_leave(struct server *server, struct waiting *waiting)
{
    uint32_t request = (uint32_t)waiting_cookie(&server->waitings, waiting);

    held_drop(server, request);
    order_leave(&server->turns.order, request);
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

int turns_enter(struct call *call, enum turn_lines lines, wire_reply *reply)
{
    struct server *server = call->server;

    lines_find(call, lines);
    if (!order_has_room(&server->turns.order, call->lines.count)) {
        server->turns.num_refused++;
        return refuse(reply, STATUS_LIMIT, "too many requests wait: max_waiters");
    }
    if (is_first(call, call->waiting->session))
        return STATUS_OK;
    if (held_make(
            call,
            &server->turns.held[waiting_cookie(&server->waitings, call->waiting) & UINT32_MAX])) {
        server->turns.num_refused++;
        return refuse(reply, STATUS_OVERLOADED,
                      "too much waits for earlier verbs of its sequences: wait for replies");
    }
    server->turns.num_held++;
    server->turns.num_now++;
    turns_stand(call);
    call->waiting->can_cancel = true;
    return waiting_begin(server, call->waiting, WAITING_TURN);
}

/* ---- carrying out --------------------------------------------------------------------------- */

static void held_run(struct server *server, uint32_t request)
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
    waiting->can_cancel = false;
    dispatch_turn(server, waiting, message, &frames);
    held_drop(server, request); /* its record may be free by now: then it was dropped */
}

bool turns_run(struct server *server)
{
    uint32_t request, count = 0;

    while (count < TURNS_BATCH && (request = order_next(&server->turns.order)) != ORDER_NONE) {
        held_run(server, request);
        count++;
    }
    return count > 0;
}
