/* daemon/models.h - registered models: what the wire says of them, what pool and gpu were told. */
#pragma once

#include "gpu/gpu.h"
#include "pool/pool.h"
#include "proto/key.h"
#include "proto/kvpool.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

enum { MODEL_MAX_NAME = 128, MODEL_MAX_LAYERS = 512, MODEL_MAX_DIM = 65536 };

struct model_group {
    uint32_t window, num_layers;
    uint64_t block_bytes;
    struct gpu_granule granule;
};

struct model {
    char name[MODEL_MAX_NAME + 1];
    struct key_fingerprint fingerprint;
    pool_model pool; /* the same as its index: models are never forgotten */
    uint32_t block_tokens, num_layers, num_groups;
    struct model_group groups[POOL_MAX_GROUPS];
    uint8_t group_of[MODEL_MAX_LAYERS];  /* of each layer */
    uint16_t layer_in[MODEL_MAX_LAYERS]; /* which one of its group it is */
    uint32_t num_kv_heads, k_dim, v_dim;
    uint32_t dtype; /* enum wire_dtype */
    bool is_mla;    /* V is a prefix of K */
    bool is_opaque;
    /* for the state directory: as it was registered, by whom first, when last (s since 1970) */
    Kvpool__Wire__RegisterModel *wire;
    pool_payer payer;
    uint64_t registered_ms; /* by the clock of this life; 0: in an earlier one */
    uint64_t used_s;
};

struct models {
    struct model *models;
    uint32_t count, max;
};

int models_init(struct models *models, uint32_t max);
void models_finish(struct models *models);

/*
 * Finds the model with the same fingerprint, or registers it as @tenant's: an enum wire_status, and
 * a text that says what is wrong with @wire.
 */
int models_register(struct server *server, pool_payer tenant,
                    const Kvpool__Wire__RegisterModel *wire, uint32_t *out_model,
                    const char **out_text);

struct config;
bool model_is_on_disk(const struct config *config, const struct model *model);

static inline const struct model *models_of_pool(const struct models *models, pool_model model)
{
    return &models->models[model];
}
