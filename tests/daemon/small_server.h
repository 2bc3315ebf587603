/* tests/daemon/small_server.h - a server with all tiers in the test's own process, of 1 MiB each.
 */
#pragma once

#include "daemon/config.h"
#include "daemon/server.h"
#include "tests/support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* One life after the other may be had in its directory. */
struct small_server {
    char dir[64], path[128];
    struct config *config;
    struct server *server; /* NULL: it is not up */
};

/* @settings: further lines of its configuration. */
static inline void small_server_init(struct small_server *small, const char *settings)
{
    *small = (struct small_server){.dir = "/tmp/kvpool-small-XXXXXX"};
    assert_non_null(mkdtemp(small->dir));
    (void)snprintf(small->path, sizeof(small->path), "%s/disk", small->dir);
    assert_int_equal(mkdir(small->path, 0700), 0);
    (void)snprintf(small->path, sizeof(small->path), "%s/kvpoold.yaml", small->dir);
    FILE *out = fopen(small->path, "w");
    assert_non_null(out);
    fprintf(out,
            "run-directory: %s\nstate-directory: %s\ndisk-directory: %s/disk\npage-bytes: 64KiB\n"
            "pool-bytes: 1MiB\nhost-tier-bytes: 1MiB\ndisk-max-bytes: 2MiB\n"
            "disk-granule-bytes: 256KiB\ndisk-max-block-bytes: 64KiB\ndisk-queue-depth: 4\n"
            "max-blocks: 256\ndisk-max-blocks: 256\nmax-sequences: 16\nmax-tokens: 65536\n"
            "max-sessions: 4\nmax-tenant-sessions: 4\nmax-arenas: 8\nmax-models: 4\ncredits: 4\n"
            "max-transfers: 64\nmax-waiters: 16\nmax-steps: 4\nworker-threads: 1\n%s",
            small->dir, small->dir, small->dir, settings);
    assert_int_equal(fclose(out), 0);
}

static inline void small_server_load(struct small_server *small)
{
    static struct config_error error;

    assert_int_equal(config_load(small->path, &small->config, &error), 0);
}

/* After small_server_load(): 0, or -errno of server_create(), and then there is none. */
static inline int small_server_create(struct small_server *small)
{
    int err = server_create(small->config, small->path, &small->server);
    if (!err)
        return 0;
    small->server = NULL;
    config_destroy(small->config);
    return err;
}

static inline int small_server_start(struct small_server *small)
{
    small_server_load(small);
    return small_server_create(small);
}

static inline void small_server_stop(struct small_server *small)
{
    if (!small->server)
        return;
    server_destroy(small->server);
    config_destroy(small->config);
    small->server = NULL;
}

static inline int small_server_remove(const char *name, const struct stat *status, int type,
                                      struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(name);
}

static inline int small_server_finish(struct small_server *small)
{
    small_server_stop(small);
    return nftw(small->dir, small_server_remove, 8, FTW_DEPTH | FTW_PHYS);
}
