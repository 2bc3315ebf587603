/* daemon/text.c - text built up in a buffer of fixed size: too much is noticed, never written. */
#include "daemon/text.h"

#include <stdio.h>
#include <string.h>

static void add_bytes(struct text *text, const char *bytes, size_t count)
{
    if (text->is_cut || count >= text->size - text->length) {
        text->is_cut = true;
        return;
    }
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

void text_add(struct text *text, const char *piece)
{
    add_bytes(text, piece, strlen(piece));
}

void text_printf(struct text *text, const char *format, ...)
{
    size_t room = text->size - text->length;
    va_list args;

    if (text->is_cut)
        return;
    va_start(args, format);
    int count = vsnprintf(text->bytes + text->length, room, format, args);
    va_end(args);
    if (count < 0 || (size_t)count >= room) {
        text->bytes[text->length] = '\0';
        text->is_cut = true;
        return;
    }
    text->length += (size_t)count;
}

/* Bytes of the UTF-8 sequence at @at, 0 if it is none (RFC 3629: shortest form, no surrogates). */
static size_t utf8_length(const unsigned char *at)
{
    static const struct {
        unsigned char first, last, second_first, second_last, length;
    } forms[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (forms[i].length > 1 && (at[1] < forms[i].second_first || at[1] > forms[i].second_last))
            return 0;
        for (size_t next = 2; next < forms[i].length; next++)
            if (at[next] < 0x80 || at[next] > 0xbf)
                return 0;
        return forms[i].length;
    }
    return 0;
}

/* Adds one character of @piece, and answers where the next one begins. */
static const char *add_utf8(struct text *text, const char *piece)
{
    size_t length = utf8_length((const unsigned char *)piece);

    if (length == 0) {
        text_add(text, "\xef\xbf\xbd");
        return piece + 1;
    }
    add_bytes(text, piece, length);
    return piece + length;
}

static const char *json_escape(unsigned char byte, char buffer[8])
{
    switch (byte) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        if (byte >= 0x20 && byte != 0x7f)
            return NULL;
        (void)snprintf(buffer, 8, "\\u%04x", byte);
        return buffer;
    }
}

void text_add_json(struct text *text, const char *piece)
{
    char buffer[8];

    text_add(text, "\"");
    while (*piece != '\0') {
        const char *escape = json_escape((unsigned char)*piece, buffer);
        if (escape) {
            text_add(text, escape);
            piece++;
        } else {
            piece = add_utf8(text, piece);
        }
    }
    text_add(text, "\"");
}

void text_add_label(struct text *text, const char *piece)
{
    while (*piece != '\0') {
        if (*piece == '"' || *piece == '\\' || *piece == '\n') {
            text_add(text, *piece == '"' ? "\\\"" : *piece == '\\' ? "\\\\" : "\\n");
            piece++;
        } else {
            piece = add_utf8(text, piece);
        }
    }
}
