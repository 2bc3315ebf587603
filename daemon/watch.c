/* daemon/watch.c - the tables of counters, and the sockets that show them. */
#include "daemon/watch.h"

#include "daemon/events.h"
#include "daemon/http.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* clang-format off */
#define AT(field) offsetof(struct server, field)
#define COUNT(name, help, field) {name, help, STATS_COUNTER, AT(field), NULL, NULL}
#define GAUGE(name, help, field) {name, help, STATS_GAUGE, AT(field), NULL, NULL}
static const struct stats_row rows[] = {
    COUNT("sessions_opened",       "sessions that began", sessions.counters.opened),
    COUNT("sessions_ended",        "sessions that ended", sessions.counters.ended),
    COUNT("sessions_died",         "of them, whose process ended before their connection", sessions.counters.ended_by_process),
    COUNT("sessions_kicked",       "of them, ended by an operator", sessions.counters.kicked),
    COUNT("hellos_dropped",        "connections that were silent when others came in their place", sessions.counters.silent),
    COUNT("hellos_refused",        "connections that were refused", sessions.counters.refused),
    COUNT("processes_attached",    "further processes that attached to a session", sessions.counters.attached),
    COUNT("messages",              "messages received", router.counters.messages),
    COUNT("message_requests",      "requests in them", router.counters.requests),
    COUNT("message_replies",       "replies sent", router.counters.replies),
    COUNT("messages_malformed",    "frames and requests that were refused unread", router.counters.malformed),
    COUNT("messages_foreign",      "messages of no session here", router.counters.foreign),
    COUNT("replies_unsendable",    "replies to peers that are gone or do not read", router.counters.unsendable),
    COUNT("ring_entries",          "entries taken from rings", rings.num_entries),
    COUNT("ring_wakes",            "times a ring woke the daemon", rings.num_wakes),
    COUNT("ring_malformed",        "entries that were refused unread", rings.num_malformed),
    COUNT("requests_timed_out",    "requests answered at their deadline", waitings.num_timeouts),
    COUNT("requests_cancelled",    "requests that were cancelled", waitings.num_cancelled),
    COUNT("requests_in_turn",      "requests that waited for earlier verbs of their sequences", turns.num_held),
    GAUGE("requests_held",         "of them, that wait now", turns.num_now),
    GAUGE("held_bytes",            "what is kept of them", turns.num_bytes),
    COUNT("turns_refused",         "requests refused because too much waited", turns.num_refused),
    COUNT("replies_late",          "results that nobody waited for any more", waitings.num_late),
    COUNT("blocks_named",          "blocks that keys were made for", prompts.num_named),
    COUNT("prompts_beside",        "prompts named by the namer", prompts.num_jobs),
    COUNT("prompts_overloaded",    "prompts refused because the namer's queue is full", prompts.num_overloaded),
    COUNT("attends",               "layers attended", steps.num_attends),
    COUNT("attends_queued",        "of them, by worker threads", steps.num_queued),
    COUNT("attends_failed",        "of them, that failed", steps.num_failed),
    COUNT("state_writes",          "versions of state files that were written", state.num_writes),
    GAUGE("state_unwritten",       "state files that are not durable yet as they are here", state.num_unwritten),
    COUNT("state_failures",        "of them, that the state directory would not take", state.num_failures),
    COUNT("commits",               "granules that were given memory", effects.counters.commits),
    COUNT("commits_ahead",         "granules that were given memory ahead of need", effects.counters.commits_ahead),
    COUNT("commits_failed",        "granules that the system had no memory for", effects.counters.failed_commits),
    COUNT("commits_waited",        "commits that waited for another granule's memory", effects.counters.waits_for_memory),
    COUNT("decommits",             "granules whose memory was given back", effects.counters.decommits),
    GAUGE("memory_adopting",       "1 while memory of an earlier life is being taken over", survival.counters.adopting),
    GAUGE("memory_granules",       "granules of an earlier life that were worth having", survival.counters.granules),
    GAUGE("memory_granules_done",  "of them, that are taken over, or lost", survival.counters.granules_done),
    GAUGE("memory_granules_failed", "of them, that were lost", survival.counters.granules_failed),
    GAUGE("memory_restored_blocks", "blocks of an earlier life that are known again", survival.counters.restored_blocks),
    GAUGE("memory_dropped_blocks", "blocks of an earlier life that were cleared, or are there twice", survival.counters.dropped_blocks),
    COUNT("memory_dropped_arenas", "arenas of an earlier life that are of no use: settings, domains or models are others now", survival.counters.arenas_dropped),
    COUNT("arenas_unkept",         "arenas that will not outlive the daemon", survival.counters.arenas_unkept),
};

