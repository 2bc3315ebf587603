/*
 * pool/records.h - (internal) the records of the pool, and how they hang together.
 *
 *   session ---< sequence >--- payer (tenant, domain), model
 *                   |  one table per layer group, in token order
 *                   v
 *                block: key, state, holds ---< place: one slot of a tier
 *                   |
 *                arena (domain, model, group, tier): slots, by granule
 *   transfer: one block, from a slot, to a slot
 *
 * Records live in arrays taken at start and are named by index; NONE is no record.
 */
#pragma once

#include "pool/list.h"
#include "pool/pool.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* ---- blocks and slots ----------------------------------------------------------------------- */

enum block_state {
    BLOCK_GONE = 0, /* the record is free */
    BLOCK_PRIVATE,  /* being filled, or filled, in one or more tables; no key, not findable */
    BLOCK_PUBLISHED /* has a key and is in the index; held, or at least one tier has it */
};

/* Of a block in one tier. */
enum place_state {
    PLACE_ABSENT = 0, /* no copy there; or (it has a slot) the copy into it failed */
    PLACE_INCOMING,   /* a transfer writes it: cannot be read */
    PLACE_PRESENT     /* can be read */
};

/* 64 bytes, and its token ids beside it: a hit touches these two lines, and those of its slot. */
struct block {
    union {
        struct pool_key key; /* PUBLISHED; PRIVATE and promised: the key it will get */
        struct link link;    /* GONE */
    };
    uint32_t state : 2;           /* enum block_state */
    uint32_t present : 3;         /* bit set of tiers: PLACE_PRESENT there */
    uint32_t incoming : 3;        /* bit set of tiers: PLACE_INCOMING there */
    uint32_t is_promised : 1;     /* PRIVATE, in the index for single flight */
    uint32_t is_told_removed : 1; /* from before a clear: its key was removed and stored anew */
    uint32_t is_wanted : 1;       /* somebody wants it to be stored below */
    uint32_t is_unwanted : 1;     /* a publisher wants it not to be, whoever else does */
    uint32_t is_reused : 1;       /* an allocation hit it */
    uint32_t : 19;
    uint32_t holds;                /* table chunks that have it; see chunks.h */
    uint32_t slot[POOL_NUM_TIERS]; /* slot record of each place, or NONE */
    uint32_t filler;               /* promised: the sequence that fills it */
    uint32_t epoch;                /* of its arena's shelf when its first slot was taken */
    uint16_t arena;                /* the device's, whether it has a slot there or not */
};
_Static_assert(sizeof(struct block) == 64, "one cache line");

/* Where an unused or wholly unheld granule waits: see granule_order.h. */
enum granule_where { GRANULE_NOWHERE = 0, GRANULE_IDLE, GRANULE_IN_LIST, GRANULE_IN_TREE };

/* Stands in the record of its lowest slot, and is named by that one's index. */
struct granule {
    struct __attribute__((packed, aligned(4))) {
        uint64_t hottest : 48; /* waiting: the largest stamp of its blocks; idle: since when */
        uint64_t arena : 16;
    };
    uint32_t index;           /* in the arena */
    uint32_t num_busy : 30;   /* slots that are neither free nor cached */
    uint32_t where : 2;       /* enum granule_where */
    uint32_t num_cached : 30; /* slots with an evictable block that no transfer reads */
    uint32_t is_planned : 2;  /* scratch of plan.c */
    union {
        struct link link; /* GRANULE_IDLE, GRANULE_IN_LIST */
        struct {
            uint32_t left, right; /* GRANULE_IN_TREE */
        };
    };
};

enum slot_state {
    SLOT_FREE = 0,   /* in the arena's free list */
    SLOT_TAKEN,      /* has a block, or will have one before the verb ends */
    SLOT_QUARANTINED /* no block, but a transfer or somebody outside may still touch it */
};

enum { MAX_READERS = 2047 };

struct slot {
    uint64_t stamp : 48;       /* when it became evictable; orders slots of different arenas */
    uint64_t state : 2;        /* enum slot_state */
    uint64_t is_evictable : 1; /* in its arena's eviction list */
    uint64_t is_incoming : 1;  /* a transfer writes it */
    uint64_t is_passed : 1;    /* evictable: demote.c has looked at it */
    uint64_t num_readers : 11; /* transfers that read it: it stays where it is, and is skipped */
    uint32_t granule;          /* slot record of its granule's lowest slot */
    uint32_t number;           /* block id in its arena: what tables hold */
    uint32_t generation;       /* changes whenever the slot is given to another block */
    uint32_t next_in_granule;  /* the granule's slots, ascending */
    uint32_t block;            /* TAKEN */
    /*
     * FREE: the arena's free list. Evictable: the arena's eviction list. Written by a transfer:
     * next is the transfer. QUARANTINED, by a transfer: prev is the session that it was taken
     * from; else that session's list.
     */
    struct link link;
    struct granule first_of; /* the granule whose lowest slot it is; all 0 if it is not */
};
_Static_assert(sizeof(struct slot) == 64,
               "one cache line: with one slot a granule, a hit touches it");

