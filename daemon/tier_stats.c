/* daemon/tier_stats.c - which numbers the tiers have, and how they are taken. */
#include "daemon/tier_stats.h"

#include "daemon/server.h"
#include "daemon/text.h"
#include "offload/host.h"

#include <errno.h>
#include <stdlib.h>

static const uint64_t MAX_PERCENT = UINT64_C(1000000000000000000); /* any double below it fits */

/* clang-format off */
#define OF(tier, field) offsetof(struct tier_stats, tiers[tier].field)
#define EACH(name, help, kind, field) \
    {name, help, kind, OF(POOL_TIER_DEVICE, field), "tier", "device"}, \
    {name, help, kind, OF(POOL_TIER_HOST, field),   "tier", "host"}, \
    {name, help, kind, OF(POOL_TIER_DISK, field),   "tier", "disk"}
#define GAUGE(name, help, field) EACH(name, help, STATS_GAUGE, field)
#define COUNT(name, help, field) EACH(name, help, STATS_COUNTER, field)
#define DISK_GAUGE(name, help, field) {name, help, STATS_GAUGE, offsetof(struct tier_stats, disk.field), NULL, NULL}
#define DISK_COUNT(name, help, field) {name, help, STATS_COUNTER, offsetof(struct tier_stats, disk.field), NULL, NULL}
#define HOST(name, help, kind, field) {name, help, kind, offsetof(struct tier_stats, host.field), NULL, NULL}
const struct stats_row tier_rows[] = {
    GAUGE("tier_mode",             "0: on, 1: nothing more is stored there, 2: off", mode),
    GAUGE("tier_budget_bytes",     "ceiling of its granules", budget_bytes),
    GAUGE("tier_charged_bytes",    "granules that have memory", charged_bytes),
    GAUGE("tier_idle_bytes",       "of them, without a block", idle_bytes),
    GAUGE("tier_free",             "free slots of its granules", free),
    GAUGE("tier_held",             "blocks that somebody holds", held),
    GAUGE("tier_evictable",        "cached blocks that nobody holds", evictable),
    GAUGE("tier_reserved",         "slots being filled", reserved),
    GAUGE("tier_quarantined",      "slots that somebody outside may still touch", quarantined),
    GAUGE("tier_storing_bytes",    "being stored there", storing_bytes),
    COUNT("tier_stores_started",   "copies to it from above that began", stores_started),
    COUNT("tier_stores",           "of them, complete", stores_done),
    COUNT("tier_stores_failed",    "of them, failed", stores_failed),
    COUNT("tier_stores_late",      "of them, for which there was no room in its queue in time", stores_late),
    COUNT("tier_fetches_started",  "copies from it to the device that began", fetches_started),
    COUNT("tier_fetches",          "of them, complete", fetches_done),
    COUNT("tier_fetches_failed",   "of them, failed: their blocks are dropped", fetches_failed),
    COUNT("tier_hit_tokens",       "tokens of allocations found there and nowhere above; the sum is pool_hit_tokens", hit_tokens),
    GAUGE("tier_coldest_age_ms",   "at most so long ago its coldest block was used; 0: none is cached", coldest_age_ms),
    COUNT("tier_evictions",        "blocks evicted from it", evictions),
    COUNT("tier_skipped_off",      "of them, without a copy below: no tier there was on", skipped[POOL_SKIP_OFF]),
    COUNT("tier_skipped_busy",     "of them, without a copy below: too much was being stored", skipped[POOL_SKIP_BUSY]),
    COUNT("tier_skipped_rate",     "of them, without a copy below: store-rate", skipped[POOL_SKIP_RATE]),
    COUNT("tier_skipped_full",     "of them, without a copy below: no slot could be had there", skipped[POOL_SKIP_FULL]),
    COUNT("tier_skipped_late",     "of them, without a copy below: evicted before its turn came", skipped[POOL_SKIP_LATE]),
    COUNT("tier_stored_bytes",     "bytes of blocks stored there", stored_bytes),
    COUNT("tier_fetched_bytes",    "bytes of blocks fetched from it", fetched_bytes),
    GAUGE("tier_stored_percent",   "bytes stored for 100 that were fetched; while none were, one counts as fetched: high is waste, 0: none were stored", stored_percent),
    COUNT("tier_granules_failed",  "granules that could not be had", granules_failed),

    DISK_GAUGE("disk_phase",       "0: there is none, 1: opening, 2: headers are being read, 3: ready", phase),
    DISK_GAUGE("disk_state",       "0: ok, 1: full, 2: read-only, 3: failing", state),
    DISK_GAUGE("disk_physical_bytes", "that the disk tier takes", physical_bytes),
    DISK_GAUGE("disk_max_bytes",   "that it may take", max_bytes),
    DISK_GAUGE("disk_used_granules", "granules with blocks", used_granules),
    DISK_GAUGE("disk_largest_free_run_bytes", "free granules in a row", largest_free_run_bytes),
    DISK_GAUGE("disk_queued_bytes", "writes that are not over", queued_bytes),
    DISK_GAUGE("disk_queued",      "operations that are not over", num_queued),
    DISK_GAUGE("disk_in_kernel",   "reads and writes that the kernel has", num_in_kernel),
    DISK_GAUGE("disk_quarantined", "operations that were given up and may still end", num_quarantined),
    DISK_GAUGE("disk_free_buffers", "buffers that nothing uses", free_buffers),
    DISK_COUNT("disk_writes",      "blocks written", writes),
    DISK_COUNT("disk_written_bytes", "bytes of them", written_bytes),
    DISK_COUNT("disk_reads",       "blocks read and verified", reads),
    DISK_COUNT("disk_read_bytes",  "bytes of them", read_bytes),
    DISK_COUNT("disk_erases",      "blocks erased", erases),
    DISK_COUNT("disk_header_writes", "writes of headers: one has many", header_writes),
    DISK_COUNT("disk_write_failures", "writes that failed", write_failures),
    DISK_COUNT("disk_read_failures", "reads that failed", read_failures),
    DISK_COUNT("disk_corrupt",     "reads of what is not what was written: misses", corrupt),
    DISK_COUNT("disk_timeouts",    "operations that took longer than disk-deadline", timeouts),
    DISK_COUNT("disk_cancelled",   "operations that were cancelled", cancelled),
    DISK_COUNT("disk_busy",        "operations that found no room in the queue, and were tried again", busy),
    DISK_COUNT("disk_refused",     "operations refused in a state that is not ok", refused),
    DISK_COUNT("disk_probes",      "tries whether it is well again", probes),
    DISK_COUNT("disk_state_changes", "changes of its state", state_changes),
    DISK_GAUGE("disk_restored_blocks", "blocks of an earlier life that are known again", restored_blocks),
    DISK_GAUGE("disk_restored_granules", "granules of an earlier life in use again", restored_granules),
    DISK_GAUGE("disk_dropped_blocks", "blocks of an earlier life that were cleared, or are there twice", dropped_blocks),
    DISK_GAUGE("disk_foreign_granules", "granules of domains or models that are no more", foreign_granules),
    DISK_GAUGE("disk_scanned",     "headers of an earlier life that were read", scanned),
    DISK_GAUGE("disk_to_scan",     "headers of an earlier life", to_scan),

    HOST("host_pinned_bytes",      "of the host tier, pinned", STATS_GAUGE, pinned_bytes),
    HOST("host_nodes",             "NUMA nodes that it is interleaved over", STATS_GAUGE, num_nodes),
    HOST("pool_pinned_bytes",      "of the pool, pinned", STATS_GAUGE, pool_pinned_bytes),
    HOST("host_pin_failures",      "times that the system did not let it be pinned", STATS_COUNTER, pin_failures),
};
#define PAYER(name, help, field) {name, help, STATS_GAUGE, offsetof(struct payer_tier_numbers, field), NULL, NULL}
const struct stats_row payer_tier_rows[] = {
    PAYER("payer_host_evictable",     "its blocks in the host tier", host_evictable),
    PAYER("payer_host_charged_pages", "pages of its granules in the host tier", host_charged_pages),
    PAYER("payer_disk_evictable",     "its blocks on disk", disk_evictable),
    PAYER("payer_disk_charged_pages", "its granules on disk", disk_charged_pages),
};
/* clang-format on */
const size_t num_tier_rows = ARRAY_SIZE(tier_rows);
const size_t num_payer_tier_rows = ARRAY_SIZE(payer_tier_rows);

