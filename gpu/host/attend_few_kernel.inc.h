/* gpu/host/attend_few_kernel.inc.h - internal: attention of up to FEW_VECTORS query vectors. */

enum {
    FEW_KEYS = 32, /* of a tile: its K and V and those of the next fit the L1 cache */
    /* Query vectors at a time: up to DOT_VECTORS, or twice as many with half as much of K and V in
     * registers, so that each K and V row is converted once for them. */
    WIDE_VECTORS = 2 * DOT_VECTORS,
};

struct few_state {
    struct score_scale scale;
    const float *q; /* tile->q, or that as bf16 pairs */
    uint32_t q_stride;
    float m[FEW_VECTORS];            /* times log2(e) */
    float l[FEW_VECTORS][VEC];       /* lane by lane */
    float s[WIDE_VECTORS][FEW_KEYS]; /* scores, then weights */
    float keep[WIDE_VECTORS];
};

VEC_INLINE void fetch_row(const char *row, size_t bytes)
{
    for (size_t byte = 0; byte < bytes; byte += 64)
        _mm_prefetch(row + byte, _MM_HINT_T0);
}

/* @num vectors from @i on: s = q . k for all keys of the tile, and the next tile is fetched. */
VEC_INLINE void few_scores(struct few_state *state, const int type, const uint32_t num,
                           const struct attend_tile *tile, const struct key_tile *keys,
                           const struct key_tile *next, uint32_t i)
{
    const float *q = state->q + (size_t)i * state->q_stride;
    const uint32_t at_once = num > DOT_VECTORS ? 2 : 4; /* keys */

    for (uint32_t t = 0; t < keys->num; t += at_once) {
        vec sum[WIDE_VECTORS * 2];
        for (uint32_t n = 0; n < num * at_once; n++)
            sum[n] = vec_zero();

        for (uint32_t n = 0; i == 0 && n < at_once && t + n < next->num; n++)
            fetch_row(next->k[t + n], tile->k_row_bytes);

        for (uint32_t d = 0; d < state->q_stride; d += VEC) {
            vec k[4];
            for (uint32_t n = 0; n < at_once; n++)
                k[n] = load_keys(type, keys->k[t + n], d);
            for (uint32_t h = 0; h < num; h++) {
                vec x = vec_load(q + (size_t)h * state->q_stride + d);
                for (uint32_t n = 0; n < at_once; n++)
                    sum[h * at_once + n] = multiply_keys(type, x, k[n], sum[h * at_once + n]);
            }
        }
        for (uint32_t h = 0; at_once == 4 && h < num; h++)
            _mm_storeu_ps(&state->s[h][t], vec_sum4(sum + h * 4));
        for (uint32_t h = 0; at_once == 2 && h < num; h += 2) {
            __m128 two_by_two = vec_sum4(sum + h * 2);
            _mm_storel_pi((__m64 *)&state->s[h][t], two_by_two);
            _mm_storeh_pi((__m64 *)&state->s[h + 1][t], two_by_two);
        }
    }
}

/* Scores of vector @i become weights; what was summed up so far is to be multiplied by keep. */
static inline void few_softmax(struct few_state *state, const struct attend_tile *tile,
                               const struct key_tile *keys, uint32_t h, uint32_t i)
{
    bool is_seen = tile_is_seen(tile, keys, i, 1) && keys->num % VEC == 0;
    veci first = vec_set1_int(tile->first[i]), end = vec_set1_int(tile->end_key[i]);
    vec max = vec_set1(state->m[i]), sum = vec_zero();
    float *s = state->s[h];

    for (uint32_t t = 0; t < keys->num; t += VEC) {
        vec x = score_apply(&state->scale, vec_load(s + t));
        if (!is_seen)
            x = vec_hide(x, vec_load_int(keys->position + t), first, end);
        vec_store(s + t, x);
        max = vec_max(max, x);
    }
    /* -inf - base must not be NaN, also while nothing was seen. */
    float m = vec_reduce_max(max), base = m > -FLT_MAX ? m : -FLT_MAX;
    vec keep = vec_exp2(vec_set1(state->m[i] - base));
    state->m[i] = m;
    for (uint32_t t = 0; t < keys->num; t += VEC) {
        vec weight = vec_exp2(vec_sub(vec_load(s + t), vec_set1(base)));
        vec_store(s + t, weight);
        sum = vec_add(sum, weight);
    }
    vec_store(state->l[i], vec_fma(vec_load(state->l[i]), keep, sum));
    state->keep[h] = vec_reduce_max(keep);
}

