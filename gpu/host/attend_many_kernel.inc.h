/*
 * gpu/host/attend_many_kernel.inc.h - internal: attention of many query vectors.
 *
 * The vectors are cut into panels of up to OUT_CHUNKS vec registers. Of a panel, q lies transposed
 * ([element][query vector]), so that scores of one key are adjacent: maxima, weights and sums are
 * made without crossing lanes.
 */

enum {
    MANY_KEYS = 64,
    PANEL_VECTORS = OUT_CHUNKS * VEC,
};

struct many_state {
    struct score_scale scale;
    int type;               /* of K rows: GPU_F32, or AS_PAIRS */
    uint32_t q_rows;        /* elements, or pairs of them */
    float *q;               /* panel after panel: [q_rows][vectors of the panel] */
    float *s;               /* [key][vectors of the panel] */
    float *wide_k, *wide_v; /* the tile's rows as f32 */
    float *m, *l, *keep;    /* [query vector] */
    const char *k[MANY_KEYS];
    const float *v[MANY_KEYS];
};

static uint32_t panel_chunks(uint32_t chunks_left)
{
    return chunks_left >= OUT_CHUNKS ? OUT_CHUNKS : chunks_left >= 2 ? 2 : 1;
}

/* Where query vector @i of @tile goes in a panel of @width that starts at vector @first. */
static void many_transpose(struct many_state *state, const struct attend_tile *tile, uint32_t first,
                           uint32_t width)
{
    float *to = state->q + (size_t)first * state->q_rows;

    for (uint32_t i = first; i < first + width; i++) {
        const float *q = tile->q + (size_t)i * tile->k_dim;
        bool is_there = i < tile->num_vectors;
        float pairs[GPU_MAX_DIM / 2];

        if (state->type == AS_PAIRS && is_there) {
            for (uint32_t d = 0; d < tile->k_dim; d += VEC)
                vec_store_as(GPU_BF16, (char *)pairs, d, vec_load(q + d));
            q = pairs;
        }
        for (uint32_t d = 0; d < state->q_rows; d++)
            to[(size_t)d * width + i - first] = is_there ? q[d] : 0;
    }
}

static uint32_t many_begin(struct many_state *state, const struct attend_tile *tile)
{
    uint32_t num_chunks = (tile->num_vectors + VEC - 1) / VEC, num = num_chunks * VEC;
    bool is_pairs = HAS_PAIRS && tile->is_q_bf16 && tile->kv_dtype == GPU_BF16;
    float *work = tile->work;

    state->scale = score_scale_of(tile);
    state->type = is_pairs ? AS_PAIRS : GPU_F32;
    state->q_rows = is_pairs ? tile->k_dim / 2 : tile->k_dim;
    state->q = work, work += (size_t)num * state->q_rows;
    state->s = work, work += MANY_KEYS * PANEL_VECTORS;
    state->wide_k = work, work += MANY_KEYS * tile->k_dim;
    state->wide_v = work, work += MANY_KEYS * tile->v_dim;
    state->m = work, work += num;
    state->l = work, work += num;
    state->keep = work;

    for (uint32_t i = 0; i < num; i++)
        state->m[i] = -INFINITY, state->l[i] = 0;
    memset(tile->o, 0, sizeof(float) * num * tile->v_dim);
    for (uint32_t chunk = 0, chunks; chunk < num_chunks; chunk += chunks) {
        chunks = panel_chunks(num_chunks - chunk);
        many_transpose(state, tile, chunk * VEC, chunks * VEC);
    }
    return num_chunks;
}

VEC_INLINE void widen_row(const enum gpu_dtype type, float *to, const char *from, uint32_t dim)
{
    for (uint32_t d = 0; d < dim; d += VEC)
        vec_store(to + d, vec_load_as(type, from, d));
}

static const float *many_widen(const struct attend_tile *tile, const char *row, float *to,
                               uint32_t dim)
{
    if (tile->kv_dtype == GPU_F32)
        return (const float *)row;
    switch (tile->kv_dtype) {
#define WIDEN(type, name, bytes)                                                                   \
    case type:                                                                                     \
        widen_row(type, to, row, dim);                                                             \
        break;
        DTYPES(WIDEN)
    }
    return to;
}

