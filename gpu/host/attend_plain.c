/*
 * gpu/host/attend_plain.c - paged attention in plain C: the reference, and what runs without AVX2.
 *
 * Per query vector, one pass over the keys it sees (online softmax): m is the largest score so
 * far; whenever it grows, what was summed up under the old one is scaled down.
 */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/dtype.h"

#include <math.h>
#include <string.h>

static float score(const struct attend_tile *tile, const float *q, const void *k)
{
    const struct dtype *type = &dtypes[tile->kv_dtype];
    float sum = 0;

    for (uint32_t d = 0; d < tile->k_dim; d++)
        sum += q[d] * type->load(k, d);
    sum *= tile->scale;
    return tile->soft_cap > 0 ? tile->soft_cap * tanhf(sum / tile->soft_cap) : sum;
}

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
            continue;

        float larger = fmaxf(m, s);
        float keep = expf(m - larger), weight = expf(s - larger);
        for (uint32_t d = 0; d < tile->v_dim; d++)
            o[d] = keep * o[d] + weight * type->load(v, d);
        l = keep * l + weight;
        m = larger;
    }
    tile->m[i] = m;
    tile->l[i] = l;
}

void attend_plain(const struct attend_tile *tile)
{
    for (uint32_t i = 0; i < tile->num_vectors; i++)
        attend_vector(tile, i);
}

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
