/* daemon/tier_disk.c - the disk tier: opened beside the loop, its granules given out, its states
 * told to the pool. */
#include "daemon/tier_disk.h"

#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "daemon/tier_restore.h"
#include "daemon/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    AWAIT_MS = 100,   /* a start waits so long for the disk */
    FINISH_MS = 1000, /* an end for one that is still being opened */
    TICK_MS = 100,    /* disk_tick() */
    REAP_BATCH = 64,
    SPARE_OPERATIONS = 1024 /* of granules, beside one for each transfer */
};

/* Shared with the thread; the last of the two frees it. */
struct disk_opening {
    struct disk_options options;
    char path[257];
    pthread_t thread;
    int event_fd;
    int err;
    struct disk *disk;
    char error[DISK_ERROR_BYTES];
    _Atomic bool is_done; /* set by the thread, behind the above; read by the owner */
};

const struct disk_faults *tier_disk_faults;

const char *tier_disk_phase_name(enum tier_disk_phase phase)
{
    static const char *const names[NUM_TIER_DISK_PHASES] = {[TIER_DISK_NONE] = "none",
                                                            [TIER_DISK_OPENING] = "opening",
                                                            [TIER_DISK_RECOVERING] = "recovering",
                                                            [TIER_DISK_READY] = "ready"};
    return names[phase];
}

/* ---- opening -------------------------------------------------------------------------------- */

static void options_fill(const struct config *config, struct disk_options *out)
{
    uint64_t operations = config->max_transfers + SPARE_OPERATIONS;
    uint64_t max_block = config->disk_max_block_bytes < config->disk_granule_bytes
                             ? config->disk_max_block_bytes
                             : config->disk_granule_bytes;

    *out = (struct disk_options){
        .path = config->disk_directory,
        .max_bytes = config->disk_max_bytes,
        .granule_bytes = config->disk_granule_bytes,
        .min_block_bytes = (uint32_t)config->disk_min_block_bytes,
        .max_block_bytes = (uint32_t)max_block,
        .queue_depth = (uint32_t)config->disk_queue_depth,
        .max_operations =
            (uint32_t)(operations < DISK_MAX_OPERATIONS ? operations : DISK_MAX_OPERATIONS),
        .max_store_bytes = config->store_bytes,
        .engine = config->disk_io_uring ? DISK_ENGINE_BEST : DISK_ENGINE_THREADS,
        .without_direct = !config->disk_direct,
        .deadline_ms = (uint32_t)config->disk_deadline_ms,
        .faults = tier_disk_faults};
}

uint32_t tier_disk_granules(const struct config *config)
{
    struct disk_options options;
    struct disk_layout layout;

    if (config->disk_directory[0] == '\0')
        return 0;
    options_fill(config, &options);
    return disk_plan(&options, &layout) == 0 ? layout.num_granules : 0;
}

static void *opening_main(void *argument)
{
    struct disk_opening *opening = argument;
    const uint64_t one = 1;
    int event_fd = opening->event_fd;

    opening->err = disk_open(&opening->options, &opening->disk, opening->error);
    atomic_store_explicit(&opening->is_done, true, memory_order_release);
    (void)!write(event_fd, &one, sizeof(one));
    return NULL;
}

static void opened_ready(struct server *server, struct source *source, uint32_t events);

int tier_disk_start(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk_opening *opening = calloc(1, sizeof(*opening));

    if (!opening)
        return -ENOMEM;
    tier->opening = opening;
    opening->event_fd = tier->opened.fd = -1;
    tier->num_granules = tier_disk_granules(server->config);
    tier->free_granules = calloc(tier->num_granules, sizeof(*tier->free_granules));
    options_fill(server->config, &opening->options);
    (void)snprintf(opening->path, sizeof(opening->path), "%s", server->config->disk_directory);
    opening->options.path = opening->path; /* it may outlive the configuration */
    opening->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!tier->free_granules || opening->event_fd < 0)
        return tier->free_granules ? -errno : -ENOMEM;
    int err = tier_restore_init(server);
    if (err)
        return err;
    tier->opened = (struct source){.fd = opening->event_fd, .ready = opened_ready};
    err = source_add(server, &tier->opened, EPOLLIN);
    if (!err)
        err = -pthread_create(&opening->thread, NULL, opening_main, opening);
    if (err)
        return err;
    tier->phase = TIER_DISK_OPENING;
    return pool_tier_set(server->pool, POOL_TIER_DISK, POOL_TIER_OFF);
}

