/*
 * tests/pool/script.c - reads a line of the pool's shell.
 *
 * Two tables say the whole grammar: options[] has every word that may follow a verb, verbs[] has
 * what each verb takes. A value is read by one function, which says what is wrong with it.
 */
#include "tests/pool/script.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line being read. */
struct reader {
    struct script_command *command;
    char *error;
    size_t error_size;
    uint32_t seen; /* bits of the options read so far */
    uint32_t per_granule[SCRIPT_MAX_GROUPS];
    size_t num_per_granule;
};

struct option {
    const char *word; /* "tokens=" takes a value, "raw" does not */
    int (*read)(struct reader *reader, const struct option *option, char *value);
    size_t offset;     /* of what it fills in struct script_command */
    uint64_t min, max; /* of a number */
};

__attribute__((format(printf, 2, 3))) static int wrong(struct reader *reader, const char *format,
                                                       ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(reader->error, reader->error_size, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* ---- values ---- */

/* Decimal digits and nothing else; SCRIPT_UNSET and more do not fit. */
static int read_number(struct reader *reader, const char *what, const char *word, uint64_t *out)
{
    uint64_t number = 0;

    if (!*word)
        return wrong(reader, "%s: a number is missing", what);
    for (const char *digit = word; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return wrong(reader, "%s: '%s' is not a decimal number", what, word);
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*digit - '0'), &number) ||
            number == SCRIPT_UNSET)
            return wrong(reader, "%s: '%s' is too large", what, word);
    }
    *out = number;
    return 0;
}

static int read_token(struct reader *reader, const char *word, uint32_t *out)
{
    uint64_t number;
    int err = read_number(reader, "tokens=", word, &number);

    if (err)
        return err;
    if (number > UINT32_MAX)
        return wrong(reader, "tokens=: token %s is above 4294967295", word);
    *out = (uint32_t)number;
    return 0;
}

/* Names stand in comma lists and in D:3, so they have none of the marks used there. */
static int read_name(struct reader *reader, const char *what, const char *word, char *out)
{
    if (!*word)
        return wrong(reader, "%s: a name is missing", what);
    if (strlen(word) > SCRIPT_MAX_NAME)
        return wrong(reader, "%s: '%s' is longer than %d bytes", what, word, SCRIPT_MAX_NAME);
    const char *mark = strpbrk(word, "=,;:");
    if (mark)
        return wrong(reader, "%s: '%s' is no name, because of its '%c'", what, word, *mark);
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
        err = read_number(reader, "tokens=", times + 1, count);
        if (!err && *count == 0)
            return wrong(reader, "tokens=: '%s*0' is no token at all", item);
        return err;
    }
    err = read_token(reader, range + 2, &last);
    if (err)
        return err;
    if (last < *first)
        return wrong(reader, "tokens=: '%s..%s' does not ascend", item, range + 2);
    *count = (uint64_t)last - *first + 1;
    return 0;
}

static int read_tokens(struct reader *reader, const struct option *option, char *value)
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
            return wrong(reader, "tokens=: more than %d tokens", SCRIPT_MAX_TOKENS);
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
        return wrong(reader, "extra=: no bytes for block %llu", (unsigned long long)extra->block);
    if (length % 2)
        return wrong(reader, "extra=: '%s' has an odd number of digits", hex);
    if (length / 2 > UINT16_MAX)
        return wrong(reader, "extra=: more than %d bytes for a block", UINT16_MAX);
    uint8_t *bytes = malloc(length / 2);
    assert(bytes);
    extra->bytes = bytes;
    extra->num_bytes = length / 2;
    for (size_t i = 0; i < length / 2; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return wrong(reader, "extra=: '%s' is not hexadecimal", hex);
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

static int read_extra(struct reader *reader, const struct option *option, char *value)
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
            return wrong(reader, "extra=: '%s' is not BLOCK:HEX", item);
        *hex++ = '\0';
        int err = read_number(reader, "extra=", item, &extra->block);
        if (!err)
            err = read_hex(reader, hex, extra);
        if (err)
            return err;
    }
    qsort(extras, command->num_extras, sizeof(*extras), compare_extras);
    for (size_t i = 1; i < command->num_extras; i++)
        if (extras[i].block == extras[i - 1].block)
            return wrong(reader, "extra=: block %llu is there twice",
                         (unsigned long long)extras[i].block);
    return 0;
}

static int read_readers(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        if (command->num_readers == SCRIPT_MAX_READERS)
            return wrong(reader, "readers=: more than %d readers", SCRIPT_MAX_READERS);
        int err = read_name(reader, option->word, item, command->readers[command->num_readers++]);
        if (err)
            return err;
    }
    return 0;
}

