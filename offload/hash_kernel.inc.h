/* offload/hash_kernel.inc.h - internal: the two functions of struct hash_kernel, as HASH_KERNEL. */
#include "offload/hash.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { COPY_CHUNK_BYTES = 16 << 10 }; /* stays in the first-level cache */

static uint64_t kernel_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

static uint64_t kernel_copy(void *to, const void *from, size_t bytes, uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset_withSeed(&state, seed);
    for (size_t at = 0; at < bytes;) {
        size_t part = bytes - at < COPY_CHUNK_BYTES ? bytes - at : COPY_CHUNK_BYTES;
        memcpy((char *)to + at, (const char *)from + at, part);
        /* Of the copy: a tenant may be writing over @from. */
        (void)XXH3_64bits_update(&state, (const char *)to + at, part);
        at += part;
    }
    return XXH3_64bits_digest(&state);
}

const struct hash_kernel HASH_KERNEL = {.hash = kernel_hash, .copy = kernel_copy};
