/* daemon/survive.c - arenas are handed to the keeper, and taken back from it. */
#include "daemon/survive.h"

#include "daemon/hold.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "daemon/tier_host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum { ITEMS_OF_ARENA = 3 };

static void keep_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    keep_run(server->survival.keep, server->now_ms);
}

/* What was not whole when an earlier daemon ended is no problem. */
static void kept_take(struct survival *survival)
{
    (void)kept_sort(survival->keep, &survival->kept); /* without any of it, then */
    int problem = survival->kept.problem;

    if (survival->kept.num_dropped > 0)
        log_event(problem ? LOG_WARN : LOG_NOTICE, "memory_dropped",
                  log_number("items", survival->kept.num_dropped),
                  log_text("why", problem ? "what its keeper had cannot be read"
                                          : "its keeper did not have all of it"),
                  log_error("error", problem));
}

static int keep_begin(struct server *server)
{
    struct survival *survival = &server->survival;
    const struct config *config = server->config;
    /* Those of before, and ours. */
    uint64_t max_items = (uint64_t)ITEMS_OF_ARENA * 2 * lower_max_arenas(config) + POOL_NUM_TIERS;

    if (max_items > HOLD_MAX_ITEMS)
        max_items = HOLD_MAX_ITEMS; /* what is beyond is not kept, and counted */
    const struct keep_options options = {.kind = (enum keep_kind)config->keep,
                                         .directory = config->state_directory,
                                         .limit_ms = config->keep_ms,
                                         .max_items = (uint32_t)max_items};

    survival->arenas = calloc(survival->num_arenas, sizeof(*survival->arenas));
    if (!survival->arenas)
        return -ENOMEM;
    int err = keep_create(&options, &survival->keep);
    if (err)
        return err;
    kept_take(survival);
    survival->source = (struct source){.fd = keep_event_fd(survival->keep), .ready = keep_ready};
    return survival->source.fd < 0 ? 0 : source_add(server, &survival->source, EPOLLIN);
}

/* A start that is refused leaves what is kept as it is, to the next one. */
int survive_init(struct server *server)
{
    struct survival *survival = &server->survival;
    const struct config *config = server->config;

    survival->source.fd = -1;
    survival->num_arenas = survival->first_spare = lower_max_arenas(config);
    if (config->keep == KEEP_NONE)
        return 0;
    int err = keep_begin(server);
    if (err)
        log_event(LOG_ERROR, "keep_failed", log_text("state_directory", config->state_directory),
                  log_text("problem", err == -EBUSY ? "another kvpoold has what is kept there"
                                                    : "its keeper's tables cannot be made"),
                  log_error("error", err));
    return err;
}

void survive_finish(struct server *server)
{
    struct survival *survival = &server->survival;

    source_remove(server, &survival->source);
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
        adopt_destroy(survival->adopts[tier]);
    if (survival->keep)
        kept_finish(&survival->kept);
    for (uint32_t at = 0; survival->arenas && at < survival->num_arenas; at++)
        records_destroy(survival->arenas[at].records);
    free(survival->arenas);
    keep_destroy(survival->keep);
}

void survive_forget(struct server *server)
{
    struct survival *survival = &server->survival;

    if (survival->is_forgotten)
        return;
    survival->is_forgotten = true;
    int err = survival->keep ? keep_forget(survival->keep) : 0;
    int left = keep_forget_left(server->config->state_directory);
    err = err ? err : left;
    log_event(err ? LOG_ERROR : LOG_NOTICE, "memory_forgotten", log_error("error", err));
}

/* ---- devices -------------------------------------------------------------------------------- */

bool survive_has_device(const struct server *server, enum pool_tier tier, int *out_mount_fd)
{
    const struct survival *survival = &server->survival;
    bool has_arena = false;

    if (!survival->keep)
        return false;
    for (uint32_t at = 0; at < survival->kept.num_arenas; at++)
        has_arena |= records_describe(survival->kept.arenas[at].records)->tier == tier;
    *out_mount_fd = survival->kept.mount_fds[tier];
    return has_arena || *out_mount_fd >= 0;
}

static const char *tier_name(enum pool_tier tier)
{
    return tier == POOL_TIER_DEVICE ? "device" : "host";
}

