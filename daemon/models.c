/* daemon/models.c - a model is checked, named and packed into granules. */
#include "daemon/models.h"

#include "daemon/server.h"
#include "daemon/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int models_init(struct models *models, uint32_t max)
{
    models->max = max;
    models->models = calloc(max, sizeof(*models->models));
    return models->models ? 0 : -ENOMEM;
}

void models_finish(struct models *models)
{
    for (uint32_t at = 0; at < models->count; at++)
        kvpool__wire__register_model__free_unpacked(models->models[at].wire, NULL);
    free(models->models);
}

static uint32_t dtype_bytes(uint32_t dtype)
{
    switch (dtype) {
    case WIRE_F32:
        return 4;
    case WIRE_F16:
    case WIRE_BF16:
        return 2;
    default:
        return 0;
    }
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == WIRE_F32 ? "f32" : dtype == WIRE_F16 ? "f16" : "bf16";
}

/* ---- what the wire says --------------------------------------------------------------------- */

/* Why the numbers of a model are refused, or NULL. */
static const char *numbers_check(const Kvpool__Wire__RegisterModel *wire)
{
    bool is_opaque = wire->opaque_block_bytes > 0;

    if (wire->name[0] == '\0' || strlen(wire->name) > MODEL_MAX_NAME)
        return "a model needs a name of at most 128 bytes";
    if (wire->weights_revision[0] == '\0')
        return "a model needs a weights revision: what names the content of its weights";
    if (wire->block_tokens > POOL_MAX_BLOCK_TOKENS)
        return "block_tokens is at most 65535";
    if (!isfinite(wire->rope_theta) || wire->rope_theta < 0)
        return "rope_theta must be finite and not negative";
    if (wire->tp_ranks > 1)
        return "tensor-parallel ranks: this daemon has one device, register one model a rank";
    if (is_opaque)
        return wire->layout_name[0] == '\0' ? "an opaque model needs a layout name" : NULL;
    if (wire->num_layers == 0 || wire->num_layers > MODEL_MAX_LAYERS)
        return "num_layers is 1 to 512";
    if (wire->num_kv_heads == 0 || wire->num_kv_heads > MODEL_MAX_DIM || wire->k_head_dim == 0 ||
        wire->k_head_dim > MODEL_MAX_DIM || wire->v_head_dim > MODEL_MAX_DIM)
        return "KV heads and head dims are 1 to 65536";
    if (wire->v_head_dim == 0 && (wire->mla_v_dim == 0 || wire->mla_v_dim > wire->k_head_dim))
        return "give v_head_dim, or for MLA an mla_v_dim of at most k_head_dim";
    if (wire->v_head_dim == 0 && wire->num_kv_heads != 1)
        return "MLA has one KV head";
    if (dtype_bytes(wire->dtype) == 0)
        return "dtype is f32, f16 or bf16";
    if (wire->num_q_heads % wire->num_kv_heads != 0)
        return "num_q_heads must be a multiple of num_kv_heads";
    return NULL;
}

/* The layers of one group; each layer is in one group only. */
static const char *layers_check(const Kvpool__Wire__LayerGroup *wire, uint32_t group,
                                struct model *model, uint8_t *seen)
{
    const uint8_t *bytes = wire->layers.data;
    uint32_t count = (uint32_t)(wire->layers.len / 2), before = 0;

    if (wire->layers.len % 2 != 0 || count == 0 || count > MODEL_MAX_LAYERS)
        return "layers of a group: u16 each, at least one";
    for (uint32_t i = 0; i < count; i++) {
        uint32_t layer = bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8;
        if (layer >= model->num_layers || (i > 0 && layer <= before) || seen[layer])
            return "layers of groups are ascending, below num_layers, and in one group only";
        seen[layer] = 1;
        model->group_of[layer] = (uint8_t)group;
        model->layer_in[layer] = (uint16_t)i;
        before = layer;
    }
    model->groups[group].num_layers = count;
    return NULL;
}

