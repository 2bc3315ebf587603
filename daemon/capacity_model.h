/* daemon/capacity_model.h - internal to capacity: a geometry, and what fits of it. */
#pragma once

#include "gpu/granule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CAPACITY_MAX_GROUPS = 8, CAPACITY_MAX_LAYERS = 512, CAPACITY_ERROR = 320 };

/* Layers that share a block table. K and V of one token and layer: heads * (k_dim + v_dim) values.
 */
struct capacity_group {
    uint64_t layers;
    uint64_t window;                 /* 0: full */
    uint64_t kv_heads, k_dim, v_dim; /* v_dim 0: V is a prefix of K (MLA) */
};

struct capacity_model {
    struct capacity_group groups[CAPACITY_MAX_GROUPS];
    size_t num_groups;
    uint64_t value_bytes; /* of the dtype; 0: not known */
};

struct capacity_memory {
    uint64_t bytes, page_bytes;
    uint64_t block_tokens;
    uint64_t context; /* tokens of a sequence */
};

struct capacity_group_result {
    uint64_t token_bytes; /* of all its layers */
    uint64_t block_bytes;
    struct gpu_granule granule;
    uint64_t sequence_blocks; /* that a sequence of `context` tokens holds */
};

struct capacity_result {
    struct capacity_group_result groups[CAPACITY_MAX_GROUPS];
    uint64_t token_bytes;      /* of a token in every group */
    uint64_t token_lost_bytes; /* padding of its share of a block, rounded up */
    uint64_t sequence_bytes;   /* a sequence of `context` tokens, padding included */
    uint64_t tokens;           /* that can be cached in every group */
    uint64_t sequences;        /* of `context` tokens, side by side, sharing nothing */
};

/* 0, or -EINVAL with what is wrong in @out_error. */
int capacity_compute(const struct capacity_model *model, const struct capacity_memory *memory,
                     struct capacity_result *out_result, char out_error[CAPACITY_ERROR]);

/* A model's geometry from its Hugging Face config.json. 0, -EINVAL or -errno, with @out_error. */
int capacity_read_json(const char *path, struct capacity_model *out_model,
                       char out_error[CAPACITY_ERROR]);

/* "f16", "bfloat16", "torch.float16": bytes of a value, or 0. */
uint64_t capacity_dtype_bytes(const char *name);
