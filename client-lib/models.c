/* client-lib/models.c - models and arenas: what a session opens, and a reconnect opens again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client-lib/client.h"

static char *text(const char *string) /* protobuf-c has no const; it only reads */
{
    return (char *)(string ? string : "");
}

static int groups_encode(struct kvpool *client, const struct kvpool_model *model,
                         Kvpool__Wire__RegisterModel *wire)
{
    uint32_t num = model->num_groups;

    if (num > KVPOOL_MAX_GROUPS || (num > 0 && !model->groups))
        return -EINVAL;
    Kvpool__Wire__LayerGroup *groups = wire_arena_take(&client->build, num * sizeof(*groups));
    wire->groups = wire_arena_take(&client->build, num * sizeof(Kvpool__Wire__LayerGroup *));
    wire->n_groups = num;
    for (uint32_t i = 0; i < num; i++) {
        kvpool__wire__layer_group__init(&groups[i]);
        groups[i].window = model->groups[i].window;
        groups[i].layers = (ProtobufCBinaryData){model->groups[i].num_layers * sizeof(uint16_t),
                                                 (uint8_t *)model->groups[i].layers};
        wire->groups[i] = &groups[i];
    }
    return 0;
}

static int model_encode(struct kvpool *client, const struct kvpool_model *model,
                        Kvpool__Wire__RegisterModel *wire)
{
    kvpool__wire__register_model__init(wire);
    wire->name = text(model->name);
    wire->weights_revision = text(model->weights_revision);
    wire->num_layers = model->num_layers;
    wire->num_q_heads = model->num_q_heads;
    wire->num_kv_heads = model->num_kv_heads;
    wire->k_head_dim = model->k_head_dim;
    wire->v_head_dim = model->v_head_dim;
    wire->mla_v_dim = model->mla_v_dim;
    wire->dtype = model->dtype;
    wire->block_tokens = model->block_tokens;
    wire->rope_kind = text(model->rope_kind);
    wire->rope_theta = model->rope_theta;
    wire->rope_dims = model->rope_dims;
    wire->rope_scaling = text(model->rope_scaling);
    wire->tp_ranks = model->tp_ranks;
    wire->layout_name = text(model->layout_name);
    wire->layout_version = model->layout_version;
    wire->opaque_block_bytes = model->opaque_block_bytes;
    client->build.used = 0;
    return groups_encode(client, model, wire);
}

/* Sends and waits; *out_handle is the daemon's. */
static int model_send(struct kvpool *client, Kvpool__Wire__RegisterModel *model,
                      uint32_t *out_handle, struct kvpool_model_shape *out_shape)
{
    Kvpool__Wire__Request wire = KVPOOL__WIRE__REQUEST__INIT;
    struct kvpool_result result;
    struct pending *pending;

    if (!client->is_connected)
        return KVPOOL_DISCONNECTED;
    int status = pending_take(client, client->options.deadline_ms, &pending);
    if (status)
        return status;
    wire.verb_case = KVPOOL__WIRE__REQUEST__VERB_REGISTER_MODEL;
    wire.register_model = model;
    pending->out_model = out_handle;
    pending->out_shape = out_shape;
    status = submit_message(client, pending, &wire, NULL);
    if (status)
        return status;
    status = kvpool_wait(client, pending->id, &result);
    client_say(client->message, result.message);
    return status;
}

/* The index of an equal registration, or of the first free one. */
static uint32_t model_find(const struct kvpool *client, const struct client_model *model)
{
    uint32_t i = 0;

    while (i < client->num_models &&
           (client->models[i].num_bytes != model->num_bytes ||
            memcmp(client->models[i].packed, model->packed, model->num_bytes) != 0))
        i++;
    return i;
}

