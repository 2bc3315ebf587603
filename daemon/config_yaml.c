/*
 * daemon/config_yaml.c - from libyaml's events to records.
 *
 * The grammar is small: a mapping of settings, and two lists of mappings whose fields are tables
 * below. A mistake is noted and its node skipped, so one reading finds them all; only what is no
 * YAML ends it. Every read_...() is called with the first event of its node at hand, and leaves the
 * one behind it.
 */
#include "daemon/config_yaml.h"
#include "daemon/config.h"
#include "daemon/settings.h"
#include "daemon/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* at hand */
    struct config_source *source;
    struct config *config;
    const char *bytes; /* the file */
    char path[32];     /* of the record being read: "tenants[2]." */
    int err;           /* not 0: nothing more is read; CONFIG_REFUSED is no YAML */
};

enum { MAX_KEY = 64, MAX_KEYS = CONFIG_MAX_SETTINGS + 2 };

static uint32_t line_at(const struct reader *reader)
{
    return (uint32_t)reader->event.start_mark.line + 1;
}

/* "tenants[2].limit" */
static void complain(struct reader *reader, uint32_t line, const char *key, const char *expected)
{
    char name[MAX_KEY + sizeof(reader->path)];
    const yaml_event_t *event = &reader->event;

    if (reader->err)
        return; /* it was said, and nothing is at hand */
    (void)snprintf(name, sizeof(name), "%s%s", reader->path, key);
    if (event->type == YAML_SCALAR_EVENT)
        config_complain(reader->source, line, name, "expected %s, not '%.60s'", expected,
                        (const char *)event->data.scalar.value);
    else
        config_complain(reader->source, line, name, "expected %s", expected);
}

/* ---- events --------------------------------------------------------------------------------- */

static void no_yaml(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    uint32_t line = (uint32_t)parser->problem_mark.line + 1;

    if (parser->error == YAML_MEMORY_ERROR) {
        reader->err = -ENOMEM;
        return;
    }
    if (parser->error == YAML_READER_ERROR) { /* it has an offset, and no mark */
        line = 1;
        for (size_t i = 0; i < parser->problem_offset; i++)
            line += reader->bytes[i] == '\n';
    }
    config_complain(reader->source, line, "YAML", "%s", parser->problem);
    reader->err = CONFIG_REFUSED;
}

/* The next event. After an error it is the end of the stream, for ever. */
static void advance(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (!reader->err && !yaml_parser_parse(&reader->parser, &reader->event))
        no_yaml(reader);
    if (reader->err)
        reader->event = (yaml_event_t){.type = YAML_STREAM_END_EVENT};
}

static bool is_at(const struct reader *reader, yaml_event_type_t type)
{
    return reader->event.type == type;
}

/* Whether a mapping or list of @end goes on. */
static bool goes_on(const struct reader *reader, yaml_event_type_t end)
{
    return !reader->err && !is_at(reader, end) && !is_at(reader, YAML_STREAM_END_EVENT);
}

static void skip_node(struct reader *reader)
{
    int depth = 0;

    do {
        if (is_at(reader, YAML_MAPPING_START_EVENT) || is_at(reader, YAML_SEQUENCE_START_EVENT))
            depth++;
        else if (is_at(reader, YAML_MAPPING_END_EVENT) || is_at(reader, YAML_SEQUENCE_END_EVENT))
            depth--;
        advance(reader);
    } while (depth > 0 && goes_on(reader, YAML_NO_EVENT));
}

