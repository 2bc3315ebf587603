/* daemon/state.c - files to tables at start, tables to files behind every change. */
#include "daemon/state.h"

#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/state_file.h"
#include "proto/state.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
    USED_AGAIN_S = 3600, /* that a model is in use is written down so often */
    SETTLE_MS = 1000     /* a registration waits so long for the file */
};

static uint64_t wall_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* NULL, with *out_err 0: there is none, or none any more. */
static Kvpool__State__State *file_load(struct server *server, enum state_name name, int *out_err)
{
    const char *directory = server->config->state_directory;
    Kvpool__State__State *state = NULL;
    void *bytes = NULL;
    size_t num_bytes = 0;
    int err = state_file_read(directory, state_names[name], &bytes, &num_bytes);

    if (!err) {
        state = kvpool__state__state__unpack(NULL, num_bytes, bytes);
        free(bytes);
        err = state ? 0 : STATE_FILE_DAMAGED;
    }
    if (err == STATE_FILE_DAMAGED) {
        log_event(LOG_ERROR, "state_damaged", log_text("file", state_names[name]));
        err = state_file_set_aside(directory, state_names[name]);
    }
    if (err && err != -ENOENT)
        log_event(LOG_ERROR, "state_unreadable", log_text("file", state_names[name]),
                  log_error("error", err));
    *out_err = err == -ENOENT ? 0 : err;
    return state;
}

static void *epochs_pack(const struct epochs *epochs, size_t *out_num_bytes);

/* The first rule is durable before anything can be written under it. */
static int epochs_make(struct server *server)
{
    struct epochs *epochs = &server->state.epochs;
    size_t num_bytes;

    epochs_begin(epochs, "", "", wall_ms());
    void *bytes = epochs_pack(epochs, &num_bytes);
    int err = bytes ? state_file_write(server->config->state_directory, state_names[STATE_EPOCHS],
                                       bytes, num_bytes)
                    : -ENOMEM;
    free(bytes);
    return err;
}

static int epochs_load(struct server *server)
{
    struct epochs *epochs = &server->state.epochs;
    int err;
    Kvpool__State__State *kept = file_load(server, STATE_EPOCHS, &err);

    if (err)
        return err;
    for (size_t at = 0; kept && at < kept->n_epochs; at++) {
        const Kvpool__State__Epoch *rule = kept->epochs[at];
        if (!epochs_add(epochs, rule->domain, rule->model, rule->epoch)) {
            epochs->count = 0; /* a later daemon's, with more: everything is cleared */
            break;
        }
    }
    if (kept && kept->last_epoch > epochs->last)
        epochs->last = kept->last_epoch;
    if (kept)
        kvpool__state__state__free_unpacked(kept, NULL);
    return epochs->count > 0 ? 0 : epochs_make(server);
}

int state_init(struct server *server)
{
    struct state *state = &server->state;
    const struct config *config = server->config;
    int err = epochs_init(&state->epochs);

    state->max_domains = (uint32_t)config->max_payers;
    state->domains = calloc(state->max_domains + 1, sizeof(struct Kvpool__Wire__CreateDomain *));
    state->known = calloc(config->max_payers * config->max_models, sizeof(*state->known));
    if (!err)
        err = epochs_init(&state->next_epochs);
    if (!err && (!state->domains || !state->known))
        err = -ENOMEM;
    if (!err)
        err = epochs_load(server);
    return err ? err : state_writer_create(config->state_directory, &state->writer);
}

void state_finish(struct server *server)
{
    struct state *state = &server->state;

    state_writer_destroy(state->writer);
    for (uint32_t at = 0; state->domains && at <= state->max_domains; at++)
        if (state->domains[at])
            kvpool__wire__create_domain__free_unpacked(state->domains[at], NULL);
    free(state->domains);
    free(state->known);
    epochs_finish(&state->epochs);
    epochs_finish(&state->next_epochs);
}

/* ---- restoring ------------------------------------------------------------------------------ */

static struct config_domain domain_of(const Kvpool__Wire__CreateDomain *wire)
{
    return (struct config_domain){
        .name = wire->name,
        .readers = wire->readers,
        .num_readers = wire->n_readers,
        .fillers = wire->fillers,
        .num_fillers = wire->n_fillers,
        .host_quota = {0, CONFIG_UNLIMITED, 1},
        .disk_quota = {0, CONFIG_UNLIMITED, 1},
        .quota = {.guarantee_bytes = wire->guarantee_bytes,
                  .limit_bytes = wire->has_limit ? wire->limit_bytes : CONFIG_UNLIMITED,
                  .weight = wire->weight > 0 ? wire->weight : 1}};
}

