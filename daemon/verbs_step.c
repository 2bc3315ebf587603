/* daemon/verbs_step.c - Step, Attend, EndStep: planned once, attended layer by layer. */
#include "daemon/server.h"
#include "daemon/verbs.h"
#include "proto/ring.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ---- memory --------------------------------------------------------------------------------- */

int steps_init(struct server *server)
{
    struct steps *steps = &server->steps;
    const struct config *config = server->config;
    const struct gpu_step_limits limits = {.max_sequences = (uint32_t)config->max_step_rows,
                                           .max_rows = STEP_MAX_TOKENS,
                                           .max_blocks = STEP_MAX_ENTRIES,
                                           .max_kv_heads = 128};

    steps->max = (uint32_t)config->max_steps;
    steps->max_rows = (uint32_t)config->max_step_rows;
    steps->records = calloc(steps->max, sizeof(*steps->records));
    steps->rows = calloc((size_t)steps->max * steps->max_rows, sizeof(*steps->rows));
    steps->pool_rows = calloc(steps->max_rows, sizeof(*steps->pool_rows));
    steps->keys = calloc(STEP_MAX_TOKENS + steps->max_rows, sizeof(*steps->keys));
    steps->sequences = calloc(steps->max_rows, sizeof(*steps->sequences));
    steps->runs = calloc(2 * (size_t)steps->max_rows, sizeof(*steps->runs));
    steps->slots = calloc(STEP_MAX_ENTRIES, sizeof(*steps->slots));
    if (!steps->records || !steps->rows || !steps->pool_rows || !steps->keys || !steps->sequences ||
        !steps->runs || !steps->slots)
        return -ENOMEM;
    for (uint32_t at = 0; at < STEP_PLANS; at++) {
        int err =
            gpu_step_plan_create(gpu_device_attention(server->device), &limits, &steps->plans[at]);
        if (err)
            return err;
        steps->free_plans[steps->num_free++] = at;
    }
    return 0;
}

void steps_finish(struct server *server)
{
    struct steps *steps = &server->steps;

    for (uint32_t at = 0; at < STEP_PLANS; at++)
        gpu_step_plan_destroy(steps->plans[at]);
    free(steps->records);
    free(steps->rows);
    free(steps->pool_rows);
    free(steps->keys);
    free(steps->sequences);
    free(steps->runs);
    free(steps->slots);
}

/* ---- records -------------------------------------------------------------------------------- */

static uint32_t record_take(struct steps *steps)
{
    for (uint32_t at = 0; at < steps->max; at++) {
        if (!steps->records[at].is_used)
            return at;
    }
    return NO_INDEX;
}

static struct share *share_of(struct server *server, enum share_name name)
{
    return &server->tenants.shares[name];
}

static void record_give(struct server *server, struct step_record *record)
{
    struct steps *steps = &server->steps;
    pool_payer tenant = server->sessions.sessions[record->session].tenant;

    if (!record->is_used)
        return;
    for (uint32_t group = 0; group < POOL_MAX_GROUPS; group++) {
        if (record->plans[group] != NO_INDEX) {
            steps->free_plans[steps->num_free++] = record->plans[group];
            share_give(share_of(server, SHARE_PLANS), tenant, 1);
        }
        record->plans[group] = NO_INDEX;
    }
    record->is_used = false;
    share_give(share_of(server, SHARE_STEPS), tenant, 1);
}

static void record_begin(struct step_record *record, uint32_t session, uint32_t model,
                         pool_step step)
{
    *record = (struct step_record){.is_used = true,
                                   .generation = record->generation + 1,
                                   .session = session,
                                   .model = model,
                                   .pool = step};
    for (uint32_t group = 0; group < POOL_MAX_GROUPS; group++) {
        record->plans[group] = NO_INDEX;
        record->arenas[group][0] = record->arenas[group][1] = NO_INDEX;
    }
}

static uint64_t number_of(const struct steps *steps, const struct step_record *record)
{
    return (uint64_t)record->generation << 32 | (uint32_t)(record - steps->records);
}

