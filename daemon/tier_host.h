/* daemon/tier_host.h - the pinned host tier: arenas of a second device below the pool's. */
#pragma once

#include "daemon/source.h"
#include "gpu/gpu.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

/*
 * A device whose memory is interleaved and pinned, as far as the machine lets it: made of what an
 * earlier life left for @tier, or new. -errno.
 */
struct host_tier;
int pinned_make(struct server *server, enum pool_tier tier, const struct gpu_device_options *device,
                struct host_tier **out_pinned);

int tier_host_init(struct server *server);
void tier_host_finish(struct server *server);

struct gpu_device *tier_host_device(const struct server *server);

/* -errno as gpu_arena_open(). */
int tier_host_open(struct server *server, uint32_t number);
void *tier_host_address(struct server *server, uint32_t number, uint32_t slot,
                        uint32_t stride_bytes);

/* Takes completions; whether there was one. */
bool tier_host_reap(struct server *server);
