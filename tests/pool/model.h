/*
 * tests/pool/model.h - internal: the naive reference model of the pool, for model*.c only.
 *
 * Plain arrays and linear walks, written to be read beside the page that says how the pool behaves.
 * Everything that an allocation may change before it is known to succeed is in struct slots; so
 * "tried without effect" is: copy it, try, and throw the copy away.
 */
#pragma once

#include "tests/pool/script.h"

enum { NO_INDEX = UINT32_MAX };

enum refusal { NOT_FOUND = 1, EXISTS, INVALID, NEVER_FITS, QUOTA, NO_BLOCKS };

/* A tenant or a shared domain: who pays. */
struct payer {
    char name[SCRIPT_MAX_NAME + 1];
    bool is_domain;
    uint64_t guarantee, limit, weight; /* limit: UINT64_MAX is none */
    uint32_t *readers;                 /* of a domain: payers */
    size_t num_readers;
};

struct kv_model {
    char name[SCRIPT_MAX_NAME + 1];
    struct script_group groups[SCRIPT_MAX_GROUPS];
    size_t num_groups;
};

/*
 * Names a block by its whole prefix: its own tokens and extra bytes, and the key before it. Two
 * prefixes are the same exactly when their keys have the same index, because none is there twice.
 */
struct key {
    bool is_used, is_marked;
    uint32_t
        before; /* NO_INDEX: a root, whose tokens are none and whose extra is salt and adapter */
    uint32_t *tokens;
    size_t num_tokens;
    uint8_t *extra;
    size_t num_extra;
};

enum slot_state {
    SLOT_FREE,      /* nobody's; in its arena's free list if its granule is committed */
    SLOT_PRIVATE,   /* in a table; no key */
    SLOT_PUBLISHED, /* has a key; held, or in the cold list */
};

struct slot {
    enum slot_state state;
    uint32_t holds;
    uint32_t key; /* of a published one */
};

enum granule_state {
    GRANULE_ABSENT, /* not in this arena */
    GRANULE_IDLE,   /* committed, all its slots free */
    GRANULE_USED,   /* has a block in use or cached: charged to the arena's payer */
};

/* A slot (or a granule) of an arena. In a table, slot 0 is the null block. */
struct place {
    uint32_t arena, index;
};

struct places {
    struct place *items;
    size_t num, capacity;
};

struct arena {
    uint32_t payer, model, group, per_granule;
    struct slot *slots; /* by slot number; 0 is not used */
    size_t num_slots, slots_capacity;
    enum granule_state *granules;
    size_t num_granules, granules_capacity;
    struct places free; /* in the order in which they will be taken */
};

struct slots {
    uint64_t uncommitted; /* granules */
    struct arena *arenas;
    size_t num_arenas, arenas_capacity;
    struct places cold; /* published blocks that nobody holds, coldest first, all payers' */
    struct places idle; /* granules, idle longest first */
    uint64_t evictions;
};

/* What a prompt is looked up by; of a sequence. */
struct sequence {
    char name[SCRIPT_MAX_NAME + 1], session[SCRIPT_MAX_NAME + 1];
    uint32_t payer, model;
    uint32_t shared; /* the domain of layered=, or NO_INDEX */
    bool has_salt, has_adapter;
    char salt[SCRIPT_MAX_NAME + 1], adapter[SCRIPT_MAX_NAME + 1];
    struct script_extra *extras; /* ascending by block */
    size_t num_extras;
    bool raw, mapped;

    uint32_t *tokens;
    size_t num_tokens, tokens_capacity;
    struct places tables[SCRIPT_MAX_GROUPS];
    size_t num_considered; /* blocks that publish need not look at again */
    uint64_t epoch;        /* of the clear before it */
    bool is_unfilled, is_preempted;
};

struct naive {
    bool has_pool;
    uint64_t num_granules, block_tokens, watermark;
    struct payer *payers;
    size_t num_payers, payers_capacity;
    struct kv_model *models;
    size_t num_models, models_capacity;
    struct slots slots;
    struct slots trial; /* where an allocation is tried */
    struct key *keys;
    size_t num_keys, keys_capacity, sweep_at;
    struct sequence **sequences; /* in the order in which they were made */
    size_t num_sequences, sequences_capacity;
    char (*sessions)[SCRIPT_MAX_NAME + 1]; /* known ones */
    size_t num_sessions, sessions_capacity;
    uint64_t epoch;
    uint64_t query_tokens, hit_tokens, copies, merged;
    struct places batch;                       /* scratch of one release */
    struct places found[2][SCRIPT_MAX_GROUPS]; /* scratch of match */
    struct places planned[SCRIPT_MAX_GROUPS];  /* scratch of allocations: tables */
};