static struct step_record *record_find(const struct call *call, uint64_t number)
{
    const struct steps *steps = &call->server->steps;
    uint32_t at = (uint32_t)number;

    if (at >= steps->max)
        return NULL;
    struct step_record *record = &steps->records[at];
    if (!record->is_used || record->generation != number >> 32 ||
        record->session != sessions_index(call->server, call->session))
        return NULL;
    return record;
}

uint32_t steps_rows(const struct call *call, uint64_t number,
                    const struct step_row_record **out_rows)
{
    const struct steps *steps = &call->server->steps;
    const struct step_record *record = record_find(call, number);

    if (!record)
        return 0;
    *out_rows = &steps->rows[(size_t)(record - steps->records) * steps->max_rows];
    return record->num_sequences;
}

/* After anything that may end the pool's step: as the pool does it. */
static void record_settle(struct server *server, struct step_record *record)
{
    if (record->num_running == 0 &&
        (record->is_ending || record->num_layers_done == record->num_layers))
        record_give(server, record);
}

void steps_abandon_session(struct server *server, struct session *session)
{
    struct steps *steps = &server->steps;
    uint32_t index = sessions_index(server, session);

    for (uint32_t at = 0; at < steps->max; at++) {
        struct step_record *record = &steps->records[at];
        if (!record->is_used || record->session != index)
            continue;
        record->is_ending = true;
        record_settle(server, record);
    }
}

/* ---- step ----------------------------------------------------------------------------------- */

/*
 * Keys of the blocks that a row's tokens complete: first the @known ones, all that an unfilled
 * allocation has and that are not complete, whose blocks have keys already; then @count more. Enum
 * wire_status.
 */
static int row_name(struct call *call, const struct sequence_record *record,
                    const struct pool_sequence_description *described, uint64_t known,
                    const uint32_t *growth, uint64_t count, uint32_t *inout_keys)
{
    struct server *server = call->server;
    uint32_t block_tokens = server->models.models[described->model].block_tokens;
    struct key *keys = &server->steps.keys[*inout_keys];
    uint64_t first = (described->length - known) / block_tokens;
    uint64_t num_known = described->length / block_tokens - first;
    int answer =
        pool_sequence_keys(server->pool, (struct pool_name){call->session->pool, record->id}, first,
                           num_known, (struct pool_key *)keys);

    if (answer)
        return status_of_pool(answer);
    *inout_keys +=
        (uint32_t)(num_known + (described->length % block_tokens + count) / block_tokens);
    return prompts_name_growth(server, call->session, record, described, growth, count,
                               keys + num_known);
}

/* One row: its keys go behind those of the rows before it. */
static int row_prepare(struct call *call, const Kvpool__Wire__Row *wire, uint32_t at,
                       uint32_t *inout_keys, uint32_t *out_model)
{
    struct server *server = call->server;
    struct steps *steps = &server->steps;
    struct pool_sequence_description described;
    struct sequence_record *record;
    uint64_t count = wire->tokens.len / sizeof(uint32_t), known = 0;
    int status = sequence_get(call, wire->sequence, &record);

    if (status)
        return status;
    int answer = pool_describe(server->pool,
                               (struct pool_name){call->session->pool, wire->sequence}, &described);
    if (answer)
        return status_of_pool(answer);
    *out_model = described.model;
    if (!described.is_filled && !described.is_preempted)
        known = described.length - described.num_complete;
    known = known < count ? known : count;
    const uint32_t *tokens = (const uint32_t *)(const void *)wire->tokens.data;
    struct key *keys = &steps->keys[*inout_keys];
    if (count > known) {
        status =
            row_name(call, record, &described, known, tokens + known, count - known, inout_keys);
        if (status)
            return status;
    }
    steps->pool_rows[at] = (struct pool_step_row){
        .sequence = wire->sequence,
        .tokens = {.ids = tokens, .count = count, .keys = (const struct pool_key *)keys}};
    return STATUS_OK;
}

