/* offload/hash_x86.c - what this x86 processor can do. */
#include "offload/hash.h"

extern const struct hash_kernel hash_avx2;

const struct hash_kernel *hash_choose(void)
{
    return __builtin_cpu_supports("avx2") ? &hash_avx2 : &hash_plain;
}
