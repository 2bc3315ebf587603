/* daemon/settings.h - internal to config: the table of settings, and what is done row by row. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct config;

enum setting_kind {
    SETTING_SIZE,     /* bytes: 64MiB */
    SETTING_COUNT,    /* 4096 */
    SETTING_DURATION, /* milliseconds: 30s */
    SETTING_MODE,     /* octal: 0600 */
    SETTING_BOOL,     /* true, false */
    SETTING_PATH,     /* absolute; "" where @min is 0 */
    SETTING_WORD      /* one of those of @initial, which are parted by '|'; its number, from 0 */
};

struct setting {
    const char *name;
    enum setting_kind kind;
    bool is_live;        /* reloadable: SIGHUP changes it */
    size_t offset;       /* in struct config: uint64_t, bool or char * by kind */
    const char *initial; /* of a SETTING_WORD: all of its words, the first one is the default */
    uint64_t min, max;   /* of the value; of a path or string, its bytes */
    const char *help;
};

extern const struct setting settings[];
extern const size_t num_settings;

const struct setting *setting_find(const char *name);

enum { SETTING_TEXT = 600 };

/* 0, -EINVAL (setting_expect() says what it should be), or -ENOMEM. */
int setting_apply(const struct setting *setting, const char *value, struct config *config);

/* What stands for it in a file that does not name it. */
void setting_default(const struct setting *setting, char out[SETTING_TEXT]);

/* All of them at their defaults: 0 or -ENOMEM. @config is zeroed before. */
int settings_init(struct config *config);
void settings_finish(struct config *config);

/* As it is written in a file: what setting_apply() reads back. @out holds at least SETTING_TEXT. */
void setting_format(const struct setting *setting, const struct config *config,
                    char out[SETTING_TEXT]);

/* What a value looks like: "a size from 1MiB to 64TiB". */
void setting_expect(const struct setting *setting, char out[SETTING_TEXT]);

bool setting_equals(const struct setting *setting, const struct config *a, const struct config *b);
void setting_swap(const struct setting *setting, struct config *a, struct config *b);
