/*
 * daemon/server.h - all that the owner thread has. One thread, the loop: it alone touches this, the
 * pool and the device. Other threads are the device's, the attention's workers, the namer, HTTP.
 */
#pragma once

#include "daemon/arenas.h"
#include "daemon/call.h"
#include "daemon/config.h"
#include "daemon/dispatch.h"
#include "daemon/effects.h"
#include "daemon/journal.h"
#include "daemon/lower.h"
#include "daemon/models.h"
#include "daemon/observers.h"
#include "daemon/ring_server.h"
#include "daemon/router.h"
#include "daemon/sequences.h"
#include "daemon/session.h"
#include "daemon/source.h"
#include "daemon/state.h"
#include "daemon/steps.h"
#include "daemon/survive.h"
#include "daemon/tenant.h"
#include "daemon/tier_stats.h"
#include "daemon/turns.h"
#include "daemon/waiting.h"

#include "daemon/prompts.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define NO_INDEX UINT32_MAX

struct stats;
struct events;
struct http;

enum { MAX_VERBS = 64 };

/* What a reply points to until it is packed. */
struct scratch {
    struct pool_place *places;
    uint32_t *slots, *generations; /* of all groups, one after the other */
    uint32_t max_places;
    Kvpool__Wire__Table tables[POOL_MAX_GROUPS];
    Kvpool__Wire__Table *table_list[POOL_MAX_GROUPS];
    Kvpool__Wire__TableResult table;
    Kvpool__Wire__MatchResult match;
    Kvpool__Wire__ModelResult model;
    Kvpool__Wire__ArenaResult arena;
    Kvpool__Wire__StepResult step;
    Kvpool__Wire__DataResult data;
    Kvpool__Wire__StatsResult stats;
    Kvpool__Wire__ListResult list;
    uint64_t block_bytes[POOL_MAX_GROUPS], stride_bytes[POOL_MAX_GROUPS];
    uint32_t slots_per_granule[POOL_MAX_GROUPS];
    char *json;
    size_t json_bytes;
};

struct server {
    struct config *config;
    uint8_t boot_id[HELLO_ID_BYTES];
    struct pool *pool;
    struct gpu_device *device;
    struct host_tier *pinned; /* that has it, with pool-pinned; or NULL */
    struct key_hasher *hasher;
    struct stats *stats;
    struct events *events;
    struct http *http;
    struct observers observers;
    struct journal journal;

    struct state state;
    struct tenants tenants;
    struct models models;
    struct effects effects;
    struct tiers tiers;
    struct tier_stats tier_stats;
    struct survival survival;
    struct sessions sessions;
    struct sequences sequences;
    struct prompts prompts;
    struct waitings waitings;
    struct turns turns;
    struct steps steps;
    struct router router;
    struct ring_server rings;
    struct scratch scratch;
    struct request_counters requests[MAX_VERBS];

    uint64_t pass; /* of the loop */
    int epoll_fd;
    struct source timer, signals, device_source, namer_source, state_source;
    uint32_t num_cpus;
    long num_preempted;
    uint64_t no_spin_until_ms;
    uint64_t now_ms, started_ms;
    uint64_t last_second_ms, last_stats_ms;
    uint64_t drain_end_ms;
    int exit_status; /* of server_run() */
    bool is_timer_fast, is_draining, is_stopping, has_more;
    int lock_fd;
    const char *config_path;
};

int server_create(struct config *config, const char *config_path, struct server **out_server);
void server_destroy(struct server *server);

/* Until it is told to stop. */
int server_run(struct server *server);

/* No new sequences; it stops once nothing is held, or after drain_ms. */
void server_drain(struct server *server, bool is_draining);

/* At once: what runs the loop ends with exit_status. */
void server_stop(struct server *server);

/* What an earlier life left is not all known yet. */
bool server_is_recovering(const struct server *server);

/* Of CLOCK_MONOTONIC, read now; server->now_ms is that of the pass. */
uint64_t server_now_us(void);

/* For the rings: whether looking at them without sleep takes nothing from anybody. */
bool server_may_spin(struct server *server);

void server_block_event(struct server *server, const struct pool_effect *effect);
