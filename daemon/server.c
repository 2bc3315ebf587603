/* daemon/server.c - the loop, and what it is made of. */
#include "daemon/server.h"

#include "daemon/events.h"
#include "daemon/http.h"
#include "daemon/log.h"
#include "daemon/mend.h"
#include "daemon/notify.h"
#include "daemon/stats.h"
#include "daemon/tier_host.h"
#include "daemon/verbs.h"
#include "daemon/watch.h"
#include "offload/host.h"
#include "proto/caps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS_BATCH = 64,
    ADVANCE_BLOCKS = 4096, /* of releases, in one pass: about 100 us */
    TICK_FAST_MS = 10,     /* while a request waits */
    TICK_SLOW_MS = 1000,
    NO_SPIN_MS = 20,
    MAX_OPERATIONS = 4096, /* of the device, under way */
    MAX_WAITING = 1 << 20  /* records of requests */
};

/* ---- sources -------------------------------------------------------------------------------- */

int source_add(struct server *server, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

void source_remove(struct server *server, struct source *source)
{
    if (source->fd >= 0 && server->epoll_fd >= 0)
        (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
}

uint64_t server_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void clock_read(struct server *server)
{
    server->now_ms = server_now_us() / 1000;
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Ticks fast only while something waits for the clock: an idle daemon wakes once a second. */
static void timer_set(struct server *server)
{
    bool is_fast = server->waitings.num_used > 0 || server->sessions.num_hello > 0 ||
                   server->effects.is_short || server->is_stopping ||
                   lower_is_busy(&server->tiers) || server->survival.is_adopting;
    long ms = is_fast ? TICK_FAST_MS : TICK_SLOW_MS;
    const struct timespec every = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    const struct itimerspec setting = {.it_interval = every, .it_value = every};

    if (is_fast == server->is_timer_fast)
        return;
    server->is_timer_fast = is_fast;
    (void)timerfd_settime(server->timer.fd, 0, &setting, NULL);
}

static void second_passed(struct server *server)
{
    server->last_second_ms = server->now_ms;
    state_tick(server);
    survive_tick(server);
    if (server->sessions.num_open > 0 || server->effects.num_damaged > 0)
        mend_check(server);
}

static void timer_ready(struct server *server, struct source *source, uint32_t events)
{
    uint64_t count;

    (void)events;
    (void)!read(source->fd, &count, sizeof(count));
    pool_tick(server->pool, server->now_ms);
    waiting_tick(server);
    sessions_tick(server);
    if (server->effects.is_short)
        effects_retry(server);
    lower_tick(server);
    if (server->now_ms - server->last_second_ms >= 1000)
        second_passed(server);
    if (server->now_ms - server->last_stats_ms >= server->config->stats_ms) {
        watch_take(server);
        events_snapshot(server->events, server->stats);
    }
}

/* ---- signals -------------------------------------------------------------------------------- */

void server_drain(struct server *server, bool is_draining)
{
    server->is_draining = is_draining;
    pool_drain(server->pool, is_draining);
    stats_set_state(server->stats, is_draining ? STATS_DRAINING : STATS_READY);
    watch_take(server); /* /readyz says so at once */
    log_event(LOG_NOTICE, is_draining ? "draining" : "drain_undone",
              log_number("sequences", server->sequences.num_used));
}

static void reload(struct server *server)
{
    struct config *next;
    static struct config_error error;
    int answer = config_load(server->config_path, &next, &error);

    if (!answer)
        answer = config_diff_reloadable(server->config, next, &error);
    for (size_t at = 0; at < error.count && at < CONFIG_MAX_ERRORS; at++)
        log_event(LOG_ERROR, "config_mistake", log_text("text", error.texts[at]));
    if (answer) {
        log_event(LOG_ERROR, "reload_refused", log_number("mistakes", error.count));
        return;
    }
    config_adopt_reloadable(server->config, next);
    config_destroy(next);
    answer = tenants_apply(server, server->config);
    server->rings.spin_us = server->config->spin_us;
    log_configure(&(struct log_options){.is_json = server->config->log_json,
                                        .lines_per_second = (uint32_t)server->config->log_rate,
                                        .fd = -1});
    log_event(LOG_NOTICE, "reloaded", log_number("tenants", server->config->num_tenants),
              log_number("domains", server->config->num_domains), log_signed("answer", answer));
}

static void signals_ready(struct server *server, struct source *source, uint32_t events)
{
    struct signalfd_siginfo signal;

    (void)events;
    if (read(source->fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return;
    if (signal.ssi_signo == SIGHUP) {
        (void)notify_reloading(server_now_us());
        reload(server);
        (void)notify_send("READY=1");
        return;
    }
    if (server->is_stopping) /* asked twice: at once */
        server->drain_end_ms = server->now_ms;
    else
        server->drain_end_ms = server->now_ms + server->config->drain_ms;
    server->is_stopping = true;
    (void)notify_send("STOPPING=1");
    server_drain(server, true);
}

bool server_is_recovering(const struct server *server)
{
    return server->survival.is_adopting || tier_disk_is_busy(&server->tiers.disk);
}

void server_stop(struct server *server)
{
    server_drain(server, true);
    server->is_stopping = true;
    server->drain_end_ms = server->now_ms;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void device_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    (void)effects_reap(server);
}

static void namer_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    prompts_reap(server);
}

static void state_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    state_reap(server);
}

/*
 * Whether CPUs are free: while the kernel takes ours away from us, somebody else wants it, and
 * spinning is his loss. Then nothing spins for a while.
 */
bool server_may_spin(struct server *server)
{
    struct rusage usage;

    if (server->num_cpus < 2 || server->now_ms < server->no_spin_until_ms)
        return false;
    if (getrusage(RUSAGE_THREAD, &usage) == 0 && usage.ru_nivcsw != server->num_preempted) {
        server->num_preempted = usage.ru_nivcsw;
        server->no_spin_until_ms = server->now_ms + NO_SPIN_MS;
        return false;
    }
    return true;
}

static void sources_wait(struct server *server, int timeout_ms)
{
    struct epoll_event events[EVENTS_BATCH];
    int count = epoll_wait(server->epoll_fd, events, EVENTS_BATCH, timeout_ms);

    clock_read(server);
    for (int at = 0; at < count; at++) {
        struct source *source = events[at].data.ptr;
        if (source->fd >= 0) /* an earlier one of this batch may have closed it */
            source->ready(server, source, events[at].events);
    }
}

/* What ended gives way to what waits: until nothing moves any more, but bounded. */
static bool settle(struct server *server)
{
    bool any = effects_run(server);

    for (int i = 0; i < 4 && effects_run(server); i++)
        ;
    if (server->tiers.is_on)
        any |= lower_run(server);
    if (server->survival.is_adopting)
        (void)survive_run(server); /* what it waits for wakes the loop */
    if (server->waitings.num_memory > 0)
        waiting_pass_memory(server);
    if (server->waitings.num_keep > 0)
        waiting_pass_keep(server);
    if (server->waitings.num_copies > 0)
        any |= data_run(server);
    if (server->effects.num_damaged > 0)
        any |= mend_run(server);
    any |= turns_run(server);
    return any;
}

static bool is_over(const struct server *server)
{
    return server->is_stopping &&
           (server->sequences.num_used == 0 || server->now_ms >= server->drain_end_ms);
}

int server_run(struct server *server)
{
    bool is_busy = true, router_is_busy = true;

    for (; !is_over(server); server->pass++) {
        bool may_sleep = !is_busy && rings_may_sleep(server);
        /* While rings spin, only each 16th pass looks at the rest. */
        bool is_whole = may_sleep || router_is_busy || server->pass % 16 == 0;
        if (is_whole) {
            timer_set(server);
            sources_wait(server, may_sleep ? -1 : 0);
        }
        is_busy = rings_run(server);
        if (is_whole)
            router_is_busy = router_run(server);
        if (server->has_more || (is_whole && server->tiers.is_on)) /* what is to be stored below */
            server->has_more = pool_advance(server->pool, ADVANCE_BLOCKS);
        is_busy |= settle(server) || server->has_more;
        router_flush(server);
        if (server->router.has_lost) {
            server->router.has_lost = false;
            sessions_end_lost(server);
        }
        router_is_busy |= router_may_have_more(server);
        is_busy |= router_is_busy;
        events_flush(server->events);
    }
    return server->exit_status;
}

/* ---- what it is made of --------------------------------------------------------------------- */

static int lock_take(struct server *server)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/lock", server->config->state_directory);
    server->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->lock_fd < 0 || flock(server->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        int err = -errno;
        log_event(LOG_ERROR, "lock_failed", log_text("file", path), log_error("error", err),
                  log_text("problem", err == -EAGAIN
                                          ? "another kvpoold has this state-directory: stop it, or "
                                            "give another one"
                                          : "it cannot be made or locked"));
        return err;
    }
    return 0;
}

static int pool_make(struct server *server)
{
    const struct config *config = server->config;
    uint64_t pages = config->pool_bytes / config->page_bytes;
    struct pool_config pool;

    pool_config_init(&pool, (uint32_t)config->max_blocks, pages);
    pool.devices[0].watermark = config->watermark_pages;
    pool.max_block_tokens = (uint32_t)config->max_block_tokens;
    pool.max_sequences = (uint32_t)config->max_sequences;
    pool.max_sequence_blocks = (uint32_t)config->max_sequence_blocks;
    pool.max_tokens = config->max_tokens;
    pool.max_payers = (uint32_t)config->max_payers;
    pool.max_models = (uint32_t)config->max_models;
    /* Those that end keep their place in the pool until all that they had is let go of. */
    pool.max_sessions = (uint32_t)config->max_sessions * 2;
    pool.max_transfers = (uint32_t)config->max_transfers;
    pool.max_waiters = (uint32_t)config->max_waiters;
    pool.max_steps = (uint32_t)config->max_steps;
    pool.max_step_rows = (uint32_t)config->max_step_rows;
    lower_configure(config, &pool);
    pool.tells_places = server->survival.keep != NULL;
    pool.sink = (struct pool_sink){.emit = effects_emit, .context = server};
    int answer = pool_create(&pool, &server->pool);
    if (!answer)
        pool_tick(server->pool, server->now_ms); /* what it is old from */
    return answer;
}

static int device_create(struct server *server, const struct gpu_device_options *options)
{
    int mount_fd, err = -ENOENT;

    if (server->config->pool_pinned) {
        err = pinned_make(server, POOL_TIER_DEVICE, options, &server->pinned);
        if (!err)
            server->device = host_tier_device(server->pinned);
        return err;
    }
    bool is_adopted = survive_has_device(server, POOL_TIER_DEVICE, &mount_fd);
    if (is_adopted)
        err = gpu_device_adopt(options, mount_fd, &server->device);
    is_adopted = !err;
    if (err) /* there is none, or of another size */
        err = gpu_device_create(options, &server->device);
    if (!err)
        survive_device_made(server, POOL_TIER_DEVICE, server->device, is_adopted);
    return err;
}

static int device_make(struct server *server)
{
    const struct config *config = server->config;
    uint64_t workers = config->worker_threads;

    if (workers == 0)
        workers = server->num_cpus > 1 ? server->num_cpus - 1 : 0;
    const struct gpu_device_options options = {
        .budget_bytes = config->pool_bytes / config->page_bytes * config->page_bytes,
        .page_bytes = (uint32_t)config->page_bytes,
        .max_arenas = lower_max_arenas(config) + survive_num_spare(server),
        .max_operations = MAX_OPERATIONS,
        .populate_bytes = config->populate_bytes,
        .without_mount = !config->private_mount,
        .num_workers = (uint32_t)workers};
    int err = device_create(server, &options);

    if (err)
        return err;
    server->device_source =
        (struct source){.fd = gpu_device_event_fd(server->device), .ready = device_ready};
    return source_add(server, &server->device_source, EPOLLIN);
}

static int scratch_make(struct server *server)
{
    struct scratch *scratch = &server->scratch;
    size_t places = server->config->max_sequence_blocks;

    scratch->max_places = (uint32_t)places;
    scratch->places = calloc(places, sizeof(*scratch->places));
    scratch->slots = calloc(places * POOL_MAX_GROUPS, sizeof(*scratch->slots));
    scratch->generations = calloc(places * POOL_MAX_GROUPS, sizeof(*scratch->generations));
    scratch->json_bytes = WIRE_MAX_JSON_BYTES;
    scratch->json = malloc(scratch->json_bytes);
    for (uint32_t group = 0; group < POOL_MAX_GROUPS; group++)
        scratch->table_list[group] = &scratch->tables[group];
    return scratch->places && scratch->slots && scratch->generations && scratch->json ? 0 : -ENOMEM;
}

static int clocks_make(struct server *server)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    server->timer = (struct source){
        .fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), .ready = timer_ready};
    server->signals = (struct source){.fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK),
                                      .ready = signals_ready};
    if (server->timer.fd < 0 || server->signals.fd < 0)
        return -errno;
    server->is_timer_fast = true; /* so that it is set to slow */
    int err = source_add(server, &server->timer, EPOLLIN);
    return err ? err : source_add(server, &server->signals, EPOLLIN);
}

