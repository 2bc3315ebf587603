/*
 * gpu/host/attend.c - one attend: K and V into the blocks, then the plan's tasks, then the merge.
 *
 * Its parts, in the order in which threads take them: rows to write, then task x KV head. No part
 * waits for one that comes after it, so waiting for the writes (all taken by then) ends.
 */
#include "gpu/host/attend_plan.h"
#include "gpu/host/cpu.h"
#include "gpu/host/dtype.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    INLINE_US = 50,
    WRITE_BYTES = 128 << 10, /* of K and V in a part */
    WRITE_BYTES_PER_NS = 4,
    LIMIT_FLOATS = 2 * ATTEND_MAX_VECTORS, /* first and end_key of each vector */
    SCRATCH_FLOATS =
        ATTEND_TILE_FLOATS + 2 * ATTEND_MAX_VECTORS + LIMIT_FLOATS + ATTEND_WORK_FLOATS,
};

static void run_fail(struct plan_run *run, int err)
{
    int none = 0;

    atomic_compare_exchange_strong(&run->err, &none, err);
}

static const char *at_row(const void *array, enum gpu_dtype type, size_t index, uint32_t dim)
{
    return (const char *)array + index * dim * dtypes[type].bytes;
}

/* The new K (or V) of one row, all heads, into its block. */
static bool write_row(const struct gpu_step_plan *plan, const void *from, uint32_t dim,
                      size_t row_bytes, char *to)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    enum gpu_dtype type = plan->run.layer.dtype;
    bool is_finite = true;

    for (uint32_t head = 0; head < shape->num_kv_heads; head++)
        is_finite &= plan->attention->version->convert(to + head * shape->block_tokens * row_bytes,
                                                       shape->kv_dtype,
                                                       at_row(from, type, head, dim), type, dim);
    return is_finite;
}

static void run_write(struct gpu_step_plan *plan, uint32_t part)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    const struct gpu_attend_layer *layer = &plan->run.layer;
    uint32_t begin = part * plan->run.rows_per_write, end = begin + plan->run.rows_per_write;
    size_t v_offset = shape->num_kv_heads * shape->block_tokens * plan->k_row_bytes;
    bool is_finite = true;

    for (uint32_t i = begin; i < end && i < plan->num_rows; i++) {
        const struct plan_row *row = &plan->rows[i];
        uint32_t in_block = row->position % shape->block_tokens;
        char *to = row->blocks[row->position / shape->block_tokens];
        size_t first = (size_t)i * shape->num_kv_heads;

        to += layer->layer * plan->layer_bytes;
        is_finite &= write_row(plan, at_row(layer->k, layer->dtype, first, shape->k_dim),
                               shape->k_dim, plan->k_row_bytes, to + in_block * plan->k_row_bytes);
        if (!shape->is_v_in_k)
            is_finite &=
                write_row(plan, at_row(layer->v, layer->dtype, first, shape->v_dim), shape->v_dim,
                          plan->v_row_bytes, to + v_offset + in_block * plan->v_row_bytes);
    }
    if (!is_finite)
        run_fail(&plan->run, -EDOM);
    plan->run.writes_left--;
}

/* A row's result for one query head: weights e^(s - m) of sum l, times V in o (over l on output).
 */
static void put_result(struct gpu_step_plan *plan, uint32_t row, uint32_t head, float m, float l,
                       float *o)
{
    const struct gpu_attend_layer *layer = &plan->run.layer;
    size_t index = (size_t)row * plan->shape.num_q_heads + head;
    uint32_t v_dim = plan->shape.v_dim;

    if (layer->sinks && layer->sinks[head] > -INFINITY) {
        float sink = layer->sinks[head], larger = fmaxf(m, sink);
        float keep = expf(m - larger);
        l = l * keep + expf(sink - larger);
        m = larger;
        for (uint32_t d = 0; d < v_dim; d++)
            o[d] *= keep;
    }
    float part = l == 0 ? 0 : 1 / l; /* of a NaN, NaN: it is found below */
    for (uint32_t d = 0; d < v_dim; d++)
        o[d] *= part;
    if (l == 0)
        plan->attention->num_masked++;
    if (layer->lse)
        layer->lse[index] = l == 0 ? -INFINITY : m + logf(l);
    if (!plan->attention->version->convert((char *)at_row(layer->out, layer->dtype, index, v_dim),
                                           layer->dtype, o, GPU_F32, v_dim))
        run_fail(&plan->run, -EDOM);
}

