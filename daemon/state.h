/*
 * daemon/state.h - what outlives the daemon: epochs of Clear, domains that operators made, models.
 *
 * Files `epochs`, `domains` and `models` of the state directory (proto/state.proto); secrets of
 * payers are secret.h's. A thread writes them, and makes the secret of a new domain. Clear and
 * CreateDomain are made durable first, then carried out, then answered; one such change is under
 * way at a time. A new model is answered when it is durable, too, or a second later, or if that
 * failed: then it is written behind. A file that is damaged is set aside: then what was cached is
 * of no epoch any more, domains are to be made again, models are registered by their engines.
 */
#pragma once

#include "daemon/call.h"
#include "daemon/epochs.h"
#include "daemon/state_writer.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

struct state {
    struct state_writer *writer;
    struct epochs epochs, next_epochs; /* those that are durable; with the change under way */
    uint64_t *known; /* epochs of [payer][model], as far as they were asked for; 0: not yet */
    Kvpool__Wire__CreateDomain **domains;
    uint32_t num_domains, max_domains;
    struct {
        bool is_under_way;
        enum state_name name;
        uint64_t cookie; /* of its waiting record */
        pool_payer domain;
        char model[MODEL_MAX_NAME + 1];
    } change;
    bool is_dirty[NUM_STATE_NAMES], is_written[NUM_STATE_NAMES]; /* to be written; on its way */
    uint32_t num_durable_models, num_written_models;             /* the first so many; on its way */
    bool has_failed_models;                                      /* the last time */
    uint64_t num_writes, num_failures, num_unwritten; /* files that are not durable as they are */
};

/* Reads the epochs and starts the thread; -errno. */
int state_init(struct server *server);
/* Domains and models as they were, once tenants are known. */
int state_restore(struct server *server);
void state_finish(struct server *server);

/* The epoch of what is written of blocks of @domain and @model now. Never 0. */
uint64_t state_epoch(struct server *server, pool_payer domain, uint32_t model);

/* CALL_PENDING, or why not. @model: its name, or "" for all. */
int state_clear(struct call *call, pool_payer domain, const char *model, wire_reply *reply);
int state_create_domain(struct call *call, const Kvpool__Wire__CreateDomain *wire,
                        wire_reply *reply);

/* Of a domain that an operator made, its quotas were set: so they are after a restart, too. */
void state_quota_set(struct server *server, pool_payer domain);

/* A session registered it, for the first time or again. */
void state_model_used(struct server *server, uint32_t model);
/* Whether its registration may be answered: what is stored of it outlives a crash from now on. */
bool state_model_is_settled(const struct server *server, uint32_t model);

int state_event_fd(const struct state *state);
void state_reap(struct server *server);
/* Once a second: what failed is tried again. */
void state_tick(struct server *server);
