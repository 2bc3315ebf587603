/* daemon/prompts.c - what is asked about a prompt: checked, copied, named, then carried out. */
#include "daemon/prompts.h"

#include "daemon/namer.h"
#include "daemon/server.h"
#include "daemon/verbs.h"
#include "proto/caps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------------------- */

static int naming_init(struct naming *naming, uint64_t max_tokens, uint64_t max_blocks)
{
    naming->tokens = calloc(max_tokens, sizeof(*naming->tokens));
    naming->keys = calloc(max_blocks, sizeof(*naming->keys));
    naming->shared_keys = calloc(max_blocks, sizeof(*naming->shared_keys));
    return naming->tokens && naming->keys && naming->shared_keys ? 0 : -ENOMEM;
}

int prompts_init(struct server *server)
{
    struct prompts *prompts = &server->prompts;
    const struct config *config = server->config;

    prompts->max_blocks = config->max_sequence_blocks + 1;
    prompts->max_tokens = (uint64_t)WIRE_MAX_TOKENS + config->max_block_tokens;
    prompts->jobs = calloc(NAME_MAX_JOBS, sizeof(*prompts->jobs));
    if (!prompts->jobs)
        return -ENOMEM;
    for (uint32_t at = 0; at < NAME_MAX_JOBS; at++) {
        if (naming_init(&prompts->jobs[at], prompts->max_tokens, prompts->max_blocks))
            return -ENOMEM;
        if (at > 0)
            prompts->free_jobs[prompts->num_free++] = at;
    }
    return namer_create(NAME_MAX_JOBS, &prompts->namer);
}

void prompts_finish(struct server *server)
{
    struct prompts *prompts = &server->prompts;

    namer_destroy(prompts->namer);
    for (uint32_t at = 0; prompts->jobs && at < NAME_MAX_JOBS; at++) {
        free(prompts->jobs[at].tokens);
        free(prompts->jobs[at].keys);
        free(prompts->jobs[at].shared_keys);
    }
    free(prompts->jobs);
}

int prompts_event_fd(const struct prompts *prompts)
{
    return namer_event_fd(prompts->namer);
}

/* ---- roots ---------------------------------------------------------------------------------- */

static int root_make(struct server *server, pool_payer domain, const struct model *model,
                     const Kvpool__Wire__Prompt *prompt, struct key *out_root)
{
    size_t adapter = strlen(prompt->adapter);
    const struct key_root_fields fields = {
        .domain_secret = server->tenants.payers[domain].secret,
        .model = &model->fingerprint,
        .adapter_id = {adapter > 0 ? prompt->adapter : NULL, adapter},
        .has_adapter_generation = adapter > 0,
        .adapter_generation = adapter > 0 ? prompt->adapter_generation : 0,
        .engine_salt = {prompt->salt.len > 0 ? prompt->salt.data : NULL, prompt->salt.len}};

    return key_root(server->hasher, &fields, out_root);
}

/* ---- from the wire into a naming ------------------------------------------------------------ */

static int extras_unpack(struct naming *naming, const Kvpool__Wire__Prompt *prompt,
                         wire_reply *reply)
{
    naming->num_extras = naming->num_extra_bytes = 0;
    if (prompt->n_extras > NAME_MAX_EXTRAS)
        return refuse(reply, STATUS_LIMIT, "a prompt has at most 512 extras");
    for (size_t i = 0; i < prompt->n_extras; i++) {
        const Kvpool__Wire__Extra *extra = prompt->extras[i];
        uint64_t last = i > 0 ? prompt->extras[i - 1]->block : 0;
        if ((i > 0 && extra->block <= last) ||
            extra->block >= (naming->num_tokens + naming->block_tokens - 1) / naming->block_tokens)
            return refuse(reply, STATUS_INVALID, "extras: ascending blocks of the prompt");
        if (extra->bytes.len > NAME_MAX_EXTRA_BYTES - naming->num_extra_bytes)
            return refuse(reply, STATUS_LIMIT, "a prompt's extras have at most 32 KiB together");
        uint8_t *bytes = &naming->extra_bytes[naming->num_extra_bytes];
        if (extra->bytes.len > 0)
            memcpy(bytes, extra->bytes.data, extra->bytes.len);
        naming->num_extra_bytes += (uint32_t)extra->bytes.len;
        naming->extras[naming->num_extras++] = (struct key_extra){
            .block = extra->block, .bytes = bytes, .num_bytes = extra->bytes.len};
    }
    return STATUS_OK;
}

