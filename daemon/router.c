/* daemon/router.c - frames to requests, replies to frames. */
#include "daemon/router.h"

#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "proto/caps.h"
#include "proto/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    REPLY_ROOM = 64,     /* of the envelope */
    QUEUE_MESSAGES = 64, /* received and not yet read, of one peer */
    REPLIES_TAG = 0x22   /* field 4 of a ReplyBatch, length-delimited */
};

struct router_frame {
    zmq_msg_t message;
};

/* ---- sockets -------------------------------------------------------------------------------- */

static void router_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)server;
    (void)source;
    (void)events; /* edges only: router_run() asks the socket itself, in every pass */
}

static int option(void *zmq, int name, int value)
{
    return zmq_setsockopt(zmq, name, &value, sizeof(value));
}

/* ZeroMQ counts messages: as many as keep a session's queue below its bytes, but enough to batch.
 */
static int queue_messages(const struct config *config)
{
    uint64_t count = config->session_queue_bytes / config->message_bytes;

    return count < 8 ? 8 : count > QUEUE_MESSAGES ? QUEUE_MESSAGES : (int)count;
}

/* Bound by us, with its file mode from the first moment; ZeroMQ takes the descriptor. */
static int socket_open(struct server *server, struct router_socket *socket, bool is_operator)
{
    const struct config *config = server->config;
    char endpoint[128];
    int listen_fd, fd;
    size_t size = sizeof(fd);
    int err =
        config_socket_path(config, is_operator ? CONFIG_OPERATOR_SOCKET : CONFIG_REQUEST_SOCKET,
                           socket->path, sizeof(socket->path));

    socket->source.fd = -1;
    socket->is_operator = is_operator;
    if (err)
        return err;
    err = listen_unix(socket->path, SOCK_STREAM,
                      (mode_t)(is_operator ? config->operator_mode : config->session_mode),
                      &listen_fd);
    if (err)
        return err;
    socket->zmq = zmq_socket(server->router.context, ZMQ_ROUTER);
    if (!socket->zmq) {
        (void)close(listen_fd);
        return -errno;
    }
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", socket->path);
    int64_t max_bytes = (int64_t)config->message_bytes;
    if (option(socket->zmq, ZMQ_LINGER, 0) || option(socket->zmq, ZMQ_ROUTER_MANDATORY, 1) ||
        option(socket->zmq, ZMQ_SNDHWM, (int)config->credits + QUEUE_MESSAGES) ||
        option(socket->zmq, ZMQ_RCVHWM, queue_messages(config)) ||
        zmq_setsockopt(socket->zmq, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes)) ||
        option(socket->zmq, ZMQ_USE_FD, listen_fd) || zmq_bind(socket->zmq, endpoint) ||
        zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size))
        return -zmq_errno();
    socket->source = (struct source){.fd = fd, .ready = router_ready};
    socket->may_have_more = true;
    return source_add(server, &socket->source, EPOLLIN);
}

int router_init(struct server *server)
{
    struct router *router = &server->router;

    router->engines.source.fd = router->operators.source.fd = -1;
    router->context = zmq_ctx_new();
    router->max_out = WIRE_MAX_REPLY_BYTES;
    router->out = malloc(router->max_out);
    router->memory = aligned_alloc(64, WIRE_ARENA_BYTES);
    router->out_frames = calloc(ROUTER_MAX_FRAMES, sizeof(*router->out_frames));
    if (!router->context || !router->out || !router->memory || !router->out_frames)
        return -ENOMEM;
    wire_arena_init(&router->arena, router->memory, WIRE_ARENA_BYTES);
    int err = socket_open(server, &router->engines, false);
    return err ? err : socket_open(server, &router->operators, true);
}

static void socket_close(struct router_socket *socket)
{
    if (!socket->zmq)
        return;
    (void)zmq_close(socket->zmq);
    (void)unlink(socket->path);
}

void router_finish(struct server *server)
{
    struct router *router = &server->router;

    socket_close(&router->engines);
    socket_close(&router->operators);
    if (router->context)
        (void)zmq_ctx_term(router->context);
    free(router->out);
    free(router->memory);
    free(router->out_frames);
}

/* ---- replies -------------------------------------------------------------------------------- */

/* The fields of a ReplyBatch may stand in any order: first the envelope, then reply after reply. */
static void out_begin(struct server *server, const struct origin *to)
{
    struct router *router = &server->router;
    Kvpool__Wire__ReplyBatch batch = KVPOOL__WIRE__REPLY_BATCH__INIT;

    batch.boot_id.data = server->boot_id;
    batch.boot_id.len = sizeof(server->boot_id);
    batch.major = WIRE_MAJOR;
    batch.minor = WIRE_MINOR;
    router->num_out = kvpool__wire__reply_batch__pack(&batch, router->out);
    router->to = *to;
    router->has_out = true;
    router->num_replies = 0;
}

