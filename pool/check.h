/* pool/check.h - (internal) the parts of pool_check(); invariants are numbered in check.c. */
#pragma once

#include "pool/internal.h"

void check_granules(const struct pool *pool); /* I1 .. I5 */
void check_tables(struct pool *pool); /* I6 .. I9; holds and refs are as before afterwards */