/* V3 */
static void tier_drop(struct server *server, enum pool_tier tier)
{
    struct survival *survival = &server->survival;
    struct kept *kept = &survival->kept;
    uint32_t count = 0;

    for (uint32_t at = 0; at < kept->num_arenas;) {
        struct kept_arena *arena = &kept->arenas[at];
        if (records_describe(arena->records)->tier != tier) {
            at++;
            continue;
        }
        kept_remove(survival->keep, arena->number);
        kept_drop(kept, at);
        count++;
    }
    survival->counters.arenas_dropped += count;
    if (count > 0)
        log_event(LOG_WARN, "memory_dropped", log_text("tier", tier_name(tier)),
                  log_number("arenas", count),
                  log_text("why", "its size or its pages are others now (pool-bytes, "
                                  "host-tier-bytes, page-bytes, private-mount)"));
}

void survive_device_made(struct server *server, enum pool_tier tier,
                         const struct gpu_device *device, bool is_adopted)
{
    struct survival *survival = &server->survival;
    int fd;

    if (!survival->keep)
        return;
    survival->is_adopted[tier] = is_adopted;
    if (is_adopted) {
        survival->kept.mount_fds[tier] = -1; /* the device's now; the keeper has it still */
        return;
    }
    tier_drop(server, tier);
    kept_remove_mount(survival->keep, tier);
    if (gpu_device_keep(device, &fd) == 0 && kept_add_mount(survival->keep, tier, fd) != 0)
        survival->counters.arenas_unkept++;
}

uint32_t survive_num_spare(const struct server *server)
{
    return server->survival.keep ? server->survival.kept.num_arenas : 0;
}

/* ---- arenas --------------------------------------------------------------------------------- */

static struct gpu_device *device_of(const struct server *server, enum pool_tier tier)
{
    return tier == POOL_TIER_DEVICE ? server->device : tier_host_device(server);
}

/* As the table of an arena of the pool says what it is. */
static int options_of(struct server *server, uint32_t number, struct records_options *out)
{
    struct pool_arena_description description;
    struct gpu_memory memory;

    if (pool_arena_describe(server->pool, number, &description))
        return -ENOENT;
    uint32_t block_tokens = models_of_pool(&server->models, description.model)->block_tokens;
    memset(out, 0, sizeof(*out));
    gpu_device_memory(device_of(server, description.tier), &memory);
    out->tier = description.tier;
    out->page_bytes = (uint32_t)server->config->page_bytes;
    out->budget_bytes = memory.budget_bytes;
    out->max_form = block_tokens <= RECORD_MAX_FORM ? block_tokens : 2;
    arena_options(server, &description, memory.budget_bytes, &out->arena);
    return lower_place(server, description.domain, description.model, description.group,
                       &out->place);
}

static void survivor_set(struct server *server, uint32_t number, struct records *records,
                         uint64_t kept_number)
{
    struct pool_arena_description description;
    struct survivor *survivor = &server->survival.arenas[number];

    (void)pool_arena_describe(server->pool, number, &description); /* it is there */
    *survivor = (struct survivor){.records = records,
                                  .number = kept_number,
                                  .domain = description.domain,
                                  .model = description.model};
}

void survive_opened(struct server *server, uint32_t number, const struct gpu_device *device)
{
    struct survival *survival = &server->survival;
    struct records_options options;
    struct gpu_arena_files files;
    struct records *records = NULL;
    uint64_t kept_number = 0;

    if (!survival->keep)
        return;
    int err = options_of(server, number, &options);
    if (!err)
        err = records_create(&options, &records);
    if (!err)
        err = gpu_arena_keep(device, number, &files);
    if (!err)
        err = kept_add(survival->keep, &survival->kept, files, records, &kept_number);
    if (!err) {
        survivor_set(server, number, records, kept_number);
        return;
    }
    records_destroy(records);
    survival->counters.arenas_unkept++;
    log_event(LOG_WARN, "arena_unkept", log_number("arena", number), log_error("error", err));
}

void survive_closed(struct server *server, uint32_t number)
{
    struct survival *survival = &server->survival;

    if (!survival->keep || !survival->arenas[number].records)
        return;
    kept_remove(survival->keep, survival->arenas[number].number);
    records_destroy(survival->arenas[number].records);
    survival->arenas[number] = (struct survivor){0};
}

void survive_set_writable(struct server *server, uint32_t number)
{
    struct survival *survival = &server->survival;

    if (survival->keep && survival->arenas[number].records)
        records_set_writable(survival->arenas[number].records);
}

uint64_t survive_mark(const struct server *server)
{
    return server->survival.keep ? keep_mark(server->survival.keep) : 0;
}

bool survive_passed(const struct server *server, uint64_t mark)
{
    return !server->survival.keep || keep_passed(server->survival.keep, mark);
}