static const char *groups_check(const Kvpool__Wire__RegisterModel *wire, struct model *model)
{
    uint8_t seen[MODEL_MAX_LAYERS] = {0};
    uint32_t num_layers = 0;

    if (wire->n_groups > POOL_MAX_GROUPS)
        return "a model has at most 8 layer groups";
    model->num_groups = wire->n_groups > 0 ? (uint32_t)wire->n_groups : 1;
    if (wire->n_groups == 0) { /* one full group with every layer */
        model->groups[0].num_layers = model->num_layers;
        for (uint32_t layer = 0; layer < model->num_layers; layer++)
            model->layer_in[layer] = (uint16_t)layer;
        return NULL;
    }
    for (uint32_t group = 0; group < model->num_groups; group++) {
        const Kvpool__Wire__LayerGroup *from = wire->groups[group];
        if (from->window == 1)
            return "a window is 0 (full) or at least 2 tokens";
        model->groups[group].window = from->window;
        if (model->is_opaque) {
            if (from->layers.len > 0)
                return "layers of an opaque model are its layout's own business: leave them out";
            continue;
        }
        const char *text = layers_check(from, group, model, seen);
        if (text)
            return text;
        num_layers += model->groups[group].num_layers;
    }
    if (!model->is_opaque && num_layers != model->num_layers)
        return "every layer is in a group";
    return NULL;
}

static const char *granules_choose(const Kvpool__Wire__RegisterModel *wire, struct model *model,
                                   const struct config *config)
{
    uint64_t token_bytes = 0;

    if (!model->is_opaque)
        token_bytes = (uint64_t)model->num_kv_heads * dtype_bytes(model->dtype) *
                      (model->k_dim + (model->is_mla ? 0 : model->v_dim));
    for (uint32_t at = 0; at < model->num_groups; at++) {
        struct model_group *group = &model->groups[at];
        group->block_bytes = model->is_opaque
                                 ? wire->opaque_block_bytes
                                 : token_bytes * model->block_tokens * group->num_layers;
        if (group->block_bytes > config->pool_bytes ||
            gpu_choose_granule(group->block_bytes, config->page_bytes, &group->granule))
            return "a block of this model does not fit the pool";
    }
    return NULL;
}

/* ---- its name ------------------------------------------------------------------------------- */

static struct key_bytes text_bytes(const char *text)
{
    size_t length = strlen(text);

    return (struct key_bytes){length > 0 ? text : NULL, length};
}

static int fingerprint_make(struct server *server, const Kvpool__Wire__RegisterModel *wire,
                            struct model *model)
{
    struct key_layer_group groups[POOL_MAX_GROUPS];
    uint32_t layers[MODEL_MAX_LAYERS], num_layers = 0;

    for (uint32_t group = 0; group < model->num_groups; group++) {
        groups[group] = (struct key_layer_group){
            .kind = model->groups[group].window > 0 ? KEY_GROUP_SLIDING : KEY_GROUP_FULL,
            .window = model->groups[group].window,
            .layers = &layers[num_layers],
            .num_layers = model->groups[group].num_layers};
        for (uint32_t layer = 0; layer < model->num_layers && !model->is_opaque; layer++) {
            if (model->group_of[layer] == group)
                layers[num_layers++] = layer;
        }
    }
    struct key_model key = {.name = text_bytes(wire->name),
                            .weights_revision = text_bytes(wire->weights_revision),
                            .block_tokens = model->block_tokens,
                            .rope_kind = text_bytes(wire->rope_kind),
                            .rope_theta = wire->rope_theta,
                            .rope_dims = wire->rope_dims,
                            .rope_scaling = text_bytes(wire->rope_scaling),
                            .tp = {.num_ranks = wire->tp_ranks},
                            .layout_name = text_bytes(wire->layout_name),
                            .layout_version = wire->layout_version,
                            .opaque_block_bytes = wire->opaque_block_bytes};
    if (!model->is_opaque) {
        key.num_layers = model->num_layers;
        key.groups = groups;
        key.num_groups = model->num_groups;
        key.num_kv_heads = model->num_kv_heads;
        key.k_head_dim = model->k_dim;
        key.v_head_dim = model->is_mla ? 0 : model->v_dim;
        key.dtype = text_bytes(dtype_name(model->dtype));
    }
    return key_fingerprint(server->hasher, &key, &model->fingerprint);
}

/* ---- registering ---------------------------------------------------------------------------- */

/* Everything that makes two models the same is in the fingerprint, but for this. */
static bool is_same(const struct model *one, const struct model *other)
{
    return memcmp(&one->fingerprint, &other->fingerprint, sizeof(one->fingerprint)) == 0 &&
           one->num_groups == other->num_groups && one->v_dim == other->v_dim &&
           memcmp(one->groups, other->groups, sizeof(one->groups)) == 0;
}

