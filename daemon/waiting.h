/*
 * daemon/waiting.h - requests whose reply follows later: each is answered exactly once.
 *
 *  W1  A record is in use from CALL_PENDING until whatever it waits for has come back, also when
 * the requester was answered before (deadline, cancel): then the late result is only taken in. W2
 * A cookie names one use of a record: what comes back for an earlier use finds nothing. W3  Records
 * of a session that ended are dropped, unless a thread still works for them.
 */
#pragma once

#include "daemon/call.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

enum waiting_for {
    WAITING_NOTHING = 0, /* not in use */
    WAITING_TURN,        /* earlier verbs of its sequences (turns.h) */
    WAITING_POOL,        /* a POOL_EFFECT_REPLY with its cookie */
    WAITING_MEMORY,      /* granules: effects_passed(mark) */
    WAITING_NAMES,       /* the namer */
    WAITING_STATE,       /* what it changes is made durable */
    WAITING_KEEP,        /* the keeper has the arenas: survive_passed(mark) */
    WAITING_MODEL,       /* model @mark is in the file: state_model_is_settled() */
    WAITING_COPY,        /* Write or Read, slice by slice */
    WAITING_ATTEND       /* worker threads */
};

struct waiting {
    enum waiting_for what;
    uint32_t generation;
    uint32_t next, before; /* of all in use, in the order in which they came; next: free ones too */
    uint32_t session;      /* index, or UINT32_MAX: an operator's, or its session is gone */
    struct origin origin;
    uint32_t verb;
    uint64_t deadline_ms;
    bool is_answered; /* W1 */
    bool can_cancel;
    bool is_waiter; /* has a place of its tenant's share of max-waiters */
    uint64_t mark;

    /* of the verb */
    uint64_t sequence, child;
    bool want_table;
    struct pool_found found;
    struct pool_prefetched prefetched;
    bool is_promised; /* of allocate and resume: what they said is undone unless the pool says OK */
    uint32_t step;    /* index of the step record */
    uint64_t num_tokens; /* truncate */
    bool is_forgotten;   /* shutdown: what is cached, too */
    uint32_t job;        /* of the namer */
    struct {
        bool is_write, in_staging;
        uint32_t group, first, count, done_blocks;
        uint64_t done_bytes, offset;
    } copy;
    struct {
        uint32_t layer;
    } attend;
};

struct waitings {
    struct waiting *records;
    uint32_t max, first_free, num_touched; /* those never used have no memory yet */
    uint32_t head, tail, num_used;
    uint32_t num_memory, num_copies, num_keep; /* in those states; KEEP and MODEL */
    uint64_t num_timeouts, num_cancelled, num_late;
};

int waiting_init(struct waitings *waitings, uint32_t max);
void waiting_finish(struct waitings *waitings);

/* NULL: all are in use (LIMIT). The record is not in use until waiting_begin(), which also takes
 * one from one state into another. */
struct waiting *waiting_reserve(struct call *call);
uint64_t waiting_cookie(const struct waitings *waitings, const struct waiting *waiting);
int waiting_begin(struct server *server, struct waiting *waiting, enum waiting_for what);
struct waiting *waiting_find(struct waitings *waitings, uint64_t cookie);

/* Answers, unless it was answered before; gives the record back. */
void waiting_end(struct server *server, struct waiting *waiting, wire_reply *reply);
/* Gives a record back whose requester is gone or answered. */
void waiting_forget(struct server *server, struct waiting *waiting);
/* From one state into another. */
void waiting_turn(struct server *server, struct waiting *waiting, enum waiting_for what);
/* Answers now (TIMEOUT, CANCELLED); the record stays until what it waits for came back. */
void waiting_answer_early(struct server *server, struct waiting *waiting, int status);

/* The pool's reply to @cookie. */
void waiting_pool_reply(struct server *server, uint64_t cookie, int answer);

/* What passed in the meantime: memory, deadlines. */
void waiting_pass_memory(struct server *server);
void waiting_pass_keep(struct server *server);
void waiting_tick(struct server *server);

/* The session ended. */
void waiting_drop_session(struct server *server, uint32_t session);
/* The outstanding request @id of a session, or NULL. */
struct waiting *waiting_find_request(struct server *server, uint32_t session, uint64_t id);