static int workers_make(struct server *server)
{
    int err = state_init(server);

    if (err)
        return err;
    server->state_source =
        (struct source){.fd = state_event_fd(&server->state), .ready = state_ready};
    err = source_add(server, &server->state_source, EPOLLIN);
    if (!err)
        err = prompts_init(server);
    if (err)
        return err;
    server->namer_source =
        (struct source){.fd = prompts_event_fd(&server->prompts), .ready = namer_ready};
    return source_add(server, &server->namer_source, EPOLLIN);
}

/* As many as all sessions may have outstanding, and operators: nobody finds them taken by others.
 */
static uint32_t waiting_records(const struct config *config)
{
    uint64_t count = config->max_sessions * config->credits + config->credits;

    return (uint32_t)(count < MAX_WAITING ? count : MAX_WAITING);
}

static int hasher_make(struct server *server)
{
    return key_hasher_create(&server->hasher);
}

static int tables_make(struct server *server)
{
    const struct config *config = server->config;
    uint32_t max_waiting = waiting_records(config);
    int err = effects_init(server, (uint32_t)config->max_transfers);

    if (!err)
        err = waiting_init(&server->waitings, max_waiting);
    if (!err)
        err = turns_init(server, max_waiting);
    return err ? err : steps_init(server);
}

static int models_make(struct server *server)
{
    return models_init(&server->models, (uint32_t)server->config->max_models);
}

