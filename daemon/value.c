/* daemon/value.c - sizes, durations, counts and modes as people write them. */
#include "daemon/value.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Descending; the last one is written without a name. */
static const struct unit size_units[] = {
    {"TiB", UINT64_C(1) << 40},
    {"GiB", UINT64_C(1) << 30},
    {"MiB", UINT64_C(1) << 20},
    {"KiB", UINT64_C(1) << 10},
    {"", 1},
};
static const struct unit duration_units[] = {
    {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};

#define NUM(array) (sizeof(array) / sizeof((array)[0]))

/* Digits of @base up to @out_rest. */
static int digits_parse(const char *text, unsigned base, const char **out_rest, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;

    for (; *at >= '0' && *at < (char)('0' + base); at++)
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return -EINVAL;
    if (at == text)
        return -EINVAL;
    *out_rest = at;
    *out = value;
    return 0;
}

static int unit_parse(const char *text, const struct unit *units, size_t num_units, uint64_t *out)
{
    const char *name;
    uint64_t value;

    if (digits_parse(text, 10, &name, &value) < 0)
        return -EINVAL;
    for (size_t i = 0; i < num_units; i++) {
        if (strcmp(units[i].name, name) != 0)
            continue;
        if (__builtin_mul_overflow(value, units[i].factor, &value))
            return -EINVAL;
        *out = value;
        return 0;
    }
    return -EINVAL;
}

int count_parse(const char *text, uint64_t *out_count)
{
    const char *rest;
    uint64_t value;

    if (digits_parse(text, 10, &rest, &value) < 0 || *rest != '\0')
        return -EINVAL;
    *out_count = value;
    return 0;
}

int size_parse(const char *text, uint64_t *out_bytes)
{
    return unit_parse(text, size_units, NUM(size_units), out_bytes);
}

int duration_parse(const char *text, uint64_t *out_ms)
{
    if (strcmp(text, "0") == 0) {
        *out_ms = 0;
        return 0;
    }
    return unit_parse(text, duration_units, NUM(duration_units), out_ms);
}

int mode_parse(const char *text, uint64_t *out_mode)
{
    const char *rest;
    uint64_t value;

    if (text[0] != '0' || digits_parse(text, 8, &rest, &value) < 0 || *rest != '\0')
        return -EINVAL;
    *out_mode = value;
    return 0;
}

static void unit_format(uint64_t value, const struct unit *units, size_t num_units,
                        char out[VALUE_TEXT])
{
    const struct unit *unit = units;

    while (unit < units + num_units - 1 && value % unit->factor != 0)
        unit++;
    (void)snprintf(out, VALUE_TEXT, "%llu%s", (unsigned long long)(value / unit->factor),
                   unit->name);
}

void size_format(uint64_t bytes, char out[VALUE_TEXT])
{
    if (bytes == 0)
        (void)snprintf(out, VALUE_TEXT, "0");
    else
        unit_format(bytes, size_units, NUM(size_units), out);
}

void duration_format(uint64_t ms, char out[VALUE_TEXT])
{
    if (ms == 0)
        (void)snprintf(out, VALUE_TEXT, "0");
    else
        unit_format(ms, duration_units, NUM(duration_units), out);
}

void size_round(uint64_t bytes, char out[VALUE_TEXT])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t at = 0;

    while (value >= 1023.5 && at + 1 < NUM(names)) {
        value /= 1024;
        at++;
    }
    (void)snprintf(out, VALUE_TEXT, "%.*f %s", at > 0 && value < 99.95 ? 1 : 0, value, names[at]);
}
