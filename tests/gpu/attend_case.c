/* tests/gpu/attend_case.c - cases of paged attention from a seed, and their truth in float64. */
#include "tests/gpu/attend_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15; /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint32_t random_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((random_next(state) >> 32) * limit >> 32);
}

double random_normal(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (double)(random_next(state) >> 11) * 0x1p-53 - 0.5;
    return sum * 1.7320508;
}

static size_t element_bytes(enum gpu_dtype type)
{
    return type == GPU_F32 ? 4 : 2;
}

static double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

    if (exponent == 31)
        size = fraction ? NAN : INFINITY;
    return half & 0x8000 ? -size : size;
}

/* To nearest, ties to even: the sizes of f16 are in the order of their bits. */
static uint16_t f16_round(double value)
{
    uint16_t below = 0, above = 0x7c00, sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);

    if (isnan(value))
        return 0x7e00;
    while (above - below > 1) {
        uint16_t middle = (uint16_t)((below + above) / 2);
        *(f16_value(middle) <= size ? &below : &above) = middle;
    }
    double up = above == 0x7c00 ? 65536 : f16_value(above), down = f16_value(below);
    bool is_up = size - down > up - size || (size - down == up - size && (below & 1));
    return sign | (is_up ? above : below);
}

double element_get(const void *array, enum gpu_dtype type, size_t i)
{
    if (type == GPU_F32)
        return ((const float *)array)[i];
    if (type == GPU_F16)
        return f16_value(((const uint16_t *)array)[i]);

    uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even, straight from float64. */
static uint16_t bf16_round(double value)
{
    float below = (float)value;
    uint32_t bits;
    memcpy(&bits, &below, sizeof(bits));
    bits &= 0xffff0000;

    uint32_t best = bits;
    double least = INFINITY;
    for (int step = -1; step <= 1; step++) {
        uint32_t tried = bits + (uint32_t)step * 0x10000;
        float number;
        memcpy(&number, &tried, sizeof(number));
        double error = fabs((double)number - value);
        if (error < least || (error == least && !(tried & 0x10000)))
            least = error, best = tried;
    }
    return (uint16_t)(best >> 16);
}

void element_set(void *array, enum gpu_dtype type, size_t i, double value)
{
    if (type == GPU_F32)
        ((float *)array)[i] = (float)value;
    else if (type == GPU_F16)
        ((uint16_t *)array)[i] = f16_round(value);
    else if (isfinite(value))
        ((uint16_t *)array)[i] = bf16_round(value);
    else
        ((uint16_t *)array)[i] = isnan(value) ? 0x7fc0 : value > 0 ? 0x7f80 : 0xff80;
}

static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256};

