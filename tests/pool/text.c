/* tests/pool/text.c - answers: text that grows, and when two are the same. */
#include "tests/pool/script.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_reserve(struct text *text, size_t capacity)
{
    if (capacity <= text->capacity)
        return;
    capacity = capacity < 2 * text->capacity ? 2 * text->capacity : capacity;
    text->bytes = realloc(text->bytes, capacity);
    assert(text->bytes); /* a test program without memory has nothing to say */
    text->capacity = capacity;
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    text_reserve(text, text->length + 64);
    size_t room = text->capacity - text->length;
    int length = vsnprintf(text->bytes + text->length, room, format, arguments);
    assert(length >= 0);
    if ((size_t)length >= room) {
        text_reserve(text, text->length + (size_t)length + 1);
        (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
    }
    text->length += (size_t)length;
    va_end(again);
    va_end(arguments);
}

void text_clear(struct text *text)
{
    text_reserve(text, 64);
    text->bytes[0] = '\0';
    text->length = 0;
}

void text_finish(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

/* True if @line stands among the lines of @lines. */
static bool has_line(const char *lines, const char *line, size_t length)
{
    for (; lines; lines = strchr(lines, '\n'), lines = lines ? lines + 1 : NULL)
        if (strncmp(lines, line, length) == 0 && (!lines[length] || lines[length] == '\n'))
            return true;
    return false;
}

bool script_has_lines(const char *answer, const char *expected)
{
    while (*expected) {
        size_t length = strcspn(expected, "\n");
        if (!has_line(answer, expected, length))
            return false;
        expected += length + (expected[length] != '\0');
    }
    return true;
}

bool script_is_same_answer(enum script_verb verb, const char *core, const char *model)
{
    if (strncmp(core, "error: ", 7) == 0 && strncmp(model, "error: ", 7) == 0)
        return true;
    if (verb == VERB_STATS)
        return script_has_lines(core, model);
    return strcmp(core, model) == 0;
}
