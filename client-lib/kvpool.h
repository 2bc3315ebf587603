/*
 * kvpool.h - asking kvpoold for KV-cache memory, from C or C++.
 *
 * A connection is a session: sequences, models, arenas and steps belong to it, and everything that
 * it holds is let go of when it is closed or its process ends. Sequences are named by you.
 *
 * Results. Every int is 0 (done), positive: an answer of the daemon (enum kvpool_status), or
 * negative: an errno, and nothing was sent (-EINVAL: an argument; -EAGAIN: all
 * KVPOOL_MAX_OUTSTANDING requests are taken, claim results first; -EMSGSIZE: over a cap of the
 * protocol, or a result does not fit your memory; -ENOMEM; -EPROTO: the daemon does not keep to the
 * protocol). A verb that was not answered 0 changed nothing. Outputs are written only with 0,
 * unless said otherwise.
 *
 * Any answer can be KVPOOL_DISCONNECTED: the daemon is gone and so is all that the session had;
 * every outstanding request resolves with it. kvpool_reconnect() begins anew. A request that is not
 * answered in its deadline and a second more resolves with KVPOOL_TIMEOUT: it may have been carried
 * out. Every request can be answered INVALID, FAILED, TIMEOUT, UNSUPPORTED or DISCONNECTED; what
 * else, stands at its verb.
 *
 * Threads. A connection has no lock: one thread at a time may use it, whichever. Connections are
 * independent of each other. None survives fork(): the child must not touch it.
 *
 * Memory. What you pass to a call is read before it returns. What you pass for a result (tables,
 * json, data) is yours and must stay until the request resolved. After kvpool_connect() only
 * kvpool_register_model() and kvpool_open_arena() allocate (and ZeroMQ, for messages).
 *
 * Units: tokens are u32 ids; lengths count tokens, sizes bytes, times milliseconds unless the name
 * says otherwise.
 */
#ifndef KVPOOL_H
#define KVPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvpool; /* one connection */

enum {
    KVPOOL_MAX_OUTSTANDING = 256, /* requests whose results were not claimed */
    KVPOOL_MAX_GROUPS = 8,
    KVPOOL_MAX_MODELS = 64, /* of one connection */
    KVPOOL_MAX_MESSAGE = 256
};

enum kvpool_status {
    KVPOOL_OK = 0,
    KVPOOL_NOT_FOUND,    /* no such model, domain, sequence, step, session or request of yours */
    KVPOOL_EXISTS,       /* the name is taken */
    KVPOOL_INVALID,      /* not in this state, or not with these arguments */
    KVPOOL_NEVER_FITS,   /* more than the empty pool or your limit can hold */
    KVPOOL_QUOTA,        /* your limit is in the way: retry after a release of yours */
    KVPOOL_NO_BLOCKS,    /* no block can be had now: retry after a release */
    KVPOOL_LIMIT,        /* a cap of the daemon's configuration */
    KVPOOL_STALE,        /* of an earlier daemon, generation or epoch */
    KVPOOL_DRAINING,     /* no new sequences are taken */
    KVPOOL_BUSY,         /* the sequence is in an open step, or short of memory: retry later */
    KVPOOL_MISS,         /* what was waited for will not come */
    KVPOOL_TIMEOUT,      /* the deadline passed */
    KVPOOL_FAILED,       /* a copy or a device failed; undone */
    KVPOOL_MALFORMED,    /* the daemon cannot read what this library sent */
    KVPOOL_UNSUPPORTED,  /* the daemon does not speak this version, verb or option */
    KVPOOL_DENIED,       /* no tenant for these credentials, or not an operator */
    KVPOOL_OVERLOADED,   /* more requests outstanding than allowed */
    KVPOOL_CANCELLED,    /* by kvpool_cancel() */
    KVPOOL_DISCONNECTED, /* the daemon is gone, and with it what this session held */
    KVPOOL_NUM_STATUSES
};

/* Of any int that a function here returned. Static; never NULL. */
const char *kvpool_status_name(int status); /* "NO_BLOCKS"; of an errno, "EINVAL" */
const char *kvpool_status_text(int status); /* what it means and what to do */
bool kvpool_status_may_retry(int status);   /* the same call may succeed later, unchanged */

/* ---- connections ---- */