static void draw_shape(struct gpu_attend_shape *shape, uint64_t *state)
{
    static const uint32_t groups[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
    static const uint32_t tokens[] = {16, 16, 16, 32, 8, 1, 13, 64, 5, 256};

    shape->num_kv_heads = 1 + random_below(state, 3);
    shape->num_q_heads = shape->num_kv_heads * groups[random_below(state, ARRAY_SIZE(groups))];
    shape->k_dim = shape->v_dim = dims[random_below(state, ARRAY_SIZE(dims))];
    if (random_below(state, 4) == 0)
        shape->v_dim = dims[random_below(state, ARRAY_SIZE(dims))];
    shape->block_tokens = tokens[random_below(state, ARRAY_SIZE(tokens))];
    shape->kv_dtype = (enum gpu_dtype)random_below(state, 3);
    shape->num_layers = 1 + random_below(state, 3);
    shape->is_causal = random_below(state, 8) != 0;
    shape->window = random_below(state, 3) == 0 ? 1 + random_below(state, 100) : 0;
    if (random_below(state, 6) == 0) { /* MLA */
        shape->is_v_in_k = true;
        shape->num_kv_heads = 1;
        shape->num_q_heads = 1 + random_below(state, 40);
        shape->k_dim = random_below(state, 2) ? 576 : 128;
        shape->v_dim = shape->k_dim == 576 ? 512 : 64;
    }
}

void case_draw(struct attend_case *plan, uint64_t seed)
{
    uint64_t state = seed;

    *plan = (struct attend_case){.seed = seed};
    random_next(&state);
    draw_shape(&plan->shape, &state);
    plan->layer = random_below(&state, plan->shape.num_layers);
    plan->dtype = (enum gpu_dtype)random_below(&state, 3);
    plan->soft_cap = random_below(&state, 3) == 0 ? 5 + (float)random_below(&state, 50) : 0;
    if (random_below(&state, 3) == 0)
        plan->scale =
            (0.1f + 0.1f * (float)random_below(&state, 20)) / sqrtf((float)plan->shape.k_dim);
    plan->has_sinks = random_below(&state, 3) == 0;
    plan->has_lse = random_below(&state, 2);
    plan->num_sequences = 1 + random_below(&state, 6);

    uint32_t tokens = plan->shape.block_tokens;
    if (random_below(&state, 2) && plan->num_sequences > 1)
        plan->num_prefix = (1 + random_below(&state, 300 / tokens)) * tokens;
    for (uint32_t s = 0; s < plan->num_sequences; s++) {
        uint32_t length = random_below(&state, 400) + plan->num_prefix;
        if (random_below(&state, 2)) /* around the edges of blocks */
            length = length / tokens * tokens + random_below(&state, 3);
        if (random_below(&state, 2) && length > plan->num_prefix)
            length--;
        plan->sequences[s].length_before = length;
        plan->sequences[s].num_rows = random_below(&state, 3) ? 1 : random_below(&state, 70);
    }
    if (random_below(&state, 4) == 0)
        plan->null_every = 2 + random_below(&state, 5);
}

void case_print(const struct attend_case *plan)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    const struct gpu_attend_shape *shape = &plan->shape;

    print_message("case --seed %llu: %s blocks, %s call, heads %u/%u, dims %u/%u%s, block %u, %s, "
                  "window %u, cap %g, scale %g, sinks %d, prefix %u, null %u, sequences:",
                  (unsigned long long)plan->seed, names[shape->kv_dtype], names[plan->dtype],
                  shape->num_q_heads, shape->num_kv_heads, shape->k_dim, shape->v_dim,
                  shape->is_v_in_k ? " (MLA)" : "", shape->block_tokens,
                  shape->is_causal ? "causal" : "full", shape->window, (double)plan->soft_cap,
                  (double)plan->scale, plan->has_sinks, plan->num_prefix, plan->null_every);
    for (uint32_t s = 0; s < plan->num_sequences; s++)
        print_message(" %u+%u", plan->sequences[s].length_before, plan->sequences[s].num_rows);
    print_message("\n");
}

/* Where an element lies in its block, written down a second time from the page on the layout. */
static size_t element_at(const struct attend_data *data, bool is_v, uint32_t head, uint32_t token,
                         uint32_t d)
{
    const struct gpu_attend_shape *shape = &data->plan->shape;
    size_t tokens = shape->block_tokens, heads = shape->num_kv_heads;

    if (shape->is_v_in_k)
        return (data->plan->layer * tokens + token) * shape->k_dim + d;
    size_t layer = data->plan->layer * heads * tokens * (shape->k_dim + shape->v_dim);
    if (!is_v)
        return layer + (head * tokens + token) * shape->k_dim + d;
    return layer + heads * tokens * shape->k_dim + (head * tokens + token) * shape->v_dim + d;
}

static char *block_of(const struct attend_data *data, uint32_t s, uint32_t position)
{
    const struct gpu_attend_sequence *sequence = &data->sequences[s];

    for (uint32_t r = 0; r < sequence->num_runs; r++) {
        const struct gpu_attend_run *run = &sequence->runs[r];
        uint32_t i = (position - run->first_position) / data->plan->shape.block_tokens;
        if (position >= run->first_position && i < run->num_slots)
            return run->slots[i] ? (char *)run->base + (run->slots[i] - 1) * run->stride : NULL;
    }
    return NULL;
}

/* Whether block @i of a sequence is one that nobody sees: before its window, or in a gap. */
static bool is_null_block(const struct attend_case *plan, uint32_t s, uint32_t i)
{
    uint32_t tokens = plan->shape.block_tokens, window = plan->shape.window;
    uint32_t before = plan->sequences[s].length_before;

    if (plan->null_every && i % plan->null_every == 0 && (i + 1) * tokens <= before)
        return true;
    return window > 0 && i >= plan->num_prefix / tokens && (i + 1) * tokens + window <= before + 1;
}

