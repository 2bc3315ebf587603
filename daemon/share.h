/*
 * daemon/share.h - what tenants have in common and each of them must be able to have: places of a
 * table of fixed size.
 *
 * Half of the places is promised to the tenants in equal parts; the other half, and what one does
 * not use of its part while nobody else is promised it, is whoever's comes first. So a tenant alone
 * may have all but the parts of the others, and nobody, nor all others together, can take a part
 * away.
 *
 *  S1  num_promised = sum over members of max(0, part - taken)
 */
#pragma once

#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

enum share_name {
    SHARE_SESSIONS, /* also those that end only when their processes have */
    SHARE_ATTACHED, /* further processes */
    SHARE_MODELS,
    SHARE_SEQUENCES,
    SHARE_STEPS,
    SHARE_PLANS,
    SHARE_NAMINGS, /* long prompts that are being named */
    SHARE_WAITERS, /* requests that wait for another's fill */
    SHARE_CLAIMS,  /* places in lines (order.h) */
    NUM_SHARES
};

struct share {
    uint32_t total, num_taken, part, num_promised;
    uint32_t max_payers;
    uint32_t *taken; /* of each */
    bool *is_member;
    uint64_t num_refused;
};

int share_init(struct share *share, uint32_t total, uint32_t max_payers);
void share_finish(struct share *share);

/* Who has a part from now on; what is taken stays taken. */
void share_divide(struct share *share, const bool *is_member, uint32_t num_payers);

/* Whether @payer may take @count more (POOL_NONE: nobody's part is). Counts a refusal. */
bool share_has(struct share *share, pool_payer payer, uint32_t count);
/* After share_has(). */
void share_take(struct share *share, pool_payer payer, uint32_t count);
void share_give(struct share *share, pool_payer payer, uint32_t count);

/* Asserts S1. For tests. */
void share_check(const struct share *share);
