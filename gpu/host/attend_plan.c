/* gpu/host/attend_plan.c - what one step attends to: tables checked, work cut into parts. */
#include "gpu/host/attend_plan.h"
#include "gpu/host/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PARTIAL_BYTES = 16 << 20, READ_BYTES_PER_NS = 20 };

/* Nothing that is computed from a shape or from limits below overflows. */
static const uint64_t MAX_BLOCK_BYTES = 1ull << 46;
static const uint32_t MAX_LIMIT = 1 << 28;

static int shape_check(const struct gpu_step_plan *plan, const struct gpu_attend_shape *shape)
{
    uint32_t k_dim = shape->k_dim, v_dim = shape->v_dim;

    if (!k_dim || !v_dim || k_dim > GPU_MAX_DIM || v_dim > GPU_MAX_DIM ||
        k_dim % GPU_DIM_MULTIPLE || v_dim % GPU_DIM_MULTIPLE)
        return -EINVAL;
    if (!shape->num_kv_heads || !shape->num_q_heads || shape->num_q_heads % shape->num_kv_heads ||
        shape->num_q_heads / shape->num_kv_heads > PLAN_MAX_GROUP)
        return -EINVAL;
    if (!shape->num_layers || !shape->block_tokens || (unsigned)shape->kv_dtype >= NUM_DTYPES)
        return -EINVAL;
    if (shape->is_v_in_k && (shape->num_kv_heads != 1 || v_dim > k_dim))
        return -EINVAL;
    if ((uint64_t)shape->num_kv_heads * shape->block_tokens >
        MAX_BLOCK_BYTES / (2 * GPU_MAX_DIM * sizeof(float)) / shape->num_layers)
        return -EINVAL;
    return shape->num_kv_heads > plan->limits.max_kv_heads ? -ENOSPC : 0;
}

/* [layer][K,V][kv_head][token][dim], or [layer][token][dim]. */
static void shape_take(struct gpu_step_plan *plan, const struct gpu_attend_shape *shape)
{
    size_t element = dtypes[shape->kv_dtype].bytes;
    size_t tokens = (size_t)shape->num_kv_heads * shape->block_tokens;

    plan->shape = *shape;
    plan->group = shape->num_q_heads / shape->num_kv_heads;
    plan->k_row_bytes = shape->k_dim * element;
    plan->v_row_bytes = shape->is_v_in_k ? plan->k_row_bytes : shape->v_dim * element;
    plan->layer_bytes = tokens * plan->k_row_bytes;
    if (!shape->is_v_in_k)
        plan->layer_bytes += tokens * plan->v_row_bytes;
}

/* Writes the addresses of a sequence's first @num_blocks blocks. */
static int table_flatten(const struct gpu_step_plan *plan,
                         const struct gpu_attend_sequence *sequence, char **blocks,
                         uint32_t num_blocks)
{
    uint32_t next = 0;

    memset(blocks, 0, num_blocks * sizeof(*blocks));
    for (uint32_t r = 0; r < sequence->num_runs; r++) {
        const struct gpu_attend_run *run = &sequence->runs[r];
        uint32_t first = run->first_position / plan->shape.block_tokens;
        if (run->first_position % plan->shape.block_tokens || first < next ||
            run->num_slots > UINT32_MAX - first)
            return -EINVAL;
        if (run->stride < plan->layer_bytes * plan->shape.num_layers || run->stride % 4 ||
            (uintptr_t)run->base % 4)
            return -EINVAL;
        next = first + run->num_slots;
        for (uint32_t i = 0; i < run->num_slots && first + i < num_blocks; i++)
            if (run->slots[i])
                blocks[first + i] = (char *)run->base + (run->slots[i] - 1) * run->stride;
    }
    return 0;
}

