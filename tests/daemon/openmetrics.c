/* tests/daemon/openmetrics.c - whether a text keeps the rules of the exposition formats. */
#include "tests/daemon/openmetrics.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 20000, MAX_FAMILIES = 2000, MAX_NAME = 128 };

struct checker {
    bool is_openmetrics;
    char families[MAX_FAMILIES][MAX_NAME];
    size_t num_families;
    char type[16]; /* of the family at hand; "" before its TYPE */
    bool has_help, has_samples;
    const char *samples[MAX_SAMPLES]; /* name and labels */
    size_t lengths[MAX_SAMPLES];
    size_t num_samples;
};

static size_t name_length(const char *at)
{
    size_t length = 0;

    if (!isalpha((unsigned char)at[0]) && at[0] != '_' && at[0] != ':')
        return 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == ':')
        length++;
    return length;
}

static bool is_name(const char *at, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(at, name, length) == 0;
}

/* Makes the family of a HELP or TYPE line the one at hand. */
static const char *begin_family(struct checker *checker, const char *name, size_t length)
{
    if (checker->num_families > 0 &&
        is_name(name, length, checker->families[checker->num_families - 1]))
        return checker->has_samples ? "metadata behind samples" : NULL;
    for (size_t i = 0; i < checker->num_families; i++)
        if (is_name(name, length, checker->families[i]))
            return "a family in two pieces";
    if (length >= MAX_NAME || checker->num_families == MAX_FAMILIES)
        return "too much";
    memcpy(checker->families[checker->num_families], name, length);
    checker->families[checker->num_families++][length] = '\0';
    checker->type[0] = '\0';
    checker->has_help = checker->has_samples = false;
    return NULL;
}

static const char *check_help(struct checker *checker, const char *at, const char *end)
{
    size_t length = name_length(at);
    const char *why = length ? begin_family(checker, at, length) : "no name";

    if (why)
        return why;
    if (checker->has_help)
        return "HELP twice";
    checker->has_help = true;
    at += length;
    if (*at++ != ' ' || at == end)
        return "no help";
    for (; at < end; at++) {
        if (*at == '\\' && at[1] != '\\' && at[1] != 'n' && at[1] != '"')
            return "no escape";
        at += *at == '\\';
    }
    return NULL;
}

static const char *check_type(struct checker *checker, const char *at, const char *end)
{
    size_t length = name_length(at);
    const char *why = length ? begin_family(checker, at, length) : "no name";
    bool has_total;

    if (why)
        return why;
    if (checker->type[0] != '\0')
        return "TYPE twice";
    const char *type = at + length + 1;
    size_t type_length = (size_t)(end - type);
    if (at[length] != ' ' || type_length >= sizeof(checker->type))
        return "no type";
    memcpy(checker->type, type, type_length);
    checker->type[type_length] = '\0';
    if (strcmp(checker->type, "gauge") != 0 && strcmp(checker->type, "counter") != 0 &&
        (strcmp(checker->type, "info") != 0 || !checker->is_openmetrics))
        return "unknown type";
    has_total = length > 6 && strncmp(at + length - 6, "_total", 6) == 0;
    if (has_total != (strcmp(checker->type, "counter") == 0 && !checker->is_openmetrics))
        return "_total belongs to counters: in Prometheus text to their families too";
    return NULL;
}

static const char *check_labels(const char **at)
{
    const char *names[16];
    size_t count = 0;

    do {
        size_t length = name_length(++*at);
        if (length == 0 || memchr(*at, ':', length))
            return "no label";
        for (size_t i = 0; i < count; i++)
            if (strncmp(names[i], *at, length + 1) == 0)
                return "a label twice";
        if (count == 16)
            return "too many labels";
        names[count++] = *at;
        *at += length;
        if (strncmp(*at, "=\"", 2) != 0)
            return "no label value";
        for (*at += 2; **at != '"'; ++*at) {
            if (**at == '\n' || **at == '\0')
                return "a label value without end";
            if (**at == '\\' && !strchr("\\n\"", *++*at))
                return "no escape";
        }
    } while (*++*at == ',');
    return *(*at)++ == '}' ? NULL : "no end of labels";
}

/* Does a sample's name belong to the family at hand? */
static bool is_of_family(const struct checker *checker, const char *name, size_t length)
{
    const char *family = checker->families[checker->num_families - 1];
    char expected[MAX_NAME + 8];

    (void)snprintf(expected, sizeof(expected), "%s%s", family,
                   !checker->is_openmetrics                ? ""
                   : strcmp(checker->type, "counter") == 0 ? "_total"
                   : strcmp(checker->type, "info") == 0    ? "_info"
                                                           : "");
    return is_name(name, length, expected);
}

static const char *check_sample(struct checker *checker, const char *at, const char *end)
{
    const char *begin = at, *why = NULL;
    size_t length = name_length(at);
    char *rest;

    if (length == 0)
        return "no name";
    if (checker->num_families == 0 || checker->type[0] == '\0' || !checker->has_help ||
        !is_of_family(checker, at, length))
        return "a sample outside its family";
    at += length;
    if (*at == '{')
        why = check_labels(&at);
    if (why)
        return why;
    if (checker->num_samples == MAX_SAMPLES)
        return "too many samples";
    for (size_t i = 0; i < checker->num_samples; i++)
        if (checker->lengths[i] == (size_t)(at - begin) &&
            strncmp(checker->samples[i], begin, (size_t)(at - begin)) == 0)
            return "a sample twice";
    checker->samples[checker->num_samples] = begin;
    checker->lengths[checker->num_samples++] = (size_t)(at - begin);
    checker->has_samples = true;
    if (*at++ != ' ' || (!isdigit((unsigned char)*at) && *at != '-'))
        return "no value";
    double value = strtod(at, &rest);
    if (rest != end)
        return "more than a value";
    return strcmp(checker->type, "counter") == 0 && value < 0 ? "a negative counter" : NULL;
}

static const char *check_line(struct checker *checker, const char *at, const char *end)
{
    if (at == end)
        return "an empty line";
    if (strncmp(at, "# HELP ", 7) == 0)
        return check_help(checker, at + 7, end);
    if (strncmp(at, "# TYPE ", 7) == 0)
        return check_type(checker, at + 7, end);
    if (*at == '#')
        return "a comment";
    return check_sample(checker, at, end);
}

bool metrics_check(const char *text, bool is_openmetrics, char *out_why, size_t size)
{
    struct checker *checker = calloc(1, sizeof(*checker));
    const char *why = checker ? NULL : "no memory", *at = text;
    int line = 1;

    if (checker)
        checker->is_openmetrics = is_openmetrics;
    while (!why && *at) {
        const char *end = strchr(at, '\n');
        if (!end)
            why = "no end of line";
        else if (is_openmetrics && strcmp(at, "# EOF\n") == 0)
            break;
        else
            why = check_line(checker, at, end);
        if (!why) {
            at = end + 1;
            line++;
        }
    }
    if (!why && is_openmetrics && strcmp(at, "# EOF\n") != 0)
        why = "no # EOF";
    if (why)
        (void)snprintf(out_why, size, "line %d: %s: %.60s", line, why, at);
    free(checker);
    return !why;
}

double metrics_find(const char *text, const char *sample)
{
    size_t length = strlen(sample);

    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, sample, length) == 0 && at[length] == ' ')
            return strtod(at + length, NULL);
    }
    return -1;
}
