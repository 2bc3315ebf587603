/*
 * daemon/stats.h - every number that the daemon shows, taken by the owner, read by whoever asks.
 *
 * The owner thread takes snapshots; the HTTP thread (one) borrows the latest one without a lock, so
 * neither waits for the other. Numbers come from the pool, the device, and the tables of counters
 * that the daemon gives here: add a row there, and it is in /metrics, /stats.json, the snapshots of
 * the stats socket and the Stats verb.
 */
#pragma once

#include "pool/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_device;
struct stats;
struct text;

enum stats_kind { STATS_COUNTER, STATS_GAUGE };

/*
 * One number: a uint64_t at @offset of the table's base, changed by the owner thread only. Names
 * are [a-z0-9_]+ with no prefix and no _total ("requests"); rows of one name are neighbours, and
 * differ in the value of their @label ("verb", "match"), NULL for none.
 */
struct stats_row {
    const char *name, *help;
    enum stats_kind kind;
    size_t offset;
    const char *label, *value;
};

/* Of a payer table, payer p's numbers begin at @base + p * @stride. */
struct stats_table {
    const struct stats_row *rows;
    size_t num_rows;
    const void *base;
    size_t stride;
};

enum {
    STATS_MAX_TABLES = 8,
    STATS_MAX_FALLBACKS = 32,
    STATS_MAX_LABELS = 256,
    STATS_MAX_NUMBERS = 1024 /* of all tables together */
};

struct stats_options {
    const struct pool *pool;
    const struct gpu_device *device;             /* or NULL */
    struct stats_table tables[STATS_MAX_TABLES]; /* ends with one without rows */
    struct stats_table payer_tables[STATS_MAX_TABLES];
    uint32_t max_payers; /* as the pool's */
    uint32_t num_labels; /* payers with labels of their own, first come; the rest are `other` */
    char boot_id[40];
    const char *version;
    /* Blocks of @sufferer that @causer evicted, or NULL if the pool does not say. */
    uint64_t (*evictions)(const struct pool *pool, pool_payer causer, pool_payer sufferer);
};

/* -EINVAL: a row's name, help or order is against the rules above. -ENOMEM. */
int stats_create(const struct stats_options *options, struct stats **out_stats);
void stats_destroy(struct stats *stats); /* takes NULL */

/* ---- the owner thread ---- */

/* A tenant or domain that exists from now on. @name: 1 to 64 printable bytes, copied. */
int stats_add_payer(struct stats *stats, pool_payer payer, const char *name, bool is_domain);

/* A way in which the daemon (not the device: asked by itself) is less than it should be. Once each.
 */
int stats_add_fallback(struct stats *stats, const char *name, const char *cost, int reason);

/* It is over. One that was not there is no mistake. */
void stats_drop_fallback(struct stats *stats, const char *name);

/* The device's and the daemon's own. Strict daemons refuse to start unless it is 0. */
struct gpu_fallback;
size_t stats_fallbacks(const struct stats *stats, struct gpu_fallback *out, size_t max);

enum stats_state {
    STATS_STARTING,   /* not ready */
    STATS_RECOVERING, /* ready: verbs are answered, and find more and more of what was cached */
    STATS_READY,
    STATS_DRAINING, /* not ready: no new sequences */
    STATS_STOPPING  /* not ready */
};
void stats_set_state(struct stats *stats, enum stats_state state); /* seen with the next snapshot */

/* Takes a snapshot. @now_ms: CLOCK_MONOTONIC. No allocation, no lock. */
void stats_take(struct stats *stats, uint64_t now_ms);

/* Snapshots taken so far. */
uint64_t stats_number(const struct stats *stats);

/* Bytes that hold any of the texts below, as long as the process lives. */
size_t stats_max_text(const struct stats *stats);

/* The latest snapshot as JSON: the stats socket, and an operator's Stats verb. */
void stats_json(const struct stats *stats, struct text *out);
/* What a tenant's session may see: its own payer, from the pool as it is now. */
void stats_payer_json(const struct stats *stats, pool_payer payer, struct text *out);

/* ---- one other thread ---- */

struct stats_snapshot;

/* The latest snapshot, the same until the next call. NULL: none was taken yet. */
const struct stats_snapshot *stats_borrow(struct stats *stats);
uint64_t stats_snapshot_ms(const struct stats_snapshot *snapshot);
enum stats_state stats_snapshot_state(const struct stats_snapshot *snapshot);
void stats_snapshot_json(const struct stats *stats, const struct stats_snapshot *snapshot,
                         struct text *out);
/* Prometheus text 0.0.4, or OpenMetrics 1.0 (family names without _total, # EOF). */
void stats_snapshot_metrics(const struct stats *stats, const struct stats_snapshot *snapshot,
                            bool is_openmetrics, struct text *out);