enum kvpool_flag {
    KVPOOL_MAPPED = 1,         /* you read and write K and V in mapped arenas: no steps */
    KVPOOL_MANUAL_PUBLISH = 2, /* committed steps publish only by kvpool_publish() */
    /* What of this session is kept in tiers below the device; none of these: as the daemon's
     * operator has set it. Of several publishers of a block the strictest counts. */
    KVPOOL_STORE_NONE = 8,
    KVPOOL_STORE_PROMPT = 16, /* blocks of allocated tokens; of a preempted sequence all */
    KVPOOL_STORE_ALL = 32,
    KVPOOL_NO_RINGS = 256 /* steps go by messages too: slower, for debugging */
};

/* Zero is a good value of every field but struct_bytes. */
struct kvpool_options {
    size_t struct_bytes;  /* sizeof(struct kvpool_options) */
    const char *dir;      /* where the daemon's sockets are; NULL: $KVPOOL_DIR, or /run/kvpoold */
    const char *token;    /* of a tenant; NULL: your user id says which tenant you are */
    uint32_t flags;       /* enum kvpool_flag */
    uint32_t connect_ms;  /* retry so long while no daemon is there; 0: 5000 */
    uint32_t deadline_ms; /* of requests that name none; 0: 10000 */
    uint32_t spin_us;     /* look at the rings so long before sleeping; 0: 20; 1: as good as none */
    uint64_t staging_bytes; /* memory for queries, outputs, blocks; 0: the daemon's default */
    char *out_message;      /* KVPOOL_MAX_MESSAGE bytes: says why connecting failed; or NULL */
};

/*
 * Connects as an engine, retrying for connect_ms while nobody listens (then -ECONNREFUSED, -ENOENT,
 * -EACCES ...). Answers: DENIED, LIMIT, DRAINING, UNSUPPORTED (another major version).
 */
int kvpool_connect(const struct kvpool_options *options, struct kvpool **out_kvpool);

/* Connects to the operator's socket: for KVPOOL_DRAIN and below. No session, no staging. */
int kvpool_connect_operator(const struct kvpool_options *options, struct kvpool **out_kvpool);

/* Ends the session. Takes NULL. Arenas stay mapped until kvpool_close_arena(). */
void kvpool_disconnect(struct kvpool *kvpool);

/*
 * After KVPOOL_DISCONNECTED: connects again, with the same options, and registers the same models,
 * so that their handles stay good. Sequences are gone: allocate them again (what is cached is
 * found). Staging is new memory: ask for its address again. Outstanding requests resolved before.
 */
int kvpool_reconnect(struct kvpool *kvpool);

bool kvpool_is_connected(const struct kvpool *kvpool);   /* as far as is known: asks nobody */
uint64_t kvpool_session(const struct kvpool *kvpool);    /* 0 of an operator */
const char *kvpool_message(const struct kvpool *kvpool); /* the last synchronous call's, or "" */

/* ---- models and arenas ---- */

enum kvpool_dtype { KVPOOL_F32 = 1, KVPOOL_F16, KVPOOL_BF16, KVPOOL_OPAQUE };

struct kvpool_layer_group {
    uint32_t window;        /* tokens that a query sees, itself included; 0: all */
    const uint16_t *layers; /* which of the model's layers, ascending */
    uint32_t num_layers;
};

/* What changes the bytes of a block decides who may share it: proto/KEYS.md. NULL and 0: absent. */
struct kvpool_model {
    const char *name;
    const char *weights_revision; /* names the weights' content: a commit, a digest */
    uint32_t num_layers;
    const struct kvpool_layer_group *groups;
    uint32_t num_groups;
    uint32_t num_q_heads; /* of attends */
    uint32_t num_kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim; /* 0: V is a prefix of K (MLA), of mla_v_dim */
    uint32_t mla_v_dim;
    enum kvpool_dtype dtype;
    uint32_t block_tokens; /* 0: 16 */
    const char *rope_kind;
    double rope_theta;
    uint32_t rope_dims;
    const char *rope_scaling;
    uint32_t tp_ranks;       /* 0: 1 */
    const char *layout_name; /* KVPOOL_OPAQUE: blocks are stored, not attended */
    uint32_t layout_version;
    uint64_t opaque_block_bytes;
};

struct kvpool_model_shape {
    uint32_t num_groups;
    uint64_t block_bytes[KVPOOL_MAX_GROUPS];
    uint64_t stride_bytes[KVPOOL_MAX_GROUPS]; /* from one slot to the next */
    uint32_t slots_per_granule[KVPOOL_MAX_GROUPS];
};