/* model.c: small things that all use. */
void *grow(void *items, size_t *capacity, size_t num, size_t item_size);
void places_add(struct places *places, uint32_t arena, uint32_t index);
void places_insert(struct places *places, size_t at, uint32_t arena, uint32_t index);
void places_remove(struct places *places, size_t at);
void places_copy(struct places *to, const struct places *from);
size_t places_find(const struct places *places, uint32_t arena, uint32_t index); /* or num */
uint32_t find_arena(const struct naive *naive, uint32_t payer, uint32_t model, size_t group);
uint32_t find_payer(const struct naive *naive, const char *name);
int refuse(struct text *answer, enum refusal refusal);
__attribute__((format(printf, 2, 3))) int answer_error(struct text *answer, const char *format,
                                                       ...);
/* The model and payer that @command names, or the only ones. 0, or it has answered. */
int resolve(const struct naive *naive, const struct script_command *command, uint32_t *out_model,
            uint32_t *out_payer, struct text *answer);

/* model_setup.c */
void run_pool(struct naive *naive, const struct script_command *command, struct text *answer);
void run_tenant(struct naive *naive, const struct script_command *command, struct text *answer);
void run_domain(struct naive *naive, const struct script_command *command, struct text *answer);
void run_model(struct naive *naive, const struct script_command *command, struct text *answer);

/* model_slots.c: free slots, granules, eviction. */
uint64_t charged(const struct slots *slots, uint32_t payer);
size_t num_evictable(const struct slots *slots, uint32_t payer);
/* Takes a slot for a new block of @arena; false: it cannot be had. */
bool take_slot(const struct naive *naive, struct slots *slots, uint32_t arena, bool ignore_limit,
               uint32_t *out_slot);
void hold(struct slots *slots, struct place place);
/* @batch collects slots that go to the head of the free slots together; NULL: it goes there now. */
void let_go(struct slots *slots, struct place place, struct places *batch);
void end_batch(struct slots *slots, struct places *batch);
bool evict_one(const struct naive *naive, struct slots *slots);
uint64_t can_be_had(const struct naive *naive, const struct slots *slots, uint32_t asker);
void slots_copy(struct slots *to, const struct slots *from);
void slots_finish(struct slots *slots);

/* model_match.c: keys, and what is found by them. */
struct match {
    size_t num_blocks, num_shared; /* the first num_shared come from the shared domain */
};
uint32_t root_key(struct naive *naive, const struct sequence *sequence, bool make);
uint32_t next_key(struct naive *naive, const struct sequence *sequence, uint32_t before,
                  size_t block, bool make);
void sweep_keys(struct naive *naive);
uint32_t find_slot(const struct arena *arena, uint32_t key); /* 0: no block has it */
size_t match_bound(const struct naive *naive, const struct sequence *prompt);
/* Finds the longest hit, and fills naive->planned with its tables. */
struct match find_match(struct naive *naive, const struct sequence *prompt);
uint64_t arriving_tokens(const struct naive *naive, const struct sequence *prompt,
                         size_t num_matched);

/* model_alloc.c: taking blocks. */
/* The prompt of alloc and find. 0, or it has answered. */
int make_prompt(struct naive *naive, const struct script_command *command, struct text *answer,
                struct sequence **out);
void naive_sequence_destroy(struct sequence *sequence);
struct sequence *find_sequence(const struct naive *naive, const char *name);
void print_tables(const struct naive *naive, const struct sequence *sequence, struct text *answer);
void run_alloc(struct naive *naive, const struct script_command *command, struct text *answer);
void run_resume(struct naive *naive, const struct script_command *command, struct text *answer);
void run_find(struct naive *naive, const struct script_command *command, struct text *answer);
void run_append(struct naive *naive, const struct script_command *command, struct text *answer);

/* model_sequences.c: publishing, forking and letting go. */
void publish(struct naive *naive, struct sequence *sequence);
void run_fill(struct naive *naive, const struct script_command *command, struct text *answer);
void run_publish(struct naive *naive, const struct script_command *command, struct text *answer);
void run_fork(struct naive *naive, const struct script_command *command, struct text *answer);
void run_truncate(struct naive *naive, const struct script_command *command, struct text *answer);
void run_preempt(struct naive *naive, const struct script_command *command, struct text *answer);
void run_release(struct naive *naive, const struct script_command *command, struct text *answer);
void run_end_session(struct naive *naive, const struct script_command *command,
                     struct text *answer);
void run_table(struct naive *naive, const struct script_command *command, struct text *answer);

/* model_report.c: what can be asked, and check. */
void run_free_list(struct naive *naive, const struct script_command *command, struct text *answer);
void run_holds(struct naive *naive, const struct script_command *command, struct text *answer);
void run_evict(struct naive *naive, const struct script_command *command, struct text *answer);
void run_clear(struct naive *naive, const struct script_command *command, struct text *answer);
void run_stats(struct naive *naive, const struct script_command *command, struct text *answer);
void run_check(struct naive *naive, const struct script_command *command, struct text *answer);
