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
    POOL_FAILED,  /* (replies) a copy failed; the verb was undone */
    POOL_RETRY    /* (replies) a block below the device could not be read, or was cleared: the verb
                     was undone, and is to be called again with the same arguments: it finds less */
};

/*
 * Where a block can be. Every tier has arenas, granules and slots of its own; only blocks of the
 * device can be held, read and written by engines, those below it are copies of published ones.
 */
enum pool_tier { POOL_TIER_DEVICE, POOL_TIER_HOST, POOL_TIER_DISK, POOL_NUM_TIERS };

enum pool_tier_mode {
    POOL_TIER_ON,
    POOL_TIER_READ_ONLY, /* nothing more is stored there; what it has is found and promoted */
    POOL_TIER_OFF        /* and what it has is not found, until it is on again */
};

/* What a session wants to be kept below the device. */
enum pool_store {
    POOL_STORE_PROMPT, /* blocks of allocated tokens; a preempted sequence's all count as such; of
                          sliding groups the last window */
    POOL_STORE_NONE,   /* none that it publishes, whoever else publishes them */
    POOL_STORE_ALL
};

/* When what is to be stored is. */
enum pool_store_when {
    POOL_STORE_EVICTED,    /* ahead of its eviction: see ahead_pages */
    POOL_STORE_SECOND_USE, /* an allocation hit it: then at once, or ahead of its eviction */
    POOL_STORE_AT_ONCE     /* when it is published, or later ahead of its eviction */
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

/* A tier below the device: none of it if it has no pages. */
struct pool_tier_config {
    uint64_t pages;     /* the budget; of the device tier see struct pool_device */
    uint32_t max_slots; /* slots of all its granules, and so many more blocks */
    /* Caps on what is stored there from above; over them blocks are skipped and counted. 0: none.
     */
    uint64_t max_store_bytes;   /* under way at a time, in block_bytes of struct pool_group */
    uint64_t store_bytes_per_s; /* by pool_tick()'s time; up to one second's worth at once */
};

enum pool_effect_kind {
    POOL_EFFECT_COMMIT,   /* granule @index of @arena gets memory; on a device, it reads as zeros */
    POOL_EFFECT_DECOMMIT, /* granule @index of @arena gives its memory back, before later effects */
    POOL_EFFECT_COPY,     /* copy a block; answer with pool_transfer_done(@transfer) */
    POOL_EFFECT_REPLY,    /* the verb that was given @cookie ends with @answer */
    POOL_EFFECT_STORED,   /* @key may be found from now on: its first place */
    POOL_EFFECT_REMOVED,  /* @key is found no more: its last place went */
    /* Only if the configuration @tells_places, for those who keep a record beside every slot: */
    POOL_EFFECT_PRESENT, /* @slot of @arena has the published block @key, readable, from now on */
    POOL_EFFECT_GONE     /* and has it no more: before anything else is written there */
};

struct pool_effect {
    enum pool_effect_kind kind;
    uint32_t arena;         /* see pool_arena_describe() */
    uint32_t index;         /* COMMIT, DECOMMIT: granule number in the arena */
    pool_transfer transfer; /* COPY */
    uint32_t from_arena;    /* COPY: source arena and slot; @arena and @slot are the destination */
    uint32_t from_slot;
    uint32_t slot;       /* COPY, PRESENT, GONE; STORED, REMOVED: the device's, 0: it has none */
    uint32_t generation; /* COPY (of the destination), PRESENT: of @slot */
    uint64_t cookie;     /* REPLY */
    int answer;          /* REPLY: 0, an enum pool_answer, or a negative errno */
    /* These are valid during the call: */
    const struct pool_key *key; /* STORED, REMOVED, PRESENT; COPY between tiers, else NULL */
    const struct pool_key
        *parent; /* STORED, PRESENT: the key of the block before it; NULL: it is the first, or (of
                    blocks that were restored or copied between tiers) it is not known */
    const uint32_t *tokens; /* STORED: the ids of its tokens; of a restored block of more than 32
                               tokens NULL: not known */
    uint32_t num_tokens;
    const uint32_t *form; /* PRESENT; COPY between tiers: what is kept of its token ids to compare,
                             @num_form words: themselves up to 32 of them, else a hash */
    uint32_t num_form;
    /* PRESENT: for the record, see struct pool_restored; a copy below is neither */
    bool is_unstorable, is_generated;
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
    struct pool_tier_config tiers[POOL_NUM_TIERS]; /* of the device tier: all 0 */
    /*
     * Demote ahead: while a tier (each device; each payer below its limit) has fewer pages left
     * than this, the coldest blocks of each of its arenas have, or get, a copy below, as many as
     * those pages hold. 0: never.
     */
    uint64_t ahead_pages[POOL_NUM_TIERS];
    enum pool_store_when store_when;
    bool tells_places;         /* emit POOL_EFFECT_PRESENT and POOL_EFFECT_GONE */
    uint32_t max_blocks;       /* slots of all committed granules of devices, and blocks */
    uint32_t max_block_tokens; /* of any model; token ids are kept with a block up to 32 */
    uint32_t max_sequences;
    uint32_t max_sequence_blocks; /* positions of one sequence */
    uint64_t max_tokens;          /* of all sequences together (16-token blocks) */
    uint32_t max_payers;          /* tenants and shared domains */
    uint32_t max_models;
    uint32_t max_arenas; /* (domain, model, group) that were ever used, in each tier: arena numbers
                            are below max_arenas x tiers */
    uint32_t max_sessions;
    uint32_t max_transfers; /* with tiers below at least the blocks of the longest sequence: one
                               that hits more of them below at once can only be refused; half of
                               them at most are copies ahead of evictions */
    uint32_t max_waiters;
    uint32_t max_steps;
    uint32_t max_step_rows;       /* sequences of one step */
    uint64_t transfer_timeout_ms; /* whoever waits for a copy longer gets POOL_TIMEOUT; 0: never */
    struct pool_sink sink;
};

/* Sensible caps for a pool of @max_blocks 16-token blocks, one device of @pages pages. */
void pool_config_init(struct pool_config *config, uint32_t max_blocks, uint64_t pages);

/*
 * -ENOMEM, or -EINVAL: no device, no block, no sink, max_block_tokens out of range, pages without
 * max_slots.
 */
int pool_create(const struct pool_config *config, struct pool **out_pool);
void pool_destroy(struct pool *pool);

/* Bytes that pool_create() reserved; with max_blocks this gives the bytes of a block. */
uint64_t pool_bytes(const struct pool *pool);

/* ---- payers: tenants and shared domains ----------------------------------------------------- */

/* In pages, on each device, or of one tier below. */
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
/*
 * The same for one tier. At first a payer has no guarantee and no limit below the device, and the
 * weight that it was created with. INVALID also: no such tier.
 */
int pool_tier_quota_set(struct pool *pool, pool_payer payer, enum pool_tier tier,
                        const struct pool_quota *quota);

/* @rights (of enum pool_right) replace those that @tenant had in @domain. */
int pool_domain_grant(struct pool *pool, pool_payer domain, pool_payer tenant, unsigned rights);

/* ---- models and arenas ---------------------------------------------------------------------- */

struct pool_granule_shape {
    uint32_t pages; /* of a granule */
    uint32_t slots; /* of a granule: blocks that fit; 0: the group is not kept in this tier. So many
                       may be evicted at once, when the granule is handed over */
};

struct pool_group {
    uint32_t window; /* tokens that a query sees, itself included (>= 2); 0: all */
    uint32_t pages;  /* of a granule, on each rank's device */
    uint32_t slots;  /* of a granule: blocks that fit; up to 2^24 - 1 */
    struct pool_granule_shape below[POOL_NUM_TIERS]; /* [tier]; of the device tier: all 0 */
    uint64_t block_bytes; /* for max_store_bytes and store_bytes_per_s only */
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
    enum pool_tier tier;
    uint32_t slots_per_granule, pages_per_granule;
    uint32_t num_granules; /* committed, idle ones included */
};
int pool_arena_describe(const struct pool *pool, uint32_t arena,
                        struct pool_arena_description *out_description);
/* The device's. POOL_NOT_FOUND until its first allocation, or pool_arena_reserve(). */
int pool_arena_find(const struct pool *pool, pool_payer domain, pool_model model, uint32_t group,
                    uint32_t *out_arena);
/* The same in any tier; NOT_FOUND also for a tier that the group is not kept in. */
int pool_tier_arena_find(const struct pool *pool, pool_payer domain, pool_model model,
                         uint32_t group, enum pool_tier tier, uint32_t *out_arena);
/* Makes the arenas of all groups and tiers before the first allocation does. LIMIT: no more of
 * them. */
int pool_arena_reserve(struct pool *pool, pool_payer domain, pool_model model);

/* ---- sessions ------------------------------------------------------------------------------- */

int pool_session_open(struct pool *pool, pool_session *out_session);

/* Full blocks of committed steps are published by the pool itself unless the session does. */
int pool_session_set_manual_publish(struct pool *pool, pool_session session, bool is_manual);

/* What of it is kept below the device, from now on; at first POOL_STORE_PROMPT. */
int pool_session_set_store(struct pool *pool, pool_session session, enum pool_store store);

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
 * Carries on with what is done in slices (session ends, cleared blocks, copies ahead of evictions):
 * about @max_blocks blocks. Returns whether it took that many, so that there may be more to do now.
 */
bool pool_advance(struct pool *pool, uint32_t max_blocks);

/*
 * Deadlines: requests that waited beyond theirs are replied to with POOL_TIMEOUT. What may be
 * stored per second is counted by this time, too.
 */
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
    /* If it has to wait for blocks that are below the device: */
    uint64_t cookie;      /* of the reply */
    uint64_t deadline_ms; /* by pool_tick()'s time; 0: none */
};

