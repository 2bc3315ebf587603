/*
 * gpu/host/attend_plain.c - paged attention in plain C: the reference, and what runs without AVX2.
 *
 * Attention of one query vector q over the keys k_j, with values v_j, that it sees:
 *
 *     s_j = scale * (q . k_j)               or, with a soft cap c, c * tanh(s_j / c)
 *     out = sum of e^s_j * v_j / sum of e^s_j
 *
 * e^s_j alone would overflow, so all weights are taken as e^(s_j - m), where m is the largest score
 * so far: one pass over the keys, and whenever m grows, the sums are scaled down to the new one.
 * What comes out of a tile is m, l (sum of weights) and o (sum of weights * v), not yet divided:
 * so other stretches of the same sequence can be merged, and a sink added, exactly (attend.c).
 *
 * Paged: key j of a sequence is row j % block_tokens of block j / block_tokens of its table.
 */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/dtype.h"

#include <math.h>
#include <string.h>

/* s_j. */
static float score(const struct attend_tile *tile, const float *q, const void *k)
{
    const struct dtype *type = &dtypes[tile->kv_dtype];
    float sum = 0;

    for (uint32_t d = 0; d < tile->k_dim; d++)
        sum += q[d] * type->load(k, d);
    sum *= tile->scale;
    return tile->soft_cap > 0 ? tile->soft_cap * tanhf(sum / tile->soft_cap) : sum;
}

/* Query vector @i of the tile over all keys of [begin, end) that it sees. */
static void attend_vector(const struct attend_tile *tile, uint32_t i)
{
    const struct dtype *type = &dtypes[tile->kv_dtype];
    const float *q = tile->q + (size_t)i * tile->k_dim;
    float *o = tile->o + (size_t)i * tile->v_dim;
    float m = -INFINITY, l = 0;

    memset(o, 0, tile->v_dim * sizeof(*o));
    for (uint32_t j = tile->begin; j < tile->end; j++) {
        const char *block = tile->blocks[j / tile->block_tokens];
        if (!block || (int32_t)j < tile->first[i] || (int32_t)j >= tile->end_key[i])
            continue; /* nothing of a key that is not seen is read: it may hold anything */

        const void *k = block + tile->k_offset + j % tile->block_tokens * tile->k_row_bytes;
        const void *v = block + tile->v_offset + j % tile->block_tokens * tile->v_row_bytes;
        float s = score(tile, q, k);
        if (s == -INFINITY)
            continue; /* weight 0, and m may be -inf still: -inf - -inf is no number */

        float new_m = fmaxf(m, s);
        float keep = expf(m - new_m), weight = expf(s - new_m); /* the first key: 0 and 1 */
        for (uint32_t d = 0; d < tile->v_dim; d++)
            o[d] = keep * o[d] + weight * type->load(v, d);
        l = keep * l + weight;
        m = new_m;
    }
    tile->m[i] = m;
    tile->l[i] = l;
}

void attend_plain(const struct attend_tile *tile)
{
    for (uint32_t i = 0; i < tile->num_vectors; i++)
        attend_vector(tile, i);
}

/* Elements from one format to another; false if one is not finite, before or after. */
bool convert_plain(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                   size_t n)
{
    bool is_finite = true;

    for (size_t i = 0; i < n; i++) {
        float value = dtypes[from_type].load(from, i);
        dtypes[to_type].store(to, i, value);
        is_finite &= isfinite(value) && isfinite(dtypes[to_type].load(to, i));
    }
    return is_finite;
}
