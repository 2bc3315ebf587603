/*
 * daemon/keep.h - the descriptors that memory consists of are kept by somebody who outlives us.
 *
 * A keeper is systemd's descriptor store, or a holder: a process of ours (`kvpoold hold`) that does
 * nothing else. What it has comes back to the next daemon of the same directory. If the keeper is
 * lost, another one is started and everything is handed over again; until then the state has a
 * name.
 *
 *  K1  An item counts as kept when the keeper said that it has it. keep_passed() tells when all
 *      items up to a mark are; nothing is exported to an engine before.
 *  K2  What is kept stays kept until it is removed or forgotten: whatever becomes of us.
 *
 * One thread makes all calls. But for keep_create() and the two that forget none of them waits.
 */
#pragma once

#include "daemon/notify.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep;
struct gpu_fallback;

enum keep_kind {            /* as the words of the setting `keep` */
                 KEEP_AUTO, /* systemd's store if it runs us and has one, else a holder */
                 KEEP_NONE,
                 KEEP_SYSTEMD,
                 KEEP_HOLDER,
                 NUM_KEEP_KINDS
};

struct keep_options {
    enum keep_kind kind;
    const char *directory; /* one daemon at a time: that it has the lock is the caller's to see */
    uint64_t limit_ms;     /* a holder without a daemon gives everything up after this; 0: never */
    uint32_t max_items;
    const char *program; /* that is run as the holder; NULL: this one */
};

enum { KEEP_MAX_NAME = NOTIFY_MAX_NAME };

struct keep_item {
    char name[KEEP_MAX_NAME]; /* letters, digits, '.', '_' and '-' */
    int fd;
};

/*
 * Finds the keeper and takes back what it has, for up to 5 s; where that fails, it goes on without
 * one and says so in keep_fallback(). -EBUSY: another daemon has the holder of this directory.
 * -EINVAL: no such directory. -ENOMEM, -EMFILE.
 */
int keep_create(const struct keep_options *options, struct keep **out_keep);
void keep_destroy(struct keep *keep); /* what is kept stays kept. Takes NULL */

enum keep_kind keep_kind(const struct keep *keep); /* not KEEP_AUTO */

/* What an earlier daemon left, in no order. The descriptors are the caller's; their items stay kept
 * until they are removed. */
const struct keep_item *keep_taken(const struct keep *keep, size_t *out_count);

/*
 * @fd stays the caller's, and open, until its item is removed: it may have to be handed over again.
 * -EEXIST: there is such a name. -EINVAL: it is no name. -ENOSPC: max_items.
 */
int keep_add(struct keep *keep, const char *name, int fd);
void keep_remove(struct keep *keep, const char *name); /* one that is not there too */

/* All that was added until now; K1. Items that were refused for good are waited for no longer. */
uint64_t keep_mark(const struct keep *keep);
bool keep_passed(const struct keep *keep, uint64_t mark);

/* Gives everything up that its keeper has, and waits up to 2 s for it. Nothing is kept after it. 0,
 * -ETIMEDOUT, ... */
int keep_forget(struct keep *keep);

/*
 * Gives up what any keeper has of earlier daemons of @directory: also of those that had another
 * kind of it. None is started for it. Waits up to 2 s for each. -EBUSY: a daemon has the holder.
 */
int keep_forget_left(const char *directory);

/* Readable while there is something for keep_run(), which is called once a second besides. */
int keep_event_fd(const struct keep *keep);
void keep_run(struct keep *keep, uint64_t now_ms);

/* Whether memory is kept less well than asked for now, and why. Texts are constant. */
bool keep_fallback(const struct keep *keep, struct gpu_fallback *out_fallback);

struct keep_counters {
    uint64_t items;   /* added and not removed */
    uint64_t waiting; /* of them: the keeper has not said yet that it has them */
    uint64_t refused; /* of them: that it would not take */
    uint64_t taken;   /* items that an earlier daemon left */
    uint64_t lost;    /* of those: came without a descriptor (our limit), and are gone */
    uint64_t keepers_lost;
};
const struct keep_counters *keep_counters(const struct keep *keep);
