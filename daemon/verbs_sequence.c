/* daemon/verbs_sequence.c - verbs of one sequence that need no keys, and the tables of replies. */
#include "daemon/server.h"
#include "daemon/verbs.h"

static struct pool_name name_of(const struct call *call, uint64_t id)
{
    return (struct pool_name){call->session->pool, id};
}

static uint64_t cookie_of(const struct call *call)
{
    return waiting_cookie(&call->server->waitings, call->waiting);
}

int sequence_get(struct call *call, uint64_t id, struct sequence_record **out_record)
{
    struct sequence_record *record =
        sequences_find(&call->server->sequences, sessions_index(call->server, call->session), id);

    if (!record)
        return STATUS_NOT_FOUND;
    *out_record = record;
    if (call->waiting)
        call->waiting->sequence = id;
    return STATUS_OK;
}

/* What the pool answers to a verb that may wait. */
static int pool_status(struct call *call, int answer)
{
    int status = status_of_pool(answer);

    return status == CALL_PENDING ? waiting_begin(call->server, call->waiting, WAITING_POOL)
                                  : status;
}

/* ---- verbs ---------------------------------------------------------------------------------- */

int handle_publish(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__SequenceRef *wire = call->message;
    struct sequence_record *record;
    int status = sequence_get(call, wire->sequence, &record);

    (void)reply;
    if (status)
        return status;
    call->waiting->want_table = wire->want_table;
    struct pool_name name = name_of(call, wire->sequence);
    return status_of_pool(wire->num_tokens > 0
                              ? pool_publish_up_to(call->server->pool, name, wire->num_tokens)
                              : pool_publish(call->server->pool, name));
}

int handle_fill(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__SequenceRef *wire = call->message;
    struct sequence_record *record;
    int status = sequence_get(call, wire->sequence, &record);

    (void)reply;
    if (status)
        return status;
    call->waiting->want_table = wire->want_table;
    return status_of_pool(pool_fill(call->server->pool, name_of(call, wire->sequence)));
}

int handle_fork(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Fork *wire = call->message;
    struct server *server = call->server;
    struct sequence_record *record;
    int status = sequence_get(call, wire->sequence, &record);

    if (status)
        return status;
    if (!share_has(&server->tenants.shares[SHARE_SEQUENCES], call->session->tenant, 1))
        return refuse(reply, STATUS_LIMIT, "max_sequences, or what others are promised of them");
    int answer = pool_fork(server->pool, name_of(call, wire->sequence), wire->child);
    if (answer)
        return status_of_pool(answer);
    struct sequence_record *child =
        sequences_add(&server->sequences, &call->session->sequences, record->session, wire->child);
    if (!child) { /* as many as the pool has: not seen */
        (void)pool_release(server->pool, name_of(call, wire->child), 0);
        return STATUS_LIMIT;
    }
    share_take(&server->tenants.shares[SHARE_SEQUENCES], call->session->tenant, 1);
    child->root = record->root;
    child->shared_root = record->shared_root;
    child->has_shared = record->has_shared;
    child->extras = record->extras;
    child->end_extras = record->end_extras;
    extras_share(&server->sequences.extras, child->extras);
    call->waiting->sequence = wire->child;
    call->waiting->want_table = wire->want_table;
    return STATUS_OK;
}

int handle_truncate(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Truncate *wire = call->message;
    struct sequence_record *record;
    int status = sequence_get(call, wire->sequence, &record);

    (void)reply;
    if (status)
        return status;
    call->waiting->num_tokens = wire->num_tokens;
    call->waiting->want_table = wire->want_table;
    return pool_status(call, pool_truncate(call->server->pool, name_of(call, wire->sequence),
                                           wire->num_tokens, cookie_of(call)));
}

/* Release and preempt: a sequence, and nothing else. */
static int carry_out_plain(struct call *call,
                           int (*verb)(struct pool *pool, struct pool_name name, uint64_t cookie))
{
    const Kvpool__Wire__SequenceRef *wire = call->message;
    struct sequence_record *record;
    int status = sequence_get(call, wire->sequence, &record);

    if (status)
        return status;
    return pool_status(call,
                       verb(call->server->pool, name_of(call, wire->sequence), cookie_of(call)));
}

int handle_release(struct call *call, wire_reply *reply)
{
    (void)reply;
    return carry_out_plain(call, pool_release);
}

int handle_preempt(struct call *call, wire_reply *reply)
{
    (void)reply;
    return carry_out_plain(call, pool_preempt);
}

