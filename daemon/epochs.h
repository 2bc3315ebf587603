/*
 * daemon/epochs.h - which epoch the blocks of a (domain, model) belong to, over every restart.
 *
 * A Clear is a rule: (domain or all, model or all) -> a number greater than any before it. The
 * epoch of a (domain, model) is the greatest of the rules that name it. What is written of a block
 * carries the epoch of its writing: if that is not epochs_of() any more, a clear came between.
 *
 * A first rule for everything is there from the start, with the time of its making as number: so
 * what was written beside a table that was lost belongs to no epoch of the new one.
 */
#pragma once

#include "daemon/config.h"
#include "daemon/models.h"

#include <stdint.h>

enum { EPOCH_MAX_RULES = 1024 };

struct epoch_rule {
    char domain[CONFIG_MAX_NAME + 1], model[MODEL_MAX_NAME + 1]; /* "": all */
    uint64_t epoch;
};

struct epochs {
    struct epoch_rule *rules;
    uint32_t count;
    uint64_t last;
};

int epochs_init(struct epochs *epochs);
void epochs_finish(struct epochs *epochs);
void epochs_copy(struct epochs *to, const struct epochs *from);

uint64_t epochs_of(const struct epochs *epochs, const char *domain, const char *model);

/*
 * A clear. Its number is @at_least (a time in ms), or greater. Rules that it says more than are
 * dropped; where there is no room, everything is cleared: more than was asked for, never less.
 */
void epochs_begin(struct epochs *epochs, const char *domain, const char *model, uint64_t at_least);

/* A rule that was kept. False: the table is full, or a name too long. */
bool epochs_add(struct epochs *epochs, const char *domain, const char *model, uint64_t epoch);