/*
 * The same model again has the same handle. @out_shape may be NULL. A model is remembered for
 * kvpool_reconnect(). Answers: LIMIT, NEVER_FITS. -ENOSPC: KVPOOL_MAX_MODELS are registered.
 */
int kvpool_register_model(struct kvpool *kvpool, const struct kvpool_model *model,
                          uint32_t *out_model, struct kvpool_model_shape *out_shape);

/* Mapped memory of one group's blocks: slot s, from 1, is at base + (s - 1) * stride_bytes. */
struct kvpool_arena {
    void *base;
    uint64_t num_bytes, stride_bytes;
    uint32_t arena;
    bool is_writable;
    int fd; /* of this memory, for kvpool_map_arena() in another process; closed with the arena */
};

/*
 * @domain NULL: your own. Touch only slots of your sequences' tables. @out_arena is closed once.
 * Answers: NOT_FOUND.
 */
int kvpool_open_arena(struct kvpool *kvpool, uint32_t model, uint32_t group, const char *domain,
                      struct kvpool_arena *out_arena);
void kvpool_close_arena(struct kvpool_arena *arena); /* takes one that is closed */

/* ---- further processes of a mapped session, such as workers of a scheduler ---- */

enum { KVPOOL_SESSION_TOKEN_BYTES = 16 };

/* With kvpool_session(), what a process needs to attach: whoever has both can act as the session.
 * Valid while connected. */
const uint8_t *kvpool_session_token(const struct kvpool *kvpool);

/*
 * In the other process, before it maps anything. Slots that are taken from the session (it ends, or
 * is kicked) are reused only when every attached process is gone. *out_fd is closed after the last
 * kvpool_close_arena(). Reads dir and out_message of @options, which may be NULL.
 * Answers: NOT_FOUND (no such session, or another user's), LIMIT, DRAINING.
 */
int kvpool_attach(const struct kvpool_options *options, uint64_t session, const void *token,
                  int *out_fd);

/*
 * Maps what the session opened: @arena is a copy of its fields but base and fd; @fd came by fork(),
 * exec() or SCM_RIGHTS, and is the arena's from now on, unless this fails.
 */
int kvpool_map_arena(struct kvpool_arena *arena, int fd);

/* ---- staging: memory that you and the daemon share ---- */

/* The whole of it. Offsets in requests count from here. */
void *kvpool_staging(const struct kvpool *kvpool, uint64_t *out_num_bytes);

/*
 * The next @num_bytes, aligned to 64; -ENOMEM when it is used up. A convenience: divide staging
 * yourself if that suits you better. kvpool_staging_reset() takes all back.
 */
int kvpool_staging_take(struct kvpool *kvpool, uint64_t num_bytes, uint64_t *out_offset);
void kvpool_staging_reset(struct kvpool *kvpool);

/* ---- what requests are made of ---- */

/*
 * What else K and V of one block depend on, such as an image's digest and its offset. It stays with
 * the sequence: what is appended in that block later has it too, until a truncation cuts the block
 * off whole. At most 512 of a prompt, of 32 KiB together.
 */
struct kvpool_extra {
    uint32_t block;
    const void *bytes;
    size_t num_bytes;
};

/* Strings NULL or "": absent. All but model, tokens and raw separates what must not be shared. */
struct kvpool_prompt {
    uint32_t model;
    const uint32_t *tokens;
    size_t num_tokens;
    const char *shared_domain; /* it may start in this one */
    const char *fill_domain;   /* new blocks go there; for its fillers */
    const void *salt;
    size_t salt_bytes;
    const char *adapter;
    uint64_t adapter_generation;
    const struct kvpool_extra *extras; /* ascending blocks */
    size_t num_extras;
    bool raw; /* a match may include the last token */
};

/* A group's table: your arrays of @max entries. Slot 0: the block left the window. */
struct kvpool_table {
    uint32_t *slots, *generations; /* either may be NULL */
    uint32_t max;
    uint32_t num;        /* out: entries of the table; those past @max are not written */
    uint32_t num_shared; /* out: the first so many are in the shared domain's arena */
};

/* Of a step: what one sequence gains. */
struct kvpool_row {
    uint64_t sequence;
    const uint32_t *tokens;
    uint32_t num_tokens;
};