/* Random tables: shuffled slots, runs in several arenas, the prefix shared, null blocks. */
static void make_tables(struct attend_data *data, uint64_t *state)
{
    const struct attend_case *plan = data->plan;
    uint32_t tokens = plan->shape.block_tokens;
    uint32_t used[CASE_MAX_ARENAS] = {0}, *order[CASE_MAX_ARENAS];

    for (uint32_t a = 0; a < CASE_MAX_ARENAS; a++) {
        order[a] = calloc(data->num_slots, sizeof(**order));
        for (uint32_t i = 0; i < data->num_slots; i++) {
            uint32_t j = random_below(state, i + 1);
            order[a][i] = order[a][j];
            order[a][j] = i + 1;
        }
    }
    for (uint32_t s = 0; s < plan->num_sequences; s++) {
        uint32_t length = plan->sequences[s].length_before + plan->sequences[s].num_rows;
        uint32_t num_blocks = (length + tokens - 1) / tokens, block = 0, num_runs = 0;
        uint32_t num_shared = plan->num_prefix / tokens;
        data->slots[s] = calloc(num_blocks + 1, sizeof(**data->slots));
        while (block < num_blocks) {
            struct gpu_attend_run *run = &data->runs[s][num_runs];
            uint32_t a = random_below(state, CASE_MAX_ARENAS), num = num_blocks - block;
            if (num_runs < CASE_MAX_RUNS - 1)
                num = 1 + random_below(state, num);
            if (block < num_shared) { /* as sequence 0 has it, in one arena */
                num = num < num_shared - block ? num : num_shared - block;
                a = 0;
            }
            *run = (struct gpu_attend_run){data->arenas[a], data->stride, block * tokens, num,
                                           data->slots[s] + block};
            for (uint32_t i = block; i < block + num; i++) {
                if (s > 0 && i < num_shared)
                    data->slots[s][i] = data->slots[0][i];
                else if (!is_null_block(plan, s, i))
                    data->slots[s][i] = order[a][used[a]++];
            }
            num_runs++;
            block += num;
        }
        data->sequences[s] = (struct gpu_attend_sequence){
            data->runs[s], num_runs, plan->sequences[s].length_before, plan->sequences[s].num_rows};
    }
    for (uint32_t a = 0; a < CASE_MAX_ARENAS; a++)
        free(order[a]);
}

/* Draws K or V of one position; what was there before the step is stored, what is new is given. */
static void make_token(struct attend_data *data, uint32_t s, uint32_t position, uint32_t row,
                       bool is_v, uint64_t *state)
{
    const struct attend_case *plan = data->plan;
    const struct gpu_attend_shape *shape = &plan->shape;
    uint32_t dim = is_v ? shape->v_dim : shape->k_dim, heads = shape->num_kv_heads;
    double *truth = is_v ? data->values[s] : data->keys[s];
    char *block = block_of(data, s, position);
    void *call = is_v ? data->v : data->k;

    for (uint32_t head = 0; head < heads; head++)
        for (uint32_t d = 0; d < dim; d++) {
            size_t i = ((size_t)position * heads + head) * dim + d;
            double value = random_normal(state) * (plan->kv_size > 0 ? plan->kv_size : 1);
            size_t at = element_at(data, is_v, head, position % shape->block_tokens, d);
            if (row == UINT32_MAX) { /* old */
                if (!block)
                    continue; /* nobody sees it */
                if (s > 0 && position < plan->num_prefix) {
                    truth[i] = element_get(block, shape->kv_dtype, at);
                    continue;
                }
                element_set(block, shape->kv_dtype, at, value);
                truth[i] = element_get(block, shape->kv_dtype, at);
                continue;
            }
            size_t given = ((size_t)row * heads + head) * dim + d;
            char rounded[4];
            element_set(call, plan->dtype, given, value);
            element_set(rounded, shape->kv_dtype, 0, element_get(call, plan->dtype, given));
            truth[i] = element_get(rounded, shape->kv_dtype, 0);
        }
}

static void make_values(struct attend_data *data, uint64_t *state)
{
    const struct attend_case *plan = data->plan;
    const struct gpu_attend_shape *shape = &plan->shape;
    uint32_t row = 0;

    for (uint32_t s = 0; s < plan->num_sequences; s++) {
        uint32_t before = plan->sequences[s].length_before;
        uint32_t length = before + plan->sequences[s].num_rows, heads = shape->num_kv_heads;
        data->keys[s] = calloc((size_t)length * heads * shape->k_dim + 1, sizeof(double));
        data->values[s] = calloc((size_t)length * heads * shape->v_dim + 1, sizeof(double));
        for (uint32_t position = 0; position < length; position++) {
            uint32_t new_row = position < before ? UINT32_MAX : row++;
            make_token(data, s, position, new_row, false, state);
            if (!shape->is_v_in_k)
                make_token(data, s, position, new_row, true, state);
            for (uint32_t d = 0; shape->is_v_in_k && d < shape->v_dim; d++)
                data->values[s][(size_t)position * shape->v_dim + d] =
                    data->keys[s][(size_t)position * shape->k_dim + d];
        }
        for (size_t i = 0; i < (size_t)length * heads * shape->v_dim; i++)
            data->max_v = fmax(data->max_v, fabs(data->values[s][i]));
    }
}

