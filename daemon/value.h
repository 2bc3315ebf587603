/* daemon/value.h - sizes, durations, counts and modes as people write them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Each: 0, or -EINVAL for what is written otherwise, or beyond 64 bits. No sign, no white space. */
int count_parse(const char *text, uint64_t *out_count); /* 4096 */
int size_parse(const char *text, uint64_t *out_bytes);  /* 64MiB, 4096 */
int duration_parse(const char *text, uint64_t *out_ms); /* 500ms, 30s, 10min, 1h; 0 */
int mode_parse(const char *text, uint64_t *out_mode);   /* 0660: octal, with its 0 */

enum { VALUE_TEXT = 32 };

/* With the largest unit that leaves a whole number: what the parser reads back. */
void size_format(uint64_t bytes, char out[VALUE_TEXT]);
void duration_format(uint64_t ms, char out[VALUE_TEXT]);

/* For people, as `kvpool` writes it, in three or four digits: "22.5 KiB", "512 MiB". */
void size_round(uint64_t bytes, char out[VALUE_TEXT]);
