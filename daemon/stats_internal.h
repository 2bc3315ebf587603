/* daemon/stats_internal.h - internal to stats: what a snapshot is, for those who write it out. */
#pragma once

#include "daemon/stats.h"
#include "gpu/gpu.h"

#include <stdatomic.h>

enum {
    STATS_NAME = 80,        /* bytes of a composed name */
    STATS_PAYER_NAME = 64,  /* of a payer's */
    STATS_NUM_SNAPSHOTS = 3 /* the owner's, the reader's, and the one in between */
};

/* One number of the snapshot, whichever table it comes from. */
struct stats_number {
    char name[STATS_NAME]; /* "pool_held" */
    const char *help;
    enum stats_kind kind;
    const char *label, *value; /* NULL: none */
};

struct stats_payer {
    char name[STATS_PAYER_NAME + 1];
    pool_payer payer;
    bool is_domain;
};

/*
 * Lines of payers: one for each of the first num_labels, in the order in which they came, then one
 * for all others together. A payer never changes its line, so counters never run backwards.
 */
struct stats_snapshot {
    uint64_t number, taken_ms, first_ms;
    enum stats_state state;
    size_t num_payers; /* with labels, at this moment */
    size_t num_others; /* summed up in the last line */
    struct gpu_fallback fallbacks[STATS_MAX_FALLBACKS];
    size_t num_fallbacks;
    uint64_t *numbers;   /* [num_numbers] */
    uint64_t *payers;    /* [num_labels + 1][num_payer_numbers] */
    uint64_t *evictions; /* [num_labels + 1: causer][num_labels + 1: sufferer]; or NULL */
};

struct stats {
    struct stats_options options;
    struct stats_number numbers[STATS_MAX_NUMBERS];
    size_t num_numbers, num_pool_numbers, num_device_numbers;
    struct stats_number payer_numbers[STATS_MAX_NUMBERS];
    size_t num_payer_numbers;
    struct stats_payer *payers; /* [max_payers]; those of a snapshot never change */
    size_t num_payers;
    struct gpu_fallback fallbacks[STATS_MAX_FALLBACKS]; /* the daemon's own */
    size_t num_fallbacks;
    enum stats_state state;

    struct stats_snapshot snapshots[STATS_NUM_SNAPSHOTS];
    unsigned writing; /* the owner's */
    unsigned latest;  /* the owner reads it too: nobody else writes snapshots */
    unsigned reading; /* the other thread's */
    uint64_t num_taken;
    /* Owner to reader: a snapshot, and whether it is one that the reader had not. */
    _Atomic unsigned between;
};

enum { STATS_IS_NEW = 4 }; /* beside the index in `between` */

static inline uint64_t *stats_payer_line(const struct stats *stats,
                                         const struct stats_snapshot *snapshot, size_t line)
{
    return &snapshot->payers[line * stats->num_payer_numbers];
}

/* Of the payer itself, as the pool has it now: [num_payer_numbers]. */
void stats_payer_fill(const struct stats *stats, pool_payer payer, uint64_t *out);

/* "chat", or "other" for the last line. */
const char *stats_line_name(const struct stats *stats, size_t line);
const char *stats_state_name(enum stats_state state);
