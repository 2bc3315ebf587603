/* pool/allocate.h - (internal) what allocations share with those that wait, and with prefetch. */
#pragma once

#include "pool/match.h"
#include "pool/sequence.h"

/* Who asks, and may they. */
int prompt_check(const struct pool *pool, const struct pool_prompt *prompt);

/* An allocation or resume is granted: its tokens are counted. */
void allocation_count(struct pool *pool, const struct sequence *sequence);
/* A resume has what it waited for: it loses the tokens that it did not take. */
void resume_end(struct pool *pool, struct sequence *sequence);