/* The domains by their names; what is not the tenant's to know of is NOT_FOUND. */
static int domains_find(struct server *server, const struct session *session,
                        const Kvpool__Wire__Prompt *prompt, struct naming *naming)
{
    const struct tenants *tenants = &server->tenants;

    naming->domain = session->tenant;
    naming->shared = POOL_NONE;
    if (prompt->fill_domain[0] != '\0') {
        naming->domain = tenants_find(tenants, prompt->fill_domain);
        if (!(tenants_rights(tenants, naming->domain, session->tenant) & POOL_MAY_FILL))
            return STATUS_NOT_FOUND;
    }
    if (prompt->shared_domain[0] != '\0') {
        naming->shared = tenants_find(tenants, prompt->shared_domain);
        if (!(tenants_rights(tenants, naming->shared, session->tenant) & POOL_MAY_READ))
            return STATUS_NOT_FOUND;
        if (naming->domain != session->tenant)
            return STATUS_INVALID;
    }
    naming->has_shared = naming->shared != POOL_NONE;
    return STATUS_OK;
}

static int prompt_copy(struct server *server, struct session *session,
                       const Kvpool__Wire__Prompt *prompt, struct naming *naming, wire_reply *reply)
{
    const struct model *model = &server->models.models[prompt->model];
    int status = domains_find(server, session, prompt, naming);

    if (status)
        return status == STATUS_NOT_FOUND ? refuse(reply, status, "no such domain") : status;
    naming->model = prompt->model;
    naming->block_tokens = model->block_tokens;
    naming->num_tokens = prompt->tokens.len / sizeof(uint32_t);
    if (naming->num_tokens == 0)
        return refuse(reply, STATUS_INVALID, "a prompt has at least one token");
    if (naming->num_tokens / model->block_tokens >= server->prompts.max_blocks)
        return STATUS_LIMIT;
    memcpy(naming->tokens, prompt->tokens.data, prompt->tokens.len);
    naming->num_known = naming->first_block = 0;
    naming->is_raw = prompt->raw;
    status = extras_unpack(naming, prompt, reply);
    if (status)
        return status;
    if (root_make(server, naming->domain, model, prompt, &naming->root) ||
        (naming->has_shared &&
         root_make(server, naming->shared, model, prompt, &naming->shared_root)))
        return STATUS_FAILED;
    naming->parent = naming->root;
    return STATUS_OK;
}

/* ---- at once, or beside --------------------------------------------------------------------- */

static uint64_t num_blocks(const struct naming *naming)
{
    return naming->num_tokens / naming->block_tokens;
}

/* The owner's own for what is short; NULL: all are in use. */
static struct naming *naming_take(struct server *server, pool_payer tenant, uint64_t num_tokens,
                                  uint32_t block_tokens, uint32_t *out_job)
{
    struct prompts *prompts = &server->prompts;

    *out_job = 0;
    if (num_tokens / block_tokens > NAME_INLINE_BLOCKS) {
        if (!share_has(&server->tenants.shares[SHARE_NAMINGS], tenant, 1)) {
            prompts->num_overloaded++;
            return NULL;
        }
        share_take(&server->tenants.shares[SHARE_NAMINGS], tenant, 1);
        *out_job = prompts->free_jobs[--prompts->num_free];
        prompts->job_tenants[*out_job] = tenant;
    }
    struct naming *naming = &prompts->jobs[*out_job];
    naming->num_extras = naming->num_extra_bytes = 0;
    naming->has_shared = naming->is_unfilled = naming->want_table = false;
    naming->take = POOL_TAKE_ALL;
    naming->err = 0;
    return naming;
}

