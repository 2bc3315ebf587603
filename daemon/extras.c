/* daemon/extras.c - sets of extras: records one after the other, over a chain of chunks. */
#include "daemon/extras.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct extras_chunk {
    uint32_t next;              /* of the set, or of the free ones */
    uint32_t tenant, num_users; /* of the first one of a set, as is the next */
    uint32_t num_extras;
    uint8_t bytes[EXTRAS_CHUNK - 16];
};

/* In front of the bytes of each extra. */
struct record {
    uint32_t block, num_bytes;
};

/* Where the next byte of a set is written or read. */
struct place {
    struct extras_chunk *chunk;
    uint32_t at;
};

uint32_t extras_num_chunks(uint64_t max_bytes)
{
    return (uint32_t)(max_bytes / EXTRAS_CHUNK);
}

int extras_init(struct extras *extras, uint64_t max_bytes, struct share *share)
{
    uint32_t max = extras_num_chunks(max_bytes);

    *extras = (struct extras){.max = max, .first_free = NONE, .share = share};
    extras->chunks = calloc(max > 0 ? max : 1, sizeof(*extras->chunks));
    return extras->chunks ? 0 : -ENOMEM;
}

void extras_finish(struct extras *extras)
{
    free(extras->chunks);
    extras->chunks = NULL;
}

static uint32_t chunks_needed(const struct key_extra *list, uint32_t num)
{
    uint64_t bytes = num * sizeof(struct record);

    for (uint32_t i = 0; i < num; i++)
        bytes += list[i].num_bytes;
    return (uint32_t)((bytes + sizeof(((struct extras_chunk *)0)->bytes) - 1) /
                      sizeof(((struct extras_chunk *)0)->bytes));
}

bool extras_have_room(const struct extras *extras, pool_payer tenant, const struct key_extra *list,
                      uint32_t num)
{
    return num == 0 || share_has(extras->share, tenant, chunks_needed(list, num));
}

static uint32_t chunk_take(struct extras *extras)
{
    uint32_t at = extras->first_free;

    if (at != NONE)
        extras->first_free = extras->chunks[at].next;
    else
        at = extras->num_fresh++;
    assert(at < extras->max);
    extras->chunks[at].next = NONE;
    return at;
}

static struct extras_chunk *chunk_next(const struct extras *extras, const struct place *place)
{
    return &extras->chunks[place->chunk->next];
}

static void put(const struct extras *extras, struct place *place, const void *from, uint32_t left)
{
    for (uint32_t done = 0, part; left > 0; done += part, left -= part) {
        if (place->at == sizeof(place->chunk->bytes))
            *place = (struct place){chunk_next(extras, place), 0};
        part = (uint32_t)sizeof(place->chunk->bytes) - place->at;
        part = part < left ? part : left;
        memcpy(place->chunk->bytes + place->at, (const uint8_t *)from + done, part);
        place->at += part;
    }
}

/* @to NULL: passed over. */
static void get(const struct extras *extras, struct place *place, void *to, uint32_t left)
{
    for (uint32_t done = 0, part; left > 0; done += part, left -= part) {
        if (place->at == sizeof(place->chunk->bytes))
            *place = (struct place){chunk_next(extras, place), 0};
        part = (uint32_t)sizeof(place->chunk->bytes) - place->at;
        part = part < left ? part : left;
        if (to)
            memcpy((uint8_t *)to + done, place->chunk->bytes + place->at, part);
        place->at += part;
    }
}

uint32_t extras_keep(struct extras *extras, pool_payer tenant, const struct key_extra *list,
                     uint32_t num)
{
    uint32_t num_chunks = chunks_needed(list, num);

    if (num == 0)
        return EXTRAS_NONE;
    share_take(extras->share, tenant, num_chunks); /* X1 */
    uint32_t set = chunk_take(extras);
    for (uint32_t i = 1, last = set; i < num_chunks; i++)
        last = extras->chunks[last].next = chunk_take(extras);
    struct place place = {&extras->chunks[set], 0};
    place.chunk->tenant = tenant;
    place.chunk->num_users = 1;
    place.chunk->num_extras = num;
    for (uint32_t i = 0; i < num; i++) {
        const struct record record = {(uint32_t)list[i].block, (uint32_t)list[i].num_bytes};
        put(extras, &place, &record, sizeof(record));
        put(extras, &place, list[i].bytes, record.num_bytes);
    }
    return set;
}

void extras_share(struct extras *extras, uint32_t set)
{
    if (set != EXTRAS_NONE)
        extras->chunks[set].num_users++;
}

void extras_give(struct extras *extras, uint32_t set)
{
    uint32_t num_chunks = 0;

    if (set == EXTRAS_NONE || --extras->chunks[set].num_users > 0)
        return;
    pool_payer tenant = extras->chunks[set].tenant;
    for (uint32_t at = set, next; at != NONE; at = next, num_chunks++) {
        next = extras->chunks[at].next;
        extras->chunks[at].next = extras->first_free;
        extras->first_free = at;
    }
    share_give(extras->share, tenant, num_chunks); /* X1 */
}

uint32_t extras_copy(const struct extras *extras, uint32_t set, uint64_t first, uint64_t end,
                     struct key_extra *out, uint8_t *out_bytes)
{
    uint32_t num = 0;

    if (set == EXTRAS_NONE || first >= end)
        return 0;
    struct place place = {&extras->chunks[set], 0};
    for (uint32_t left = place.chunk->num_extras; left > 0; left--) {
        struct record record;
        get(extras, &place, &record, sizeof(record));
        if (record.block >= end)
            break; /* they ascend */
        bool is_wanted = record.block >= first;
        get(extras, &place, is_wanted ? out_bytes : NULL, record.num_bytes);
        if (!is_wanted)
            continue;
        out[num++] = (struct key_extra){
            .block = record.block, .bytes = out_bytes, .num_bytes = record.num_bytes};
        out_bytes += record.num_bytes;
    }
    return num;
}
