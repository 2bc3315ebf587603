/*
 * tests/sim/sim.h - the core against simulated devices, engines and clocks, from one 64-bit seed.
 *
 * A run: the seed gives a configuration (sim_config.c) and then one event after another, drawn from
 * the table in sim_events.c. The core's effects are kept by the sink and carried out by
 * sim_settle() when the verb has returned: granules at once, copies and attends at a random later
 * moment, in parts, in any order, some of them failing (sim_device.c, sim_attend.c).
 *
 * Bytes: a row (one token of one layer on one rank) is one word, a function of everything that its
 * K and V depend on: model, salt, every token up to it, layer, rank, and who computed it. Memory
 * that is free, given back or half copied is poison, so that whoever reads a torn, reused or
 * foreign row reads a wrong word, and every read is compared.
 *
 * The oracle (sim_oracle.c) knows what each sequence must be, and from the STORED and REMOVED
 * effects exactly what a match must find; sim_books.c keeps the quotas from outside. Answers are
 * predicted where pool/pool.h fixes them (sim_verbs.c), refusals must change nothing, requests that
 * wait must be replied to once, and when all has ended every count must be back where it began
 * (sim_check.c).
 *
 * To add an event: a function, a line in sim_verbs.h and a row in sim_events.c. A seed that was
 * printed before then means another run.
 *
 * Tiers below the device are arenas like the device's, with a record beside every slot (what a
 * header on a medium holds: sim_tiers.h). A copy between tiers fails, is cut short, or goes wrong
 * without a word (sim_copies.c); bits flip; tiers stall, are switched off and on (sim_below.c).
 * Whatever is read below is compared with its record's sum, as offload/ does; what comes up is
 * compared with the words of its prefix, whatever the sums say. A crash (sim_restart.c) leaves the
 * effects of a verb half carried out and copies half done; a new pool then learns what survived.
 */
#pragma once

#include "pool/pool.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

enum {
    SIM_MAX_TOKENS = 160, /* of a sequence */
    SIM_MAX_POSITIONS = SIM_MAX_TOKENS + 1,
    SIM_MAX_SEQUENCES = 24,
    SIM_MAX_SESSIONS = 6,
    SIM_MAX_STEPS = 6,
    SIM_MAX_ROWS = 4, /* sequences of a step */
    SIM_MAX_ATTENDS = 12,
    SIM_MAX_COPIES = 64,
    SIM_MAX_PAYERS = 6,
    SIM_MAX_MODELS = 3,
    SIM_MAX_GROUPS = 3,
    SIM_MAX_LAYERS = 4,
    SIM_CAP_ARENAS = 64, /* of each tier */
    SIM_MAX_ARENAS = SIM_CAP_ARENAS * POOL_NUM_TIERS,
    SIM_MAX_PARTS = POOL_MAX_DEVICES + POOL_NUM_TIERS, /* budgets: of devices, and of tiers */
    SIM_MAX_BLOCK_TOKENS = 16,
    SIM_MAX_REQUESTS = 64,
    SIM_MAX_EFFECTS = 8192,
    SIM_MAX_STORED = 8192,
    SIM_MAX_LINGERING = 128,
    SIM_BUCKETS = 512,
    SIM_WANT_BITS = 1 << 18 /* see sim_want.c */
};

#define SIM_NONE UINT32_MAX
#define SIM_POISON 0xdeadbeefdeadbeefULL   /* free, given back, or half copied */
#define SIM_SCRIBBLE 0x5c21bb1e5c21bb1eULL /* written by a process that is no session any more */

/* ---- random numbers (sim_random.c) ---------------------------------------------------------- */

struct sim_random {
    uint64_t state;
};
uint64_t random_next(struct sim_random *random);
uint32_t random_below(struct sim_random *random, uint32_t bound); /* 0 where bound is 0 */
bool random_chance(struct sim_random *random, uint32_t one_in);
uint64_t mix64(uint64_t value);

/* ---- what the device holds ------------------------------------------------------------------ */

struct sim_slot {
    bool is_published, is_poisoned;
    uint32_t num_reading, num_writing; /* copies under way */
    struct pool_key key;               /* while published */
    uint32_t num_tables;               /* scratch of sim_check() */
    uint32_t generation;               /* when it was last seen in a table; 0: never */
    bool was_free;                     /* since then */
    uint64_t mark;                     /* the last table that was seen to have it */
};

