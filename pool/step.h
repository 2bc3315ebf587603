/* pool/step.h - (internal) one forward pass: tokens become complete layer by layer. */
#pragma once

#include "pool/internal.h"

/* All copies of one of its sequences ended. */
void step_copied(struct pool *pool, pool_step step);
/* Its session ends: nothing of it is committed any more. It is gone at once if no attend runs. */
void step_abandon(struct pool *pool, pool_step step);