struct pool_found {
    uint64_t matched;  /* tokens */
    uint64_t arriving; /* tokens after them that another sequence is filling */
    uint64_t below;    /* of the matched ones, those with a block that is not on the device (yet) */
};

/*
 * What an allocation would match now. No side effect: nothing is moved. A hit in the shared domain
 * with blocks below the device is none if all of it is more than the domain's limit there: it could
 * never come up.
 */
int pool_match(struct pool *pool, const struct pool_prompt *prompt, struct pool_found *out_found);

/*
 * Holds what matches, takes slots for the rest: all or nothing. Publishes nothing.
 *
 * Blocks that it finds below the device only are promoted: slots are taken for them too, and the
 * answer is POOL_PENDING (with @out_found filled). The sequence exists from then on, every verb of
 * it is POOL_BUSY, and one reply follows: 0, all of it is present; or the verb was undone and
 * POOL_RETRY (see there), POOL_TIMEOUT (its deadline), POOL_MISS (pool_cancel()).
 */
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

/*
 * An allocation of the sequence's own tokens; @tokens must be what pool_sequence_tokens() gives.
 * Waits as pool_alloc() does; undone, the sequence is preempted as before.
 */
int pool_resume(struct pool *pool, struct pool_name name, const struct pool_tokens *tokens,
                const struct pool_alloc_options *options, struct pool_found *out_found);

