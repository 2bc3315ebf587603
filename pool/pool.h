/*
 * pool/pool.h - which KV blocks and sequences exist, who holds them, what moves or goes next.
 *
 * A pure state machine: no I/O, no thread, no clock (time is an argument), no allocation after
 * pool_create(). A verb answers at once and tells the sink which effects to carry out (copies,
 * granules, replies); what the caller carried out comes back as a completion. One thread calls it.
 *
 * Every int is 0 (done), an enum pool_answer (an answer to handle here) or a negative errno.
 * Outputs are untouched unless it is 0. A refusal changes nothing: no hold, no order, no counter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

typedef uint32_t pool_payer;    /* a tenant, or a shared domain: who is charged */
typedef uint32_t pool_model;    /* a registered geometry */
typedef uint32_t pool_session;  /* one live engine */
typedef uint64_t pool_step;     /* one forward pass, while it is open; never the same again */
typedef uint64_t pool_transfer; /* one block moving, while it is under way; never the same again */

enum {
    POOL_MAX_GROUPS = 8,          /* layer groups of a model */
    POOL_MAX_DEVICES = 16,        /* devices of a pool, and ranks of a model */
    POOL_MAX_LAYERS = 512,        /* layers of a model */
    POOL_MAX_BLOCK_TOKENS = 65535 /* tokens of a block */
};

#define POOL_NONE UINT32_MAX      /* no payer, model, session ... */
#define POOL_UNLIMITED UINT64_MAX /* a limit that is none */
#define POOL_TAKE_ALL UINT64_MAX  /* take: all tokens beyond the match */

/* One value each on the wire (proto/), so that the daemon forwards them through one table. */
enum pool_answer {
    POOL_NOT_FOUND = 1, /* no such sequence, payer, model, session or readable domain */
    POOL_EXISTS,        /* the name is taken */
    POOL_INVALID,       /* not in this state, or not with these arguments */
    POOL_NEVER_FITS,    /* more than the empty pool, or the tenant's limit, can hold */
    POOL_QUOTA,         /* only the tenant's limit is in the way */
    POOL_NO_BLOCKS,     /* slots cannot be had now: retry after a release */
    POOL_LIMIT,         /* a cap of the configuration is reached */
    POOL_STALE,         /* a generation or an epoch of before */
    POOL_DRAINING,      /* no new sequences any more */
    POOL_BUSY,    /* an earlier verb of this sequence is under way: ask again after its reply */
    POOL_PENDING, /* accepted; a POOL_EFFECT_REPLY with the cookie follows, exactly once */
    POOL_MISS,    /* (replies) what was waited for will not come */
    POOL_TIMEOUT, /* (replies) the deadline passed */
    POOL_FAILED   /* (replies) a copy failed; the verb was undone */
};

/* SHA-256 name of a block: it names the whole prefix. Made by proto/, opaque here. */
struct pool_key {
    uint8_t bytes[32];
};

/* ---- configuration ------------------------------------------------------------------------ */

struct pool_device {
    uint64_t pages;     /* the budget */
    uint64_t watermark; /* pages that can still be had after an allocation */
};

enum pool_effect_kind {
    POOL_EFFECT_COMMIT,   /* granule @index of @arena gets memory; it reads as zeros */
    POOL_EFFECT_DECOMMIT, /* granule @index of @arena gives its memory back, before later effects */
    POOL_EFFECT_COPY,     /* copy a block; answer with pool_transfer_done(@transfer) */
    POOL_EFFECT_REPLY,    /* the verb that was given @cookie ends with @answer */
    POOL_EFFECT_STORED,   /* @key may be found from now on */
    POOL_EFFECT_REMOVED   /* @key is found no more */
};