int handle_cancel(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Cancel *wire = call->message;
    struct server *server = call->server;
    struct waiting *waiting =
        waiting_find_request(server, sessions_index(server, call->session), wire->request);

    if (!waiting)
        return refuse(reply, STATUS_NOT_FOUND, "no such request is outstanding");
    if (!waiting->can_cancel)
        return refuse(reply, STATUS_INVALID, "it is being carried out: its reply comes soon");
    waiting_answer_early(server, waiting, STATUS_CANCELLED);
    if (waiting->what == WAITING_POOL)
        (void)pool_cancel(server->pool, call->session->pool,
                          waiting_cookie(&server->waitings, waiting));
    return STATUS_OK;
}

/* ---- what follows --------------------------------------------------------------------------- */

static struct sequence_record *record_of(struct server *server, const struct waiting *waiting)
{
    return waiting->session == NO_INDEX
               ? NULL
               : sequences_find(&server->sequences, waiting->session, waiting->sequence);
}

/* Blocks that are cut off whole are others when they come again: their extras are gone. */
void settle_truncate(struct server *server, struct waiting *waiting, int status)
{
    struct pool_sequence_description described;
    struct sequence_record *record = record_of(server, waiting);

    if (status != STATUS_OK || !record || record->end_extras == 0)
        return;
    const struct session *session = &server->sessions.sessions[waiting->session];
    if (pool_describe(server->pool, (struct pool_name){session->pool, record->id}, &described))
        return;
    uint32_t block_tokens = server->models.models[described.model].block_tokens;
    uint64_t length = (waiting->num_tokens + block_tokens - 1) / block_tokens;
    if (record->end_extras > length)
        record->end_extras = (uint32_t)length;
}

void settle_release(struct server *server, struct waiting *waiting, int status)
{
    struct sequence_record *record = record_of(server, waiting);

    if (status != STATUS_OK || !record)
        return;
    struct session *session = &server->sessions.sessions[waiting->session];
    sequences_remove(&server->sequences, &session->sequences, record);
    share_give(&server->tenants.shares[SHARE_SEQUENCES], session->tenant, 1);
}

/* ---- results -------------------------------------------------------------------------------- */

/* One group's table into the scratch from @at on; returns its entries, or UINT32_MAX: no room. */
static uint32_t table_copy(struct server *server, struct pool_name name, uint32_t group,
                           uint32_t at)
{
    struct scratch *scratch = &server->scratch;
    Kvpool__Wire__Table *table = &scratch->tables[group];
    uint32_t count;

    kvpool__wire__table__init(table);
    if (pool_table(server->pool, name, group, scratch->places, scratch->max_places, &count) ||
        count > scratch->max_places)
        return UINT32_MAX;
    table->slots = &scratch->slots[at];
    table->generations = &scratch->generations[at];
    table->n_slots = table->n_generations = count;
    for (uint32_t i = 0; i < count; i++) {
        table->slots[i] = scratch->places[i].slot;
        table->generations[i] = scratch->places[i].generation;
        if (scratch->places[i].is_shared)
            table->num_shared = i + 1;
    }
    return count;
}

int finish_table(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    struct scratch *scratch = &server->scratch;
    const struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_name name = {session->pool, waiting->sequence};
    struct pool_sequence_description described;
    int answer = pool_describe(server->pool, name, &described);
    uint32_t at = 0;

    if (answer)
        return status_of_pool(answer);
    kvpool__wire__table_result__init(&scratch->table);
    scratch->table.matched = waiting->found.matched;
    scratch->table.arriving = waiting->found.arriving;
    scratch->table.below = waiting->found.below;
    scratch->table.length = described.length;
    if (waiting->want_table && !described.is_preempted) {
        uint32_t num_groups = server->models.models[described.model].num_groups;
        for (uint32_t group = 0; group < num_groups; group++) {
            uint32_t count = table_copy(server, name, group, at);
            if (count == UINT32_MAX)
                return STATUS_LIMIT;
            at += count;
        }
        scratch->table.tables = scratch->table_list;
        scratch->table.n_tables = num_groups;
    }
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_TABLE;
    reply->table = &scratch->table;
    return STATUS_OK;
}

int finish_prefetch(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    waiting->found = (struct pool_found){.matched = waiting->prefetched.matched};
    return finish_match(server, waiting, reply);
}

int finish_match(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    Kvpool__Wire__MatchResult *match = &server->scratch.match;

    kvpool__wire__match_result__init(match);
    match->matched = waiting->found.matched;
    match->arriving = waiting->found.arriving;
    match->below = waiting->found.below;
    match->present = waiting->prefetched.present;
    match->coming = waiting->prefetched.coming;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_MATCH;
    reply->match = match;
    return STATUS_OK;
}