struct pool_prefetched {
    uint64_t present; /* leading tokens that are on the device */
    uint64_t coming;  /* tokens of the prefix so far behind them: on the device, or on their way */
    uint64_t matched; /* of the whole match; what is beyond the two finds no room now */
};

/*
 * Starts to promote what an allocation of @prompt (or a resume of a preempted sequence, with
 * @tokens as for pool_resume()) would hit below the device, as far from its start as slots can be
 * had, the watermark aside. Holds nothing and answers at once: what arrives is cache like any
 * other. Answers as pool_match() does.
 */
int pool_prefetch(struct pool *pool, const struct pool_prompt *prompt,
                  struct pool_prefetched *out_prefetched);
int pool_prefetch_sequence(struct pool *pool, struct pool_name name,
                           const struct pool_tokens *tokens,
                           struct pool_prefetched *out_prefetched);

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

/*
 * Resolves a waiting request (single flight, or an allocation or resume that waits for promotions)
 * with POOL_MISS. NOT_FOUND if none of @session's has that cookie.
 */
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

/*
 * A copy ended, and will touch neither slot any more; @error is 0 (complete and verified) or a
 * negative errno. NOT_FOUND: it is not under way (counted). A failed copy from a lower tier to the
 * device drops the place that it read: its bytes are not trusted any more.
 */
int pool_transfer_done(struct pool *pool, pool_transfer transfer, int error);

/* ---- tiers ---------------------------------------------------------------------------------- */

/* INVALID: not a tier below the device that the pool has. Copies under way go on. */
int pool_tier_set(struct pool *pool, enum pool_tier tier, enum pool_tier_mode mode);

/*
 * The tier turned out to be smaller: it has @pages, before anything was stored or restored there.
 * INVALID: not a tier below the device, or something is there; more than before; none.
 */
