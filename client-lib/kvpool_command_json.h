/* client-lib/kvpool_command_json.h - internal: reads the daemon's JSON, leniently. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
};

struct json {
    enum json_kind kind;
    const char *key;    /* of a member; else "" */
    const char *string; /* JSON_STRING */
    double number;      /* JSON_NUMBER; a whole one also in @integer, which loses nothing */
    uint64_t integer;
    struct json *first, *next; /* of lists and objects; siblings */
};

/* Takes @text apart in place: it must stay. NULL: not JSON, or out of memory. Free with free(). */
struct json *json_parse(char *text);

/* A member, or one that is null: never NULL, also for @object NULL or no object. */
const struct json *json_member(const struct json *object, const char *key);

const char *json_string(const struct json *object, const char *key); /* "" where there is none */
double json_number(const struct json *object, const char *key);      /* 0 where there is none */
bool json_is_true(const struct json *object, const char *key);