static void rows_add(struct gpu_step_plan *plan, const struct gpu_attend_sequence *sequence,
                     char *const *blocks)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    uint32_t length = sequence->length_before + sequence->num_rows;

    for (uint32_t i = 0; i < sequence->num_rows; i++) {
        struct plan_row *row = &plan->rows[plan->num_rows++];
        uint32_t position = sequence->length_before + i;

        *row = (struct plan_row){.blocks = blocks, .position = position};
        row->end = (int32_t)(shape->is_causal ? position + 1 : length);
        if (shape->window && position + 1 > shape->window)
            row->first = (int32_t)(position + 1 - shape->window);
        plan->can_write &= blocks[position / shape->block_tokens] != NULL;
    }
}

static int sequence_add(struct gpu_step_plan *plan, const struct gpu_attend_sequence *sequence)
{
    if (sequence->length_before > INT32_MAX - 64 ||
        sequence->num_rows > INT32_MAX - 64 - sequence->length_before)
        return -EINVAL;

    uint32_t length = sequence->length_before + sequence->num_rows;
    uint32_t num_blocks = length / plan->shape.block_tokens;
    num_blocks += length % plan->shape.block_tokens != 0;
    if (num_blocks > plan->limits.max_blocks - plan->num_blocks ||
        sequence->num_rows > plan->limits.max_rows - plan->num_rows)
        return -ENOSPC;

    char **blocks = plan->blocks + plan->num_blocks;
    int err = table_flatten(plan, sequence, blocks, num_blocks);
    if (err)
        return err;
    plan->sequences[plan->num_sequences++] =
        (struct plan_sequence){blocks, num_blocks, plan->num_rows, sequence->num_rows};
    plan->num_blocks += num_blocks;
    rows_add(plan, sequence, blocks);
    return 0;
}

static uint64_t task_cost_ns(const struct gpu_step_plan *plan, const struct plan_task *task)
{
    uint64_t keys = task->end - task->begin, vectors = task->num_entries * plan->group;
    uint64_t bytes = plan->k_row_bytes + (plan->shape.is_v_in_k ? 0 : plan->v_row_bytes);
    uint64_t flops = 2 * vectors * (plan->shape.k_dim + plan->shape.v_dim);
    uint64_t read = keys * bytes / READ_BYTES_PER_NS;
    uint64_t compute = keys * flops / plan->attention->version->flops_per_ns;

    return read > compute ? read : compute;
}

int plan_add_task(struct gpu_step_plan *plan, char *const *blocks, uint32_t begin, uint32_t end,
                  const struct plan_entry *entries, uint32_t num)
{
    int32_t first_seen = INT32_MAX, end_seen = 0;

    for (uint32_t i = 0; i < num; i++) {
        const struct plan_row *row = &plan->rows[entries[i].row];
        first_seen = row->first < first_seen ? row->first : first_seen;
        end_seen = row->end > end_seen ? row->end : end_seen;
    }
    begin = begin > (uint32_t)first_seen ? begin : (uint32_t)first_seen;
    end = end < (uint32_t)end_seen ? end : (uint32_t)end_seen;
    if (begin >= end)
        return 0;
    if (num > plan->max_entries - plan->num_entries)
        return -ENOSPC;

    struct plan_task *task = &plan->tasks[plan->num_tasks++];
    *task = (struct plan_task){
        (const char *const *)blocks, begin, end, plan->num_entries, num, false, 0};
    memcpy(plan->entries + plan->num_entries, entries, num * sizeof(*entries));
    plan->num_entries += num;
    for (uint32_t i = 0; i < num; i++)
        task->is_shared |= plan->rows[entries[i].row].blocks != plan->rows[entries[0].row].blocks;
    task->cost_ns = task_cost_ns(plan, task);
    return 0;
}