static int rows_prepare(struct call *call, const Kvpool__Wire__Step *wire, wire_reply *reply,
                        uint32_t *out_model, uint32_t *out_rows)
{
    uint64_t num_tokens = 0;
    uint32_t num_keys = 0;

    for (size_t at = 0; at < wire->n_rows; at++) {
        num_tokens += wire->rows[at]->tokens.len / sizeof(uint32_t);
        if (num_tokens > STEP_MAX_TOKENS)
            return refuse(reply, STATUS_LIMIT, "a step has at most 16384 token rows");
    }
    for (size_t at = 0; at < wire->n_rows; at++) {
        int status = row_prepare(call, wire->rows[at], (uint32_t)at, &num_keys, out_model);
        if (status)
            return status;
    }
    *out_rows = (uint32_t)num_tokens;
    return STATUS_OK;
}

int handle_step(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Step *wire = call->message;
    struct server *server = call->server;
    struct steps *steps = &server->steps;
    uint32_t model = 0, num_rows, at = record_take(steps);
    pool_step step;

    if (wire->n_rows == 0 || (call->session->flags & HELLO_MAPPED))
        return refuse(reply, STATUS_INVALID, "a step has rows, and no mapped session");
    if (wire->n_rows > steps->max_rows || at == NO_INDEX ||
        !share_has(share_of(server, SHARE_STEPS), call->session->tenant, 1))
        return refuse(reply, STATUS_LIMIT,
                      "max_step_rows, or max_steps, or what others are promised of them");
    int status = rows_prepare(call, wire, reply, &model, &num_rows);
    if (status)
        return status;
    if (server->models.models[model].is_opaque)
        return refuse(reply, STATUS_UNSUPPORTED,
                      "blocks of an opaque model are not attended: Append, and Write or map");
    int answer =
        pool_step_begin(server->pool, call->session->pool, steps->pool_rows, (uint32_t)wire->n_rows,
                        waiting_cookie(&server->waitings, call->waiting), &step);
    if (answer != 0 && answer != POOL_PENDING)
        return status_of_pool(answer);
    struct step_record *record = &steps->records[at];
    record_begin(record, call->waiting->session, model, step);
    share_take(share_of(server, SHARE_STEPS), call->session->tenant, 1);
    record->num_sequences = (uint32_t)wire->n_rows;
    record->num_rows = num_rows;
    record->num_layers = server->models.models[model].num_layers;
    record->num_q_heads = call->session->num_q_heads[model];
    for (size_t row = 0; row < wire->n_rows; row++)
        steps->rows[(size_t)at * steps->max_rows + row] = (struct step_row_record){
            steps->pool_rows[row].sequence, (uint32_t)steps->pool_rows[row].tokens.count};
    call->waiting->step = at;
    return answer == 0 ? STATUS_OK : waiting_begin(server, call->waiting, WAITING_POOL);
}

void settle_step(struct server *server, struct waiting *waiting, int status)
{
    if (waiting->step == NO_INDEX)
        return;
    struct step_record *record = &server->steps.records[waiting->step];
    /* Nobody was told its number (late, timed out), but the pool has it: it is abandoned. */
    if (waiting->is_answered && (status == STATUS_OK || waiting->what == WAITING_MEMORY))
        (void)pool_step_end(server->pool, record->pool, false, 0);
    if (waiting->is_answered || status != STATUS_OK)
        record_give(server, record);
}

/* ---- plans ---------------------------------------------------------------------------------- */

static enum gpu_dtype gpu_dtype_of(uint32_t dtype)
{
    return dtype == WIRE_F32 ? GPU_F32 : dtype == WIRE_F16 ? GPU_F16 : GPU_BF16;
}

