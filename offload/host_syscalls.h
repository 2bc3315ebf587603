/* offload/host_syscalls.h - internal: the system calls of the host tier, so that a test can refuse
 * them. Each does what the call of its name does: -1 and errno. */
#pragma once

#include "offload/host.h"

struct host_tier_syscalls {
    int (*mlock2)(const void *address, size_t bytes, unsigned flags);
    /* Whether so much could be locked; locks nothing. NULL: that is not asked. */
    int (*may_lock)(size_t bytes);
    int (*munlock)(const void *address, size_t bytes);
    long (*mbind)(void *address, unsigned long bytes, int mode, const unsigned long *nodes,
                  unsigned long max_node, unsigned flags);
    /* Answers how many nodes this process may use, and sets their bits. */
    int (*nodes)(unsigned long *out_nodes, unsigned long max_node);
};

extern const struct host_tier_syscalls host_tier_syscalls; /* the real ones */

int host_tier_create_with(const struct host_tier_options *options,
                          const struct host_tier_syscalls *system, struct host_tier **out_tier);
