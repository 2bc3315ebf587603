/*
 * tests/gpu/attend_case.h - one attend made from a seed: shape, tables, K and V; and its truth.
 *
 * The truth is dense attention in float64 over the stored values, computed without tables. What
 * nobody may read (the rest of a last block, unused blocks, blocks before the window) holds NaN.
 */
#pragma once

#include "gpu/attend.h"
#include "tests/support/test.h"

enum { CASE_MAX_SEQUENCES = 40, CASE_MAX_ARENAS = 3, CASE_MAX_RUNS = 64 };

struct attend_case {
    uint64_t seed;
    struct gpu_attend_shape shape;
    uint32_t layer;
    enum gpu_dtype dtype;
    float scale, soft_cap;
    bool has_sinks, has_lse;
    uint32_t num_sequences;
    uint32_t num_prefix;    /* tokens that all sequences share, whole blocks */
    uint32_t null_every;    /* 0, or each block of this multiple that gains no row is null */
    double q_size, kv_size; /* of what is drawn; 0: about 2, and about 1 */
    struct {
        uint32_t length_before, num_rows;
    } sequences[CASE_MAX_SEQUENCES];
};

/* The memory of a case: made by case_build, freed by case_free. */
struct attend_data {
    const struct attend_case *plan;
    uint32_t num_rows, num_slots; /* slots of each arena */
    size_t stride;
    char *arenas[CASE_MAX_ARENAS];
    struct gpu_attend_sequence sequences[CASE_MAX_SEQUENCES];
    struct gpu_attend_run runs[CASE_MAX_SEQUENCES][CASE_MAX_RUNS];
    uint32_t *slots[CASE_MAX_SEQUENCES];
    double *keys[CASE_MAX_SEQUENCES], *values[CASE_MAX_SEQUENCES]; /* [position][kv_head][dim] */
    void *q, *k, *v, *out;                                         /* as the call takes them */
    float *lse, *sinks;
    double *true_out, *true_lse;
    double max_v;
};

/* A random case; @seed 0 ... : all of shapes, formats and options come up. */
void case_draw(struct attend_case *plan, uint64_t seed);
void case_build(struct attend_data *data, const struct attend_case *plan);
void case_forget_out(struct attend_data *data); /* out is NaN again */
void case_free(struct attend_data *data);
void case_layer(const struct attend_data *data, struct gpu_attend_layer *out);

/* The largest error of out over what it may be (1: at the bound), and of lse. Finite or fails. */
double case_out_error(const struct attend_data *data);
double case_lse_error(const struct attend_data *data);

/* What must not be written is as it was: NaN. True if so. */
bool case_rest_is_untouched(const struct attend_data *data);
void case_print(const struct attend_case *plan);

/* Elements of arrays in a dtype, as float64. */
double element_get(const void *array, enum gpu_dtype type, size_t i);
void element_set(void *array, enum gpu_dtype type, size_t i, double value);

uint64_t random_next(uint64_t *state);
uint32_t random_below(uint64_t *state, uint32_t limit);
double random_normal(uint64_t *state);
