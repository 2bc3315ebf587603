/*
 * daemon/journal.h - the last block events of each tenant, for its own sessions (Stats).
 *
 * What can be found of a tenant's own domain since when, and no more. Numbers are each tenant's
 * own, so that they say nothing of others. Who asks too late sees that some are lost, and begins
 * anew.
 */
#pragma once

#include "daemon/text.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stdint.h>

enum { JOURNAL_KEPT = 1024 /* of each */, JOURNAL_AT_ONCE = 256 /* of one reply */ };

struct journal_event {
    struct pool_key key;
    uint32_t model, group;
    bool is_stored;
};

struct journal {
    struct journal_event *events; /* JOURNAL_KEPT of each payer */
    uint64_t *counts;             /* that each ever had: the number of its last one */
    uint32_t max_payers;
};

int journal_init(struct journal *journal, uint32_t max_payers);
void journal_finish(struct journal *journal);

void journal_add(struct journal *journal, pool_payer payer, const struct journal_event *event);

/*
 * Those of @payer behind number @after, the first JOURNAL_AT_ONCE, as a JSON member:
 * "events":{"first":N,"last":M,"newest":K,"lost":false,"blocks":[...]}. With "lost" true, some
 * between @after and "first" are not kept any more. @model_names: of each model.
 */
struct models;
void journal_json(const struct journal *journal, pool_payer payer, uint64_t after,
                  const struct models *models, struct text *out);
