/* pool/internal.h - (internal) the pool itself, and what its files ask of each other. */
#pragma once

#include <assert.h>
#include <errno.h>

#include "pool/age.h"
#include "pool/index.h"
#include "pool/records.h"

enum { MAX_PLACEMENTS = 32, MAX_DEVICES = POOL_MAX_DEVICES + POOL_NUM_TIERS - 1 };

/* Records of one kind: taken from a free list, else from the untouched rest of their array. */
struct record_pool {
    uint32_t capacity, num_touched, num_used, first_free;
};

/* Counters by name: pool/stats.c has the table. */
struct counters {
    uint64_t query_tokens, hit_tokens, sliding_lost_tokens;
    uint64_t allocations, refused_no_blocks, refused_quota, refused_never_fits, refused_limit;
    uint64_t evictions, granules_moved, copies, failed_copies, merged, unpublished_in_place;
    uint64_t preemptions, forks, token_mismatches, stale_completions;
    uint64_t arriving_waits, arriving_hits, arriving_misses, arriving_timeouts;
    uint64_t steps, steps_abandoned;
    uint64_t promotion_waits, promotion_retries, promotion_timeouts;
};

enum plan_step_kind {
    PLAN_DETACH_IDLE, /* (undo only) a slot of an idle granule of the asker's is used */
    PLAN_DETACH_HELD, /* (undo only) a slot of a wholly unheld granule is used */
    PLAN_DROP_IDLE,   /* an idle granule of another arena gives its pages back */
    PLAN_DROP_CACHED, /* a wholly unheld granule is emptied and gives its pages back */
    PLAN_OPEN,        /* the arena gets a granule */
    PLAN_FOR,         /* what follows is for this payer */
    PLAN_TAKE_SLOT,   /* this free slot is taken */
    PLAN_TAKE_FRESH,  /* the arena's next slot of a granule opened here is taken */
    PLAN_EVICT        /* this slot's block is evicted, and the slot taken */
};

struct plan_step {
    uint32_t kind, id;
};

/* How new slots will be had: see plan.c. */
struct plan {
    uint64_t number;
    enum pool_tier tier; /* that all its slots are of */
    struct plan_step *steps;
    uint32_t num_steps, max_steps;
    pool_payer payer;
    uint64_t limit;       /* the payer's, or POOL_UNLIMITED to ask what else is in the way */
    int64_t slot_records; /* that are left at this point of the plan */
    bool has_met_limit;   /* something of the payer's own had to go for its limit */
};

/* Stamps for what is restored: older than all others. */
#define COLD_STAMPS (UINT64_C(1) << 40)

struct pool {
    struct pool_config config;
    struct device devices[MAX_DEVICES];
    uint32_t num_devices; /* those of the configuration, and one for each tier below */
    struct tier tiers[POOL_NUM_TIERS];
    uint32_t num_tiers;   /* that there are */
    uint32_t found_tiers; /* bit set: a place there makes a block found */
    struct placement placements[MAX_PLACEMENTS];
    uint32_t num_placements;

    struct block *blocks;
    uint32_t *block_tokens; /* ids of each block; or 2 words of hash for over 32 tokens */
    uint32_t token_stride;  /* words */
    struct slot *slots;
    struct arena *arenas;
    struct shelf *shelves;
    struct payer *payers;
    struct account *accounts;     /* [payer][device] */
    struct granule_order *orders; /* [payer][placement] */
    uint8_t *rights;              /* [domain][tenant]: enum pool_right */
    uint64_t *evictions;          /* [causer][sufferer] */
    struct model *models;
    struct sequence *sequences;
    struct session *sessions;
    struct step *steps;
    uint32_t *step_rows; /* [step][row]: sequences */
    struct transfer *transfers;
    struct waiter *waiters;
    struct chunk_store *token_chunks, *table_chunks;

    struct record_pool block_pool, slot_pool, arena_pool, shelf_pool, payer_pool, model_pool,
        sequence_pool, session_pool, step_pool, transfer_pool, waiter_pool;
    struct index key_index, sequence_index, granule_index;

    uint32_t tournament_size;
    bool is_draining;
    uint64_t stamp, batch, now_ms;
    struct ages ages;
    uint64_t cold_stamp;   /* counts down: slots that were restored are older than all others */
    uint32_t demote_arena; /* where demote.c goes on */
    uint32_t restore_at;   /* the slot that was restored last */
    uint32_t generation;
    uint64_t sweeps_pending;  /* blocks that a clear left to pool_advance() */
    struct list ending;       /* sessions that end */
    struct list waiting;      /* waiters */
    struct list promoting;    /* sequences that wait for promotions */
    uint32_t num_holding;     /* sequences with a block */
    uint32_t num_tail_copies; /* transfers of the kind that has a deadline */
    pool_session taking_from; /* see session_taking() */

    struct plan plan;
    uint32_t *hits;     /* scratch [group][position]: matched blocks */
    pool_payer *givers; /* scratch of evict.c */
    uint32_t *fresh;    /* scratch: slots taken, in the order in which they were wanted */
    uint64_t max_fresh;
    uint32_t *path, *token_path; /* scratch: chunks of a table and of token ids, first to last */
    struct want *wants;          /* scratch: of the rows of a step */
    struct grow_row *grow_rows;  /* scratch: the rows of a step */
    struct counters counters;
    uint64_t bytes;
};

/* The next free record, or NONE. @links is where records keep their links. */
uint32_t record_take(struct record_pool *records, struct links links);
void record_give(struct record_pool *records, struct links links, uint32_t id);
static inline uint32_t records_left(const struct record_pool *records)
{
    return records->capacity - records->num_used;
}

void emit(struct pool *pool, const struct pool_effect *effect);
void emit_reply(struct pool *pool, uint64_t cookie, int answer);

/* What callers see of a record that is used again and again: its generation, then its index. */
static inline uint64_t public_id(uint32_t generation, uint32_t id)
{
    return (uint64_t)generation << 32 | id;
}

static inline struct account *account_of(const struct pool *pool, pool_payer payer, uint32_t device)
{
    return &pool->accounts[(size_t)payer * pool->num_devices + device];
}
static inline struct granule_order *order_of(const struct pool *pool, pool_payer payer,
                                             uint32_t placement)
{
    return &pool->orders[(size_t)payer * MAX_PLACEMENTS + placement];
}
static inline bool placement_has(const struct pool *pool, uint32_t placement, uint32_t device)
{
    return pool->placements[placement].devices >> device & 1;
}
/* Slot records that a tier may still have. */
static inline uint64_t tier_slots_left(const struct pool *pool, enum pool_tier tier)
{
    return pool->tiers[tier].max_slots - pool->tiers[tier].num_slots;
}
static inline bool payer_exists(const struct pool *pool, pool_payer payer)
{
    return payer < pool->payer_pool.num_used;
}
static inline bool model_exists(const struct pool *pool, pool_model model)
{
    return model < pool->model_pool.num_used;
}