struct pool_effect {
    enum pool_effect_kind kind;
    uint32_t arena;         /* see pool_arena_describe() */
    uint32_t index;         /* COMMIT, DECOMMIT: granule number in the arena */
    pool_transfer transfer; /* COPY */
    uint32_t from_arena;    /* COPY: source arena and slot; @arena and @slot are the destination */
    uint32_t from_slot;
    uint32_t slot;   /* COPY, STORED, REMOVED */
    uint64_t cookie; /* REPLY */
    int answer;      /* REPLY: 0, an enum pool_answer, or a negative errno */
    /* These are valid during the call: */
    const struct pool_key *key; /* STORED, REMOVED */
    const struct pool_key
        *parent;            /* STORED: the key of the block before it; NULL: it is the first */
    const uint32_t *tokens; /* STORED: the ids of its tokens */
    uint32_t num_tokens;
};

/* Told effects in the order in which they are to be carried out; must not call the pool. */
struct pool_sink {
    void (*emit)(void *context, const struct pool_effect *effect);
    void *context;
};

/* Caps: over each of them a verb answers POOL_LIMIT. All memory is taken by pool_create(). */
struct pool_config {
    struct pool_device devices[POOL_MAX_DEVICES];
    uint32_t num_devices;
    uint32_t max_blocks;       /* slots of all committed granules, and blocks */
    uint32_t max_block_tokens; /* of any model; token ids are kept with a block up to 32 */
    uint32_t max_sequences;
    uint32_t max_sequence_blocks; /* positions of one sequence */
    uint64_t max_tokens;          /* of all sequences together (16-token blocks) */
    uint32_t max_payers;          /* tenants and shared domains */
    uint32_t max_models;
    uint32_t max_arenas; /* (domain, model, group) that were ever used */
    uint32_t max_sessions;
    uint32_t max_transfers;
    uint32_t max_waiters;
    uint32_t max_steps;
    uint32_t max_step_rows;       /* sequences of one step */
    uint64_t transfer_timeout_ms; /* whoever waits for a copy longer gets POOL_TIMEOUT; 0: never */
    struct pool_sink sink;
};

/* Sensible caps for a pool of @max_blocks 16-token blocks, one device of @pages pages. */
void pool_config_init(struct pool_config *config, uint32_t max_blocks, uint64_t pages);

/* -ENOMEM, or -EINVAL: no device, no block, no sink, max_block_tokens out of range. */
int pool_create(const struct pool_config *config, struct pool **out_pool);
void pool_destroy(struct pool *pool);

/* Bytes that pool_create() reserved; with max_blocks this gives the bytes of a block. */
uint64_t pool_bytes(const struct pool *pool);

/* ---- payers: tenants and shared domains ----------------------------------------------------- */

/* In pages, on each device. */
struct pool_quota {
    uint64_t guarantee; /* nobody else evicts below it */
    uint64_t limit;     /* admission: held and cached; POOL_UNLIMITED for none */
    uint64_t weight;    /* share of the pool, against the sum of all weights; 1 .. 2^32 - 1 */
};

enum pool_right {
    POOL_MAY_READ = 1, /* sequences may start in the domain (layered) */
    POOL_MAY_FILL = 2  /* sequences may be made in the domain */
};

/* INVALID: weight out of range, guarantee above limit, guarantees above a device's budget. */
int pool_tenant_create(struct pool *pool, const struct pool_quota *quota, pool_payer *out_tenant);
int pool_domain_create(struct pool *pool, const struct pool_quota *quota, pool_payer *out_domain);
int pool_quota_set(struct pool *pool, pool_payer payer, const struct pool_quota *quota);

/* @rights (of enum pool_right) replace those that @tenant had in @domain. */
int pool_domain_grant(struct pool *pool, pool_payer domain, pool_payer tenant, unsigned rights);

/* ---- models and arenas ---------------------------------------------------------------------- */

struct pool_group {
    uint32_t window; /* tokens that a query sees, itself included (>= 2); 0: all */
    uint32_t pages;  /* of a granule, on each rank's device */
    uint32_t slots;  /* of a granule: blocks that fit */
};

struct pool_model_shape {
    uint32_t block_tokens;
    uint32_t num_layers;
    uint32_t num_groups;
    struct pool_group groups[POOL_MAX_GROUPS];
    uint32_t num_ranks; /* tensor-parallel; a block is present only if it is in every part */
    uint32_t ranks[POOL_MAX_DEVICES]; /* device of each rank, all different */
};