/* Partials lie [partial][q_head]: v_dim floats each, and behind all of them m and l. */
static float *partial_o(const struct gpu_step_plan *plan, size_t index)
{
    return plan->partials + index * plan->shape.v_dim;
}

static float *partial_m_l(const struct gpu_step_plan *plan, size_t index)
{
    return partial_o(plan, (size_t)plan->num_partials * plan->shape.num_q_heads) + 2 * index;
}

/* out = sum of W_i o_i / sum of W_i l_i with W_i = e^(m_i - max m). */
static void merge_row(struct gpu_step_plan *plan, const struct plan_row *row, uint32_t number,
                      uint32_t head)
{
    uint32_t heads = plan->shape.num_q_heads, v_dim = plan->shape.v_dim;
    size_t first = (size_t)row->first_partial * heads + head;
    float m = -INFINITY, l = 0, *o = partial_o(plan, first);

    for (uint32_t n = 0; n < row->num_partials; n++)
        m = fmaxf(m, partial_m_l(plan, first + (size_t)n * heads)[0]);
    for (uint32_t n = 0; n < row->num_partials; n++) {
        const float *from = partial_o(plan, first + (size_t)n * heads);
        const float *m_l = partial_m_l(plan, first + (size_t)n * heads);
        float weight = m_l[1] == 0 ? 0 : expf(m_l[0] - m);

        l += weight * m_l[1];
        for (uint32_t d = 0; d < v_dim; d++)
            o[d] = (n > 0 ? o[d] : 0) + weight * from[d];
    }
    put_result(plan, number, head, m, l, o);
}

/* The results of one entry: to the output, or to its partials, which the last of a row merges. */
static void finish_entry(struct gpu_step_plan *plan, const struct plan_entry *entry,
                         uint32_t kv_head, const float *m, const float *l, float *o)
{
    const struct plan_row *row = &plan->rows[entry->row];
    uint32_t first = kv_head * plan->group, v_dim = plan->shape.v_dim;

    for (uint32_t g = 0; g < plan->group; g++) {
        if (entry->partial == PLAN_DIRECT) {
            put_result(plan, entry->row, first + g, m[g], l[g], o + (size_t)g * v_dim);
            continue;
        }
        size_t index = (size_t)entry->partial * plan->shape.num_q_heads + first + g;
        memcpy(partial_o(plan, index), o + (size_t)g * v_dim, v_dim * sizeof(*o));
        partial_m_l(plan, index)[0] = m[g];
        partial_m_l(plan, index)[1] = l[g];
    }
    if (entry->partial == PLAN_DIRECT)
        return;
    _Atomic uint32_t *unmerged = &plan->unmerged[row->merge * plan->shape.num_kv_heads + kv_head];
    if (--*unmerged == 0) /* the others' partials are there: each was written before its count */
        for (uint32_t g = 0; g < plan->group; g++)
            merge_row(plan, row, entry->row, first + g);
}

/* Fills in what is the entries' own: query vectors and what they see. */
static bool take_queries(struct gpu_step_plan *plan, const struct plan_task *task, uint32_t kv_head,
                         float *q, int32_t *first, int32_t *end)
{
    const struct gpu_attend_layer *layer = &plan->run.layer;
    uint32_t group = plan->group, k_dim = plan->shape.k_dim, num = task->num_entries * group;
    bool is_finite = true;

    for (uint32_t i = 0; i < task->num_entries; i++) {
        uint32_t number = plan->entries[task->first_entry + i].row;
        size_t index = (size_t)number * plan->shape.num_q_heads + kv_head * group;

        is_finite &= plan->attention->version->convert(q + (size_t)i * group * k_dim, GPU_F32,
                                                       at_row(layer->q, layer->dtype, index, k_dim),
                                                       layer->dtype, (size_t)group * k_dim);
        for (uint32_t g = 0; g < group; g++) {
            first[i * group + g] = plan->rows[number].first;
            end[i * group + g] = plan->rows[number].end;
        }
    }
    for (uint32_t i = num; i % 16 != 0; i++)
        first[i] = end[i] = 0;
    return is_finite;
}