/* What a medium keeps beside a slot, to find the block again after a restart. */
struct sim_record {
    bool is_there;
    bool is_written; /* the copy that made it was told to be complete */
    bool is_stale; /* it is not there, but may be again after a crash: GONE had not got that far */
    bool has_parent, has_hashes, is_unstorable, is_generated;
    uint32_t generation, epoch, num_form;
    uint32_t form[SIM_MAX_BLOCK_TOKENS];
    struct pool_key key, parent;
    uint64_t sum;                          /* of the rows, as they were when they were written */
    uint64_t hashes[SIM_MAX_BLOCK_TOKENS]; /* of the prefixes of its tokens: for checks only */
};

/* Of a granule after a crash. */
enum sim_survival { SURVIVAL_NONE = 0, SURVIVAL_UNCLAIMED, SURVIVAL_CLAIMED };

struct sim_arena {
    bool is_used;
    enum pool_tier tier;
    uint32_t family; /* of (domain, model, group): sim_family() */
    pool_payer domain;
    pool_model model;
    uint32_t group, num_layers, num_ranks, slots_per_granule, pages;
    uint32_t num_granules, max_granules, rows_per_slot;
    bool *is_committed;     /* by granule */
    uint64_t *rows;         /* [slot][rank][layer of the group][token] */
    struct sim_slot *slots; /* by slot number; 0 is not used */
    struct sim_record *records;
    uint8_t *survival; /* by granule: enum sim_survival */
};

/* A copy that the core asked for; rows move in the order (first + i * stride) % rows. */
struct sim_copy {
    bool is_used;
    pool_transfer transfer;
    uint32_t from_arena, from_slot, arena, slot;
    uint32_t first, stride, num_done;
    enum pool_tier from_tier, tier; /* both the device: a tail */
    uint64_t serial;                /* between tiers: of the key in sim.stored */
    uint64_t bytes;
    struct sim_record record; /* of the destination, once it is written */
};

enum sim_fault {
    FAULT_NONE,
    FAULT_ERROR, /* nothing that can be read */
    FAULT_SHORT, /* a part, and an error */
    FAULT_SILENT /* a part, and no error: only the sum tells */
};

struct sim_plan_row {
    uint64_t hash[SIM_MAX_TOKENS]; /* of the prefix that ends with each token */
    uint32_t arena[SIM_MAX_POSITIONS], slot[SIM_MAX_POSITIONS];
    uint32_t label[SIM_MAX_POSITIONS];
    uint32_t base, length, num_written; /* tokens before the step, with it, that are written */
};

/* One attend under way: a plan of its own, as it outlives sequences and sessions. */
struct sim_attend {
    bool is_used;
    pool_step step;
    uint32_t sim_step; /* NONE: its session has ended */
    bool is_attached;  /* ... and its process writes on: what it reads may be scribble */
    uint32_t layer, group, window, num_ranks, block_tokens, num_rows;
    struct sim_plan_row rows[SIM_MAX_ROWS];
};

/* ---- what the oracle knows ------------------------------------------------------------------ */

struct sim_model {
    struct pool_model_shape shape;
    pool_model id;
};

struct sim_payer {
    pool_payer id;
    bool is_domain;
    struct pool_quota quota;
    struct pool_quota below[POOL_NUM_TIERS];
    unsigned rights[SIM_MAX_PAYERS]; /* of each tenant in this domain */
};

struct sim_session {
    bool is_live, is_lingering, is_manual_publish;
    enum pool_store store;
    pool_session id;
    uint64_t next_name;
    /* what its process may still write into after its end: arena, slot */
    uint32_t lingering[SIM_MAX_LINGERING][2];
    uint32_t num_lingering;
};

