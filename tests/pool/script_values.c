/* tests/pool/script_values.c - reads the words of the pool's shell: numbers, names, tokens, lists.
 */
#include "tests/pool/script_values.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int script_wrong(struct reader *reader, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(reader->error, reader->error_size, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* Decimal digits and nothing else; SCRIPT_UNSET and more do not fit. */
int script_read_number(struct reader *reader, const char *what, const char *word, uint64_t *out)
{
    uint64_t number = 0;

    if (!*word)
        return script_wrong(reader, "%s: a number is missing", what);
    for (const char *digit = word; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return script_wrong(reader, "%s: '%s' is not a decimal number", what, word);
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*digit - '0'), &number) ||
            number == SCRIPT_UNSET)
            number = SCRIPT_UNSET - 1; /* more than there can be of anything: bounds come later */
    }
    *out = number;
    return 0;
}

static int read_token(struct reader *reader, const char *word, uint32_t *out)
{
    uint64_t number;
    int err = script_read_number(reader, "tokens=", word, &number);

    if (err)
        return err;
    if (number > UINT32_MAX)
        return script_wrong(reader, "tokens=: token %s is above 4294967295", word);
    *out = (uint32_t)number;
    return 0;
}

/* Names stand in comma lists and in D:3, so they have none of the marks used there. */
int script_read_name(struct reader *reader, const char *what, const char *word, char *out)
{
    if (!*word)
        return script_wrong(reader, "%s: a name is missing", what);
    if (strlen(word) > SCRIPT_MAX_NAME)
        return script_wrong(reader, "%s: '%s' is longer than %d bytes", what, word,
                            SCRIPT_MAX_NAME);
    const char *mark = strpbrk(word, "=,;:");
    if (mark)
        return script_wrong(reader, "%s: '%s' is no name, because of its '%c'", what, word, *mark);
    strcpy(out, word);
    return 0;
}

/* Cuts the next item off a comma list; an empty one is "", the end is NULL. */
static char *next_item(char **list)
{
    return strsep(list, ",");
}

/* One of `5`, `0..54`, `7*9`: the first token, what to add for the next, and how many. */
static int read_run(struct reader *reader, char *item, uint32_t *first, uint32_t *step,
                    uint64_t *count)
{
    char *range = strstr(item, ".."), *times = strchr(item, '*');
    uint32_t last = 0;
    int err;

    *step = range != NULL;
    *count = 1;
    if (range)
        *range = '\0';
    else if (times)
        *times = '\0';
    err = read_token(reader, item, first);
    if (err || !(range || times))
        return err;
    if (!range) {
        err = script_read_number(reader, "tokens=", times + 1, count);
        if (!err && *count == 0)
            return script_wrong(reader, "tokens=: '%s*0' is no token at all", item);
        return err;
    }
    err = read_token(reader, range + 2, &last);
    if (err)
        return err;
    if (last < *first)
        return script_wrong(reader, "tokens=: '%s..%s' does not ascend", item, range + 2);
    *count = (uint64_t)last - *first + 1;
    return 0;
}

int value_tokens(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;
    uint32_t *tokens = NULL, first = 0, step = 0;
    uint64_t count = 0;

    (void)option;
    if (!*value)
        return 0; /* whether nothing is allowed is for the verb to say */
    for (char *item; (item = next_item(&value));) {
        int err = read_run(reader, item, &first, &step, &count);
        if (err)
            return err;
        if (count > SCRIPT_MAX_TOKENS - command->num_tokens)
            return script_wrong(reader, "tokens=: more than %d tokens", SCRIPT_MAX_TOKENS);
        size_t num_tokens = command->num_tokens + count;
        tokens = realloc((void *)command->tokens, num_tokens * sizeof(*tokens));
        assert(tokens);
        command->tokens = tokens;
        for (uint64_t i = 0; i < count; i++)
            tokens[command->num_tokens + i] = first + (uint32_t)i * step;
        command->num_tokens = num_tokens;
    }
    return 0;
}

static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *found =
        digit ? strchr(digits, digit | ('A' <= digit && digit <= 'F' ? 32 : 0)) : NULL;
    return found ? (int)(found - digits) : -1;
}