static void run_add(struct server *server, uint32_t arena, uint32_t first, uint32_t end,
                    uint32_t block_tokens, const uint32_t *slots,
                    struct gpu_attend_sequence *sequence, struct gpu_attend_run *runs)
{
    if (first == end)
        return;
    runs[sequence->num_runs++] =
        (struct gpu_attend_run){.base = gpu_arena_base(server->device, arena),
                                .stride = server->effects.arenas[arena].granule.stride_bytes,
                                .first_position = first * block_tokens,
                                .num_slots = end - first,
                                .slots = slots + first};
}

/* One sequence's table of one group, as the attention wants it. */
static int sequence_prepare(struct server *server, struct step_record *record, uint32_t group,
                            uint32_t at, uint32_t *inout_entries)
{
    struct steps *steps = &server->steps;
    struct scratch *scratch = &server->scratch;
    const struct session *session = &server->sessions.sessions[record->session];
    const struct step_row_record *row =
        &steps->rows[(size_t)(record - steps->records) * steps->max_rows + at];
    const struct pool_name name = {session->pool, row->sequence};
    struct gpu_attend_sequence *sequence = &steps->sequences[at];
    struct pool_sequence_description described;
    uint32_t count, num_shared = 0, *slots = &steps->slots[*inout_entries];

    if (pool_describe(server->pool, name, &described) ||
        pool_table(server->pool, name, group, scratch->places, scratch->max_places, &count))
        return -ENOENT;
    if (count > scratch->max_places || count > STEP_MAX_ENTRIES - *inout_entries)
        return -ENOSPC;
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = scratch->places[i].slot;
        if (scratch->places[i].is_shared)
            num_shared = i + 1;
    }
    *inout_entries += count;
    *sequence = (struct gpu_attend_sequence){.runs = &steps->runs[2 * at],
                                             .length_before = (uint32_t)described.num_complete,
                                             .num_rows = row->num_tokens};
    uint32_t *arenas = record->arenas[group];
    if (pool_arena_find(server->pool, described.domain, described.model, group, &arenas[0]))
        return -ENOENT;
    if (num_shared > 0 &&
        pool_arena_find(server->pool, described.shared, described.model, group, &arenas[1]))
        return -ENOENT;
    uint32_t block_tokens = server->models.models[described.model].block_tokens;
    run_add(server, arenas[1], 0, num_shared, block_tokens, slots, sequence, &steps->runs[2 * at]);
    run_add(server, arenas[0], num_shared, count, block_tokens, slots, sequence,
            &steps->runs[2 * at]);
    return 0;
}

static int group_plan(struct server *server, struct step_record *record, uint32_t group)
{
    struct steps *steps = &server->steps;
    const struct model *model = &server->models.models[record->model];
    const struct gpu_attend_shape shape = {.num_layers = model->groups[group].num_layers,
                                           .num_q_heads = record->num_q_heads,
                                           .num_kv_heads = model->num_kv_heads,
                                           .k_dim = model->k_dim,
                                           .v_dim = model->v_dim,
                                           .block_tokens = model->block_tokens,
                                           .kv_dtype = gpu_dtype_of(model->dtype),
                                           .is_v_in_k = model->is_mla,
                                           .is_causal = true,
                                           .window = model->groups[group].window};
    uint32_t num_entries = 0;

    pool_payer tenant = server->sessions.sessions[record->session].tenant;

    if (!share_has(share_of(server, SHARE_PLANS), tenant, 1))
        return -ENOSPC;
    share_take(share_of(server, SHARE_PLANS), tenant, 1);
    record->plans[group] = steps->free_plans[--steps->num_free];
    for (uint32_t at = 0; at < record->num_sequences; at++) {
        int err = sequence_prepare(server, record, group, at, &num_entries);
        if (err)
            return err;
    }
    return gpu_step_plan_build(steps->plans[record->plans[group]], &shape, steps->sequences,
                               record->num_sequences);
}