/* Long tasks are cut along their keys, so that all threads are busy to the end. */
static int split_tasks(struct gpu_step_plan *plan)
{
    uint32_t num_tasks = plan->num_tasks, num_threads = plan->attention->num_threads;
    uint64_t total = 0, enough = 20000;

    for (uint32_t t = 0; t < num_tasks; t++)
        total += plan->tasks[t].cost_ns * plan->shape.num_kv_heads;
    if (total / (4 * num_threads) > enough)
        enough = total / (4 * num_threads);

    for (uint32_t t = 0; t < num_tasks && num_threads > 1; t++) {
        struct plan_task *task = &plan->tasks[t];
        uint32_t keys = task->end - task->begin, end = task->end;
        uint64_t pieces = (task->cost_ns + enough / 2) / enough;
        if (pieces > keys / PLAN_SPLIT_KEYS)
            pieces = keys / PLAN_SPLIT_KEYS;
        if (pieces < 2)
            continue;
        uint32_t length = (uint32_t)((keys + pieces - 1) / pieces);
        length = (length + 63) / 64 * 64;
        task->end = task->begin + length;
        task->cost_ns = task_cost_ns(plan, task);
        for (uint32_t begin = task->end; begin < end; begin += length) {
            int err = plan_add_task(plan, (char *const *)task->blocks, begin,
                                    end - begin < length ? end : begin + length,
                                    plan->entries + task->first_entry, task->num_entries);
            if (err)
                return err;
        }
    }
    return 0;
}

/* A row in no task sees nothing: an empty one writes that. */
static int cover_rows(struct gpu_step_plan *plan)
{
    for (uint32_t i = 0; i < plan->num_entries; i++)
        plan->rows[plan->entries[i].row].num_partials++;
    for (uint32_t i = 0; i < plan->num_rows; i++) {
        if (plan->rows[i].num_partials > 0)
            continue;
        if (plan->num_entries == plan->max_entries)
            return -ENOSPC;
        plan->entries[plan->num_entries].row = i;
        plan->tasks[plan->num_tasks++] =
            (struct plan_task){NULL, 0, 0, plan->num_entries++, 1, false, 0};
        plan->rows[i].num_partials = 1;
    }
    return 0;
}

/* Where each entry's result goes. */
static int place_partials(struct gpu_step_plan *plan)
{
    size_t each = sizeof(float) * plan->shape.num_q_heads * (plan->shape.v_dim + 2);

    for (uint32_t i = 0; i < plan->num_rows; i++) {
        struct plan_row *row = &plan->rows[i];
        if (row->num_partials == 1)
            continue;
        row->first_partial = row->next_partial = plan->num_partials;
        row->merge = plan->num_merges++;
        plan->num_partials += row->num_partials;
        if (plan->num_partials > plan->max_partials ||
            plan->num_partials * each > plan->limits.max_partial_bytes)
            return -ENOSPC;
    }
    for (uint32_t i = 0; i < plan->num_entries; i++) {
        struct plan_row *row = &plan->rows[plan->entries[i].row];
        plan->entries[i].partial = row->num_partials > 1 ? row->next_partial++ : PLAN_DIRECT;
    }
    return 0;
}

/* Longest first, else as they were made: neighbours share K and V. */
static int compare_cost(const void *a, const void *b, const void *arg)
{
    const struct plan_task *left = a, *right = b;

    (void)arg;
    if (left->cost_ns != right->cost_ns)
        return left->cost_ns < right->cost_ns ? 1 : -1;
    return (left->first_entry > right->first_entry) - (left->first_entry < right->first_entry);
}

static int cut_work(struct gpu_step_plan *plan, bool is_shared, bool is_split)
{
    plan->num_tasks = plan->num_entries = plan->num_partials = plan->num_merges = 0;
    for (uint32_t i = 0; i < plan->num_rows; i++)
        plan->rows[i].num_partials = 0;

    int err = plan_share(plan, is_shared);
    if (!err && is_split)
        err = split_tasks(plan);
    if (!err)
        err = cover_rows(plan);
    if (!err)
        err = place_partials(plan);
    return err;
}

static void plan_empty(struct gpu_step_plan *plan)
{
    plan->num_blocks = plan->num_rows = plan->num_sequences = 0;
    plan->num_entries = plan->num_tasks = plan->num_partials = plan->num_merges = 0;
    plan->cost_ns = 0;
    plan->can_write = true;
}

