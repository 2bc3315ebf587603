/* gpu/host/attend_avx512bf16.c - paged attention for AVX-512 with BF16: scores of bf16 q and K. */
#include "gpu/host/attend_vec_avx512.h"

enum { HAS_PAIRS = 1 };

/* Each lane: two products of bf16, exact, added to an f32. */
VEC_INLINE vec vec_fma_pairs(vec a, vec b, vec sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#include "gpu/host/attend_kernel.inc.h"

void attend_avx512bf16(const struct attend_tile *tile)
{
    attend_any(tile);
}

bool convert_avx512bf16(void *to, enum gpu_dtype to_type, const void *from,
                        enum gpu_dtype from_type, size_t n)
{
    return convert_any(to, to_type, from, from_type, n);
}