/* ---- granules and arenas -------------------------------------------------------------------- */

struct arena {
    uint32_t shelf; /* its (domain, model) */
    uint16_t group;
    uint8_t placement;
    uint8_t tier;          /* enum pool_tier */
    uint32_t pages, slots; /* of a granule; no slots: the group is not kept in this tier */
    struct list evictable; /* slots, coldest first */
    struct list free;      /* slots, next to be taken first */
    uint32_t num_free, num_evictable, num_held, num_reserved, num_quarantined;
    uint32_t num_stale;              /* evictable, from before a clear: at the head of the list */
    uint32_t num_granules, num_idle; /* committed; of them, without a block */
    uint32_t lowest_hint;            /* no granule index below it is unused */
    uint32_t demote_next;  /* the first evictable slot that demote.c has not looked at, or NONE */
    uint32_t num_passed;   /* those before it */
    bool is_full;          /* the last block that was to be stored here found no slot */
    uint32_t batch;        /* last slot that this batch of a release put into the free list ... */
    uint64_t batch_number; /* ... if it is this batch */
    /* Scratch of plan.c, valid while plan_number is the plan's. */
    uint64_t plan_number;
    uint32_t plan_free, plan_evictable; /* cursors into the two lists */
    uint32_t plan_ahead, plan_behind;   /* blocks that prefetch_victims() goes on with */
    uint32_t plan_fresh;                /* slots left of granules it opens */
    uint32_t fresh_next;                /* the first of them, while it is carried out */
};

/* What one domain has of one model: an arena for each group in each tier, and one epoch. */
struct shelf {
    pool_payer domain;
    pool_model model;
    uint32_t epoch;
    uint32_t first_arena; /* its groups' arenas follow one another, tier after tier */
    uint32_t next;        /* of the same domain */
};

/* The devices of an arena's parts. Arenas with the same devices share one. */
struct placement {
    uint32_t devices; /* bit set */
    struct list idle; /* granules without a block, idle longest first */
};

/* A device; or a tier below, which is one device more. */
struct device {
    enum pool_tier tier;
    uint64_t pages, watermark;
    uint64_t free_pages, idle_pages; /* uncommitted; in idle granules */
    uint64_t unheld_pages;           /* in granules of cached blocks only */
    uint64_t takeable_pages;         /* sum over payers of account_takeable() */
    uint32_t *winners;               /* tournament over payers by their share, see payer.c */
};

/* A tier that the pool has; the device tier is all devices. */
struct tier {
    bool is_there;
    uint32_t mode;      /* enum pool_tier_mode */
    uint32_t row;       /* its arenas in a shelf: how many tiers come before it */
    uint32_t placement; /* below the device: of all its arenas */
    uint32_t first_device, end_device;
    uint64_t max_slots, num_slots; /* slot records: of the configuration; of its granules */
    bool has_shared_granules;      /* some group has several blocks in a granule */
    uint32_t granule_pages;        /* of all groups' granules, while they are the same */
    bool has_mixed_pages;          /* they are not */
    uint64_t total_weight;         /* of all payers */
    uint64_t store_bytes;          /* being stored there */
    uint64_t being_read;           /* of its memory, what stores below read: see share_of() */
    int64_t store_credit;          /* bytes x 1000 that may be stored now */
    uint64_t stores_started, stores_done, stores_failed;
    uint64_t promotions_started, promotions_done, promotions_failed;
    uint64_t hit_tokens, evictions;
    uint64_t skipped[POOL_NUM_SKIPS];
};

/* ---- payers --------------------------------------------------------------------------------- */

/* What a payer has on one device, in pages. */
struct account {
    uint64_t charged;  /* granules with a block */
    uint64_t unheld;   /* granules with cached blocks only */
    uint64_t takeable; /* its part in the device's takeable_pages */
};

/* Its wholly unheld granules of one placement, ordered by their hottest block. */
struct granule_order {
    struct list list; /* ascending; new ones nearly always go to the tail */
    uint32_t root;    /* a treap for those that do not */
};

struct payer {
    bool is_domain;
    struct pool_quota quota[POOL_NUM_TIERS];
    uint32_t first_shelf;
    uint64_t evictions_suffered, evictions_caused;
    uint64_t query_tokens, hit_tokens;
};

struct model {
    struct pool_model_shape shape;
    uint32_t placement;
    uint32_t token_positions, table_positions; /* of a chunk */
};

