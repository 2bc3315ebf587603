/* daemon/verbs_operator.c - what operators ask, and Stats. */
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "daemon/text.h"
#include "daemon/verbs.h"
#include "daemon/watch.h"

/* A further member of the object that @text is. */
static void events_add(struct server *server, pool_payer tenant, uint64_t after, struct text *text)
{
    text->length--; /* its closing brace */
    text_add(text, ",");
    journal_json(&server->journal, tenant, after, &server->models, text);
    text_add(text, "}");
}

int handle_stats(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__StatsRequest *wire = call->message;
    struct server *server = call->server;
    struct text text = text_init(server->scratch.json, server->scratch.json_bytes);

    if (call->session) {
        stats_payer_json(server->stats, call->session->tenant, &text);
        if (wire->want_events)
            events_add(server, call->session->tenant, wire->after, &text);
    } else {
        watch_take(server);
        stats_json(server->stats, &text);
    }
    kvpool__wire__stats_result__init(&server->scratch.stats);
    server->scratch.stats.json = server->scratch.json;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_STATS;
    reply->stats = &server->scratch.stats;
    return STATUS_OK;
}

int handle_drain(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Drain *wire = call->message;

    if (wire->undo && call->server->is_stopping)
        return refuse(reply, STATUS_DRAINING, "the daemon is stopping: that cannot be undone");
    server_drain(call->server, !wire->undo);
    return STATUS_OK;
}

int handle_clear(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Clear *wire = call->message;
    struct server *server = call->server;
    pool_payer domain = POOL_NONE;
    bool any = wire->model[0] == '\0';

    if (wire->domain[0] != '\0') {
        domain = tenants_find(&server->tenants, wire->domain);
        if (domain == POOL_NONE)
            return refuse(reply, STATUS_NOT_FOUND, "no such domain");
    }
    for (uint32_t model = 0; model < server->models.count && !any; model++)
        any = strcmp(server->models.models[model].name, wire->model) == 0;
    if (!any)
        return refuse(reply, STATUS_NOT_FOUND, "no such model");
    log_event(LOG_NOTICE, "clear", log_text("domain", wire->domain),
              log_text("model", wire->model));
    return state_clear(call, domain, wire->model, reply);
}

static const struct {
    const char *name;
    enum pool_tier tier;
} tier_names[] = {{"", POOL_TIER_DEVICE},
                  {"device", POOL_TIER_DEVICE},
                  {"host", POOL_TIER_HOST},
                  {"disk", POOL_TIER_DISK}};

static enum pool_tier tier_named(const char *name)
{
    for (size_t at = 0; at < ARRAY_SIZE(tier_names); at++) {
        if (strcmp(tier_names[at].name, name) == 0)
            return tier_names[at].tier;
    }
    return POOL_NUM_TIERS;
}

int handle_set_quota(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__SetQuota *wire = call->message;
    struct server *server = call->server;
    pool_payer payer = tenants_find(&server->tenants, wire->payer);
    enum pool_tier tier = tier_named(wire->tier);
    const struct config_quota quota = {.guarantee_bytes = wire->guarantee_bytes,
                                       .limit_bytes =
                                           wire->has_limit ? wire->limit_bytes : CONFIG_UNLIMITED,
                                       .weight = wire->weight > 0 ? wire->weight : 1};

    if (payer == POOL_NONE)
        return refuse(reply, STATUS_NOT_FOUND, "no such tenant or domain");
    if (tier == POOL_NUM_TIERS)
        return refuse(reply, STATUS_INVALID, "a tier is device, host or disk");
    int answer = tier == POOL_TIER_DEVICE ? tenants_set_quota(server, payer, &quota)
                                          : tenants_set_tier_quota(server, payer, tier, &quota);
    log_event(LOG_NOTICE, answer ? "quota_refused" : "quota", log_text("payer", wire->payer),
              log_text("tier", wire->tier), log_number("guarantee_bytes", quota.guarantee_bytes),
              log_number("limit_bytes", quota.limit_bytes), log_number("weight", quota.weight));
    if (answer)
        return refuse(reply, (enum wire_status)status_of_pool(answer),
                      "a guarantee is at most the limit, and all of them at most the pool");
    state_quota_set(server, payer);
    return STATUS_OK;
}

