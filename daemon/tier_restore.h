/*
 * daemon/tier_restore.h - what an earlier life left on disk becomes known to the pool again.
 *
 * All granules in use are claimed at once, so that nothing is written over them; their headers are
 * read beside the loop, and their blocks told to the pool slice by slice, while verbs are answered.
 * What is of a domain, a model or an epoch that is no more is given back.
 */
#pragma once

#include "offload/disk.h"

#include <stddef.h>
#include <stdint.h>

struct server;
struct lower_arena;

/* What is written beside a granule: whose it is. Answers its bytes. */
size_t tier_restore_owner(const struct lower_arena *arena, uint8_t out[DISK_MAX_OWNER_BYTES]);

/* A table of all granules, before the disk is open. -ENOMEM. */
int tier_restore_init(struct server *server);
/* The disk is open, its free granules are known. What cannot be read is no block: it is empty. */
void tier_restore_begin(struct server *server);
/* One slice; answers how many blocks it saw, and ends the recovery behind the last. */
size_t tier_restore_run(struct server *server);
void tier_restore_finish(struct server *server);