/* ---- sequences ------------------------------------------------------------------------------ */

enum session_state {
    SESSION_FREE = 0,
    SESSION_LIVE,
    SESSION_ENDING, /* lets go of its sequences, slice by slice */
    SESSION_ENDED   /* only its quarantine is left */
};

struct session {
    struct link link; /* not live: the list of sessions that end */
    uint32_t state;   /* enum session_state */
    bool is_manual_publish;
    bool is_attached;
    enum pool_store store;
    uint32_t num_sequences;
    struct list sequences;   /* in the order in which they were made */
    struct list quarantined; /* slots */
    struct list steps;
};

/* A verb that waits for the attends of a step that ended. */
enum waiting_verb { WAITING_NONE = 0, WAITING_TRUNCATE, WAITING_RELEASE, WAITING_PREEMPT };

/* Tokens that were appended and are not complete, and how to take them back. */
struct growth {
    uint64_t old_length;
    uint64_t new_complete;
    uint64_t cookie;
    uint32_t num_copies;                 /* under way */
    uint32_t old_tails[POOL_MAX_GROUPS]; /* blocks that are being copied; NONE */
    bool has_failed;
};

/* An allocation or resume that waits for blocks that are on their way up: see promote.c. */
struct promotion {
    bool is_waiting, is_resume;
    struct link link;  /* of all that wait */
    uint32_t transfer; /* whose waiter it is: that of its last block that is not present */
    struct link in_transfer;
    uint64_t cookie, deadline_ms;
    uint64_t length;                     /* a resume's: tokens that it keeps */
    uint64_t query_tokens;               /* what is counted once it is granted */
    uint32_t hits[POOL_NUM_TIERS], lost; /* positions */
    uint32_t num_positions;              /* all blocks at and behind it are present */
};

struct sequence {
    uint64_t id;
    pool_session session;
    struct link in_session;
    pool_payer tenant, domain, shared;
    pool_model model;
    uint32_t shelf, shared_shelf;
    uint32_t epoch, shared_epoch;
    uint64_t length;        /* tokens */
    uint64_t num_complete;  /* tokens of which every layer has K and V */
    uint64_t num_prompt;    /* tokens that were allocated, or preempted */
    uint32_t num_shared;    /* leading positions in the shared domain's arenas */
    uint32_t considered;    /* positions that publish has looked at */
    uint32_t num_promised;  /* positions below it may be promised to others: see arriving.h */
    uint32_t num_positions; /* of its tables; 0 while preempted */
    uint32_t token_chunk, table_chunk;    /* the last ones; NONE */
    uint32_t first_kept[POOL_MAX_GROUPS]; /* positions before it are out of the window */
    bool is_used, is_raw, is_mapped, is_filled, is_preempted;
    bool is_growing;      /* an append waits for copies */
    uint32_t step;        /* that it is in, or NONE */
    uint32_t num_waiters; /* requests that wait for what it fills */
    struct growth growth;
    struct promotion promotion;
    uint32_t waiting_verb; /* enum waiting_verb */
    uint64_t waiting_argument, waiting_cookie;
};

enum step_state {
    STEP_FREE = 0,
    STEP_COPYING, /* shared tails are being copied: may not attend yet */
    STEP_OPEN,    /* attends */
    STEP_ENDING   /* ended, attends still run */
};

struct step {
    struct link link;    /* of its session */
    uint32_t generation; /* changes whenever the record is used again */
    uint32_t state;      /* enum step_state */
    pool_session session;
    uint32_t num_rows, num_copies, num_running;
    bool is_commit, has_cookie;
    int answer; /* of a commit that waited for attends */
    uint64_t cookie;
    uint32_t num_layers, num_layers_done;
    uint64_t layers_done[POOL_MAX_LAYERS / 64];
};

enum transfer_kind {
    TRANSFER_COPY,   /* of a tail, on write: from one block to another, both on a device */
    TRANSFER_DEMOTE, /* of a block, to a tier below */
    TRANSFER_PROMOTE /* of a block, to the device */
};

struct transfer {
    struct link link;
    uint32_t generation; /* changes whenever the record is used again */
    uint32_t from, to;   /* slots; they lose their blocks if those do not wait */
    uint32_t kind;       /* enum transfer_kind */
    uint64_t deadline_ms;
    uint32_t sequence;   /* COPY: that waits for it; NONE: nobody does any more */
    struct list waiters; /* PROMOTE: sequences */
    bool is_used;
};

/* A request that waits for what @filler fills, up to @position. */
struct waiter {
    struct link link;
    uint32_t filler;
    uint32_t position;
    pool_session session;
    uint64_t deadline_ms, cookie;
    bool is_used;
};
