/*
 * daemon/sequences.h - what the daemon knows of a sequence beside the pool: where its keys start.
 *
 * One record for each sequence of the pool, found by (session, sequence id). Blocks that it fills
 * later are named from @root, or from the key before them. What else the K and V of its last,
 * partial block depend on (an extra of the prompt) is kept until that block is full.
 */
#pragma once

#include "pool/pool.h"
#include "proto/key.h"

#include <stdbool.h>
#include <stdint.h>

enum { SEQUENCE_MAX_EXTRA = 64 /* bytes of the extra of a block that the prompt does not fill */ };

struct sequence_record {
    uint64_t id;
    uint32_t session;      /* index of the daemon's session */
    uint32_t next, before; /* in its session; next: of the free ones too */
    uint32_t next_hashed;
    struct key root, shared_root;
    bool has_shared, has_extras;
    bool is_tail_kept; /* @tail_extra is that of position end_extras - 1 */
    uint8_t tail_extra_bytes;
    uint32_t end_extras; /* positions from here on have no extras */
    uint8_t tail_extra[SEQUENCE_MAX_EXTRA];
};

struct sequences {
    struct sequence_record *records;
    uint32_t *buckets;
    uint32_t max, mask, first_free, num_used;
};

int sequences_init(struct sequences *sequences, uint32_t max);
void sequences_finish(struct sequences *sequences);

struct sequence_record *sequences_find(const struct sequences *sequences, uint32_t session,
                                       uint64_t id);
/* NULL: all are in use. @list is the session's head. */
struct sequence_record *sequences_add(struct sequences *sequences, uint32_t *list, uint32_t session,
                                      uint64_t id);
void sequences_remove(struct sequences *sequences, uint32_t *list, struct sequence_record *record);
/* Returns how many there were. */
uint32_t sequences_remove_all(struct sequences *sequences, uint32_t *list);