/* Whether every group is kept on disk, if there is one. */
bool model_is_on_disk(const struct config *config, const struct model *model)
{
    bool is_all = true;

    for (uint32_t group = 0; group < model->num_groups; group++) {
        struct pool_group shape = {0};
        lower_shape(config, model->groups[group].block_bytes, &model->groups[group].granule,
                    &shape);
        is_all &= shape.below[POOL_TIER_DISK].slots > 0;
    }
    return is_all || tier_disk_granules(config) == 0;
}

static int pool_register(struct server *server, struct model *model)
{
    struct pool_model_shape shape = {.block_tokens = model->block_tokens,
                                     .num_layers = model->is_opaque ? 1 : model->num_layers,
                                     .num_groups = model->num_groups,
                                     .num_ranks = 1};

    for (uint32_t group = 0; group < model->num_groups; group++) {
        shape.groups[group].window = model->groups[group].window;
        lower_shape(server->config, model->groups[group].block_bytes, &model->groups[group].granule,
                    &shape.groups[group]);
    }
    int answer = pool_model_register(server->pool, &shape, &model->pool);
    if (!answer && !model_is_on_disk(server->config, model))
        (void)stats_add_fallback(server->stats, "blocks_not_on_disk",
                                 "blocks of a registered model are larger than "
                                 "disk-max-block-bytes or disk-granule-bytes: it is not kept on "
                                 "disk (see on_disk in kvpool models --json)",
                                 -EFBIG);
    return answer;
}

static Kvpool__Wire__RegisterModel *wire_copy(const Kvpool__Wire__RegisterModel *wire)
{
    size_t num_bytes = kvpool__wire__register_model__get_packed_size(wire);
    uint8_t *bytes = malloc(num_bytes + 1);
    Kvpool__Wire__RegisterModel *copy = NULL;

    if (bytes) {
        (void)kvpool__wire__register_model__pack(wire, bytes);
        copy = kvpool__wire__register_model__unpack(NULL, num_bytes, bytes);
    }
    free(bytes);
    return copy;
}

/* A new one takes its place behind the others. */
static int model_add(struct server *server, pool_payer tenant, struct model *model,
                     const Kvpool__Wire__RegisterModel *wire, uint32_t *out_model)
{
    struct models *models = &server->models;

    struct share *share = &server->tenants.shares[SHARE_MODELS];

    if (models->count == models->max || !share_has(share, tenant, 1))
        return STATUS_LIMIT;
    model->payer = tenant;
    model->registered_ms = server->now_ms;
    model->wire = wire_copy(wire);
    if (!model->wire)
        return STATUS_FAILED;
    int answer = pool_register(server, model);
    if (answer) {
        kvpool__wire__register_model__free_unpacked(model->wire, NULL);
        return status_of_pool(answer);
    }
    assert(model->pool == models->count);
    share_take(share, tenant, 1);
    models->models[models->count] = *model;
    *out_model = models->count++;
    return STATUS_OK;
}

int models_register(struct server *server, pool_payer tenant,
                    const Kvpool__Wire__RegisterModel *wire, uint32_t *out_model,
                    const char **out_text)
{
    struct models *models = &server->models;
    struct model model;

    memset(&model, 0, sizeof(model)); /* groups are compared as bytes */
    *out_text = numbers_check(wire);
    if (*out_text)
        return STATUS_INVALID;
    strcpy(model.name, wire->name);
    model.is_opaque = wire->opaque_block_bytes > 0;
    model.block_tokens = wire->block_tokens > 0 ? wire->block_tokens : 16;
    model.dtype = model.is_opaque ? (uint32_t)WIRE_OPAQUE : wire->dtype;
    if (!model.is_opaque) {
        model.num_layers = wire->num_layers;
        model.num_kv_heads = wire->num_kv_heads;
        model.k_dim = wire->k_head_dim;
        model.is_mla = wire->v_head_dim == 0;
        model.v_dim = model.is_mla ? wire->mla_v_dim : wire->v_head_dim;
    }
    *out_text = groups_check(wire, &model);
    if (!*out_text)
        *out_text = granules_choose(wire, &model, server->config);
    if (*out_text)
        return STATUS_INVALID;
    if (fingerprint_make(server, wire, &model)) {
        *out_text = "the model cannot be named: a field is missing or too long";
        return STATUS_INVALID;
    }
    for (uint32_t at = 0; at < models->count; at++) {
        if (is_same(&models->models[at], &model)) {
            *out_model = at;
            return STATUS_OK;
        }
    }
    return model_add(server, tenant, &model, wire, out_model);
}
