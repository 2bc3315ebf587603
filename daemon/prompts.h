/*
 * daemon/prompts.h - prompts are named: token ids become keys, in the owner thread or beside it.
 *
 * Keys are made from the domain's secret, the model, adapter and salt, never by an engine. A prompt
 * of up to NAME_INLINE_BLOCKS blocks is named at once; a longer one by the namer, a thread with a
 * queue, so that it stalls nobody (a block costs 50-100 ns). While that runs, further verbs of the
 * same sequence wait for their turn (turns.h).
 */
#pragma once

#include "daemon/call.h"
#include "pool/pool.h"
#include "proto/key.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    NAME_INLINE_BLOCKS = 256,
    NAME_MAX_JOBS = 16, /* being named at the same time; over it: OVERLOADED */
    NAME_MAX_EXTRAS = 512,
    NAME_MAX_EXTRA_BYTES = 32768
};

enum prompt_kind {
    PROMPT_MATCH,
    PROMPT_PREFETCH,
    PROMPT_PREFETCH_SEQUENCE,
    PROMPT_WAIT_ARRIVING,
    PROMPT_ALLOCATE,
    PROMPT_RESUME,
    PROMPT_APPEND
};

/* What one is asked to name, and what for: all that is left of the request once it is unpacked. */
struct naming {
    enum prompt_kind kind;
    uint64_t cookie; /* of the waiting record */
    uint64_t sequence;
    uint32_t model;
    pool_payer domain, shared;
    bool is_raw, is_unfilled, want_table, has_shared;
    uint64_t take;
    uint64_t deadline_ms;
    /* tokens[0] is the first token of block first_block; the first @num_known are in it already */
    uint32_t *tokens;
    uint64_t num_tokens, num_known, first_block;
    uint32_t block_tokens;
    struct key parent, root, shared_root;
    struct key_extra extras[NAME_MAX_EXTRAS];
    uint32_t num_extras, num_extra_bytes;
    uint8_t extra_bytes[NAME_MAX_EXTRA_BYTES];
    struct key *keys, *shared_keys;
    int err;
};

struct namer;

struct prompts {
    struct naming *jobs; /* [0] is the owner's own */
    uint64_t max_tokens, max_blocks;
    uint32_t free_jobs[NAME_MAX_JOBS], num_free;
    pool_payer job_tenants[NAME_MAX_JOBS];
    struct namer *namer;
    uint64_t num_named, num_jobs, num_overloaded; /* blocks; prompts */
};

int prompts_init(struct server *server);
void prompts_finish(struct server *server);

/* Readable when the namer is done with something. */
int prompts_event_fd(const struct prompts *prompts);
void prompts_reap(struct server *server);

/* The request table's handlers. */
int handle_match(struct call *call, wire_reply *reply);
int handle_wait_arriving(struct call *call, wire_reply *reply);
int handle_allocate(struct call *call, wire_reply *reply);
int handle_resume(struct call *call, wire_reply *reply);
int handle_append(struct call *call, wire_reply *reply);
int handle_prefetch(struct call *call, wire_reply *reply);

/* The verb of @naming, which has its keys. Enum wire_status, or CALL_PENDING. */
struct waiting;
int prompts_carry_out(struct server *server, struct waiting *waiting, const struct naming *naming);

/*
 * An allocation or resume that waited for promotions got @answer of the pool. What was promised is
 * taken back unless it is 0. True: it is being carried out again, or nobody waits for it any more.
 */
bool prompts_settle(struct server *server, struct waiting *waiting, int answer);

/*
 * Keys of the blocks that become full when the sequence of @record, as @described, gains @count
 * tokens: into @out. Enum wire_status.
 */
struct sequence_record;
int prompts_name_growth(struct server *server, const struct session *session,
                        const struct sequence_record *record,
                        const struct pool_sequence_description *described, const uint32_t *tokens,
                        uint64_t count, struct key *out);
