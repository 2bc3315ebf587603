/* daemon/log.c - one line an event, on standard error. */
#include "daemon/log.h"
#include "daemon/text.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_LINE = 2048,  /* under PIPE_BUF: a line is written whole or not at all */
    MAX_EVENTS = 128, /* kinds with a rate of their own; the rest share the last */
    WINDOW_MS = 1000
};

/* Lines of one event, in the window that began at @window_ms. */
struct event_rate {
    const char *event;
    uint64_t window_ms;
    uint32_t lines;
    uint64_t suppressed; /* not yet reported */
};

static struct {
    pthread_mutex_t lock; /* for all below: any thread logs, and none does so often */
    struct log_options options;
    bool has_prefix;
    struct event_rate rates[MAX_EVENTS];
    size_t num_rates;
    struct log_counters counters;
} logger = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .options = {.lines_per_second = 20, .fd = STDERR_FILENO},
    .has_prefix = true,
};

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn",   [LOG_NOTICE] = "notice",
    [LOG_INFO] = "info",   [LOG_DEBUG] = "debug",
};

struct log_field log_error(const char *key, int err)
{
    return log_text(key, strerrorname_np(err < 0 ? -err : err));
}

void log_configure(const struct log_options *options)
{
    pthread_mutex_lock(&logger.lock);
    logger.options = *options;
    if (options->fd < 0)
        logger.options.fd = STDERR_FILENO;
    logger.has_prefix = !isatty(logger.options.fd);
    pthread_mutex_unlock(&logger.lock);
}

struct log_counters log_counters(void)
{
    pthread_mutex_lock(&logger.lock);
    struct log_counters counters = logger.counters;
    pthread_mutex_unlock(&logger.lock);
    return counters;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Bare where that can be read back without quotes. */
static void add_word(struct text *line, const char *word)
{
    static const char bare[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@+,%-";

    if (word[0] != '\0' && word[strspn(word, bare)] == '\0')
        text_add(line, word);
    else
        text_add_json(line, word);
}

static void add_value(struct text *line, const struct log_field *field, bool is_json)
{
    switch (field->kind) {
    case LOG_TEXT:
        (is_json ? text_add_json : add_word)(line, field->text);
        return;
    case LOG_NUMBER:
        text_printf(line, "%llu", (unsigned long long)field->number);
        return;
    case LOG_SIGNED:
        text_printf(line, "%lld", (long long)field->number);
        return;
    case LOG_BOOL:
        text_add(line, field->number ? "true" : "false");
        return;
    case LOG_ID:
        text_printf(line, is_json ? "\"%016llx\"" : "%016llx", (unsigned long long)field->number);
        return;
    }
}

static void add_time(struct text *line)
{
    struct timespec now;
    struct tm parts;
    char date[32];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &parts);
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
    text_printf(line, "{\"time\":\"%s.%03ldZ\",", date, now.tv_nsec / 1000000);
}

/* What does not fit is left out from there on, and `cut` says so. */
static void add_fields(struct text *line, const struct log_field *fields, bool is_json)
{
    for (const struct log_field *field = fields; field->key; field++) {
        struct text before = *line;
        text_printf(line, is_json ? ",\"%s\":" : " %s=", field->key);
        add_value(line, field, is_json);
        if (line->is_cut || line->length > line->size - 32) {
            *line = before;
            line->bytes[line->length] = '\0';
            text_add(line, is_json ? ",\"cut\":true" : " cut=true");
            return;
        }
    }
}

/* Never waits: a pipe or socket that is full costs the line. */
static void put_line(enum log_level level, const char *event, const struct log_field *fields)
{
    char buffer[MAX_LINE];
    struct text line = text_init(buffer, sizeof(buffer));
    bool is_json = logger.options.is_json;

    if (is_json) {
        add_time(&line);
        text_printf(&line, "\"level\":\"%s\",\"event\":\"%s\"", level_names[level], event);
    } else {
        if (logger.has_prefix)
            text_printf(&line, "<%d>", level);
        text_add(&line, event);
    }
    add_fields(&line, fields, is_json);
    text_add(&line, is_json ? "}\n" : "\n");

    struct pollfd ready = {.fd = logger.options.fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
        write(logger.options.fd, line.bytes, line.length) == (ssize_t)line.length)
        logger.counters.written++;
    else
        logger.counters.dropped++;
}

/* ---- rates ---------------------------------------------------------------------------------- */

static uint64_t clock_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Ends windows, and says what was left out in them. */
static void end_windows(uint64_t now_ms)
{
    for (size_t i = 0; i < logger.num_rates; i++) {
        struct event_rate *rate = &logger.rates[i];
        if (now_ms - rate->window_ms < WINDOW_MS)
            continue;
        if (rate->suppressed > 0) {
            const struct log_field fields[] = {
                log_text("of", rate->event), log_number("lines", rate->suppressed), LOG_NO_FIELDS};
            put_line(LOG_NOTICE, "log_suppressed", fields);
        }
        rate->window_ms = now_ms;
        rate->lines = 0;
        rate->suppressed = 0;
    }
}

static struct event_rate *rate_of(const char *event, uint64_t now_ms)
{
    for (size_t i = 0; i < logger.num_rates; i++)
        if (strcmp(logger.rates[i].event, event) == 0)
            return &logger.rates[i];
    if (logger.num_rates == MAX_EVENTS)
        return &logger.rates[MAX_EVENTS - 1];
    struct event_rate *rate = &logger.rates[logger.num_rates++];
    *rate = (struct event_rate){.event = event, .window_ms = now_ms};
    return rate;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    uint64_t now_ms = clock_ms();

    pthread_mutex_lock(&logger.lock);
    end_windows(now_ms);
    struct event_rate *rate = rate_of(event, now_ms);
    if (level == LOG_DEBUG && !logger.options.with_debug) {
        /* not wanted: no line, and none left out */
    } else if (logger.options.lines_per_second > 0 &&
               rate->lines >= logger.options.lines_per_second) {
        rate->suppressed++;
        logger.counters.suppressed++;
    } else {
        rate->lines++;
        put_line(level, event, fields);
    }
    pthread_mutex_unlock(&logger.lock);
}