int pool_model_register(struct pool *pool, const struct pool_model_shape *shape,
                        pool_model *out_model);

struct pool_arena_description {
    pool_payer domain;
    pool_model model;
    uint32_t group;
    uint32_t slots_per_granule, pages_per_granule;
    uint32_t num_granules; /* committed, idle ones included */
};
int pool_arena_describe(const struct pool *pool, uint32_t arena,
                        struct pool_arena_description *out_description);
/* POOL_NOT_FOUND until its first allocation, or pool_arena_reserve(). */
int pool_arena_find(const struct pool *pool, pool_payer domain, pool_model model, uint32_t group,
                    uint32_t *out_arena);
/* Makes the arenas of all groups before the first allocation does. LIMIT: no more of them. */
int pool_arena_reserve(struct pool *pool, pool_payer domain, pool_model model);

/* ---- sessions ------------------------------------------------------------------------------- */

int pool_session_open(struct pool *pool, pool_session *out_session);

/* Full blocks of committed steps are published by the pool itself unless the session does. */
int pool_session_set_manual_publish(struct pool *pool, pool_session session, bool is_manual);

/*
 * Ends @session: its `arriving` ends now, its steps are abandoned, everything it holds is let go in
 * slices (pool_advance()), its waiting requests are dropped without a reply. While @is_attached,
 * slots that it alone could write stay quarantined until pool_session_detach().
 * @out_sequences, if not NULL: how many sequences it had.
 */
int pool_session_end(struct pool *pool, pool_session session, bool is_attached,
                     uint32_t *out_sequences);
int pool_session_detach(struct pool *pool, pool_session session);

/*
 * Carries on with what is done in slices (session ends, cleared blocks): about @max_blocks blocks.
 * Returns whether it took that many, so that there may be more to do now.
 */
bool pool_advance(struct pool *pool, uint32_t max_blocks);

/* Deadlines: requests that waited beyond theirs are replied to with POOL_TIMEOUT. */
void pool_tick(struct pool *pool, uint64_t now_ms);

/* ---- sequences ------------------------------------------------------------------------------ */

/* A sequence is named by the engine inside its session. */
struct pool_name {
    pool_session session;
    uint64_t id;
};

/* Token ids, and the keys of the blocks that they fill: block i of the sequence, in order. */
struct pool_tokens {
    const uint32_t *ids;
    uint64_t count;
    const struct pool_key *keys; /* one for each block that becomes full */
    const struct pool_key
        *shared_keys; /* of a prompt that may start in a shared domain: from its root */
};

struct pool_prompt {
    pool_payer tenant; /* who asks */
    pool_payer
        domain; /* where new blocks go and are charged: the tenant itself, or one it may fill */
    pool_payer shared; /* where the sequence may start, or POOL_NONE */
    pool_model model;
    struct pool_tokens tokens;
    bool is_raw; /* a match may return the last token of the prompt too */
};

struct pool_alloc_options {
    bool is_mapped;   /* the engine reads its tables itself: publish never swaps its blocks */
    bool is_unfilled; /* K and V come later: pool_fill(), or steps */
    uint64_t take;    /* only so many of the tokens beyond the match, or POOL_TAKE_ALL */
};

struct pool_found {
    uint64_t matched;  /* tokens */
    uint64_t arriving; /* tokens after them that another sequence is filling */
};

/* What an allocation would match now. No side effect. */
int pool_match(struct pool *pool, const struct pool_prompt *prompt, struct pool_found *out_found);

/* Holds what matches, takes slots for the rest: all or nothing. Publishes nothing. */
int pool_alloc(struct pool *pool, struct pool_name name, const struct pool_prompt *prompt,
               const struct pool_alloc_options *options, struct pool_found *out_found);

/* The K and V of an unfilled sequence are written. */
int pool_fill(struct pool *pool, struct pool_name name);

