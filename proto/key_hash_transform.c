/*
 * proto/key_hash_transform.c - the hasher over SHA256_*(): keys of blocks, one block ahead of the
 * chain.
 *
 * SHA-256 takes 64 bytes a compression. A block is its head, the whole 64-byte pieces of its
 * tokens, then its tail: the other tokens, the parent, the extra, the trailer and SHA-256's
 * padding. A head does not wait for the parent. So the head of block i + 1 is compressed before the
 * tail of block i: two calls in a row never need each other's result, and the processor runs them
 * side by side.
 *
 * Why functions that OpenSSL 3 deprecates: EVP's checks and indirect calls cost as much as the
 * hashing, and before OpenSSL 3.1 it allocates for every message. Bare loops on Zen 5 with 3.0, ns
 * per 16-token block of one prompt, medians of 41: EVP 101-104, SHA256_Init/Update/Final 68,
 * Transform head and tail 54, Transform one head ahead 47. All heads of a group of 8 first: 62.
 * Two prompts in turn, which is all that is left to interleave, gain too little for a second path:
 * 45. SHA-NI instructions interleaved by hand: 43-46. The code that runs is OpenSSL's in every
 * case, picked by OpenSSL for the processor. tests/bench/bench_keys.c measures this file.
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* in this file only */
#include "proto/key_hash.h"

#include <endian.h>
#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

struct key_hasher {
    SHA256_CTX state; /* of the message between hash_begin() and hash_end() */
};

enum {
    PIECE_BYTES = 64,
    LENGTH_BYTES = 8, /* bits hashed, at the end of the padding */
    SHORT_TAIL_BYTES = 2 * PIECE_BYTES - LENGTH_BYTES - 1 /* before padding, at most */
};

/* Where the parts of every block of one prompt lie. */
struct shape {
    uint32_t block_tokens;
    size_t block_bytes, head_bytes, rest_bytes; /* of tokens; head_bytes is whole pieces */
};

/* A padded tail. From block to block without extra only the rest and the parent change. */
struct tail {
    uint8_t bytes[2 * PIECE_BYTES];
    size_t num_pieces;
    size_t num_extra_bytes;
};

