/* daemon/router.c - frames to requests, replies to frames. */
#include "daemon/router.h"

#include "daemon/descriptors.h"
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

/* Memory of a message that is on its way, and where it is counted. */
struct out_memory {
    struct router_queue *queue, *all;
    size_t num_bytes;
    _Alignas(16) uint8_t bytes[];
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
    int fd;
    size_t size = sizeof(fd);
    int err =
        config_socket_path(config, is_operator ? CONFIG_OPERATOR_SOCKET : CONFIG_REQUEST_SOCKET,
                           socket->path, sizeof(socket->path));

    socket->source.fd = socket->listen_fd = -1;
    socket->is_operator = is_operator;
    if (err)
        return err;
    err = listen_unix(socket->path, SOCK_STREAM,
                      (mode_t)(is_operator ? config->operator_mode : config->session_mode),
                      &socket->listen_fd);
    if (err)
        return err;
    err = descriptors_guard(socket->listen_fd,
                            is_operator ? DESCRIPTORS_OPERATORS : DESCRIPTORS_ENGINES);
    socket->zmq = err ? NULL : zmq_socket(server->router.context, ZMQ_ROUTER);
    if (!socket->zmq) {
        (void)close(socket->listen_fd);
        return err ? err : -errno;
    }
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", socket->path);
    int64_t max_bytes = (int64_t)config->message_bytes;
    if (option(socket->zmq, ZMQ_LINGER, 0) || option(socket->zmq, ZMQ_ROUTER_MANDATORY, 1) ||
        option(socket->zmq, ZMQ_SNDHWM, (int)config->credits + QUEUE_MESSAGES) ||
        option(socket->zmq, ZMQ_RCVHWM, queue_messages(config)) ||
        zmq_setsockopt(socket->zmq, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes)) ||
        option(socket->zmq, ZMQ_USE_FD, socket->listen_fd) || zmq_bind(socket->zmq, endpoint) ||
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
    router->engines.listen_fd = router->operators.listen_fd = -1;
    router->context = zmq_ctx_new();
    router->max_out = WIRE_MAX_REPLY_BYTES;
    router->out = malloc(router->max_out);
    router->memory = aligned_alloc(64, WIRE_ARENA_BYTES);
    router->out_frames = calloc(ROUTER_MAX_FRAMES, sizeof(*router->out_frames));
    router->queues = calloc(server->config->max_sessions + 2, sizeof(*router->queues));
    if (!router->context || !router->out || !router->memory || !router->out_frames ||
        !router->queues)
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
    descriptors_release(socket->listen_fd);
    (void)unlink(socket->path);
}

void router_finish(struct server *server)
{
    struct router *router = &server->router;

    socket_close(&router->engines);
    socket_close(&router->operators);
    if (router->context)
        (void)zmq_ctx_term(router->context); /* gives up what was queued */
    free(router->queues);
    free(router->out);
    free(router->memory);
    free(router->out_frames);
}

/* ---- queues --------------------------------------------------------------------------------- */

/* Called by ZeroMQ's threads, too. */
static void out_memory_free(void *bytes, void *hint)
{
    struct out_memory *memory = hint;

    (void)bytes;
    atomic_fetch_sub(&memory->queue->num_bytes, memory->num_bytes);
    atomic_fetch_sub(&memory->all->num_bytes, memory->num_bytes);
    free(memory);
}

static struct router_queue *queue_of(struct server *server, const struct origin *to)
{
    const struct sessions *sessions = &server->sessions;
    struct session *session = sessions_by_id(server, to->session_id);

    if (session)
        return &server->router.queues[sessions_index(server, session)];
    return &server->router.queues[sessions->max + !to->is_operator];
}

static bool queue_has_room(const struct server *server, const struct router_queue *queue,
                           size_t num_bytes)
{
    const struct router *router = &server->router;

    return atomic_load(&queue->num_bytes) + num_bytes <= server->config->session_queue_bytes &&
           atomic_load(&router->all.num_bytes) + num_bytes <= server->config->queue_bytes;
}

/* A message of @num_bytes to be filled, counted from now on. -EAGAIN: there is no room. */
static int message_make(struct server *server, struct router_queue *queue, size_t num_bytes,
                        zmq_msg_t *out_message)
{
    if (!queue_has_room(server, queue, num_bytes))
        return -EAGAIN;
    struct out_memory *memory = malloc(sizeof(*memory) + num_bytes);
    if (!memory)
        return -ENOMEM;
    *memory = (struct out_memory){queue, &server->router.all, num_bytes};
    if (zmq_msg_init_data(out_message, memory->bytes, num_bytes, out_memory_free, memory) < 0) {
        free(memory);
        return -ENOMEM;
    }
    atomic_fetch_add(&queue->num_bytes, num_bytes);
    atomic_fetch_add(&server->router.all.num_bytes, num_bytes);
    return 0;
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
    router->to_queue = queue_of(server, to);
    router->has_out = true;
    router->num_replies = 0;
}

static bool is_same_peer(const struct origin *one, const struct origin *other)
{
    return one->is_operator == other->is_operator && one->num_identity == other->num_identity &&
           memcmp(one->identity, other->identity, one->num_identity) == 0;
}

