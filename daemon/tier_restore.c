/* daemon/tier_restore.c - granules and blocks of an earlier life are told to the pool. */
#include "daemon/tier_restore.h"

#include "daemon/log.h"
#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>

enum {
    OWNER_VERSION = 1,
    RUN_BLOCKS = 512, /* in one pass of the loop: about a millisecond */
    BATCH = 64
};

/* Beside a granule of the disk. */
struct owner {
    uint32_t version;
    uint32_t block_bytes;
    struct record_place place;
};
_Static_assert(sizeof(struct owner) == 80, "the layout is the format");
_Static_assert(sizeof(struct owner) <= DISK_MAX_OWNER_BYTES, "it is kept beside a granule");

static void owner_make(const struct lower_arena *arena, struct owner *out)
{
    memset(out, 0, sizeof(*out));
    out->version = OWNER_VERSION;
    out->block_bytes = (uint32_t)arena->block_bytes;
    out->place = arena->place;
}

size_t tier_restore_owner(const struct lower_arena *arena, uint8_t out[DISK_MAX_OWNER_BYTES])
{
    struct owner owner;

    owner_make(arena, &owner);
    memcpy(out, &owner, sizeof(owner));
    return sizeof(owner);
}

/* ---- granules ------------------------------------------------------------------------------- */

/* Whose a granule is. False: nobody's whom this daemon knows, or of another form. */
static bool owner_find(struct server *server, const struct owner *owner, uint32_t *out_number)
{
    struct owner other;

    if (!lower_find(server, &owner->place, POOL_TIER_DISK, out_number))
        return false;
    const struct lower_arena *arena = lower_arena(server, *out_number);
    if (!arena) {
        log_event(LOG_WARN, "disk_arena_failed", log_number("arena", *out_number),
                  log_text("problem", "no memory for its tables: its blocks are given up"));
        return false;
    }
    owner_make(arena, &other);
    return memcmp(&other, owner, sizeof(other)) == 0;
}

static bool claim(struct server *server, uint32_t number, uint32_t disk_granule)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct lower_arena *arena = &server->tiers.arenas[number];

    for (uint32_t granule = arena->next_claim; granule < arena->max_granules; granule++) {
        struct lower_granule *state = &arena->granules[granule];
        arena->next_claim = granule + 1;
        if (state->is_wanted || state->memory != MEMORY_NONE)
            continue;
        if (pool_restore_granule(server->pool, number, granule) != 0)
            return false;
        state->is_wanted = true;
        state->memory = MEMORY_THERE;
        state->number = disk_granule;
        tier->restored[disk_granule] = (struct restored_granule){true, number, granule};
        tier->recovery.restored_granules++;
        return true;
    }
    return false;
}

/* Granules of one owner lie in a row, mostly: the last answer is kept. */
struct last_owner {
    bool is_set, is_known;
    struct owner owner;
    uint32_t number;
};

static void granule_take(struct server *server, uint32_t granule,
                         const struct disk_granule *described, struct last_owner *last)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct owner owner = {0};

    if (described->owner_bytes == sizeof(owner))
        memcpy(&owner, described->owner, sizeof(owner));
    if (!last->is_set || memcmp(&last->owner, &owner, sizeof(owner)) != 0) {
        last->is_set = true;
        last->owner = owner;
        last->is_known =
            owner.version == OWNER_VERSION && owner_find(server, &owner, &last->number);
    }
    bool fits = last->is_known &&
                described->stride_bytes == server->tiers.arenas[last->number].stride_bytes;
    if (fits && claim(server, last->number, granule))
        return;
    tier->recovery.foreign_granules++;
    if (disk_granule_free(tier->disk, granule,
                          (uint64_t)TIER_COOKIE_FOREIGN << TIER_COOKIE_SHIFT | granule) != 0)
        log_event(LOG_WARN, "disk_granule_lost", log_number("granule", granule));
}

