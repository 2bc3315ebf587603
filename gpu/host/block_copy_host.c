/* gpu/host/block_copy_host.c - the reference copy: what every other one is compared with. */
#include "gpu/host/block_copy.h"

#include <string.h>

static void plain_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void plain_zero(void *to, size_t bytes)
{
    memset(to, 0, bytes);
}

const struct block_copier block_copier_plain = {
    .name = "plain", .copy = plain_copy, .zero = plain_zero};