/*
 * @chunks vectors of o from element @d on, of @num query vectors from @i on. Meanwhile the rows of
 * @next (unless NULL) are fetched, one at a time: all at once is a fifth slower.
 */
VEC_INLINE void few_values_part(struct few_state *state, const enum gpu_dtype type,
                                const uint32_t num, const uint32_t chunks,
                                const struct attend_tile *tile, const struct key_tile *keys,
                                const struct key_tile *next, uint32_t i, uint32_t d)
{
    float *o = tile->o + (size_t)i * tile->v_dim + d;
    vec sum[WIDE_VECTORS][OUT_CHUNKS];

    for (uint32_t h = 0; h < num; h++)
        for (uint32_t c = 0; c < chunks; c++)
            sum[h][c] =
                vec_mul(vec_load(o + (size_t)h * tile->v_dim + c * VEC), vec_set1(state->keep[h]));
    for (uint32_t t = 0; t < keys->num; t++) {
        vec v[OUT_CHUNKS];
        if (next && t < next->num)
            fetch_row(next->v[t], tile->v_row_bytes);
        for (uint32_t c = 0; c < chunks; c++)
            v[c] = vec_load_as(type, keys->v[t], d + c * VEC);
        for (uint32_t h = 0; h < num; h++)
            for (uint32_t c = 0; c < chunks; c++)
                sum[h][c] = vec_fma(v[c], vec_set1(state->s[h][t]), sum[h][c]);
    }
    for (uint32_t h = 0; h < num; h++)
        for (uint32_t c = 0; c < chunks; c++)
            vec_store(o + (size_t)h * tile->v_dim + c * VEC, sum[h][c]);
}

VEC_INLINE void few_values(struct few_state *state, const enum gpu_dtype type, const uint32_t num,
                           const struct attend_tile *tile, const struct key_tile *keys,
                           const struct key_tile *next, uint32_t i)
{
    const uint32_t most = num > DOT_VECTORS ? 2 : OUT_CHUNKS;
    uint32_t d = 0;

    if (i == 0 && tile->v_offset != tile->k_offset && tile->v_dim >= most * VEC) {
        few_values_part(state, type, num, most, tile, keys, next, i, d);
        d += most * VEC;
    }
    for (; d + most * VEC <= tile->v_dim; d += most * VEC)
        few_values_part(state, type, num, most, tile, keys, NULL, i, d);
    for (; d + 2 * VEC <= tile->v_dim; d += 2 * VEC)
        few_values_part(state, type, num, 2, tile, keys, NULL, i, d);
    for (; d < tile->v_dim; d += VEC)
        few_values_part(state, type, num, 1, tile, keys, NULL, i, d);
}

VEC_INLINE void few_group(struct few_state *state, const int k_type, const enum gpu_dtype v_type,
                          const uint32_t num, const struct attend_tile *tile,
                          const struct key_tile *keys, const struct key_tile *next, uint32_t i)
{
    few_scores(state, k_type, num, tile, keys, next, i);
    for (uint32_t h = 0; h < num; h++)
        few_softmax(state, tile, keys, h, i + h);
    few_values(state, v_type, num, tile, keys, next, i);
}

typedef void few_group_fn(struct few_state *state, const struct attend_tile *tile,
                          const struct key_tile *keys, const struct key_tile *next, uint32_t i);

