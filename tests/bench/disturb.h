/*
 * tests/bench/disturb.h - a process that disturbs while it is told to: stores of the daemon's, or
 * bare writes to the same disk.
 */
#pragma once

#include "tests/bench/tier_bed.h"

enum disturb { DISTURB_NOT, DISTURB_STORES, DISTURB_WRITES };

struct disturber {
    pid_t pid;
    int wake_fd;
    struct disturb_memory *memory;
};

/* Forks, so before this process has connections. Ends the program where it cannot. */
void disturber_start(struct disturber *disturber, const struct tier_bed *bed);
void disturber_stop(struct disturber *disturber);

/* Returns when it does so. DISTURB_NOT: when nothing of it is outstanding. */
void disturber_set(struct disturber *disturber, enum disturb how);