int pool_tier_shrink(struct pool *pool, enum pool_tier tier, uint64_t pages);

/* Evicts up to @count blocks of one tier, in its eviction order, guarantees aside. */
uint64_t pool_tier_evict(struct pool *pool, enum pool_tier tier, uint64_t count);

/*
 * After a restart: what survived in any tier comes back, granule by granule, before verbs are
 * answered or while they are. pool_restore_granule() gives the arena (pool_arena_reserve()) a
 * granule with this number, without POOL_EFFECT_COMMIT; its slots are given to nobody meanwhile.
 * pool_restore_block() says what one of them has, and pool_restore_end() frees the others; a
 * granule of which nothing was restored is decommitted.
 * INVALID: no such arena; not in that state. EXISTS: the granule is there. NO_BLOCKS: the budget
 * has no page left. LIMIT: max_blocks or max_slots. Quotas are admission, and do not matter here.
 */
int pool_restore_granule(struct pool *pool, uint32_t arena, uint32_t granule);

struct pool_restored {
    uint32_t slot;       /* block id in its arena */
    uint32_t generation; /* as POOL_EFFECT_PRESENT or POOL_EFFECT_COPY told; 0: a new one */
    struct pool_key key;
    const struct pool_key *parent; /* told on, if it is known; else NULL */
    const uint32_t *form;          /* as told, @num_form words */
    uint32_t num_form;
    bool is_unstorable; /* not to be copied to tiers further below, ever */
    bool is_generated;  /* not unless an allocation hits it, as prompt */
};
/*
 * The block is published, held by nobody, and colder than everything used since the start; the last
 * one restored is the coldest: restore a chain from its start. If another place of the key is known
 * it gets one more. EXISTS: it has one in this tier already; the slot stays free.
 */
int pool_restore_block(struct pool *pool, uint32_t arena, const struct pool_restored *restored);
int pool_restore_end(struct pool *pool, uint32_t arena, uint32_t granule);

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

/* Why a block that is to be stored was evicted without a copy below. */
enum pool_skip {
    POOL_SKIP_OFF,  /* no tier below was on */
    POOL_SKIP_BUSY, /* max_store_bytes, or max_transfers */
    POOL_SKIP_RATE, /* store_bytes_per_s */
    POOL_SKIP_FULL, /* the tier below had no slot for it (a limit, a guarantee) */
    POOL_SKIP_LATE, /* it was evicted before its turn came, or before its copy ended */
    POOL_NUM_SKIPS
};

struct pool_tier_stats {
    enum pool_tier_mode mode;
    uint64_t pages, uncommitted, idle; /* as the gauges of pool_stats(), of this tier */
    uint64_t free, held, evictable, reserved, quarantined; /* slots */
    uint64_t stores_started, stores_done, stores_failed;   /* copies to this tier from above */
    uint64_t store_bytes;                                  /* under way, in block_bytes */
    uint64_t promotions_started, promotions_done, promotions_failed; /* from it to the device */
    uint64_t hit_tokens; /* of allocations that were granted, found here and nowhere above; the sum
                            over all tiers is hit_tokens of pool_stats() */
    uint64_t coldest_age_ms; /* at most so long ago its coldest block was used, by pool_tick()'s
                                time; 0: none is cached */
    uint64_t evictions;      /* places evicted */
    uint64_t skipped[POOL_NUM_SKIPS]; /* of them, to be stored, and without a copy below */
};
/* INVALID: no such tier. */
int pool_tier_stats(const struct pool *pool, enum pool_tier tier,
                    struct pool_tier_stats *out_stats);

struct pool_payer_stats { /* blocks and slots: of the device tier */
    uint64_t held, evictable, reserved, quarantined, free; /* blocks; free: slots of its granules */
    uint64_t charged_pages[POOL_MAX_DEVICES];
    uint64_t evictions_suffered, evictions_caused; /* blocks */
    uint64_t query_tokens, hit_tokens;
};
int pool_payer_stats(const struct pool *pool, pool_payer payer, struct pool_payer_stats *out_stats);

struct pool_payer_tier_stats {
    uint64_t evictable, reserved, free; /* slots of its granules */
    uint64_t charged_pages;             /* the sum over all devices of the tier */
};
int pool_payer_tier_stats(const struct pool *pool, pool_payer payer, enum pool_tier tier,
                          struct pool_payer_tier_stats *out_stats);

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
