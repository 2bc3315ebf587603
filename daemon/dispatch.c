/* daemon/dispatch.c - requests by the table: who may, when, how they wait, how they are answered.
 */
#include "daemon/dispatch.h"

#include "daemon/server.h"
#include "daemon/verbs.h"

#define VERB(NAME) KVPOOL__WIRE__REQUEST__VERB_##NAME

/* What requests share is a column, checked once below; the rest is the handler's. */
/* clang-format off */
const struct request_type request_types[MAX_VERBS] = {
    /*                        name              handle                  settle           finish          roles          draining waits memory lines */
    [VERB(REGISTER_MODEL)] = {"register_model", handle_register_model,  NULL,            NULL,           ROLE_SESSION,  true,  true,  false, TURN_NONE},
    [VERB(OPEN_ARENA)]     = {"open_arena",     handle_open_arena,      NULL,            NULL,           ROLE_SESSION,  true,  true,  false, TURN_NONE},
    [VERB(ALLOCATE)]       = {"allocate",       handle_allocate,        NULL,            finish_table,   ROLE_SESSION,  false, true,  true,  TURN_SEQUENCE},
    [VERB(APPEND)]         = {"append",         handle_append,          NULL,            finish_table,   ROLE_SESSION,  true,  true,  true,  TURN_SEQUENCE},
    [VERB(STEP)]           = {"step",           handle_step,            settle_step,     finish_step,    ROLE_SESSION,  true,  true,  true,  TURN_ROWS},
    [VERB(ATTEND)]         = {"attend",         handle_attend,          NULL,            NULL,           ROLE_SESSION,  true,  true,  false, TURN_STEP},
    [VERB(END_STEP)]       = {"end_step",       handle_end_step,        NULL,            NULL,           ROLE_SESSION,  true,  true,  false, TURN_STEP},
    [VERB(PUBLISH)]        = {"publish",        handle_publish,         NULL,            finish_table,   ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(WRITE)]          = {"write",          handle_write,           NULL,            finish_data,    ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(READ)]           = {"read",           handle_read,            NULL,            finish_data,    ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(FORK)]           = {"fork",           handle_fork,            NULL,            finish_table,   ROLE_SESSION,  false, true,  false, TURN_FORK},
    [VERB(TRUNCATE)]       = {"truncate",       handle_truncate,        settle_truncate, finish_table,   ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(RELEASE)]        = {"release",        handle_release,         settle_release,  NULL,           ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(PREEMPT)]        = {"preempt",        handle_preempt,         NULL,            NULL,           ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(RESUME)]         = {"resume",         handle_resume,          NULL,            finish_table,   ROLE_SESSION,  true,  true,  true,  TURN_SEQUENCE},
    [VERB(MATCH)]          = {"match",          handle_match,           NULL,            finish_match,   ROLE_SESSION,  true,  true,  false, TURN_NONE},
    [VERB(WAIT_ARRIVING)]  = {"wait_arriving",  handle_wait_arriving,   NULL,            finish_match,   ROLE_SESSION,  true,  true,  false, TURN_NONE},
    [VERB(PREFETCH)]       = {"prefetch",       handle_prefetch,        NULL,            finish_prefetch, ROLE_SESSION, true,  true,  false, TURN_NONE},
    [VERB(CANCEL)]         = {"cancel",         handle_cancel,          NULL,            NULL,           ROLE_SESSION,  true,  false, false, TURN_NONE},
    [VERB(STATS)]          = {"stats",          handle_stats,           NULL,            NULL,           ROLE_ANY,      true,  false, false, TURN_NONE},
    [VERB(FILL)]           = {"fill",           handle_fill,            NULL,            finish_table,   ROLE_SESSION,  true,  true,  false, TURN_SEQUENCE},
    [VERB(DRAIN)]          = {"drain",          handle_drain,           NULL,            NULL,           ROLE_OPERATOR, true,  false, false, TURN_NONE},
    [VERB(CLEAR)]          = {"clear",          handle_clear,           NULL,            NULL,           ROLE_OPERATOR, true,  true,  false, TURN_NONE},
    [VERB(SET_QUOTA)]      = {"set_quota",      handle_set_quota,       NULL,            NULL,           ROLE_OPERATOR, true,  false, false, TURN_NONE},
    [VERB(CREATE_DOMAIN)]  = {"create_domain",  handle_create_domain,   NULL,            NULL,           ROLE_OPERATOR, true,  true,  false, TURN_NONE},
    [VERB(LIST)]           = {"list",           handle_list,            NULL,            NULL,           ROLE_OPERATOR, true,  false, false, TURN_NONE},
    [VERB(KICK)]           = {"kick",           handle_kick,            NULL,            NULL,           ROLE_OPERATOR, true,  false, false, TURN_NONE},
    [VERB(SHUTDOWN)]       = {"shutdown",       handle_shutdown,        settle_shutdown, NULL,           ROLE_OPERATOR, true,  true,  false, TURN_NONE},
};