/* Once for all query vectors: the rows of @keys as the products below want them. */
static void many_take_keys(struct many_state *state, const struct attend_tile *tile,
                           const struct key_tile *keys)
{
    bool is_v_in_k = tile->k_offset == tile->v_offset && state->type == GPU_F32;

    for (uint32_t t = 0; t < keys->num; t++) {
        state->k[t] = keys->k[t];
        if (state->type == GPU_F32)
            state->k[t] = (const char *)many_widen(
                tile, keys->k[t], state->wide_k + (size_t)t * tile->k_dim, tile->k_dim);
        state->v[t] = is_v_in_k ? (const float *)state->k[t]
                                : many_widen(tile, keys->v[t],
                                             state->wide_v + (size_t)t * tile->v_dim, tile->v_dim);
    }
    for (uint32_t t = keys->num; t % 4 != 0; t++)
        state->k[t] = state->k[keys->num - 1];
}

/* s[key][vector] = q . k, four keys at a time. */
VEC_INLINE void many_scores(struct many_state *state, const int type, const uint32_t chunks,
                            uint32_t num_keys, uint32_t first)
{
    const uint32_t width = chunks * VEC;
    const float *panel = state->q + (size_t)first * state->q_rows;

    for (uint32_t t = 0; t < num_keys; t += 4) {
        const float *k[4];
        vec sum[4][OUT_CHUNKS];
        for (uint32_t n = 0; n < 4; n++) {
            k[n] = (const float *)state->k[t + n];
            for (uint32_t c = 0; c < chunks; c++)
                sum[n][c] = vec_zero();
        }
        for (uint32_t d = 0; d < state->q_rows; d++) {
            vec q[OUT_CHUNKS];
            for (uint32_t c = 0; c < chunks; c++)
                q[c] = vec_load(panel + (size_t)d * width + c * VEC);
            for (uint32_t n = 0; n < 4; n++)
                for (uint32_t c = 0; c < chunks; c++)
                    sum[n][c] = multiply_keys(type, vec_set1(k[n][d]), q[c], sum[n][c]);
        }
        for (uint32_t n = 0; n < 4; n++)
            for (uint32_t c = 0; c < chunks; c++)
                vec_store(state->s + (size_t)(t + n) * width + c * VEC, sum[n][c]);
    }
}

/* One lane a query vector: scores become weights. */
static inline void many_softmax(struct many_state *state, const struct attend_tile *tile,
                                const struct key_tile *keys, uint32_t first, uint32_t width)
{
    for (uint32_t i = first; i < first + width; i += VEC) {
        float *s = state->s + (i - first);
        bool is_seen = tile_is_seen(tile, keys, i, VEC);
        veci from = vec_load_int(tile->first + i), end = vec_load_int(tile->end_key + i);
        vec old = vec_load(state->m + i), max = old, sum = vec_zero();

        for (uint32_t t = 0; t < keys->num; t++) {
            vec x = score_apply(&state->scale, vec_load(s + (size_t)t * width));
            if (!is_seen)
                x = vec_hide(x, vec_set1_int(keys->position[t]), from, end);
            vec_store(s + (size_t)t * width, x);
            max = vec_max(max, x);
        }
        vec base = vec_max(max, vec_set1(-FLT_MAX)); /* -inf - base must not be NaN */
        vec keep = vec_exp2(vec_sub(old, base));
        for (uint32_t t = 0; t < keys->num; t++) {
            vec weight = vec_exp2(vec_sub(vec_load(s + (size_t)t * width), base));
            vec_store(s + (size_t)t * width, weight);
            sum = vec_add(sum, weight);
        }
        vec_store(state->m + i, max);
        vec_store(state->l + i, vec_fma(vec_load(state->l + i), keep, sum));
        vec_store(state->keep + i, keep);
    }
}