/* Dense attention of one row and query head over keys [first, end). */
static void truth_of(struct attend_data *data, uint32_t s, uint32_t row, uint32_t head,
                     uint32_t first, uint32_t end)
{
    const struct attend_case *plan = data->plan;
    const struct gpu_attend_shape *shape = &plan->shape;
    uint32_t kv_head = head / (shape->num_q_heads / shape->num_kv_heads);
    size_t index = (size_t)row * shape->num_q_heads + head;
    double scale = plan->scale > 0 ? (double)plan->scale : 1 / sqrt(shape->k_dim);
    double *score = calloc(end + 1, sizeof(*score)), max = -INFINITY, sum = 0, q[640];
    double *out = data->true_out + index * shape->v_dim;

    for (uint32_t d = 0; d < shape->k_dim; d++)
        q[d] = element_get(data->q, plan->dtype, index * shape->k_dim + d);
    for (uint32_t j = first; j < end; j++) {
        const double *k =
            data->keys[s] + ((size_t)j * shape->num_kv_heads + kv_head) * shape->k_dim;
        for (uint32_t d = 0; d < shape->k_dim; d++)
            score[j] += k[d] * q[d];
        score[j] *= scale;
        if (plan->soft_cap > 0)
            score[j] = (double)plan->soft_cap * tanh(score[j] / (double)plan->soft_cap);
        if (!block_of(data, s, j))
            score[j] = -INFINITY;
        max = fmax(max, score[j]);
    }
    if (plan->has_sinks)
        max = fmax(max, (double)data->sinks[head]), sum = exp((double)data->sinks[head] - max);
    if (max == -INFINITY)
        max = 0; /* nothing is seen: all weights are 0 */
    for (uint32_t j = first; j < end; j++)
        sum += exp(score[j] - max);
    for (uint32_t j = first; j < end; j++) {
        const double *v =
            data->values[s] + ((size_t)j * shape->num_kv_heads + kv_head) * shape->v_dim;
        double weight = sum > 0 ? exp(score[j] - max) / sum : 0;
        for (uint32_t d = 0; d < shape->v_dim; d++)
            out[d] += weight * v[d];
    }
    data->true_lse[index] = max + log(sum);
    free(score);
}

static void make_truth(struct attend_data *data)
{
    const struct gpu_attend_shape *shape = &data->plan->shape;
    uint32_t row = 0;

    for (uint32_t s = 0; s < data->plan->num_sequences; s++)
        for (uint32_t i = 0; i < data->plan->sequences[s].num_rows; i++, row++) {
            uint32_t position = data->plan->sequences[s].length_before + i;
            uint32_t length = position - i + data->plan->sequences[s].num_rows;
            uint32_t end = shape->is_causal ? position + 1 : length, first = 0;
            if (shape->window > 0 && position + 1 > shape->window)
                first = position + 1 - shape->window;
            for (uint32_t head = 0; head < shape->num_q_heads; head++)
                truth_of(data, s, row, head, first, end);
        }
}

void case_build(struct attend_data *data, const struct attend_case *plan)
{
    const struct gpu_attend_shape *shape = &plan->shape;
    uint64_t state = plan->seed ^ 0xabcdef;
    size_t elements = (size_t)shape->num_layers * shape->num_kv_heads * shape->block_tokens *
                      (shape->k_dim + (shape->is_v_in_k ? 0 : shape->v_dim));

    *data = (struct attend_data){.plan = plan, .num_slots = 2};
    for (uint32_t s = 0; s < plan->num_sequences; s++) {
        uint32_t length = plan->sequences[s].length_before + plan->sequences[s].num_rows;
        data->num_rows += plan->sequences[s].num_rows;
        data->num_slots += length / shape->block_tokens + 1;
    }
    data->stride = elements * element_bytes(shape->kv_dtype) + 4 * random_below(&state, 20);
    for (uint32_t a = 0; a < CASE_MAX_ARENAS; a++) {
        data->arenas[a] = malloc(data->num_slots * data->stride);
        memset(data->arenas[a], 0xff, data->num_slots * data->stride); /* NaN in every format */
    }
    size_t rows = data->num_rows + 1, heads = shape->num_q_heads, kv_heads = shape->num_kv_heads;
    data->q = calloc(rows * heads * shape->k_dim, 4);
    data->k = calloc(rows * kv_heads * shape->k_dim, 4);
    data->v = calloc(rows * kv_heads * shape->v_dim, 4);
    data->out = malloc(rows * heads * shape->v_dim * 4);
    case_forget_out(data);
    data->lse = calloc(rows * heads, sizeof(float));
    data->sinks = calloc(heads, sizeof(float));
    data->true_out = calloc(rows * heads * shape->v_dim, sizeof(double));
    data->true_lse = calloc(rows * heads, sizeof(double));
    for (size_t i = 0; i < heads; i++)
        data->sinks[i] = (float)random_normal(&state) * 2;
    for (size_t i = 0; i < data->num_rows * heads * shape->k_dim; i++)
        element_set(data->q, plan->dtype, i,
                    random_normal(&state) * (plan->q_size > 0 ? plan->q_size : 2));
    make_tables(data, &state);
    make_values(data, &state);
    make_truth(data);
}

