/* tests/e2e/store.h - prompts whose blocks say what they are: stored, found again, compared. */
#pragma once

#include "client-lib/kvpool.h"

#include <stdbool.h>
#include <stdint.h>

enum { STORE_BLOCK = 60000, STORE_TOKENS = 16, STORE_MAX_BLOCKS = 64 };

/* An opaque model of STORE_BLOCK bytes a block: one in a page of 64 KiB. */
extern const struct kvpool_model store_model;
uint32_t store_register(struct kvpool *kvpool);

/* @num_blocks whole blocks of the prompt @seed. */
struct kvpool_prompt store_prompt(uint32_t model, uint32_t seed, uint32_t num_blocks,
                                  uint32_t *tokens);

/* Allocates, writes, publishes and, unless @keep, releases sequence @seed. A status. */
int store_put(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks, bool keep);

/* Allocates sequence @seed as far as it matches, compares every block that matched, releases it.
 * Answers its status; @out has the numbers. Blocks that are not exact fail the test. */
int store_get(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks,
              struct kvpool_result *out);
/* The blocks of a sequence that is there. */
void store_check(struct kvpool *kvpool, uint64_t sequence, uint32_t seed, uint32_t num_blocks);

/* A daemon with a pool of 32 blocks above a disk of about 500, which outlives it. */
struct daemon;
struct store_disk {
    char dir[64];
    bool is_mounted;
};
/*
 * An empty directory, in memory where this process may mount that: what others do to the machine's
 * disk is nobody's fault here. With $KVPOOL_TEST_DISK a directory below that one, whatever it is.
 */
void store_disk_make(struct store_disk *disk);
void store_start(struct daemon *daemon, struct store_disk *disk, const char *more);
void store_finish(struct daemon *daemon, struct store_disk *disk);

/* A number of one tier ("device", "host", "disk") in the operator's Stats. */
uint64_t tier_stat(const struct daemon *daemon, const char *name, const char *tier);
/* Until nothing is being stored. */
void store_settle(const struct daemon *daemon);
/* Evicts what was there before: other prompts come and go. */
void store_flood(const struct daemon *daemon, struct kvpool *kvpool, uint32_t model,
                 uint32_t first_seed, uint32_t num_prompts);
/* How many tokens of the prompts 1 to @num_prompts are found, every block being exact. With
 * @daemon, what makes room for a prompt is stored before; NULL: one right after the other. */
uint64_t store_get_all(const struct daemon *daemon, struct kvpool *kvpool, uint32_t model,
                       uint32_t num_prompts);