static int sequences_make(struct server *server)
{
    const struct config *config = server->config;

    return sequences_init(&server->sequences, (uint32_t)config->max_sequences,
                          config->max_extra_bytes, &server->tenants.shares[SHARE_EXTRAS]);
}

static int tenants_make(struct server *server)
{
    uint32_t max_payers = (uint32_t)server->config->max_payers;
    int err = tenants_init(server, max_payers);

    return err ? err : journal_init(&server->journal, max_payers);
}

static int quotas_make(struct server *server)
{
    return tenants_apply(server, server->config);
}

/* Of memory what can be had, with a line for what cannot. */
static int blocks_restore(struct server *server)
{
    survive_begin(server);
    return tier_disk_await(server);
}

/* What a daemon is made of, in the order in which it is needed. */
static const struct part {
    const char *name;
    int (*make)(struct server *server);
    const char *remedy; /* for want of memory */
} parts[] = {
    {"state-directory", lock_take, NULL},
    {"memory of an earlier daemon", survive_init, NULL},
    {"pool", pool_make, "lower max-blocks, max-tokens, max-sequences, max-payers or max-steps"},
    {"device", device_make, "lower pool-bytes, populate-bytes or worker-threads"},
    {"hasher", hasher_make, NULL},
    {"tables", tables_make, "lower pool-bytes, max-transfers, max-sessions, credits or max-steps"},
    {"lower tiers", lower_init, "lower host-tier-bytes, store-bytes or disk-max-bytes"},
    {"tier statistics", tier_stats_init, NULL},
    {"models", models_make, "lower max-models"},
    {"sequences", sequences_make, "lower max-extra-bytes or max-sequences"},
    {"rings", rings_init, "lower max-sessions"},
    {"scratch", scratch_make, "lower max-sequence-blocks"},
    {"tenants", tenants_make, "lower max-payers"},
    {"workers", workers_make, NULL},
    {"clocks", clocks_make, NULL},
    {"sockets", router_init, NULL},
    {"statistics", watch_make, NULL},
    {"quotas", quotas_make, NULL},
    {"state", state_restore, NULL},
    {"disk", blocks_restore, NULL},
    {"http", watch_check, NULL},
    {"sessions", sessions_init, "lower max-sessions"}, /* last: who connects is answered */
};