/*
 * One layer of a step. Tensors are tightly packed in staging, at offsets that are multiples of 4;
 * rows are ordered as the step named its sequences, then by position. They belong to the daemon
 * until the request resolved.
 *     q [row][q_head][k_head_dim], k [row][kv_head][k_head_dim] after RoPE, v
 * [row][kv_head][v_head_dim] (MLA: none), out [row][q_head][v_head_dim or mla_v_dim]; all of @dtype
 *     lse [row][q_head], natural logarithm, sinks [q_head]; f32
 */
struct kvpool_attend {
    uint64_t step;
    uint32_t layer;
    enum kvpool_dtype dtype;
    uint64_t q_offset, k_offset, v_offset, out_offset;
    bool want_lse, has_sinks;
    uint64_t lse_offset, sinks_offset;
    float scale;    /* 0: 1 / sqrt(k_head_dim) */
    float soft_cap; /* c > 0: a score s becomes c * tanh(s / c) */
};

/* Whole blocks of one group of a sequence: [block][layer][K,V][kv_head][token][dim]. */
struct kvpool_blocks {
    uint64_t sequence;
    uint32_t group, first_block, num_blocks;
    void *data; /* num_blocks * block_bytes; NULL: they lie in staging */
    uint64_t data_bytes;
    uint64_t staging_offset;
};

struct kvpool_quota {
    uint64_t guarantee_bytes;
    bool has_limit;
    uint64_t limit_bytes;
    uint64_t weight; /* 0: 1 */
};

/* Which fields of struct kvpool_request a verb reads, and what its result has. */
enum kvpool_verb {
    KVPOOL_MATCH = 1,     /* prompt -> matched, arriving, below */
    KVPOOL_WAIT_ARRIVING, /* prompt, deadline_ms -> matched, arriving */
    KVPOOL_PREFETCH,      /* prompt; or, with NULL, sequence -> matched, present, coming */
    KVPOOL_ALLOCATE, /* sequence, prompt, unfilled, take, tables -> matched, arriving, below, length
                      */
    KVPOOL_RESUME,   /* sequence, unfilled, take, tables -> matched, arriving, below, length */
    KVPOOL_APPEND,   /* sequence, tokens, num_tokens, tables -> length */
    KVPOOL_FILL,     /* sequence, tables -> length */
    KVPOOL_PUBLISH,  /* sequence, length (0: all complete), tables -> length */
    KVPOOL_PREEMPT,  /* sequence */
    KVPOOL_RELEASE,  /* sequence */
    KVPOOL_FORK,     /* sequence, child, tables -> length */
    KVPOOL_TRUNCATE, /* sequence, length, tables -> length */
    KVPOOL_WRITE,    /* blocks -> num_bytes */
    KVPOOL_READ,     /* blocks -> num_bytes */
    KVPOOL_STEP,     /* rows, num_rows -> step, num_rows */
    KVPOOL_ATTEND,   /* attend */
    KVPOOL_END_STEP, /* step, abandon */
    KVPOOL_CANCEL,   /* ticket */
    KVPOOL_STATS,    /* json, json_max, want_events, after -> num_bytes */
    KVPOOL_DRAIN,    /* undo; this and all below are the operator's */
    KVPOOL_CLEAR,    /* domain, model_name; NULL: all */
    KVPOOL_SET_QUOTA,     /* domain: of a tenant or domain, quota; what: NULL, "host", "disk" */
    KVPOOL_CREATE_DOMAIN, /* domain, quota, readers, fillers */
    KVPOOL_LIST,          /* what, json, json_max -> num_bytes */
    KVPOOL_KICK,          /* session */
    KVPOOL_SHUTDOWN,      /* forget */
    KVPOOL_NUM_VERBS
};

struct kvpool_request {
    enum kvpool_verb verb;
    uint32_t deadline_ms; /* 0: the connection's */
    bool via_ring; /* step, attend, end step; publish, truncate, release, fork without tables */
    uint64_t sequence, child;
    const struct kvpool_prompt *prompt;
    bool unfilled; /* K and V come with steps, or with write and fill */
    bool has_take;
    uint64_t take; /* only so many of the tokens beyond the match */
    const uint32_t *tokens;
    size_t num_tokens;
    uint64_t length; /* tokens that stay; publish: that are written, of a mapped session */
    const struct kvpool_row *rows;
    uint32_t num_rows;
    const struct kvpool_attend *attend;
    uint64_t step;
    bool abandon;
    const struct kvpool_blocks *blocks;
    uint64_t ticket;
    struct kvpool_table *tables; /* of each group, in order; or NULL */
    uint32_t num_tables;
    char *json; /* NUL-terminated */
    size_t json_max;
    const char *domain, *model_name, *what;
    struct kvpool_quota quota;
    const char *const *readers, *const *fillers; /* names of tenants; NULL-terminated, or NULL */
    uint64_t session;
    bool undo, forget;
    bool want_events; /* stats: the tenant's own block events, behind number @after */
    uint64_t after;
};

