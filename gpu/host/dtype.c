/* gpu/host/dtype.c - f32, f16 and bf16 in plain C. */
#include "gpu/host/dtype.h"

#include <math.h>
#include <string.h>

static float load_f32(const void *row, size_t i)
{
    float value;

    memcpy(&value, (const char *)row + i * sizeof(value), sizeof(value));
    return value;
}

static void store_f32(void *row, size_t i, float value)
{
    memcpy((char *)row + i * sizeof(value), &value, sizeof(value));
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* f16: a sign, 5 bits of exponent (15 is 2^0), 10 of fraction. Below 2^-14 it counts 2^-24s. */
static float load_f16(const void *row, size_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)row + i * sizeof(half), sizeof(half));

    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest < 0x400)
        return float_of(sign | bits_of((float)rest * 0x1p-24f));
    uint32_t bias = rest < 0x7c00 ? (127 - 15) << 23 : (255 - 31) << 23;
    return float_of(sign | ((rest << 13) + bias));
}

static void store_f16(void *row, size_t i, float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000;
    float size = fabsf(value);
    uint32_t rest;

    bits &= 0x7fffffff;
    if (size != size)
        rest = 0x7e00;
    else if (size >= 65520) /* nearest is 2^16, which is infinity */
        rest = 0x7c00;
    else if (size < 0x1p-14f)
        rest = (uint32_t)rintf(size * 0x1p24f);
    else
        rest = (bits + 0xfff + (bits >> 13 & 1) - ((127 - 15) << 23)) >> 13;
    uint16_t half = (uint16_t)(sign | rest);
    memcpy((char *)row + i * sizeof(half), &half, sizeof(half));
}

/* bf16 is the upper half of an f32. */
static float load_bf16(const void *row, size_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)row + i * sizeof(half), sizeof(half));

    return float_of((uint32_t)half << 16);
}

static void store_bf16(void *row, size_t i, float value)
{
    uint32_t bits = bits_of(value);

    /* Rounding could carry a NaN's bits over into an infinity or a zero: keep it a NaN. */
    if (value == value)
        bits += 0x7fff + (bits >> 16 & 1);
    else
        bits |= 0x400000;
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy((char *)row + i * sizeof(half), &half, sizeof(half));
}

#define DTYPE(type, name, bytes) [type] = {#name, bytes, load_##name, store_##name},
const struct dtype dtypes[NUM_DTYPES] = {DTYPES(DTYPE)};