/* Its blocks have memory: it is planned, and its number told. */
int finish_step(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    struct steps *steps = &server->steps;
    struct step_record *record = &steps->records[waiting->step];
    Kvpool__Wire__StepResult *result = &server->scratch.step;
    int err = 0;

    for (uint32_t group = 0; group < server->models.models[record->model].num_groups && !err;
         group++)
        err = group_plan(server, record, group);
    if (err) {
        (void)pool_step_end(server->pool, record->pool, false, 0);
        record_give(server, record);
        return err == -ENOSPC ? refuse(reply, STATUS_LIMIT, "more steps or blocks than are planned")
               : err == -EINVAL
                   ? refuse(reply, STATUS_UNSUPPORTED,
                            "this shape is not attended here: head dims in steps of 16, up to 640")
                   : STATUS_FAILED;
    }
    kvpool__wire__step_result__init(result);
    result->step = number_of(steps, record);
    result->num_rows = record->num_rows;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_STEP;
    reply->step = result;
    return STATUS_OK;
}

/* ---- attend --------------------------------------------------------------------------------- */

/* Everything that the attend reads or writes lies in the session's data region. */
static const char *spans_check(const struct call *call, const struct step_record *record,
                               const Kvpool__Wire__Attend *wire)
{
    const struct model *model = &call->server->models.models[record->model];
    uint64_t q_heads = record->num_q_heads, rows = record->num_rows;
    uint64_t data_bytes = call->session->ring.data_bytes;
    uint64_t size = wire->dtype == WIRE_F32 ? 4 : 2;
    const struct {
        uint64_t offset, bytes;
        const char *what;
    } spans[] = {
        {wire->q_offset, rows * q_heads * model->k_dim * size, "q lies outside of staging"},
        {wire->k_offset, rows * model->num_kv_heads * model->k_dim * size,
         "k lies outside of staging"},
        {wire->v_offset, model->is_mla ? 0 : rows * model->num_kv_heads * model->v_dim * size,
         "v lies outside of staging"},
        {wire->out_offset, rows * q_heads * model->v_dim * size, "out lies outside of staging"},
        {wire->lse_offset, wire->want_lse ? rows * q_heads * 4 : 0, "lse lies outside of staging"},
        {wire->sinks_offset, wire->has_sinks ? q_heads * 4 : 0, "sinks lie outside of staging"},
    };

    for (size_t at = 0; at < ARRAY_SIZE(spans); at++) {
        if (spans[at].bytes == 0)
            continue;
        if (!ring_span_fits(spans[at].offset, spans[at].bytes, data_bytes))
            return spans[at].what;
        if (spans[at].offset % 4 != 0)
            return "offsets are multiples of 4";
    }
    return NULL;
}

static int attend_check(const struct call *call, const struct step_record *record,
                        const Kvpool__Wire__Attend *wire, wire_reply *reply)
{
    if (wire->layer >= record->num_layers)
        return refuse(reply, STATUS_INVALID, "the model has no such layer");
    if (wire->dtype != WIRE_F32 && wire->dtype != WIRE_F16 && wire->dtype != WIRE_BF16)
        return refuse(reply, STATUS_INVALID, "q, k, v and out are f32, f16 or bf16");
    if (!isfinite(wire->scale) || !isfinite(wire->soft_cap) || wire->soft_cap < 0)
        return refuse(reply, STATUS_INVALID, "scale and soft_cap are finite");
    const char *text = spans_check(call, record, wire);
    return text ? refuse(reply, STATUS_INVALID, text) : STATUS_OK;
}

static int status_of_attend(const struct server *server, const struct step_record *record,
                            uint32_t group, int err)
{
    if (err)
        return err == -EDOM || err == -EINVAL ? STATUS_INVALID : STATUS_FAILED;
    for (uint32_t at = 0; at < 2; at++) {
        uint32_t arena = record->arenas[group][at];
        if (arena != NO_INDEX && gpu_arena_is_damaged(server->device, arena))
            return STATUS_FAILED; /* its tenant pulled it away: what was read is nothing */
    }
    return STATUS_OK;
}

