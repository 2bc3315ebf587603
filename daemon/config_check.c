/* daemon/config_check.c - values that are right alone and wrong together. */
#include "daemon/config.h"
#include "daemon/config_yaml.h"
#include "daemon/settings.h"
#include "daemon/tier_disk.h"
#include "daemon/value.h"

#include <string.h>

#define AT(field) offsetof(struct config, field)

/* What must not be more than what. */
/* clang-format off */
static const struct order {
    const char *low, *high;
    size_t low_offset, high_offset; /* of a uint64_t */
} orders[] = {
    {"page-bytes",          "pool-bytes",          AT(page_bytes),          AT(pool_bytes)},
    {"populate-bytes",      "pool-bytes",          AT(populate_bytes),      AT(pool_bytes)},
    {"staging-min-bytes",   "staging-bytes",       AT(staging_min_bytes),   AT(staging_bytes)},
    {"message-bytes",       "session-queue-bytes", AT(message_bytes),       AT(session_queue_bytes)},
    {"session-queue-bytes", "queue-bytes",         AT(session_queue_bytes), AT(queue_bytes)},
    {"deadline",            "max-deadline",        AT(deadline_ms),         AT(max_deadline_ms)},
    {"max-tenant-sessions", "max-sessions",        AT(max_tenant_sessions), AT(max_sessions)},
    {"ahead-bytes",         "pool-bytes",          AT(ahead_bytes),         AT(pool_bytes)},
    {"host-ahead-bytes",    "host-tier-bytes",     AT(host_ahead_bytes),    AT(host_tier_bytes)},
    {"disk-min-block-bytes", "disk-max-block-bytes", AT(disk_min_block_bytes), AT(disk_max_block_bytes)},
};
/* clang-format on */

static uint64_t number_at(const struct config *config, size_t offset)
{
    uint64_t number;

    memcpy(&number, (const char *)config + offset, sizeof(number));
    return number;
}

static uint32_t line_of(const struct config_source *source, const char *name)
{
    return source->lines[setting_find(name) - settings];
}

static void check_orders(struct config_source *source, const struct config *config)
{
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        const struct order *order = &orders[i];
        uint32_t low = line_of(source, order->low), high = line_of(source, order->high);

        if (number_at(config, order->low_offset) <= number_at(config, order->high_offset))
            continue;
        if (high > 0)
            config_complain(source, low ? low : high, order->low, "expected at most %s (line %u)",
                            order->high, high);
        else
            config_complain(source, low, order->low, "expected at most %s (its default)",
                            order->high);
    }
}

static void check_memory(struct config_source *source, const struct config *config)
{
    uint64_t page = config->page_bytes;

    if (page != 2 << 20 && page != 64 << 10)
        config_complain(source, line_of(source, "page-bytes"), "page-bytes",
                        "expected 64KiB or 2MiB");
    else if (config->pool_bytes % page != 0)
        config_complain(source, line_of(source, "pool-bytes"), "pool-bytes",
                        "expected whole pages of %llu bytes", (unsigned long long)page);
    else if (config->watermark_pages >= config->pool_bytes / page)
        config_complain(source, line_of(source, "watermark-pages"), "watermark-pages",
                        "expected less than the %llu pages of the pool",
                        (unsigned long long)(config->pool_bytes / page));
    if (config->http_port != 0 && config->http_token_file[0] == '\0')
        config_complain(source, line_of(source, "http-port"), "http-port",
                        "expected http-token-file beside it");
}

/* What must be whole pieces of what. */
static void check_multiple(struct config_source *source, const char *name, uint64_t bytes,
                           uint64_t of)
{
    if (bytes % of != 0)
        config_complain(source, line_of(source, name), name, "expected a multiple of %llu bytes",
                        (unsigned long long)of);
}

static void check_tiers(struct config_source *source, const struct config *config)
{
    check_multiple(source, "populate-bytes", config->populate_bytes, config->page_bytes);
    check_multiple(source, "host-tier-bytes", config->host_tier_bytes, config->page_bytes);
    check_multiple(source, "disk-granule-bytes", config->disk_granule_bytes, 4096);
    check_multiple(source, "disk-min-block-bytes", config->disk_min_block_bytes, 4096);
    check_multiple(source, "disk-max-block-bytes", config->disk_max_block_bytes, 4096);
    if (config->disk_directory[0] == '\0' && config->disk_max_bytes > 0)
        config_complain(source, line_of(source, "disk-max-bytes"), "disk-max-bytes",
                        "expected disk-directory beside it: where?");
    if (strcmp(config->disk_directory, config->state_directory) == 0)
        config_complain(source, line_of(source, "disk-directory"), "disk-directory",
                        "expected another directory than state-directory: each has a lock");
    if (config->disk_directory[0] != '\0' && config->disk_max_bytes == 0)
        config_complain(source, line_of(source, "disk-directory"), "disk-directory",
                        "expected disk-max-bytes beside it: a disk tier has a ceiling");
    else if (config->disk_directory[0] != '\0' && tier_disk_granules(config) == 0)
        config_complain(source, line_of(source, "disk-max-bytes"), "disk-max-bytes",
                        "expected room for one granule of %llu bytes and its headers, and granules "
                        "of at most %d of the smallest blocks",
                        (unsigned long long)config->disk_granule_bytes, DISK_MAX_SLOTS);
}

