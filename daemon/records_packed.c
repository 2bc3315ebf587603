/*
 * daemon/records_packed.c - a record as bytes that stand for themselves, on a disk: little-endian,
 * all fields in the order below, then the words of the form. What lies around it has the checksum.
 */
#include "daemon/records.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    PACKED_MAGIC = 0x5250564b, /* "KVPR" */
    PACKED_VERSION = 1,
    PACKED_FIXED = 8 * 4 + 2 * 8 + 4 * RECORD_ID_BYTES, /* bytes before the form */
    HAS_PARENT = 1,
    IS_STORABLE = 2,
    IS_GENERATED = 4
};

static_assert(PACKED_FIXED + RECORD_MAX_FORM * 4 <= RECORD_MAX_PACKED, "the longest one fits");

/* Reads or writes: both are the same walk. */
struct cursor {
    uint8_t *out;
    const uint8_t *in;
};

static void number(struct cursor *at, uint64_t *value, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        if (at->out)
            *at->out++ = (uint8_t)(*value >> 8 * i);
        else
            *value |= (uint64_t)*at->in++ << 8 * i;
    }
}

static void word(struct cursor *at, uint32_t *value)
{
    uint64_t wide = at->out ? *value : 0;

    number(at, &wide, sizeof(*value));
    *value = (uint32_t)wide;
}

static void long_word(struct cursor *at, uint64_t *value)
{
    if (at->in)
        *value = 0;
    number(at, value, sizeof(*value));
}

static void bytes(struct cursor *at, uint8_t value[RECORD_ID_BYTES])
{
    if (at->out) {
        memcpy(at->out, value, RECORD_ID_BYTES);
        at->out += RECORD_ID_BYTES;
    } else {
        memcpy(value, at->in, RECORD_ID_BYTES);
        at->in += RECORD_ID_BYTES;
    }
}

struct prefix {
    uint32_t magic, version, flags;
};

/* All that comes before the form. */
static void walk(struct cursor *at, struct prefix *prefix, struct record_place *place,
                 struct record *record)
{
    word(at, &prefix->magic);
    word(at, &prefix->version);
    word(at, &prefix->flags);
    word(at, &place->group);
    word(at, &place->format);
    word(at, &record->generation);
    word(at, &record->num_tokens);
    word(at, &record->num_form);
    long_word(at, &record->extra);
    long_word(at, &record->epoch);
    bytes(at, place->domain);
    bytes(at, place->model);
    bytes(at, record->key);
    bytes(at, record->parent);
}

size_t record_pack(const struct record_place *place, const struct record *record,
                   uint8_t out[RECORD_MAX_PACKED])
{
    struct cursor at = {.out = out};
    struct record_place place_copy = *place;
    struct record copy = *record;
    struct prefix prefix = {PACKED_MAGIC, PACKED_VERSION,
                            (record->has_parent ? HAS_PARENT : 0) |
                                (record->is_storable ? IS_STORABLE : 0) |
                                (record->is_generated ? IS_GENERATED : 0)};

    if (!record->has_parent)
        memset(copy.parent, 0, sizeof(copy.parent));
    walk(&at, &prefix, &place_copy, &copy);
    for (uint32_t i = 0; i < copy.num_form; i++)
        word(&at, &copy.form[i]);
    return (size_t)(at.out - out);
}

int record_unpack(const void *packed, size_t num_bytes, struct record_place *out_place,
                  struct record *out_record)
{
    static const uint8_t none[RECORD_ID_BYTES];
    struct cursor at = {.in = packed};
    struct record_place place = {0};
    struct record record = {0};
    struct prefix prefix = {0};

    if (num_bytes < 8)
        return -EBADMSG;
    word(&at, &prefix.magic);
    word(&at, &prefix.version);
    if (prefix.magic != PACKED_MAGIC)
        return -EBADMSG;
    if (prefix.version != PACKED_VERSION)
        return -EPROTONOSUPPORT;
    if (num_bytes < PACKED_FIXED)
        return -EBADMSG;
    at.in = packed;
    walk(&at, &prefix, &place, &record);
    if ((prefix.flags & ~(uint32_t)(HAS_PARENT | IS_STORABLE | IS_GENERATED)) != 0 ||
        record.num_form > RECORD_MAX_FORM ||
        num_bytes != PACKED_FIXED + record.num_form * sizeof(record.form[0]))
        return -EBADMSG;
    record.has_parent = (prefix.flags & HAS_PARENT) != 0;
    record.is_storable = (prefix.flags & IS_STORABLE) != 0;
    record.is_generated = (prefix.flags & IS_GENERATED) != 0;
    if (!record.has_parent && memcmp(record.parent, none, sizeof(none)) != 0)
        return -EBADMSG;
    for (uint32_t i = 0; i < record.num_form; i++)
        word(&at, &record.form[i]);
    *out_place = place;
    *out_record = record;
    return 0;
}
