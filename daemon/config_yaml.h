/* daemon/config_yaml.h - internal to config: from YAML to records, and what they must be together.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct config;
struct config_error;

enum { CONFIG_MAX_SETTINGS = 96 };

/* Where the mistakes are to be looked for. */
struct config_source {
    const char *path;                    /* NULL: there is no file */
    uint32_t lines[CONFIG_MAX_SETTINGS]; /* of each setting; 0: not in the file */
    struct config_error *error;          /* where mistakes go */
};

/* Adds "path:line: key: ..." to the mistakes. Line 0: none. */
void config_complain(struct config_source *source, uint32_t line, const char *key,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Reads source->path over what @config has: 0 (there may be complaints), or negative errno. */
int config_yaml_read(struct config_source *source, struct config *config);

/* Complains about values that are right alone and wrong together. */
void config_check(struct config_source *source, const struct config *config);