struct kvpool_result {
    uint64_t ticket;
    int status;       /* 0, enum kvpool_status, or -EMSGSIZE: the answer does not fit your memory */
    uint64_t matched; /* tokens that are there already */
    uint64_t arriving;  /* tokens after them that another sequence is filling */
    uint64_t length;    /* tokens of the sequence */
    uint64_t step;      /* handle */
    uint32_t num_rows;  /* token rows of the step */
    uint64_t num_bytes; /* of blocks, or of json without its NUL (also with -EMSGSIZE) */
    char message[KVPOOL_MAX_MESSAGE]; /* why not; "" with 0 */
    uint64_t below;   /* of the matched tokens, those that are (were) below the device */
    uint64_t present; /* prefetch: leading tokens that are on the device */
    uint64_t coming;  /* prefetch: tokens behind them that are on their way */
};

/* ---- pipelined: many requests outstanding ---- */

/*
 * Takes the request; it is sent at the latest by kvpool_flush(), kvpool_wait(), kvpool_poll() or
 * any synchronous call. Every ticket is claimed once, by wait or poll. Requests of one sequence are
 * carried out in order, if all go one way (via_ring or not); others in any order.
 */
int kvpool_submit(struct kvpool *kvpool, const struct kvpool_request *request,
                  uint64_t *out_ticket);
int kvpool_flush(struct kvpool *kvpool);

/* Blocks until @ticket is resolved; returns its status, with *out_result always written. -ENOENT:
 * no such ticket, or claimed before. @out_result may be NULL. */
int kvpool_wait(struct kvpool *kvpool, uint64_t ticket, struct kvpool_result *out_result);

/* Claims any resolved request, after at most @timeout_ms (0: looks only; -1: as long as it takes).
 * 0: *out_result has it, and its status; -EAGAIN: none; -ENOENT: none is outstanding. */
int kvpool_poll(struct kvpool *kvpool, int timeout_ms, struct kvpool_result *out_result);

uint32_t kvpool_num_outstanding(const struct kvpool *kvpool); /* not claimed */

/* Submit and wait. @out_result may be NULL; else it is always written. */
int kvpool_call(struct kvpool *kvpool, const struct kvpool_request *request,
                struct kvpool_result *out_result);

/* ---- synchronous verbs; @out_result may be NULL ---- */

/* NOT_FOUND. No side effect. */
int kvpool_match(struct kvpool *kvpool, const struct kvpool_prompt *prompt,
                 struct kvpool_result *out_result);

/* Until what another sequence is filling behind the match can be had. MISS: it will not come. */
int kvpool_wait_arriving(struct kvpool *kvpool, const struct kvpool_prompt *prompt,
                         uint32_t deadline_ms, struct kvpool_result *out_result);

/*
 * Begins to fetch what an allocation of @prompt would find in tiers below the device, or a resume
 * of the preempted @sequence; as far as there is room now. Holds nothing, and answers at once.
 */
int kvpool_prefetch(struct kvpool *kvpool, const struct kvpool_prompt *prompt,
                    struct kvpool_result *out_result);
int kvpool_prefetch_sequence(struct kvpool *kvpool, uint64_t sequence,
                             struct kvpool_result *out_result);

/* @options NULL: filled, all tokens, no tables. */
struct kvpool_allocate_options {
    bool unfilled, has_take;
    uint64_t take;
    struct kvpool_table *tables;
    uint32_t num_tables;
};

/* All or nothing; waits for what it finds below the device. EXISTS, NOT_FOUND, NEVER_FITS, QUOTA,
 * NO_BLOCKS, LIMIT, DRAINING. */
int kvpool_allocate(struct kvpool *kvpool, uint64_t sequence, const struct kvpool_prompt *prompt,
                    const struct kvpool_allocate_options *options,
                    struct kvpool_result *out_result);

/* Of a preempted sequence: its blocks again. As kvpool_allocate(). */
int kvpool_resume(struct kvpool *kvpool, uint64_t sequence,
                  const struct kvpool_allocate_options *options, struct kvpool_result *out_result);