/* The scalar at hand, or NULL: none, or one with a NUL in it. */
static const char *scalar(const struct reader *reader)
{
    const yaml_event_t *event = &reader->event;

    if (event->type != YAML_SCALAR_EVENT ||
        strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
        return NULL;
    return (const char *)event->data.scalar.value;
}

/* ---- mappings: settings, tenants and domains ---------------------------------------------------
 */

/* What the keys of one kind of mapping are. */
struct grammar {
    const char *what;             /* "a setting, `tenants` or `domains`" */
    int (*find)(const char *key); /* its number, or -1 */
    void (*read)(struct reader *reader, int number, const char *key, void *record);
};

/* Copies a key, and steps on to its value: false if it is no key of this mapping, or comes again.
 */
static bool read_key(struct reader *reader, const struct grammar *grammar, bool seen[MAX_KEYS],
                     char key[MAX_KEY], int *out_number)
{
    const char *text = scalar(reader);
    uint32_t line = line_at(reader);

    if (!text || strlen(text) >= MAX_KEY || grammar->find(text) < 0) {
        complain(reader, line, text && strlen(text) < MAX_KEY ? text : "", grammar->what);
        return false;
    }
    (void)snprintf(key, MAX_KEY, "%s", text);
    *out_number = grammar->find(key);
    if (seen[*out_number]) {
        config_complain(reader->source, line, key, "is here twice");
        return false;
    }
    seen[*out_number] = true;
    return true;
}

static void read_mapping(struct reader *reader, const struct grammar *grammar, void *record)
{
    bool seen[MAX_KEYS] = {false};
    char key[MAX_KEY];
    int number;

    advance(reader);
    while (goes_on(reader, YAML_MAPPING_END_EVENT)) {
        if (read_key(reader, grammar, seen, key, &number)) {
            advance(reader);
            grammar->read(reader, number, key, record);
        } else {
            skip_node(reader); /* the key, which may be a mapping */
            skip_node(reader);
        }
    }
    advance(reader);
}

/* ---- fields of tenants and domains -------------------------------------------------------------
 */

struct field {
    const char *name;
    const char *expected;
    size_t offset;                             /* in the record */
    size_t count_offset;                       /* of a list: its size_t; 0: no list */
    size_t max;                                /* of a list */
    size_t size;                               /* of the value, or of one element */
    int (*parse)(const char *text, void *out); /* 0, -EINVAL, -ENOMEM */
};

static int parse_string(const char *text, void *out)
{
    char **string = (char **)out;
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*string);
    *string = copy;
    return 0;
}

bool config_name_is_good(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(name);

    return length > 0 && length <= CONFIG_MAX_NAME && strspn(name, allowed) == length &&
           name[0] != '.' && strcmp(name, "other") != 0;
}

static int parse_name(const char *text, void *out)
{
    return config_name_is_good(text) ? parse_string(text, out) : -EINVAL;
}

static int parse_path(const char *text, void *out)
{
    if (text[0] != '/' || strlen(text) > 256)
        return -EINVAL;
    return parse_string(text, out);
}

static int parse_uid(const char *text, void *out)
{
    uint64_t uid;

    if (count_parse(text, &uid) < 0 || uid >= UINT32_MAX)
        return -EINVAL;
    *(uint32_t *)out = (uint32_t)uid;
    return 0;
}

static int parse_size(const char *text, void *out)
{
    return size_parse(text, out);
}

static int parse_limit(const char *text, void *out)
{
    if (strcmp(text, "none") != 0)
        return size_parse(text, out);
    *(uint64_t *)out = CONFIG_UNLIMITED;
    return 0;
}

static int parse_weight(const char *text, void *out)
{
    uint64_t weight;

    if (count_parse(text, &weight) < 0 || weight == 0 || weight > 1 << 20)
        return -EINVAL;
    *(uint64_t *)out = weight;
    return 0;
}

/* clang-format off */
#define NAME_TEXT "a name of at most 64 of A-Z a-z 0-9 . _ -, and not `other`"
#define TENANT(field) offsetof(struct config_tenant, field)
#define DOMAIN(field) offsetof(struct config_domain, field)
#define QUOTA_OF(at, tier, quota) \
    {tier "guarantee",  "a size like 8GiB",            at(quota.guarantee_bytes), 0, 0, 8, parse_size}, \
    {tier "limit",      "a size like 8GiB, or none",   at(quota.limit_bytes),     0, 0, 8, parse_limit}, \
    {tier "weight",     "a number from 1 to 1048576",  at(quota.weight),          0, 0, 8, parse_weight}
#define QUOTA(at) QUOTA_OF(at, "", quota), QUOTA_OF(at, "host-", host_quota), QUOTA_OF(at, "disk-", disk_quota)
static const struct field tenant_fields[] = {
    {"name",       NAME_TEXT,                     TENANT(name),       0, 0, sizeof(char *), parse_name},
    {"uids",       "a list of user ids",          TENANT(uids),       TENANT(num_uids), CONFIG_MAX_UIDS, sizeof(uint32_t), parse_uid},
    {"token-file", "an absolute path",            TENANT(token_file), 0, 0, sizeof(char *), parse_path},
    QUOTA(TENANT),
};
static const struct field domain_fields[] = {
    {"name",       NAME_TEXT,                     DOMAIN(name),       0, 0, sizeof(char *), parse_name},
    {"readers",    "a list of tenants' names",    DOMAIN(readers),    DOMAIN(num_readers), CONFIG_MAX_MEMBERS, sizeof(char *), parse_name},
    {"fillers",    "a list of tenants' names",    DOMAIN(fillers),    DOMAIN(num_fillers), CONFIG_MAX_MEMBERS, sizeof(char *), parse_name},
    QUOTA(DOMAIN),
};
#define NUM(array) (sizeof(array) / sizeof((array)[0]))
/* clang-format on */