static void opening_end(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;

    (void)pthread_join(tier->opening->thread, NULL);
    source_remove(server, &tier->opened);
    (void)close(tier->opened.fd);
    tier->opened.fd = -1;
    free(tier->opening);
    tier->opening = NULL;
}

/* It cannot be had. What is asked for may be gone on without. */
static int opening_failed(struct server *server, int err, const char *problem)
{
    struct tier_disk *tier = &server->tiers.disk;
    bool is_optional = server->config->disk_optional;

    log_event(is_optional ? LOG_WARN : LOG_ERROR, "disk_failed",
              log_text("directory", server->config->disk_directory), log_text("problem", problem),
              log_error("error", err));
    tier->phase = TIER_DISK_NONE;
    if (!is_optional)
        return err;
    if (server->stats)
        (void)stats_add_fallback(server->stats, "disk_off",
                                 "the disk tier could not be opened: nothing is kept below memory "
                                 "(see disk_failed in the log), until the next start",
                                 err);
    return 0;
}

static void disk_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    (void)tier_disk_reap(server);
}

static int disk_adopt(struct server *server, struct disk *disk)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk_layout layout;

    tier->disk = disk;
    tier->source = (struct source){.fd = disk_event_fd(disk), .ready = disk_ready};
    int err = source_add(server, &tier->source, EPOLLIN);
    if (err)
        return err;
    disk_layout(disk, &layout);
    tier->opened_ms = server->now_ms;
    if (layout.num_granules < tier->num_granules) { /* the file system, or the device, had less */
        int answer = pool_tier_shrink(server->pool, POOL_TIER_DISK, layout.num_granules);
        if (answer)
            return -ENOSPC;
        tier->num_granules = layout.num_granules;
    }
    for (uint32_t granule = 0; granule < layout.num_granules; granule++) {
        struct disk_granule described;
        if (disk_granule_describe(disk, granule, &described) == 0 && !described.is_used)
            tier->free_granules[tier->num_free++] = granule;
    }
    tier_restore_begin(server);
    err = pool_tier_set(server->pool, POOL_TIER_DISK, POOL_TIER_ON);
    log_event(LOG_NOTICE, "disk_opened", log_text("directory", server->config->disk_directory),
              log_number("granules", layout.num_granules),
              log_number("used", tier->num_granules - tier->num_free),
              log_bool("new", layout.is_new), log_error("error", err));
    return err;
}

static int opening_take(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk *disk = tier->opening->disk;
    int err = tier->opening->err;
    char problem[DISK_ERROR_BYTES];

    memcpy(problem, tier->opening->error, sizeof(problem));
    opening_end(server);
    if (!err)
        err = disk_adopt(server, disk);
    else
        return opening_failed(server, err, problem);
    return err ? opening_failed(server, err, strerror(-err)) : 0;
}

static void opened_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    if (opening_take(server) == 0 && watch_check(server) == 0)
        return;
    server->exit_status = -EIO; /* it was to be had, and engines were told so */
    server_stop(server);
}

int tier_disk_await(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;

    if (tier->phase != TIER_DISK_OPENING)
        return 0;
    struct pollfd wait = {.fd = tier->opened.fd, .events = POLLIN};
    (void)poll(&wait, 1, AWAIT_MS);
    tier->is_late = !atomic_load_explicit(&tier->opening->is_done, memory_order_acquire);
    if (tier->is_late) {
        log_event(LOG_WARN, "disk_late", log_text("directory", server->config->disk_directory));
        return 0;
    }
    return opening_take(server);
}

void tier_disk_finish(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;

    if (tier->opening && tier->phase == TIER_DISK_OPENING) {
        struct pollfd wait = {.fd = tier->opened.fd, .events = POLLIN};
        (void)poll(&wait, 1, FINISH_MS);
        if (!atomic_load_explicit(&tier->opening->is_done, memory_order_acquire))
            return; /* the disk hangs, and so does the thread: both end with the process */
        tier->disk = tier->opening->disk;
        opening_end(server);
    }
    if (tier->opening) { /* its thread was not made */
        source_remove(server, &tier->opened);
        if (tier->opening->event_fd >= 0)
            (void)close(tier->opening->event_fd);
        free(tier->opening);
        tier->opening = NULL;
    }
    source_remove(server, &tier->source);
    if (disk_close(tier->disk))
        log_event(LOG_WARN, "disk_hangs", log_text("directory", server->config->disk_directory));
    tier->disk = NULL;
    tier_restore_finish(server);
    free(tier->free_granules);
}