struct sim_sequence {
    bool is_used, is_raw, is_mapped, is_filled, is_preempted;
    bool is_promoting; /* its allocation waits for blocks below the device */
    uint32_t session, payer, domain, shared, model; /* indexes in sim; shared may be NONE */
    struct pool_name name;
    uint64_t salt;
    uint32_t length, num_complete;
    uint32_t num_written; /* mapped: its engine has written K and V so far */
    uint32_t step;        /* that it is in; NONE */
    uint64_t cookie;      /* of the request that it waits for; 0 */
    uint32_t growth;      /* tokens that a pending append adds */
    uint32_t num_prompt;  /* tokens that were given to allocate, or preempted */
    uint32_t num_matched; /* of them, those that were hit */
    uint32_t label,
        shared_label;    /* of its rows, and of those in the shared domain: device_label() */
    uint32_t considered; /* positions that publish has looked at */
    uint32_t ids[SIM_MAX_TOKENS];
    uint64_t hash[SIM_MAX_TOKENS];
};

enum sim_step_state { SIM_STEP_FREE = 0, SIM_STEP_COPYING, SIM_STEP_OPEN, SIM_STEP_ENDING };

struct sim_step {
    enum sim_step_state state;
    pool_step id;
    uint32_t session, num_rows, num_running, layers_done, num_layers;
    bool is_commit;
    uint64_t cookie;
    struct {
        uint32_t sequence, old_length, old_complete, new_length, new_complete;
    } rows[SIM_MAX_ROWS];
};

enum sim_request_kind {
    REQUEST_NONE = 0,
    REQUEST_ALLOC,
    REQUEST_RESUME,
    REQUEST_APPEND,
    REQUEST_TRUNCATE,
    REQUEST_RELEASE,
    REQUEST_PREEMPT,
    REQUEST_STEP_BEGIN,
    REQUEST_STEP_END,
    REQUEST_WAIT
};

/* Blocks of a prefix that someone fills: @hash is of the first one's prefix. */
struct sim_fill {
    uint32_t domain, model, position, last;
    uint64_t hash;
};

/* A request that was answered with POOL_PENDING. */
struct sim_request {
    enum sim_request_kind kind;
    uint64_t cookie;
    uint32_t session;
    uint32_t subject; /* sequence or step */
    uint32_t argument;
    uint64_t since_ms;
    uint64_t deadline_ms; /* WAIT, ALLOC, RESUME; UINT64_MAX: none */
    uint64_t troubles;    /* ALLOC, RESUME: sim.troubles when it began */
    uint32_t hits[POOL_NUM_TIERS];
    bool is_cancelled;
    struct sim_fill fill;
    uint64_t run[SIM_MAX_POSITIONS]; /* prefixes of the blocks from fill.position to fill.last */
};

/* A key that can be found, or that could until a clear: from STORED to REMOVED. */
struct sim_stored {
    struct pool_key key;
    uint64_t serial;
    uint32_t family, next;
    bool is_used, is_stale, has_hashes;
    bool is_unwanted;              /* below the device: who published it says so */
    uint32_t slot[POOL_NUM_TIERS]; /* where it is present; 0: not there */
    uint32_t num_arriving;         /* copies of it to the device */
    uint32_t num_leaving;          /* ... and to tiers below */
    uint64_t hashes[SIM_MAX_BLOCK_TOKENS];
};

/* One effect, with what its pointers point to. */
struct sim_effect {
    struct pool_effect effect;
    struct pool_key key, parent;
    uint32_t ids[SIM_MAX_BLOCK_TOKENS]; /* tokens, or form */
};

/* A prompt and what it points to. */
struct sim_prompt {
    struct pool_prompt prompt;
    uint32_t payer, domain, shared, model; /* indexes in sim */
    uint64_t salt;
    uint32_t ids[SIM_MAX_TOKENS];
    uint64_t hash[SIM_MAX_TOKENS];
    struct pool_key keys[SIM_MAX_POSITIONS], shared_keys[SIM_MAX_POSITIONS];
};

/* A tier below the device. */
struct sim_tier {
    enum pool_tier_mode mode;
    bool is_stalled;
    uint64_t bytes;                   /* being stored there */
    uint64_t credit;                  /* byte-milliseconds that may be stored */
    uint64_t charged[SIM_MAX_PAYERS]; /* after the last event */
    uint64_t hit_tokens;              /* of allocations that were granted */
    uint32_t askers;                  /* payers with a copy to it in this event */
};

