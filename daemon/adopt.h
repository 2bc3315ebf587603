/*
 * daemon/adopt.h - what survived of a device's memory becomes memory of its arenas again, in the
 * background, granule by granule.
 *
 *  T1  An arena that was never exported for writing is adopted in its place. One that was is copied
 *      into an arena that no earlier mapping reaches, within the budget: a granule is given up at
 *      the old end before or as it is filled at the new one. One that nobody has a use for loses
 *      its memory.
 *  T2  A record is written for a slot after its bytes are there; the old place of them goes after
 *      that, and after the keeper has the new one: killed at any time, what survived before
 * survives again (but for one granule where the budget has no room for both). T3  What is wanted is
 * charged, and its granules are named to the sink, in adopt_create(): no verb that is answered
 * meanwhile takes their place.
 */
#pragma once

#include "daemon/kept.h"

struct adopt;

/* Who knows what blocks are. Called from adopt_create() and adopt_run(); must not call back. */
struct adopt_sink {
    void *context;
    /* The arena of such blocks today, its options being what the table says; GPU_NO_ARENA: their
     * domain or model is not known, or they are shaped otherwise now. */
    uint32_t (*find)(void *context, const struct records_options *options);
    /* The arena was opened in its place. The table is the context's from now on; it stays until
     * adopt_destroy(). */
    void (*adopted)(void *context, uint32_t arena, uint64_t number, struct records *records);
    /* The table of an arena that is to be copied to, which is opened, and handed over to the
     * keeper, if it was not; or NULL. */
    struct records *(*open)(void *context, uint32_t arena);
    /* Claims a granule, of a number that is in use by nobody: 0, or else it is not to be had;
     * -EEXIST: this one, but maybe another one. */
    int (*claim)(void *context, uint32_t arena, uint32_t granule);
    /* It has memory, and the arena's table says what its slots have: maybe nothing. What the
     * context has no use for, it clears. */
    void (*restored)(void *context, uint32_t arena, uint32_t granule);
    /* It has no memory: the claim is void. */
    void (*failed)(void *context, uint32_t arena, uint32_t granule);
};

struct adopt_options {
    struct gpu_device *device;
    struct keep *keep;
    struct kept *kept; /* stays until adopt_destroy() */
    uint32_t tier;     /* only arenas of this one */
    /* Numbers of the device that nothing else uses: as many as @kept has arenas. */
    uint32_t first_spare;
    uint64_t cookie; /* of operations, but for the lower 32 bits, which are 0 here */
    struct adopt_sink sink;
};

/* Does not wait, and moves no byte. The device has operation records for as many as @kept has
 * arenas. -ENOMEM: nothing was adopted. */
int adopt_create(const struct adopt_options *options, struct adopt **out_adopt);
void adopt_destroy(struct adopt *adopt); /* after its last operation ended. Takes NULL */

/* Gives the device what it takes. Returns whether anything is left to do: call it again after
 * adopt_reaped(), and after keep_run(). */
bool adopt_run(struct adopt *adopt);

/* The end of an operation with the cookie. */
void adopt_reaped(struct adopt *adopt, uint64_t cookie, int status);

struct adopt_progress {
    uint32_t arenas_adopted, arenas_copied, arenas_dropped;
    uint32_t arenas_failed;    /* of those dropped: that were to be adopted or copied */
    uint32_t granules_refused; /* that could not be claimed, and do not count below */
    uint32_t granules;         /* that were found worth having */
    uint32_t granules_done;    /* of them: over, one way or the other */
    uint32_t granules_failed;  /* of those: had a hole, or there was no memory */
    int problem;               /* of the last one that was lost: negative errno; 0: none was */
};
const struct adopt_progress *adopt_progress(const struct adopt *adopt);
