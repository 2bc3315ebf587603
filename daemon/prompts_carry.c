/* daemon/prompts_carry.c - what is asked about a prompt that has its keys: the pool's verbs, and
 * what becomes of those that wait for blocks below the device. */
#include "daemon/prompts.h"
#include "daemon/server.h"

#include <string.h>

/* ---- the pool's verb, once there are keys --------------------------------------------------- */

/* What the daemon keeps of a new sequence. */
static int record_make(struct server *server, uint32_t session, const struct naming *naming)
{
    struct session *owner = &server->sessions.sessions[session];
    struct sequence_record *record =
        sequences_add(&server->sequences, &owner->sequences, session, naming->sequence);

    if (!record)
        return STATUS_LIMIT;
    share_take(&server->tenants.shares[SHARE_SEQUENCES], owner->tenant, 1);
    record->root = naming->root;
    record->shared_root = naming->shared_root;
    record->has_shared = naming->has_shared;
    for (uint32_t i = 0; i < naming->num_extras; i++) {
        const struct key_extra *extra = &naming->extras[i];
        record->has_extras = true;
        record->end_extras = (uint32_t)extra->block + 1;
        record->is_tail_kept = extra->num_bytes <= SEQUENCE_MAX_EXTRA;
        if (record->is_tail_kept) {
            memcpy(record->tail_extra, extra->bytes, extra->num_bytes);
            record->tail_extra_bytes = (uint8_t)extra->num_bytes;
        }
    }
    return STATUS_OK;
}

static struct pool_tokens tokens_of(const struct naming *naming)
{
    return (struct pool_tokens){
        .ids = naming->tokens + naming->num_known,
        .count = naming->num_tokens - naming->num_known,
        .keys = (const struct pool_key *)naming->keys,
        .shared_keys = naming->has_shared ? (const struct pool_key *)naming->shared_keys : NULL};
}

static struct pool_prompt prompt_of(const struct session *session, const struct naming *naming)
{
    return (struct pool_prompt){.tenant = session->tenant,
                                .domain = naming->domain,
                                .shared = naming->shared,
                                .model = naming->model,
                                .tokens = tokens_of(naming),
                                .is_raw = naming->is_raw};
}

/* Of what waits for promotions: it is taken back if they do not come, or if it is cancelled. */
static int promise(struct waiting *waiting, int answer)
{
    waiting->is_promised = waiting->can_cancel = answer == POOL_PENDING;
    return status_of_pool(answer);
}

static int allocate(struct server *server, struct waiting *waiting, const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_prompt prompt = prompt_of(session, naming);
    const struct pool_alloc_options options = {.is_mapped = (session->flags & HELLO_MAPPED) != 0,
                                               .is_unfilled = naming->is_unfilled,
                                               .take = naming->take,
                                               .cookie = waiting_cookie(&server->waitings, waiting),
                                               .deadline_ms = waiting->deadline_ms};
    const struct pool_name name = {session->pool, naming->sequence};

    if (!share_has(&server->tenants.shares[SHARE_SEQUENCES], session->tenant, 1))
        return STATUS_LIMIT;
    int answer = pool_alloc(server->pool, name, &prompt, &options, &waiting->found);

    if (answer && answer != POOL_PENDING)
        return status_of_pool(answer);
    int status = record_make(server, waiting->session, naming);
    if (status) { /* there are as many records as the pool has sequences: not seen */
        (void)pool_release(server->pool, name, 0);
        return status;
    }
    return promise(waiting, answer);
}

static int resume(struct server *server, struct waiting *waiting, const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_alloc_options options = {.is_unfilled = naming->is_unfilled,
                                               .take = naming->take,
                                               .cookie = waiting_cookie(&server->waitings, waiting),
                                               .deadline_ms = waiting->deadline_ms};
    const struct pool_tokens tokens = tokens_of(naming);

    return promise(waiting,
                   pool_resume(server->pool, (struct pool_name){session->pool, naming->sequence},
                               &tokens, &options, &waiting->found));
}