int kvpool_register_model(struct kvpool *client, const struct kvpool_model *model,
                          uint32_t *out_model, struct kvpool_model_shape *out_shape)
{
    Kvpool__Wire__RegisterModel wire;
    struct client_model entry = {0};

    int status = model_encode(client, model, &wire);
    if (status)
        return status;
    entry.num_bytes = kvpool__wire__register_model__get_packed_size(&wire);
    entry.packed = malloc(entry.num_bytes > 0 ? entry.num_bytes : 1);
    if (!entry.packed)
        return -ENOMEM;
    kvpool__wire__register_model__pack(&wire, entry.packed);

    uint32_t index = model_find(client, &entry);
    status =
        index < KVPOOL_MAX_MODELS ? model_send(client, &wire, &entry.handle, out_shape) : -ENOSPC;
    if (status) {
        free(entry.packed);
        return status;
    }
    if (index == client->num_models)
        client->num_models++;
    else
        free(client->models[index].packed);
    client->models[index] = entry;
    *out_model = index;
    return 0;
}

int models_register_again(struct kvpool *client)
{
    for (uint32_t i = 0; i < client->num_models; i++) {
        struct client_model *entry = &client->models[i];
        client->build.used = 0;
        Kvpool__Wire__RegisterModel *wire = kvpool__wire__register_model__unpack(
            &client->build.allocator, entry->num_bytes, entry->packed);
        int status = wire ? model_send(client, wire, &entry->handle, NULL) : -ENOMEM;
        if (status)
            return status;
    }
    return 0;
}

void models_forget(struct kvpool *client)
{
    for (uint32_t i = 0; i < client->num_models; i++)
        free(client->models[i].packed);
    client->num_models = 0;
}

/* ---- arenas ---- */

/* The descriptor of @arena, once it has come; -1: not yet. */
static int arena_fd_take(struct kvpool *client, uint32_t arena, struct arena_packet *out_packet)
{
    for (size_t i = 0; i < CLIENT_MAX_ARENA_PACKETS; i++) {
        int fd = client->arenas[i].fd;
        if (fd < 0 || client->arenas[i].packet.arena != arena)
            continue;
        *out_packet = client->arenas[i].packet;
        client->arenas[i].fd = -1;
        return fd;
    }
    return -1;
}

int kvpool_map_arena(struct kvpool_arena *arena, int fd)
{
    int protection = PROT_READ | (arena->is_writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, arena->num_bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (base == MAP_FAILED)
        return -errno;
    arena->base = base;
    arena->fd = fd;
    return 0;
}

int kvpool_open_arena(struct kvpool *client, uint32_t model, uint32_t group, const char *domain,
                      struct kvpool_arena *out_arena)
{
    Kvpool__Wire__Request wire = KVPOOL__WIRE__REQUEST__INIT;
    Kvpool__Wire__OpenArena open = KVPOOL__WIRE__OPEN_ARENA__INIT;
    struct arena_packet answered = {0}, packet;
    struct kvpool_result result;
    struct pending *pending;

    if (!client->is_connected)
        return KVPOOL_DISCONNECTED;
    if (model >= client->num_models)
        return -EINVAL;
    int status = pending_take(client, client->options.deadline_ms, &pending);
    if (status)
        return status;
    open.model = client->models[model].handle;
    open.group = group;
    open.domain = text(domain);
    wire.verb_case = KVPOOL__WIRE__REQUEST__VERB_OPEN_ARENA;
    wire.open_arena = &open;
    pending->out_arena = &answered;
    int64_t until_ms = pending->expires_ms;
    status = submit_message(client, pending, &wire, NULL);
    if (status)
        return status;
    status = kvpool_wait(client, pending->id, &result);
    client_say(client->message, result.message);
    if (status)
        return status;

    int fd;
    while ((fd = arena_fd_take(client, answered.arena, &packet)) < 0) {
        int64_t left_ms = until_ms - client_now_ms();
        if (!client->is_connected)
            return KVPOOL_DISCONNECTED;
        if (left_ms <= 0)
            return -EPROTO; /* it was answered, but its descriptor never came */
        client_pump(client, left_ms);
    }
    struct kvpool_arena arena = {.num_bytes = packet.max_bytes,
                                 .stride_bytes = packet.stride_bytes,
                                 .arena = packet.arena,
                                 .is_writable = packet.is_writable != 0};
    status = kvpool_map_arena(&arena, fd);
    if (status)
        close(fd);
    else
        *out_arena = arena;
    return status;
}

void kvpool_close_arena(struct kvpool_arena *arena)
{
    if (arena->base) {
        munmap(arena->base, arena->num_bytes);
        close(arena->fd);
    }
    *arena = (struct kvpool_arena){0};
}
