/* daemon/config.c - the configuration as a whole: loaded, compared, adopted, printed, destroyed. */
#include "daemon/config.h"
#include "daemon/config_yaml.h"
#include "daemon/settings.h"
#include "daemon/text.h"
#include "daemon/value.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- mistakes ------------------------------------------------------------------------------- */

void config_complain(struct config_source *source, uint32_t line, const char *key,
                     const char *format, ...)
{
    struct config_error *error = source->error;
    va_list args;

    if (error->count++ >= CONFIG_MAX_ERRORS)
        return;
    char *text = error->texts[error->count - 1];
    size_t size = sizeof(error->texts[0]);
    int used;
    if (line > 0)
        used = snprintf(text, size, "%.120s:%u: %.100s: ", source->path, line, key);
    else
        used =
            snprintf(text, size, "%.120s: %.100s: ", source->path ? source->path : "defaults", key);
    va_start(args, format);
    (void)vsnprintf(text + used, size - (size_t)used, format, args);
    va_end(args);
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?'; /* it goes to a terminal */
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Without a file's tenants there is one: whoever runs the daemon. */
static int add_default_tenant(struct config *config)
{
    struct config_tenant *tenant = &config->tenants[config->num_tenants];

    tenant->quota = (struct config_quota){0, CONFIG_UNLIMITED, 1};
    tenant->host_quota = tenant->disk_quota = tenant->quota;
    config->num_tenants++;
    tenant->name = strdup("default");
    tenant->token_file = strdup("");
    tenant->uids = calloc(1, sizeof(*tenant->uids));
    if (!tenant->name || !tenant->token_file || !tenant->uids)
        return -ENOMEM;
    tenant->uids[0] = (uint32_t)geteuid();
    tenant->num_uids = 1;
    return 0;
}

static int config_create(struct config **out_config)
{
    struct config *config = calloc(1, sizeof(*config));
    if (!config)
        return -ENOMEM;

    int err = -ENOMEM;
    config->tenants = calloc(CONFIG_MAX_TENANTS, sizeof(*config->tenants));
    config->domains = calloc(CONFIG_MAX_DOMAINS, sizeof(*config->domains));
    if (!config->tenants || !config->domains)
        goto fail;
    err = settings_init(config);
    if (err)
        goto fail;
    *out_config = config;
    return 0;

fail:
    config_destroy(config);
    return err;
}

static void names_destroy(char **names, size_t num_names)
{
    for (size_t i = 0; names && i < num_names; i++)
        free(names[i]);
    free(names);
}

void config_destroy(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->num_tenants; i++) {
        free(config->tenants[i].name);
        free(config->tenants[i].token_file);
        free(config->tenants[i].uids);
    }
    for (size_t i = 0; i < config->num_domains; i++) {
        struct config_domain *domain = &config->domains[i];
        free(domain->name);
        names_destroy(domain->readers, domain->num_readers);
        names_destroy(domain->fillers, domain->num_fillers);
    }
    free(config->tenants);
    free(config->domains);
    settings_finish(config);
    free(config);
}

static int config_fill(struct config *config, struct config_source *source)
{
    int err = source->path ? config_yaml_read(source, config) : 0;
    if (err)
        return err;
    if (config->num_tenants == 0)
        err = add_default_tenant(config);
    if (err)
        return err;
    config_check(source, config);
    return source->error->count > 0 ? CONFIG_REFUSED : 0;
}

int config_load(const char *path, struct config **out_config, struct config_error *out_error)
{
    struct config_source source = {.path = path, .error = out_error};
    struct config *config = NULL;

    out_error->count = 0;
    int result = config_create(&config);
    if (!result)
        result = config_fill(config, &source);
    if (result < 0)
        config_complain(&source, 0, "cannot be read", "%s", strerror(-result));
    if (result) {
        config_destroy(config);
        return result;
    }
    *out_config = config;
    return 0;
}

/* ---- reload --------------------------------------------------------------------------------- */

int config_diff_reloadable(const struct config *current, const struct config *next,
                           struct config_error *out_error)
{
    struct config_source source = {.path = "reload", .error = out_error};
    char now[SETTING_TEXT], then[SETTING_TEXT];

    out_error->count = 0;
    for (size_t i = 0; i < num_settings; i++) {
        if (settings[i].is_live || setting_equals(&settings[i], current, next))
            continue;
        setting_format(&settings[i], current, now);
        setting_format(&settings[i], next, then);
        config_complain(&source, 0, settings[i].name,
                        "needs a restart to change from %.60s to %.60s", now, then);
    }
    return out_error->count > 0 ? CONFIG_REFUSED : 0;
}