static void job_give(struct server *server, uint32_t job)
{
    struct prompts *prompts = &server->prompts;

    if (job == 0)
        return;
    prompts->free_jobs[prompts->num_free++] = job;
    share_give(&server->tenants.shares[SHARE_NAMINGS], prompts->job_tenants[job], 1);
}

/* Names it and goes on at once, or when the namer is done. */
static int name_and_go_on(struct call *call, struct naming *naming, uint32_t job)
{
    struct server *server = call->server;
    struct waiting *waiting = call->waiting;

    server->prompts.num_named += num_blocks(naming);
    waiting->sequence = naming->sequence;
    waiting->want_table = naming->want_table;
    if (job == 0) {
        naming_run(server->hasher, naming);
        int status = prompts_carry_out(server, waiting, naming);
        if (status == CALL_PENDING && waiting->is_promised)
            (void)turns_keep(call);
        return status == CALL_PENDING ? waiting_begin(server, waiting, WAITING_POOL) : status;
    }
    if (server->tiers.is_on && (naming->kind == PROMPT_ALLOCATE || naming->kind == PROMPT_RESUME))
        (void)turns_keep(call);
    server->prompts.num_jobs++;
    waiting->job = job;
    waiting->can_cancel = true;
    naming->cookie = waiting_cookie(&server->waitings, waiting);
    namer_submit(server->prompts.namer, naming);
    return waiting_begin(server, waiting, WAITING_NAMES);
}

void prompts_reap(struct server *server)
{
    struct naming *naming;

    while ((naming = namer_reap(server->prompts.namer)) != NULL) {
        uint32_t job = (uint32_t)(naming - server->prompts.jobs);
        struct waiting *waiting = waiting_find(&server->waitings, naming->cookie);
        assert(waiting && waiting->what == WAITING_NAMES); /* W1 */
        if (waiting->is_answered) {
            waiting_forget(server, waiting);
        } else {
            int status = prompts_carry_out(server, waiting, naming);
            if (status == CALL_PENDING)
                waiting_turn(server, waiting, WAITING_POOL);
            else
                dispatch_result(server, waiting, status);
        }
        job_give(server, job);
    }
}

/* ---- verbs with a prompt -------------------------------------------------------------------- */

/* Checks the model; takes and fills a naming. On success *out_naming is to be gone on with. */
static int prompt_take(struct call *call, const Kvpool__Wire__Prompt *prompt, enum prompt_kind kind,
                       wire_reply *reply, struct naming **out_naming, uint32_t *out_job)
{
    struct server *server = call->server;

    if (!prompt)
        return refuse(reply, STATUS_INVALID, "there is no prompt");
    if (prompt->model >= server->models.count || !session_has_model(call->session, prompt->model))
        return refuse(reply, STATUS_NOT_FOUND, "no such model: register it first");
    uint32_t block_tokens = server->models.models[prompt->model].block_tokens;
    struct naming *naming =
        naming_take(server, call->session->tenant, prompt->tokens.len / sizeof(uint32_t),
                    block_tokens, out_job);
    if (!naming)
        return refuse(reply, STATUS_OVERLOADED, "too many long prompts are being named: retry");
    naming->kind = kind;
    int status = prompt_copy(server, call->session, prompt, naming, reply);
    if (status)
        job_give(server, *out_job);
    else
        *out_naming = naming;
    return status;
}

int handle_match(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Match *wire = call->message;
    struct naming *naming;
    uint32_t job;
    int status = prompt_take(call, wire->prompt, PROMPT_MATCH, reply, &naming, &job);

    return status ? status : name_and_go_on(call, naming, job);
}

