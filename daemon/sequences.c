/* daemon/sequences.c - records by (session, id): chained hashing over arrays taken at start. */
#include "daemon/sequences.h"

#include <errno.h>
#include <stdlib.h>

#define NONE UINT32_MAX

int sequences_init(struct sequences *sequences, uint32_t max, uint64_t max_extra_bytes,
                   struct share *share)
{
    uint32_t size = 1;

    while (size < max)
        size *= 2;
    sequences->max = max;
    sequences->mask = size - 1;
    sequences->records = calloc(max, sizeof(*sequences->records));
    sequences->buckets = calloc(size, sizeof(*sequences->buckets));
    if (!sequences->records || !sequences->buckets)
        return -ENOMEM;
    for (uint32_t at = 0; at < size; at++)
        sequences->buckets[at] = NONE;
    sequences->first_free = NONE;
    for (uint32_t at = max; at-- > 0;) {
        sequences->records[at].next = sequences->first_free;
        sequences->first_free = at;
    }
    return extras_init(&sequences->extras, max_extra_bytes, share);
}

void sequences_finish(struct sequences *sequences)
{
    free(sequences->records);
    free(sequences->buckets);
    extras_finish(&sequences->extras);
}

static uint32_t *bucket_of(const struct sequences *sequences, uint32_t session, uint64_t id)
{
    uint64_t mixed = (id ^ (uint64_t)session << 40) * UINT64_C(0x9E3779B97F4A7C15);

    return &sequences->buckets[(mixed ^ mixed >> 32) & sequences->mask];
}

struct sequence_record *sequences_find(const struct sequences *sequences, uint32_t session,
                                       uint64_t id)
{
    for (uint32_t at = *bucket_of(sequences, session, id); at != NONE;) {
        struct sequence_record *record = &sequences->records[at];
        if (record->id == id && record->session == session)
            return record;
        at = record->next_hashed;
    }
    return NULL;
}

struct sequence_record *sequences_add(struct sequences *sequences, uint32_t *list, uint32_t session,
                                      uint64_t id)
{
    uint32_t at = sequences->first_free;

    if (at == NONE)
        return NULL;
    struct sequence_record *record = &sequences->records[at];
    uint32_t *bucket = bucket_of(sequences, session, id);
    sequences->first_free = record->next;
    *record = (struct sequence_record){.id = id,
                                       .session = session,
                                       .next = *list,
                                       .before = NONE,
                                       .next_hashed = *bucket,
                                       .extras = EXTRAS_NONE};
    if (*list != NONE)
        sequences->records[*list].before = at;
    *list = at;
    *bucket = at;
    sequences->num_used++;
    return record;
}

void sequences_remove(struct sequences *sequences, uint32_t *list, struct sequence_record *record)
{
    uint32_t at = (uint32_t)(record - sequences->records);
    uint32_t *link = bucket_of(sequences, record->session, record->id);

    while (*link != at)
        link = &sequences->records[*link].next_hashed;
    *link = record->next_hashed;
    if (record->next != NONE)
        sequences->records[record->next].before = record->before;
    if (record->before != NONE)
        sequences->records[record->before].next = record->next;
    else
        *list = record->next;
    extras_give(&sequences->extras, record->extras);
    record->next = sequences->first_free;
    sequences->first_free = at;
    sequences->num_used--;
}

uint32_t sequences_remove_all(struct sequences *sequences, uint32_t *list)
{
    uint32_t count = 0;

    for (; *list != NONE; count++)
        sequences_remove(sequences, list, &sequences->records[*list]);
    return count;
}