void config_adopt_reloadable(struct config *current, struct config *next)
{
    struct config kept = *current;

    for (size_t i = 0; i < num_settings; i++)
        if (settings[i].is_live)
            setting_swap(&settings[i], current, next);
    current->tenants = next->tenants;
    current->num_tenants = next->num_tenants;
    current->domains = next->domains;
    current->num_domains = next->num_domains;
    next->tenants = kept.tenants;
    next->num_tenants = kept.num_tenants;
    next->domains = kept.domains;
    next->num_domains = kept.num_domains;
}

/* ---- sockets -------------------------------------------------------------------------------- */

int config_socket_path(const struct config *config, enum config_socket socket, char *out,
                       size_t size)
{
    static const char *const names[] = {
        [CONFIG_SESSION_SOCKET] = "session",   [CONFIG_REQUEST_SOCKET] = "request",
        [CONFIG_OPERATOR_SOCKET] = "operator", [CONFIG_STATS_SOCKET] = "stats",
        [CONFIG_HTTP_SOCKET] = "http",
    };
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int length = snprintf(path, sizeof(path), "%s/%s.sock", config->run_directory, names[socket]);

    if (length < 0 || (size_t)length >= sizeof(path) || (size_t)length >= size)
        return -ENAMETOOLONG;
    memcpy(out, path, (size_t)length + 1);
    return 0;
}

/* ---- printing ------------------------------------------------------------------------------- */

static void print_quota(const char *tier, const struct config_quota *quota, FILE *out)
{
    char size[VALUE_TEXT];

    size_format(quota->guarantee_bytes, size);
    (void)fprintf(out, "    %sguarantee: %s\n", tier, size);
    if (quota->limit_bytes == CONFIG_UNLIMITED)
        (void)snprintf(size, sizeof(size), "none");
    else
        size_format(quota->limit_bytes, size);
    (void)fprintf(out, "    %slimit: %s\n    %sweight: %llu\n", tier, size, tier,
                  (unsigned long long)quota->weight);
}

static void print_names(const char *key, char *const *names, size_t num_names, FILE *out)
{
    (void)fprintf(out, "    %s: [", key);
    for (size_t i = 0; i < num_names; i++)
        (void)fprintf(out, "%s\"%s\"", i ? ", " : "", names[i]);
    (void)fprintf(out, "]\n");
}

static void print_tenant(const struct config_tenant *tenant, FILE *out)
{
    char buffer[SETTING_TEXT];

    (void)fprintf(out, "  - name: \"%s\"\n    uids: [", tenant->name);
    for (size_t i = 0; i < tenant->num_uids; i++)
        (void)fprintf(out, "%s%u", i ? ", " : "", tenant->uids[i]);
    (void)fprintf(out, "]\n");
    if (tenant->token_file[0] != '\0') {
        struct text text = text_init(buffer, sizeof(buffer));
        text_add_json(&text, tenant->token_file);
        (void)fprintf(out, "    token-file: %s\n", buffer);
    }
    print_quota("", &tenant->quota, out);
    print_quota("host-", &tenant->host_quota, out);
    print_quota("disk-", &tenant->disk_quota, out);
}

int config_print(const struct config *config, FILE *out)
{
    char value[SETTING_TEXT];

    for (size_t i = 0; i < num_settings; i++) {
        setting_format(&settings[i], config, value);
        (void)fprintf(out, "%s: %s\n", settings[i].name, value);
    }
    (void)fprintf(out, "tenants:\n");
    for (size_t i = 0; i < config->num_tenants; i++)
        print_tenant(&config->tenants[i], out);
    (void)fprintf(out, config->num_domains > 0 ? "domains:\n" : "domains: []\n");
    for (size_t i = 0; i < config->num_domains; i++) {
        const struct config_domain *domain = &config->domains[i];
        (void)fprintf(out, "  - name: \"%s\"\n", domain->name);
        print_names("readers", domain->readers, domain->num_readers, out);
        print_names("fillers", domain->fillers, domain->num_fillers, out);
        print_quota("", &domain->quota, out);
        print_quota("host-", &domain->host_quota, out);
        print_quota("disk-", &domain->disk_quota, out);
    }
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

void config_print_help(FILE *out)
{
    char expected[SETTING_TEXT], value[SETTING_TEXT];

    for (size_t i = 0; i < num_settings; i++) {
        const struct setting *setting = &settings[i];
        setting_default(setting, value);
        setting_expect(setting, expected);
        (void)fprintf(out, "  %s: %s\n      %s\n      %s%s\n", setting->name,
                      value[0] != '\0' ? value : "\"\"", setting->help, expected,
                      setting->is_live ? "; SIGHUP changes it" : "");
    }
}
