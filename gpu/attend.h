/*
 * gpu/attend.h - paged attention: planned once a step for a layer group, attended once a layer.
 *
 *   gpu_attention_create       what all steps share: worker threads, scratch, the version chosen
 *   gpu_step_plan_create       room for one step's plan: nothing is allocated after it
 *   gpu_step_plan_build        tables checked, shared prefixes found, long sequences split
 *   gpu_attend                 one layer: new K and V into the blocks, then attention over them
 *
 * Included by gpu/gpu.h. All of it belongs to one thread, the owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_attention;
struct gpu_step_plan;
struct gpu_workers;

enum gpu_dtype {
    GPU_F32,
    GPU_F16,
    GPU_BF16,
};

enum {
    GPU_DIM_MULTIPLE = 16, /* head dims are multiples of this ... */
    GPU_MAX_DIM = 640,     /* ... up to this (MLA: 576) */
};

/* What gpu_attend says if it is neither done nor failed. */
enum gpu_attend_answer {
    GPU_ATTEND_QUEUED = 2, /* done() follows, in the owner's thread (1 is GPU_BUSY) */
};

struct gpu_attention_options {
    struct gpu_workers *workers; /* NULL: the owner's thread does everything */
    const char *version;         /* one of gpu_attention_version_name(); NULL: the best here */
    uint32_t inline_us;          /* less work than this stays in the owner's thread; 0: 50 */
};

/*
 * The layers of one group. A block is [layer][K,V][kv_head][token][dim] in kv_dtype; with
 * is_v_in_k (MLA) it is [layer][token][dim] and V is the first v_dim elements of K.
 */
struct gpu_attend_shape {
    uint32_t num_layers, num_q_heads, num_kv_heads;
    uint32_t k_dim, v_dim;
    uint32_t block_tokens;
    enum gpu_dtype kv_dtype;
    bool is_v_in_k;
    bool is_causal;  /* the row at position p sees keys up to p, else all of its sequence */
    uint32_t window; /* ... and of those only keys after p - window; 0: no window */
};

/*
 * A stretch of a sequence's table: blocks in one arena. Slot s lies at base + (s - 1) * stride;
 * slot 0 is the null block, whose tokens nobody sees. What no run covers is null too. base and
 * stride are multiples of 4.
 */
struct gpu_attend_run {
    void *base;
    size_t stride;
    uint32_t first_position; /* of slots[0]'s first token: a multiple of block_tokens */
    uint32_t num_slots;
    const uint32_t *slots;
};

/* Rows are the tokens that a sequence gains: positions length_before, length_before + 1 ... */
struct gpu_attend_sequence {
    const struct gpu_attend_run *runs; /* ascending, without overlap */
    uint32_t num_runs;
    uint32_t length_before;
    uint32_t num_rows;
};

/* The most that one step may hold; memory follows from it. */
struct gpu_step_limits {
    uint32_t max_sequences;
    uint32_t max_rows;
    uint32_t max_blocks; /* table entries of all sequences together */
    uint32_t max_kv_heads;
    size_t max_partial_bytes; /* results waiting to be merged; 0: 16 MiB; less: fewer splits */
};

/* One layer of the step. q, k, v and out are [row][head][dim] in dtype, rows in plan order. */
struct gpu_attend_layer {
    uint32_t layer; /* which one inside the block */
    enum gpu_dtype dtype;
    const void *q;
    const void *k; /* NULL: nothing to write, the rows' tokens are in the blocks (or missing) */
    const void *v; /* NULL with k, and with is_v_in_k */
    void *out;
    float *lse;         /* [row][q_head], natural logarithm, sinks included; NULL: not wanted */
    const float *sinks; /* [q_head]: one more score a row, with no value; NULL or -inf: none */
    float scale;        /* 0: 1 / sqrt(k_dim) */
    float soft_cap;     /* s becomes soft_cap * tanh(s / soft_cap); 0: no */
};

/* What a plan found, for stats and tests. */
struct gpu_step_facts {
    uint32_t num_rows;
    uint32_t num_tasks;        /* times num_kv_heads: the parts that threads share */
    uint32_t num_shared_tasks; /* tasks that read a prefix for several sequences at once */
    uint32_t num_partials;     /* row results to be merged */
    uint64_t num_key_reads;    /* keys read per KV head, shared ones once */
    uint64_t cost_ns;          /* estimate, one thread, one layer */
};

typedef void gpu_attend_done(void *cookie, int err);

int gpu_attention_create(const struct gpu_attention_options *options, struct gpu_attention **out);
void gpu_attention_destroy(struct gpu_attention *attention);
const char *gpu_attention_version(const struct gpu_attention *attention);

/* The versions that this CPU can run, best first; NULL past the last. */
const char *gpu_attention_version_name(size_t index);

/* Of all attends so far: rows that saw no key at all (out 0, lse -inf). */
uint64_t gpu_attention_num_masked(const struct gpu_attention *attention);

/* -EINVAL: a limit of more than 2^28 sequences, rows or blocks. */
int gpu_step_plan_create(struct gpu_attention *attention, const struct gpu_step_limits *limits,
                         struct gpu_step_plan **out);

/* Not while an attend of it is queued. Takes NULL. */
void gpu_step_plan_destroy(struct gpu_step_plan *plan);

/* -EINVAL: a shape or table that cannot be; -ENOSPC: over the limits. The plan is then empty. */
int gpu_step_plan_build(struct gpu_step_plan *plan, const struct gpu_attend_shape *shape,
                        const struct gpu_attend_sequence *sequences, uint32_t num_sequences);
void gpu_step_plan_describe(const struct gpu_step_plan *plan, struct gpu_step_facts *out);

/*
 * 0: done, and @done is not called. GPU_ATTEND_QUEUED: @done comes from gpu_workers_reap(); until
 * then what @layer points to (not @layer itself) stays, and the plan is -EBUSY.
 * -EINVAL: k for a row whose block is null, a layer that is not there, or a scale or soft_cap below
 * 0 or not finite. -EDOM, here or in @done: a NaN or infinity in q, k, v or sinks (or one that
 * rounding into the block's dtype made, or a score beyond the range of f32): nothing of this attend
 * counts. May be repeated. Hot path: no allocation, no log, a lock only to queue.
 */
int gpu_attend(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer,
               gpu_attend_done *done, void *cookie);

/* The same, to its end: the calling thread works too. For tests and tools. */
int gpu_attend_now(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer);
