/*
 * tests/pool/tiers_bed.h - internal: what the random test of tiers plays around a pool.
 *
 * tiers_bed.c plays the places: slots, the records beside them and the copies between them, with
 * what every slot must have. tiers_verbs.c plays the engine. The daemon, the crashes and the list
 * of what is promised (T1 to T7) are test_tiers.c's.
 */
#pragma once

#include "pool/pool.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BLOCK = 4,
    MAX_TOKENS = 64,
    MAX_POSITIONS = MAX_TOKENS / BLOCK,
    NUM_TEXTS = 12,
    NUM_SEQUENCES = 8,
    MAX_ARENAS = 64,
    MAX_SLOTS = 128, /* of an arena */
    MAX_COPIES = 256,
    NUM_TENANTS = 2,
    NUM_MODELS = 2,
    NUM_PAYERS = NUM_TENANTS + 1, /* and one shared domain */
    GARBAGE = 1
};

/* Of the program: it outlives crashes, and so the world. */
extern struct run {
    const char *program;
    uint64_t seed, event, random_state, num_grants;
} run;

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s: seed %llu event %llu, %s:%d: %s\n", run.program,                  \
                    (unsigned long long)run.seed, (unsigned long long)run.event, __FILE__,         \
                    __LINE__, #condition);                                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

uint64_t next_random(void);
uint32_t below(uint32_t bound);
bool one_in(uint32_t n);
uint64_t mix(uint64_t hash, uint64_t word);

/* ---- what is where -------------------------------------------------------------------------- */

struct record {
    bool is_there;
    struct pool_key key;
    uint32_t form[BLOCK], generation;
    bool is_unstorable, is_generated;
};

struct slot {
    uint64_t bytes;                 /* stands for the block's K and V */
    uint32_t num_reads, num_writes; /* copies under way */
    struct record record;
};

struct copy {
    pool_transfer transfer;
    uint32_t from_arena, from_slot, arena, slot;
    uint64_t bytes; /* of the source when it began */
};

enum state { FREE, LIVE, PREEMPTED, WAITING };

struct sequence {
    enum state state, before; /* before: the verb that waits */
    pool_payer tenant, shared;
    pool_model model;
    uint32_t text;
    uint64_t count, written; /* tokens; of them, those whose full blocks have their bytes */
    bool is_unfilled, is_append;
    uint64_t cookie;
    int reply; /* POOL_PENDING: none yet */
};

extern struct world {
    struct pool *pool;
    struct slot slots[MAX_ARENAS][MAX_SLOTS];
    bool has_granule[MAX_ARENAS][MAX_SLOTS];
    struct copy copies[MAX_COPIES];
    uint32_t num_copies;
    struct sequence sequences[NUM_SEQUENCES];
    pool_session session;
    uint64_t now_ms, cookie;
    uint64_t stored[4096]; /* hashes of (arena, key) that are stored */
    uint32_t num_stored;
    uint32_t ids[MAX_TOKENS];
    struct pool_key keys[MAX_POSITIONS], shared_keys[MAX_POSITIONS];
} world;

struct pool_arena_description describe(uint32_t arena);
/* One whose granule is there. */
struct slot *slot_at(uint32_t arena, uint32_t slot);
/* With its tenants, the shared domain, the models and a session. */
void create_pool(void);

/* Its ids and keys are the world's, and there until the next call or read_*(). */
struct pool_prompt make_prompt(const struct sequence *sequence);
struct pool_name name_of(const struct sequence *sequence);
/* Compare the blocks that it wrote or was granted (T1); the first one writes the others. */
void read_and_write(struct sequence *sequence);
void read_only(struct sequence *sequence);

/* ---- verbs (tiers_verbs.c) ------------------------------------------------------------------ */

/* What waited and has a reply goes on, or is undone. */
void take_replies(void);
void do_alloc(void);
void do_resume(void);
void do_release(void);
void do_preempt(void);
void do_prefetch(void);
void do_append(void);
void do_fork(void);
void do_truncate(void);
void do_alloc_unfilled(void);
void do_cancel(void);
