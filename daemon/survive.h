/*
 * daemon/survive.h - the memory of the device's and the host's arenas outlives the daemon.
 *
 * A keeper (keep.h) has the descriptors of every arena, and of a table (records.h) that says what
 * its slots have. The next daemon takes them back, adopts the memory (adopt.h) while it answers
 * verbs, and tells the pool what is in it.
 *
 *  V1  A slot's record goes before the slot is given out (POOL_EFFECT_GONE), and comes after its
 *      block was published (POOL_EFFECT_PRESENT).
 *  V2  No descriptor of an arena is exported before the keeper has the arena; and none for writing
 *      before its table says so.
 *  V3  What cannot be adopted (another budget, page or shape, a domain or model that is no more) is
 *      given back to the machine.
 */
#pragma once

#include "daemon/adopt.h"
#include "daemon/keep.h"
#include "daemon/source.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

/* An arena of a device or of the host, by the pool's number. */
struct survivor {
    struct records *records; /* NULL: it is not kept */
    uint64_t number;         /* of its items at the keeper */
    pool_payer domain;
    pool_model model;
};

struct survival {
    struct keep *keep; /* NULL: nothing is kept */
    struct kept kept;
    struct source source;
    struct survivor *arenas;
    uint32_t num_arenas, first_spare;
    struct adopt *adopts[POOL_NUM_TIERS]; /* while memory is being adopted */
    bool is_adopted[POOL_NUM_TIERS];      /* the tier's device is one of before */
    bool is_adopting, is_forgotten;
    uint64_t began_ms;
    struct {
        uint64_t adopting; /* 1: memory of before is being adopted */
        uint64_t restored_blocks, dropped_blocks;
        uint64_t granules, granules_done, granules_failed;
        uint64_t arenas_dropped; /* of an earlier life, that are of no use now */
        uint64_t arenas_unkept;  /* their tables could not be had, or the keeper took no more */
    } counters;
};

/* Takes back what an earlier daemon left; before devices are made. -errno, which is logged. */
int survive_init(struct server *server);
void survive_finish(struct server *server);

/* The mount that a tier's device is to be adopted on, -1 for memfds; false: make a new one. */
bool survive_has_device(const struct server *server, enum pool_tier tier, int *out_mount_fd);
/* The device was made, or (@is_adopted) took that mount. Its arenas' numbers from
 * survive_first_spare() on are for survive_begin(), as many as it says. */
void survive_device_made(struct server *server, enum pool_tier tier,
                         const struct gpu_device *device, bool is_adopted);
uint32_t survive_num_spare(const struct server *server);

/* Once domains and models are known, before verbs are answered: claims what is worth having. What
 * cannot be adopted is given up, and said. */
void survive_begin(struct server *server);
/* Whether more is to be done. */
bool survive_run(struct server *server);
/* An operation of the adoption of @tier ended. */
void survive_reaped(struct server *server, enum pool_tier tier, uint64_t cookie, int status);

/* An arena was opened, anew. */
void survive_opened(struct server *server, uint32_t number, const struct gpu_device *device);
/* What it held is gone, and its memory goes. */
void survive_closed(struct server *server, uint32_t number);
/* V2: about to be exported for writing. */
void survive_set_writable(struct server *server, uint32_t number);
uint64_t survive_mark(const struct server *server);
bool survive_passed(const struct server *server, uint64_t mark);

/* V1 */
void survive_told(struct server *server, const struct pool_effect *effect);

/* Of `kvpool shutdown --forget`: also what an earlier daemon left, if this one keeps nothing. */
void survive_forget(struct server *server);

/* Once a second. */
void survive_tick(struct server *server);
