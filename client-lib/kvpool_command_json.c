/* client-lib/kvpool_command_json.c - a small JSON reader: in place, one block of nodes. */
#include "client-lib/kvpool_command_json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

struct reader {
    char *at;
    struct json *nodes; /* one for each value that the text can have at most */
    size_t num_nodes, max_nodes;
};

static bool read_value(struct reader *reader, struct json *out, int depth);

static void skip_space(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool take(struct reader *reader, char expected)
{
    skip_space(reader);
    if (*reader->at != expected)
        return false;
    reader->at++;
    return true;
}

/* \uXXXX becomes '?': names of the daemon have none, and nothing else is compared. */
static char unescape(struct reader *reader)
{
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    char escaped = *reader->at++;
    const char *found = strchr(from, escaped);

    if (escaped == 'u') {
        for (int i = 0; i < 4 && *reader->at; i++)
            reader->at++;
        return '?';
    }
    return escaped && found ? to[found - from] : escaped;
}

static bool read_string(struct reader *reader, const char **out)
{
    if (!take(reader, '"'))
        return false;
    char *write = reader->at;
    *out = write;
    while (*reader->at && *reader->at != '"') {
        char c = *reader->at++;
        if (c == '\\') {
            if (!*reader->at)
                return false;
            c = unescape(reader);
        }
        *write++ = c;
    }
    if (*reader->at != '"')
        return false;
    reader->at++;
    *write = '\0';
    return true;
}

static bool read_members(struct reader *reader, struct json *out, int depth)
{
    char end = out->kind == JSON_OBJECT ? '}' : ']';
    struct json **link = &out->first;

    if (take(reader, end))
        return true;
    do {
        if (reader->num_nodes == reader->max_nodes)
            return false;
        struct json *node = &reader->nodes[reader->num_nodes++];
        *node = (struct json){.key = ""};
        if (out->kind == JSON_OBJECT && (!read_string(reader, &node->key) || !take(reader, ':')))
            return false;
        if (!read_value(reader, node, depth + 1))
            return false;
        *link = node;
        link = &node->next;
    } while (take(reader, ','));
    return take(reader, end);
}

static bool read_word(struct reader *reader, struct json *out)
{
    static const struct {
        const char *word;
        enum json_kind kind;
    } words[] = {{"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(reader->at, words[i].word, length) != 0)
            continue;
        out->kind = words[i].kind;
        reader->at += length;
        return true;
    }
    char *end;
    out->kind = JSON_NUMBER;
    out->integer = strtoull(reader->at, NULL, 10);
    out->number = strtod(reader->at, &end);
    if (end == reader->at)
        return false;
    reader->at = end;
    return true;
}

static bool read_value(struct reader *reader, struct json *out, int depth)
{
    skip_space(reader);
    if (depth > MAX_DEPTH)
        return false;
    switch (*reader->at) {
    case '{':
    case '[':
        out->kind = *reader->at++ == '{' ? JSON_OBJECT : JSON_LIST;
        return read_members(reader, out, depth);
    case '"':
        out->kind = JSON_STRING;
        return read_string(reader, &out->string);
    default:
        return read_word(reader, out);
    }
}

struct json *json_parse(char *text)
{
    size_t max_nodes = 2; /* the first, and one behind each of these */
    for (const char *at = text; (at = strpbrk(at, ",[{")); at++)
        max_nodes++;

    struct json *nodes = calloc(max_nodes, sizeof(*nodes));
    if (!nodes)
        return NULL;
    struct reader reader = {.at = text, .nodes = nodes, .num_nodes = 1, .max_nodes = max_nodes};
    nodes[0].key = "";
    if (read_value(&reader, &nodes[0], 0)) {
        skip_space(&reader);
        if (!*reader.at)
            return nodes;
    }
    free(nodes);
    return NULL;
}

const struct json *json_member(const struct json *object, const char *key)
{
    static const struct json none = {.key = ""};

    if (!object || object->kind != JSON_OBJECT)
        return &none;
    for (const struct json *member = object->first; member; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member;
    return &none;
}

const char *json_string(const struct json *object, const char *key)
{
    const struct json *member = json_member(object, key);
    return member->kind == JSON_STRING ? member->string : "";
}

double json_number(const struct json *object, const char *key)
{
    const struct json *member = json_member(object, key);
    return member->kind == JSON_NUMBER ? member->number : 0;
}

bool json_is_true(const struct json *object, const char *key)
{
    return json_member(object, key)->kind == JSON_TRUE;
}
