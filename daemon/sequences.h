/*
 * daemon/sequences.h - what the daemon knows of a sequence beside the pool: where its keys start.
 *
 * One record for each sequence of the pool, found by (session, sequence id). Blocks that it fills
 * later are named from @root, or from the key before them, with the extras that its prompt had for
 * them.
 */
#pragma once

#include "daemon/extras.h"
#include "pool/pool.h"
#include "proto/key.h"

#include <stdbool.h>
#include <stdint.h>

struct sequence_record {
    uint64_t id;
    uint32_t session;      /* index of the daemon's session */
    uint32_t next, before; /* in its session; next: of the free ones too */
    uint32_t next_hashed;
    struct key root, shared_root;
    bool has_shared;
    uint32_t extras;     /* the prompt's set, one use of it; or EXTRAS_NONE */
    uint32_t end_extras; /* positions from here on have none, whatever the set has */
};

struct sequences {
    struct sequence_record *records;
    uint32_t *buckets;
    uint32_t max, mask, first_free, num_used;
    struct extras extras; /* those of the records: given back with them */
};

/* @share is that of the extras. */
int sequences_init(struct sequences *sequences, uint32_t max, uint64_t max_extra_bytes,
                   struct share *share);
void sequences_finish(struct sequences *sequences);

struct sequence_record *sequences_find(const struct sequences *sequences, uint32_t session,
                                       uint64_t id);
/* NULL: all are in use. @list is the session's head. */
struct sequence_record *sequences_add(struct sequences *sequences, uint32_t *list, uint32_t session,
                                      uint64_t id);
void sequences_remove(struct sequences *sequences, uint32_t *list, struct sequence_record *record);
/* Returns how many there were. */
uint32_t sequences_remove_all(struct sequences *sequences, uint32_t *list);