/*
 * It is gone, or its queue is full: it does not read, so its session ends. Not here: a record of a
 * request of it may be in our caller's hand.
 */
static void peer_lost(struct server *server, bool is_full)
{
    struct router *router = &server->router;
    struct session *session = sessions_by_id(server, router->to.session_id);

    router->counters.unsendable++;
    if (is_full && session)
        session->is_lost = router->has_lost = true;
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
    int more = router->num_out_frames > 0 ? ZMQ_SNDMORE : 0;
    zmq_msg_t message;

    if (!router->has_out)
        return;
    router->has_out = false;
    if (message_make(server, router->to_queue, router->num_out, &message)) {
        frames_close(router);
        peer_lost(server, true);
        return;
    }
    memcpy(zmq_msg_data(&message), router->out, router->num_out);
    if (zmq_send(socket->zmq, router->to.identity, router->to.num_identity,
                 ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        bool is_full = zmq_errno() == EAGAIN;
        (void)zmq_msg_close(&message);
        frames_close(router);
        peer_lost(server, is_full);
        return;
    }
    if (zmq_msg_send(&message, socket->zmq, ZMQ_DONTWAIT | more) < 0)
        (void)zmq_msg_close(&message);
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
    if (message_make(server, queue_of(server, to), num_bytes, message))
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

/* Whether a data frame of the message is this request's. */
static bool has_frame(const Kvpool__Wire__Request *request)
{
    return request->verb_case == KVPOOL__WIRE__REQUEST__VERB_WRITE && !request->write->in_staging;
}

static uint32_t frames_expected(const Kvpool__Wire__Batch *batch)
{
    uint32_t count = 0;

    for (size_t i = 0; i < batch->n_requests; i++)
        count += has_frame(batch->requests[i]);
    return count;
}

/* Each Write gets the frame that is its own, and no other's, also if one before it is refused. */
static void carry_out_requests(struct server *server, struct session *session,
                               struct origin *origin, const Kvpool__Wire__Batch *batch,
                               const struct frames *frames)
{
    bool are_all_there = frames->count == frames_expected(batch);
    uint32_t next = 0;

    for (size_t i = 0; i < batch->n_requests; i++) {
        struct frames own = {0};
        if (session && (session->is_lost || session->state != SESSION_OPEN))
            return; /* what is queued is dropped */
        if (are_all_there && has_frame(batch->requests[i]))
            own = (struct frames){.frames = &frames->frames[next++], .count = 1};
        carry_out_request(server, session, origin, batch->requests[i], &own);
    }
}

static void carry_out_batch(struct server *server, struct origin *origin,
                            const Kvpool__Wire__Batch *batch, const struct frames *frames)
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
    carry_out_requests(server, session, origin, batch, frames);
}

static void carry_out_frame(struct server *server, struct origin *origin, const void *bytes,
                            size_t num_bytes, const struct frames *frames)
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

/* Identity, batch, data: @count frames, of which only ROUTER_MAX_FRAMES were kept. */
static void carry_out_message(struct server *server, bool is_operator, zmq_msg_t *messages,
                              uint32_t count)
{
    struct frame data[ROUTER_MAX_FRAMES];
    struct origin origin = {.is_operator = is_operator};
    struct frames frames = {.frames = data};
    size_t num_identity = zmq_msg_size(&messages[0]);

    if (count < 2 || num_identity > MAX_IDENTITY) { /* nothing, or nobody who could be answered */
        server->router.counters.malformed++;
        return;
    }
    origin.num_identity = (uint8_t)num_identity;
    memcpy(origin.identity, zmq_msg_data(&messages[0]), num_identity);
    if (count > ROUTER_MAX_FRAMES) {
        refuse_frame(server, &origin, STATUS_MALFORMED, "more data frames than requests");
        return;
    }
    for (uint32_t at = 2; at < count; at++)
        data[frames.count++] =
            (struct frame){zmq_msg_data(&messages[at]), zmq_msg_size(&messages[at]), &messages[at]};
    carry_out_frame(server, &origin, zmq_msg_data(&messages[1]), zmq_msg_size(&messages[1]),
                    &frames);
}

static bool socket_run(struct server *server, struct router_socket *socket)
{
    zmq_msg_t messages[ROUTER_MAX_FRAMES];
    uint32_t count = 0;

    if (message_receive(socket, messages, &count))
        return false;
    server->router.counters.messages++;
    carry_out_message(server, socket->is_operator, messages, count);
    for (uint32_t at = 0; at < count && at < ROUTER_MAX_FRAMES; at++)
        (void)zmq_msg_close(&messages[at]);
    return true;
}

bool router_run(struct server *server)
{
    struct router_socket *sockets[] = {&server->router.engines, &server->router.operators};
    bool any = false;

    for (size_t at = 0; at < ARRAY_SIZE(sockets); at++) {
        uint32_t count = 0;
        uint64_t end = server->router.counters.requests + ROUTER_REQUESTS;
        while (count < ROUTER_BATCH && server->router.counters.requests < end &&
               socket_run(server, sockets[at]))
            count++;
        any |= count > 0;
    }
    router_flush(server);
    return any;
}