static const struct {
    enum pool_tier tier;
    const char *name; /* as SetQuota has it */
} tiers_below[] = {{POOL_TIER_HOST, "host"}, {POOL_TIER_DISK, "disk"}};

static bool is_configured(const struct config *config, const char *domain)
{
    bool any = false;

    for (size_t at = 0; at < config->num_domains && !any; at++)
        any = strcmp(config->domains[at].name, domain) == 0;
    return any;
}

/* Of tiers that there still are. */
static void quotas_restore(struct server *server, const Kvpool__State__State *kept)
{
    for (size_t at = 0; at < kept->n_quotas; at++) {
        const Kvpool__Wire__SetQuota *from = kept->quotas[at];
        pool_payer domain = tenants_find(&server->tenants, from->payer);
        const struct config_quota quota = {from->guarantee_bytes,
                                           from->has_limit ? from->limit_bytes : CONFIG_UNLIMITED,
                                           from->weight > 0 ? from->weight : 1};
        if (domain == POOL_NONE || is_configured(server->config, from->payer))
            continue;
        for (size_t tier = 0; tier < ARRAY_SIZE(tiers_below); tier++) {
            if (strcmp(from->tier, tiers_below[tier].name) == 0)
                (void)tenants_set_tier_quota(server, domain, tiers_below[tier].tier, &quota);
        }
    }
}

/* What the configuration names too is as the configuration says. */
static int domains_restore(struct server *server)
{
    struct state *state = &server->state;
    int err;
    Kvpool__State__State *kept = file_load(server, STATE_DOMAINS, &err);

    for (size_t at = 0; kept && at < kept->n_domains && state->num_domains < state->max_domains;
         at++) {
        const struct config_domain domain = domain_of(kept->domains[at]);
        state->domains[state->num_domains++] = kept->domains[at];
        kept->domains[at] = NULL;
        int answer = tenants_create_domain(server, &domain);
        if (answer && answer != POOL_EXISTS)
            log_event(LOG_ERROR, "domain_lost", log_text("domain", domain.name),
                      log_signed("answer", answer));
    }
    if (kept) {
        size_t left = 0;
        quotas_restore(server, kept);
        for (size_t at = 0; at < kept->n_domains; at++)
            if (kept->domains[at])
                kept->domains[left++] = kept->domains[at];
        kept->n_domains = left;
        kvpool__state__state__free_unpacked(kept, NULL);
    }
    return err;
}

/* Of more than fit, the one that was used last longest ago stays out. */
static void model_drop_oldest(Kvpool__State__State *kept)
{
    size_t oldest = 0;

    for (size_t at = 1; at < kept->n_models; at++)
        if (kept->models[at]->used_s < kept->models[oldest]->used_s)
            oldest = at;
    kvpool__state__model__free_unpacked(kept->models[oldest], NULL);
    kept->n_models--;
    for (size_t at = oldest; at < kept->n_models; at++)
        kept->models[at] = kept->models[at + 1];
}

/* In their order, so that numbers are the same too; with room left for new ones. */
static int models_restore(struct server *server)
{
    int err;
    Kvpool__State__State *kept = file_load(server, STATE_MODELS, &err);

    while (kept && kept->n_models > 0 &&
           kept->n_models > server->models.max - server->models.max / 4)
        model_drop_oldest(kept);
    for (size_t at = 0; kept && at < kept->n_models; at++) {
        const Kvpool__State__Model *from = kept->models[at];
        const char *text = NULL;
        uint32_t index;
        int status = from->model
                         ? models_register(server, tenants_find(&server->tenants, from->tenant),
                                           from->model, &index, &text)
                         : STATUS_MALFORMED;
        if (status) { /* the pool is another one now: its engines will hear why */
            log_event(
                LOG_NOTICE, "model_left_out",
                log_text("model", from->model ? from->model->name : ""),
                log_text("why", text ? text : wire_status_row((enum wire_status)status)->text));
            continue;
        }
        server->models.models[index].used_s = from->used_s;
    }
    if (kept)
        kvpool__state__state__free_unpacked(kept, NULL);
    server->state.num_durable_models = server->models.count;
    return err;
}