int gpu_step_plan_build(struct gpu_step_plan *plan, const struct gpu_attend_shape *shape,
                        const struct gpu_attend_sequence *sequences, uint32_t num_sequences)
{
    if (plan->run.is_queued)
        return -EBUSY;
    plan_empty(plan);
    int err = shape_check(plan, shape);
    if (!err && num_sequences > plan->limits.max_sequences)
        err = -ENOSPC;
    if (err)
        return err;

    shape_take(plan, shape);
    for (uint32_t i = 0; i < num_sequences && !err; i++)
        err = sequence_add(plan, &sequences[i]);
    if (err) {
        plan_empty(plan);
        return err;
    }
    /* Where there is no room for all partial results, less is split and less is shared. */
    err = cut_work(plan, true, true);
    if (err)
        err = cut_work(plan, true, false);
    if (err)
        err = cut_work(plan, false, false);
    if (err) {
        plan_empty(plan);
        return err;
    }
    plan_sort(plan->tasks, plan->num_tasks, sizeof(*plan->tasks), compare_cost, NULL);
    for (uint32_t t = 0; t < plan->num_tasks; t++)
        plan->cost_ns += plan->tasks[t].cost_ns * shape->num_kv_heads;
    return 0;
}

void gpu_step_plan_describe(const struct gpu_step_plan *plan, struct gpu_step_facts *out)
{
    *out = (struct gpu_step_facts){
        .num_rows = plan->num_rows,
        .num_tasks = plan->num_tasks,
        .num_partials = plan->num_partials,
        .cost_ns = plan->cost_ns,
    };
    for (uint32_t t = 0; t < plan->num_tasks; t++) {
        out->num_shared_tasks += plan->tasks[t].is_shared;
        out->num_key_reads += plan->tasks[t].end - plan->tasks[t].begin;
    }
}

int gpu_step_plan_create(struct gpu_attention *attention, const struct gpu_step_limits *limits,
                         struct gpu_step_plan **out)
{
    if (limits->max_sequences > MAX_LIMIT || limits->max_rows > MAX_LIMIT ||
        limits->max_blocks > MAX_LIMIT)
        return -EINVAL;
    struct gpu_step_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return -ENOMEM;

    plan->attention = attention;
    plan->limits = *limits;
    if (plan->limits.max_partial_bytes == 0)
        plan->limits.max_partial_bytes = PARTIAL_BYTES;
    plan->max_partials = 8 * limits->max_sequences + 1024;
    plan->max_entries = limits->max_rows + plan->max_partials;
    plan_empty(plan);

    size_t num_unmerged = (size_t)plan->max_partials / 2 * limits->max_kv_heads;
    plan->blocks = calloc(limits->max_blocks + 1, sizeof(*plan->blocks));
    plan->rows = calloc(limits->max_rows + 1, sizeof(*plan->rows));
    plan->sequences = calloc(limits->max_sequences + 1, sizeof(*plan->sequences));
    plan->order = calloc(limits->max_sequences + 1, sizeof(*plan->order));
    plan->entries = calloc(plan->max_entries, sizeof(*plan->entries));
    plan->tasks = calloc(plan->max_entries, sizeof(*plan->tasks));
    plan->unmerged = calloc(num_unmerged + 1, sizeof(*plan->unmerged));
    plan->partials = aligned_alloc(64, (plan->limits.max_partial_bytes + 63) / 64 * 64);
    if (!plan->blocks || !plan->rows || !plan->sequences || !plan->order || !plan->entries ||
        !plan->tasks || !plan->unmerged || !plan->partials) {
        gpu_step_plan_destroy(plan);
        return -ENOMEM;
    }
    *out = plan;
    return 0;
}

void gpu_step_plan_destroy(struct gpu_step_plan *plan)
{
    if (!plan)
        return;
    free(plan->blocks);
    free(plan->rows);
    free(plan->sequences);
    free(plan->order);
    free(plan->entries);
    free(plan->tasks);
    free(plan->unmerged);
    free(plan->partials);
    free(plan);
}