int tier_stats_init(struct server *server)
{
    server->tier_stats.payers =
        calloc(server->config->max_payers, sizeof(*server->tier_stats.payers));
    return server->tier_stats.payers ? 0 : -ENOMEM;
}

void tier_stats_finish(struct server *server)
{
    free(server->tier_stats.payers);
}

/* ---- taking --------------------------------------------------------------------------------- */

static uint64_t page_bytes(const struct server *server, enum pool_tier tier)
{
    return tier == POOL_TIER_DISK ? server->config->disk_granule_bytes : server->config->page_bytes;
}

/* What is stored and never read back is what this is to tell of: nothing fetched is no small number
 * of it, but as large a one as there is. */
static uint64_t stored_percent(const struct lower_counters *counters)
{
    double fetched = counters->fetched_bytes > 0 ? (double)counters->fetched_bytes : 1;
    double percent = (double)counters->stored_bytes * 100 / fetched;

    return percent < MAX_PERCENT ? (uint64_t)percent : MAX_PERCENT;
}

static void take_tier(struct server *server, enum pool_tier tier)
{
    struct tier_numbers *out = &server->tier_stats.tiers[tier];
    const struct lower_counters *counters = &server->tiers.counters[tier];
    uint64_t page = page_bytes(server, tier);
    struct pool_tier_stats stats;

    *out = (struct tier_numbers){.mode = POOL_TIER_OFF};
    if (pool_tier_stats(server->pool, tier, &stats))
        return;
    *out = (struct tier_numbers){.mode = stats.mode,
                                 .budget_bytes = stats.pages * page,
                                 .charged_bytes = (stats.pages - stats.uncommitted) * page,
                                 .idle_bytes = stats.idle * page,
                                 .free = stats.free,
                                 .held = stats.held,
                                 .evictable = stats.evictable,
                                 .reserved = stats.reserved,
                                 .quarantined = stats.quarantined,
                                 .stores_started = stats.stores_started,
                                 .stores_done = stats.stores_done,
                                 .stores_failed = stats.stores_failed,
                                 .storing_bytes = stats.store_bytes,
                                 .fetches_started = stats.promotions_started,
                                 .fetches_done = stats.promotions_done,
                                 .fetches_failed = stats.promotions_failed,
                                 .hit_tokens = stats.hit_tokens,
                                 .evictions = stats.evictions,
                                 .coldest_age_ms = stats.coldest_age_ms,
                                 .stored_bytes = counters->stored_bytes,
                                 .fetched_bytes = counters->fetched_bytes,
                                 .stored_percent = stored_percent(counters),
                                 .stores_late = counters->stores_late,
                                 .granules_failed = counters->failed_commits};
    memcpy(out->skipped, stats.skipped, sizeof(out->skipped));
}