/* Not PENDING, which is no answer. MISS and what follows are replies. */
static const uint8_t statuses[] = {
    [0]                = STATUS_OK,
    [POOL_NOT_FOUND]   = STATUS_NOT_FOUND,
    [POOL_EXISTS]      = STATUS_EXISTS,
    [POOL_INVALID]     = STATUS_INVALID,
    [POOL_NEVER_FITS]  = STATUS_NEVER_FITS,
    [POOL_QUOTA]       = STATUS_QUOTA,
    [POOL_NO_BLOCKS]   = STATUS_NO_BLOCKS,
    [POOL_LIMIT]       = STATUS_LIMIT,
    [POOL_STALE]       = STATUS_STALE,
    [POOL_DRAINING]    = STATUS_DRAINING,
    [POOL_BUSY]        = STATUS_BUSY,
    [POOL_PENDING]     = CALL_PENDING,
    [POOL_MISS]        = STATUS_MISS,
    [POOL_TIMEOUT]     = STATUS_TIMEOUT,
    [POOL_FAILED]      = STATUS_FAILED,
    [POOL_RETRY]       = STATUS_OVERLOADED, /* where the request was not kept: turns_keep() */
};
/* clang-format on */

const size_t num_request_types = ARRAY_SIZE(request_types);

int status_of_pool(int answer)
{
    return answer >= 0 && (size_t)answer < ARRAY_SIZE(statuses) ? statuses[answer] : STATUS_FAILED;
}

/* ---- answers -------------------------------------------------------------------------------- */

void dispatch_reply(struct server *server, struct session *session, const struct origin *origin,
                    uint32_t verb, wire_reply *reply)
{
    struct request_counters *counters = &server->requests[verb];

    counters->done += reply->status == STATUS_OK;
    counters->refused += reply->status != STATUS_OK;
    reply->id = origin->id;
    if (origin->is_ring)
        ring_complete(server, session, reply);
    else
        router_reply(server, origin, reply);
}

/* Settles, lets wait for memory, or finishes. Returns the status to answer, or CALL_PENDING. */
static int conclude(struct server *server, struct waiting *waiting, int status, wire_reply *reply)
{
    const struct request_type *type = &request_types[waiting->verb];
    bool had_memory = waiting->what == WAITING_MEMORY;

    if (status == STATUS_OK && type->waits_for_memory && !had_memory && !waiting->is_answered) {
        waiting->mark = effects_mark(&server->effects);
        if (!effects_passed(&server->effects, waiting->mark))
            return waiting_begin(server, waiting, WAITING_MEMORY);
    }
    if (type->settle)
        type->settle(server, waiting, status);
    if (status == STATUS_OK && type->finish && !waiting->is_answered)
        status = type->finish(server, waiting, reply);
    return status;
}

