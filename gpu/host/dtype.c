/* gpu/host/dtype.c - f32, f16 and bf16 in plain C. */
#include "gpu/host/dtype.h"

#include <string.h>

__extension__ typedef _Float16 float16; /* beyond ISO C */

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

static float load_f16(const void *row, size_t i)
{
    float16 value;

    memcpy(&value, (const char *)row + i * sizeof(value), sizeof(value));
    return (float)value;
}

static void store_f16(void *row, size_t i, float value)
{
    float16 rounded = (float16)value;

    memcpy((char *)row + i * sizeof(rounded), &rounded, sizeof(rounded));
}

/* bf16 is the upper half of an f32. */
static float load_bf16(const void *row, size_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)row + i * sizeof(half), sizeof(half));

    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void store_bf16(void *row, size_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));

    /* Rounding could carry a NaN's bits over into an infinity or a zero: keep it a NaN. */
    if (value == value)
        bits += 0x7fff + (bits >> 16 & 1);
    else
        bits |= 0x400000;
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy((char *)row + i * sizeof(half), &half, sizeof(half));
}

/* clang-format off */
const struct dtype dtypes[NUM_DTYPES] = {
    [GPU_F32]  = {"f32",  4, load_f32,  store_f32},
    [GPU_F16]  = {"f16",  2, load_f16,  store_f16},
    [GPU_BF16] = {"bf16", 2, load_bf16, store_bf16},
};
/* clang-format on */
