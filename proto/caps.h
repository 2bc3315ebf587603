/*
 * proto/caps.h - how much of everything one message may carry, checked through one table.
 *
 * Over a cap, or not UTF-8, or not finite: STATUS_MALFORMED, and nothing is carried out. The caps
 * bound what a message can cost; what is sensible (an unknown dtype, too many rows for this daemon)
 * is for the verb to say.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/kvpool.pb-c.h"

enum {
    WIRE_MAJOR = 1,
    WIRE_MINOR = 0,

    WIRE_MAX_BATCH_BYTES = 8 << 20,  /* a frame with a Batch */
    WIRE_MAX_REPLY_BYTES = 16 << 20, /* a frame with a ReplyBatch */
    WIRE_MAX_DATA_BYTES = 4 << 20,   /* a data frame; more goes through staging */
    WIRE_MAX_REQUESTS = 256,         /* of one batch; also replies of one, and data frames */
    WIRE_MAX_CREDITS = 256,          /* requests outstanding of one session */
    WIRE_MAX_DEADLINE_MS = 3600000,

    WIRE_TOKEN_BYTES = 16, /* session token, boot id */
    WIRE_MAX_NAME_BYTES = 256,
    WIRE_MAX_PAYER_BYTES = 128, /* names of tenants and domains */
    WIRE_MAX_TEXT_BYTES = 1024,
    WIRE_MAX_JSON_BYTES = 8 << 20,

    WIRE_MAX_LAYERS = 512,
    WIRE_MAX_GROUPS = 8,
    WIRE_MAX_HEADS = 4096,
    WIRE_MAX_HEAD_DIM = 4096,
    WIRE_MAX_BLOCK_TOKENS = 65535,
    WIRE_MAX_RANKS = 16,
    WIRE_MAX_OPAQUE_BYTES = 256 << 20,

    WIRE_MAX_TOKENS = 1 << 20, /* of one prompt, append or row */
    WIRE_MAX_SALT_BYTES = 256,
    WIRE_MAX_EXTRAS = 16384, /* of one prompt */
    WIRE_MAX_EXTRA_BYTES = 1024,
    WIRE_MAX_TABLE = 1 << 20, /* entries of one group's table */
    WIRE_MAX_BLOCKS = 65536,  /* of one Write or Read */
    WIRE_MAX_ROWS = 4096,     /* of one step */
    WIRE_MAX_MEMBERS = 256,   /* readers, fillers of a domain */
    WIRE_MAX_WEIGHT = 1 << 20
};

#define WIRE_ANY UINT64_MAX /* a number without a cap */

/* What one field may hold. A field without a row is a bug that a test finds. */
struct wire_cap {
    const char *field;                 /* "Prompt.tokens" */
    uint64_t max;                      /* a number's value; bytes of a string or byte string */
    uint32_t max_count;                /* of a repeated field */
    uint32_t unit;                     /* a byte string is a multiple of so many bytes */
    const struct wire_cap_message *of; /* of a message */
};

/* One row for each field of a message, in ascending order of field numbers. */
struct wire_cap_message {
    const ProtobufCMessageDescriptor *descriptor;
    const struct wire_cap *caps;
    size_t num_caps;
};

extern const struct wire_cap_message wire_batch_caps, wire_request_caps, wire_reply_batch_caps;

/*
 * 0 or STATUS_MALFORMED; then *out_what names the field (static text). Hot path: no allocation.
 *
 * A bad envelope is answered once, with request id 0; a bad request with its own id, and the others
 * of its batch are carried out. wire_batch_check() is both, over all requests. A request without a
 * verb passes: it has one of a newer minor, and the answer is UNSUPPORTED.
 */
int wire_envelope_check(const Kvpool__Wire__Batch *batch, const char **out_what);
int wire_request_check(const Kvpool__Wire__Request *request, const char **out_what);
int wire_batch_check(const Kvpool__Wire__Batch *batch, const char **out_what);
int wire_reply_check(const Kvpool__Wire__ReplyBatch *batch, const char **out_what);
