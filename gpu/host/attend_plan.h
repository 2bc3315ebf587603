/*
 * gpu/host/attend_plan.h - internal: what a step's plan consists of.
 *
 *   row    a token that gains: where it lies, which keys it sees
 *   task   a stretch of keys of one table x the rows that see it (of several sequences, if these
 *          share the stretch). Task x KV head is the part that a thread carries out.
 *   entry  one row of one task: its result goes straight to the output if it is the row's only
 *          one, else it is partial number @partial, and whoever makes a row's last one merges them.
 */
#pragma once

#include "gpu/attend.h"
#include "gpu/host/attend_kernel.h"
#include "gpu/host/workers.h"

enum {
    PLAN_SHARE_ROWS = 16,   /* sequences of more rows read a prefix often enough on their own */
    PLAN_SHARE_TOKENS = 64, /* a shared stretch of less does not pay for the merge */
    PLAN_SPLIT_KEYS = 256,  /* nor does a part of less */
    PLAN_MAX_GROUP = 128,   /* query heads of a KV head: ATTEND_TILE_FLOATS / (2 GPU_MAX_DIM) */
};

#define PLAN_DIRECT UINT32_MAX

struct plan_row {
    char *const *blocks; /* of its sequence, by position / block_tokens; NULL: null block */
    uint32_t position;
    int32_t first, end;                                 /* sees keys first <= j < end */
    uint32_t num_partials, first_partial, next_partial; /* with one there is nothing to merge */
    uint32_t merge;                                     /* index of its counters */
};

struct plan_entry {
    uint32_t row, partial;
};

struct plan_task {
    const char *const *blocks;
    uint32_t begin, end;
    uint32_t first_entry, num_entries;
    bool is_shared;   /* by rows of several sequences */
    uint64_t cost_ns; /* of one KV head */
};

struct plan_sequence {
    char **blocks;
    uint32_t num_blocks;
    uint32_t first_row, num_rows;
};

/* What is counted while an attend runs. Parts of one attend meet only here. */
struct plan_run {
    struct gpu_attend_layer layer;
    float scale;
    uint32_t num_write_parts, rows_per_write;
    _Atomic uint32_t writes_left;
    _Atomic int err;
    gpu_attend_done *done;
    void *cookie;
    bool is_queued;
};

struct gpu_step_plan {
    struct gpu_attention *attention;
    struct gpu_step_limits limits;
    uint32_t max_entries, max_partials;

    struct gpu_attend_shape shape;
    uint32_t group; /* query heads of a KV head */
    size_t k_row_bytes, v_row_bytes, layer_bytes;
    bool can_write; /* no row's block is null */

    uint32_t num_blocks, num_rows, num_sequences, num_entries, num_tasks;
    uint32_t num_partials, num_merges;
    uint64_t cost_ns;
    char **blocks;
    struct plan_row *rows;
    struct plan_sequence *sequences;
    uint32_t *order; /* sequences by their tables, while looking for shared prefixes */
    struct plan_entry gathered[ATTEND_MAX_VECTORS]; /* of a task in the making */
    struct plan_entry *entries;
    struct plan_task *tasks;

    float *partials;            /* [partial][q_head][v_dim], then m, then l */
    _Atomic uint32_t *unmerged; /* [merge][kv_head] partials still to come */

    struct gpu_job job;
    struct plan_run run;
};

struct gpu_attention {
    const struct attend_version *version;
    struct gpu_workers *workers;
    uint32_t num_threads; /* workers and the owner */
    uint64_t inline_ns;
    float **scratch; /* [worker index] */
    _Atomic uint64_t num_masked;
};

/* Rows of a task: its query vectors are the group's heads of each. */
static inline uint32_t plan_rows_per_task(const struct gpu_step_plan *plan)
{
    uint32_t num = ATTEND_TILE_FLOATS / (plan->shape.k_dim + plan->shape.v_dim) / 16 * 16;

    num = num < ATTEND_MAX_VECTORS ? num : ATTEND_MAX_VECTORS;
    return num / plan->group;
}

/* attend_share.c: tasks for all rows; -ENOSPC if they do not fit. */
int plan_share(struct gpu_step_plan *plan, bool is_shared);

/* A task for @num rows, @rows of the plan, over what they see of [begin, end). */
int plan_add_task(struct gpu_step_plan *plan, char *const *blocks, uint32_t begin, uint32_t end,
                  const struct plan_entry *entries, uint32_t num);

/* attend_sort.c: by @compare, which also gets @arg; equal items in any order. */
typedef int plan_compare(const void *a, const void *b, const void *arg);
void plan_sort(void *items, size_t num, size_t bytes, plan_compare *compare, const void *arg);