/* What a run came to, printed at the end: a simulator that never gets there proves nothing. */
enum sim_count {
    COUNT_STORES,
    COUNT_PROMOTIONS,
    COUNT_COPY_FAULTS,
    COUNT_UNVERIFIED, /* reads below that the sum refused */
    COUNT_CRASHES,
    COUNT_RESTORED,
    COUNT_HITS_BELOW, /* allocations that waited and were granted */
    SIM_NUM_COUNTS
};

struct sim_options {
    uint64_t num_events;
    uint32_t check_every;
    bool is_verbose;
    bool is_abrupt;     /* engines vanish at the end, in whatever they are doing */
    bool is_crash;      /* the last event crashes */
    bool is_unverified; /* what is read below the device is believed: the oracle must see it */
};

struct sim {
    struct sim_options options;
    uint64_t seed, event;
    struct sim_random random;
    struct pool_config config;
    struct pool *pool;
    uint64_t now_ms, next_cookie;
    bool is_idle;                 /* the event found nothing to do: another one is drawn */
    bool is_draining, has_slices; /* something may be left for pool_advance() */
    uint32_t focus;               /* the sequence that verbs are for, and one; 0: any */
    bool is_clearing;
    bool is_quiet; /* nothing goes in this event but what a copy below takes the place of */
    uint32_t heat; /* one token in so many differs from the common prompt */
    uint32_t max_length;
    bool is_long; /* few long sequences, whose tables take several chunks */
    uint64_t mark;
    uint32_t failures; /* one copy or attend in so many fails; 0: none */

    struct sim_model models[SIM_MAX_MODELS];
    uint32_t num_models;
    struct sim_payer payers[SIM_MAX_PAYERS];
    uint32_t epochs[SIM_MAX_PAYERS][SIM_MAX_MODELS], last_epoch; /* clears, and the largest */
    uint32_t num_payers, num_tenants;
    struct sim_session sessions[SIM_MAX_SESSIONS];
    struct sim_sequence sequences[SIM_MAX_SEQUENCES];
    struct sim_step steps[SIM_MAX_STEPS];
    struct sim_request requests[SIM_MAX_REQUESTS];
    uint32_t num_requests;

    struct sim_arena arenas[SIM_MAX_ARENAS];
    uint32_t arena_of[POOL_NUM_TIERS][SIM_MAX_PAYERS][SIM_MAX_MODELS][SIM_MAX_GROUPS];
    uint64_t committed_pages[SIM_MAX_PARTS];
    struct sim_copy copies[SIM_MAX_COPIES];
    uint32_t num_copies;
    pool_transfer ended_transfer; /* the last of each; 0: none yet */
    pool_step ended_step;
    struct sim_attend attends[SIM_MAX_ATTENDS];
    uint32_t num_attends;

    struct sim_stored stored[SIM_MAX_STORED];
    uint32_t buckets[SIM_BUCKETS], first_free_stored;
    uint64_t next_serial;

    struct sim_tier tiers[POOL_NUM_TIERS];
    bool has_below;     /* some tier below the device is there */
    uint32_t store_mix; /* enum pool_store of all sessions; more: each its own */
    uint64_t troubles;  /* promotions that failed, and clears: why a verb may be told RETRY */
    struct sim_sequence before[SIM_MAX_SEQUENCES]; /* what a waiting resume goes back to */
    uint64_t wanted[SIM_WANT_BITS / 64];
    uint32_t crash_after; /* so many effects more; 0: not planned */
    jmp_buf crash;
    bool is_recovering, is_recovery_loose; /* not all granules were claimed at once */

    uint64_t answers[17]; /* how often each answer came, 0 and errors included */
    uint64_t counts[SIM_NUM_COUNTS];
    /* Not cleared at the start of a run: */
    uint32_t num_effects;
    struct sim_effect effects[SIM_MAX_EFFECTS];
};

/* Says what is wrong and ends the process; main's handler says how to replay. */
void sim_fail(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
void sim_trace_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define sim_expect(sim, condition, ...)                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail((sim), __VA_ARGS__);                                                          \
    } while (0)

#define sim_trace(sim, ...)                                                                        \
    do {                                                                                           \
        if ((sim)->options.is_verbose)                                                             \
            sim_trace_print(__VA_ARGS__);                                                          \
    } while (0)