static void part_failed(const struct part *part, int err)
{
    bool is_short = err == -ENOMEM && part->remedy;

    log_event(LOG_ERROR, "part_failed", log_text("part", part->name), log_error("error", err),
              log_text("remedy", is_short ? part->remedy : "see the error, and the lines before"));
}

static int parts_make(struct server *server)
{
    for (size_t at = 0; at < ARRAY_SIZE(parts); at++) {
        int err = parts[at].make(server);
        if (err) {
            part_failed(&parts[at], err);
            return err;
        }
    }
    return 0;
}

int server_create(struct config *config, const char *config_path, struct server **out_server)
{
    struct server *server = calloc(1, sizeof(*server));
    if (!server)
        return -ENOMEM;

    int err = 0;
    server->config = config;
    server->config_path = config_path;
    server->lock_fd = server->timer.fd = server->signals.fd = -1;
    server->num_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0 ||
        getrandom(server->boot_id, sizeof(server->boot_id), 0) != sizeof(server->boot_id))
        err = -errno;
    clock_read(server);
    server->started_ms = server->now_ms;
    if (!err)
        err = parts_make(server);
    if (err) {
        server_destroy(server);
        return err;
    }
    *out_server = server;
    return 0;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    watch_finish(server);
    sessions_finish(server);
    router_finish(server);
    prompts_finish(server);
    state_finish(server);
    tenants_finish(&server->tenants);
    journal_finish(&server->journal);
    rings_finish(server);
    steps_finish(server);
    lower_finish(server);
    tier_stats_finish(server);
    /* Waits for what runs; before what it writes to goes. */
    if (server->pinned)
        host_tier_destroy(server->pinned);
    else
        gpu_device_destroy(server->device);
    survive_finish(server);
    turns_finish(server);
    waiting_finish(&server->waitings);
    sequences_finish(&server->sequences);
    models_finish(&server->models);
    effects_finish(server);
    key_hasher_destroy(server->hasher);
    pool_destroy(server->pool);
    free(server->scratch.places);
    free(server->scratch.slots);
    free(server->scratch.generations);
    free(server->scratch.json);
    const int fds[] = {server->timer.fd, server->signals.fd, server->epoll_fd, server->lock_fd};
    for (size_t at = 0; at < ARRAY_SIZE(fds); at++) {
        if (fds[at] >= 0)
            (void)close(fds[at]);
    }
    free(server);
}
