/* tests/bench/tier_bed.h - a kvpoold with tiers below its pool, on a directory of its own. */
#pragma once

#include "tests/bench/daemon_bed.h"

struct tier_bed {
    struct daemon_bed daemon;
    const char *program;
    char disk[256], settings[1024];
    struct kvpool *operator_;
};

/*
 * $KVPOOLD below $KVPOOLD_BENCH_DIR, /var/tmp if it is not set: @title names it. Nothing runs yet.
 * False: said why, exit.
 */
bool tier_bed_init(struct tier_bed *bed, const char *title);

/* @settings are lines; those of the disk's directory are added if @disk_bytes > 0. */
void tier_bed_start(struct tier_bed *bed, const char *settings, uint64_t disk_bytes);
void tier_bed_kill(struct tier_bed *bed);    /* SIGKILL: files stay */
void tier_bed_respawn(struct tier_bed *bed); /* with the settings that it had; does not wait */
void tier_bed_stop(struct tier_bed *bed);    /* and what is on its disk */
void tier_bed_finish(struct tier_bed *bed);

/* A number of one tier ("device", "host", "disk"), or of none (NULL). UINT64_MAX: not there. */
uint64_t tier_bed_number(struct tier_bed *bed, const char *name, const char *tier);
/* Blocks that a tier was to have and does not, for whatever reason. */
uint64_t tier_bed_skipped(struct tier_bed *bed, const char *tier);
/* Until nothing is being stored in @tier. */
void tier_bed_settle(struct tier_bed *bed, const char *tier);