/* How K and V are read x how many query vectors at a time: each its own loop. */
#define FEW_GROUP(name, k_type, v_type, num, suffix)                                               \
    static void few_##name##_##suffix(struct few_state *state, const struct attend_tile *tile,     \
                                      const struct key_tile *keys, const struct key_tile *next,    \
                                      uint32_t i)                                                  \
    {                                                                                              \
        few_group(state, k_type, v_type, num, tile, keys, next, i);                                \
    }
#define FEW_UP_TO(num) ((num) < DOT_VECTORS ? (num) : DOT_VECTORS)
#define FEW_GROUPS(name, k_type, v_type)                                                           \
    FEW_GROUP(name, k_type, v_type, FEW_UP_TO(1), 1)                                               \
    FEW_GROUP(name, k_type, v_type, FEW_UP_TO(2), 2)                                               \
    FEW_GROUP(name, k_type, v_type, FEW_UP_TO(3), 3)                                               \
    FEW_GROUP(name, k_type, v_type, FEW_UP_TO(4), 4)                                               \
    FEW_GROUP(name, k_type, v_type, WIDE_VECTORS, wide)

#define FEW_GROUPS_OF(type, name, bytes) FEW_GROUPS(name, type, type)
DTYPES(FEW_GROUPS_OF)
FEW_GROUPS(pairs, AS_PAIRS, GPU_BF16)

/* [how K is read][how many query vectors; 0: WIDE_VECTORS] */
#define FEW_ROW(type, name, bytes)                                                                 \
    [type] = {few_##name##_wide, few_##name##_1, few_##name##_2, few_##name##_3, few_##name##_4},
static few_group_fn *const few_groups[][5] = {DTYPES(FEW_ROW) FEW_ROW(AS_PAIRS, pairs, 0)};

/* Returns how K is read: in pairs if q and K are bf16 and the CPU multiplies those. */
static int few_begin(struct few_state *state, const struct attend_tile *tile)
{
    state->scale = score_scale_of(tile);
    state->q = tile->q;
    state->q_stride = tile->k_dim;
    for (uint32_t i = 0; i < tile->num_vectors; i++) {
        state->m[i] = -INFINITY;
        memset(state->l[i], 0, sizeof(state->l[i]));
    }
    memset(tile->o, 0, sizeof(float) * tile->num_vectors * tile->v_dim);

    bool is_pairs =
        HAS_PAIRS && tile->is_q_bf16 && tile->kv_dtype == GPU_BF16 && tile->k_dim % (2 * VEC) == 0;
    if (!is_pairs)
        return (int)tile->kv_dtype;
    size_t num = (size_t)tile->num_vectors * tile->k_dim;
    for (size_t n = 0; n < num; n += VEC)
        vec_store_as(GPU_BF16, (char *)tile->work, n, vec_load(tile->q + n));
    state->q = tile->work;
    state->q_stride = tile->k_dim / 2;
    return AS_PAIRS;
}

static uint32_t few_at_once(uint32_t num_left)
{
    if (num_left >= WIDE_VECTORS)
        return WIDE_VECTORS;
    return num_left < DOT_VECTORS ? num_left : DOT_VECTORS;
}

static void few_attend(const struct attend_tile *tile)
{
    struct few_state state;
    struct key_tile tiles[2];
    int type = few_begin(&state, tile);
    uint32_t j = key_tile_fill(&tiles[0], tile, tile->begin, FEW_KEYS);

    for (uint32_t n = 0; tiles[n % 2].num > 0; n++) {
        j = key_tile_fill(&tiles[(n + 1) % 2], tile, j, FEW_KEYS);
        for (uint32_t i = 0, num; i < tile->num_vectors; i += num) {
            num = few_at_once(tile->num_vectors - i);
            few_groups[type][num % WIDE_VECTORS](&state, tile, &tiles[n % 2], &tiles[(n + 1) % 2],
                                                 i);
        }
    }
    for (uint32_t i = 0; i < tile->num_vectors; i++) {
        tile->m[i] = state.m[i] * LN2;
        tile->l[i] = vec_reduce_add(vec_load(state.l[i]));
    }
}
