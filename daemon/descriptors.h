/*
 * daemon/descriptors.h - enough file descriptors, and a bound for those of ZeroMQ's peers.
 *
 * Whoever may connect to a socket of ZeroMQ could take every descriptor that we have: then no
 * session begins any more, and libzmq 4.3, which asserts that accept4() does not fail with EMFILE,
 * ends the process. So its listeners are guarded: over their ceiling a connection is accepted and
 * closed, and no failure is reported that it does not bear.
 */
#pragma once

#include <stdint.h>

enum descriptors_of {
    DESCRIPTORS_ENGINES,  /* anybody: three quarters of the limit, and no more than are of use */
    DESCRIPTORS_OPERATORS /* by file mode: seven eighths; engines cannot shut them out */
};

struct descriptors_need {
    uint64_t own;   /* of all but ZeroMQ's peers */
    uint64_t peers; /* of engines */
};

/* Raises the limit of this process as far as it goes. The limit, which may be too low for @need. */
uint64_t descriptors_prepare(const struct descriptors_need *need);

/* @fd listens for ZeroMQ, which accepts from it in a thread of its own; until
 * descriptors_release(). -ENOSPC: too many are guarded. */
int descriptors_guard(int fd, enum descriptors_of of);
void descriptors_release(int fd);
