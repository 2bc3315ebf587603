/* tests/e2e/poison_block.c - the words of a block, from whose it is. */
#include "tests/e2e/poison_block.h"

#include <string.h>

uint64_t poison_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t identity_tag(const struct poison_identity *identity)
{
    return poison_mix(poison_mix(poison_mix(identity->owner) ^ identity->prefix) ^
                      identity->generation);
}

void poison_block_make(void *block, uint64_t bytes, const struct poison_identity *identity)
{
    uint64_t tag = identity_tag(identity), *words = block;

    memcpy(words, identity, sizeof(*identity));
    for (uint64_t at = sizeof(*identity) / sizeof(*words); at < bytes / sizeof(*words); at++)
        words[at] = tag + at * UINT64_C(0x9E3779B97F4A7C15);
}

bool poison_block_is_exact(const void *block, uint64_t bytes, const struct poison_identity *found)
{
    uint64_t tag = identity_tag(found), differs = 0;
    const uint64_t *words = block;

    for (uint64_t at = sizeof(*found) / sizeof(*words); at < bytes / sizeof(*words); at++)
        differs |= words[at] ^ (tag + at * UINT64_C(0x9E3779B97F4A7C15));
    return differs == 0;
}