int handle_wait_arriving(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Match *wire = call->message;
    struct naming *naming;
    uint32_t job;
    int status = prompt_take(call, wire->prompt, PROMPT_WAIT_ARRIVING, reply, &naming, &job);

    return status ? status : name_and_go_on(call, naming, job);
}

int handle_allocate(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Allocate *wire = call->message;
    struct naming *naming;
    uint32_t job;

    if (sequences_find(&call->server->sequences, call->waiting->session, wire->sequence))
        return STATUS_EXISTS;
    int status = prompt_take(call, wire->prompt, PROMPT_ALLOCATE, reply, &naming, &job);
    if (status)
        return status;
    naming->sequence = wire->sequence;
    naming->is_unfilled = wire->unfilled;
    naming->take = wire->has_take ? wire->take : POOL_TAKE_ALL;
    naming->want_table = wire->want_table;
    return name_and_go_on(call, naming, job);
}

/* ---- verbs of a sequence that is there ------------------------------------------------------ */

/* The extras that @record's prompt had for blocks [@first, @end). */
static void extras_get(struct server *server, const struct sequence_record *record, uint64_t first,
                       uint64_t end, struct naming *naming)
{
    naming->num_extras = extras_copy(&server->sequences.extras, record->extras, first,
                                     end < record->end_extras ? end : record->end_extras,
                                     naming->extras, naming->extra_bytes);
}

/* Its own keys are known; those of the shared chain are made again. */
static int resume_prepare(struct call *call, struct pool_name name,
                          const struct sequence_record *record, struct naming *naming)
{
    struct server *server = call->server;
    int answer = pool_sequence_tokens(server->pool, name, 0, naming->num_tokens, naming->tokens);

    if (answer)
        return status_of_pool(answer);
    naming->parent = naming->root = record->root;
    naming->shared_root = record->shared_root;
    naming->has_shared = record->has_shared;
    naming->num_known = naming->first_block = 0;
    if (naming->has_shared)
        extras_get(server, record, 0, num_blocks(naming), naming);
    answer = pool_sequence_keys(server->pool, name, 0, num_blocks(naming),
                                (struct pool_key *)naming->keys);
    return status_of_pool(answer);
}

/* A naming of all tokens of a preempted sequence, to be gone on with. */
static int sequence_take(struct call *call, const struct sequence_record *record,
                         enum prompt_kind kind, wire_reply *reply, struct naming **out_naming,
                         uint32_t *out_job)
{
    struct server *server = call->server;
    struct pool_sequence_description described;
    const struct pool_name name = {call->session->pool, record->id};
    int answer = pool_describe(server->pool, name, &described);

    if (answer)
        return status_of_pool(answer);
    if (!described.is_preempted)
        return refuse(reply, STATUS_INVALID, "only a preempted sequence is resumed");
    if (described.length == 0)
        return refuse(reply, STATUS_INVALID,
                      "it has no tokens to resume: release it, and allocate anew");
    uint32_t block_tokens = server->models.models[described.model].block_tokens;
    struct naming *naming =
        naming_take(server, call->session->tenant, described.length, block_tokens, out_job);
    if (!naming)
        return refuse(reply, STATUS_OVERLOADED, "too many long prompts are being named: retry");
    naming->kind = kind;
    naming->sequence = record->id;
    naming->model = described.model;
    naming->block_tokens = block_tokens;
    naming->num_tokens = described.length;
    int status = resume_prepare(call, name, record, naming);
    if (status) {
        job_give(server, *out_job);
        return status;
    }
    *out_naming = naming;
    return STATUS_OK;
}

int handle_resume(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Resume *wire = call->message;
    struct sequence_record *record;
    struct naming *naming;
    uint32_t job;
    int status = sequence_get(call, wire->sequence, &record);

    if (status)
        return status;
    status = sequence_take(call, record, PROMPT_RESUME, reply, &naming, &job);
    if (status)
        return status;
    naming->is_unfilled = wire->unfilled;
    naming->take = wire->has_take ? wire->take : POOL_TAKE_ALL;
    naming->want_table = wire->want_table;
    return name_and_go_on(call, naming, job);
}

