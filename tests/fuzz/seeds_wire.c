/* tests/fuzz/seeds_wire.c - one valid input for each verb and each kind of packet. */
#include <string.h>

#include "proto/caps.h"
#include "proto/hello.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

enum { TARGET_BATCH, TARGET_REPLY, TARGET_HELLO, TARGET_RING };

/* A message with every string, byte string and list filled, through its descriptor. */
static void message_fill(ProtobufCMessage *message, unsigned char **memory)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        char *value = (char *)message + field->offset;
        void *inner = NULL;
        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            inner = *memory;
            *memory += 256;
            protobuf_c_message_init(field->descriptor, inner);
            message_fill(inner, memory);
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            void **list = (void **)(void *)*memory;
            *memory += 64;
            list[0] = inner ? inner : "name"; /* numbers: some bytes */
            *(size_t *)(void *)((char *)message + field->quantifier_offset) = 1;
            *(void ***)(void *)value = list;
        } else if (inner) {
            *(void **)(void *)value = inner;
        } else if (field->type == PROTOBUF_C_TYPE_STRING) {
            *(const char **)(void *)value = "name";
        } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
            *(ProtobufCBinaryData *)(void *)value =
                (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
        } else if (field->type == PROTOBUF_C_TYPE_UINT32 ||
                   field->type == PROTOBUF_C_TYPE_FIXED32) {
            *(uint32_t *)(void *)value = 1;
        } else if (field->type == PROTOBUF_C_TYPE_UINT64 ||
                   field->type == PROTOBUF_C_TYPE_FIXED64) {
            *(uint64_t *)(void *)value = 1;
        }
    }
}

/* Fills the @index-th member of the oneof of @message; false past the last. */
static bool oneof_fill(ProtobufCMessage *message, size_t index, unsigned char **memory)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || index-- > 0)
            continue;
        ProtobufCMessage *inner = (ProtobufCMessage *)(void *)*memory;
        *memory += 256;
        protobuf_c_message_init(field->descriptor, inner);
        message_fill(inner, memory);
        *(uint32_t *)(void *)((char *)message + field->quantifier_offset) = field->id;
        *(void **)(void *)((char *)message + field->offset) = inner;
        return true;
    }
    return false;
}

static size_t batch_seed(size_t index, uint8_t *out)
{
    static _Alignas(16) unsigned char pool[8192];
    unsigned char *memory = pool;
    Kvpool__Wire__Request request = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&request};
    Kvpool__Wire__Batch batch = KVPOOL__WIRE__BATCH__INIT;

    request.id = 1;
    batch.major = WIRE_MAJOR;
    batch.requests = requests;
    batch.n_requests = 1;
    return oneof_fill(&request.base, index, &memory) ? kvpool__wire__batch__pack(&batch, out) : 0;
}

static size_t reply_seed(size_t index, uint8_t *out)
{
    static _Alignas(16) unsigned char pool[8192];
    unsigned char *memory = pool;
    Kvpool__Wire__Reply reply = KVPOOL__WIRE__REPLY__INIT, *replies[] = {&reply};
    Kvpool__Wire__ReplyBatch batch = KVPOOL__WIRE__REPLY_BATCH__INIT;

    reply.id = 1;
    batch.major = WIRE_MAJOR;
    batch.replies = replies;
    batch.n_replies = 1;
    return oneof_fill(&reply.base, index, &memory) ? kvpool__wire__reply_batch__pack(&batch, out)
                                                   : 0;
}

static size_t packet_seed(size_t index, uint8_t *out)
{
    const struct hello hello = {.magic = HELLO_MAGIC, .major = HELLO_MAJOR, .token_bytes = 4};
    const struct welcome welcome = {
        .magic = WELCOME_MAGIC, .major = HELLO_MAJOR, .session_id = 5, .endpoint = "ipc:///x"};
    const struct refusal refusal = {.magic = REFUSAL_MAGIC, .message = "no"};
    const struct arena_packet arena = {.magic = ARENA_MAGIC, .stride_bytes = 1, .max_bytes = 9};
    const struct {
        const void *packet;
        size_t num_bytes;
    } packets[] = {{&hello, sizeof(hello)},
                   {&welcome, sizeof(welcome)},
                   {&refusal, sizeof(refusal)},
                   {&arena, sizeof(arena)}};
    if (index >= sizeof(packets) / sizeof(packets[0]))
        return 0;
    memset(out, 0, HELLO_MAX_BYTES);
    memcpy(out, packets[index].packet, packets[index].num_bytes);
    return packets[index].num_bytes + (index == 0 ? 4 : 0);
}

static size_t ring_seed(size_t index, uint8_t *out)
{
    static struct staging_header header;
    const struct ring_submission submission = {.verb = (uint32_t)index + 1, .value = 2};
    const struct ring_row row = {.num_tokens = 3};

    ring_header_init(&header, 0);
    memset(out, 0, 256);
    switch (index) {
    case 6:
        memcpy(out, &header, 64);
        return 256;
    case 7:
        memcpy(out, &row, sizeof(row));
        return sizeof(row);
    default:
        memcpy(out, &submission, sizeof(submission));
        return index < 6 ? sizeof(submission) : 0;
    }
}

size_t fuzz_seed(size_t index, uint8_t *out, size_t max)
{
    static size_t (*const sources[])(size_t, uint8_t *) = {
        [TARGET_BATCH] = batch_seed,
        [TARGET_REPLY] = reply_seed,
        [TARGET_HELLO] = packet_seed,
        [TARGET_RING] = ring_seed,
    };
    (void)max; /* every seed is far smaller */
    for (size_t target = 0; target < sizeof(sources) / sizeof(sources[0]); target++) {
        for (size_t i = 0;; i++) {
            size_t size = sources[target](i, out + 1);
            if (size == 0)
                break;
            if (index-- == 0) {
                out[0] = (uint8_t)target;
                return size + 1;
            }
        }
    }
    return 0;
}
