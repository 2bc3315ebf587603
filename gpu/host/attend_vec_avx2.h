/* gpu/host/attend_vec_avx2.h - internal: what attend_kernel.inc.h asks of 256-bit vectors. */
#pragma once

#include "gpu/attend.h"

#include <immintrin.h>

enum {
    VEC = 8,         /* floats of a vector */
    DOT_VECTORS = 2, /* query vectors x 4 keys held in registers while scores are made */
    OUT_CHUNKS = 2,  /* 4 query vectors x this many vectors of o, held while V is added up */
};

typedef __m256 vec;
typedef __m256i veci;

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

VEC_INLINE vec vec_set1(float x)
{
    return _mm256_set1_ps(x);
}

VEC_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VEC_INLINE void vec_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}

VEC_INLINE veci vec_load_int(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

VEC_INLINE veci vec_set1_int(int32_t x)
{
    return _mm256_set1_epi32(x);
}

/* Element @i and following of a row in a storage format. */
VEC_INLINE vec vec_load_as(const enum gpu_dtype type, const char *row, size_t i)
{
    const __m128i *halves = (const __m128i *)(row + i * 2);

    switch (type) {
    case GPU_F32:
        return _mm256_loadu_ps((const float *)(row + i * 4));
    case GPU_F16:
        return _mm256_cvtph_ps(_mm_loadu_si128(halves));
    case GPU_BF16:
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)), 16));
    }
    return vec_zero();
}

/* The upper halves, rounded to nearest even. */
VEC_INLINE __m128i vec_to_bf16(vec x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

    bits = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    bits = _mm256_srli_epi32(bits, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

VEC_INLINE void vec_store_as(const enum gpu_dtype type, char *row, size_t i, vec x)
{
    __m128i *halves = (__m128i *)(row + i * 2);

    switch (type) {
    case GPU_F32:
        _mm256_storeu_ps((float *)(row + i * 4), x);
        return;
    case GPU_F16:
        _mm_storeu_si128(halves, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        return;
    case GPU_BF16:
        _mm_storeu_si128(halves, vec_to_bf16(x));
        return;
    }
}

VEC_INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

VEC_INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

VEC_INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

VEC_INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

VEC_INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

VEC_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* @small where |x| < limit, else @large. */
VEC_INLINE vec vec_pick_small(vec x, float limit, vec small, vec large)
{
    vec size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return _mm256_blendv_ps(large, small, _mm256_cmp_ps(size, _mm256_set1_ps(limit), _CMP_LT_OQ));
}

/* s where first <= position < end, else -inf. */
VEC_INLINE vec vec_hide(vec s, veci position, veci first, veci end)
{
    __m256i hidden = _mm256_cmpgt_epi32(first, position);
    __m256i before = _mm256_cmpgt_epi32(end, position);
    vec seen = _mm256_castsi256_ps(_mm256_andnot_si256(hidden, before));

    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), s, seen);
}

/* The four sums over the lanes of x[0..3]. */
VEC_INLINE __m128 vec_sum4(const vec x[4])
{
    vec a = _mm256_add_ps(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1]));
    vec b = _mm256_add_ps(_mm256_unpacklo_ps(x[2], x[3]), _mm256_unpackhi_ps(x[2], x[3]));
    vec c = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));

    return _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}

VEC_INLINE float vec_reduce_max(vec x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

VEC_INLINE float vec_reduce_add(vec x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

/* 2^x for x <= 0 (within 2 units in the last place), exactly 0 below -126; NaN stays NaN. */
VEC_INLINE vec vec_exp2(vec x)
{
    vec lowest = _mm256_set1_ps(-126);
    vec is_some = _mm256_cmp_ps(x, lowest, _CMP_NLT_UQ);
    x = _mm256_max_ps(lowest, x); /* of a NaN and a number it takes the second */
    vec n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec f = _mm256_sub_ps(x, n);
    vec p = _mm256_set1_ps(1.5403530e-4f); /* ln(2)^k / k! */

    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.3333558e-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.6181291e-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.5504109e-2f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.4022651e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.9314718e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1));
    __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(is_some, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}
