/* daemon/verbs_model.c - models are registered, arenas are handed out. */
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/verbs.h"

#include <errno.h>
#include <unistd.h>

int handle_register_model(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__RegisterModel *wire = call->message;
    struct server *server = call->server;
    struct scratch *scratch = &server->scratch;
    const char *text = NULL;
    uint32_t index;
    int status = models_register(server, call->session->tenant, wire, &index, &text);

    if (status)
        return refuse(reply, (enum wire_status)status,
                      status == STATUS_LIMIT ? "max_models, or what others are promised of them"
                                             : text);
    if (index >= SESSION_MAX_MODELS)
        return STATUS_LIMIT;
    state_model_used(server, index);
    if (!state_model_is_settled(server, index) && turns_keep(call)) {
        call->waiting->mark = index;
        return waiting_begin(server, call->waiting, WAITING_MODEL);
    }
    const struct model *model = &server->models.models[index];
    uint32_t num_q_heads = wire->num_q_heads > 0 ? wire->num_q_heads : model->num_kv_heads;
    call->session->num_q_heads[index] = model->is_opaque ? 1 : (uint16_t)num_q_heads;
    kvpool__wire__model_result__init(&scratch->model);
    for (uint32_t group = 0; group < model->num_groups; group++) {
        scratch->block_bytes[group] = model->groups[group].block_bytes;
        scratch->stride_bytes[group] = model->groups[group].granule.stride_bytes;
        scratch->slots_per_granule[group] = model->groups[group].granule.slots;
    }
    scratch->model.model = index;
    scratch->model.block_bytes = scratch->block_bytes;
    scratch->model.stride_bytes = scratch->stride_bytes;
    scratch->model.slots_per_granule = scratch->slots_per_granule;
    scratch->model.n_block_bytes = scratch->model.n_stride_bytes =
        scratch->model.n_slots_per_granule = model->num_groups;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_MODEL;
    reply->model = &scratch->model;
    return STATUS_OK;
}

/* Which domain's arena, and how it may be had. NOT_FOUND about what is not the tenant's own. */
static int arena_access(const struct call *call, const char *domain, pool_payer *out_payer,
                        enum gpu_access *out_access)
{
    const struct tenants *tenants = &call->server->tenants;
    const struct session *session = call->session;

    *out_payer = session->tenant;
    *out_access = GPU_WRITE;
    if (domain[0] == '\0')
        return STATUS_OK;
    *out_payer = tenants_find(tenants, domain);
    unsigned rights = tenants_rights(tenants, *out_payer, session->tenant);
    if (!(rights & POOL_MAY_READ))
        return STATUS_NOT_FOUND;
    if (!(rights & POOL_MAY_FILL))
        *out_access = GPU_READ;
    return STATUS_OK;
}

static int arena_send(struct call *call, uint32_t arena, enum gpu_access access)
{
    struct server *server = call->server;
    const struct arena_memory *memory = &server->effects.arenas[arena];
    struct arena_packet packet = {.magic = ARENA_MAGIC,
                                  .arena = arena,
                                  .stride_bytes = memory->granule.stride_bytes,
                                  .max_bytes = (uint64_t)memory->max_granules *
                                               memory->granule.slots * memory->granule.stride_bytes,
                                  .is_writable = access == GPU_WRITE};
    int fd;
    int err = gpu_arena_export(server->device, arena, access, &fd);

    if (err)
        return err;
    err = session_send_arena(server, call->session, &packet, fd);
    (void)close(fd);
    if (err)
        return err;
    if (access == GPU_WRITE)
        call->session->can_write_arenas = true;
    Kvpool__Wire__ArenaResult *result = &server->scratch.arena;
    kvpool__wire__arena_result__init(result);
    result->arena = arena;
    result->stride_bytes = packet.stride_bytes;
    result->max_bytes = packet.max_bytes;
    result->is_writable = packet.is_writable;
    return 0;
}

int handle_open_arena(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__OpenArena *wire = call->message;
    struct server *server = call->server;
    enum gpu_access access;
    pool_payer payer;
    uint32_t arena;

    if (!(call->session->flags & HELLO_MAPPED))
        return refuse(reply, STATUS_INVALID, "arenas are mapped by sessions that said so at hello");
    if (wire->model >= server->models.count || !session_has_model(call->session, wire->model))
        return refuse(reply, STATUS_NOT_FOUND, "no such model: register it first");
    int status = arena_access(call, wire->domain, &payer, &access);
    if (status)
        return status;
    int answer = pool_arena_reserve(server->pool, payer, wire->model);
    if (!answer)
        answer = pool_arena_find(server->pool, payer, wire->model, wire->group, &arena);
    if (answer)
        return status_of_pool(answer);
    int err = effects_open_arena(server, arena);
    if (!err &&
        (server->effects.arenas[arena].is_closing || gpu_arena_is_damaged(server->device, arena)))
        return refuse(reply, STATUS_FAILED, "this arena is damaged: it is replaced soon, retry");
    if (!err) {
        if (access == GPU_WRITE)
            survive_set_writable(server, arena);
        call->waiting->mark = survive_mark(server);
        if (!survive_passed(server, call->waiting->mark))
            return turns_keep(call) ? waiting_begin(server, call->waiting, WAITING_KEEP)
                                    : STATUS_OVERLOADED;
    }
    if (!err)
        err = arena_send(call, arena, access);
    if (err) {
        log_event(LOG_WARN, "arena_failed", log_number("arena", arena), log_error("error", err));
        return err == -EAGAIN ? STATUS_OVERLOADED : STATUS_FAILED;
    }
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_ARENA;
    reply->arena = &server->scratch.arena;
    return STATUS_OK;
}