int handle_create_domain(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__CreateDomain *wire = call->message;
    const struct tenants *tenants = &call->server->tenants;

    if (!config_name_is_good(wire->name))
        return refuse(reply, STATUS_INVALID,
                      "a name is 1 to 64 letters, digits, '.', '_' or '-', and not `other`");
    for (size_t i = 0; i < wire->n_readers + wire->n_fillers; i++) {
        const char *name =
            i < wire->n_readers ? wire->readers[i] : wire->fillers[i - wire->n_readers];
        pool_payer member = tenants_find(tenants, name);
        if (member == POOL_NONE || tenants_is_domain(tenants, member))
            return refuse(reply, STATUS_NOT_FOUND, "no such tenant among readers and fillers");
    }
    if (tenants_find(tenants, wire->name) != POOL_NONE)
        return STATUS_EXISTS;
    if (tenants->count == tenants->max)
        return STATUS_LIMIT;
    return state_create_domain(call, wire, reply);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void list_models(struct server *server, struct text *out)
{
    for (uint32_t at = 0; at < server->models.count; at++) {
        const struct model *model = &server->models.models[at];
        text_add(out, at > 0 ? ",\n{\"name\":" : "{\"name\":");
        text_add_json(out, model->name);
        text_printf(out, ",\"model\":%u,\"layers\":%u,\"groups\":%u,\"block_tokens\":%u", at,
                    model->num_layers, model->num_groups, model->block_tokens);
        text_printf(out, ",\"on_disk\":%s",
                    server->tiers.disk.num_granules > 0 && model_is_on_disk(server->config, model)
                        ? "true"
                        : "false");
        text_printf(out, ",\"opaque\":%s,\"fingerprint\":\"", model->is_opaque ? "true" : "false");
        for (size_t i = 0; i < sizeof(model->fingerprint.bytes); i++)
            text_printf(out, "%02x", model->fingerprint.bytes[i]);
        text_add(out, "\"}");
    }
}

static void add_quota(struct text *out, const char *tier, const struct config_quota *quota)
{
    text_printf(out, ",\"%sguarantee_bytes\":%lu,\"%sweight\":%lu", tier, quota->guarantee_bytes,
                tier, quota->weight);
    if (quota->limit_bytes == CONFIG_UNLIMITED)
        text_printf(out, ",\"%slimit_bytes\":null", tier);
    else
        text_printf(out, ",\"%slimit_bytes\":%lu", tier, quota->limit_bytes);
}

static void list_payers(struct server *server, struct text *out, bool are_domains)
{
    bool is_first = true;

    for (uint32_t at = 0; at < server->tenants.count; at++) {
        const struct payer *payer = &server->tenants.payers[at];
        struct pool_payer_stats stats;
        if (payer->is_domain != are_domains || payer->is_gone ||
            pool_payer_stats(server->pool, at, &stats))
            continue;
        text_add(out, is_first ? "{\"name\":" : ",\n{\"name\":");
        text_add_json(out, payer->name);
        text_printf(out, ",\"sessions\":%u,\"held\":%lu,\"evictable\":%lu,\"reserved\":%lu",
                    payer->num_sessions, stats.held, stats.evictable, stats.reserved);
        text_printf(out, ",\"quarantined\":%lu,\"charged_bytes\":%lu", stats.quarantined,
                    stats.charged_pages[0] * server->config->page_bytes);
        text_printf(out, ",\"query_tokens\":%lu,\"hit_tokens\":%lu", stats.query_tokens,
                    stats.hit_tokens);
        add_quota(out, "", &payer->quota);
        if (server->config->host_tier_bytes > 0)
            add_quota(out, "host_", &payer->below[POOL_TIER_HOST]);
        if (server->tiers.disk.num_granules > 0)
            add_quota(out, "disk_", &payer->below[POOL_TIER_DISK]);
        text_add(out, "}");
        is_first = false;
    }
}

static void list_sessions(struct server *server, struct text *out)
{
    bool is_first = true;

    for (uint32_t at = 0; at < server->sessions.max; at++) {
        const struct session *session = &server->sessions.sessions[at];
        if (session->state == SESSION_FREE)
            continue;
        text_printf(out, "%s{\"session\":%lu,\"tenant\":", is_first ? "" : ",\n", session->id);
        text_add_json(out, server->tenants.payers[session->tenant].name);
        text_printf(out, ",\"pid\":%d,\"uid\":%u,\"flags\":%u", session->pid, session->uid,
                    session->flags);
        text_printf(out, ",\"outstanding\":%u,\"attached\":%u,\"ending\":%s}",
                    session->num_outstanding, session->num_attached,
                    session->state == SESSION_OPEN ? "false" : "true");
        is_first = false;
    }
}

static void list_status(struct server *server, struct text *out)
{
    struct gpu_memory memory;
    struct pool_tier_stats pool = {0};
    struct gpu_fallback fallbacks[STATS_MAX_FALLBACKS];
    size_t count = stats_fallbacks(server->stats, fallbacks, ARRAY_SIZE(fallbacks));

    (void)pool_tier_stats(server->pool, POOL_TIER_DEVICE, &pool);
    gpu_device_memory(server->device, &memory);
    text_printf(out, "{\"version\":\"%s\",\"uptime_ms\":%lu", KVPOOL_VERSION,
                server->now_ms - server->started_ms);
    text_printf(out, ",\"draining\":%s,\"sessions\":%u,\"sequences\":%u",
                server->is_draining ? "true" : "false", server->sessions.num_open,
                server->sequences.num_used);
    /* The device has more: memory that is ahead of those who grow. */
    text_printf(out, ",\"budget_bytes\":%lu,\"charged_bytes\":%lu,\"idle_bytes\":%lu",
                memory.budget_bytes, (pool.pages - pool.uncommitted) * server->config->page_bytes,
                pool.idle * server->config->page_bytes);
    text_printf(out, ",\"populate_bytes\":%lu,\"populated_bytes\":%lu", memory.populate_bytes,
                memory.populated_bytes);
    text_printf(out, ",\"last_epoch\":%lu", server->state.epochs.last);
    text_printf(out, ",\"recovering\":%s", server_is_recovering(server) ? "true" : "false");
    text_printf(out, ",\"memory_granules\":%lu,\"memory_granules_done\":%lu,",
                server->survival.counters.granules, server->survival.counters.granules_done);
    tier_stats_json(server, out);
    text_printf(out, ",\"attention\":\"%s\",\"fallbacks\":[",
                gpu_attention_version(gpu_device_attention(server->device)));
    for (size_t at = 0; at < count && at < ARRAY_SIZE(fallbacks); at++) {
        text_add(out, at > 0 ? "," : "");
        text_add(out, "{\"name\":");
        text_add_json(out, fallbacks[at].name);
        text_add(out, ",\"cost\":");
        text_add_json(out, fallbacks[at].cost);
        text_add(out, "}");
    }
    text_add(out, "]}");
}

int handle_list(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__List *wire = call->message;
    struct server *server = call->server;
    struct text text = text_init(server->scratch.json, server->scratch.json_bytes);
    bool is_one = strcmp(wire->what, "status") == 0;

    text_add(&text, is_one ? "" : "[");
    if (is_one)
        list_status(server, &text);
    else if (strcmp(wire->what, "models") == 0)
        list_models(server, &text);
    else if (strcmp(wire->what, "tenants") == 0)
        list_payers(server, &text, false);
    else if (strcmp(wire->what, "domains") == 0)
        list_payers(server, &text, true);
    else if (strcmp(wire->what, "sessions") == 0)
        list_sessions(server, &text);
    else
        return refuse(reply, STATUS_INVALID,
                      "there are lists of models, tenants, domains, sessions and status");
    text_add(&text, is_one ? "" : "]");
    if (text.is_cut)
        return refuse(reply, STATUS_LIMIT, "the list is too long for one message");
    kvpool__wire__list_result__init(&server->scratch.list);
    server->scratch.list.json = server->scratch.json;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_LIST;
    reply->list = &server->scratch.list;
    return STATUS_OK;
}

int handle_kick(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Kick *wire = call->message;
    struct server *server = call->server;
    struct session *session = sessions_by_id(server, wire->session);

    if (!session)
        return refuse(reply, STATUS_NOT_FOUND, "no such session");
    server->sessions.counters.kicked++;
    session_end(server, session, "kicked");
    return STATUS_OK;
}

int handle_shutdown(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Shutdown *wire = call->message;

    log_event(LOG_NOTICE, "shutdown_asked", log_bool("forget", wire->forget));
    call->waiting->is_forgotten = wire->forget;
    return wire->forget ? state_clear(call, POOL_NONE, "", reply) : STATUS_OK;
}

void settle_shutdown(struct server *server, struct waiting *waiting, int status)
{
    if (status != STATUS_OK)
        return;
    if (waiting->is_forgotten)
        survive_forget(server);
    server_stop(server);
}