void case_forget_out(struct attend_data *data)
{
    const struct gpu_attend_shape *shape = &data->plan->shape;

    memset(data->out, 0xff, (size_t)(data->num_rows + 1) * shape->num_q_heads * shape->v_dim * 4);
}

void case_free(struct attend_data *data)
{
    for (uint32_t a = 0; a < CASE_MAX_ARENAS; a++)
        free(data->arenas[a]);
    for (uint32_t s = 0; s < data->plan->num_sequences; s++) {
        free(data->slots[s]);
        free(data->keys[s]);
        free(data->values[s]);
    }
    free(data->q);
    free(data->k);
    free(data->v);
    free(data->out);
    free(data->lse);
    free(data->sinks);
    free(data->true_out);
    free(data->true_lse);
}

void case_layer(const struct attend_data *data, struct gpu_attend_layer *out)
{
    const struct attend_case *plan = data->plan;

    *out = (struct gpu_attend_layer){
        .layer = plan->layer,
        .dtype = plan->dtype,
        .q = data->q,
        .k = data->k,
        .v = plan->shape.is_v_in_k ? NULL : data->v,
        .out = data->out,
        .lse = plan->has_lse ? data->lse : NULL,
        .sinks = plan->has_sinks ? data->sinks : NULL,
        .scale = plan->scale,
        .soft_cap = plan->soft_cap,
    };
}

/* COMPRESSION 3.1, and half a unit of the output's own format. */
double case_out_error(const struct attend_data *data)
{
    const struct gpu_attend_shape *shape = &data->plan->shape;
    size_t num = (size_t)data->num_rows * shape->num_q_heads * shape->v_dim;
    double bound = data->plan->dtype == GPU_F32 ? 2e-5 : data->plan->dtype == GPU_F16 ? 2e-3 : 4e-3;
    double worst = 0;

    for (size_t i = 0; i < num; i++) {
        double error = fabs(element_get(data->out, data->plan->dtype, i) - data->true_out[i]);
        if (!(error <= worst))
            worst = error; /* NaN too, and it stays */
    }
    return num == 0 ? 0 : worst / (bound * data->max_v);
}

double case_lse_error(const struct attend_data *data)
{
    double worst = 0;

    for (size_t i = 0; i < (size_t)data->num_rows * data->plan->shape.num_q_heads; i++) {
        double error = fabs((double)data->lse[i] - data->true_lse[i]);
        if ((double)data->lse[i] == data->true_lse[i])
            continue;                              /* -inf, of a row that saw nothing */
        error /= fmax(1, fabs(data->true_lse[i])); /* it is of the size of the scores */
        if (!(error <= worst))
            worst = error;
    }
    return data->plan->has_lse ? worst / 2e-5 : 0;
}

/* Every NaN of the start that no token came to is still there, and nothing else is NaN. */
bool case_rest_is_untouched(const struct attend_data *data)
{
    const struct attend_case *plan = data->plan;
    size_t num_written = 0, num_there = 0;
    size_t bytes = element_bytes(plan->shape.kv_dtype),
           per_token = (size_t)plan->shape.num_kv_heads *
                       (plan->shape.k_dim + (plan->shape.is_v_in_k ? 0 : plan->shape.v_dim));

    for (uint32_t s = 0; s < plan->num_sequences; s++) {
        uint32_t length = plan->sequences[s].length_before + plan->sequences[s].num_rows;
        for (uint32_t position = s > 0 ? plan->num_prefix : 0; position < length; position++)
            num_there += block_of(data, s, position) ? per_token : 0;
    }
    for (uint32_t a = 0; a < CASE_MAX_ARENAS; a++)
        for (uint32_t slot = 0; slot < data->num_slots; slot++)
            for (size_t i = 0; i < data->stride / bytes; i++)
                num_written += !isnan(
                    element_get(data->arenas[a] + slot * data->stride, plan->shape.kv_dtype, i));
    return num_written == num_there;
}