static void take_disk(struct server *server)
{
    const struct tier_disk *tier = &server->tiers.disk;
    struct disk_numbers *out = &server->tier_stats.disk;
    struct disk_stats stats = {0};

    if (tier->disk)
        disk_stats(tier->disk, &stats);
    *out = (struct disk_numbers){.phase = tier->phase,
                                 .state = tier->state, /* as the pool was told */
                                 .physical_bytes = stats.physical_bytes,
                                 .max_bytes = stats.max_bytes,
                                 .used_granules = stats.used_granules,
                                 .largest_free_run_bytes = tier_disk_largest_run(tier) *
                                                           page_bytes(server, POOL_TIER_DISK),
                                 .queued_bytes = stats.queued_bytes,
                                 .num_queued = stats.num_queued,
                                 .num_in_kernel = stats.num_in_kernel,
                                 .num_quarantined = stats.num_quarantined,
                                 .free_buffers = stats.free_buffers,
                                 .writes = stats.writes,
                                 .written_bytes = stats.written_bytes,
                                 .reads = stats.reads,
                                 .read_bytes = stats.read_bytes,
                                 .erases = stats.erases,
                                 .header_writes = stats.header_writes,
                                 .write_failures = stats.write_failures,
                                 .read_failures = stats.read_failures,
                                 .corrupt = stats.corrupt,
                                 .timeouts = stats.timeouts,
                                 .cancelled = stats.cancelled,
                                 .busy = stats.busy,
                                 .refused = stats.refused,
                                 .probes = stats.probes,
                                 .state_changes = stats.state_changes,
                                 .restored_blocks = tier->recovery.restored_blocks,
                                 .restored_granules = tier->recovery.restored_granules,
                                 .dropped_blocks = tier->recovery.dropped_blocks,
                                 .foreign_granules = tier->recovery.foreign_granules,
                                 .scanned = tier->recovery.scanned,
                                 .to_scan = tier->recovery.to_scan};
}

static void take_payer(struct server *server, pool_payer payer)
{
    struct payer_tier_numbers *out = &server->tier_stats.payers[payer];
    struct pool_payer_tier_stats stats;

    *out = (struct payer_tier_numbers){0};
    if (pool_payer_tier_stats(server->pool, payer, POOL_TIER_HOST, &stats) == 0) {
        out->host_evictable = stats.evictable;
        out->host_charged_pages = stats.charged_pages;
    }
    if (pool_payer_tier_stats(server->pool, payer, POOL_TIER_DISK, &stats) == 0) {
        out->disk_evictable = stats.evictable;
        out->disk_charged_pages = stats.charged_pages;
    }
}

static void take_pinned(struct server *server)
{
    struct host_numbers *out = &server->tier_stats.host;
    struct host_tier_stats stats;

    *out = (struct host_numbers){0};
    if (server->pinned) {
        host_tier_stats(server->pinned, &stats);
        out->pool_pinned_bytes = stats.pinned_bytes;
        out->num_nodes = stats.num_nodes;
        out->pin_failures = stats.pin_refusals;
    }
    if (server->tiers.host) {
        host_tier_stats(server->tiers.host, &stats);
        out->pinned_bytes = stats.pinned_bytes;
        out->num_nodes = stats.num_nodes;
        out->pin_failures += stats.pin_refusals;
    }
}

