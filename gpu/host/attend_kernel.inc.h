/*
 * gpu/host/attend_kernel.inc.h - internal: paged attention in vectors, for any width.
 *
 * Included once by each attend_<cpu>.c, after its vec_* functions and vec_fma_pairs. Two ways, by
 * the number of query vectors:
 *
 *   few (decode)    attend_few_kernel.inc.h: lanes are elements of a head. K and V rows are read
 *                   straight from the blocks, the next tile's rows are prefetched meanwhile.
 *   many (prefill)  attend_many_kernel.inc.h: lanes are query vectors; K and V rows are widened to
 *                   f32 once for all of them, then it is two register-blocked matrix products.
 *
 * Scores are kept times log2(e), so that weights are powers of two.
 */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LOG2E 1.44269504088896341f
#define LN2 0.693147180559945309f

enum {
    /* A fourth way to read K, beside the dtypes: bf16 in pairs, for a CPU that multiplies those. */
    AS_PAIRS = NUM_DTYPES,
    FEW_VECTORS = 8, /* up to here the first way is the faster one (bench_attention, GQA 8) */
};

/* The rows of the next keys that exist. */
struct key_tile {
    uint32_t num;
    int32_t position[ATTEND_MAX_KEYS];
    const char *k[ATTEND_MAX_KEYS], *v[ATTEND_MAX_KEYS];
};

/* Takes up to @max_keys from position @j on, repeats the last up to a multiple of VEC; next @j. */
static uint32_t key_tile_fill(struct key_tile *keys, const struct attend_tile *tile, uint32_t j,
                              uint32_t max_keys)
{
    keys->num = 0;
    while (j < tile->end && keys->num < max_keys) {
        uint32_t in_block = j % tile->block_tokens;
        uint32_t num = tile->block_tokens - in_block;
        const char *block = tile->blocks[j / tile->block_tokens];

        num = num < tile->end - j ? num : tile->end - j;
        num = num < max_keys - keys->num ? num : max_keys - keys->num;
        for (uint32_t i = 0; block && i < num; i++) {
            keys->position[keys->num] = (int32_t)(j + i);
            keys->k[keys->num] = block + tile->k_offset + (in_block + i) * tile->k_row_bytes;
            keys->v[keys->num] = block + tile->v_offset + (in_block + i) * tile->v_row_bytes;
            keys->num++;
        }
        j += num;
    }
    for (uint32_t i = keys->num; keys->num > 0 && i % VEC != 0; i++) {
        keys->position[i] = INT32_MAX; /* seen by nobody */
        keys->k[i] = keys->k[keys->num - 1];
        keys->v[i] = keys->v[keys->num - 1];
    }
    return j;
}

/* Whether each of vectors @i to @i + @num sees every key of the tile. */
static inline bool tile_is_seen(const struct attend_tile *tile, const struct key_tile *keys,
                                uint32_t i, uint32_t num)
{
    bool is_seen = true;

    for (uint32_t n = i; n < i + num; n++)
        is_seen &=
            tile->first[n] <= keys->position[0] && keys->position[keys->num - 1] < tile->end_key[n];
    return is_seen;
}

/* tanh, accurate also where it is small. */
VEC_INLINE vec vec_tanh(vec x)
{
    vec square = vec_mul(x, x), one = vec_set1(1);
    vec small = vec_set1(-17.0f / 315);
    small = vec_fma(small, square, vec_set1(2.0f / 15));
    small = vec_fma(small, square, vec_set1(-1.0f / 3));
    small = vec_fma(vec_mul(small, square), x, x);

    vec size = vec_max(x, vec_sub(vec_zero(), x));
    vec e = vec_exp2(vec_mul(size, vec_set1(-2 * LOG2E)));
    vec large = vec_div(vec_mul(vec_sub(one, e), x), vec_mul(vec_add(one, e), size));
    return vec_pick_small(x, 0.25f, small, large);
}

/* From the plain product of q and k to a score in powers of two. */
struct score_scale {
    float factor, cap;
};

static inline struct score_scale score_scale_of(const struct attend_tile *tile)
{
    if (tile->soft_cap > 0)
        return (struct score_scale){tile->scale / tile->soft_cap, tile->soft_cap * LOG2E};
    return (struct score_scale){tile->scale * LOG2E, 0};
}

VEC_INLINE vec score_apply(const struct score_scale *scale, vec product)
{
    vec s = vec_mul(product, vec_set1(scale->factor));
    return scale->cap > 0 ? vec_mul(vec_tanh(s), vec_set1(scale->cap)) : s;
}

VEC_INLINE vec load_keys(const int type, const char *row, size_t i)
{
    return type == AS_PAIRS ? vec_load((const float *)row + i)
                            : vec_load_as((enum gpu_dtype)type, row, i);
}

VEC_INLINE vec multiply_keys(const int type, vec a, vec b, vec sum)
{
    return type == AS_PAIRS ? vec_fma_pairs(a, b, sum) : vec_fma(a, b, sum);
}

#include "gpu/host/attend_few_kernel.inc.h"
#include "gpu/host/attend_many_kernel.inc.h"

static void attend_any(const struct attend_tile *tile)
{
    if (tile->num_vectors <= FEW_VECTORS)
        few_attend(tile);
    else
        many_attend(tile);
}

/* Both before and after rounding: an f32 may be too large for f16. x - x is NaN if x is not finite.
 */
VEC_INLINE bool convert_row(const enum gpu_dtype to_type, const enum gpu_dtype from_type, char *to,
                            const char *from, size_t n)
{
    vec bad = vec_zero();

    for (size_t i = 0; i < n; i += VEC) {
        vec x = vec_load_as(from_type, from, i);
        bad = vec_add(bad, vec_sub(x, x));
        vec_store_as(to_type, to, i, x);
        x = vec_load_as(to_type, to, i);
        bad = vec_add(bad, vec_sub(x, x));
    }
    return vec_reduce_add(bad) == 0;
}

VEC_INLINE bool convert_to(const enum gpu_dtype to_type, enum gpu_dtype from_type, char *to,
                           const char *from, size_t n)
{
    switch (from_type) {
#define CONVERT_FROM(type, name, bytes)                                                            \
    case type:                                                                                     \
        return convert_row(to_type, type, to, from, n);
        DTYPES(CONVERT_FROM)
    }
    return false;
}

static bool convert_any(void *to, enum gpu_dtype to_type, const void *from,
                        enum gpu_dtype from_type, size_t n)
{
    switch (to_type) {
#define CONVERT_TO(type, name, bytes)                                                              \
    case type:                                                                                     \
        return convert_to(type, from_type, to, from, n);
        DTYPES(CONVERT_TO)
    }
    return false;
}