/* Nobody knows of it any more: the sequence is as it was before. */
static void promise_undo(struct server *server, struct waiting *waiting, bool is_done)
{
    struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_name name = {session->pool, waiting->sequence};
    bool is_resume = waiting->verb == KVPOOL__WIRE__REQUEST__VERB_RESUME;

    if (is_done)
        (void)(is_resume ? pool_preempt(server->pool, name, 0)
                         : pool_release(server->pool, name, 0));
    struct sequence_record *record =
        is_resume ? NULL : sequences_find(&server->sequences, waiting->session, waiting->sequence);
    if (!record)
        return;
    sequences_remove(&server->sequences, &session->sequences, record);
    share_give(&server->tenants.shares[SHARE_SEQUENCES], session->tenant, 1);
}

bool prompts_settle(struct server *server, struct waiting *waiting, int answer)
{
    waiting->is_promised = waiting->can_cancel = false;
    if (answer == 0 && !waiting->is_answered)
        return false;
    promise_undo(server, waiting, answer == 0);
    return answer == POOL_RETRY && !waiting->is_answered && turns_again(server, waiting);
}

static int prefetch(struct server *server, struct waiting *waiting, const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];

    if (naming->kind == PROMPT_PREFETCH_SEQUENCE) {
        const struct pool_tokens tokens = tokens_of(naming);
        return status_of_pool(pool_prefetch_sequence(
            server->pool, (struct pool_name){session->pool, naming->sequence}, &tokens,
            &waiting->prefetched));
    }
    const struct pool_prompt prompt = prompt_of(session, naming);
    return status_of_pool(pool_prefetch(server->pool, &prompt, &waiting->prefetched));
}

static int append(struct server *server, struct waiting *waiting, const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_tokens tokens = tokens_of(naming);

    return status_of_pool(pool_append(server->pool,
                                      (struct pool_name){session->pool, naming->sequence}, &tokens,
                                      waiting_cookie(&server->waitings, waiting)));
}

static int wait_arriving(struct server *server, struct waiting *waiting,
                         const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_prompt prompt = prompt_of(session, naming);
    struct share *share = &server->tenants.shares[SHARE_WAITERS];

    waiting->can_cancel = true;
    if (!share_has(share, session->tenant, 1))
        return STATUS_LIMIT;
    int status = status_of_pool(pool_match(server->pool, &prompt, &waiting->found));
    if (status)
        return status;
    status = status_of_pool(pool_wait_arriving(server->pool, session->pool, &prompt,
                                               waiting->deadline_ms,
                                               waiting_cookie(&server->waitings, waiting)));
    waiting->is_waiter = status == CALL_PENDING;
    if (waiting->is_waiter) {
        share_take(share, session->tenant, 1);
        waiting->found.matched += waiting->found.arriving; /* if it comes: MISS has no result */
        waiting->found.arriving = 0;
    }
    return status;
}

int prompts_carry_out(struct server *server, struct waiting *waiting, const struct naming *naming)
{
    struct session *session = &server->sessions.sessions[waiting->session];

    if (naming->err)
        return STATUS_FAILED;
    switch (naming->kind) {
    case PROMPT_ALLOCATE:
        return allocate(server, waiting, naming);
    case PROMPT_RESUME:
        return resume(server, waiting, naming);
    case PROMPT_APPEND:
        return append(server, waiting, naming);
    case PROMPT_WAIT_ARRIVING:
        return wait_arriving(server, waiting, naming);
    case PROMPT_PREFETCH:
    case PROMPT_PREFETCH_SEQUENCE:
        return prefetch(server, waiting, naming);
    default: {
        const struct pool_prompt prompt = prompt_of(session, naming);
        return status_of_pool(pool_match(server->pool, &prompt, &waiting->found));
    }
    }
}