static int read_groups(struct reader *reader, const struct option *option, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        if (command->num_groups == SCRIPT_MAX_GROUPS)
            return wrong(reader, "groups=: more than %d groups", SCRIPT_MAX_GROUPS);
        uint64_t window = 0;
        if (strncmp(item, "sliding:", 8) == 0) {
            int err = read_number(reader, option->word, item + 8, &window);
            if (err)
                return err;
            if (window < 2 || window > UINT32_MAX)
                return wrong(reader, "groups=: a window of %s: 2 to 4294967295", item + 8);
        } else if (strcmp(item, "full") != 0) {
            return wrong(reader, "groups=: '%s' is neither full nor sliding:W", item);
        }
        command->groups[command->num_groups++].window = (uint32_t)window;
    }
    return 0;
}

static int read_per_granule(struct reader *reader, const struct option *option, char *value)
{
    for (char *item; (item = next_item(&value));) {
        uint64_t number;
        int err = read_number(reader, option->word, item, &number);
        if (err)
            return err;
        if (number < 1 || number > SCRIPT_MAX_PER_GRANULE)
            return wrong(reader, "per_granule=: %s: 1 to %d", item, SCRIPT_MAX_PER_GRANULE);
        if (reader->num_per_granule == SCRIPT_MAX_GROUPS)
            return wrong(reader, "per_granule=: more than %d groups", SCRIPT_MAX_GROUPS);
        reader->per_granule[reader->num_per_granule++] = (uint32_t)number;
    }
    return 0;
}

