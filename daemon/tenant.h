/*
 * daemon/tenant.h - who asks, by peer credentials or a token, and who pays: tenants and domains.
 *
 * Each has a secret (secret.h), from which the keys of its blocks are made. Payers are never
 * forgotten while the daemon runs: one that left the configuration has no session any more, and no
 * guarantee.
 */
#pragma once

#include "daemon/config.h"
#include "daemon/share.h"
#include "daemon/token.h"
#include "pool/pool.h"
#include "proto/key.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server;

struct payer {
    char name[CONFIG_MAX_NAME + 1];
    pool_payer pool; /* the same as its index */
    bool is_domain, is_gone;
    uint8_t secret[KEY_BYTES];
    struct config_quota quota, below[POOL_NUM_TIERS]; /* of the pool; of the tiers below it */
    uint32_t *uids;
    size_t num_uids;
    struct token token;
    uint32_t num_sessions;
};

struct tenants {
    struct payer *payers;
    uint32_t count, max;
    uint8_t *rights; /* [domain][tenant], enum pool_right: as the pool's */
    struct share shares[NUM_SHARES];
};

int tenants_init(struct server *server, uint32_t max);
void tenants_finish(struct tenants *tenants);

/* Makes, changes and retires payers as the configuration says; -errno, or an answer of the pool. */
int tenants_apply(struct server *server, const struct config *config);

/* POOL_NONE: nobody. A token, if given, must be one; else the credentials decide. */
pool_payer tenants_authenticate(const struct tenants *tenants, uid_t uid, const void *token,
                                size_t num_bytes);

pool_payer tenants_find(const struct tenants *tenants, const char *name);
bool tenants_is_domain(const struct tenants *tenants, pool_payer payer);
unsigned tenants_rights(const struct tenants *tenants, pool_payer domain, pool_payer tenant);

/* A domain by operator's order. Quotas in bytes. Enum wire_status. */
int tenants_create_domain(struct server *server, const struct config_domain *domain);
int tenants_set_quota(struct server *server, pool_payer payer, const struct config_quota *quota);
/* Of a tier below the device. Of what the configuration names: until it is read again. */
int tenants_set_tier_quota(struct server *server, pool_payer payer, enum pool_tier tier,
                           const struct config_quota *quota);
