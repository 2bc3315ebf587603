/*
 * daemon/session.h - connections of the session socket, and the sessions that they are.
 *
 *   free -> HELLO (connected, said nothing yet) -> OPEN -> ENDING (attends run, or processes that
 *   could write its slots live) -> free
 *
 * The connection is the session. It ends when the connection closes, or when the process that
 * opened it ends (pidfd: also while a forked child still has the socket). Further processes attach
 * with connections of their own, which keep nothing alive but the quarantine of what the session
 * could write (DESIGN.md 6).
 */
#pragma once

#include "daemon/source.h"
#include "daemon/turns.h"
#include "pool/pool.h"
#include "proto/hello.h"
#include "proto/ring.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server;

enum {
    SESSION_MAX_MODELS = 64,
    HELLO_ROOM = 64,   /* connections that say nothing yet, beside all others */
    HELLO_MAX_UID = 16 /* of them, of one user */
};

enum session_state {
    SESSION_FREE = 0,
    SESSION_OPEN,
    SESSION_CLOSING, /* inside session_end() */
    SESSION_ENDING   /* its place is kept: attends run, or processes that could write live */
};

/* The rings' own state on our side: what the client writes over there does not count. */
struct ring_state {
    struct staging_header *header;
    struct ring_submission *submissions;
    struct ring_completion *completions;
    uint8_t *data;
    uint64_t data_bytes;
    uint64_t head;        /* submissions consumed */
    uint64_t tail;        /* completions produced */
    uint64_t num_pending; /* submissions consumed and not completed */
    bool is_armed;        /* our armed word is set, as far as we know */
};

struct session {
    enum session_state state;
    uint64_t id; /* random, 63 bits */
    uint8_t token[HELLO_ID_BYTES];
    uint32_t flags; /* enum hello_flag */
    pool_payer tenant;
    pool_session pool;
    pid_t pid;
    uid_t uid;

    int staging_fd, from_client_fd, to_client_fd; /* memory and eventfds */
    uint64_t staging_bytes;
    void *staging;
    struct ring_state ring;
    struct source ring_source;

    uint32_t connection;   /* the first one, or UINT32_MAX */
    uint32_t num_attached; /* connections and processes that may write what it could */
    bool is_lost; /* does not read its replies: ends once nothing of it is being answered */
    bool can_write_arenas;    /* was given a writable descriptor */
    bool is_detached;         /* pool_session_detach() was said, or need not be */
    uint32_t sequences;       /* head of its records */
    uint32_t num_outstanding; /* requests not answered yet */
    uint64_t held_bytes;      /* of those that wait for their turn (turns.h) */
    struct backlog backlog;
    uint32_t num_attends;                     /* that worker threads are carrying out */
    uint16_t num_q_heads[SESSION_MAX_MODELS]; /* by model; 0: not registered here */
};

enum connection_state {
    CONNECTION_FREE = 0,
    CONNECTION_HELLO,    /* nothing was said yet */
    CONNECTION_SESSION,  /* is a session */
    CONNECTION_ATTACHED, /* belongs to one */
    CONNECTION_LINGERING /* closed: only its process is waited for (quarantine) */
};

struct connection {
    enum connection_state state;
    struct source source, process; /* the socket, and its process's pidfd */
    pid_t pid;
    uid_t uid;
    uint64_t since_ms, number; /* of all connections, by arrival */
    bool is_further;           /* attached: it has a place of its tenant's share */
    uint32_t session;          /* index */
};

struct sessions {
    struct session *sessions;
    uint64_t *ids; /* of each that is open, else 0: looked through for every batch */
    struct connection *connections;
    uint32_t max, max_connections, num_open, num_connections, num_hello;
    uint64_t next_number;
    struct source listener;
    bool is_deaf; /* no descriptor was left for who came: it is tried again at the next tick */
    struct {
        uint64_t opened, ended, refused, attached, kicked, ended_by_process, silent;
    } counters;
};

int sessions_init(struct server *server);
void sessions_finish(struct server *server);

/* NULL unless @token is that of session @id and it is open. */
struct session *sessions_find(struct server *server, uint64_t id, const void *token,
                              size_t token_bytes);
struct session *sessions_by_id(struct server *server, uint64_t id);
uint32_t sessions_index(const struct server *server, const struct session *session);

static inline bool session_has_model(const struct session *session, uint32_t model)
{
    return model < SESSION_MAX_MODELS && session->num_q_heads[model] > 0;
}

/* Ends it, for @reason (a word for the log). */
void session_end(struct server *server, struct session *session, const char *reason);
/* Those whose peers were found not to read (router.c). */
void sessions_end_lost(struct server *server);
/* An attend of an ending session ended; frees what nobody uses any more. */
void session_settle(struct server *server, struct session *session);

/* Sends an arena's descriptor over its connection. -errno. */
int session_send_arena(struct server *server, struct session *session,
                       const struct arena_packet *packet, int fd);
/* Connections that said nothing in time. */
void sessions_tick(struct server *server);

/* hello.c: a connection's first message. */
void hello_read(struct server *server, struct connection *connection);
/* session.c, for hello.c */
struct session *session_open(struct server *server, struct connection *connection,
                             const struct hello *hello, pool_payer tenant, int *out_status);
void connection_close(struct server *server, struct connection *connection);