static bool is_same_peer(const struct origin *one, const struct origin *other)
{
    return one->is_operator == other->is_operator && one->num_identity == other->num_identity &&
           memcmp(one->identity, other->identity, one->num_identity) == 0;
}

/* Its queue is full, so it broke its credits, or it is gone: its session is, too. */
static void peer_lost(struct server *server, int error)
{
    struct router *router = &server->router;

    router->counters.unsendable++;
    if (error == EAGAIN && router->to.session_id) {
        struct session *session = sessions_by_id(server, router->to.session_id);
        if (session)
            session_lose(server, session);
    }
}

static void frames_close(struct router *router)
{
    while (router->num_out_frames > 0) /* one that was sent is empty: closing it is nothing */
        (void)zmq_msg_close(&router->out_frames[--router->num_out_frames].message);
}

void router_flush(struct server *server)
{
    struct router *router = &server->router;
    struct router_socket *socket = router->to.is_operator ? &router->operators : &router->engines;
    int flags = ZMQ_DONTWAIT | (router->num_out_frames > 0 ? ZMQ_SNDMORE : 0);

    if (!router->has_out)
        return;
    router->has_out = false;
    if (zmq_send(socket->zmq, router->to.identity, router->to.num_identity,
                 ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        frames_close(router);
        peer_lost(server, zmq_errno());
        return;
    }
    (void)zmq_send(socket->zmq, router->out, router->num_out, flags);
    for (uint32_t at = 0; at < router->num_out_frames; at++) {
        bool is_last = at + 1 == router->num_out_frames;
        (void)zmq_msg_send(&router->out_frames[at].message, socket->zmq,
                           ZMQ_DONTWAIT | (is_last ? 0 : ZMQ_SNDMORE));
    }
    frames_close(router);
    router->counters.replies += router->num_replies;
    socket->may_have_more = true; /* sending takes in what came: the descriptor may stay quiet */
}

static size_t put_length(uint8_t *out, size_t length)
{
    size_t at = 0;

    for (; length >= 0x80; length >>= 7)
        out[at++] = (uint8_t)(length | 0x80);
    out[at++] = (uint8_t)length;
    return at;
}

void router_reply(struct server *server, const struct origin *to, wire_reply *reply)
{
    struct router *router = &server->router;
    size_t num_bytes = kvpool__wire__reply__get_packed_size(reply);

    if (num_bytes + REPLY_ROOM > router->max_out) {
        reply->result_case = KVPOOL__WIRE__REPLY__RESULT__NOT_SET;
        reply->status = STATUS_LIMIT;
        reply->message = (char *)(uintptr_t) "the reply is too large: ask for less";
        num_bytes = kvpool__wire__reply__get_packed_size(reply);
    }
    if (router->has_out &&
        (!is_same_peer(&router->to, to) || router->num_replies == WIRE_MAX_REQUESTS ||
         router->num_out + num_bytes + REPLY_ROOM > router->max_out))
        router_flush(server);
    if (!router->has_out)
        out_begin(server, to);
    router->out[router->num_out++] = REPLIES_TAG;
    router->num_out += put_length(router->out + router->num_out, num_bytes);
    router->num_out += kvpool__wire__reply__pack(reply, router->out + router->num_out);
    router->num_replies++;
}

bool router_may_have_more(struct server *server)
{
    struct router *router = &server->router;
    bool may = router->engines.may_have_more || router->operators.may_have_more;

    router->engines.may_have_more = router->operators.may_have_more = false;
    return may;
}

void *router_frame(struct server *server, const struct origin *to, size_t num_bytes)
{
    struct router *router = &server->router;

    /* What is gathered for somebody else, or close to its bounds, goes first: the frame is ours. */
    if (router->has_out &&
        (!is_same_peer(&router->to, to) || router->num_out_frames == ROUTER_MAX_FRAMES ||
         router->num_replies == WIRE_MAX_REQUESTS || router->num_out > router->max_out / 2))
        router_flush(server);
    zmq_msg_t *message = &router->out_frames[router->num_out_frames].message;
    if (zmq_msg_init_size(message, num_bytes) < 0)
        return NULL;
    router->num_out_frames++;
    return zmq_msg_data(message);
}

void router_frame_drop(struct server *server)
{
    struct router *router = &server->router;

    (void)zmq_msg_close(&router->out_frames[--router->num_out_frames].message);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void refuse_all(struct server *server, const struct origin *origin,
                       const Kvpool__Wire__Batch *batch, enum wire_status status, const char *text)
{
    struct origin to = *origin;

    for (size_t i = 0; i < batch->n_requests; i++) {
        wire_reply reply = KVPOOL__WIRE__REPLY__INIT;
        to.id = reply.id = batch->requests[i]->id;
        reply.status = status;
        reply.message = (char *)(uintptr_t)text;
        router_reply(server, &to, &reply);
    }
}

static void refuse_frame(struct server *server, const struct origin *origin, int status,
                         const char *text)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;

    server->router.counters.malformed++;
    reply.status = (uint32_t)status;
    reply.message = (char *)(uintptr_t)text;
    router_reply(server, origin, &reply);
}

static void carry_out_request(struct server *server, struct session *session, struct origin *origin,
                              const Kvpool__Wire__Request *request, struct frames *frames)
{
    const char *what;

    origin->id = request->id;
    server->router.counters.requests++;
    int status = wire_request_check(request, &what);
    if (!status && session &&
        waiting_find_request(server, sessions_index(server, session), request->id)) {
        status = STATUS_EXISTS;
        what = "a request of this id is outstanding";
    }
    if (status) {
        wire_reply reply = KVPOOL__WIRE__REPLY__INIT;
        reply.id = request->id;
        reply.status = (uint32_t)status;
        reply.message = (char *)(uintptr_t)what;
        server->router.counters.malformed++;
        router_reply(server, origin, &reply);
        return;
    }
    dispatch_request(server, session, origin, request->verb_case, request->allocate,
                     request->deadline_ms, frames);
}

static void carry_out_batch(struct server *server, struct origin *origin,
                            const Kvpool__Wire__Batch *batch, struct frames *frames)
{
    struct session *session = NULL;

    if (!origin->is_operator) {
        session = sessions_find(server, batch->session, batch->token.data, batch->token.len);
        if (!session) {
            server->router.counters.foreign++;
            refuse_all(server, origin, batch, STATUS_STALE,
                       "no such session here: say hello again");
            return;
        }
        origin->session_id = session->id;
    }
    for (size_t i = 0; i < batch->n_requests; i++) {
        if (session && session->state != SESSION_OPEN)
            return; /* it ended meanwhile: what is queued is dropped */
        carry_out_request(server, session, origin, batch->requests[i], frames);
    }
}

static void carry_out_frame(struct server *server, struct origin *origin, const void *bytes,
                            size_t num_bytes, struct frames *frames)
{
    Kvpool__Wire__Batch *batch;
    const char *what;
    int status = num_bytes > WIRE_MAX_BATCH_BYTES
                     ? STATUS_MALFORMED
                     : wire_batch_decode(&server->router.arena, bytes, num_bytes, &batch, &what);

    if (num_bytes > WIRE_MAX_BATCH_BYTES)
        what = "a batch is at most 8 MiB";
    if (!status)
        status = wire_envelope_check(batch, &what);
    if (status)
        refuse_frame(server, origin, status, what);
    else
        carry_out_batch(server, origin, batch, frames);
}

/* Receives one message, all its frames. -EAGAIN: there is none. */
static int message_receive(struct router_socket *socket, zmq_msg_t *messages, uint32_t *out_count)
{
    uint32_t count = 0;
    int more = 1;

    while (more) {
        zmq_msg_t spare, *message = count < ROUTER_MAX_FRAMES ? &messages[count] : &spare;
        (void)zmq_msg_init(message);
        if (zmq_msg_recv(message, socket->zmq, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(message);
            return -zmq_errno(); /* only before the first: messages come whole */
        }
        more = zmq_msg_more(message);
        if (message == &spare)
            (void)zmq_msg_close(message);
        count++;
    }
    *out_count = count;
    return 0;
}

static bool socket_run(struct server *server, struct router_socket *socket)
{
    zmq_msg_t messages[ROUTER_MAX_FRAMES];
    struct frame data[ROUTER_MAX_FRAMES];
    uint32_t count = 0;

    if (message_receive(socket, messages, &count))
        return false;
    server->router.counters.messages++;
    uint32_t kept = count < ROUTER_MAX_FRAMES ? count : ROUTER_MAX_FRAMES;
    struct origin origin = {.is_operator = socket->is_operator};
    size_t num_identity = zmq_msg_size(&messages[0]);
    if (count <= ROUTER_MAX_FRAMES && count >= 2 && num_identity <= MAX_IDENTITY) {
        struct frames frames = {.frames = data, .count = count - 2};
        origin.num_identity = (uint8_t)num_identity;
        memcpy(origin.identity, zmq_msg_data(&messages[0]), num_identity);
        for (uint32_t at = 2; at < count; at++)
            data[at - 2] = (struct frame){zmq_msg_data(&messages[at]), zmq_msg_size(&messages[at])};
        carry_out_frame(server, &origin, zmq_msg_data(&messages[1]), zmq_msg_size(&messages[1]),
                        &frames);
    } else {
        server->router.counters.malformed++; /* there is nobody to answer, or nothing */
    }
    for (uint32_t at = 0; at < kept; at++)
        (void)zmq_msg_close(&messages[at]);
    return true;
}

bool router_run(struct server *server)
{
    struct router_socket *sockets[] = {&server->router.engines, &server->router.operators};
    bool any = false;

    for (size_t at = 0; at < ARRAY_SIZE(sockets); at++) {
        uint32_t count = 0;
        while (count < ROUTER_BATCH && socket_run(server, sockets[at]))
            count++;
        any |= count > 0;
    }
    router_flush(server);
    return any;
}
