/* proto/codec.c - frames to messages: protobuf-c over a bump allocator. */
#include "proto/codec.h"

#include <assert.h>
#include <string.h>

#include "proto/caps.h"
#include "proto/status.h"

enum { ARENA_ALIGNMENT = 16 };

static void *arena_alloc(void *data, size_t num_bytes)
{
    return wire_arena_take(data, num_bytes);
}

static void arena_free(void *data, void *memory)
{
    (void)data, (void)memory;
}

void wire_arena_init(struct wire_arena *arena, void *memory, size_t num_bytes)
{
    assert((uintptr_t)memory % ARENA_ALIGNMENT == 0);
    *arena = (struct wire_arena){
        .allocator = {arena_alloc, arena_free, arena}, .memory = memory, .num_bytes = num_bytes};
}

void *wire_arena_take(struct wire_arena *arena, size_t num_bytes)
{
    if (num_bytes > arena->num_bytes - arena->used)
        return NULL;

    void *taken = arena->memory + arena->used;
    size_t rounded = (num_bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    size_t left = arena->num_bytes - arena->used;
    arena->used += rounded < left ? rounded : left;
    return taken;
}

/* The major version, for ever field 1 of a Batch. 0 where it is not what comes first. */
static uint32_t major_peek(const unsigned char *frame, size_t num_bytes)
{
    uint32_t major = 0;

    if (num_bytes < 2 || frame[0] != 0x08)
        return 0;
    for (size_t i = 1; i < num_bytes && i <= 5; i++) {
        major |= (uint32_t)(frame[i] & 0x7f) << 7 * (i - 1);
        if (frame[i] < 0x80)
            return major;
    }
    return 0;
}

int wire_batch_decode(struct wire_arena *arena, const void *frame, size_t num_bytes,
                      Kvpool__Wire__Batch **out_batch, const char **out_what)
{
    arena->used = 0;
    Kvpool__Wire__Batch *batch = NULL;
    if (num_bytes <= WIRE_MAX_BATCH_BYTES)
        batch = kvpool__wire__batch__unpack(&arena->allocator, num_bytes, frame);

    uint32_t major = batch ? batch->major : major_peek(frame, num_bytes);
    if (major != WIRE_MAJOR && major != 0) {
        *out_what = "another major version of the protocol";
        return STATUS_UNSUPPORTED;
    }
    if (!batch || major == 0) {
        *out_what = batch ? "Batch.major" : "not a Batch, or too large";
        return STATUS_MALFORMED;
    }
    *out_batch = batch;
    return 0;
}

int wire_reply_decode(struct wire_arena *arena, const void *frame, size_t num_bytes,
                      Kvpool__Wire__ReplyBatch **out_batch, const char **out_what)
{
    arena->used = 0;
    Kvpool__Wire__ReplyBatch *batch = NULL;
    if (num_bytes <= WIRE_MAX_REPLY_BYTES)
        batch = kvpool__wire__reply_batch__unpack(&arena->allocator, num_bytes, frame);

    if (!batch) {
        *out_what = "not a ReplyBatch, or too large";
        return STATUS_MALFORMED;
    }
    if (batch->major != WIRE_MAJOR) {
        *out_what = "another major version of the protocol";
        return STATUS_UNSUPPORTED;
    }
    *out_batch = batch;
    return 0;
}

const void *wire_message_decode(struct wire_arena *arena,
                                const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                                size_t num_bytes)
{
    arena->used = 0;
    return protobuf_c_message_unpack(descriptor, &arena->allocator, num_bytes, bytes);
}