/* @num_unread headers, or all of them, could not be read: @problem. Their slots are free. */
static void recovery_end(struct server *server, uint64_t num_unread, int problem)
{
    struct tier_disk *tier = &server->tiers.disk;

    for (uint32_t granule = 0; granule < tier->num_granules; granule++) {
        const struct restored_granule *in = &tier->restored[granule];
        if (in->is_claimed)
            (void)pool_restore_end(server->pool, in->arena, in->granule);
    }
    tier_restore_finish(server);
    tier->phase = TIER_DISK_READY;
    tier->recovered_ms = server->now_ms;
    server->has_more = true;
    log_event(problem ? LOG_WARN : LOG_NOTICE, "disk_recovered",
              log_number("blocks", tier->recovery.restored_blocks),
              log_number("dropped", tier->recovery.dropped_blocks),
              log_number("foreign_granules", tier->recovery.foreign_granules),
              log_number("unread_headers", num_unread), log_error("error", problem),
              log_number("ms", server->now_ms - tier->opened_ms));
}

int tier_restore_init(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;

    tier->restored = calloc(tier->num_granules, sizeof(*tier->restored));
    return tier->restored ? 0 : -ENOMEM;
}

void tier_restore_begin(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct last_owner last = {0};
    struct disk_scan progress;
    int err = 0;

    for (uint32_t granule = 0; granule < tier->num_granules; granule++) {
        struct disk_granule described;
        if (disk_granule_describe(tier->disk, granule, &described) == 0 && described.is_used)
            granule_take(server, granule, &described, &last);
    }
    tier->phase = TIER_DISK_RECOVERING;
    bool is_any = tier->recovery.restored_granules > 0; /* else it is new, or one of others */
    if (is_any)
        err = disk_scan_start(tier->disk);
    if (is_any && !err)
        return;
    disk_scan_progress(tier->disk, &progress);
    recovery_end(server, progress.num_headers, err);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static bool block_restore(struct server *server, const struct disk_found *found)
{
    const struct restored_granule *in = &server->tiers.disk.restored[found->slot.granule];
    const struct lower_arena *arena;
    struct record_place place;
    struct lower_restored kept;
    struct pool_restored restored;

    if (!in->is_claimed ||
        record_unpack(found->record, found->record_bytes, &place, &kept.record) != 0)
        return false;
    arena = &server->tiers.arenas[in->arena];
    if (memcmp(&place, &arena->place, sizeof(place)) != 0 || found->bytes != arena->block_bytes ||
        kept.record.epoch != state_epoch(server, arena->domain, arena->model))
        return false;
    lower_restored(&kept, in->granule * arena->slots + found->slot.index + 1, &restored);
    return pool_restore_block(server->pool, in->arena, &restored) == 0;
}

size_t tier_restore_run(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk_found found[BATCH];
    struct disk_slot unwanted[BATCH];
    struct disk_scan progress;
    /* What was stored ahead of evictions was stored from its end on: its start is to be hotter. */
    bool is_backwards = server->config->store_when != POOL_STORE_AT_ONCE;
    size_t count, total = 0;

    while (total < RUN_BLOCKS && (count = disk_scan_reap(tier->disk, found, BATCH)) > 0) {
        size_t num_unwanted = 0;
        for (size_t at = 0; at < count; at++) {
            const struct disk_found *next = &found[is_backwards ? count - 1 - at : at];
            if (block_restore(server, next))
                tier->recovery.restored_blocks++;
            else
                unwanted[num_unwanted++] = next->slot;
        }
        if (num_unwanted > 0)
            disk_erase(tier->disk, unwanted, num_unwanted);
        tier->recovery.dropped_blocks += num_unwanted;
        total += count;
    }
    disk_scan_progress(tier->disk, &progress);
    tier->recovery.scanned = progress.num_read;
    tier->recovery.to_scan = progress.num_headers;
    uint64_t num_unread = progress.num_headers - progress.num_read + progress.num_unreadable;
    if (progress.is_over)
        recovery_end(server, num_unread, num_unread > 0 ? progress.status : 0);
    return total;
}

void tier_restore_finish(struct server *server)
{
    free(server->tiers.disk.restored);
    server->tiers.disk.restored = NULL;
}