/* ---- granules ------------------------------------------------------------------------------- */

static void granule_give(struct tier_disk *tier, uint32_t granule)
{
    tier->free_granules[(tier->first_free + tier->num_free++) % tier->num_granules] = granule;
}

static uint32_t granule_pop(struct tier_disk *tier)
{
    uint32_t granule = tier->free_granules[tier->first_free];

    tier->first_free = (tier->first_free + 1) % tier->num_granules;
    tier->num_free--;
    return granule;
}

int tier_disk_commit(struct server *server, const struct lower_arena *arena,
                     struct lower_granule *granule, uint64_t cookie)
{
    struct tier_disk *tier = &server->tiers.disk;
    uint8_t owner[DISK_MAX_OWNER_BYTES];
    int err = -EAGAIN;

    if (!tier->disk)
        return -EIO;
    size_t owner_bytes = tier_restore_owner(arena, owner);
    for (uint32_t tries = tier->num_free; tries > 0; tries--) {
        uint32_t number = granule_pop(tier);
        err = disk_granule_use(tier->disk, number, arena->stride_bytes, owner, owner_bytes, cookie);
        if (err == 0) {
            granule->number = number;
            return 0;
        }
        granule_give(tier, number);
        if (err != -EBUSY) /* quarantined: another one may do */
            return err;
        err = -EAGAIN;
    }
    return err;
}

int tier_disk_decommit(struct server *server, struct lower_granule *granule, uint64_t cookie)
{
    int err = disk_granule_free(server->tiers.disk.disk, granule->number, cookie);

    return err == -EBUSY ? -EAGAIN : err;
}

void tier_disk_left(struct server *server, struct lower_granule *granule)
{
    granule_give(&server->tiers.disk, granule->number);
}

uint64_t tier_disk_largest_run(const struct tier_disk *disk)
{
    uint64_t run = 0, largest = 0;

    if (!disk->disk)
        return 0;
    for (uint32_t granule = 0; granule < disk->num_granules; granule++) {
        struct disk_granule described;
        bool is_free =
            disk_granule_describe(disk->disk, granule, &described) == 0 && !described.is_used;
        run = is_free ? run + 1 : 0;
        largest = run > largest ? run : largest;
    }
    return largest;
}

/* ---- its state ------------------------------------------------------------------------------ */

static void state_tell(struct server *server, const struct disk_stats *stats)
{
    static const enum pool_tier_mode modes[NUM_DISK_STATES] = {[DISK_OK] = POOL_TIER_ON,
                                                               [DISK_FULL] = POOL_TIER_READ_ONLY,
                                                               [DISK_READ_ONLY] =
                                                                   POOL_TIER_READ_ONLY,
                                                               [DISK_FAILING] = POOL_TIER_OFF};
    struct tier_disk *tier = &server->tiers.disk;

    if (stats->state == tier->state)
        return;
    tier->state = stats->state;
    (void)pool_tier_set(server->pool, POOL_TIER_DISK, modes[stats->state]);
    log_event(stats->state == DISK_OK ? LOG_NOTICE : LOG_WARN, "disk_state",
              log_text("state", disk_state_name(stats->state)),
              log_error("reason", stats->state_reason),
              log_text("directory", server->config->disk_directory));
}

bool tier_disk_reap(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk_completion completions[REAP_BATCH];
    size_t count, total = 0;
    bool has_failed = false;

    while ((count = disk_reap(tier->disk, completions, REAP_BATCH)) > 0) {
        for (size_t at = 0; at < count; at++) {
            has_failed |= completions[at].status != 0;
            if (completions[at].kind == DISK_ENDED)
                lower_ended(server, completions[at].cookie, completions[at].status);
        }
        total += count;
    }
    if (has_failed) { /* before more is asked of it */
        struct disk_stats stats;
        disk_stats(tier->disk, &stats);
        state_tell(server, &stats);
    }
    if (tier->phase == TIER_DISK_RECOVERING)
        total += tier_restore_run(server);
    return total > 0;
}

void tier_disk_tick(struct server *server)
{
    struct tier_disk *tier = &server->tiers.disk;
    struct disk_stats stats;

    if (!tier->disk || server->now_ms < tier->next_tick_ms)
        return;
    tier->next_tick_ms = server->now_ms + TICK_MS;
    disk_tick(tier->disk, server->now_ms * 1000000);
    disk_stats(tier->disk, &stats);
    state_tell(server, &stats);
}
