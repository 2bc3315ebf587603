/* daemon/text.h - text built up in a buffer of fixed size: too much is noticed, never written. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes; /* NUL-terminated */
    size_t size, length;
    bool is_cut; /* something did not fit; the text is whole up to that piece */
};

/* @size at least 1. */
static inline struct text text_init(char *buffer, size_t size)
{
    buffer[0] = '\0';
    return (struct text){.bytes = buffer, .size = size};
}

void text_add(struct text *text, const char *piece);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* In quotes, with what JSON wants escaped; bytes that are no UTF-8 become U+FFFD. */
void text_add_json(struct text *text, const char *piece);

/* As the value of a metric's label, without quotes: \\, \" and \n; no UTF-8 as above. */
void text_add_label(struct text *text, const char *piece);
