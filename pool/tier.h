/* pool/tier.h - (internal) the tiers that a pool has. */
#pragma once

#include "pool/internal.h"

bool tiers_are_valid(const struct pool_config *config);
/* Devices, their budgets and the tiers that they are of; before anything is taken. */
void tiers_init(struct pool *pool);

/* model.c: the placement with these devices, made if there is none; NONE: over the cap. */
uint32_t placement_get(struct pool *pool, uint32_t devices);
