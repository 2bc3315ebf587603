/* tests/bench/limit_sha_none.c - for a processor whose SHA instructions we have no limit for. */
#include "tests/bench/limit_sha.h"

bool limit_sha_is_available(void)
{
    return false;
}

void limit_sha_chain(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                     uint8_t (*out)[32])
{
    (void)parent, (void)tokens, (void)num_blocks, (void)out;
}

void limit_sha_chains(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                      uint8_t (*out)[32])
{
    (void)parent, (void)tokens, (void)num_blocks, (void)out;
}