/* Complete tokens. NOT_FOUND, QUOTA, NO_BLOCKS, NEVER_FITS, LIMIT, BUSY. */
int kvpool_append(struct kvpool *kvpool, uint64_t sequence, const uint32_t *tokens,
                  size_t num_tokens, struct kvpool_result *out_result);

/* NOT_FOUND, BUSY, STALE: a Clear or a restart came between. */
int kvpool_fill(struct kvpool *kvpool, uint64_t sequence);
int kvpool_publish(struct kvpool *kvpool, uint64_t sequence);

/*
 * Of a KVPOOL_MAPPED connection: K and V of the first @num_tokens are written, and their full
 * blocks may be found. The rest is published later; an unfilled sequence is filled once all are. As
 * kvpool_publish(); INVALID: beyond its length, or less than is complete of an unfilled one.
 */
int kvpool_publish_up_to(struct kvpool *kvpool, uint64_t sequence, uint64_t num_tokens);

/* NOT_FOUND, BUSY; INVALID while in a step. */
int kvpool_preempt(struct kvpool *kvpool, uint64_t sequence);
int kvpool_release(struct kvpool *kvpool, uint64_t sequence);
int kvpool_truncate(struct kvpool *kvpool, uint64_t sequence, uint64_t length);

/* @child shares every block. NOT_FOUND, EXISTS, LIMIT, BUSY. */
int kvpool_fork(struct kvpool *kvpool, uint64_t sequence, uint64_t child);

/* NOT_FOUND, BUSY, STALE. -EINVAL: data_bytes is no multiple of num_blocks. Over 4 MiB that are not
 * in staging: -EMSGSIZE, or what is read UNSUPPORTED. */
int kvpool_write(struct kvpool *kvpool, const struct kvpool_blocks *blocks);
int kvpool_read(struct kvpool *kvpool, const struct kvpool_blocks *blocks);

/*
 * One forward pass: step, then an attend for each layer, in any order; the last one commits. End a
 * step yourself to commit early (INVALID: layers are missing) or to abandon it. By ring, unless
 * KVPOOL_NO_RINGS. NOT_FOUND, QUOTA, NO_BLOCKS, NEVER_FITS, LIMIT, BUSY, STALE. After a TIMEOUT of
 * an attend its tensors are still the daemon's, until the step is ended or the session is.
 */
int kvpool_step(struct kvpool *kvpool, const struct kvpool_row *rows, uint32_t num_rows,
                uint64_t *out_step);
int kvpool_attend(struct kvpool *kvpool, const struct kvpool_attend *attend);
int kvpool_end_step(struct kvpool *kvpool, uint64_t step, bool abandon);

/* The request of @ticket resolves with CANCELLED. NOT_FOUND: it was answered before. */
int kvpool_cancel(struct kvpool *kvpool, uint64_t ticket);

/* Your tenant's numbers as JSON (proto/README.md, section 8). -EMSGSIZE: more than @max bytes. */
int kvpool_stats(struct kvpool *kvpool, char *out_json, size_t max);

/*
 * ---- the client's half of the rings, for libraries in languages without atomics ----
 *
 * Of a session that you opened yourself, without this library: proto/README.md says how, and what
 * the entries are. @staging is the whole mapping, its header first, and the header was checked. The
 * state is there alone. One thread at a time.
 */
enum { KVPOOL_SUBMISSION_BYTES = 128, KVPOOL_COMPLETION_BYTES = 32 };

/* Copies one entry in and wakes the daemon if it sleeps. -EAGAIN: the ring is full, that is as many
 * are outstanding as it holds; another errno: it is submitted, but the daemon could not be woken.
 */
int kvpool_ring_submit(void *staging, int daemon_eventfd, const void *submission);

/* 1: *out_completion is the next entry; 0: there is none; -EPROTO: more than were outstanding. */
int kvpool_ring_receive(void *staging, void *out_completion);

uint32_t kvpool_ring_outstanding(const void *staging); /* submitted, and not received */

/* Looks for a completion for so long: whether one is there. */
bool kvpool_ring_spin(const void *staging, uint32_t spin_us);

/* Before you sleep on your own eventfd; false: do not, a completion is there. Disarm afterwards. */
bool kvpool_ring_arm(void *staging);
void kvpool_ring_disarm(void *staging);

#ifdef __cplusplus
}
#endif

#endif