/* ---- tenants and domains -------------------------------------------------------------------- */

static const struct config_tenant *tenant_find(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->num_tenants; i++)
        if (strcmp(config->tenants[i].name, name) == 0)
            return &config->tenants[i];
    return NULL;
}

static void check_quota(struct config_source *source, uint32_t line, const char *name,
                        const struct config_quota *quota, uint64_t *guaranteed_bytes)
{
    if (quota->guarantee_bytes > quota->limit_bytes)
        config_complain(source, line, name, "expected a guarantee of at most its limit");
    if (__builtin_add_overflow(*guaranteed_bytes, quota->guarantee_bytes, guaranteed_bytes))
        *guaranteed_bytes = UINT64_MAX;
}

/* Two tenants of one uid: who would be who? Within one tenant, it is a slip. */
static void check_uids(struct config_source *source, const struct config *config, size_t number)
{
    const struct config_tenant *tenant = &config->tenants[number];

    for (size_t i = 0; i < tenant->num_uids; i++)
        for (size_t other = 0; other <= number; other++) {
            const struct config_tenant *before = &config->tenants[other];
            size_t num_uids = other == number ? i : before->num_uids;
            for (size_t k = 0; k < num_uids; k++)
                if (before->uids[k] == tenant->uids[i])
                    config_complain(source, tenant->line, tenant->name,
                                    "expected uid %u in one place, '%s' has it too",
                                    tenant->uids[i], before->name);
        }
}

static void check_tenant(struct config_source *source, const struct config *config, size_t number)
{
    const struct config_tenant *tenant = &config->tenants[number];

    if (tenant->name[0] == '\0')
        config_complain(source, tenant->line, "tenants", "expected a name");
    else if (tenant_find(config, tenant->name) != tenant)
        config_complain(source, tenant->line, tenant->name, "expected each tenant once");
    if (tenant->num_uids == 0 && tenant->token_file[0] == '\0')
        config_complain(source, tenant->line, tenant->name, "expected uids or token-file");
    check_uids(source, config, number);
}

static void check_members(struct config_source *source, const struct config *config,
                          const struct config_domain *domain, char *const *names, size_t num_names)
{
    for (size_t i = 0; i < num_names; i++)
        if (!tenant_find(config, names[i]))
            config_complain(source, domain->line, domain->name,
                            "expected names of tenants, not '%s'", names[i]);
}

static void check_domain(struct config_source *source, const struct config *config, size_t number)
{
    const struct config_domain *domain = &config->domains[number];

    if (domain->name[0] == '\0')
        config_complain(source, domain->line, "domains", "expected a name");
    else if (tenant_find(config, domain->name))
        config_complain(source, domain->line, domain->name,
                        "expected another name than a tenant's");
    for (size_t i = 0; i < number; i++)
        if (strcmp(config->domains[i].name, domain->name) == 0)
            config_complain(source, domain->line, domain->name, "expected each domain once");
    check_members(source, config, domain, domain->readers, domain->num_readers);
    check_members(source, config, domain, domain->fillers, domain->num_fillers);
}

/* What is guaranteed of one tier fits it. A tier that there is not is nobody's to be promised. */
struct promise {
    const char *setting;
    uint64_t guaranteed_bytes;
};

static void check_promise(struct config_source *source, const struct config *config,
                          const struct promise *promise)
{
    const struct setting *setting = setting_find(promise->setting);

    if (promise->guaranteed_bytes > number_at(config, setting->offset))
        config_complain(source, line_of(source, promise->setting), promise->setting,
                        "expected at least the %llu bytes of all guarantees together",
                        (unsigned long long)promise->guaranteed_bytes);
}

void config_check(struct config_source *source, const struct config *config)
{
    struct promise pool = {"pool-bytes", 0}, host = {"host-tier-bytes", 0},
                   disk = {"disk-max-bytes", 0};

    check_orders(source, config);
    check_memory(source, config);
    check_tiers(source, config);
    for (size_t i = 0; i < config->num_tenants; i++) {
        const struct config_tenant *tenant = &config->tenants[i];
        check_tenant(source, config, i);
        check_quota(source, tenant->line, tenant->name, &tenant->quota, &pool.guaranteed_bytes);
        check_quota(source, tenant->line, tenant->name, &tenant->host_quota,
                    &host.guaranteed_bytes);
        check_quota(source, tenant->line, tenant->name, &tenant->disk_quota,
                    &disk.guaranteed_bytes);
    }
    for (size_t i = 0; i < config->num_domains; i++) {
        const struct config_domain *domain = &config->domains[i];
        check_domain(source, config, i);
        check_quota(source, domain->line, domain->name, &domain->quota, &pool.guaranteed_bytes);
        check_quota(source, domain->line, domain->name, &domain->host_quota,
                    &host.guaranteed_bytes);
        check_quota(source, domain->line, domain->name, &domain->disk_quota,
                    &disk.guaranteed_bytes);
    }
    check_promise(source, config, &pool);
    check_promise(source, config, &host);
    check_promise(source, config, &disk);
    if (config->num_tenants + config->num_domains > config->max_payers)
        config_complain(source, line_of(source, "max-payers"), "max-payers",
                        "expected at least the %zu tenants and domains",
                        config->num_tenants + config->num_domains);
}
