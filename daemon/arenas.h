/* daemon/arenas.h - arenas that have memory, by the pool's number: the device's and the host's
 * alike. */
#pragma once

#include "daemon/effects.h"
#include "gpu/gpu.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

/* What an arena of the device or the host is opened with, below a budget of @budget_bytes. */
void arena_options(struct server *server, const struct pool_arena_description *description,
                   uint64_t budget_bytes, struct gpu_arena_options *out_options);

/* Opens it, unless it is. */
bool arena_is_had(struct server *server, uint32_t number);
/* It was opened on files of before: survive.c. */
void arena_was_adopted(struct server *server, uint32_t number);

/* 0: nobody has the granule, and it has no memory. -EEXIST; -ENOMEM: that cannot be known. */
int arena_granule_check(struct server *server, uint32_t number, uint32_t granule);
/* The pool has it, with memory of before: coming, there, or (it was lost) none. */
void arena_granule_set(struct server *server, uint32_t number, uint32_t granule,
                       enum granule_memory memory);
