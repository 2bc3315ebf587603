/* offload/hash.h - internal: XXH3 of blocks, compiled for several processors: the values are one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash_kernel {
    uint64_t (*hash)(const void *data, size_t bytes, uint64_t seed);
    /* The same while @from is copied @to: it is read once. */
    uint64_t (*copy)(void *to, const void *from, size_t bytes, uint64_t seed);
};

extern const struct hash_kernel hash_plain; /* what the compiler makes for any processor */

/* The best here: hash_x86.c or hash_none.c. */
const struct hash_kernel *hash_choose(void);