/* ---- runs (sim_config.c, sim_events.c, sim_check.c) ------------------------------------------ */

/* Builds a pool, models and payers from the seed. */
void sim_configure(struct sim *sim);
void sim_finish(struct sim *sim);

/* One whole run of options.num_events events, and its end. */
void sim_run(struct sim *sim, uint64_t seed, const struct sim_options *options);

/* Ends everything in a random order and checks that every count is back where it began. */
void sim_wind_down(struct sim *sim);

/* pool_check() and what the oracle can recompute. */
void sim_check(struct sim *sim);

/* Everything that can be counted, in one number: a refusal may not change it. */
uint64_t sim_digest(struct sim *sim);

/* Carries out the effects of the last verb, in order. After every call into the pool. */
void sim_settle(struct sim *sim);

/* ---- the device (sim_device.c, sim_attend.c) ------------------------------------------------- */

void device_commit(struct sim *sim, uint32_t arena, uint32_t granule);
void device_decommit(struct sim *sim, uint32_t arena, uint32_t granule);
void device_finish(struct sim *sim);
/* Counts a granule's pages on each of its devices, @sign times. */
void device_count(struct sim *sim, const struct sim_arena *arena, int sign);
/* Adds the pages of granules with a published slot, to each of SIM_MAX_PARTS budgets. */
void device_count_cached(const struct sim *sim, uint32_t arena, uint64_t *pages);
/* The budgets that an arena's granules take pages of. */
uint32_t device_parts(const struct sim *sim, const struct sim_arena *arena, uint32_t *out);

/* The slot, which must have memory. */
struct sim_slot *device_slot(struct sim *sim, uint32_t arena, uint32_t slot);

/* The word of a token of a prefix, computed by whom. */
uint64_t device_word(uint64_t hash, uint32_t layer, uint32_t rank, uint32_t label);

/* Who computes rows now: a tenant, or (0) any shared domain; and under which epoch of its shelf. */
uint32_t device_label(const struct sim *sim, uint32_t payer, uint32_t model);

struct sim_row {
    uint32_t arena, slot, layer, token; /* layer: of the model; token: in the block */
    uint64_t hash;
    uint32_t label;
    bool may_be_scribble; /* only an attend of a vanished engine, which harms nobody else */
};
void device_write(struct sim *sim, const struct sim_row *row);
void device_read(struct sim *sim, const struct sim_row *row);
/* Fills a whole slot with SIM_POISON, or with SIM_SCRIBBLE. */
void device_fill(struct sim *sim, uint32_t arena, uint32_t slot, uint64_t word);

/* sim_copies.c */
void copy_begin(struct sim *sim, const struct sim_effect *kept);
void copy_proceed(struct sim *sim, struct sim_copy *copy, uint32_t num_rows);
void copy_end(struct sim *sim, struct sim_copy *copy, enum sim_fault fault);
enum sim_fault copy_draw_fault(struct sim *sim, const struct sim_copy *copy, uint32_t one_in);

struct sim_attend *attend_begin(struct sim *sim, uint32_t step, uint32_t layer);
void attend_proceed(struct sim *sim, struct sim_attend *attend, uint32_t num_tokens);
void attend_end(struct sim *sim, struct sim_attend *attend, int error);

/* ---- the oracle (sim_stored.c, sim_oracle.c) --------------------------------------------------
 */

uint32_t sim_family(uint32_t payer, uint32_t model, uint32_t group);
void oracle_init(struct sim *sim);
void oracle_reset(struct sim *sim); /* nothing is stored any more */
void oracle_stored(struct sim *sim, const struct sim_effect *effect);
void oracle_removed(struct sim *sim, const struct sim_effect *effect);
void oracle_present(struct sim *sim, const struct sim_effect *effect);
void oracle_gone(struct sim *sim, uint32_t arena, uint32_t slot);
void oracle_cleared(struct sim *sim, uint32_t payer, uint32_t model);
/* Whatever can be found is somewhere. */
void oracle_check_stored(struct sim *sim);
/* The entry of a key, cleared or not; NULL: it is not stored. */
struct sim_stored *oracle_entry(struct sim *sim, uint32_t family, const struct pool_key *key);

