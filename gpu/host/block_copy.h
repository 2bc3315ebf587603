/* gpu/host/block_copy.h - internal: moves the bytes of one block, as fast as this CPU can. */
#pragma once

#include <stddef.h>

struct block_copier {
    const char *name;
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*zero)(void *to, size_t bytes);
};

/* The plain C reference: what the others must do. */
extern const struct block_copier block_copier_plain;

/* All that this CPU runs, fastest first; the last one is the reference. Ends with NULL. */
const struct block_copier *const *block_copiers(void);
