/* daemon/tier_stats.h - the numbers of all tiers, in one place for stats, status and people. */
#pragma once

#include "daemon/stats.h"
#include "pool/pool.h"

#include <stdint.h>

struct server;
struct text;

/* Of one tier; of one that is not there all 0, and its mode is POOL_TIER_OFF. */
struct tier_numbers {
    uint64_t mode; /* enum pool_tier_mode */
    uint64_t budget_bytes, charged_bytes, idle_bytes;
    uint64_t free, held, evictable, reserved, quarantined; /* slots */
    uint64_t stores_started, stores_done, stores_failed, storing_bytes;
    uint64_t fetches_started, fetches_done, fetches_failed;
    uint64_t hit_tokens, evictions, coldest_age_ms;
    uint64_t skipped[POOL_NUM_SKIPS];
    uint64_t stored_bytes, fetched_bytes, stores_late, granules_failed;
    uint64_t stored_percent; /* bytes stored for 100 fetched; none counts as one */
};

struct disk_numbers {
    uint64_t phase, state, physical_bytes, max_bytes, used_granules, largest_free_run_bytes;
    uint64_t queued_bytes, num_queued, num_in_kernel, num_quarantined, free_buffers;
    uint64_t writes, written_bytes, reads, read_bytes, erases, header_writes;
    uint64_t write_failures, read_failures, corrupt, timeouts, cancelled, busy, refused;
    uint64_t probes, state_changes;
    uint64_t restored_blocks, restored_granules, dropped_blocks, foreign_granules;
    uint64_t scanned, to_scan;
};

struct host_numbers {
    uint64_t pinned_bytes, num_nodes, pin_failures, pool_pinned_bytes;
};

struct payer_tier_numbers {
    uint64_t host_evictable, host_charged_pages, disk_evictable, disk_charged_pages;
};

struct tier_stats {
    struct tier_numbers tiers[POOL_NUM_TIERS];
    struct disk_numbers disk;
    struct host_numbers host;
    struct payer_tier_numbers *payers; /* [max_payers] */
};

/* Whose base is a struct tier_stats; and those of payers: its @payers. */
extern const struct stats_row tier_rows[];
extern const size_t num_tier_rows;
extern const struct stats_row payer_tier_rows[];
extern const size_t num_payer_tier_rows;

int tier_stats_init(struct server *server);
void tier_stats_finish(struct server *server);

/* Before stats_take(). */
void tier_stats_take(struct server *server);

/* Fallbacks of the host and the disk that there are by now become the daemon's. */
void tier_stats_fallbacks(struct server *server);

/* "tiers":[{...}] of an operator's status. */
void tier_stats_json(struct server *server, struct text *out);
