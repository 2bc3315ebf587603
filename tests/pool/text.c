/* tests/pool/text.c - text that grows, for the answers of the shell's subjects. */
#include "tests/pool/script.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
