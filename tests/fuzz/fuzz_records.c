/*
 * tests/fuzz/fuzz_records.c - any bytes as a packed record: refused, or one that packs to them
 * again.
 *
 * meson runs it with tests/fuzz/driver.c, as fuzz_wire.
 */
#include "daemon/records.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    uint8_t again[RECORD_MAX_PACKED];
    struct record_place place;
    struct record record;

    if (record_unpack(bytes, num_bytes, &place, &record))
        return 0;
    if (record_pack(&place, &record, again) != num_bytes || memcmp(again, bytes, num_bytes) != 0)
        abort();
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out, size_t max)
{
    struct record_place place = {.group = 3, .format = 1};
    struct record record = {.epoch = 7, .generation = 9, .num_tokens = 16};

    if (index > 3 || max < RECORD_MAX_PACKED)
        return 0;
    record.num_form = (uint32_t)index * 10;
    record.has_parent = index % 2 == 1;
    record.is_storable = index > 1;
    memset(record.key, 0x42, sizeof(record.key));
    memset(record.parent, record.has_parent ? 0x43 : 0, sizeof(record.parent));
    return record_pack(&place, &record, out);
}
