/* offload/fallback.h - internal: the ways in which a disk can be less than it should be. */
#pragma once

#include "gpu/gpu.h"

enum disk_fallback {
    DISK_FALLBACK_NO_URING,
    DISK_FALLBACK_NO_DIRECT,
    DISK_FALLBACK_NOT_REGISTERED,
    DISK_FALLBACK_NOT_PREALLOCATED,
    DISK_FALLBACK_SMALLER,
    NUM_DISK_FALLBACKS,
};

/* Written while the disk is opened only. 0: not in it; 1 - reason. */
struct disk_fallback_set {
    int reasons[NUM_DISK_FALLBACKS];
};

/* @reason is a negative errno, or 0 if the fallback was asked for. */
void disk_fallback_enter(struct disk_fallback_set *set, enum disk_fallback which, int reason);
size_t disk_fallback_list(const struct disk_fallback_set *set, struct gpu_fallback *out,
                          size_t max);