/*
 * Appends tokens, complete at once. Tails that others can see are copied first: then the answer is
 * POOL_PENDING, and the reply with @cookie follows the copies.
 */
int pool_append(struct pool *pool, struct pool_name name, const struct pool_tokens *tokens,
                uint64_t cookie);

/* Gives complete full blocks their keys, then lets go of what left the sliding windows. */
int pool_publish(struct pool *pool, struct pool_name name);
/*
 * For a mapped sequence: its engine has written K and V up to @num_tokens and no further. What it
 * still has to write is published later; an unfilled one is filled when all is.
 */
int pool_publish_up_to(struct pool *pool, struct pool_name name, uint64_t num_tokens);

/* @child gets the complete tokens of @name, and shares every block of them, the tail too. */
int pool_fork(struct pool *pool, struct pool_name name, uint64_t child);

/*
 * These wait (POOL_PENDING) for attends of an ended step that still run; the reply may then be any
 * answer of theirs. Like fork and publish they see complete tokens only, and are INVALID for an
 * unfilled allocation until all of it is filled (what its steps complete is published at their
 * end).
 */
int pool_truncate(struct pool *pool, struct pool_name name, uint64_t num_tokens, uint64_t cookie);
int pool_release(struct pool *pool, struct pool_name name, uint64_t cookie);
int pool_preempt(struct pool *pool, struct pool_name name, uint64_t cookie);

/* An allocation of the sequence's own tokens; @tokens must be what pool_sequence_tokens() gives. */
int pool_resume(struct pool *pool, struct pool_name name, const struct pool_tokens *tokens,
                const struct pool_alloc_options *options, struct pool_found *out_found);

struct pool_sequence_description {
    pool_payer tenant, domain, shared;
    pool_model model;
    uint64_t length, num_complete; /* tokens */
    bool is_preempted, is_mapped, is_filled;
};
int pool_describe(const struct pool *pool, struct pool_name name,
                  struct pool_sequence_description *out_description);

/* Copies token ids [@first, @first + @count) into @out. INVALID beyond the sequence. */
int pool_sequence_tokens(struct pool *pool, struct pool_name name, uint64_t first, uint64_t count,
                         uint32_t *out);

/* The key of full block @position of the sequence's own chain: to name what follows it. */
int pool_sequence_key(struct pool *pool, struct pool_name name, uint64_t position,
                      struct pool_key *out_key);

/* One entry of a block table. */
struct pool_place {
    uint32_t slot; /* block id in its arena; 0: out of the window */
    uint32_t generation;
    bool is_shared; /* in the shared domain's arena, not in the sequence's own */
};

/* The same of @count full blocks from @first on: one walk. */
int pool_sequence_keys(struct pool *pool, struct pool_name name, uint64_t first, uint64_t count,
                       struct pool_key *out);

/* Copies up to @max entries of one group's table; @out_count says how many there are. */
int pool_table(struct pool *pool, struct pool_name name, uint32_t group, struct pool_place *out,
               uint32_t max, uint32_t *out_count);

/*
 * Whether the bytes of blocks [@first, @first + @count) of one group may be written from outside: 0
 * only if all are there, unpublished, of the sequence's own domain, in no other table and in no
 * transfer, and no step is open. INVALID else.
 */
int pool_may_write(struct pool *pool, struct pool_name name, uint32_t group, uint32_t first,
                   uint32_t count);

/* STALE unless the slot has a block and still this generation. */
int pool_place_verify(struct pool *pool, uint32_t arena, uint32_t slot, uint32_t generation);

/* ---- single flight -------------------------------------------------------------------------- */

/*
 * Waits until what another sequence is filling right behind the match of @prompt is published: 0,
 * or POOL_MISS if that sequence goes without, or POOL_TIMEOUT. Answers POOL_MISS at once where
 * nothing is arriving, else POOL_PENDING.
 */
int pool_wait_arriving(struct pool *pool, pool_session session, const struct pool_prompt *prompt,
                       uint64_t deadline_ms, uint64_t cookie);

