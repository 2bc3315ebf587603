/*
 * proto/codec.h - frames to messages, in memory of a fixed size.
 *
 * A decoded message lies in its arena until the next decode into it. What does not fit the arena is
 * refused like any other malformed frame, so a decode never touches the heap.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/kvpool.pb-c.h"

/* Enough for any frame within its cap: a decoder copies every byte, and adds a record a field. */
#define WIRE_ARENA_BYTES ((size_t)32 << 20)

struct wire_arena {
    ProtobufCAllocator allocator; /* allocates from @memory, frees nothing */
    unsigned char *memory;        /* the caller's */
    size_t num_bytes, used;
};

/* @memory stays the caller's, aligned to 16 bytes, as long as the arena and what is decoded in it.
 */
void wire_arena_init(struct wire_arena *arena, void *memory, size_t num_bytes);
void *wire_arena_take(struct wire_arena *arena, size_t num_bytes); /* NULL: it is full */

/*
 * 0; or STATUS_MALFORMED; or STATUS_UNSUPPORTED, of another major version, which wins. *out_what
 * then says why (static text). Caps of fields are not checked: see proto/caps.h.
 */
int wire_batch_decode(struct wire_arena *arena, const void *frame, size_t num_bytes,
                      Kvpool__Wire__Batch **out_batch, const char **out_what);
/* One message of any kind that was packed by us; NULL: the arena is full. */
const void *wire_message_decode(struct wire_arena *arena,
                                const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                                size_t num_bytes);
int wire_reply_decode(struct wire_arena *arena, const void *frame, size_t num_bytes,
                      Kvpool__Wire__ReplyBatch **out_batch, const char **out_what);
