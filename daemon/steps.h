/*
 * daemon/steps.h - open steps: their plans, one a layer group, and the attends that run.
 *
 * A record lives exactly as long as the pool's step: it goes when the step commits (by itself, with
 * its last layer), is abandoned, or its session ends and its last attend has come back.
 */
#pragma once

#include "gpu/gpu.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct session;
struct waiting;

enum {
    STEP_MAX_TOKENS = 16384,   /* rows of one step */
    STEP_MAX_ENTRIES = 262144, /* table entries of one step and group */
    STEP_PLANS = 32            /* of all open steps; over it: LIMIT */
};

struct step_record {
    bool is_used, is_ending;
    uint32_t generation; /* in the step's number on the wire */
    uint32_t session, model;
    pool_step pool;
    uint32_t num_sequences, num_rows;
    uint32_t num_layers, num_layers_done, num_running;
    uint32_t
        num_q_heads; /* that it was planned with: the model may be registered with others since */
    uint64_t layers_done[POOL_MAX_LAYERS / 64];
    uint32_t plans[POOL_MAX_GROUPS];
    uint32_t arenas[POOL_MAX_GROUPS][2]; /* own, shared; or UINT32_MAX */
};

/* One row: its sequence, and how many tokens it gains. */
struct step_row_record {
    uint64_t sequence;
    uint32_t num_tokens;
};

struct steps {
    struct step_record *records;
    struct step_row_record *rows; /* max_rows of each record */
    uint32_t max, max_rows;
    struct gpu_step_plan *plans[STEP_PLANS];
    uint32_t free_plans[STEP_PLANS], num_free;
    /* scratch of one step */
    struct pool_step_row *pool_rows;
    struct key *keys;
    struct gpu_attend_sequence *sequences;
    struct gpu_attend_run *runs;
    uint32_t *slots;
    uint64_t num_attends, num_queued, num_failed;
};

int steps_init(struct server *server);
void steps_finish(struct server *server);

/* Its session ends: forgets its steps, but for those whose attends run. */
void steps_abandon_session(struct server *server, struct session *session);

/* The rows of the step with that number on the wire; returns how many, 0: no such step. */
struct call;
uint32_t steps_rows(const struct call *call, uint64_t number,
                    const struct step_row_record **out_rows);

/* An attend that was queued is done. */
void steps_attended(struct server *server, struct waiting *waiting, int err);
