/* gpu/host/fallback.h - internal: the ways in which a host device can be less than it should be. */
#pragma once

#include "gpu/gpu.h"

#include <stdatomic.h>

enum host_fallback {
    FALLBACK_MEMFD,
    FALLBACK_SMALL_PAGES,
    FALLBACK_SWAPPABLE,
    FALLBACK_NOT_POPULATED,
    NUM_FALLBACKS,
};

struct host_fallbacks {
    _Atomic int reasons[NUM_FALLBACKS]; /* 0: not in it; 1 - reason. The memory lane may set one */
};

/* @reason is a negative errno, or 0 if the fallback was asked for. */
void host_fallback_enter(struct host_fallbacks *fallbacks, enum host_fallback which, int reason);
size_t host_fallbacks_list(const struct host_fallbacks *fallbacks, struct gpu_fallback *out,
                           size_t max);
