/*
 * tests/e2e/toy.h - a model whose q, k and v follow from the tokens, and its dense attention.
 *
 * Every value depends on all tokens up to its own, as in a transformer: a block that is shared by
 * mistake, or belongs to another prefix, gives another output.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    TOY_LAYERS = 3, /* with a window, the last one has it */
    TOY_Q_HEADS = 4,
    TOY_KV_HEADS = 2,
    TOY_DIM = 64,
    TOY_MAX_TOKENS = 1024
};

struct toy {
    bool is_f16;
    uint32_t window; /* of the last layer; 0: none */
};

/* Tokens, and what stands for all of them up to each. */
struct toy_text {
    uint32_t tokens[TOY_MAX_TOKENS];
    uint64_t prefixes[TOY_MAX_TOKENS];
    uint32_t num;
};

void toy_add(struct toy_text *text, uint32_t token);

/* f32 or f16, as the engine puts them into staging. */
uint64_t toy_value_bytes(const struct toy *toy);
/* [row][head][dim] of the rows first .. first + num - 1. */
void toy_queries(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
                 uint32_t num, void *out);
void toy_keys(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
              uint32_t num, void *out);
void toy_values(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
                uint32_t num, void *out);

/*
 * Attends densely, in double, and compares with @outputs [row][q_head][dim]: the largest error, as
 * a part of the largest |v|. NaN is infinitely wrong.
 */
double toy_compare(const struct toy *toy, const struct toy_text *text, uint32_t layer,
                   uint32_t first, uint32_t num, const void *outputs);
/* What an error may be. */
double toy_bound(const struct toy *toy);
