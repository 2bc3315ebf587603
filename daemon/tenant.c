/* daemon/tenant.c - payers, their secrets, quotas and rights. */
#include "daemon/tenant.h"

#include "daemon/log.h"
#include "daemon/secret.h"
#include "daemon/server.h"
#include "daemon/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shares_init(struct server *server)
{
    const struct config *config = server->config;
    const uint64_t totals[NUM_SHARES] = {
        [SHARE_SESSIONS] = config->max_sessions,
        [SHARE_ATTACHED] = config->max_attached,
        [SHARE_MODELS] = config->max_models,
        [SHARE_SEQUENCES] = config->max_sequences,
        [SHARE_STEPS] = config->max_steps,
        [SHARE_PLANS] = STEP_PLANS,
        [SHARE_WAITERS] = config->max_waiters,
        [SHARE_NAMINGS] = NAME_MAX_JOBS - 1, /* one is the owner's own */
        [SHARE_CLAIMS] = server->turns.order.max_claims,
        [SHARE_EXTRAS] = extras_num_chunks(config->max_extra_bytes)};
    int err = 0;

    for (int name = 0; name < NUM_SHARES && !err; name++)
        err =
            share_init(&server->tenants.shares[name], (uint32_t)totals[name], server->tenants.max);
    return err;
}

/* Those that sessions can be of. */
static void shares_divide(struct tenants *tenants)
{
    bool is_member[CONFIG_MAX_TENANTS + CONFIG_MAX_DOMAINS];

    for (uint32_t at = 0; at < tenants->count; at++)
        is_member[at] = !tenants->payers[at].is_domain && !tenants->payers[at].is_gone;
    for (int name = 0; name < NUM_SHARES; name++)
        share_divide(&tenants->shares[name], is_member, tenants->count);
}

int tenants_init(struct server *server, uint32_t max)
{
    struct tenants *tenants = &server->tenants;

    tenants->max = max;
    tenants->payers = calloc(max, sizeof(*tenants->payers));
    tenants->rights = calloc((size_t)max * max, 1);
    if (!tenants->payers || !tenants->rights)
        return -ENOMEM;
    return shares_init(server);
}

void tenants_finish(struct tenants *tenants)
{
    for (uint32_t at = 0; tenants->payers && at < tenants->count; at++) {
        free(tenants->payers[at].uids);
        explicit_bzero(tenants->payers[at].secret, KEY_BYTES);
    }
    for (int name = 0; name < NUM_SHARES; name++)
        share_finish(&tenants->shares[name]);
    free(tenants->payers);
    free(tenants->rights);
}

/* ---- payers --------------------------------------------------------------------------------- */

pool_payer tenants_find(const struct tenants *tenants, const char *name)
{
    for (uint32_t at = 0; at < tenants->count; at++) {
        if (!tenants->payers[at].is_gone && strcmp(tenants->payers[at].name, name) == 0)
            return at;
    }
    return POOL_NONE;
}

bool tenants_is_domain(const struct tenants *tenants, pool_payer payer)
{
    return payer < tenants->count && tenants->payers[payer].is_domain;
}

unsigned tenants_rights(const struct tenants *tenants, pool_payer domain, pool_payer tenant)
{
    return domain < tenants->count && tenant < tenants->count
               ? tenants->rights[(size_t)domain * tenants->max + tenant]
               : 0;
}

/* Guarantees are rounded down to pages, limits up. */
static struct pool_quota quota_in_pages(uint64_t page, const struct config_quota *quota)
{
    return (struct pool_quota){.guarantee = quota->guarantee_bytes / page,
                               .limit = quota->limit_bytes == CONFIG_UNLIMITED
                                            ? POOL_UNLIMITED
                                            : quota->limit_bytes / page +
                                                  (quota->limit_bytes % page != 0),
                               .weight = quota->weight};
}

static int payer_create(struct server *server, const char *name, bool is_domain,
                        const struct config_quota *quota, pool_payer *out_payer)
{
    struct tenants *tenants = &server->tenants;
    struct pool_quota pages = quota_in_pages(server->config->page_bytes, quota);

    if (tenants->count == tenants->max)
        return POOL_LIMIT;
    struct payer *payer = &tenants->payers[tenants->count];
    int err = secret_get(server->config->state_directory, name, payer->secret);
    if (err) {
        log_event(LOG_ERROR, "secret_failed", log_text("payer", name), log_error("error", err));
        return err;
    }
    int answer = is_domain ? pool_domain_create(server->pool, &pages, &payer->pool)
                           : pool_tenant_create(server->pool, &pages, &payer->pool);
    if (answer)
        return answer;
    assert(payer->pool == tenants->count);
    (void)snprintf(payer->name, sizeof(payer->name), "%s", name);
    payer->is_domain = is_domain;
    payer->quota = *quota;
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
        payer->below[tier] = (struct config_quota){0, CONFIG_UNLIMITED, 1};
    *out_payer = tenants->count++;
    if (server->stats)
        (void)stats_add_payer(server->stats, *out_payer, name, is_domain);
    return 0;
}

