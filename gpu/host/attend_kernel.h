/*
 * gpu/host/attend_kernel.h - internal: the piece of attention that a version computes.
 *
 * A tile is a set of query vectors (rows x query heads of one KV head) against a stretch of keys
 * of one table. Each K and V row is read once for all its vectors. Stretches of one sequence are
 * merged later by log-sum-exp. Start reading at attend_plain.c: it is the reference.
 */
#pragma once

#include "gpu/attend.h"

enum {
    ATTEND_MAX_VECTORS = 256,    /* query vectors of a tile ... */
    ATTEND_TILE_FLOATS = 163840, /* ... and their q and o: sized for the L2 cache */
    ATTEND_MAX_KEYS = 64,        /* keys that a version works on at a time */
    ATTEND_WORK_FLOATS = ATTEND_TILE_FLOATS + ATTEND_MAX_KEYS * (2 * GPU_MAX_DIM + 4) +
                         ATTEND_MAX_VECTORS * (ATTEND_MAX_KEYS + 20),
};

struct attend_tile {
    /* The token at position j lies in blocks[j / block_tokens]; NULL is the null block. */
    const char *const *blocks;
    uint32_t block_tokens;
    uint32_t begin, end;       /* the stretch of positions */
    size_t k_offset, v_offset; /* in a block, of this layer's and KV head's first token */
    size_t k_row_bytes, v_row_bytes;
    uint32_t k_dim, v_dim;
    enum gpu_dtype kv_dtype;
    bool is_q_bf16; /* q came as bf16: rounding it to that loses nothing */

    float scale, soft_cap;
    uint32_t num_vectors;
    const float *q;                 /* [vector][k_dim] */
    const int32_t *first, *end_key; /* vector i sees keys first[i] <= j < end_key[i] */

    /* Out: weights are e^(s - m); l is their sum; o is their sum over V, not divided by l. */
    float *o;     /* [vector][v_dim] */
    float *m, *l; /* a vector that saw no key: m -inf, l 0, o 0 */
    float *work;  /* ATTEND_WORK_FLOATS, the version's own */
};

struct attend_version {
    const char *name;
    bool (*is_supported)(void);
    uint32_t flops_per_ns; /* of one thread, about: to estimate what an attend costs */
    void (*attend)(const struct attend_tile *tile);
    /* Returns false if an element is not finite, before or after. @n is a multiple of 16. */
    bool (*convert)(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                    size_t n);
};

/* One a file, compiled for its CPU; gpu/host/cpu.c lists and chooses them. */
void attend_plain(const struct attend_tile *tile);
bool convert_plain(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                   size_t n);
void attend_avx2(const struct attend_tile *tile);
bool convert_avx2(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                  size_t n);
void attend_avx512(const struct attend_tile *tile);
bool convert_avx512(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                    size_t n);
void attend_avx512bf16(const struct attend_tile *tile);
bool convert_avx512bf16(void *to, enum gpu_dtype to_type, const void *from,
                        enum gpu_dtype from_type, size_t n);