void dispatch_result(struct server *server, struct waiting *waiting, int status)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;

    status = conclude(server, waiting, status, &reply);
    if (status == CALL_PENDING)
        return;
    reply.status = (uint32_t)status;
    waiting_end(server, waiting, &reply);
}

/* ---- requests ------------------------------------------------------------------------------- */

static int check(const struct call *call, const struct request_type *type, wire_reply *reply)
{
    const struct server *server = call->server;
    enum role role = call->origin->is_operator ? ROLE_OPERATOR : ROLE_SESSION;

    if (!(type->roles & role))
        return refuse(reply, STATUS_DENIED,
                      role == ROLE_OPERATOR ? "this is asked by sessions"
                                            : "this is for operators, on their own socket");
    if (server->is_draining && !type->while_draining)
        return STATUS_DRAINING;
    if (call->session && call->session->num_outstanding >= server->config->credits)
        return refuse(reply, STATUS_OVERLOADED,
                      "too many requests are outstanding: wait for replies");
    return STATUS_OK;
}

static int handle_and_conclude(struct call *call, const struct request_type *type,
                               wire_reply *reply)
{
    int status = type->handle(call, reply);

    return status == CALL_PENDING ? status : conclude(call->server, call->waiting, status, reply);
}

static int carry_out(struct call *call, const struct request_type *type, wire_reply *reply)
{
    int status = check(call, type, reply);

    if (status)
        return status;
    if (!type->may_wait)
        return type->handle(call, reply);
    call->waiting = waiting_reserve(call);
    if (!call->waiting)
        return refuse(reply, STATUS_LIMIT, "too many requests wait: max_waiters");
    status = turns_enter(call, type->lines, reply);
    if (status)
        return status;
    status = handle_and_conclude(call, type, reply);
    if (status == CALL_PENDING)
        turns_stand(call);
    return status;
}

bool dispatch_turn(struct server *server, struct waiting *waiting, const void *message,
                   struct frames *frames, bool stands)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;
    const struct request_type *type = &request_types[waiting->verb];
    struct call call = {.server = server,
                        .session = &server->sessions.sessions[waiting->session],
                        .origin = &waiting->origin,
                        .frames = frames,
                        .message = message,
                        .verb = waiting->verb,
                        .deadline_ms = waiting->deadline_ms,
                        .waiting = waiting};
    int status = stands ? STATUS_OK : turns_come(&call, type->lines, &reply);

    if (status == CALL_PENDING)
        return false;
    waiting->can_cancel = false;
    if (status == STATUS_OK && server->is_draining && !type->while_draining)
        status = STATUS_DRAINING;
    if (status == STATUS_OK)
        status = handle_and_conclude(&call, type, &reply);
    if (status == CALL_PENDING && !stands)
        turns_stand(&call);
    if (status == CALL_PENDING)
        return true;
    reply.status = (uint32_t)status;
    waiting_end(server, waiting, &reply);
    return true;
}

void dispatch_request(struct server *server, struct session *session, const struct origin *origin,
                      uint32_t verb, const void *message, uint32_t deadline_ms,
                      struct frames *frames)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;
    const struct config *config = server->config;
    uint64_t wait_ms = deadline_ms > 0 ? deadline_ms : config->deadline_ms;

    if (wait_ms > config->max_deadline_ms)
        wait_ms = config->max_deadline_ms;
    struct call call = {.server = server,
                        .session = session,
                        .origin = origin,
                        .frames = frames,
                        .message = message,
                        .verb = verb,
                        .deadline_ms = server->now_ms + wait_ms};
    int status = verb < num_request_types && request_types[verb].handle
                     ? carry_out(&call, &request_types[verb], &reply)
                     : refuse(&reply, STATUS_UNSUPPORTED, "this daemon does not know this verb");
    if (status == CALL_PENDING)
        return;
    reply.status = (uint32_t)status;
    dispatch_reply(server, session, origin, verb < num_request_types ? verb : 0, &reply);
}