int tenants_set_quota(struct server *server, pool_payer payer, const struct config_quota *quota)
{
    struct pool_quota pages = quota_in_pages(server->config->page_bytes, quota);
    int answer = pool_quota_set(server->pool, payer, &pages);

    if (answer == 0)
        server->tenants.payers[payer].quota = *quota;
    return answer;
}

int tenants_set_tier_quota(struct server *server, pool_payer payer, enum pool_tier tier,
                           const struct config_quota *quota)
{
    const struct config *config = server->config;
    const struct pool_quota pages = quota_in_pages(
        tier == POOL_TIER_DISK ? config->disk_granule_bytes : config->page_bytes, quota);

    int answer = pool_tier_quota_set(server->pool, payer, tier, &pages);

    if (answer == 0)
        server->tenants.payers[payer].below[tier] = *quota;
    return answer;
}

/* Below the device. What the pool refuses (more guaranteed than there is) stays as it was. */
static void tier_quotas_set(struct server *server, pool_payer payer,
                            const struct config_quota *host, const struct config_quota *disk)
{
    const struct config *config = server->config;
    int answer = 0;

    if (config->host_tier_bytes > 0)
        answer = tenants_set_tier_quota(server, payer, POOL_TIER_HOST, host);
    if (!answer && tier_disk_granules(config) > 0)
        answer = tenants_set_tier_quota(server, payer, POOL_TIER_DISK, disk);
    if (answer)
        log_event(LOG_ERROR, "tier_quota_refused",
                  log_text("payer", server->tenants.payers[payer].name),
                  log_signed("answer", answer));
}

static int payer_get(struct server *server, const char *name, bool is_domain,
                     const struct config_quota *quota, pool_payer *out_payer)
{
    struct tenants *tenants = &server->tenants;

    for (uint32_t at = 0; at < tenants->count; at++) {
        struct payer *payer = &tenants->payers[at];
        if (strcmp(payer->name, name) != 0 || payer->is_domain != is_domain)
            continue;
        payer->is_gone = false;
        *out_payer = at;
        return tenants_set_quota(server, at, quota);
    }
    return payer_create(server, name, is_domain, quota, out_payer);
}

static int tenant_apply(struct server *server, const struct config_tenant *tenant)
{
    pool_payer id;
    int err = payer_get(server, tenant->name, false, &tenant->quota, &id);

    if (err)
        return err;
    struct payer *payer = &server->tenants.payers[id];
    tier_quotas_set(server, id, &tenant->host_quota, &tenant->disk_quota);
    free(payer->uids);
    payer->uids = calloc(tenant->num_uids + 1, sizeof(*payer->uids));
    if (!payer->uids)
        return -ENOMEM;
    payer->num_uids = tenant->num_uids;
    if (tenant->num_uids > 0)
        memcpy(payer->uids, tenant->uids, tenant->num_uids * sizeof(*payer->uids));
    payer->token.num_bytes = 0;
    if (tenant->token_file[0] != '\0') {
        err = token_read(tenant->token_file, &payer->token);
        if (err) /* the others can go on: this one's token matches nothing */
            log_event(LOG_ERROR, "token_failed", log_text("tenant", tenant->name),
                      log_text("file", tenant->token_file), log_text("problem", token_text(err)));
    }
    return 0;
}

static void grant(struct server *server, pool_payer domain, const char *name, unsigned rights)
{
    struct tenants *tenants = &server->tenants;
    pool_payer tenant = tenants_find(tenants, name);

    if (tenant == POOL_NONE || tenants->payers[tenant].is_domain)
        return;
    uint8_t *has = &tenants->rights[(size_t)domain * tenants->max + tenant];
    *has |= (uint8_t)rights;
    (void)pool_domain_grant(server->pool, domain, tenant, *has);
}

static void revoke_all(struct server *server, pool_payer domain)
{
    struct tenants *tenants = &server->tenants;

    for (uint32_t tenant = 0; tenant < tenants->count; tenant++) {
        uint8_t *has = &tenants->rights[(size_t)domain * tenants->max + tenant];
        if (*has)
            (void)pool_domain_grant(server->pool, domain, tenant, 0);
        *has = 0;
    }
}