/* o of four query vectors from @i on: @chunks vec registers each, from element @d on. */
VEC_INLINE void many_values_part(const struct many_state *state, const struct attend_tile *tile,
                                 const uint32_t chunks, const float *weights, uint32_t width,
                                 uint32_t num_keys, uint32_t i, uint32_t d)
{
    float *o = tile->o + (size_t)i * tile->v_dim + d;
    vec sum[4][OUT_CHUNKS];

    for (uint32_t n = 0; n < 4; n++)
        for (uint32_t c = 0; c < chunks; c++)
            sum[n][c] = vec_mul(vec_load(o + (size_t)n * tile->v_dim + c * VEC),
                                vec_set1(state->keep[i + n]));
    for (uint32_t t = 0; t < num_keys; t++) {
        const float *w = weights + (size_t)t * width;
        vec v[OUT_CHUNKS];
        for (uint32_t c = 0; c < chunks; c++)
            v[c] = vec_load(state->v[t] + d + c * VEC);
        for (uint32_t n = 0; n < 4; n++)
            for (uint32_t c = 0; c < chunks; c++)
                sum[n][c] = vec_fma(vec_set1(w[n]), v[c], sum[n][c]);
    }
    for (uint32_t n = 0; n < 4; n++)
        for (uint32_t c = 0; c < chunks; c++)
            vec_store(o + (size_t)n * tile->v_dim + c * VEC, sum[n][c]);
}

static void many_values(const struct many_state *state, const struct attend_tile *tile,
                        uint32_t num_keys, uint32_t first, uint32_t width)
{
    for (uint32_t i = 0; i < width && first + i < tile->num_vectors; i += 4) {
        const float *weights = state->s + i;
        uint32_t d = 0;

        for (; d + OUT_CHUNKS * VEC <= tile->v_dim; d += OUT_CHUNKS * VEC)
            many_values_part(state, tile, OUT_CHUNKS, weights, width, num_keys, first + i, d);
        for (; d + 2 * VEC <= tile->v_dim; d += 2 * VEC)
            many_values_part(state, tile, 2, weights, width, num_keys, first + i, d);
        for (; d < tile->v_dim; d += VEC)
            many_values_part(state, tile, 1, weights, width, num_keys, first + i, d);
    }
}

static void many_scores_of(struct many_state *state, uint32_t chunks, uint32_t num_keys,
                           uint32_t first)
{
    const bool is_pairs = state->type == AS_PAIRS;

    switch (chunks) {
    case OUT_CHUNKS:
        is_pairs ? many_scores(state, AS_PAIRS, OUT_CHUNKS, num_keys, first)
                 : many_scores(state, GPU_F32, OUT_CHUNKS, num_keys, first);
        return;
    case 1:
        is_pairs ? many_scores(state, AS_PAIRS, 1, num_keys, first)
                 : many_scores(state, GPU_F32, 1, num_keys, first);
        return;
    default:
        is_pairs ? many_scores(state, AS_PAIRS, 2, num_keys, first)
                 : many_scores(state, GPU_F32, 2, num_keys, first);
    }
}

/* Whether some vector of the panel may see some key of the tile. */
static bool panel_sees(const struct attend_tile *tile, const struct key_tile *keys, uint32_t first,
                       uint32_t width)
{
    bool sees = false;

    for (uint32_t i = first; i < first + width; i++)
        sees |=
            tile->first[i] <= keys->position[keys->num - 1] && keys->position[0] < tile->end_key[i];
    return sees;
}

static void many_attend(const struct attend_tile *tile)
{
    struct many_state state;
    struct key_tile keys;
    uint32_t num_chunks = many_begin(&state, tile);
    uint32_t j = key_tile_fill(&keys, tile, tile->begin, MANY_KEYS);

    for (; keys.num > 0; j = key_tile_fill(&keys, tile, j, MANY_KEYS)) {
        many_take_keys(&state, tile, &keys);
        for (uint32_t chunk = 0, chunks; chunk < num_chunks; chunk += chunks) {
            chunks = panel_chunks(num_chunks - chunk);
            uint32_t first = chunk * VEC, width = chunks * VEC;
            if (!panel_sees(tile, &keys, first, width))
                continue;
            many_scores_of(&state, chunks, keys.num, first);
            many_softmax(&state, tile, &keys, first, width);
            many_values(&state, tile, keys.num, first, width);
        }
    }
    for (uint32_t i = 0; i < tile->num_vectors; i++) {
        tile->m[i] = state.m[i] * LN2;
        tile->l[i] = state.l[i];
    }
}