void tier_stats_take(struct server *server)
{
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
        take_tier(server, tier);
    take_disk(server);
    take_pinned(server);
    for (pool_payer payer = 0; server->tiers.is_on && payer < server->tenants.count; payer++)
        take_payer(server, payer);
    tier_stats_fallbacks(server);
}

/* ---- fallbacks ------------------------------------------------------------------------------ */

void tier_stats_fallbacks(struct server *server)
{
    struct gpu_fallback found[16];
    size_t count = 0;

    if (server->tiers.disk.disk)
        count = disk_fallbacks(server->tiers.disk.disk, found, ARRAY_SIZE(found));
    if (server->tiers.host && count < ARRAY_SIZE(found))
        count += host_tier_fallbacks(server->tiers.host, &found[count], ARRAY_SIZE(found) - count);
    if (server->pinned && count < ARRAY_SIZE(found))
        count += host_tier_fallbacks(server->pinned, &found[count], ARRAY_SIZE(found) - count);
    for (size_t at = 0; at < count && at < ARRAY_SIZE(found); at++)
        (void)stats_add_fallback(server->stats, found[at].name, found[at].cost, found[at].reason);
}

/* ---- for people ----------------------------------------------------------------------------- */

static void add_tier(const struct server *server, enum pool_tier tier, struct text *out)
{
    static const char *const names[] = {"device", "host", "disk"};
    static const char *const modes[] = {"on", "read-only", "off"};
    const struct tier_numbers *numbers = &server->tier_stats.tiers[tier];

    text_printf(out, "{\"name\":\"%s\",\"mode\":\"%s\"", names[tier], modes[numbers->mode]);
    text_printf(out, ",\"budget_bytes\":%lu,\"charged_bytes\":%lu,\"idle_bytes\":%lu",
                numbers->budget_bytes, numbers->charged_bytes, numbers->idle_bytes);
    text_printf(out, ",\"evictable\":%lu,\"free\":%lu,\"held\":%lu,\"reserved\":%lu",
                numbers->evictable, numbers->free, numbers->held, numbers->reserved);
    text_printf(out, ",\"hit_tokens\":%lu,\"stores\":%lu,\"fetches\":%lu", numbers->hit_tokens,
                numbers->stores_done, numbers->fetches_done);
    text_printf(out, ",\"stored_bytes\":%lu,\"fetched_bytes\":%lu,\"storing_bytes\":%lu",
                numbers->stored_bytes, numbers->fetched_bytes, numbers->storing_bytes);
    text_printf(out, ",\"failed\":%lu,\"coldest_age_ms\":%lu,\"stored_percent\":%lu",
                numbers->stores_failed + numbers->fetches_failed, numbers->coldest_age_ms,
                numbers->stored_percent);
    text_printf(out,
                ",\"skipped\":{\"off\":%lu,\"busy\":%lu,\"rate\":%lu,\"full\":%lu,\"late\":%lu}",
                numbers->skipped[POOL_SKIP_OFF], numbers->skipped[POOL_SKIP_BUSY],
                numbers->skipped[POOL_SKIP_RATE], numbers->skipped[POOL_SKIP_FULL],
                numbers->skipped[POOL_SKIP_LATE]);
    if (tier == POOL_TIER_DISK) {
        const struct disk_numbers *disk = &server->tier_stats.disk;
        text_printf(out, ",\"phase\":\"%s\",\"state\":\"%s\",\"queued\":%lu",
                    tier_disk_phase_name(server->tiers.disk.phase),
                    disk_state_name((enum disk_state)disk->state), disk->num_queued);
        text_printf(out, ",\"physical_bytes\":%lu,\"largest_free_run_bytes\":%lu",
                    disk->physical_bytes, disk->largest_free_run_bytes);
        text_printf(out, ",\"scanned\":%lu,\"to_scan\":%lu,\"restored_blocks\":%lu", disk->scanned,
                    disk->to_scan, disk->restored_blocks);
    }
    text_add(out, "}");
}

void tier_stats_json(struct server *server, struct text *out)
{
    bool is_first = true;

    tier_stats_take(server);
    text_add(out, "\"tiers\":[");
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        bool is_there = tier == POOL_TIER_DEVICE ||
                        (tier == POOL_TIER_HOST && server->tiers.host) ||
                        (tier == POOL_TIER_DISK && server->tiers.disk.num_granules > 0);
        if (!is_there)
            continue;
        text_add(out, is_first ? "" : ",\n");
        add_tier(server, tier, out);
        is_first = false;
    }
    text_add(out, "]");
}