int handle_prefetch(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Prefetch *wire = call->message;
    struct sequence_record *record;
    struct naming *naming;
    uint32_t job;
    int status;

    if (wire->of_sequence) {
        status = sequence_get(call, wire->sequence, &record);
        if (!status)
            status = sequence_take(call, record, PROMPT_PREFETCH_SEQUENCE, reply, &naming, &job);
    } else {
        status = prompt_take(call, wire->prompt, PROMPT_PREFETCH, reply, &naming, &job);
    }
    return status ? status : name_and_go_on(call, naming, job);
}

/*
 * The chain goes on behind the last full block: fills @naming with the tail's tokens, what is
 * appended, and the extras of the blocks that become full.
 */
static int growth_prepare(struct server *server, const struct session *session,
                          const struct sequence_record *record,
                          const struct pool_sequence_description *described, const void *tokens,
                          uint64_t count, struct naming *naming)
{
    const struct pool_name name = {session->pool, record->id};
    uint32_t block_tokens = server->models.models[described->model].block_tokens;
    uint64_t num_full = described->length / block_tokens;
    int answer = 0;

    naming->model = described->model;
    naming->block_tokens = block_tokens;
    naming->num_known = described->length % block_tokens;
    naming->first_block = num_full;
    naming->num_tokens = naming->num_known + count;
    naming->has_shared = false;
    extras_get(server, record, num_full, num_full + num_blocks(naming), naming);
    if (naming->num_known > 0)
        answer = pool_sequence_tokens(server->pool, name, num_full * block_tokens,
                                      naming->num_known, naming->tokens);
    naming->parent = record->root;
    if (!answer && num_full > 0)
        answer =
            pool_sequence_key(server->pool, name, num_full - 1, (struct pool_key *)&naming->parent);
    if (answer)
        return status_of_pool(answer);
    if (count > 0) /* an empty field points nowhere */
        memcpy(naming->tokens + naming->num_known, tokens, count * sizeof(uint32_t));
    return STATUS_OK;
}

int prompts_name_growth(struct server *server, const struct session *session,
                        const struct sequence_record *record,
                        const struct pool_sequence_description *described, const uint32_t *tokens,
                        uint64_t count, struct key *out)
{
    struct naming *naming = &server->prompts.jobs[0];
    int status = growth_prepare(server, session, record, described, tokens, count, naming);

    if (status)
        return status;
    struct key *own = naming->keys;
    naming->kind = PROMPT_APPEND;
    naming->keys = out;
    naming_run(server->hasher, naming);
    naming->keys = own;
    server->prompts.num_named += num_blocks(naming);
    return naming->err ? STATUS_FAILED : STATUS_OK;
}

int handle_append(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Append *wire = call->message;
    struct server *server = call->server;
    struct pool_sequence_description described;
    struct sequence_record *record;
    uint64_t count = wire->tokens.len / sizeof(uint32_t);
    uint32_t job;
    int status = sequence_get(call, wire->sequence, &record);

    if (status)
        return status;
    int answer = pool_describe(server->pool,
                               (struct pool_name){call->session->pool, wire->sequence}, &described);
    if (answer)
        return status_of_pool(answer);
    uint32_t block_tokens = server->models.models[described.model].block_tokens;
    if (count / block_tokens + 1 >= server->prompts.max_blocks)
        return STATUS_LIMIT;
    struct naming *naming =
        naming_take(server, call->session->tenant, count + block_tokens, block_tokens, &job);
    if (!naming)
        return refuse(reply, STATUS_OVERLOADED, "too many long prompts are being named: retry");
    status =
        growth_prepare(server, call->session, record, &described, wire->tokens.data, count, naming);
    if (status) {
        job_give(server, job);
        return status;
    }
    naming->kind = PROMPT_APPEND;
    naming->sequence = wire->sequence;
    naming->want_table = wire->want_table;
    return name_and_go_on(call, naming, job);
}
