/* gpu/host/attend_vec_avx512.h - internal: what attend_kernel.inc.h asks of 512-bit vectors. */
#pragma once

#include "gpu/attend.h"

#include <immintrin.h>

enum {
    VEC = 16,        /* floats of a vector */
    DOT_VECTORS = 4, /* query vectors x 4 keys held in registers while scores are made */
    OUT_CHUNKS = 4,  /* 4 query vectors x this many vectors of o, held while V is added up */
};

typedef __m512 vec;
typedef __m512i veci;

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

VEC_INLINE vec vec_set1(float x)
{
    return _mm512_set1_ps(x);
}

VEC_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VEC_INLINE void vec_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}

VEC_INLINE veci vec_load_int(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

VEC_INLINE veci vec_set1_int(int32_t x)
{
    return _mm512_set1_epi32(x);
}

/* Element @i and following of a row in a storage format. */
VEC_INLINE vec vec_load_as(const enum gpu_dtype type, const char *row, size_t i)
{
    const __m256i *halves = (const __m256i *)(row + i * 2);

    switch (type) {
    case GPU_F32:
        return _mm512_loadu_ps(row + i * 4);
    case GPU_F16:
        return _mm512_cvtph_ps(_mm256_loadu_si256(halves));
    case GPU_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(halves)), 16));
    }
    return vec_zero();
}

/* The upper halves, rounded to nearest even. */
VEC_INLINE __m256i vec_to_bf16(vec x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

VEC_INLINE void vec_store_as(const enum gpu_dtype type, char *row, size_t i, vec x)
{
    __m256i *halves = (__m256i *)(row + i * 2);

    switch (type) {
    case GPU_F32:
        _mm512_storeu_ps(row + i * 4, x);
        return;
    case GPU_F16:
        _mm256_storeu_si256(halves,
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        return;
    case GPU_BF16:
        _mm256_storeu_si256(halves, vec_to_bf16(x));
        return;
    }
}

VEC_INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

VEC_INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

VEC_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

VEC_INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

VEC_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

VEC_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* @small where |x| < limit, else @large. */
VEC_INLINE vec vec_pick_small(vec x, float limit, vec small, vec large)
{
    __mmask16 is_small = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(limit), _CMP_LT_OQ);
    return _mm512_mask_blend_ps(is_small, large, small);
}

/* s where first <= position < end, else -inf. */
VEC_INLINE vec vec_hide(vec s, veci position, veci first, veci end)
{
    __mmask16 seen =
        _mm512_cmpge_epi32_mask(position, first) & _mm512_cmplt_epi32_mask(position, end);
    return _mm512_mask_blend_ps(seen, _mm512_set1_ps(-__builtin_inff()), s);
}

/* The four sums over the lanes of x[0..3]. */
VEC_INLINE __m128 vec_sum4(const vec x[4])
{
    vec a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    vec b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    vec c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));

    return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

VEC_INLINE float vec_reduce_max(vec x)
{
    return _mm512_reduce_max_ps(x);
}

VEC_INLINE float vec_reduce_add(vec x)
{
    return _mm512_reduce_add_ps(x);
}

/* 2^x for x <= 0 (within 2 units in the last place), exactly 0 from -200 down; NaN stays NaN. */
VEC_INLINE vec vec_exp2(vec x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-200), x); /* of a NaN and a number it takes the second */
    vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
    vec f = _mm512_sub_ps(x, n);
    vec p = _mm512_set1_ps(1.5403530e-4f); /* ln(2)^k / k! */

    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504109e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}
