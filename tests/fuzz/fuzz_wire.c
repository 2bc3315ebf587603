/*
 * tests/fuzz/fuzz_wire.c - bytes of anybody into every decoder of proto/: nothing breaks.
 *
 * The first byte picks the decoder. With clang this is a libFuzzer target:
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Ibuild tests/fuzz/fuzz_wire.c \
 *         proto/cap_rows.c proto/caps.c proto/codec.c proto/hello.c proto/ring.c proto/status.c \
 *         build/proto/kvpool.pb-c.c -D_GNU_SOURCE -lprotobuf-c -lm -o fuzz_wire && ./fuzz_wire
 * meson runs it with tests/fuzz/driver.c: seeded mutations of valid messages, for a few seconds.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/caps.h"
#include "proto/codec.h"
#include "proto/hello.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_ARENA_BYTES = 1 << 16 };

static void fuzz_batch(const uint8_t *bytes, size_t num_bytes)
{
    static _Alignas(16) unsigned char memory[FUZZ_ARENA_BYTES];
    struct wire_arena arena;
    Kvpool__Wire__Batch *batch;
    const char *what = NULL;

    wire_arena_init(&arena, memory, sizeof(memory));
    int status = wire_batch_decode(&arena, bytes, num_bytes, &batch, &what);
    if (!status)
        status = wire_batch_check(batch, &what);
    assert(status == 0 || what);
    if (status)
        return;

    /* What passed can be said again, and is then the same. */
    static uint8_t first[FUZZ_ARENA_BYTES * 2], second[FUZZ_ARENA_BYTES * 2];
    if (kvpool__wire__batch__get_packed_size(batch) > sizeof(first))
        return;
    size_t size = kvpool__wire__batch__pack(batch, first);
    if (wire_batch_decode(&arena, first, size, &batch, &what))
        return; /* other order, other use of the arena */
    assert(kvpool__wire__batch__pack(batch, second) == size);
    assert(memcmp(first, second, size) == 0);
}

static void fuzz_reply(const uint8_t *bytes, size_t num_bytes)
{
    static _Alignas(16) unsigned char memory[FUZZ_ARENA_BYTES];
    struct wire_arena arena;
    Kvpool__Wire__ReplyBatch *batch;
    const char *what = NULL;

    wire_arena_init(&arena, memory, sizeof(memory));
    int status = wire_reply_decode(&arena, bytes, num_bytes, &batch, &what);
    if (!status)
        status = wire_reply_check(batch, &what);
    assert(status == 0 || what);
}

static void fuzz_hello(const uint8_t *bytes, size_t num_bytes)
{
    struct hello hello;
    union hello_answer answer;
    const char *what = NULL;

    if (hello_check(bytes, num_bytes, &hello, &what) == 0)
        assert(sizeof(hello) + hello.token_bytes <= num_bytes);
    if (hello_check_answer(bytes, num_bytes, &answer, &what) == 0 && answer.magic == WELCOME_MAGIC)
        assert(strlen(answer.welcome.endpoint) < sizeof(answer.welcome.endpoint));
}

static void fuzz_ring(const uint8_t *bytes, size_t num_bytes)
{
    static uint8_t data[4096];
    struct ring_submission submission = {0};
    struct ring_row row = {0};
    const char *what = NULL;

    memcpy(&submission, bytes, num_bytes < sizeof(submission) ? num_bytes : sizeof(submission));
    memcpy(&row, bytes, num_bytes < sizeof(row) ? num_bytes : sizeof(row));
    volatile uint8_t sink = 0;
    if (ring_submission_check(&submission, sizeof(data), &what) == 0 &&
        submission.verb == RING_STEP)
        for (uint64_t i = 0; i < submission.value * sizeof(struct ring_row); i++)
            sink ^= data[submission.rows_offset + i];
    if (ring_row_check(&row, sizeof(data), &what) == 0)
        for (uint64_t i = 0; i < row.num_tokens * UINT64_C(4); i++)
            sink ^= data[row.tokens_offset + i];

    struct staging_header header;
    if (num_bytes >= 256) {
        memset(&header, 0, sizeof(header));
        memcpy(&header, bytes, 64);
        if (ring_header_check(&header, sizeof(data) * 32) == 0)
            assert(header.data_offset + header.data_bytes <= sizeof(data) * 32);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    static void (*const targets[])(const uint8_t *, size_t) = {fuzz_batch, fuzz_reply, fuzz_hello,
                                                               fuzz_ring};
    if (num_bytes == 0)
        return 0;

    /* A block of exactly this size, so that the address sanitizer sees one byte too far. */
    uint8_t *exact = malloc(num_bytes > 1 ? num_bytes - 1 : 1);
    if (!exact)
        return 0;
    memcpy(exact, bytes + 1, num_bytes - 1);
    targets[bytes[0] % (sizeof(targets) / sizeof(targets[0]))](exact, num_bytes - 1);
    free(exact);
    return 0;
}