static const SHA_LONG initial_words[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

int key_hasher_create(struct key_hasher **out_hasher)
{
    struct key_hasher *hasher = calloc(1, sizeof(*hasher));
    if (!hasher)
        return -ENOMEM;

    *out_hasher = hasher;
    return 0;
}

void key_hasher_destroy(struct key_hasher *hasher)
{
    free(hasher);
}

/* SHA256_Init(), _Update() and _Final() cannot fail: they only compute. */
void hash_begin(struct key_hasher *hasher)
{
    SHA256_Init(&hasher->state);
}

void hash_append(struct key_hasher *hasher, const void *bytes, size_t num_bytes)
{
    SHA256_Update(&hasher->state, bytes, num_bytes);
}

int hash_end(struct key_hasher *hasher, const char magic[4], uint8_t out[KEY_BYTES])
{
    hash_append(hasher, magic, 4);
    SHA256_Final(out, &hasher->state);
    return 0;
}

static size_t unpadded_tail_bytes(const struct shape *shape, size_t num_extra_bytes)
{
    return shape->rest_bytes + KEY_BYTES + num_extra_bytes + sizeof(struct key_trailer);
}

/* Writes all of a short tail but the rest and the parent. */
static void tail_init(struct tail *tail, const struct shape *shape, const struct key_extra *extra)
{
    const struct key_trailer trailer = key_trailer_of(shape->block_tokens, extra->num_bytes);
    const size_t num_bytes = unpadded_tail_bytes(shape, extra->num_bytes);
    const uint64_t bits = htobe64((shape->head_bytes + num_bytes) * 8);
    uint8_t *at = tail->bytes + shape->rest_bytes + KEY_BYTES;

    memset(tail->bytes, 0, sizeof(tail->bytes));
    if (extra->num_bytes)
        memcpy(at, extra->bytes, extra->num_bytes);
    memcpy(at + extra->num_bytes, &trailer, sizeof(trailer));
    tail->bytes[num_bytes] = 0x80;
    tail->num_pieces = num_bytes + 1 + LENGTH_BYTES <= PIECE_BYTES ? 1 : 2;
    memcpy(tail->bytes + tail->num_pieces * PIECE_BYTES - LENGTH_BYTES, &bits, LENGTH_BYTES);
    tail->num_extra_bytes = extra->num_bytes;
}

static void head_compress(SHA256_CTX *state, const struct shape *shape, const uint8_t *tokens)
{
    memcpy(state->h, initial_words, sizeof(state->h));
    for (size_t at = 0; at < shape->head_bytes; at += PIECE_BYTES)
        SHA256_Transform(state, tokens + at);
}

static void tail_compress(SHA256_CTX *state, const struct shape *shape, struct tail *tail,
                          const uint8_t *rest, const struct key *parent, struct key *out)
{
    memcpy(tail->bytes, rest, shape->rest_bytes);
    memcpy(tail->bytes + shape->rest_bytes, parent->bytes, KEY_BYTES);
    for (size_t i = 0; i < tail->num_pieces; i++)
        SHA256_Transform(state, tail->bytes + i * PIECE_BYTES);

    for (size_t i = 0; i < 8; i++) {
        uint32_t word = htobe32(state->h[i]);
        memcpy(out->bytes + i * sizeof(word), &word, sizeof(word));
    }
}

/* A tail with a long extra: from the head on, let the library buffer and pad. */
static void long_tail_compress(const SHA256_CTX *head, const struct shape *shape,
                               const uint8_t *rest, const struct key *parent,
                               const struct key_extra *extra, struct key *out)
{
    const struct key_trailer trailer = key_trailer_of(shape->block_tokens, extra->num_bytes);
    SHA256_CTX state;

    SHA256_Init(&state);
    memcpy(state.h, head->h, sizeof(state.h));
    state.Nl = (SHA_LONG)(shape->head_bytes * 8); /* bits so far: KEY_MAX_BLOCK_TOKENS fit */
    SHA256_Update(&state, rest, shape->rest_bytes);
    SHA256_Update(&state, parent->bytes, KEY_BYTES);
    SHA256_Update(&state, extra->bytes, extra->num_bytes);
    SHA256_Update(&state, &trailer, sizeof(trailer));
    SHA256_Final(out->bytes, &state);
}

int key_blocks(struct key_hasher *hasher, const struct key_prompt *prompt)
{
    (void)hasher; /* the states are small and lie on the stack */
    const size_t block_bytes = prompt->block_tokens * sizeof(uint32_t);
    const size_t rest_bytes = block_bytes % PIECE_BYTES;
    const struct shape shape = {prompt->block_tokens, block_bytes, block_bytes - rest_bytes,
                                rest_bytes};
    const size_t num_blocks = prompt->num_tokens / prompt->block_tokens;
    const uint8_t *tokens = prompt->tokens;
    const struct key *parent = prompt->parent;
    struct key_extra_walk extras = key_extra_walk_of(prompt);
    SHA256_CTX states[2];
    struct tail tail;

    tail_init(&tail, &shape, &(struct key_extra){0});
    head_compress(&states[0], &shape, tokens);
    for (size_t i = 0; i < num_blocks; i++) {
        SHA256_CTX *state = &states[i % 2];
        const uint8_t *rest = tokens + i * block_bytes + shape.head_bytes;
        const struct key_extra extra = key_extra_at(&extras, prompt->first_block + i);

        if (i + 1 < num_blocks)
            head_compress(&states[(i + 1) % 2], &shape, tokens + (i + 1) * block_bytes);
        if (unpadded_tail_bytes(&shape, extra.num_bytes) > SHORT_TAIL_BYTES) {
            long_tail_compress(state, &shape, rest, parent, &extra, &prompt->out[i]);
        } else {
            if (extra.num_bytes || tail.num_extra_bytes)
                tail_init(&tail, &shape, &extra);
            tail_compress(state, &shape, &tail, rest, parent, &prompt->out[i]);
        }
        parent = &prompt->out[i];
    }
    return 0;
}
