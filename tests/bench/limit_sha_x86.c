/* tests/bench/limit_sha_x86.c - SHA-256 over SHA-NI: 1 to 4 independent compressions side by side.
 */
#include "tests/bench/limit_sha.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

/* A state, in the two words that the instructions want. */
struct lane {
    __m128i abef, cdgh;
};

/* clang-format off */
static const uint32_t round_words[64] __attribute__((aligned(64))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
/* clang-format on */

bool limit_sha_is_available(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

static inline struct lane lane_initial(void)
{
    return (struct lane){
        _mm_set_epi32(0x6a09e667, (int)0xbb67ae85, 0x510e527f, (int)0x9b05688c),
        _mm_set_epi32(0x3c6ef372, (int)0xa54ff53a, 0x1f83d9ab, 0x5be0cd19),
    };
}

static inline __m128i swap_bytes(__m128i words)
{
    return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

static inline void lane_digest(struct lane lane, uint8_t *out)
{
    const __m128i abef = _mm_shuffle_epi32(lane.abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(lane.cdgh, 0xb1);

    _mm_storeu_si128((__m128i *)out, swap_bytes(_mm_blend_epi16(abef, dchg, 0xf0)));
    _mm_storeu_si128((__m128i *)(out + 16), swap_bytes(_mm_alignr_epi8(dchg, abef, 8)));
}

/* Words 4 i ... 4 i + 3 of the message schedule; @w holds the last sixteen. */
static inline __m128i next_words(__m128i w[4], int i)
{
    if (i >= 4) {
        __m128i x = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
        x = _mm_add_epi32(x, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
        w[i & 3] = _mm_sha256msg2_epu32(x, w[(i + 3) & 3]);
    }
    return w[i & 3];
}

/* @num is a constant at every call, so that all loops unroll and the lanes interleave. */
static inline __attribute__((always_inline)) void compress(struct lane *lanes,
                                                           const uint8_t *const *pieces, int num)
{
    __m128i w[LIMIT_SHA_PROMPTS][4];
    struct lane at[LIMIT_SHA_PROMPTS];

    for (int n = 0; n < num; n++) {
        at[n] = lanes[n];
        for (int i = 0; i < 4; i++)
            w[n][i] = swap_bytes(_mm_loadu_si128((const __m128i *)(pieces[n] + 16 * i)));
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
#pragma GCC unroll 4
        for (int n = 0; n < num; n++) {
            const __m128i k = _mm_load_si128((const __m128i *)(round_words + 4 * i));
            const __m128i sum = _mm_add_epi32(next_words(w[n], i), k);

            at[n].cdgh = _mm_sha256rnds2_epu32(at[n].cdgh, at[n].abef, sum);
            at[n].abef =
                _mm_sha256rnds2_epu32(at[n].abef, at[n].cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
    }
    for (int n = 0; n < num; n++) {
        lanes[n].abef = _mm_add_epi32(lanes[n].abef, at[n].abef);
        lanes[n].cdgh = _mm_add_epi32(lanes[n].cdgh, at[n].cdgh);
    }
}

/* parent | 16 | 0 | "kvb1", then SHA-256's padding for 104 bytes. */
static void tail_init(uint8_t tail[64], const uint8_t parent[32])
{
    static const uint8_t end[32] = {16,  0,   0,    0,           'k',        'v',
                                    'b', '1', 0x80, [30] = 0x03, [31] = 0x40};

    memcpy(tail, parent, 32);
    memcpy(tail + 32, end, sizeof(end));
}

void limit_sha_chain(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                     uint8_t (*out)[32])
{
    const uint8_t *heads = tokens;
    uint8_t tail[64];
    struct lane lanes[2] = {lane_initial()};

    tail_init(tail, parent);
    compress(lanes, &heads, 1);
    for (size_t i = 0; i < num_blocks; i++) {
        /* the last block's neighbour is a head that nobody needs */
        const uint8_t *pieces[2] = {tail, heads + 64 * (i + 1 < num_blocks ? i + 1 : 0)};

        lanes[1] = lane_initial();
        compress(lanes, pieces, 2);
        lane_digest(lanes[0], tail);
        memcpy(out[i], tail, 32);
        lanes[0] = lanes[1];
    }
}

void limit_sha_chains(const uint8_t parent[32], const void *tokens, size_t num_blocks,
                      uint8_t (*out)[32])
{
    const uint8_t *heads[LIMIT_SHA_PROMPTS], *ends[LIMIT_SHA_PROMPTS];
    uint8_t tails[LIMIT_SHA_PROMPTS][64];
    struct lane lanes[LIMIT_SHA_PROMPTS];

    for (size_t n = 0; n < LIMIT_SHA_PROMPTS; n++) {
        tail_init(tails[n], parent);
        heads[n] = (const uint8_t *)tokens + 64 * n * num_blocks;
        ends[n] = tails[n];
    }
    for (size_t i = 0; i < num_blocks; i++) {
        for (size_t n = 0; n < LIMIT_SHA_PROMPTS; n++)
            lanes[n] = lane_initial();
        compress(lanes, heads, LIMIT_SHA_PROMPTS);
        compress(lanes, ends, LIMIT_SHA_PROMPTS);
        for (size_t n = 0; n < LIMIT_SHA_PROMPTS; n++) {
            lane_digest(lanes[n], tails[n]);
            memcpy(out[n * num_blocks + i], tails[n], 32);
            heads[n] += 64;
        }
    }
}