void survive_told(struct server *server, const struct pool_effect *effect)
{
    const struct survivor *survivor = &server->survival.arenas[effect->arena];
    struct record record;

    if (!survivor->records)
        return;
    if (effect->kind == POOL_EFFECT_GONE) {
        records_clear(survivor->records, effect->slot);
        return;
    }
    lower_record(server, survivor->domain, survivor->model, effect, &record);
    records_write(survivor->records, effect->slot, &record);
}

/* ---- adoption: the sink --------------------------------------------------------------------- */

static bool is_same(const struct records_options *one, const struct records_options *other)
{
    return memcmp(&one->place, &other->place, sizeof(one->place)) == 0 &&
           one->page_bytes == other->page_bytes && one->budget_bytes == other->budget_bytes &&
           one->max_form == other->max_form && one->arena.block_bytes == other->arena.block_bytes &&
           one->arena.max_granules == other->arena.max_granules &&
           one->arena.is_shared == other->arena.is_shared &&
           one->arena.granule.pages == other->arena.granule.pages &&
           one->arena.granule.slots == other->arena.granule.slots &&
           one->arena.granule.stride_bytes == other->arena.granule.stride_bytes;
}

static uint32_t find(void *context, const struct records_options *options)
{
    struct server *server = context;
    struct records_options today;
    uint32_t number;

    bool is_known = lower_find(server, &options->place, (enum pool_tier)options->tier, &number);
    if (is_known && options_of(server, number, &today) == 0 && is_same(options, &today))
        return number;
    server->survival.counters.arenas_dropped++;
    log_event(LOG_NOTICE, "memory_dropped", log_text("tier", tier_name(options->tier)),
              log_number("arenas", 1),
              log_text("why", is_known ? "its blocks are laid out otherwise now"
                                       : "its domain or its model is no more"));
    return GPU_NO_ARENA;
}

static void adopted(void *context, uint32_t arena, uint64_t number, struct records *records)
{
    struct server *server = context;

    survivor_set(server, arena, records, number);
    arena_was_adopted(server, arena);
}

static struct records *open_fresh(void *context, uint32_t arena)
{
    struct server *server = context;

    return arena_is_had(server, arena) ? server->survival.arenas[arena].records : NULL;
}

static int claim(void *context, uint32_t arena, uint32_t granule)
{
    struct server *server = context;

    int err = arena_granule_check(server, arena, granule);
    if (err)
        return err;
    int answer = pool_restore_granule(server->pool, arena, granule);
    if (answer)
        return answer == POOL_EXISTS ? -EEXIST : -ENOSPC;
    arena_granule_set(server, arena, granule, MEMORY_COMING);
    return 0;
}

/* What is in one slot. False: nothing that is to be found. */
static bool slot_restore(struct server *server, uint32_t arena, uint32_t slot)
{
    const struct survivor *survivor = &server->survival.arenas[arena];
    struct pool_restored restored;
    struct lower_restored kept;

    if (records_read(survivor->records, slot, &kept.record) ||
        kept.record.epoch != state_epoch(server, survivor->domain, survivor->model))
        return false;
    lower_restored(&kept, slot, &restored);
    return pool_restore_block(server->pool, arena, &restored) == 0;
}

static void restored(void *context, uint32_t arena, uint32_t granule)
{
    struct server *server = context;
    struct survival *survival = &server->survival;
    struct pool_arena_description description;

    arena_granule_set(server, arena, granule, MEMORY_THERE);
    (void)pool_arena_describe(server->pool, arena, &description);
    uint32_t first = granule * description.slots_per_granule + 1;
    for (uint32_t slot = first; slot < first + description.slots_per_granule; slot++) {
        bool is_restored = slot_restore(server, arena, slot);
        struct record record;
        survival->counters.restored_blocks += is_restored;
        if (is_restored || records_read(survival->arenas[arena].records, slot, &record) == -ENOENT)
            continue;
        survival->counters.dropped_blocks++;
        records_clear(survival->arenas[arena].records, slot);
    }
    (void)pool_restore_end(server->pool, arena, granule);
    server->has_more = true;
}

static void failed(void *context, uint32_t arena, uint32_t granule)
{
    struct server *server = context;

    arena_granule_set(server, arena, granule, MEMORY_NONE);
    (void)pool_restore_end(server->pool, arena, granule);
}

/* ---- adoption: life ------------------------------------------------------------------------- */