/* The scalar at hand as one value of @field. Whether it is one: then @at has it, to be freed. */
static bool read_value(struct reader *reader, const struct field *field, void *at)
{
    const char *text = scalar(reader);
    int err = text ? field->parse(text, at) : -EINVAL;

    if (err == -EINVAL)
        complain(reader, line_at(reader), field->name, field->expected);
    else if (err)
        reader->err = err;
    skip_node(reader);
    return err == 0;
}

static void read_list(struct reader *reader, const struct field *field, char *record)
{
    size_t *count = (size_t *)(void *)(record + field->count_offset);
    char **list = (char **)(void *)(record + field->offset);

    if (!is_at(reader, YAML_SEQUENCE_START_EVENT)) {
        complain(reader, line_at(reader), field->name, field->expected);
        skip_node(reader);
        return;
    }
    *list = calloc(field->max, field->size);
    if (!*list)
        reader->err = -ENOMEM;
    advance(reader);
    while (goes_on(reader, YAML_SEQUENCE_END_EVENT)) {
        if (*count == field->max) {
            complain(reader, line_at(reader), field->name, "fewer entries");
            skip_node(reader);
            continue;
        }
        if (read_value(reader, field, *list + *count * field->size))
            ++*count;
    }
    advance(reader);
}

static void read_field(struct reader *reader, const struct field *field, void *record)
{
    if (field->count_offset)
        read_list(reader, field, record);
    else
        (void)read_value(reader, field, (char *)record + field->offset);
}

static int find_field(const struct field *fields, size_t num_fields, const char *key)
{
    for (size_t i = 0; i < num_fields; i++)
        if (strcmp(fields[i].name, key) == 0)
            return (int)i;
    return -1;
}

static int find_tenant_field(const char *key)
{
    return find_field(tenant_fields, NUM(tenant_fields), key);
}

static int find_domain_field(const char *key)
{
    return find_field(domain_fields, NUM(domain_fields), key);
}

static void read_tenant_field(struct reader *reader, int number, const char *key, void *record)
{
    (void)key;
    read_field(reader, &tenant_fields[number], record);
}

static void read_domain_field(struct reader *reader, int number, const char *key, void *record)
{
    (void)key;
    read_field(reader, &domain_fields[number], record);
}

static const struct grammar tenant_grammar = {
    "name, uids, token-file, guarantee, limit or weight (host- and disk-, too)", find_tenant_field,
    read_tenant_field};
static const struct grammar domain_grammar = {
    "name, readers, fillers, guarantee, limit or weight (host- and disk-, too)", find_domain_field,
    read_domain_field};

/* ---- sections: lists of tenants and domains ----------------------------------------------------
 */

static const struct config_quota default_quota = {0, CONFIG_UNLIMITED, 1};

static void *add_tenant(struct reader *reader)
{
    struct config *config = reader->config;
    struct config_tenant *tenant = &config->tenants[config->num_tenants];

    *tenant = (struct config_tenant){.quota = default_quota,
                                     .host_quota = default_quota,
                                     .disk_quota = default_quota,
                                     .line = line_at(reader)};
    config->num_tenants++;
    tenant->name = strdup("");
    tenant->token_file = strdup("");
    if (!tenant->name || !tenant->token_file)
        reader->err = -ENOMEM;
    return tenant;
}

static void *add_domain(struct reader *reader)
{
    struct config *config = reader->config;
    struct config_domain *domain = &config->domains[config->num_domains];

    *domain = (struct config_domain){.quota = default_quota,
                                     .host_quota = default_quota,
                                     .disk_quota = default_quota,
                                     .line = line_at(reader)};
    config->num_domains++;
    domain->name = strdup("");
    if (!domain->name)
        reader->err = -ENOMEM;
    return domain;
}

struct section {
    const char *name, *expected;
    size_t max;
    void *(*add)(struct reader *reader);
    const struct grammar *grammar;
};