int state_restore(struct server *server)
{
    int err = domains_restore(server);

    return err ? err : models_restore(server);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void *state_pack(const Kvpool__State__State *state, size_t *out_num_bytes)
{
    size_t num_bytes = kvpool__state__state__get_packed_size(state);
    void *bytes = malloc(num_bytes + 1);

    if (bytes)
        *out_num_bytes = kvpool__state__state__pack(state, bytes);
    return bytes;
}

static void *epochs_pack(const struct epochs *epochs, size_t *out_num_bytes)
{
    Kvpool__State__State state = KVPOOL__STATE__STATE__INIT;
    Kvpool__State__Epoch *rules = calloc(epochs->count + 1, sizeof(*rules));
    Kvpool__State__Epoch **list = calloc(epochs->count + 1, sizeof(struct Kvpool__State__Epoch *));
    void *bytes = NULL;

    for (uint32_t at = 0; rules && list && at < epochs->count; at++) {
        kvpool__state__epoch__init(&rules[at]);
        rules[at].domain = epochs->rules[at].domain;
        rules[at].model = epochs->rules[at].model;
        rules[at].epoch = epochs->rules[at].epoch;
        list[at] = &rules[at];
    }
    state.last_epoch = epochs->last;
    state.epochs = list;
    state.n_epochs = epochs->count;
    if (rules && list)
        bytes = state_pack(&state, out_num_bytes);
    free(rules);
    free(list);
    return bytes;
}

/* Those of one domain that were set. Returns how many. */
static size_t quotas_fill(const struct server *server, char *name, Kvpool__Wire__SetQuota *out)
{
    pool_payer domain = tenants_find(&server->tenants, name);
    size_t count = 0;

    for (size_t tier = 0; domain != POOL_NONE && tier < ARRAY_SIZE(tiers_below); tier++) {
        const struct config_quota *quota =
            &server->tenants.payers[domain].below[tiers_below[tier].tier];
        bool has_limit = quota->limit_bytes != CONFIG_UNLIMITED;
        if (quota->guarantee_bytes == 0 && !has_limit && quota->weight == 1)
            continue;
        kvpool__wire__set_quota__init(&out[count]);
        out[count].payer = name;
        out[count].tier = (char *)(uintptr_t)tiers_below[tier].name; /* it is only read */
        out[count].guarantee_bytes = quota->guarantee_bytes;
        out[count].has_limit = has_limit;
        out[count].limit_bytes = has_limit ? quota->limit_bytes : 0;
        out[count].weight = quota->weight;
        count++;
    }
    return count;
}

static void *domains_pack(const struct server *server, size_t *out_num_bytes)
{
    const struct state *from = &server->state;
    Kvpool__State__State state = KVPOOL__STATE__STATE__INIT;
    size_t max_quotas = from->num_domains * ARRAY_SIZE(tiers_below);
    Kvpool__Wire__SetQuota *quotas = calloc(max_quotas + 1, sizeof(*quotas));
    Kvpool__Wire__SetQuota **list = calloc(max_quotas + 1, sizeof(struct Kvpool__Wire__SetQuota *));
    void *bytes = NULL;

    state.domains = from->domains;
    state.n_domains = from->num_domains;
    if (from->domains[from->num_domains]) /* the one that is being made */
        state.n_domains++;
    state.quotas = list;
    for (uint32_t at = 0; quotas && list && at < from->num_domains; at++)
        state.n_quotas += quotas_fill(server, from->domains[at]->name, &quotas[state.n_quotas]);
    for (size_t at = 0; at < state.n_quotas; at++)
        list[at] = &quotas[at];
    if (quotas && list)
        bytes = state_pack(&state, out_num_bytes);
    free(quotas);
    free(list);
    return bytes;
}

static void *models_pack(const struct server *server, size_t *out_num_bytes)
{
    const struct models *models = &server->models;
    Kvpool__State__State state = KVPOOL__STATE__STATE__INIT;
    Kvpool__State__Model *records = calloc(models->count + 1, sizeof(*records));
    Kvpool__State__Model **list = calloc(models->count + 1, sizeof(struct Kvpool__State__Model *));
    void *bytes = NULL;

    for (uint32_t at = 0; records && list && at < models->count; at++) {
        const struct model *model = &models->models[at];
        kvpool__state__model__init(&records[at]);
        records[at].model = model->wire;
        records[at].used_s = model->used_s;
        if (model->payer < server->tenants.count)
            records[at].tenant = server->tenants.payers[model->payer].name;
        list[at] = &records[at];
    }
    state.models = list;
    state.n_models = models->count;
    if (records && list)
        bytes = state_pack(&state, out_num_bytes);
    free(records);
    free(list);
    return bytes;
}

/* Hands the newest version to the thread. -ENOMEM: it is dirty still. */
static int write_begin(struct server *server, enum state_name name)
{
    struct state *state = &server->state;
    size_t num_bytes = 0;
    void *bytes = name == STATE_EPOCHS    ? epochs_pack(&state->next_epochs, &num_bytes)
                  : name == STATE_DOMAINS ? domains_pack(server, &num_bytes)
                                          : models_pack(server, &num_bytes);

    if (!bytes)
        return -ENOMEM;
    state->is_dirty[name] = false;
    state->is_written[name] = true;
    if (name == STATE_MODELS)
        state->num_written_models = server->models.count;
    state->num_writes++;
    const Kvpool__Wire__CreateDomain *made =
        name == STATE_DOMAINS ? state->domains[state->num_domains] : NULL;
    state_writer_submit(state->writer, name, bytes, num_bytes, made ? made->name : NULL);
    return 0;
}

void state_tick(struct server *server)
{
    struct state *state = &server->state;

    state->num_unwritten = 0;
    for (int name = 0; name < NUM_STATE_NAMES; name++) {
        if (state->is_dirty[name] && !state->is_written[name])
            (void)write_begin(server, (enum state_name)name); /* else in a second */
        state->num_unwritten += state->is_dirty[name] || state->is_written[name];
    }
}

void state_model_used(struct server *server, uint32_t index)
{
    struct model *model = &server->models.models[index];
    uint64_t now_s = wall_ms() / 1000;

    if (now_s < model->used_s + USED_AGAIN_S)
        return;
    model->used_s = now_s;
    server->state.is_dirty[STATE_MODELS] = true;
    state_tick(server);
}

bool state_model_is_settled(const struct server *server, uint32_t index)
{
    const struct state *state = &server->state;

    return index < state->num_durable_models || state->has_failed_models ||
           server->now_ms - server->models.models[index].registered_ms >= SETTLE_MS;
}

/* ---- changes -------------------------------------------------------------------------------- */

uint64_t state_epoch(struct server *server, pool_payer domain, uint32_t model)
{
    struct state *state = &server->state;
    uint64_t *known = &state->known[domain * server->config->max_models + model];

    if (*known == 0)
        *known = epochs_of(&state->epochs, server->tenants.payers[domain].name,
                           server->models.models[model].name);
    return *known;
}

/* Durable first: its record waits for the thread. */
static int change_begin(struct call *call, enum state_name name, wire_reply *reply)
{
    struct state *state = &call->server->state;

    if (write_begin(call->server, name))
        return refuse(reply, STATUS_FAILED, "no memory to make it durable: nothing was changed");
    state->change.is_under_way = true;
    state->change.name = name;
    state->change.cookie = waiting_cookie(&call->server->waitings, call->waiting);
    return waiting_begin(call->server, call->waiting, WAITING_STATE);
}

static bool change_may_begin(const struct state *state, enum state_name name)
{
    return !state->change.is_under_way && !state->is_written[name];
}

static int refuse_for_now(wire_reply *reply)
{
    return refuse(reply, STATUS_OVERLOADED, "another change is being made durable: retry");
}

int state_clear(struct call *call, pool_payer domain, const char *model, wire_reply *reply)
{
    struct server *server = call->server;
    struct state *state = &server->state;
    const char *name = domain == POOL_NONE ? "" : server->tenants.payers[domain].name;

    if (!change_may_begin(state, STATE_EPOCHS))
        return refuse_for_now(reply);
    epochs_copy(&state->next_epochs, &state->epochs);
    epochs_begin(&state->next_epochs, name, model, wall_ms());
    state->change.domain = domain;
    (void)snprintf(state->change.model, sizeof(state->change.model), "%s", model);
    return change_begin(call, STATE_EPOCHS, reply);
}

int state_create_domain(struct call *call, const Kvpool__Wire__CreateDomain *wire,
                        wire_reply *reply)
{
    struct state *state = &call->server->state;
    size_t num_bytes = kvpool__wire__create_domain__get_packed_size(wire);

    if (!change_may_begin(state, STATE_DOMAINS))
        return refuse_for_now(reply);
    if (state->num_domains == state->max_domains)
        return STATUS_LIMIT;
    uint8_t *bytes = malloc(num_bytes + 1);
    if (bytes) {
        (void)kvpool__wire__create_domain__pack(wire, bytes);
        state->domains[state->num_domains] =
            kvpool__wire__create_domain__unpack(NULL, num_bytes, bytes);
        free(bytes);
    }
    if (!state->domains[state->num_domains])
        return STATUS_FAILED;
    return change_begin(call, STATE_DOMAINS, reply);
}

void state_quota_set(struct server *server, pool_payer payer)
{
    struct state *state = &server->state;
    const struct payer *set = &server->tenants.payers[payer];

    for (uint32_t at = 0; at < state->num_domains; at++) {
        Kvpool__Wire__CreateDomain *domain = state->domains[at];
        if (strcmp(domain->name, set->name) != 0)
            continue;
        domain->guarantee_bytes = set->quota.guarantee_bytes;
        domain->has_limit = set->quota.limit_bytes != CONFIG_UNLIMITED;
        domain->limit_bytes = domain->has_limit ? set->quota.limit_bytes : 0;
        domain->weight = set->quota.weight;
        state->is_dirty[STATE_DOMAINS] = true;
        state_tick(server);
    }
}

static int clear_end(struct server *server, int err)
{
    struct state *state = &server->state;
    int answer = 0;

    if (err)
        return STATUS_FAILED;
    epochs_copy(&state->epochs, &state->next_epochs);
    memset(state->known, 0,
           server->config->max_payers * server->config->max_models * sizeof(*state->known));
    server->has_more = true;
    if (state->change.model[0] == '\0')
        return status_of_pool(pool_clear(server->pool, state->change.domain, POOL_NONE));
    for (uint32_t model = 0; model < server->models.count && !answer; model++) {
        if (strcmp(server->models.models[model].name, state->change.model) == 0)
            answer = pool_clear(server->pool, state->change.domain, model);
    }
    return status_of_pool(answer);
}

static int create_domain_end(struct server *server, int err)
{
    struct state *state = &server->state;
    Kvpool__Wire__CreateDomain *made = state->domains[state->num_domains];
    int status = STATUS_FAILED;

    if (!err) {
        const struct config_domain domain = domain_of(made);
        int answer = tenants_create_domain(server, &domain);
        log_event(LOG_NOTICE, "create_domain", log_text("domain", made->name),
                  log_signed("answer", answer));
        status = status_of_pool(answer);
    }
    if (status == STATUS_OK) {
        state->num_domains++;
        return status;
    }
    kvpool__wire__create_domain__free_unpacked(made, NULL);
    state->domains[state->num_domains] = NULL;
    state->is_dirty[STATE_DOMAINS] |= !err; /* it is in the file: write the file without it */
    return status;
}

static void change_end(struct server *server, enum state_name name, int err)
{
    struct state *state = &server->state;
    struct waiting *waiting = waiting_find(&server->waitings, state->change.cookie);
    int status = name == STATE_EPOCHS ? clear_end(server, err) : create_domain_end(server, err);

    state->change.is_under_way = false;
    if (waiting) /* its peer may have been answered before, at its deadline */
        dispatch_result(server, waiting, status);
}

int state_event_fd(const struct state *state)
{
    return state_writer_event_fd(state->writer);
}

void state_reap(struct server *server)
{
    struct state *state = &server->state;
    enum state_name name;
    bool has_failed = false;
    int err;

    while (state_writer_reap(state->writer, &name, &err)) {
        state->is_written[name] = false;
        if (name == STATE_MODELS) {
            state->has_failed_models = err != 0;
            if (!err)
                state->num_durable_models = state->num_written_models;
        }
        has_failed |= err != 0;
        if (err) {
            state->num_failures++;
            log_event(LOG_ERROR, "state_unwritten", log_text("file", state_names[name]),
                      log_error("error", err));
        }
        if (state->change.is_under_way && state->change.name == name)
            change_end(server, name, err);
        else
            state->is_dirty[name] |= err != 0;
    }
    if (!has_failed) /* else in a second: a full file system is not asked without end */
        state_tick(server);
}