static void run_task(struct gpu_step_plan *plan, const struct plan_task *task, uint32_t kv_head)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    const struct gpu_attend_layer *layer = &plan->run.layer;
    uint32_t num = task->num_entries * plan->group, padded = (num + 15) / 16 * 16;
    float *q = plan->attention->scratch[gpu_worker_index()], *o = q + padded * shape->k_dim;
    float *m = q + ATTEND_TILE_FLOATS, *l = m + ATTEND_MAX_VECTORS;
    int32_t *first = (int32_t *)(l + ATTEND_MAX_VECTORS), *end = first + ATTEND_MAX_VECTORS;
    size_t head_tokens = kv_head * shape->block_tokens;
    size_t layer_offset = layer->layer * plan->layer_bytes;
    size_t v_offset = shape->num_kv_heads * shape->block_tokens * plan->k_row_bytes;

    if (!take_queries(plan, task, kv_head, q, first, end))
        run_fail(&plan->run, -EDOM);
    struct attend_tile tile = {
        .blocks = task->blocks,
        .block_tokens = shape->block_tokens,
        .begin = task->begin,
        .end = task->end,
        .k_offset = layer_offset + head_tokens * plan->k_row_bytes,
        .v_offset = layer_offset,
        .k_row_bytes = plan->k_row_bytes,
        .v_row_bytes = plan->v_row_bytes,
        .k_dim = shape->k_dim,
        .v_dim = shape->v_dim,
        .kv_dtype = shape->kv_dtype,
        .is_q_bf16 = layer->dtype == GPU_BF16,
        .scale = plan->run.scale,
        .soft_cap = layer->soft_cap,
        .num_vectors = num,
        .q = q,
        .first = first,
        .end_key = end,
        .o = o,
        .m = m,
        .l = l,
        .work = (float *)(end + ATTEND_MAX_VECTORS),
    };
    if (!shape->is_v_in_k)
        tile.v_offset += v_offset + head_tokens * plan->v_row_bytes;
    plan->attention->version->attend(&tile);

    for (uint32_t i = 0; i < task->num_entries; i++)
        finish_entry(plan, &plan->entries[task->first_entry + i], kv_head, m + i * plan->group,
                     l + i * plan->group, o + (size_t)i * plan->group * shape->v_dim);
}

static struct gpu_step_plan *plan_of(struct gpu_job *job)
{
    return (struct gpu_step_plan *)((char *)job - offsetof(struct gpu_step_plan, job));
}

static void run_part(struct gpu_job *job, uint32_t part)
{
    struct gpu_step_plan *plan = plan_of(job);
    struct plan_run *run = &plan->run;

    if (part < run->num_write_parts) {
        run_write(plan, part);
        return;
    }
    for (uint32_t spins = 0; run->writes_left > 0; spins++)
        spins % 64 == 63 ? (void)sched_yield() : cpu_relax();
    if (run->err)
        return;
    part -= run->num_write_parts;
    run_task(plan, &plan->tasks[part / plan->shape.num_kv_heads], part % plan->shape.num_kv_heads);
}

static void run_done(struct gpu_job *job)
{
    struct gpu_step_plan *plan = plan_of(job);

    plan->run.is_queued = false;
    if (plan->run.done)
        plan->run.done(plan->run.cookie, plan->run.err);
}

static int layer_check(const struct gpu_step_plan *plan, const struct gpu_attend_layer *layer)
{
    const struct gpu_attend_shape *shape = &plan->shape;

    if (layer->layer >= shape->num_layers || (unsigned)layer->dtype >= NUM_DTYPES || !layer->q ||
        !layer->out || (layer->k && (!plan->can_write || (!layer->v && !shape->is_v_in_k))))
        return -EINVAL;
    if (!(layer->scale >= 0 && layer->scale < INFINITY) ||
        !(layer->soft_cap >= 0 && layer->soft_cap < INFINITY))
        return -EINVAL;
    for (uint32_t head = 0; layer->sinks && head < shape->num_q_heads; head++)
        if (!(layer->sinks[head] < INFINITY)) /* nor a NaN */
            return -EDOM;
    return 0;
}

