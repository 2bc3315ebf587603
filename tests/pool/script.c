/*
 * tests/pool/script.c - reads a line of the pool's shell.
 *
 * Two tables say the whole grammar: options[] has every word that may follow a verb, verbs[] has
 * what each verb takes. A value is read by one function of script_values.c, which says what is
 * wrong with it.
 */
#include "tests/pool/script_values.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    [OPTION_BLOCKS]       = {"blocks=",       script_read_number_option, AT(blocks),       0, UINT32_MAX},
    [OPTION_BLOCK_TOKENS] = {"block_tokens=", script_read_number_option, AT(block_tokens), 1, UINT16_MAX},
    [OPTION_WATERMARK]    = {"watermark=",    script_read_number_option, AT(watermark),    0, UINT64_MAX},
    [OPTION_GUARANTEE]    = {"guarantee=",    script_read_number_option, AT(guarantee),    0, UINT64_MAX},
    [OPTION_LIMIT]        = {"limit=",        script_read_number_option, AT(limit),        0, UINT64_MAX},
    [OPTION_WEIGHT]       = {"weight=",       script_read_number_option, AT(weight),       1, UINT32_MAX},
    [OPTION_READERS]      = {"readers=",      script_read_readers,       0,                0, 0},
    [OPTION_GROUPS]       = {"groups=",       script_read_groups,        0,                0, 0},
    [OPTION_PER_GRANULE]  = {"per_granule=",  script_read_per_granule,   0,                0, 0},
    [OPTION_TOKENS]       = {"tokens=",       script_read_tokens,        0,                0, 0},
    [OPTION_MODEL]        = {"model=",        script_read_name_option,   AT(model),        0, 0},
    [OPTION_TENANT]       = {"tenant=",       script_read_name_option,   AT(tenant),       0, 0},
    [OPTION_LAYERED]      = {"layered=",      script_read_name_option,   AT(layered),      0, 0},
    [OPTION_SALT]         = {"salt=",         script_read_text_option,   AT(salt),         0, 0},
    [OPTION_ADAPTER]      = {"adapter=",      script_read_text_option,   AT(adapter),      0, 0},
    [OPTION_EXTRA]        = {"extra=",        script_read_extra,         0,                0, 0},
    [OPTION_SESSION]      = {"session=",      script_read_name_option,   AT(session),      0, 0},
    [OPTION_RAW]          = {"raw",           script_read_flag,          AT(raw),          0, 0},
    [OPTION_MAPPED]       = {"mapped",        script_read_flag,          AT(mapped),       0, 0},
    [OPTION_UNFILLED]     = {"unfilled",      script_read_flag,          AT(unfilled),     0, 0},
    [OPTION_TAKE]         = {"take=",         script_read_number_option, AT(take),         0, UINT64_MAX},
    [OPTION_GROUP]        = {"group=",        script_read_number_option, AT(group),        0, UINT64_MAX},
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
        return script_wrong(reader, "%s: %s is missing", verb,
                            place == 's'   ? "a name"
                            : place == 'c' ? "the child's name"
                            : place == 'n' ? "a number"
                                           : "a slot");
    switch (place) {
    case 's':
        return script_read_name(reader, verb, word, reader->command->name);
    case 'c':
        return script_read_name(reader, verb, word, reader->command->child);
    case 'n':
        return script_read_number(reader, verb, word, &reader->command->number);
    default:
        return script_read_slots(reader, word);
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
        return script_wrong(reader, "%s: unknown word '%s'", verb->word, word);
    if (reader->seen & 1u << index)
        return script_wrong(reader, "%s: '%s' is there twice", verb->word, options[index].word);
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
            return script_wrong(reader, "%s: '%s' is missing", verb->word, options[i].word);
    command->has_salt = reader->seen & BIT(SALT);
    command->has_adapter = reader->seen & BIT(ADAPTER);
    if (command->verb != VERB_MODEL)
        return 0;
    if (command->num_groups == 0)
        command->num_groups = 1;
    if (reader->num_per_granule && reader->num_per_granule != command->num_groups)
        return script_wrong(reader, "per_granule=: %zu numbers for %zu groups",
                            reader->num_per_granule, command->num_groups);
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
    return script_wrong(reader, "unknown word '%s'", word);
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
