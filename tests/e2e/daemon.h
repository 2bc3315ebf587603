/* tests/e2e/daemon.h - a real kvpoold in a directory of its own, and engines as real processes. */
#pragma once

#include "client-lib/kvpool.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon {
    char dir[64]; /* run/, state/, kvpoold.yaml */
    pid_t pid;
};

/* If set: called in each daemon's process before it is one. */
extern void (*daemon_prepare)(void);

/* The directory with the file only. */
void daemon_make(struct daemon *daemon, const char *config);
/* Starts kvpoold ($KVPOOLD) with @config behind what the directory sets; waits until it answers. */
void daemon_start(struct daemon *daemon, const char *config);
/* The same directory again, after it was killed. */
void daemon_restart(struct daemon *daemon);
/* The two halves of it: the process; and until it answers. */
void daemon_spawn(struct daemon *daemon);
void daemon_await(const struct daemon *daemon);
/* SIGTERM, or SIGKILL; its exit status, or 128 and the signal. */
int daemon_stop(struct daemon *daemon, int signal);
/* Stops it if it runs, and removes the directory. */
void daemon_finish(struct daemon *daemon);

/* For cmocka: *state is a daemon with a pool of 16 MiB; the second finishes whichever it is. */
int daemon_setup(void **state);
int daemon_teardown(void **state);

/* As tenant `a` (this user), or by a token. */
struct kvpool *engine_connect(const struct daemon *daemon, const char *token, uint32_t flags);
struct kvpool *operator_connect(const struct daemon *daemon);

/* One of the operator's numbers: the first "name": in the JSON of Stats. UINT64_MAX: not there. */
uint64_t stat_read(const struct daemon *daemon, const char *name);
/* Until a number is @value; fails the test after @ms. */
void stat_await(const struct daemon *daemon, const char *name, uint64_t value, unsigned ms);

/* Whether its status has a fallback of this name: something that it goes without. */
bool has_fallback(const struct daemon *daemon, const char *name);

uint64_t now_ms(void);

/* A small model: 2 layers, 4 q heads, 2 kv heads, dim 16, f32, 16 tokens a block. */
extern const struct kvpool_model small_model;
/* @count tokens that differ with @seed. */
void tokens_make(uint32_t *out, size_t count, uint32_t seed);
