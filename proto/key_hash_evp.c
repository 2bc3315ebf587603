/*
 * proto/key_hash_evp.c - the hasher over EVP: for a libcrypto without SHA256_Transform().
 *
 * OpenSSL before 3.1 allocates EVP's state anew for every message, so there the request path
 * allocates too: one more reason to prefer the other variant.
 */
#include "proto/key_hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct key_hasher {
    EVP_MD *sha256; /* fetched once: a look-up by name costs more than naming a block */
    EVP_MD_CTX *digest;
    bool has_failed; /* since hash_begin() */
};

int key_hasher_create(struct key_hasher **out_hasher)
{
    struct key_hasher *hasher = calloc(1, sizeof(*hasher));
    if (!hasher)
        return -ENOMEM;

    hasher->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!hasher->sha256)
        goto fail;
    hasher->digest = EVP_MD_CTX_new();
    if (!hasher->digest)
        goto fail;
    if (!EVP_DigestInit_ex2(hasher->digest, hasher->sha256, NULL))
        goto fail;

    *out_hasher = hasher;
    return 0;

fail:
    key_hasher_destroy(hasher);
    return -EIO; /* no memory, or no provider: OpenSSL's error queue tells */
}

void key_hasher_destroy(struct key_hasher *hasher)
{
    if (!hasher)
        return;
    EVP_MD_CTX_free(hasher->digest);
    EVP_MD_free(hasher->sha256);
    free(hasher);
}

void hash_begin(struct key_hasher *hasher)
{
    hasher->has_failed = !EVP_DigestInit_ex2(hasher->digest, NULL, NULL);
}

void hash_append(struct key_hasher *hasher, const void *bytes, size_t num_bytes)
{
    if (!hasher->has_failed && num_bytes)
        hasher->has_failed = !EVP_DigestUpdate(hasher->digest, bytes, num_bytes);
}

int hash_end(struct key_hasher *hasher, const char magic[4], uint8_t out[KEY_BYTES])
{
    uint8_t digest[KEY_BYTES];

    hash_append(hasher, magic, 4);
    if (hasher->has_failed || !EVP_DigestFinal_ex(hasher->digest, digest, NULL))
        return -EIO;
    memcpy(out, digest, KEY_BYTES);
    return 0;
}

int key_blocks(struct key_hasher *hasher, const struct key_prompt *prompt)
{
    const size_t block_bytes = prompt->block_tokens * sizeof(uint32_t);
    const size_t num_blocks = prompt->num_tokens / prompt->block_tokens;
    const uint8_t *tokens = prompt->tokens;
    const struct key *parent = prompt->parent;
    struct key_extra_walk extras = key_extra_walk_of(prompt);
    EVP_MD_CTX *digest = hasher->digest;

    for (size_t i = 0; i < num_blocks; i++) {
        struct key_extra extra = key_extra_at(&extras, prompt->first_block + i);
        struct key_trailer trailer = key_trailer_of(prompt->block_tokens, extra.num_bytes);

        if (!EVP_DigestInit_ex2(digest, NULL, NULL) ||
            !EVP_DigestUpdate(digest, tokens + i * block_bytes, block_bytes) ||
            !EVP_DigestUpdate(digest, parent->bytes, KEY_BYTES) ||
            !EVP_DigestUpdate(digest, extra.bytes, extra.num_bytes) ||
            !EVP_DigestUpdate(digest, &trailer, sizeof(trailer)) ||
            !EVP_DigestFinal_ex(digest, prompt->out[i].bytes, NULL))
            return -EIO;
        parent = &prompt->out[i];
    }
    return 0;
}
