/* tests/e2e/toy.c - a model whose q, k and v follow from the tokens, and its dense attention. */
#include "tests/e2e/toy.h"

#include <math.h>

__extension__ typedef _Float16 half;

enum { QUERY = 1, KEY = 2, VALUE = 3 };

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void toy_add(struct toy_text *text, uint32_t token)
{
    uint64_t before = text->num > 0 ? text->prefixes[text->num - 1] : 1;

    text->tokens[text->num] = token;
    text->prefixes[text->num++] = mix(before ^ mix(token));
}

/* Queries lie in [-4, 4), so that some positions weigh more than others; the rest in [-1, 1). */
static float value_at(const struct toy *toy, uint64_t prefix, uint32_t layer, uint32_t what,
                      uint32_t index)
{
    uint64_t bits = mix(prefix ^ mix((uint64_t)layer << 40 | (uint64_t)what << 32 | index));
    float value = (float)(int32_t)(bits >> 32) * (what == QUERY ? 0x1p-29f : 0x1p-31f);

    return toy->is_f16 ? (float)(half)value : value;
}

uint64_t toy_value_bytes(const struct toy *toy)
{
    return toy->is_f16 ? sizeof(half) : sizeof(float);
}

static void tensor_write(const struct toy *toy, const uint64_t *prefixes, uint32_t num,
                         uint32_t layer, uint32_t what, void *out)
{
    uint32_t width = (what == QUERY ? TOY_Q_HEADS : TOY_KV_HEADS) * TOY_DIM;

    for (uint32_t row = 0; row < num; row++)
        for (uint32_t i = 0; i < width; i++) {
            float value = value_at(toy, prefixes[row], layer, what, i);
            if (toy->is_f16)
                ((half *)out)[row * width + i] = (half)value;
            else
                ((float *)out)[row * width + i] = value;
        }
}

void toy_queries(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
                 uint32_t num, void *out)
{
    tensor_write(toy, text->prefixes + first, num, layer, QUERY, out);
}

void toy_keys(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
              uint32_t num, void *out)
{
    tensor_write(toy, text->prefixes + first, num, layer, KEY, out);
}

void toy_values(const struct toy *toy, const struct toy_text *text, uint32_t layer, uint32_t first,
                uint32_t num, void *out)
{
    tensor_write(toy, text->prefixes + first, num, layer, VALUE, out);
}

/* ---- dense ---------------------------------------------------------------------------------- */

/* K and V of one layer, of all positions, made anew for each comparison. */
static float all_keys[TOY_MAX_TOKENS][TOY_KV_HEADS][TOY_DIM];
static float all_values[TOY_MAX_TOKENS][TOY_KV_HEADS][TOY_DIM];

static void attend_row(const float *query, uint32_t head, uint32_t first, uint32_t end,
                       double out[TOY_DIM])
{
    static double weights[TOY_MAX_TOKENS];
    double most = -INFINITY, sum = 0;

    for (uint32_t at = first; at < end; at++) {
        double score = 0;
        for (uint32_t i = 0; i < TOY_DIM; i++)
            score += (double)query[i] * (double)all_keys[at][head][i];
        weights[at] = score / sqrt(TOY_DIM);
        most = fmax(most, weights[at]);
    }
    for (uint32_t i = 0; i < TOY_DIM; i++)
        out[i] = 0;
    for (uint32_t at = first; at < end; at++) {
        double weight = exp(weights[at] - most);
        sum += weight;
        for (uint32_t i = 0; i < TOY_DIM; i++)
            out[i] += weight * (double)all_values[at][head][i];
    }
    for (uint32_t i = 0; i < TOY_DIM; i++)
        out[i] /= sum;
}

static double output_at(const struct toy *toy, const void *outputs, uint64_t index)
{
    return toy->is_f16 ? (double)((const half *)outputs)[index]
                       : (double)((const float *)outputs)[index];
}

static double compare_row(const struct toy *toy, uint64_t prefix, uint32_t layer, uint32_t position,
                          const void *outputs, uint64_t row)
{
    uint32_t end = position + 1, first = 0;
    double worst = 0;

    if (toy->window > 0 && layer == TOY_LAYERS - 1 && end > toy->window)
        first = end - toy->window;
    for (uint32_t head = 0; head < TOY_Q_HEADS; head++) {
        float query[TOY_DIM];
        double dense[TOY_DIM];
        for (uint32_t i = 0; i < TOY_DIM; i++)
            query[i] = value_at(toy, prefix, layer, QUERY, head * TOY_DIM + i);
        attend_row(query, head / (TOY_Q_HEADS / TOY_KV_HEADS), first, end, dense);
        for (uint32_t i = 0; i < TOY_DIM; i++) {
            uint64_t index = (row * TOY_Q_HEADS + head) * TOY_DIM + i;
            double error = fabs(output_at(toy, outputs, index) - dense[i]);
            worst = isnan(error) ? INFINITY : fmax(worst, error);
        }
    }
    return worst;
}

double toy_compare(const struct toy *toy, const struct toy_text *text, uint32_t layer,
                   uint32_t first, uint32_t num, const void *outputs)
{
    const uint32_t width = TOY_KV_HEADS * TOY_DIM;
    double worst = 0, largest = 0;

    for (uint32_t at = 0; at < first + num; at++)
        for (uint32_t i = 0; i < width; i++) {
            uint64_t prefix = text->prefixes[at];
            float value = value_at(toy, prefix, layer, VALUE, i);
            all_keys[at][i / TOY_DIM][i % TOY_DIM] = value_at(toy, prefix, layer, KEY, i);
            all_values[at][i / TOY_DIM][i % TOY_DIM] = value;
            largest = fmax(largest, fabs((double)value));
        }
    for (uint32_t row = 0; row < num; row++)
        worst = fmax(
            worst, compare_row(toy, text->prefixes[first + row], layer, first + row, outputs, row));
    return worst / largest;
}

double toy_bound(const struct toy *toy)
{
    return toy->is_f16 ? 2e-3 : 2e-5;
}