static int read_slots(struct reader *reader, char *value)
{
    struct script_command *command = reader->command;

    for (char *item; (item = next_item(&value));) {
        uint64_t slot;
        int err = read_number(reader, "holds", item, &slot);
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

static int read_number_option(struct reader *reader, const struct option *option, char *value)
{
    uint64_t number;
    int err = read_number(reader, option->word, value, &number);

    if (err)
        return err;
    if (number < option->min || number > option->max)
        return wrong(reader, "%s: %s: %llu to %llu", option->word, value,
                     (unsigned long long)option->min, (unsigned long long)option->max);
    memcpy((char *)reader->command + option->offset, &number, sizeof(number));
    return 0;
}

static int read_name_option(struct reader *reader, const struct option *option, char *value)
{
    return read_name(reader, option->word, value, (char *)reader->command + option->offset);
}

/* Salts and adapters are the engine's text, not names: any marks, but some text. */
static int read_text_option(struct reader *reader, const struct option *option, char *value)
{
    if (!*value)
        return wrong(reader, "%s: text is missing", option->word);
    if (strlen(value) > SCRIPT_MAX_NAME)
        return wrong(reader, "%s: longer than %d bytes", option->word, SCRIPT_MAX_NAME);
    strcpy((char *)reader->command + option->offset, value);
    return 0;
}

static int read_flag(struct reader *reader, const struct option *option, char *value)
{
    (void)value;
    *(bool *)((char *)reader->command + option->offset) = true;
    return 0;
}

/* ---- the grammar ---- */

enum option_index {
    OPTION_BLOCKS,
    OPTION_BLOCK_TOKENS,
    OPTION_WATERMARK,
    OPTION_GUARANTEE,
    OPTION_LIMIT,
    OPTION_WEIGHT,
    OPTION_READERS,
    OPTION_GROUPS,
    OPTION_PER_GRANULE,
    OPTION_TOKENS,
    OPTION_MODEL,
    OPTION_TENANT,
    OPTION_LAYERED,
    OPTION_SALT,
    OPTION_ADAPTER,
    OPTION_EXTRA,
    OPTION_SESSION,
    OPTION_RAW,
    OPTION_MAPPED,
    OPTION_UNFILLED,
    OPTION_TAKE,
    OPTION_GROUP,
    NUM_OPTIONS
};

/* clang-format off */
#define AT(field) offsetof(struct script_command, field)
static const struct option options[NUM_OPTIONS] = {
    [OPTION_BLOCKS]       = {"blocks=",       read_number_option, AT(blocks),       0, UINT32_MAX},
    [OPTION_BLOCK_TOKENS] = {"block_tokens=", read_number_option, AT(block_tokens), 1, UINT16_MAX},
    [OPTION_WATERMARK]    = {"watermark=",    read_number_option, AT(watermark),    0, UINT64_MAX},
    [OPTION_GUARANTEE]    = {"guarantee=",    read_number_option, AT(guarantee),    0, UINT64_MAX},
    [OPTION_LIMIT]        = {"limit=",        read_number_option, AT(limit),        0, UINT64_MAX},
    [OPTION_WEIGHT]       = {"weight=",       read_number_option, AT(weight),       1, UINT32_MAX},
    [OPTION_READERS]      = {"readers=",      read_readers,       0,                0, 0},
    [OPTION_GROUPS]       = {"groups=",       read_groups,        0,                0, 0},
    [OPTION_PER_GRANULE]  = {"per_granule=",  read_per_granule,   0,                0, 0},
    [OPTION_TOKENS]       = {"tokens=",       read_tokens,        0,                0, 0},
    [OPTION_MODEL]        = {"model=",        read_name_option,   AT(model),        0, 0},
    [OPTION_TENANT]       = {"tenant=",       read_name_option,   AT(tenant),       0, 0},
    [OPTION_LAYERED]      = {"layered=",      read_name_option,   AT(layered),      0, 0},
    [OPTION_SALT]         = {"salt=",         read_text_option,   AT(salt),         0, 0},
    [OPTION_ADAPTER]      = {"adapter=",      read_text_option,   AT(adapter),      0, 0},
    [OPTION_EXTRA]        = {"extra=",        read_extra,         0,                0, 0},
    [OPTION_SESSION]      = {"session=",      read_name_option,   AT(session),      0, 0},
    [OPTION_RAW]          = {"raw",           read_flag,          AT(raw),          0, 0},
    [OPTION_MAPPED]       = {"mapped",        read_flag,          AT(mapped),       0, 0},
    [OPTION_UNFILLED]     = {"unfilled",      read_flag,          AT(unfilled),     0, 0},
    [OPTION_TAKE]         = {"take=",         read_number_option, AT(take),         0, UINT64_MAX},
    [OPTION_GROUP]        = {"group=",        read_number_option, AT(group),        0, UINT64_MAX},
};

#define BIT(option) (1u << OPTION_##option)
#define ID_BITS (BIT(MODEL) | BIT(TENANT) | BIT(LAYERED) | BIT(SALT) | BIT(ADAPTER) | BIT(EXTRA))
#define QUOTA_BITS (BIT(GUARANTEE) | BIT(LIMIT) | BIT(WEIGHT))
#define ARENA_BITS (BIT(MODEL) | BIT(GROUP) | BIT(TENANT))
static const struct verb {
    const char *word;
    const char *places; /* words before the options: s a name, c the child, n a number, l slots */
    uint32_t required, optional; /* options */
} verbs[NUM_VERBS] = {
    [VERB_POOL]        = {"pool",        "",   BIT(BLOCKS),  BIT(BLOCK_TOKENS) | BIT(WATERMARK)},
    [VERB_TENANT]      = {"tenant",      "s",  0,            QUOTA_BITS},
    [VERB_DOMAIN]      = {"domain",      "s",  BIT(READERS), QUOTA_BITS},
    [VERB_MODEL]       = {"model",       "s",  0,            BIT(GROUPS) | BIT(PER_GRANULE)},
    [VERB_ALLOC]       = {"alloc",       "s",  BIT(TOKENS),  ID_BITS | BIT(SESSION) | BIT(RAW) |
                                                             BIT(MAPPED) | BIT(UNFILLED) | BIT(TAKE)},
    [VERB_FIND]        = {"find",        "",   BIT(TOKENS),  ID_BITS | BIT(RAW)},
    [VERB_APPEND]      = {"append",      "s",  BIT(TOKENS),  0},
    [VERB_FILL]        = {"fill",        "s",  0,            0},
    [VERB_PUBLISH]     = {"publish",     "s",  0,            0},
    [VERB_FORK]        = {"fork",        "sc", 0,            0},
    [VERB_TRUNCATE]    = {"truncate",    "sn", 0,            0},
    [VERB_PREEMPT]     = {"preempt",     "s",  0,            0},
    [VERB_RESUME]      = {"resume",      "s",  0,            BIT(UNFILLED) | BIT(TAKE)},
    [VERB_RELEASE]     = {"release",     "s",  0,            0},
    [VERB_END_SESSION] = {"end-session", "s",  0,            0},
    [VERB_TABLE]       = {"table",       "s",  0,            0},
    [VERB_FREE_LIST]   = {"free-list",   "",   0,            ARENA_BITS},
    [VERB_HOLDS]       = {"holds",       "l",  0,            ARENA_BITS},
    [VERB_EVICT]       = {"evict",       "n",  0,            0},
    [VERB_CLEAR]       = {"clear",       "",   0,            0},
    [VERB_STATS]       = {"stats",       "",   0,            0},
    [VERB_CHECK]       = {"check",       "",   0,            0},
};
/* clang-format on */

static int read_place(struct reader *reader, char place, char *word)
{
    const char *verb = verbs[reader->command->verb].word;

    if (!word)
        return wrong(reader, "%s: %s is missing", verb,
                     place == 's'   ? "a name"
                     : place == 'c' ? "the child's name"
                     : place == 'n' ? "a number"
                                    : "a slot");
    switch (place) {
    case 's':
        return read_name(reader, verb, word, reader->command->name);
    case 'c':
        return read_name(reader, verb, word, reader->command->child);
    case 'n':
        return read_number(reader, verb, word, &reader->command->number);
    default:
        return read_slots(reader, word);
    }
}

/* Finds the option that @word starts with, and its value. */
static int find_option(const char *word, char **value)
{
    for (int i = 0; i < NUM_OPTIONS; i++) {
        size_t length = strlen(options[i].word);
        bool takes_value = options[i].word[length - 1] == '=';
        if (strncmp(word, options[i].word, length) == 0 && (takes_value || !word[length])) {
            *value = (char *)word + length;
            return i;
        }
    }
    return -1;
}

static int read_option(struct reader *reader, char *word)
{
    const struct verb *verb = &verbs[reader->command->verb];
    char *value;
    int index = find_option(word, &value);

    if (index < 0 || !((verb->required | verb->optional) & 1u << index))
        return wrong(reader, "%s: unknown word '%s'", verb->word, word);
    if (reader->seen & 1u << index)
        return wrong(reader, "%s: '%s' is there twice", verb->word, options[index].word);
    reader->seen |= 1u << index;
    return options[index].read(reader, &options[index], value);
}

/* What concerns several options of one line. */
static int check_options(struct reader *reader)
{
    struct script_command *command = reader->command;
    const struct verb *verb = &verbs[command->verb];

    for (int i = 0; i < NUM_OPTIONS; i++)
        if (verb->required & ~reader->seen & 1u << i)
            return wrong(reader, "%s: '%s' is missing", verb->word, options[i].word);
    command->has_salt = reader->seen & BIT(SALT);
    command->has_adapter = reader->seen & BIT(ADAPTER);
    if (command->verb != VERB_MODEL)
        return 0;
    if (command->num_groups == 0)
        command->num_groups = 1;
    if (reader->num_per_granule && reader->num_per_granule != command->num_groups)
        return wrong(reader, "per_granule=: %zu numbers for %zu groups", reader->num_per_granule,
                     command->num_groups);
    for (size_t i = 0; i < command->num_groups; i++)
        command->groups[i].per_granule = reader->num_per_granule ? reader->per_granule[i] : 1;
    return 0;
}

static int find_verb(struct reader *reader, const char *word)
{
    for (int i = 0; i < NUM_VERBS; i++) {
        if (strcmp(word, verbs[i].word) == 0) {
            reader->command->verb = (enum script_verb)i;
            return 0;
        }
    }
    return wrong(reader, "unknown word '%s'", word);
}

static int read_line(struct reader *reader, char *line)
{
    static const char blanks[] = " \t\r\n";
    char *rest = NULL, *word = strtok_r(line, blanks, &rest);
    int err;

    if (!word || *word == '#')
        return 1;
    err = find_verb(reader, word);
    if (err)
        return err;
    for (const char *place = verbs[reader->command->verb].places; *place; place++) {
        err = read_place(reader, *place, strtok_r(NULL, blanks, &rest));
        if (err)
            return err;
    }
    while ((word = strtok_r(NULL, blanks, &rest))) {
        err = read_option(reader, word);
        if (err)
            return err;
    }
    return check_options(reader);
}

int script_parse(const char *line, struct script_command *out, char *error, size_t error_size)
{
    struct script_command command = {
        .take = SCRIPT_UNSET, .limit = SCRIPT_UNSET, .weight = 1, .block_tokens = 16};
    struct reader reader = {.command = &command, .error = error, .error_size = error_size};
    char *copy = strdup(line);

    assert(copy);
    int answer = read_line(&reader, copy);
    free(copy);
    if (answer == 0)
        *out = command;
    else
        script_command_finish(&command);
    return answer;
}

void script_command_finish(struct script_command *command)
{
    for (size_t i = 0; i < command->num_extras; i++)
        free((void *)command->extras[i].bytes);
    free((void *)command->extras);
    free((void *)command->tokens);
    free((void *)command->slots);
    command->extras = NULL;
    command->tokens = NULL;
    command->slots = NULL;
    command->num_extras = command->num_tokens = command->num_slots = 0;
}
