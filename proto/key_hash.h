/* proto/key_hash.h - internal to proto/: what key.c, key_fingerprint.c and key_hash_*.c share. */
#pragma once

#include "proto/key.h"

/* Numbers are hashed as they lie in memory: a big-endian port must not compile before it swaps
 * them. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens and lengths are little-endian");

/*
 * The hasher has two variants, picked by meson: key_hash_transform.c where libcrypto has
 * SHA256_Transform(), else key_hash_evp.c. Each keeps key_hasher_create(), key_hasher_destroy()
 * and:
 *
 * One message: begin, append its parts, then end, which appends the magic that says what the
 * message is, and tells whether anything failed. @out is untouched if it did.
 */
void hash_begin(struct key_hasher *hasher);
void hash_append(struct key_hasher *hasher, const void *bytes, size_t num_bytes);
int hash_end(struct key_hasher *hasher, const char magic[4], uint8_t out[KEY_BYTES]);

/* Names the full blocks of a checked prompt that has at least one. */
int key_blocks(struct key_hasher *hasher, const struct key_prompt *prompt);

/* Typed, length-prefixed fields, in ascending order of tags. After open, append @num_bytes. */
void fields_open(struct key_hasher *hasher, uint8_t tag, uint32_t num_bytes);
void fields_add(struct key_hasher *hasher, uint8_t tag, const void *bytes, size_t num_bytes);

/* Is it absent, or within its cap? */
bool key_bytes_is_valid(const struct key_bytes *string);

/* The bytes between a block's extra and SHA-256's own padding. */
struct key_trailer {
    uint16_t num_tokens;
    uint16_t num_extra_bytes;
    char magic[4];
};
_Static_assert(sizeof(struct key_trailer) == 8, "hashed as it lies in memory");

static inline struct key_trailer key_trailer_of(uint32_t block_tokens, size_t num_extra_bytes)
{
    return (struct key_trailer){
        (uint16_t)block_tokens, (uint16_t)num_extra_bytes, {'k', 'v', 'b', '1'}};
}

/* A prompt's extras from some block on. */
struct key_extra_walk {
    const struct key_extra *next;
    size_t num_left;
};

static inline struct key_extra_walk key_extra_walk_of(const struct key_prompt *prompt)
{
    return (struct key_extra_walk){prompt->extras, prompt->num_extras};
}

/* The extra of @block, or one of no bytes. Blocks come in ascending order. */
static inline struct key_extra key_extra_at(struct key_extra_walk *walk, uint64_t block)
{
    for (; walk->num_left && walk->next->block < block; walk->next++)
        walk->num_left--;
    if (!walk->num_left || walk->next->block != block)
        return (struct key_extra){.block = block};
    return *walk->next;
}
