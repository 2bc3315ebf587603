/*
 * daemon/lower.h - what the pool keeps below the device: granules of the host's and the disk's
 * arenas, and copies between tiers.
 *
 *  T1  A granule that the pool gave back is given back below before it has memory again.
 *  T2  A copy is handed on only when the granules of both its slots have memory, and is told back
 *      to the pool once, when nothing touches either slot's bytes any more.
 *  T3  Nothing but what asked for a copy waits for it: stores that do not get through in time fail,
 *      and so does what a granule that cannot be had would hold.
 *  T4  What is read from a lower tier is what was written there for this record, or the copy fails:
 *      offload/ verifies it.
 */
#pragma once

#include "daemon/effects.h"
#include "daemon/records.h"
#include "daemon/tier_disk.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct host_tier;

struct lower_granule {
    uint8_t memory; /* enum granule_memory */
    bool is_wanted; /* the pool has it */
    bool must_leave;
    bool is_queued;
    uint32_t number; /* of the disk: its granule there */
};

/* An arena below the device, by the pool's number. */
struct lower_arena {
    bool is_open;
    uint8_t tier;
    uint32_t max_granules, slots, stride_bytes; /* slots: of a granule */
    uint32_t next_claim;                        /* granules before it are not to be restored */
    uint64_t block_bytes;
    pool_payer domain;
    pool_model model;
    struct record_place place;
    struct lower_granule *granules;
};

/* A copy with an end below the device, by the pool's record of it. */
struct lower_copy {
    pool_transfer transfer;
    uint32_t from_arena, from_slot, arena, slot;
    uint64_t since_ms;
    uint16_t record_bytes;
    uint8_t record[RECORD_MAX_PACKED]; /* of what goes to disk */
};

enum { LOWER_FETCH, LOWER_STORE, NUM_LOWER_QUEUES };

struct lower_counters {
    uint64_t commits, decommits, failed_commits;
    uint64_t stored_bytes, fetched_bytes; /* to this tier from above; from it, to wherever */
    uint64_t stores_late;                 /* T3 */
    uint64_t failed_stores, failed_fetches;
};

struct tiers {
    bool is_on; /* there is a tier below the device */
    uint32_t num_arenas;
    struct lower_arena *arenas;
    uint8_t *tier_of; /* of each arena: 1 + its tier, once it is known */
    struct lower_copy *copies;
    uint32_t *queued[POOL_NUM_TIERS][NUM_LOWER_QUEUES]; /* copies, by the lower tier of the two */
    struct fifo queues[POOL_NUM_TIERS][NUM_LOWER_QUEUES];
    struct granule_ref *granule_work;
    struct fifo granule_fifo;
    uint32_t num_under_way; /* copies told by the pool, not told back */
    bool has_waiting;       /* something was not taken when it was last tried */
    struct host_tier *host;
    struct source host_source;
    struct tier_disk disk;
    struct lower_counters counters[POOL_NUM_TIERS];
};

/* Which tiers the configuration has, as the pool is told, and the arenas of all of them. */
void lower_configure(const struct config *config, struct pool_config *out_pool);
uint32_t lower_max_arenas(const struct config *config);
/* The shapes of a group's granules in each tier; of the device's: @granule. */
void lower_shape(const struct config *config, uint64_t block_bytes,
                 const struct gpu_granule *granule, struct pool_group *out_group);

int lower_init(struct server *server);
void lower_finish(struct server *server);

/* An effect of an arena below the device, or a copy with an end there: whether it was one. */
bool lower_emit(struct server *server, const struct pool_effect *effect);

/* Hands on what can be; whether anything ended. */
bool lower_run(struct server *server);
/* About ten times a second while lower_is_busy(), else once a second. */
void lower_tick(struct server *server);
static inline bool lower_is_busy(const struct tiers *tiers)
{
    return tiers->num_under_way > 0 || tiers->has_waiting || tier_disk_is_busy(&tiers->disk);
}

/* ---- for the tiers themselves ---- */

enum tier_cookie {
    TIER_COOKIE_GRANULE = 1,
    TIER_COOKIE_COPY = 2,
    TIER_COOKIE_FOREIGN = 3, /* a granule of the disk that is nobody's is freed */
    TIER_COOKIE_SHIFT = 60
};

/* An operation with a cookie of the above has ended. */
void lower_ended(struct server *server, uint64_t cookie, int status);
/* A copy between the device and the host has. */
void lower_copy_ended(struct server *server, uint32_t copy, int status);

/* Whose blocks of a group are, as it is written beside them. -errno. */
int lower_place(struct server *server, pool_payer domain, pool_model model, uint32_t group,
                struct record_place *out_place);

/* The arena of a tier whose blocks have this place. False: of nobody whom this daemon knows. */
bool lower_find(struct server *server, const struct record_place *place, enum pool_tier tier,
                uint32_t *out_number);

/* What is kept of a block beside its bytes; and what the pool is told of it in the next life. */
void lower_record(struct server *server, pool_payer domain, pool_model model,
                  const struct pool_effect *effect, struct record *out_record);
struct lower_restored {
    struct record record;
    struct pool_key parent; /* that @out_restored points to */
};
void lower_restored(struct lower_restored *kept, uint32_t slot, struct pool_restored *out_restored);

enum pool_tier lower_tier_of(struct server *server, uint32_t number);

/* What is known of an arena before it is opened. -errno. */
int lower_prepare(struct server *server, uint32_t number);

/* The arena by its number, opened; NULL: it cannot be. */
struct lower_arena *lower_arena(struct server *server, uint32_t number);
