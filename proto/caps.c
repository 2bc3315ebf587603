/* proto/caps.c - walks a message and its caps side by side. */
#include "proto/caps.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/status.h"

/* Well-formed UTF-8 of at most @max bytes, shortest form, no surrogate; no control character but
 * the white space of JSON. */
static bool text_fits(const char *text, uint64_t max)
{
    if (*text == '\0')
        return true; /* most strings are absent */
    size_t num_bytes = strnlen(text, max + 1);
    if (num_bytes > max)
        return false;

    const unsigned char *at = (const unsigned char *)text, *end = at + num_bytes;
    while (at < end) {
        unsigned char first = *at++;
        if (first < 0x80) {
            if ((first < 0x20 && first != '\n' && first != '\t' && first != '\r') || first == 0x7f)
                return false;
            continue;
        }
        int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        uint32_t least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
        uint32_t code = first & (0x3fU >> more);
        if (first < 0xc2 || first > 0xf4 || end - at < more)
            return false;
        for (; more > 0; more--) {
            if ((*at & 0xc0) != 0x80)
                return false;
            code = code << 6 | (*at++ & 0x3f);
        }
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
    }
    return true;
}

/* One value at @value; of the types that the schema does not use, none passes. */
static bool scalar_fits(ProtobufCType type, const void *value, const struct wire_cap *cap)
{
    switch (type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return *(const uint32_t *)value <= cap->max;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return *(const uint64_t *)value <= cap->max;
    case PROTOBUF_C_TYPE_BOOL:
        return true;
    case PROTOBUF_C_TYPE_FLOAT:
        return isfinite(*(const float *)value);
    case PROTOBUF_C_TYPE_DOUBLE:
        return isfinite(*(const double *)value);
    case PROTOBUF_C_TYPE_STRING:
        return text_fits(*(char *const *)value, cap->max);
    case PROTOBUF_C_TYPE_BYTES: {
        size_t num_bytes = ((const ProtobufCBinaryData *)value)->len;
        return num_bytes <= cap->max && num_bytes % cap->unit == 0;
    }
    default:
        return false;
    }
}

static int message_check(const struct wire_cap_message *rows, const void *message,
                         const char **out_what);

static int repeated_check(const ProtobufCFieldDescriptor *field, const struct wire_cap *cap,
                          const char *message, const char **out_what)
{
    size_t count = *(const size_t *)(const void *)(message + field->quantifier_offset);
    void *const *items = *(void **const *)(const void *)(message + field->offset);

    bool fits = count <= cap->max_count;
    for (size_t i = 0; fits && i < count; i++) {
        if (cap->of) {
            int status = message_check(cap->of, items[i], out_what);
            if (status)
                return status;
        } else if (field->type == PROTOBUF_C_TYPE_STRING) {
            fits = text_fits(items[i], cap->max);
        } else {
            break; /* packed numbers have no cap of their own */
        }
    }
    if (!fits)
        *out_what = cap->field;
    return fits ? 0 : STATUS_MALFORMED;
}

/* Not the member of its oneof that is there, or a number that may be any. */
static inline bool is_free(const ProtobufCFieldDescriptor *field, const struct wire_cap *cap,
                           const char *message)
{
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)(message + field->quantifier_offset) != field->id;
    return cap->max == WIRE_ANY && field->label != PROTOBUF_C_LABEL_REPEATED &&
           field->type != PROTOBUF_C_TYPE_FLOAT && field->type != PROTOBUF_C_TYPE_DOUBLE;
}

static int field_check(const ProtobufCFieldDescriptor *field, const struct wire_cap *cap,
                       const char *message, const char **out_what)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return repeated_check(field, cap, message, out_what);

    const void *value = message + field->offset;
    if (cap->of) {
        const void *inner = *(void *const *)value;
        return inner ? message_check(cap->of, inner, out_what) : 0;
    }
    if (scalar_fits(field->type, value, cap))
        return 0;
    *out_what = cap->field;
    return STATUS_MALFORMED;
}

static int message_check(const struct wire_cap_message *rows, const void *message,
                         const char **out_what)
{
    for (size_t i = 0; i < rows->num_caps; i++) {
        const ProtobufCFieldDescriptor *field = &rows->descriptor->fields[i];
        if (is_free(field, &rows->caps[i], message))
            continue;
        int status = field_check(field, &rows->caps[i], message, out_what);
        if (status)
            return status;
    }
    return 0;
}

/* Straight to the one verb that is there: 30-90 ns for a Match, 200-440 over all. */
int wire_request_check(const Kvpool__Wire__Request *request, const char **out_what)
{
    enum { ROW_ID, ROW_DEADLINE };
    const struct wire_cap_message *rows = &wire_request_caps;

    if (request->id == 0) { /* what a bad envelope is answered with */
        *out_what = rows->caps[ROW_ID].field;
        return STATUS_MALFORMED;
    }
    if (request->deadline_ms > rows->caps[ROW_DEADLINE].max) {
        *out_what = rows->caps[ROW_DEADLINE].field;
        return STATUS_MALFORMED;
    }
    const ProtobufCFieldDescriptor *verb =
        protobuf_c_message_descriptor_get_field(rows->descriptor, request->verb_case);
    if (!verb || !(verb->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return 0;
    const struct wire_cap *cap = &rows->caps[verb - rows->descriptor->fields];
    return message_check(cap->of, request->match, out_what); /* any member: they are one pointer */
}

int wire_envelope_check(const Kvpool__Wire__Batch *batch, const char **out_what)
{
    const struct wire_cap_message *rows = &wire_batch_caps;

    for (size_t i = 0; i + 1 < rows->num_caps; i++) { /* all but the requests */
        int status = field_check(&rows->descriptor->fields[i], &rows->caps[i], (const char *)batch,
                                 out_what);
        if (status)
            return status;
    }
    const struct wire_cap *requests = &rows->caps[rows->num_caps - 1];
    if (batch->n_requests <= requests->max_count)
        return 0;
    *out_what = requests->field;
    return STATUS_MALFORMED;
}

int wire_batch_check(const Kvpool__Wire__Batch *batch, const char **out_what)
{
    int status = wire_envelope_check(batch, out_what);

    for (size_t i = 0; !status && i < batch->n_requests; i++)
        status = wire_request_check(batch->requests[i], out_what);
    return status;
}

int wire_reply_check(const Kvpool__Wire__ReplyBatch *batch, const char **out_what)
{
    return message_check(&wire_reply_batch_caps, batch, out_what);
}
