/*
 * proto/key.h - the names of blocks: model fingerprint, root key, block keys. proto/KEYS.md says
 * what they are, byte for byte.
 *
 * Only the daemon makes keys, and only a holder of a domain's secret can. 0 is done; -EINVAL means
 * that the input breaks a bound named here, and then nothing was written; -EIO that OpenSSL failed
 * (keys may have been written). After key_hasher_create() nothing here allocates.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KEY_BYTES = 32,
    KEY_MAX_FIELD_BYTES = 65535,  /* of one text or byte string in a root or a fingerprint */
    KEY_MAX_EXTRA_BYTES = 65535,  /* its length is a u16 in the block's trailer */
    KEY_MAX_BLOCK_TOKENS = 65535, /* and so is their number */
    KEY_MAX_LAYERS = 65535
};

/* Names a block by the tokens of its whole prefix and by all that its K and V depend on. */
struct key {
    uint8_t bytes[KEY_BYTES];
};

/* Names a model by all that changes the bytes of its blocks. */
struct key_fingerprint {
    uint8_t bytes[KEY_BYTES];
};

/* A byte string. bytes == NULL: absent. Absent and empty are two different identities. */
struct key_bytes {
    const void *bytes;
    size_t num_bytes;
};

/* Scratch for making keys, one a thread. Taken at start-up, used for everything below. */
struct key_hasher;

int key_hasher_create(struct key_hasher **out_hasher);
void key_hasher_destroy(struct key_hasher *hasher);

/* --- model fingerprint --- */

enum key_group_kind {
    KEY_GROUP_FULL = 0,   /* attends to every token; its window is 0 */
    KEY_GROUP_SLIDING = 1 /* attends to the last @window tokens */
};

struct key_layer_group {
    enum key_group_kind kind;
    uint32_t window;
    const uint32_t *layers; /* which layers, ascending, each below the model's num_layers */
    uint32_t num_layers;    /* at least 1 */
};

/* A model split over ranks. num_ranks 0 is 1. A rank that registers its own part says which it is.
 */
struct key_shard {
    uint32_t num_ranks;
    bool has_rank;
    uint32_t rank;
};

/*
 * What changes the bytes of a block. A number that is 0 and a string that is absent are left out of
 * the fingerprint. Mandatory: name and weights revision (neither may be empty), block_tokens; then
 * num_layers, groups, num_kv_heads, k_head_dim and dtype of a model whose blocks are attended, or
 * layout_name and opaque_block_bytes of one whose blocks are opaque.
 */
struct key_model {
    struct key_bytes name;             /* UTF-8, compared byte by byte */
    struct key_bytes weights_revision; /* what names the weights' content: a commit, a digest */
    uint32_t num_layers;               /* of the whole model */
    const struct key_layer_group *groups;
    size_t num_groups;
    uint32_t num_kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;    /* 0: V is a prefix of K (MLA) */
    struct key_bytes dtype; /* "f32", "f16", "bf16", ... */
    uint32_t block_tokens;
    struct key_bytes rope_kind; /* "default", "linear", "yarn", "llama3", ...; absent: no RoPE */
    double rope_theta;
    uint32_t rope_dims;            /* dims of a head that are rotated; 0: all */
    struct key_bytes rope_scaling; /* every other parameter, in one rendering */
    struct key_shard tp, pp, cp;   /* tensor, pipeline, context parallel */
    struct key_bytes layout_name;  /* absent: the daemon's own layout */
    uint32_t layout_version;
    uint64_t opaque_block_bytes; /* 0: blocks are attended */
};

int key_fingerprint(struct key_hasher *hasher, const struct key_model *model,
                    struct key_fingerprint *out_fingerprint);

/* --- root: the parent of the first block of a prompt --- */

struct key_root_fields {
    const uint8_t *domain_secret;        /* KEY_BYTES bytes; mandatory */
    const struct key_fingerprint *model; /* mandatory */
    struct key_bytes adapter_id;         /* UTF-8 */
    bool has_adapter_generation;         /* generation 0 and none are two different identities */
    uint64_t adapter_generation;
    struct key_bytes engine_salt;
};

int key_root(struct key_hasher *hasher, const struct key_root_fields *fields, struct key *out_root);

/* --- block keys --- */

/* What else K and V of one block depend on, such as an image's digest and its offset. Empty is
 * none. */
struct key_extra {
    uint64_t block; /* counted from the first block of the prompt, wherever naming starts */
    const void *bytes;
    size_t num_bytes; /* up to 15 are free with 16-token blocks: no further compression */
};

/* A prompt, or what follows its first @first_block blocks. Tokens past the last full block have no
 * key. */
struct key_prompt {
    const struct key *parent; /* key of block first_block - 1; the root if first_block is 0 */
    uint64_t first_block;
    const void *tokens; /* u32 LE each, from block first_block on; need not be aligned */
    size_t num_tokens;
    uint32_t block_tokens; /* 1 ... KEY_MAX_BLOCK_TOKENS */
    const struct key_extra
        *extras; /* ascending blocks, one each; those of other blocks are skipped */
    size_t num_extras;
    struct key *out; /* num_tokens / block_tokens keys */
};

/* Hot path, once per prefill: no allocation, no lock, no system call, no method look-up. */
int key_chain(struct key_hasher *hasher, const struct key_prompt *prompt);

/* The same for many prompts; all are checked before the first key is written. */
int key_chains(struct key_hasher *hasher, const struct key_prompt *prompts, size_t num_prompts);

/* SHA-256 of any bytes: for what is kept, not for what is named. */
void key_sum(const void *bytes, size_t num_bytes, uint8_t out[KEY_BYTES]);