/* Whether a key can be found in the arena of (payer, model, group). */
bool oracle_is_stored(const struct sim *sim, uint32_t payer, uint32_t model, uint32_t group,
                      const struct pool_key *key);

/* The nearest tier where it is, and readable; POOL_NUM_TIERS: none, it is on its way up. */
uint32_t oracle_tier(const struct sim *sim, uint32_t payer, uint32_t model, uint32_t group,
                     const struct pool_key *key);

/* What a match of the prompt must find: pool/pool.h leaves no choice. */
struct sim_match {
    uint32_t tokens, num_shared;   /* blocks of the shared domain */
    uint32_t below;                /* tokens with a block that is not on the device */
    uint32_t present;              /* leading tokens whose blocks all are */
    uint32_t hits[POOL_NUM_TIERS]; /* tokens, by the tier of the furthest of their blocks */
};
struct sim_match oracle_match(const struct sim *sim, const struct sim_prompt *prompt);
/* An allocation that hit so many tokens was granted. */
void oracle_count_hits(struct sim *sim, const uint32_t *hits);

/*
 * Has someone in this domain block @position of this prefix, and not yet published it, or not yet
 * up to
 * @last?
 */
bool oracle_has_filler(const struct sim *sim, const struct sim_fill *fill);

/* Its full blocks of so many tokens were published, or looked at. */
void oracle_considered(const struct sim *sim, struct sim_sequence *sequence, uint32_t num_tokens);

/* Compares everything that the core says of a sequence, and reads every complete row. */
void oracle_check_sequence(struct sim *sim, const struct sim_sequence *sequence);

uint64_t oracle_root(uint64_t salt, uint32_t model);
uint64_t oracle_extend(uint64_t hash, uint32_t token);
struct pool_key oracle_key(uint32_t payer, uint64_t hash);
uint64_t oracle_key_hash(const struct pool_key *key, uint32_t payer);

/* ---- quotas (sim_books.c) -----------------------------------------------------------------------
 */

struct sim_books {
    uint64_t charged[SIM_MAX_PAYERS][POOL_MAX_DEVICES];
};
void books_open(struct sim *sim, struct sim_books *out_books);
/* After a verb that takes slots for the payers in the bit set @askers. */
void books_close(struct sim *sim, const struct sim_books *before, uint32_t askers);

/* ---- engines (sim_engine.c) -------------------------------------------------------------------
 */

const struct pool_model_shape *sim_shape(const struct sim *sim, uint32_t model);
uint32_t sim_arena_of(const struct sim *sim, const struct sim_sequence *sequence, uint32_t group,
                      bool is_shared);

/* Which of @count things to take, starting at a random one; NONE if @accept takes none. */
typedef bool sim_filter(const struct sim *sim, uint32_t index);
uint32_t sim_pick(struct sim *sim, uint32_t count, sim_filter *accept);
bool sim_is_sequence(const struct sim *sim, uint32_t index);
bool sim_is_session(const struct sim *sim, uint32_t index);

void engine_prompt(struct sim *sim, struct sim_prompt *prompt);
/*
 * @count tokens of a sequence from @first on, new ones behind its own, and the keys of the blocks
 * that become full beyond its first @known tokens.
 */
void engine_tokens(struct sim *sim, const struct sim_sequence *sequence, uint32_t first,
                   uint32_t count, uint32_t known, struct sim_prompt *out);
/* Writes K and V of complete tokens from @first on, all layers. */
void engine_write(struct sim *sim, const struct sim_sequence *sequence, uint32_t first,
                  uint32_t end);
/* Tokens from @first on are complete: written now, or by a mapped engine at some later time. */
void engine_write_new(struct sim *sim, struct sim_sequence *sequence, uint32_t first);
void engine_request(struct sim *sim, const struct sim_request *request);
void engine_reply(struct sim *sim, const struct pool_effect *effect);
/* Forgets what a session had. */
void engine_session_end(struct sim *sim, uint32_t session, bool is_attached);
void step_reply(struct sim *sim, const struct sim_request *request, int answer);
void step_forget(struct sim *sim, struct sim_step *step, bool is_attached);
/* Tells the core that an attend ended; @index may be NONE. */
void step_attended(struct sim *sim, uint32_t index, pool_step step, uint32_t layer, int error);