/* clang-format off */
static const struct section sections[] = {
    {"tenants", "a list of tenants", CONFIG_MAX_TENANTS, add_tenant, &tenant_grammar},
    {"domains", "a list of domains", CONFIG_MAX_DOMAINS, add_domain, &domain_grammar},
};
/* clang-format on */

static void read_section(struct reader *reader, const struct section *section)
{
    size_t count = 0;

    if (!is_at(reader, YAML_SEQUENCE_START_EVENT)) {
        complain(reader, line_at(reader), section->name, section->expected);
        skip_node(reader);
        return;
    }
    advance(reader);
    for (; goes_on(reader, YAML_SEQUENCE_END_EVENT); count++) {
        (void)snprintf(reader->path, sizeof(reader->path), "%s[%zu].", section->name, count);
        if (!is_at(reader, YAML_MAPPING_START_EVENT) || count >= section->max) {
            complain(reader, line_at(reader), "",
                     count >= section->max ? "at most 1024 of them" : section->grammar->what);
            skip_node(reader);
            continue;
        }
        read_mapping(reader, section->grammar, section->add(reader));
    }
    reader->path[0] = '\0';
    advance(reader);
}

static int find_top(const char *key)
{
    const struct setting *setting = setting_find(key);

    if (setting)
        return (int)(setting - settings);
    for (size_t i = 0; i < NUM(sections); i++)
        if (strcmp(sections[i].name, key) == 0)
            return (int)(num_settings + i);
    return -1;
}

static void read_setting(struct reader *reader, const struct setting *setting)
{
    const char *text = scalar(reader);
    char expected[SETTING_TEXT];
    int err = text ? setting_apply(setting, text, reader->config) : -EINVAL;

    reader->source->lines[setting - settings] = line_at(reader);
    if (err == -EINVAL) {
        setting_expect(setting, expected);
        complain(reader, line_at(reader), setting->name, expected);
    } else if (err) {
        reader->err = err;
    }
    skip_node(reader);
}

static void read_top(struct reader *reader, int number, const char *key, void *record)
{
    (void)key;
    (void)record;
    if ((size_t)number < num_settings)
        read_setting(reader, &settings[number]);
    else
        read_section(reader, &sections[(size_t)number - num_settings]);
}

static const struct grammar top_grammar = {"a setting, tenants or domains", find_top, read_top};

/* ---- files -------------------------------------------------------------------------------------
 */

/* One document, which is a mapping, or nothing at all. */
static void read_stream(struct reader *reader)
{
    advance(reader); /* to the start of the stream */
    advance(reader);
    if (!is_at(reader, YAML_DOCUMENT_START_EVENT))
        return;
    advance(reader);
    if (is_at(reader, YAML_MAPPING_START_EVENT)) {
        read_mapping(reader, &top_grammar, NULL);
    } else {
        complain(reader, line_at(reader), "YAML", "a mapping of settings");
        skip_node(reader);
    }
    advance(reader); /* past the end of the document */
    if (is_at(reader, YAML_DOCUMENT_START_EVENT))
        complain(reader, line_at(reader), "YAML", "one document");
}

static int file_read(const char *path, char **out_bytes, size_t *out_num_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;

    int err = 0;
    char *bytes = calloc(1, CONFIG_MAX_FILE + 1);
    size_t num_bytes = 0;
    if (!bytes) {
        err = -ENOMEM;
        goto fail;
    }
    num_bytes = fread(bytes, 1, CONFIG_MAX_FILE + 1, file);
    if (ferror(file))
        err = errno ? -errno : -EIO;
    else if (num_bytes > CONFIG_MAX_FILE)
        err = -EFBIG;
    if (err)
        goto fail;
    (void)fclose(file);
    *out_bytes = bytes;
    *out_num_bytes = num_bytes;
    return 0;

fail:
    free(bytes);
    (void)fclose(file);
    return err;
}

int config_yaml_read(struct config_source *source, struct config *config)
{
    struct reader reader = {.source = source, .config = config};
    size_t num_bytes = 0;
    char *bytes = NULL;

    int err = file_read(source->path, &bytes, &num_bytes);
    if (err)
        return err;
    if (!yaml_parser_initialize(&reader.parser)) {
        free(bytes);
        return -ENOMEM;
    }
    reader.bytes = bytes;
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)bytes, num_bytes);
    read_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    free(bytes);
    return reader.err < 0 ? reader.err : 0;
}
