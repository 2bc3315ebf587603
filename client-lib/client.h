/* client-lib/client.h - internal: one connection, and who does what for it. */
#pragma once

#include <zmq.h>

#include "client-lib/kvpool.h"
#include "proto/caps.h"
#include "proto/codec.h"
#include "proto/hello.h"
#include "proto/ring.h"
#include "proto/status.h"

enum {
    CLIENT_NUM_PENDING = KVPOOL_MAX_OUTSTANDING,
    CLIENT_MAX_ARENA_PACKETS = 16,  /* that came before somebody asked for them */
    CLIENT_BUILD_BYTES = 2 << 20,   /* to build one request: 4096 rows or 16384 extras */
    CLIENT_CORNER_BYTES = 64 << 10, /* of staging, at its end: rows of a step that goes by ring */
    CLIENT_GRACE_MS = 1000          /* a daemon has so much longer than a request's deadline */
};

enum pending_state {
    PENDING_FREE = 0,
    PENDING_WAITING, /* sent, or in the batch that is collected */
    PENDING_RESOLVED /* its result waits for being claimed */
};

/*
 * A request's id is serial << 9 | has data frame << 8 | index of its pending slot. A reply whose id
 * is not the slot's came too late: it is dropped, and its id says whether a data frame is to be
 * dropped too.
 */
#define PENDING_HAS_FRAME UINT64_C(0x100)

struct pending {
    enum pending_state state;
    bool via_ring;
    uint64_t id;
    int64_t expires_ms; /* monotonic */
    void *data;         /* of a read */
    uint64_t data_bytes;
    struct kvpool_table *tables;
    uint32_t num_tables;
    char *json;
    size_t json_max;
    uint32_t *out_model; /* synchronous only */
    struct kvpool_model_shape *out_shape;
    struct arena_packet *out_arena;
    struct kvpool_result result;
};

/* A registration, to be made again after a reconnect. */
struct client_model {
    uint8_t *packed; /* RegisterModel */
    size_t num_bytes;
    uint32_t handle; /* the daemon's, of this session */
};

struct client_arena_packet {
    struct arena_packet packet;
    int fd; /* -1: no packet */
};

/* The requests that are collected to be sent as one message. */
struct client_batch {
    uint8_t *bytes; /* WIRE_MAX_BATCH_BYTES: an envelope, then requests */
    size_t num_bytes;
    uint32_t num_requests, num_frames;
    size_t frame_bytes;
    zmq_msg_t frames[WIRE_MAX_REQUESTS];
};

struct kvpool {
    struct kvpool_options options;
    char *dir, *token;
    bool is_operator, is_connected;

    uint64_t attach_session; /* kvpool_attach() only: not 0 */
    const void *attach_token;
    int session_fd;
    struct welcome welcome;
    void *zmq, *socket;
    void *monitor; /* of an operator's socket: tells that the daemon is gone */
    uint32_t num_monitors;
    bool is_ended; /* a reply says so: the session is no more */

    struct staging_header *staging;
    uint64_t staging_bytes, staging_used, data_bytes; /* data_bytes: without the corner */
    unsigned char *data;
    int daemon_eventfd, client_eventfd;
    bool has_corner;    /* behind data_bytes there are CLIENT_CORNER_BYTES more */
    uint64_t corner_id; /* the request whose rows lie in the corner; 0: none */

    struct pending pending[CLIENT_NUM_PENDING];
    uint32_t num_waiting, num_resolved;
    uint32_t num_waiting_on_ring;    /* of num_waiting */
    uint32_t next_index, next_claim; /* where to look first for a free, a resolved one */
    int64_t next_expiry_ms;          /* no waiting one expires before */
    uint64_t next_serial;

    struct client_batch batch;
    struct wire_arena build, replies; /* memory of both taken when connecting */

    struct client_model models[KVPOOL_MAX_MODELS];
    uint32_t num_models;
    struct client_arena_packet arenas[CLIENT_MAX_ARENA_PACKETS];
    char message[KVPOOL_MAX_MESSAGE];
};

int64_t client_now_ms(void);
void client_say(char *out_message, const char *text); /* up to KVPOOL_MAX_MESSAGE, NUL-terminated */

/* --- connect.c: a session begins and ends --- */

/* Everything outstanding resolves as DISCONNECTED. Descriptors stay until kvpool_reconnect(). */
void client_lose(struct kvpool *client);

/* --- session.c: the session socket --- */

int session_open(struct kvpool *client, int64_t until_ms);
void session_close(struct kvpool *client);

/* Whatever came on the session socket, without waiting; KVPOOL_DISCONNECTED: it was closed. */
int session_read(struct kvpool *client);

/* --- pending.c: the table of requests that are outstanding --- */

int pending_take(struct kvpool *client, uint32_t deadline_ms, struct pending **out_pending);
void pending_release(struct kvpool *client, struct pending *pending);
struct pending *pending_find(struct kvpool *client,
                             uint64_t id); /* NULL: dropped, or not waiting */
void pending_resolve(struct kvpool *client, struct pending *pending, int status,
                     const char *message);
void pending_resolve_all(struct kvpool *client, bool messages_only, int status,
                         const char *message);
void pending_put_on_ring(struct kvpool *client, struct pending *pending);
void pending_expire(struct kvpool *client, int64_t now_ms);
struct pending *pending_resolved(struct kvpool *client); /* any; num_resolved > 0 */

/* --- batch.c: collects requests, sends them, takes replies in --- */

void batch_begin(struct kvpool *client);
int batch_add(struct kvpool *client, const Kvpool__Wire__Request *wire, const void *frame,
              size_t frame_bytes);
int batch_send(struct kvpool *client);
void batch_drop(struct kvpool *client);

/* Takes in one message if there is one: 0, -EAGAIN, or -EPROTO. */
int batch_receive(struct kvpool *client);

/* --- replies.c: messages to results --- */

/* @frame: bytes of its data frame, if it has one. */
void reply_take(struct kvpool *client, struct pending *pending, const Kvpool__Wire__Reply *reply,
                zmq_msg_t *frame);

/* --- rings.c: step verbs through shared memory --- */

void ring_begin(struct kvpool *client);
bool ring_can(const struct kvpool *client, const struct kvpool_request *request);

/* -EINVAL: not a verb of the rings; -EAGAIN: the ring, or the rows' corner, is taken. */
int ring_submit(struct kvpool *client, const struct kvpool_request *request, uint64_t id);

/* Takes in all completions: how many, or -EPROTO. */
int ring_receive(struct kvpool *client);
void ring_spin(struct kvpool *client); /* until something came, or the time to spin is over */
bool ring_arm(struct kvpool *client);  /* false: something came meanwhile, do not sleep */
void ring_disarm(struct kvpool *client);

/* --- submit.c: sends, waits, claims --- */

/* @pending was taken and is given back where this fails. */
int submit_message(struct kvpool *client, struct pending *pending, Kvpool__Wire__Request *wire,
                   const struct kvpool_blocks *frame);

/* Sends what is collected, takes in what came, sleeps up to @timeout_ms (-1: no end) if nothing
 * did. */
void client_pump(struct kvpool *client, int64_t timeout_ms);
int submit_claim(struct kvpool *client, struct pending *pending, struct kvpool_result *out_result);

/* --- models.c --- */

int models_register_again(struct kvpool *client);
void models_forget(struct kvpool *client);