/* Takes @layer; returns an estimate of what it costs one thread, in nanoseconds, or an error. */
static int64_t run_begin(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    struct plan_run *run = &plan->run;

    if (run->is_queued)
        return -EBUSY;
    int err = layer_check(plan, layer);
    if (err)
        return err;

    size_t row_bytes = dtypes[layer->dtype].bytes * shape->num_kv_heads *
                       (shape->k_dim + (shape->is_v_in_k ? 0 : shape->v_dim));
    run->layer = *layer;
    run->scale = layer->scale > 0 ? layer->scale : 1 / sqrtf((float)shape->k_dim);
    run->err = 0;
    run->rows_per_write = (uint32_t)(WRITE_BYTES / row_bytes) + 1;
    run->num_write_parts =
        layer->k ? (plan->num_rows + run->rows_per_write - 1) / run->rows_per_write : 0;
    run->writes_left = run->num_write_parts;
    for (uint32_t i = 0; i < plan->num_rows && plan->num_merges > 0; i++)
        if (plan->rows[i].num_partials > 1)
            for (uint32_t head = 0; head < shape->num_kv_heads; head++)
                plan->unmerged[plan->rows[i].merge * shape->num_kv_heads + head] =
                    plan->rows[i].num_partials;

    plan->job.run = run_part;
    plan->job.done = run_done;
    plan->job.num_parts = run->num_write_parts + plan->num_tasks * shape->num_kv_heads;
    uint64_t write_ns = layer->k ? plan->num_rows * row_bytes / WRITE_BYTES_PER_NS : 0;
    return (int64_t)(plan->cost_ns + write_ns);
}

enum { FOR_WORKERS = 1 };

/* Takes @layer, and runs it here unless workers are quicker: FOR_WORKERS, and nothing has run. */
static int run_if_small(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer)
{
    const struct gpu_attention *attention = plan->attention;

    if (plan->num_rows == 0)
        return plan->run.is_queued ? -EBUSY : 0;
    int64_t cost_ns = run_begin(plan, layer);
    if (cost_ns < 0)
        return (int)cost_ns;
    if (attention->workers && (uint64_t)cost_ns >= attention->inline_ns)
        return FOR_WORKERS;
    for (uint32_t part = 0; part < plan->job.num_parts; part++)
        run_part(&plan->job, part);
    return plan->run.err;
}

int gpu_attend(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer,
               gpu_attend_done *done, void *cookie)
{
    int answer = run_if_small(plan, layer);
    if (answer != FOR_WORKERS)
        return answer;

    plan->run.done = done;
    plan->run.cookie = cookie;
    plan->run.is_queued = true;
    int err = gpu_workers_submit(plan->attention->workers, &plan->job);
    if (err) {
        plan->run.is_queued = false;
        return err;
    }
    return GPU_ATTEND_QUEUED;
}

int gpu_attend_now(struct gpu_step_plan *plan, const struct gpu_attend_layer *layer)
{
    int answer = run_if_small(plan, layer);
    if (answer != FOR_WORKERS)
        return answer;

    gpu_workers_run(plan->attention->workers, &plan->job);
    return plan->run.err;
}

int gpu_attention_create(const struct gpu_attention_options *options, struct gpu_attention **out)
{
    struct gpu_attention *attention = calloc(1, sizeof(*attention));
    if (!attention)
        return -ENOMEM;

    int err = -ENOMEM;
    attention->workers = options->workers;
    attention->inline_ns = 1000 * (uint64_t)(options->inline_us ? options->inline_us : INLINE_US);
    attention->num_threads = 1;
    if (options->workers)
        attention->num_threads += gpu_workers_num_threads(options->workers);
    attention->scratch = calloc(attention->num_threads, sizeof(*attention->scratch));
    for (uint32_t i = 0; attention->scratch && i < attention->num_threads; i++) {
        attention->scratch[i] = aligned_alloc(64, (SCRATCH_FLOATS * sizeof(float) + 63) / 64 * 64);
        if (!attention->scratch[i])
            goto fail;
    }
    if (!attention->scratch)
        goto fail;
    err = -ENOTSUP;
    attention->version = cpu_version_find(options->version);
    if (!attention->version)
        goto fail;
    *out = attention;
    return 0;

fail:
    gpu_attention_destroy(attention);
    return err;
}

void gpu_attention_destroy(struct gpu_attention *attention)
{
    if (!attention)
        return;
    for (uint32_t i = 0; attention->scratch && i < attention->num_threads; i++)
        free(attention->scratch[i]);
    free(attention->scratch);
    free(attention);
}

const char *gpu_attention_version(const struct gpu_attention *attention)
{
    return attention->version->name;
}

const char *gpu_attention_version_name(size_t index)
{
    const struct attend_version *version = cpu_version(index);

    return version ? version->name : NULL;
}

uint64_t gpu_attention_num_masked(const struct gpu_attention *attention)
{
    return attention->num_masked;
}
