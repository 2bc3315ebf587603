/* daemon/tier_host.c - the pinned host tier: arenas of a second device below the pool's. */
#include "daemon/tier_host.h"

#include "daemon/server.h"
#include "offload/host.h"

#include <sys/epoll.h>

enum { MAX_OPERATIONS = 1024 };

static void host_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    (void)tier_host_reap(server);
}

struct gpu_device *tier_host_device(const struct server *server)
{
    return host_tier_device(server->tiers.host);
}

int tier_host_init(struct server *server)
{
    struct tiers *tiers = &server->tiers;
    const struct config *config = server->config;
    const struct host_tier_options options = {.device = {.budget_bytes = config->host_tier_bytes,
                                                         .page_bytes = (uint32_t)config->page_bytes,
                                                         .max_arenas = tiers->num_arenas,
                                                         .max_operations = MAX_OPERATIONS,
                                                         .without_mount = !config->private_mount}};
    int err = host_tier_create(&options, &tiers->host);

    if (err)
        return err;
    tiers->host_source =
        (struct source){.fd = gpu_device_event_fd(tier_host_device(server)), .ready = host_ready};
    return source_add(server, &tiers->host_source, EPOLLIN);
}

void tier_host_finish(struct server *server)
{
    source_remove(server, &server->tiers.host_source);
    host_tier_destroy(server->tiers.host);
    server->tiers.host = NULL;
}

int tier_host_open(struct server *server, uint32_t number, const struct gpu_granule *granule,
                   const struct lower_arena *arena)
{
    const struct gpu_arena_options options = {
        .granule = *granule,
        .block_bytes = arena->block_bytes,
        .max_granules = arena->max_granules,
        .is_shared = tenants_is_domain(&server->tenants, arena->domain)};

    return host_tier_arena_open(server->tiers.host, number, &options);
}

void *tier_host_address(struct server *server, uint32_t number, uint32_t slot,
                        uint32_t stride_bytes)
{
    char *base = gpu_arena_base(tier_host_device(server), number);

    return base ? base + (uint64_t)(slot - 1) * stride_bytes : NULL;
}

bool tier_host_reap(struct server *server)
{
    struct gpu_completion completions[64];
    size_t count, total = 0;

    while ((count = gpu_device_reap(tier_host_device(server), completions,
                                    ARRAY_SIZE(completions))) > 0) {
        for (size_t at = 0; at < count; at++)
            lower_ended(server, completions[at].cookie, completions[at].status);
        total += count;
    }
    return total > 0;
}
