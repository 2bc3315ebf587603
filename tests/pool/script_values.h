/* tests/pool/script_values.h - (of script*.c) reads the words of one line, into its command. */
#pragma once

#include "tests/pool/script.h"

/* A line being read. */
struct reader {
    struct script_command *command;
    char *error;
    size_t error_size;
    uint64_t seen; /* bits of the options read so far */
    uint32_t per_granule[SCRIPT_MAX_GROUPS];
    size_t num_per_granule;
};

struct option;
typedef int script_read_value(struct reader *reader, const struct option *option, char *value);

struct option {
    const char *word; /* "tokens=" takes a value, "raw" does not */
    script_read_value *read;
    size_t offset;     /* of what it fills in struct script_command */
    uint64_t min, max; /* of a number */
};

/* Says what is wrong with the line: -EINVAL. */
int script_wrong(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int script_read_number(struct reader *reader, const char *what, const char *word, uint64_t *out);
int script_read_name(struct reader *reader, const char *what, const char *word, char *out);
int script_read_slots(struct reader *reader, char *value);
/* "S=0..3": one sequence of a step. */
int script_read_row(struct reader *reader, char *word);

/* Whether nothing is allowed is for the verb to say. */
script_read_value value_tokens;
script_read_value value_extra, value_readers, value_groups, value_per_granule;
/* A comma list of numbers, each within the option's bounds. */
script_read_value value_numbers;
script_read_value value_amount, value_label, value_flag;
/* Salts and adapters are the engine's text, not names: any marks, but some text. */
script_read_value value_text;
