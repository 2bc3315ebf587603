/*
 * tests/pool/subject_core.h - (of the subject_*.c files) the core as it answers the shell's lines.
 *
 * It plays the daemon (keys from the prompts' identities, sessions by name), the engine, and a
 * device that finishes at once: copies are done, and what goes on in slices is done, before a line
 * is answered.
 */
#pragma once

#include "pool/pool.h"
#include "proto/key.h"
#include "tests/pool/script.h"

enum { MAX_NAMES = 1024 };

struct name {
    char text[SCRIPT_MAX_NAME + 1];
    bool is_domain;
};

/* What a sequence's keys are made of beside its tokens. */
struct identity {
    struct key root, shared_root;
    bool has_shared;
    struct key_extra *extras;
    size_t num_extras;
};

struct named_session {
    char name[SCRIPT_MAX_NAME + 1]; /* "": of the lines without session= */
    pool_session id;
    bool is_ended; /* processes of it are still attached */
};

struct named_sequence {
    char name[SCRIPT_MAX_NAME + 1];
    struct pool_name id;
    struct identity identity;
};

struct named_step {
    char name[SCRIPT_MAX_NAME + 1];
    pool_step id;
};

/* A copy that the device was told of. */
struct copy {
    struct pool_effect effect;
    bool is_done;
};

/* A verb that may wait: its cookie is its index here, plus 1. */
struct pending {
    char name[SCRIPT_MAX_NAME + 1]; /* of its sequence, step or request */
    bool is_release;                /* the sequence is gone with the reply */
    bool is_alloc;                  /* it is gone if the reply is a refusal */
    bool is_filled;                 /* and published if it is none */
    bool is_answered;
};

struct reply {
    uint64_t cookie;
    int answer;
};

struct core {
    struct pool *pool;
    struct key_hasher *hasher;
    struct name payers[MAX_NAMES], models[MAX_NAMES];
    struct pool_model_shape shapes[MAX_NAMES];
    uint32_t num_payers, num_models;
    uint64_t block_tokens, num_made;
    struct named_session *sessions;
    struct named_sequence *sequences;
    size_t num_sessions, num_sequences;
    bool is_holding; /* copies stay under way */
    struct copy *copies;
    struct pending *pending;
    struct reply *replies; /* not told yet */
    struct named_step *steps;
    size_t num_copies, num_pending, num_replies, num_steps;
};

/* ---- subject_core.c: answers, the device, the daemon's loop ---------------------------------- */

/* Adds the refusal's word; false: it is none. */
bool core_refused(struct text *text, int answer);
void core_on_effect(void *context, const struct pool_effect *effect);
/* Everything that was begun ends now, but for copies that are held. */
void core_settle(struct core *core);
/* Makes room for one more item of an array that grows. */
void *core_grow(void *items, size_t num, size_t item_size);
/* The cookie of a verb that may wait, under the name that "replies" tells. */
uint64_t core_expect(struct core *core, const char *name, bool is_release);
/* How the verb of the last cookie ended, after everything that can end has; POOL_PENDING: not yet.
 */
int core_outcome(struct core *core, uint64_t cookie, int answer);

/* ---- subject_names.c: names and keys --------------------------------------------------------- */

/* POOL_NONE: there is no such name. */
uint32_t core_find_name(const struct name *names, uint32_t count, const char *text);
/* model= and tenant=, or the only ones. False: it has answered. */
bool core_resolve(const struct core *core, const struct script_command *command,
                  pool_model *out_model, pool_payer *out_payer, struct text *answer);

struct named_sequence *core_find_sequence(const struct core *core, const char *name);
/* The sequence a line names, or NULL after answering NOT_FOUND. */
struct named_sequence *core_named(const struct core *core, const struct script_command *command,
                                  struct text *answer);
struct named_sequence *core_remember_sequence(struct core *core, const char *name,
                                              struct pool_name id);
void core_forget_sequence(struct core *core, struct named_sequence *sequence);
struct named_session *core_find_session(const struct core *core, const char *name);
/* NULL: there are too many. */
struct named_session *core_remember_session(struct core *core, const char *name);

/* A secret for each domain and a fingerprint for each model: their numbers. */
void core_make_root(const struct core *core, pool_payer domain, pool_model model,
                    const struct script_command *command, struct key *out_root);
void core_copy_extras(const struct script_command *command, struct identity *identity);
void core_identity_finish(struct identity *identity);
/* Keys of the full blocks of @count tokens that start at block @first, behind @parent. */
struct pool_key *core_make_keys(const struct core *core, const struct identity *identity,
                                const struct key *parent, uint64_t first, const uint32_t *tokens,
                                uint64_t count);
/* Tokens with both chains of keys; to be finished. */
struct pool_tokens core_make_tokens(const struct core *core, const struct identity *identity,
                                    const uint32_t *ids, uint64_t count);
/* @count more tokens behind the first @from of the sequence, with the keys of the blocks they fill.
 */
struct pool_tokens core_more_tokens(const struct core *core, const struct named_sequence *sequence,
                                    uint64_t from, const uint32_t *ids, uint64_t count);
void core_tokens_finish(struct pool_tokens *tokens);

/* The prompt of an alloc, find or wait line (subject_sequences.c). False: it has answered. */
bool core_make_prompt(const struct core *core, const struct script_command *command,
                      struct identity *identity, struct pool_prompt *out_prompt,
                      struct text *answer);

/* ---- subject_reports.c ------------------------------------------------------------------------
 */

void core_print_table(const struct core *core, struct pool_name id, struct text *answer);
/* "ok table=...", or the refusal. */
void core_answer_table(struct core *core, int result, struct pool_name id, struct text *answer);

/* ---- who answers which verb -------------------------------------------------------------------
 */

typedef void core_verb(struct core *core, const struct script_command *command,
                       struct text *answer);

core_verb core_pool, core_payer, core_model; /* subject_setup.c */
core_verb core_alloc, core_find, core_append, core_fill, core_publish, core_fork, core_truncate,
    core_preempt, core_resume, core_release, core_end_session; /* subject_sequences.c */
core_verb core_table, core_free_list, core_holds, core_evict, core_clear, core_stats,
    core_check; /* subject_reports.c */
core_verb core_hold_effects, core_release_effects, core_effects, core_complete, core_fail,
    core_step, core_attend, core_attended, core_end_step, core_wait, core_cancel, core_tick,
    core_replies, core_quota, core_detach;                  /* subject_extended.c */
core_verb core_tier, core_store, core_prefetch, core_tiers; /* subject_tiers.c */

/* POOL_NUM_TIERS: there is no such word. */
enum pool_tier core_find_tier(const char *word);
