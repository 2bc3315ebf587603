/* gpu/host/dtype.h - internal: the storage formats, one element at a time. */
#pragma once

#include "gpu/attend.h"

/*
 * Every format, once. A new one needs, and the compiler asks for all of it:
 *   its name in enum gpu_dtype, and a row here;
 *   load_<name> and store_<name> in dtype.c, which make the reference whole;
 *   a case of vec_load_as() and vec_store_as() in each attend_vec_*.h.
 * The kernels' loops and all conversions from and to it follow. A head dim needs nothing: any
 * multiple of GPU_DIM_MULTIPLE up to GPU_MAX_DIM is taken.
 */
/* clang-format off */
#define DTYPES(ROW)         \
    ROW(GPU_F32,  f32,  4)  \
    ROW(GPU_F16,  f16,  2)  \
    ROW(GPU_BF16, bf16, 2)
/* clang-format on */

struct dtype {
    const char *name;
    size_t bytes;
    float (*load)(const void *row, size_t i);
    void (*store)(void *row, size_t i, float value); /* to nearest even */
};

#define DTYPE_ONE(type, name, bytes) +1
enum { NUM_DTYPES = DTYPES(DTYPE_ONE) };

extern const struct dtype dtypes[NUM_DTYPES];