/* V3; of what another tier is adopting nothing changes its place. */
static void adoption_give_up(struct server *server, enum pool_tier tier, int err)
{
    struct survival *survival = &server->survival;
    struct kept *kept = &survival->kept;
    uint32_t count = 0;

    for (uint32_t at = 0; at < kept->num_arenas; at++) {
        struct kept_arena *arena = &kept->arenas[at];
        if (!arena->records || records_describe(arena->records)->tier != tier)
            continue;
        kept_remove(survival->keep, arena->number);
        kept_close(kept, at);
        count++;
    }
    gpu_device_adopt_end(device_of(server, tier));
    survival->counters.arenas_dropped += count;
    log_event(LOG_WARN, "memory_dropped", log_text("tier", tier_name(tier)),
              log_number("arenas", count), log_text("why", "no memory for the tables to adopt it"),
              log_error("error", err));
}

static void adopt_begin(struct server *server, enum pool_tier tier, struct gpu_device *device)
{
    struct survival *survival = &server->survival;
    const struct adopt_options options = {.device = device,
                                          .keep = survival->keep,
                                          .kept = &survival->kept,
                                          .tier = tier,
                                          .first_spare = survival->first_spare,
                                          .cookie = (uint64_t)EFFECTS_COOKIE_ADOPT
                                                    << EFFECTS_COOKIE_SHIFT,
                                          .sink = {.context = server,
                                                   .find = find,
                                                   .adopted = adopted,
                                                   .open = open_fresh,
                                                   .claim = claim,
                                                   .restored = restored,
                                                   .failed = failed}};

    int err = adopt_create(&options, &survival->adopts[tier]);
    if (err) {
        adoption_give_up(server, tier, err);
        return;
    }
    survival->is_adopting = true;
    survival->counters.adopting = 1;
}

void survive_begin(struct server *server)
{
    struct survival *survival = &server->survival;

    if (!survival->keep)
        return;
    survival->began_ms = server->now_ms;
    if (!server->tiers.host) { /* not any more */
        tier_drop(server, POOL_TIER_HOST);
        kept_remove_mount(survival->keep, POOL_TIER_HOST);
    }
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_TIER_DISK; tier++) {
        if (survival->is_adopted[tier])
            adopt_begin(server, tier, device_of(server, tier));
    }
}

static void adopt_end(struct server *server, enum pool_tier tier)
{
    struct survival *survival = &server->survival;

    adopt_destroy(survival->adopts[tier]);
    survival->adopts[tier] = NULL;
    gpu_device_adopt_end(device_of(server, tier));
}

static struct adopt_progress progress_take(struct survival *survival)
{
    struct adopt_progress sum = {0};

    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        if (!survival->adopts[tier])
            continue;
        const struct adopt_progress *progress = adopt_progress(survival->adopts[tier]);
        sum.granules += progress->granules;
        sum.granules_done += progress->granules_done;
        sum.granules_failed += progress->granules_failed;
        sum.granules_refused += progress->granules_refused;
        sum.arenas_failed += progress->arenas_failed;
        sum.problem = progress->problem ? progress->problem : sum.problem;
    }
    survival->counters.granules = sum.granules;
    survival->counters.granules_done = sum.granules_done;
    survival->counters.granules_failed = sum.granules_failed;
    return sum;
}

bool survive_run(struct server *server)
{
    struct survival *survival = &server->survival;
    bool has_more = false;

    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
        has_more |= survival->adopts[tier] && adopt_run(survival->adopts[tier]);
    const struct adopt_progress sum = progress_take(survival);
    if (has_more)
        return true;
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        if (survival->adopts[tier])
            adopt_end(server, tier);
    }
    survival->is_adopting = false;
    survival->counters.adopting = 0;
    survival->counters.arenas_dropped += sum.arenas_failed;
    log_event(
        sum.problem ? LOG_WARN : LOG_NOTICE, "memory_adopted", log_number("granules", sum.granules),
        log_number("failed", sum.granules_failed), log_number("refused", sum.granules_refused),
        log_number("failed_arenas", sum.arenas_failed),
        log_number("blocks", survival->counters.restored_blocks), log_error("error", sum.problem),
        log_number("ms", server->now_ms - survival->began_ms));
    return false;
}

void survive_reaped(struct server *server, enum pool_tier tier, uint64_t cookie, int status)
{
    adopt_reaped(server->survival.adopts[tier], cookie, status);
}

void survive_tick(struct server *server)
{
    static const char *last; /* of the fallback that was told */
    struct gpu_fallback fallback;

    if (!server->survival.keep)
        return;
    keep_run(server->survival.keep, server->now_ms);
    if (keep_fallback(server->survival.keep, &fallback)) {
        (void)stats_add_fallback(server->stats, fallback.name, fallback.cost, fallback.reason);
        last = fallback.name;
    } else if (last) {
        stats_drop_fallback(server->stats, last);
        last = NULL;
    }
}
