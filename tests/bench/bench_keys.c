/*
 * tests/bench/bench_keys.c - naming 16-token blocks, beside the processor's own limit and bare EVP.
 *
 * Two limits, both measured in turn with ours: SHA-NI instructions interleaved by hand, and EVP
 * with a fetched method, one reused context and one update a block. Both must give our keys.
 */
#include "proto/key.h"
#include "tests/bench/bench.h"
#include "tests/bench/limit_sha.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_TOKENS = 16,
    MAX_BLOCKS = 131072 / BLOCK_TOKENS,
    BLOCKS_A_RUN = 2048, /* short prompts are named again until a run has this many */
    CASES = 3,
};

static uint32_t tokens[MAX_BLOCKS * BLOCK_TOKENS];
static struct key ours[MAX_BLOCKS], bare[MAX_BLOCKS];
static const struct key root = {{7}};

static struct key_hasher *hasher;
static EVP_MD *sha256;
static EVP_MD_CTX *digest;

/* @num_prompts prompts of @num_blocks each, side by side in tokens[], named @num_repeats times. */
struct work {
    size_t num_prompts, num_blocks, num_repeats;
    struct key_prompt prompts[64];
};

static void run_ours(void *state)
{
    struct work *work = state;

    for (size_t i = 0; i < work->num_repeats; i++)
        if (key_chains(hasher, work->prompts, work->num_prompts))
            abort();
}

/* Fills bare[] as run_ours() fills ours[]. */
static void run_evp(void *state)
{
    const struct work *work = state;
    static const uint8_t trailer[8] = {BLOCK_TOKENS, 0, 0, 0, 'k', 'v', 'b', '1'};
    uint8_t message[BLOCK_TOKENS * 4 + KEY_BYTES + sizeof(trailer)];

    memcpy(message + sizeof(message) - sizeof(trailer), trailer, sizeof(trailer));
    for (size_t i = 0; i < work->num_repeats * work->num_prompts; i++) {
        const size_t first = i % work->num_prompts * work->num_blocks;

        for (size_t b = first; b < first + work->num_blocks; b++) {
            memcpy(message, &tokens[b * BLOCK_TOKENS], BLOCK_TOKENS * 4);
            memcpy(message + BLOCK_TOKENS * 4, b == first ? &root : &bare[b - 1], KEY_BYTES);
            EVP_DigestInit_ex2(digest, NULL, NULL);
            EVP_DigestUpdate(digest, message, sizeof(message));
            EVP_DigestFinal_ex(digest, bare[b].bytes, NULL);
        }
    }
}

static void run_sha(void *state)
{
    const struct work *work = state;

    for (size_t i = 0; i < work->num_repeats; i++) {
        for (size_t n = 0; n < work->num_prompts;) {
            const size_t first = n * work->num_blocks;
            uint8_t(*out)[KEY_BYTES] = (uint8_t(*)[KEY_BYTES])bare[first].bytes;

            if (n + LIMIT_SHA_PROMPTS <= work->num_prompts) {
                limit_sha_chains(root.bytes, &tokens[first * BLOCK_TOKENS], work->num_blocks, out);
                n += LIMIT_SHA_PROMPTS;
            } else {
                limit_sha_chain(root.bytes, &tokens[first * BLOCK_TOKENS], work->num_blocks, out);
                n++;
            }
        }
    }
}

static void check_same(struct bench *bench, const struct work *work, const char *what)
{
    if (memcmp(ours, bare, work->num_prompts * work->num_blocks * sizeof(struct key)) != 0)
        bench_fail(bench, what);
    memset(bare, 0, sizeof(bare));
}

static void work_init(struct work *work, size_t num_prompts, size_t num_blocks)
{
    const size_t num_all = num_prompts * num_blocks;

    *work = (struct work){num_prompts, num_blocks, 1, {{0}}};
    if (num_all < BLOCKS_A_RUN)
        work->num_repeats = BLOCKS_A_RUN / num_all;
    for (size_t n = 0; n < num_prompts; n++)
        work->prompts[n] = (struct key_prompt){.parent = &root,
                                               .tokens = &tokens[n * num_blocks * BLOCK_TOKENS],
                                               .num_tokens = num_blocks * BLOCK_TOKENS,
                                               .block_tokens = BLOCK_TOKENS,
                                               .out = &ours[n * num_blocks]};
}

/* clang-format off */
static const struct shape {
    const char *name;
    size_t num_prompts, num_tokens; /* of each */
    double worst_of_sha;            /* far over CLAIMS.md, so that noise does not fail a build */
} shapes[] = {
    {"1 prompt of 1,024 tokens",      1,   1024, 2.0},
    {"1 prompt of 8,192 tokens",      1,   8192, 2.0},
    {"1 prompt of 131,072 tokens",    1, 131072, 2.0},
    {"4 prompts of 8,192 tokens",     4,   8192, 2.5},
    {"64 prompts of 1,024 tokens",   64,   1024, 2.5},
    {"64 prompts of 32 tokens",      64,     32, 3.0},
};
/* clang-format on */

static void measure(struct bench *bench, const struct shape *shape)
{
    static struct bench_case cases[CASES];
    struct work work;
    struct bench_row row = {.name = shape->name, .unit = "ns/block", .limit_name = "bare EVP"};

    work_init(&work, shape->num_prompts, shape->num_tokens / BLOCK_TOKENS);
    const double num_items = (double)(work.num_prompts * work.num_blocks * work.num_repeats);
    cases[0] = (struct bench_case){.run = run_ours, .state = &work, .num_items = num_items};
    cases[1] = (struct bench_case){.run = run_evp, .state = &work, .num_items = num_items};
    cases[2] = (struct bench_case){.run = run_sha, .state = &work, .num_items = num_items};

    run_ours(&work);
    run_evp(&work);
    check_same(bench, &work, "EVP gives other keys");
    if (limit_sha_is_available()) {
        run_sha(&work);
        check_same(bench, &work, "SHA-NI gives other keys");
    }
    bench_run(bench, cases, limit_sha_is_available() ? 3 : 2);

    row.ours = cases[0].median_ns;
    if (limit_sha_is_available()) {
        row.limit_name = work.num_prompts < LIMIT_SHA_PROMPTS ? "bare SHA-NI, next head interleaved"
                                                              : "bare SHA-NI, 4 chains interleaved";
        row.limit = cases[2].median_ns;
        row.ratio = bench_ratio(bench, &cases[0], &cases[2]);
        row.worst_ratio = shape->worst_of_sha;
        bench_report(bench, &row);
        row.worst_ratio = 0;
    }
    row.limit_name = "bare EVP";
    row.limit = cases[1].median_ns;
    row.ratio = bench_ratio(bench, &cases[0], &cases[1]);
    bench_report(bench, &row);
}

int main(int argc, char **argv)
{
    struct bench bench;
    int status = bench_begin(&bench, argc, argv, "keys", "ns to name a block of 16 tokens");
    if (status >= 0)
        return status;

    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    digest = EVP_MD_CTX_new();
    if (!sha256 || !digest || !EVP_DigestInit_ex2(digest, sha256, NULL) ||
        key_hasher_create(&hasher))
        return 1;
    for (uint32_t i = 0; i < MAX_BLOCKS * BLOCK_TOKENS; i++)
        tokens[i] = i * 2654435761u % 151936;

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        measure(&bench, &shapes[i]);

    key_hasher_destroy(hasher);
    EVP_MD_CTX_free(digest);
    EVP_MD_free(sha256);
    return bench_end(&bench);
}
