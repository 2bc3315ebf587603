/* gpu/host/attend_avx2.c - paged attention for AVX2. */
#include "gpu/host/attend_vec_avx2.h"

/* This CPU does not multiply bf16: never called. */
enum { HAS_PAIRS = 0 };

VEC_INLINE vec vec_fma_pairs(vec a, vec b, vec sum)
{
    (void)a, (void)b;
    return sum;
}

#include "gpu/host/attend_kernel.inc.h"

void attend_avx2(const struct attend_tile *tile)
{
    attend_any(tile);
}

bool convert_avx2(void *to, enum gpu_dtype to_type, const void *from, enum gpu_dtype from_type,
                  size_t n)
{
    return convert_any(to, to_type, from, from_type, n);
}
