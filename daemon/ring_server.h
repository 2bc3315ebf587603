/*
 * daemon/ring_server.h - the daemon's end of the rings in staging (proto/ring.h).
 *
 * While something came through any ring in the last spin_us, the loop looks at the rings without
 * sleeping, if CPUs are free; then every ring is armed and the loop sleeps.
 */
#pragma once

#include "daemon/call.h"
#include "daemon/source.h"

#include <stdbool.h>
#include <stdint.h>

struct session;

enum { RING_BATCH = 64 /* entries of one session in one pass */ };

struct ring_server {
    uint32_t *open; /* sessions, in no order */
    uint32_t num_open;
    uint64_t last_us; /* when something came */
    uint64_t spin_us;
    bool are_armed;
    /* rows of one step, copied */
    Kvpool__Wire__Row *rows, **row_list;
    uint32_t *tokens;
    uint64_t num_entries, num_wakes, num_malformed;
};

int rings_init(struct server *server);
void rings_finish(struct server *server);

void ring_session_opened(struct server *server, struct session *session);
void ring_session_ended(struct server *server, struct session *session);

/* Carries out what is there. Returns whether anything was. */
bool rings_run(struct server *server);
/* Whether the loop may sleep now: all rings are armed and empty. */
bool rings_may_sleep(struct server *server);

/* The answer to an entry. */
void ring_complete(struct server *server, struct session *session, const wire_reply *reply);

/* Its eventfd: the client woke us. */
void ring_ready(struct server *server, struct source *source, uint32_t events);