static int read_hex(struct reader *reader, const char *hex, struct script_extra *extra)
{
    size_t length = strlen(hex);

    if (length == 0)
        return script_wrong(reader, "extra=: no bytes for block %llu",
                            (unsigned long long)extra->block);
    if (length % 2)
        return script_wrong(reader, "extra=: '%s' has an odd number of digits", hex);
    if (length / 2 > UINT16_MAX)
        return script_wrong(reader, "extra=: more than %d bytes for a block", UINT16_MAX);
    uint8_t *bytes = malloc(length / 2);
    assert(bytes);
    extra->bytes = bytes;
    extra->num_bytes = length / 2;
    for (size_t i = 0; i < length / 2; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return script_wrong(reader, "extra=: '%s' is not hexadecimal", hex);
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static int compare_extras(const void *left, const void *right)
{
    uint64_t a = ((const struct script_extra *)left)->block;
    uint64_t b = ((const struct script_extra *)right)->block;
    return (a > b) - (a < b);
}

int value_extra(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;
    struct script_extra *extras = NULL;

    (void)option;
    for (char *item; (item = next_item(&value));) {
        extras = realloc((void *)command->extras, (command->num_extras + 1) * sizeof(*extras));
        assert(extras);
        command->extras = extras;
        struct script_extra *extra = &extras[command->num_extras++];
        *extra = (struct script_extra){0};
        char *hex = strchr(item, ':');
        if (!hex)
            return script_wrong(reader, "extra=: '%s' is not BLOCK:HEX", item);
        *hex++ = '\0';
        int err = script_read_number(reader, "extra=", item, &extra->block);
        if (!err)
            err = read_hex(reader, hex, extra);
        if (err)
            return err;
    }
    qsort(extras, command->num_extras, sizeof(*extras), compare_extras);
    for (size_t i = 1; i < command->num_extras; i++)
        if (extras[i].block == extras[i - 1].block)
            return script_wrong(reader, "extra=: block %llu is there twice",
                                (unsigned long long)extras[i].block);
    return 0;
}

int value_readers(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        if (command->num_readers == SCRIPT_MAX_READERS)
            return script_wrong(reader, "readers=: more than %d readers", SCRIPT_MAX_READERS);
        int err =
            script_read_name(reader, option->word, item, command->readers[command->num_readers++]);
        if (err)
            return err;
    }
    return 0;
}

int value_groups(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        if (command->num_groups == SCRIPT_MAX_GROUPS)
            return script_wrong(reader, "groups=: more than %d groups", SCRIPT_MAX_GROUPS);
        uint64_t window = 0;
        if (strncmp(item, "sliding:", 8) == 0) {
            int err = script_read_number(reader, option->word, item + 8, &window);
            if (err)
                return err;
            if (window < 2 || window > UINT32_MAX)
                return script_wrong(reader, "groups=: a window of %s: 2 to 4294967295", item + 8);
        } else if (strcmp(item, "full") != 0) {
            return script_wrong(reader, "groups=: '%s' is neither full nor sliding:W", item);
        }
        command->groups[command->num_groups++].window = (uint32_t)window;
    }
    return 0;
}

int value_per_granule(struct reader *reader, const struct option *option, char *value)
{
    for (char *item; (item = next_item(&value));) {
        uint64_t number;
        int err = script_read_number(reader, option->word, item, &number);
        if (err)
            return err;
        if (number < 1 || number > SCRIPT_MAX_PER_GRANULE)
            return script_wrong(reader, "per_granule=: %s: 1 to %d", item, SCRIPT_MAX_PER_GRANULE);
        if (reader->num_per_granule == SCRIPT_MAX_GROUPS)
            return script_wrong(reader, "per_granule=: more than %d groups", SCRIPT_MAX_GROUPS);
        reader->per_granule[reader->num_per_granule++] = (uint32_t)number;
    }
    return 0;
}

int script_read_slots(struct reader *reader, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        uint64_t slot;
        int err = script_read_number(reader, "holds", item, &slot);
        if (err)
            return err;
        uint64_t *slots =
            realloc((void *)command->slots, (command->num_slots + 1) * sizeof(*slots));
        assert(slots);
        slots[command->num_slots++] = slot;
        command->slots = slots;
    }
    return 0;
}

int value_amount(struct reader *reader, const struct option *option, char *value)
{
    uint64_t number;
    int err = script_read_number(reader, option->word, value, &number);

    if (err)
        return err;
    if (number < option->min || number > option->max)
        return script_wrong(reader, "%s: %s: %llu to %llu", option->word, value,
                            (unsigned long long)option->min, (unsigned long long)option->max);
    memcpy((char *)reader->command + option->offset, &number, sizeof(number));
    return 0;
}

int value_numbers(struct reader *reader, const struct option *option, char *value)
{
    struct script_numbers *numbers =
        (struct script_numbers *)((char *)reader->command + option->offset);

    for (char *item; (item = next_item(&value));) {
        uint64_t number;
        int err = script_read_number(reader, option->word, item, &number);
        if (err)
            return err;
        if (number < option->min || number > option->max)
            return script_wrong(reader, "%s: %s: %llu to %llu", option->word, item,
                                (unsigned long long)option->min, (unsigned long long)option->max);
        if (numbers->num == SCRIPT_MAX_NUMBERS)
            return script_wrong(reader, "%s: more than %d numbers", option->word,
                                SCRIPT_MAX_NUMBERS);
        numbers->items[numbers->num++] = number;
    }
    return 0;
}

int script_read_row(struct reader *reader, char *word)
{
    struct script_command *command = reader->command;
    struct script_row *row = &command->rows[command->num_rows];
    char *tokens = strchr(word, '=');

    if (!tokens)
        return script_wrong(reader, "step: '%s' is not SEQUENCE=TOKENS", word);
    if (command->num_rows == SCRIPT_MAX_ROWS)
        return script_wrong(reader, "step: more than %d sequences", SCRIPT_MAX_ROWS);
    *tokens++ = '\0';
    int err = script_read_name(reader, "step", word, row->sequence);
    if (err)
        return err;
    row->first_token = command->num_tokens;
    err = value_tokens(reader, NULL, tokens);
    row->num_tokens = command->num_tokens - row->first_token;
    command->num_rows++;
    return err;
}

int value_label(struct reader *reader, const struct option *option, char *value)
{
    return script_read_name(reader, option->word, value, (char *)reader->command + option->offset);
}

/* Salts and adapters are the engine's text, not names: any marks, but some text. */
int value_text(struct reader *reader, const struct option *option, char *value)
{
    if (!*value)
        return script_wrong(reader, "%s: text is missing", option->word);
    if (strlen(value) > SCRIPT_MAX_NAME)
        return script_wrong(reader, "%s: longer than %d bytes", option->word, SCRIPT_MAX_NAME);
    strcpy((char *)reader->command + option->offset, value);
    return 0;
}

int value_flag(struct reader *reader, const struct option *option, char *value)
{
    (void)value;
    *(bool *)((char *)reader->command + option->offset) = true;
    return 0;
}
