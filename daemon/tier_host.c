/* daemon/tier_host.c - the pinned host tier: arenas of a second device below the pool's. */
#include "daemon/tier_host.h"

#include "daemon/server.h"
#include "offload/host.h"

#include <errno.h>
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

int pinned_make(struct server *server, enum pool_tier tier, const struct gpu_device_options *device,
                struct host_tier **out_pinned)
{
    struct host_tier_options options = {.device = *device};
    int mount_fd, err = -ENOENT;
    bool is_adopted = survive_has_device(server, tier, &mount_fd);

    options.mount_fd = &mount_fd;
    if (is_adopted)
        err = host_tier_create(&options, out_pinned);
    is_adopted = !err;
    options.mount_fd = NULL;
    if (err) /* there is none, or of another size */
        err = host_tier_create(&options, out_pinned);
    if (!err)
        survive_device_made(server, tier, host_tier_device(*out_pinned), is_adopted);
    return err;
}

int tier_host_init(struct server *server)
{
    struct tiers *tiers = &server->tiers;
    const struct config *config = server->config;
    const struct gpu_device_options options = {.budget_bytes = config->host_tier_bytes,
                                               .page_bytes = (uint32_t)config->page_bytes,
                                               .max_arenas =
                                                   tiers->num_arenas + survive_num_spare(server),
                                               .max_operations = MAX_OPERATIONS,
                                               .without_mount = !config->private_mount};
    int err = pinned_make(server, POOL_TIER_HOST, &options, &tiers->host);

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

int tier_host_open(struct server *server, uint32_t number)
{
    struct pool_arena_description description;
    struct gpu_arena_options options;

    if (pool_arena_describe(server->pool, number, &description))
        return -ENOENT;
    arena_options(server, &description, server->config->host_tier_bytes, &options);
    int err = host_tier_arena_open(server->tiers.host, number, &options);
    if (!err)
        survive_opened(server, number, tier_host_device(server));
    return err;
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
        for (size_t at = 0; at < count; at++) {
            uint64_t cookie = completions[at].cookie;
            if (cookie >> EFFECTS_COOKIE_SHIFT == EFFECTS_COOKIE_ADOPT)
                survive_reaped(server, POOL_TIER_HOST, cookie, completions[at].status);
            else
                lower_ended(server, cookie, completions[at].status);
        }
        total += count;
    }
    return total > 0;
}