/* Neighbours of one name, one a verb: what was done, and what was refused. */
#define VERB_ROWS(NAME, verb)                                                                      \
    {"requests", "requests answered with OK, by verb", STATS_COUNTER,                              \
     sizeof(struct request_counters) * KVPOOL__WIRE__REQUEST__VERB_##NAME +                        \
         offsetof(struct request_counters, done), "verb", verb}
#define REFUSED_ROWS(NAME, verb)                                                                   \
    {"requests_refused", "requests answered with another status, by verb", STATS_COUNTER,          \
     sizeof(struct request_counters) * KVPOOL__WIRE__REQUEST__VERB_##NAME +                        \
         offsetof(struct request_counters, refused), "verb", verb}
#define EACH_VERB(ROW)                                                                             \
    ROW(REGISTER_MODEL, "register_model"), ROW(OPEN_ARENA, "open_arena"),                          \
    ROW(ALLOCATE, "allocate"), ROW(APPEND, "append"), ROW(STEP, "step"), ROW(ATTEND, "attend"),    \
    ROW(END_STEP, "end_step"), ROW(PUBLISH, "publish"), ROW(WRITE, "write"), ROW(READ, "read"),    \
    ROW(FORK, "fork"), ROW(TRUNCATE, "truncate"), ROW(RELEASE, "release"),                         \
    ROW(PREEMPT, "preempt"), ROW(RESUME, "resume"), ROW(MATCH, "match"),                           \
    ROW(WAIT_ARRIVING, "wait_arriving"), ROW(PREFETCH, "prefetch"), ROW(CANCEL, "cancel"),         \
    ROW(STATS, "stats"), ROW(FILL, "fill"), ROW(DRAIN, "drain"), ROW(CLEAR, "clear"),              \
    ROW(SET_QUOTA, "set_quota"), ROW(CREATE_DOMAIN, "create_domain"), ROW(LIST, "list"),           \
    ROW(KICK, "kick"), ROW(SHUTDOWN, "shutdown")
static const struct stats_row verb_rows[] = {EACH_VERB(VERB_ROWS), EACH_VERB(REFUSED_ROWS)};
/* clang-format on */

static int stats_make(struct server *server, char *boot_text, size_t size)
{
    struct stats_options options = {
        .pool = server->pool,
        .device = server->device,
        .tables = {{.rows = rows, .num_rows = ARRAY_SIZE(rows), .base = server},
                   {.rows = verb_rows, .num_rows = ARRAY_SIZE(verb_rows), .base = server->requests},
                   {.rows = tier_rows, .num_rows = num_tier_rows, .base = &server->tier_stats}},
        .payer_tables = {{.rows = payer_tier_rows,
                          .num_rows = num_payer_tier_rows,
                          .base = server->tier_stats.payers,
                          .stride = sizeof(*server->tier_stats.payers)}},
        .max_payers = (uint32_t)server->config->max_payers,
        .num_labels = (uint32_t)server->config->metric_tenants,
        .version = KVPOOL_VERSION,
        .evictions = pool_evictions};

    for (size_t at = 0; at < sizeof(server->boot_id) && 2 * at + 2 < size; at++)
        (void)snprintf(boot_text + 2 * at, 3, "%02x", server->boot_id[at]);
    (void)snprintf(options.boot_id, sizeof(options.boot_id), "%s", boot_text);
    return stats_create(&options, &server->stats);
}

