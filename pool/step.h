/* pool/step.h - (internal) one forward pass: tokens become complete layer by layer. */
#pragma once

#include "pool/internal.h"

/* All copies of one of its sequences ended, or (@answer) will not be there. */
void step_copied(struct pool *pool, uint32_t step, int answer);
/* Its session ends: nothing of it is committed any more. It is gone at once if no attend runs. */
void step_abandon(struct pool *pool, uint32_t step);