static int domain_apply(struct server *server, const struct config_domain *domain)
{
    pool_payer id;
    int err = payer_get(server, domain->name, true, &domain->quota, &id);

    if (err)
        return err;
    tier_quotas_set(server, id, &domain->host_quota, &domain->disk_quota);
    revoke_all(server, id);
    for (size_t i = 0; i < domain->num_readers; i++)
        grant(server, id, domain->readers[i], POOL_MAY_READ);
    for (size_t i = 0; i < domain->num_fillers; i++)
        grant(server, id, domain->fillers[i], POOL_MAY_READ | POOL_MAY_FILL);
    return 0;
}

int tenants_create_domain(struct server *server, const struct config_domain *domain)
{
    pool_payer id;

    if (tenants_find(&server->tenants, domain->name) != POOL_NONE)
        return POOL_EXISTS;
    int answer = payer_create(server, domain->name, true, &domain->quota, &id);
    if (answer)
        return answer;
    return domain_apply(server, domain);
}

/* What is guaranteed to one in a tier is to be no more than so much. */
static void guarantee_cut(struct server *server, pool_payer at, enum pool_tier tier, uint64_t bytes)
{
    struct payer *payer = &server->tenants.payers[at];
    struct config_quota quota = tier == POOL_TIER_DEVICE ? payer->quota : payer->below[tier];

    if (quota.guarantee_bytes <= bytes)
        return;
    quota.guarantee_bytes = bytes;
    if (tier == POOL_TIER_DEVICE)
        (void)tenants_set_quota(server, at, &quota);
    else
        (void)tenants_set_tier_quota(server, at, tier, &quota);
}

/* What the file no longer has: no session is let in, nothing is guaranteed. */
static void retire(struct server *server, const struct config *config)
{
    for (uint32_t at = 0; at < server->tenants.count; at++) {
        struct payer *payer = &server->tenants.payers[at];
        bool is_named = payer->is_domain; /* a domain may be an operator's */
        for (size_t i = 0; i < config->num_tenants && !is_named; i++)
            is_named = strcmp(config->tenants[i].name, payer->name) == 0;
        if (is_named || payer->is_gone)
            continue;
        payer->is_gone = true;
        for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++)
            guarantee_cut(server, at, tier, 0);
    }
}

static void guarantees_lower(struct server *server, const char *name,
                             const struct config_quota *quota, const struct config_quota *host,
                             const struct config_quota *disk)
{
    pool_payer payer = tenants_find(&server->tenants, name);

    if (payer == POOL_NONE)
        return;
    guarantee_cut(server, payer, POOL_TIER_DEVICE, quota->guarantee_bytes);
    guarantee_cut(server, payer, POOL_TIER_HOST, host->guarantee_bytes);
    guarantee_cut(server, payer, POOL_TIER_DISK, disk->guarantee_bytes);
}

int tenants_apply(struct server *server, const struct config *config)
{
    /* What is guaranteed less makes room for what is guaranteed more. */
    retire(server, config);
    for (size_t i = 0; i < config->num_tenants; i++) {
        const struct config_tenant *tenant = &config->tenants[i];
        guarantees_lower(server, tenant->name, &tenant->quota, &tenant->host_quota,
                         &tenant->disk_quota);
    }
    for (size_t i = 0; i < config->num_domains; i++) {
        const struct config_domain *domain = &config->domains[i];
        guarantees_lower(server, domain->name, &domain->quota, &domain->host_quota,
                         &domain->disk_quota);
    }
    for (size_t i = 0; i < config->num_tenants; i++) {
        int err = tenant_apply(server, &config->tenants[i]);
        if (err)
            return err;
    }
    for (size_t i = 0; i < config->num_domains; i++) {
        int err = domain_apply(server, &config->domains[i]);
        if (err)
            return err;
    }
    shares_divide(&server->tenants);
    return 0;
}

pool_payer tenants_authenticate(const struct tenants *tenants, uid_t uid, const void *token,
                                size_t num_bytes)
{
    for (uint32_t at = 0; at < tenants->count; at++) {
        const struct payer *payer = &tenants->payers[at];
        if (payer->is_domain || payer->is_gone)
            continue;
        if (num_bytes > 0) {
            if (token_matches(&payer->token, token, num_bytes))
                return at;
            continue;
        }
        for (size_t i = 0; i < payer->num_uids; i++) {
            if (payer->uids[i] == uid)
                return at;
        }
    }
    return POOL_NONE;
}
