/*
 * daemon/extras.h - the extras of prompts, kept as long as a sequence may name such a block again.
 *
 * What else K and V of a block depend on (an image's digest and its offset) is said once, with the
 * prompt; blocks are named when they become full: later, if only a part of the prompt was taken,
 * and again, after a truncation. So the extras of each prompt are kept as one set, which is never
 * changed, and which its sequence shares with its forks. Sets lie in chunks of fixed size, taken at
 * start; tenants share them out (SHARE_EXTRAS, in chunks).
 *
 *  X1  A tenant's share has taken the chunks of all its sets.
 *  X2  A chunk is in one set, or free.
 */
#pragma once

#include "daemon/share.h"
#include "proto/key.h"

#include <stdbool.h>
#include <stdint.h>

enum { EXTRAS_CHUNK = 256 /* bytes */ };

#define EXTRAS_NONE UINT32_MAX /* the set of whoever has none */

struct extras_chunk;

struct extras {
    struct extras_chunk *chunks;
    uint32_t max, num_fresh, first_free; /* from num_fresh on none was ever used */
    struct share *share;
};

/* Chunks that @max_bytes are: the total of the share. */
uint32_t extras_num_chunks(uint64_t max_bytes);

/* @share has as many places as there are chunks. -ENOMEM. */
int extras_init(struct extras *extras, uint64_t max_bytes, struct share *share);
void extras_finish(struct extras *extras);

/* Whether @tenant may have such a set kept. Counts a refusal of its share. */
bool extras_have_room(const struct extras *extras, pool_payer tenant, const struct key_extra *list,
                      uint32_t num);

/* After extras_have_room(): a set with one user, which gives it back; EXTRAS_NONE of no extras. */
uint32_t extras_keep(struct extras *extras, pool_payer tenant, const struct key_extra *list,
                     uint32_t num);

/* One more user of the same tenant. EXTRAS_NONE is nothing, as below. */
void extras_share(struct extras *extras, uint32_t set);
void extras_give(struct extras *extras, uint32_t set);

/*
 * Copies those of blocks [@first, @end) to @out and their bytes to @out_bytes, which have room for
 * all that was kept; returns how many they are. Their bytes are the copies.
 */
uint32_t extras_copy(const struct extras *extras, uint32_t set, uint64_t first, uint64_t end,
                     struct key_extra *out, uint8_t *out_bytes);