static int attend_end(struct server *server, struct step_record *record, uint32_t layer, int err)
{
    uint32_t group = server->models.models[record->model].group_of[layer];
    uint64_t *word = &record->layers_done[layer / 64], bit = UINT64_C(1) << layer % 64;
    int status = status_of_attend(server, record, group, err);

    server->steps.num_failed += status != STATUS_OK;
    if (status == STATUS_OK && !(*word & bit)) {
        *word |= bit;
        record->num_layers_done++;
    }
    (void)pool_step_attended(server->pool, record->pool, layer, status == STATUS_OK ? 0 : -EIO);
    record_settle(server, record);
    return status;
}

void steps_attended(struct server *server, struct waiting *waiting, int err)
{
    struct step_record *record = &server->steps.records[waiting->step];
    struct session *session = &server->sessions.sessions[waiting->session];

    record->num_running--;
    session->num_attends--;
    int status = attend_end(server, record, waiting->attend.layer, err);
    dispatch_result(server, waiting, status);
    session_settle(server, session);
}

int handle_attend(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Attend *wire = call->message;
    struct server *server = call->server;
    struct step_record *record = record_find(call, wire->step);

    if (!record)
        return refuse(reply, STATUS_NOT_FOUND, "no such step: it ended, or is another session's");
    int status = attend_check(call, record, wire, reply);
    if (status)
        return status;
    int answer = pool_step_attend(server->pool, record->pool, wire->layer);
    if (answer)
        return status_of_pool(answer);
    const struct model *model = &server->models.models[record->model];
    uint8_t *data = call->session->ring.data;
    const struct gpu_attend_layer layer = {
        .layer = model->layer_in[wire->layer],
        .dtype = gpu_dtype_of(wire->dtype),
        .q = data + wire->q_offset,
        .k = data + wire->k_offset,
        .v = model->is_mla ? NULL : data + wire->v_offset,
        .out = data + wire->out_offset,
        .lse = wire->want_lse ? (float *)(void *)(data + wire->lse_offset) : NULL,
        .sinks = wire->has_sinks ? (const float *)(void *)(data + wire->sinks_offset) : NULL,
        .scale = wire->scale,
        .soft_cap = wire->soft_cap};
    struct gpu_step_plan *plan = server->steps.plans[record->plans[model->group_of[wire->layer]]];
    server->steps.num_attends++;
    int err = gpu_device_attend(server->device, plan, &layer, effects_attend_cookie(call));
    if (err == GPU_ATTEND_QUEUED) {
        server->steps.num_queued++;
        server->effects.num_operations++;
        call->waiting->step = (uint32_t)(record - server->steps.records);
        call->waiting->attend.layer = wire->layer;
        record->num_running++;
        call->session->num_attends++;
        return waiting_begin(server, call->waiting, WAITING_ATTEND);
    }
    if (err == GPU_BUSY || err == -EBUSY) {
        (void)pool_step_attended(server->pool, record->pool, wire->layer, -EBUSY);
        return refuse(reply, STATUS_BUSY, "an attend of this layer group is running");
    }
    status = attend_end(server, record, wire->layer, err);
    if (status == STATUS_INVALID)
        return refuse(reply, STATUS_INVALID, "q, k or v has a NaN or an infinity");
    return status;
}

/* ---- end ------------------------------------------------------------------------------------ */

int handle_end_step(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__EndStep *wire = call->message;
    struct server *server = call->server;
    struct step_record *record = record_find(call, wire->step);

    if (!record)
        return refuse(reply, STATUS_NOT_FOUND, "no such step: it ended, or is another session's");
    int answer = pool_step_end(server->pool, record->pool, !wire->abandon,
                               waiting_cookie(&server->waitings, call->waiting));
    if (answer != 0 && answer != POOL_PENDING)
        return answer == POOL_INVALID
                   ? refuse(reply, STATUS_INVALID, "not every layer was attended: or abandon it")
                   : status_of_pool(answer);
    record->is_ending = true;
    record_settle(server, record);
    return answer == 0 ? STATUS_OK : waiting_begin(server, call->waiting, WAITING_POOL);
}
