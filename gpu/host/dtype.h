/* gpu/host/dtype.h - internal: the storage formats, one element at a time. */
#pragma once

#include "gpu/attend.h"

/* Every format, once: [enum gpu_dtype]. A new one needs a row here and a loader in attend_vec_*.h.
 */
struct dtype {
    const char *name;
    size_t bytes;
    float (*load)(const void *row, size_t i);
    void (*store)(void *row, size_t i, float value); /* to nearest even */
};

enum { NUM_DTYPES = GPU_BF16 + 1 };

extern const struct dtype dtypes[NUM_DTYPES];