static int events_make(struct server *server, const char *boot_text)
{
    char path[128];
    int err = config_socket_path(server->config, CONFIG_STATS_SOCKET, path, sizeof(path));
    const struct events_options options = {.zmq_context = server->router.context,
                                           .socket_path = path,
                                           .socket_mode = (mode_t)server->config->operator_mode,
                                           .queue = (uint32_t)server->config->event_queue,
                                           .boot_id = boot_text,
                                           .text_bytes = stats_max_text(server->stats)};

    return err ? err : events_create(&options, &server->events);
}

static int http_make(struct server *server)
{
    const struct config *config = server->config;
    char path[128];
    struct http_options options = {.stats = server->stats,
                                   .socket_path = path,
                                   .socket_mode = (mode_t)config->operator_mode,
                                   .loopback_port = (uint16_t)config->http_port,
                                   .max_connections = (uint32_t)config->http_connections,
                                   .healthy_ms = (uint32_t)(config->stats_ms * 5 + 5000)};
    int err = config_socket_path(config, CONFIG_HTTP_SOCKET, path, sizeof(path));

    if (!config->http)
        return 0;
    if (!err && config->http_port > 0)
        err = token_read(config->http_token_file, &options.token);
    if (err > 0) {
        log_event(LOG_ERROR, "token_failed", log_text("file", config->http_token_file),
                  log_text("problem", token_text(err)));
        return -EINVAL;
    }
    return err ? err : http_start(&options, &server->http);
}

int watch_check(struct server *server)
{
    struct gpu_fallback fallbacks[STATS_MAX_FALLBACKS];

    tier_stats_fallbacks(server);
    survive_tick(server); /* whether memory is kept */
    size_t count = stats_fallbacks(server->stats, NULL, 0);
    size_t num_device = gpu_device_fallbacks(server->device, fallbacks, ARRAY_SIZE(fallbacks));

    for (size_t at = 0; at < num_device && at < ARRAY_SIZE(fallbacks); at++) /* others were said */
        log_event(LOG_WARN, "fallback", log_text("name", fallbacks[at].name),
                  log_text("cost", fallbacks[at].cost), log_error("reason", fallbacks[at].reason));
    if (count == 0 || !server->config->strict)
        return 0;
    log_event(LOG_ERROR, "strict",
              log_text("problem", "the setting `strict` refuses the fallbacks above: mend them, or "
                                  "go without it"));
    return -EPERM;
}

int watch_make(struct server *server)
{
    char boot_text[2 * HELLO_ID_BYTES + 1] = "";
    int err = stats_make(server, boot_text, sizeof(boot_text));

    if (!err)
        err = events_make(server, boot_text);
    if (!err)
        err = http_make(server);
    if (err)
        return err;
    stats_set_state(server->stats, STATS_READY);
    watch_take(server);
    return 0;
}

void watch_take(struct server *server)
{
    observers_take(&server->observers, server->events, server->http);
    tier_stats_take(server);
    if (!server->is_draining)
        stats_set_state(server->stats,
                        server_is_recovering(server) ? STATS_RECOVERING : STATS_READY);
    stats_take(server->stats, server->now_ms);
    server->last_stats_ms = server->now_ms;
}

void watch_finish(struct server *server)
{
    http_stop(server->http);
    events_destroy(server->events);
    stats_destroy(server->stats);
    server->stats = NULL;
}

void server_block_event(struct server *server, const struct pool_effect *effect)
{
    struct pool_arena_description arena; /* it may have no memory yet: restored from below */

    if (pool_arena_describe(server->pool, effect->arena, &arena))
        return;
    const struct events_block block = {.is_stored = effect->kind == POOL_EFFECT_STORED,
                                       .key = *effect->key,
                                       .parent = effect->parent,
                                       .tokens = effect->tokens,
                                       .num_tokens = effect->num_tokens,
                                       .domain = server->tenants.payers[arena.domain].name,
                                       .model = server->models.models[arena.model].name,
                                       .group = arena.group};

    const struct journal_event own = {.key = *effect->key,
                                      .model = arena.model,
                                      .group = arena.group,
                                      .is_stored = block.is_stored};

    journal_add(&server->journal, arena.domain, &own);
    events_block(server->events, &block);
}