/* Resolves a waiting request with POOL_MISS. NOT_FOUND if none of @session's has that cookie. */
int pool_cancel(struct pool *pool, pool_session session, uint64_t cookie);

/* ---- steps ---------------------------------------------------------------------------------- */

struct pool_step_row {
    uint64_t sequence; /* of the step's session */
    struct pool_tokens
        tokens; /* from its last complete token on; keys of the blocks they complete */
};

/*
 * Begins a forward pass: every row's sequence gains its tokens, all or nothing. Tokens that an
 * unfilled allocation already has come first and must be the same (INVALID). POOL_PENDING while
 * shared tails are copied (the step may attend after the reply). A sequence is in one open step at
 * most.
 */
int pool_step_begin(struct pool *pool, pool_session session, const struct pool_step_row *rows,
                    uint32_t num_rows, uint64_t cookie, pool_step *out_step);

/*
 * One attend of a layer was queued, and has ended. May be repeated; one that failed (@error) leaves
 * its layer to be done again.
 */
int pool_step_attend(struct pool *pool, pool_step step, uint32_t layer);
int pool_step_attended(struct pool *pool, pool_step step, uint32_t layer, int error);

/*
 * Ends a step. Commit needs every layer: its tokens are complete. Abandon takes them away again.
 * POOL_PENDING while attends run; if layers are still missing then, a commit abandons and is
 * replied to with POOL_FAILED. INVALID: layers are missing and no attend runs. A step whose last
 * layer is attended commits by itself, and is NOT_FOUND from then on.
 */
int pool_step_end(struct pool *pool, pool_step step, bool is_commit, uint64_t cookie);

/* ---- completions ---------------------------------------------------------------------------- */

/* A copy ended; @error is 0 or a negative errno. NOT_FOUND: it is not under way (counted). */
int pool_transfer_done(struct pool *pool, pool_transfer transfer, int error);

/* ---- operators ------------------------------------------------------------------------------ */

/* No new sequences, or again. */
void pool_drain(struct pool *pool, bool is_draining);

/* Evicts up to @count blocks in eviction order, guarantees aside; returns how many. */
uint64_t pool_evict(struct pool *pool, uint64_t count);

/*
 * Starts a new epoch for a domain (POOL_NONE: all) and a model (POOL_NONE: all): older blocks are
 * found no more, sequences from before publish nothing any more. Slots are swept by pool_advance().
 */
int pool_clear(struct pool *pool, pool_payer domain, pool_model model);

/* ---- numbers -------------------------------------------------------------------------------- */

/* Every counter and gauge, once: name, help. Kept in pool/stats.c. */
struct pool_stat {
    const char *name, *help;
    bool is_gauge;
    uint64_t value;
};
size_t pool_stats(const struct pool *pool, struct pool_stat *out, size_t max);

struct pool_payer_stats {
    uint64_t held, evictable, reserved, quarantined, free; /* blocks; free: slots of its granules */
    uint64_t charged_pages[POOL_MAX_DEVICES];
    uint64_t evictions_suffered, evictions_caused; /* blocks */
    uint64_t query_tokens, hit_tokens;
};
int pool_payer_stats(const struct pool *pool, pool_payer payer, struct pool_payer_stats *out_stats);

/* Cached blocks of @sufferer that allocations for @causer evicted. 0 for payers that do not exist.
 */
uint64_t pool_evictions(const struct pool *pool, pool_payer causer, pool_payer sufferer);

/* Slots of an arena in the order in which they will be taken; evictable ones in eviction order. */
enum pool_order { POOL_ORDER_FREE, POOL_ORDER_EVICTABLE };
size_t pool_arena_order(const struct pool *pool, uint32_t arena, enum pool_order order,
                        uint32_t *out, size_t max);

/* Tables that hold the block of a slot; 0 for a slot not in use. */
uint32_t pool_slot_holds(const struct pool *pool, uint32_t arena, uint32_t slot);

/* Asserts every numbered invariant of pool/check.c. Walks everything: for tests. */
void pool_check(struct pool *pool);
