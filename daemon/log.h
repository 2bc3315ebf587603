/*
 * daemon/log.h - one line an event, on standard error.
 *
 *   <6>session_open session=50ca7e11e0d3c2a6 pid=4711      systemd's priority first, no terminal
 *   {"time":"2026-01-31T07:00:00.000Z","level":"info","event":"session_open","tenant":"chat",...}
 *
 * Event names and keys are words of lower case with `_`. Any thread may log. A line never waits:
 * one that standard error would not take at once is dropped and counted; of each event only so many
 * lines a second are written, then `log_suppressed of=... lines=...`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_NOTICE = 5, LOG_INFO = 6, LOG_DEBUG = 7 };

struct log_field {
    const char *key; /* NULL: no field; ends the list */
    enum { LOG_TEXT, LOG_NUMBER, LOG_SIGNED, LOG_BOOL, LOG_ID } kind;
    const char *text;
    uint64_t number;
};

static inline struct log_field log_text(const char *key, const char *text)
{
    return (struct log_field){.key = key, .kind = LOG_TEXT, .text = text ? text : ""};
}

static inline struct log_field log_number(const char *key, uint64_t number)
{
    return (struct log_field){.key = key, .kind = LOG_NUMBER, .number = number};
}

static inline struct log_field log_signed(const char *key, int64_t number)
{
    return (struct log_field){.key = key, .kind = LOG_SIGNED, .number = (uint64_t)number};
}

static inline struct log_field log_bool(const char *key, bool is_true)
{
    return (struct log_field){.key = key, .kind = LOG_BOOL, .number = is_true};
}

/* 16 hexadecimal digits, in JSON a string: a session as `kvpool sessions` and `kvpool kick` have
 * it. */
static inline struct log_field log_id(const char *key, uint64_t id)
{
    return (struct log_field){.key = key, .kind = LOG_ID, .number = id};
}

/* The name of a negative errno: error=ENOENT. */
struct log_field log_error(const char *key, int err);

#define LOG_NO_FIELDS ((struct log_field){0})

/* log_event(LOG_INFO, "ready", log_number("blocks", n), ...): at least one field, or LOG_NO_FIELDS
 */
#define log_event(level, event, ...)                                                               \
    log_write(level, event, (const struct log_field[]){__VA_ARGS__, LOG_NO_FIELDS})

/* @event is a string constant. */
void log_write(enum log_level level, const char *event, const struct log_field *fields);

struct log_options {
    bool is_json;
    bool with_debug;
    uint32_t lines_per_second; /* of one event; 0: no limit */
    int fd;                    /* where to; -1: standard error */
};

/* May be called again (SIGHUP). Before the first call: text, no debug, 20 lines a second. */
void log_configure(const struct log_options *options);

struct log_counters {
    uint64_t written, suppressed, dropped; /* lines */
};
struct log_counters log_counters(void);
