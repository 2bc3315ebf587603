/* tests/bench/daemon_bed.h - a kvpoold of its own in a temporary directory, and engines of it. */
#pragma once

#include "client-lib/kvpool.h"
#include "tests/bench/bench.h"

#include <sys/types.h>

struct daemon_bed {
    char dir[64], run[80];
    pid_t pid;
};

/* Each exits with a text where something fails: there is nothing to measure then. */
void daemon_bed_directory(struct daemon_bed *bed);
/* @settings are lines behind those of the directory. No memory outlives it, unless they say so. */
void daemon_bed_spawn(struct daemon_bed *bed, const char *program, const char *settings);
/* The same; it answers then. */
void daemon_bed_start(struct daemon_bed *bed, const char *program, const char *settings);
void daemon_bed_stop(struct daemon_bed *bed);   /* the daemon */
void daemon_bed_finish(struct daemon_bed *bed); /* and its directory */

struct kvpool *daemon_bed_connect(const struct daemon_bed *bed, uint32_t flags);
uint32_t daemon_bed_model(struct kvpool *kvpool, const struct kvpool_model *model);
void daemon_bed_must(struct kvpool *kvpool, int answer, const char *what); /* be 0 */

void daemon_bed_tokens(uint32_t *out, size_t count, uint32_t seed);

/* tests/bench/bench_daemon_blocks.c: fetch and store through a mapped arena. */
struct limit_echo;
void bench_blocks(struct bench *bench, struct daemon_bed *bed, const char *program,
                  struct limit_echo *echo);
