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
    OPTION_DEVICES,
    OPTION_WATERMARKS,
    OPTION_PAGES,
    OPTION_RANKS,
    OPTION_LAYERS,
    OPTION_DEADLINE,
    OPTION_ATTACHED,
    OPTION_FAILED,
    OPTION_COMMIT,
    OPTION_ABANDON,
    OPTION_HOST,
    OPTION_DISK,
    OPTION_AHEAD,
    OPTION_TIER,
    OPTION_MODE,
    NUM_OPTIONS
};

/* clang-format off */
#define AT(field) offsetof(struct script_command, field)
static const struct option options[NUM_OPTIONS] = {
    [OPTION_BLOCKS]       = {"blocks=",       value_amount,      AT(blocks),       0, UINT32_MAX},
    [OPTION_BLOCK_TOKENS] = {"block_tokens=", value_amount,      AT(block_tokens), 1, UINT16_MAX},
    [OPTION_WATERMARK]    = {"watermark=",    value_amount,      AT(watermark),    0, UINT64_MAX},
    [OPTION_GUARANTEE]    = {"guarantee=",    value_amount,      AT(guarantee),    0, UINT64_MAX},
    [OPTION_LIMIT]        = {"limit=",        value_amount,      AT(limit),        0, UINT64_MAX},
    [OPTION_WEIGHT]       = {"weight=",       value_amount,      AT(weight),       1, UINT32_MAX},
    [OPTION_READERS]      = {"readers=",      value_readers,     0,                0, 0},
    [OPTION_GROUPS]       = {"groups=",       value_groups,      0,                0, 0},
    [OPTION_PER_GRANULE]  = {"per_granule=",  value_per_granule, 0,                0, 0},
    [OPTION_TOKENS]       = {"tokens=",       value_tokens,      0,                0, 0},
    [OPTION_MODEL]        = {"model=",        value_label,       AT(model),        0, 0},
    [OPTION_TENANT]       = {"tenant=",       value_label,       AT(tenant),       0, 0},
    [OPTION_LAYERED]      = {"layered=",      value_label,       AT(layered),      0, 0},
    [OPTION_SALT]         = {"salt=",         value_text,        AT(salt),         0, 0},
    [OPTION_ADAPTER]      = {"adapter=",      value_text,        AT(adapter),      0, 0},
    [OPTION_EXTRA]        = {"extra=",        value_extra,       0,                0, 0},
    [OPTION_SESSION]      = {"session=",      value_label,       AT(session),      0, 0},
    [OPTION_RAW]          = {"raw",           value_flag,        AT(raw),          0, 0},
    [OPTION_MAPPED]       = {"mapped",        value_flag,        AT(mapped),       0, 0},
    [OPTION_UNFILLED]     = {"unfilled",      value_flag,        AT(unfilled),     0, 0},
    [OPTION_TAKE]         = {"take=",         value_amount,      AT(take),         0, UINT64_MAX},
    [OPTION_GROUP]        = {"group=",        value_amount,      AT(group),        0, UINT64_MAX},
    [OPTION_DEVICES]      = {"devices=",      value_numbers,     AT(devices),      1, UINT32_MAX},
    [OPTION_WATERMARKS]   = {"watermarks=",   value_numbers,     AT(watermarks),   0, UINT32_MAX},
    [OPTION_PAGES]        = {"pages=",        value_numbers,     AT(pages),        1, UINT16_MAX},
    [OPTION_RANKS]        = {"ranks=",        value_numbers,     AT(ranks),        0, UINT32_MAX},
    [OPTION_LAYERS]       = {"layers=",       value_amount,      AT(layers),       1, UINT16_MAX},
    [OPTION_DEADLINE]     = {"deadline=",     value_amount,      AT(deadline),     0, UINT64_MAX},
    [OPTION_ATTACHED]     = {"attached",      value_flag,        AT(is_attached),  0, 0},
    [OPTION_FAILED]       = {"failed",        value_flag,        AT(is_failed),    0, 0},
    [OPTION_COMMIT]       = {"commit",        value_flag,        AT(is_commit),    0, 0},
    [OPTION_ABANDON]      = {"abandon",       value_flag,        AT(is_abandon),   0, 0},
    [OPTION_HOST]         = {"host=",         value_amount,      AT(host),         0, UINT16_MAX},
    [OPTION_DISK]         = {"disk=",         value_amount,      AT(disk),         0, UINT16_MAX},
    [OPTION_AHEAD]        = {"ahead=",        value_amount,      AT(ahead),        0, UINT32_MAX},
    [OPTION_TIER]         = {"tier=",         value_label,       AT(tier),         0, 0},
    [OPTION_MODE]         = {"mode=",         value_label,       AT(mode),         0, 0},
};

#define BIT(option) (UINT64_C(1) << OPTION_##option)
#define ID_BITS (BIT(MODEL) | BIT(TENANT) | BIT(LAYERED) | BIT(SALT) | BIT(ADAPTER) | BIT(EXTRA))
#define QUOTA_BITS (BIT(GUARANTEE) | BIT(LIMIT) | BIT(WEIGHT))
/* Beyond the page's grammar: for the core alone. */
#define EXTENDED_BITS (~UINT64_C(0) << OPTION_DEVICES)
#define ARENA_BITS (BIT(MODEL) | BIT(GROUP) | BIT(TENANT))
static const struct verb {
    const char *word;
    const char *places; /* before options: s a name, c the child, n a number, l slots, r rows */
    uint64_t required, optional; /* options */
} verbs[NUM_VERBS] = {
    [VERB_POOL]        = {"pool",        "",   0,            BIT(BLOCKS) | BIT(BLOCK_TOKENS) |
                                                             BIT(WATERMARK) | BIT(DEVICES) |
                                                             BIT(WATERMARKS) | BIT(HOST) |
                                                             BIT(DISK) | BIT(AHEAD)},
    [VERB_TENANT]      = {"tenant",      "s",  0,            QUOTA_BITS},
    [VERB_DOMAIN]      = {"domain",      "s",  BIT(READERS), QUOTA_BITS},
    [VERB_MODEL]       = {"model",       "s",  0,            BIT(GROUPS) | BIT(PER_GRANULE) |
                                                             BIT(PAGES) | BIT(RANKS) | BIT(LAYERS)},
    [VERB_ALLOC]       = {"alloc",       "s",  BIT(TOKENS),  ID_BITS | BIT(SESSION) | BIT(RAW) |
                                                             BIT(MAPPED) | BIT(UNFILLED) |
                                                             BIT(TAKE) | BIT(DEADLINE)},
    [VERB_FIND]        = {"find",        "",   BIT(TOKENS),  ID_BITS | BIT(RAW)},
    [VERB_APPEND]      = {"append",      "s",  BIT(TOKENS),  0},
    [VERB_FILL]        = {"fill",        "s",  0,            0},
    [VERB_PUBLISH]     = {"publish",     "s",  0,            0},
    [VERB_FORK]        = {"fork",        "sc", 0,            0},
    [VERB_TRUNCATE]    = {"truncate",    "sn", 0,            0},
    [VERB_PREEMPT]     = {"preempt",     "s",  0,            0},
    [VERB_RESUME]      = {"resume",      "s",  0,            BIT(UNFILLED) | BIT(TAKE) |
                                                             BIT(DEADLINE)},
    [VERB_RELEASE]     = {"release",     "s",  0,            0},
    [VERB_END_SESSION] = {"end-session", "s",  0,            BIT(ATTACHED)},
    [VERB_TABLE]       = {"table",       "s",  0,            0},
    [VERB_FREE_LIST]   = {"free-list",   "",   0,            ARENA_BITS},
    [VERB_HOLDS]       = {"holds",       "l",  0,            ARENA_BITS},
    [VERB_EVICT]       = {"evict",       "n",  0,            BIT(TIER)},
    [VERB_CLEAR]       = {"clear",       "",   0,            BIT(MODEL) | BIT(TENANT)},
    [VERB_STATS]       = {"stats",       "",   0,            0},
    [VERB_CHECK]       = {"check",       "",   0,            0},

    [VERB_HOLD_EFFECTS]    = {"hold-effects",    "",   0,           0},
    [VERB_RELEASE_EFFECTS] = {"release-effects", "",   0,           0},
    [VERB_EFFECTS]         = {"effects",         "",   0,           0},
    [VERB_COMPLETE]        = {"complete",        "n",  0,           0},
    [VERB_FAIL]            = {"fail",            "n",  0,           0},
    [VERB_STEP]            = {"step",            "sr", 0,           0},
    [VERB_ATTEND]          = {"attend",          "sn", 0,           0},
    [VERB_ATTENDED]        = {"attended",        "sn", 0,           BIT(FAILED)},
    [VERB_END_STEP]        = {"end-step",        "s",  0,           BIT(COMMIT) | BIT(ABANDON)},
    [VERB_WAIT]            = {"wait",            "s",  BIT(TOKENS), ID_BITS | BIT(SESSION) |
                                                                    BIT(RAW) | BIT(DEADLINE)},
    [VERB_CANCEL]          = {"cancel",          "s",  0,           BIT(SESSION)},
    [VERB_TICK]            = {"tick",            "n",  0,           0},
    [VERB_REPLIES]         = {"replies",         "",   0,           0},
    [VERB_QUOTA]           = {"quota",           "s",  0,           QUOTA_BITS},
    [VERB_DETACH]          = {"detach",          "s",  0,           0},
    [VERB_TIER]            = {"tier",            "s",  BIT(MODE),   0},
    [VERB_STORE]           = {"store",           "",   BIT(MODE),   BIT(SESSION)},
    [VERB_PREFETCH]        = {"prefetch",        "",   BIT(TOKENS), ID_BITS | BIT(RAW)},
    [VERB_TIERS]           = {"tiers",           "",   0,           0},
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
                            : place == 'r' ? "a sequence"
                                           : "a slot");
    switch (place) {
    case 's':
        return script_read_name(reader, verb, word, reader->command->name);
    case 'c':
        return script_read_name(reader, verb, word, reader->command->child);
    case 'n':
        return script_read_number(reader, verb, word, &reader->command->number);
    case 'r':
        return script_read_row(reader, word);
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

    if (index < 0 || !((verb->required | verb->optional) & UINT64_C(1) << index))
        return script_wrong(reader, "%s: unknown word '%s'", verb->word, word);
    if (reader->seen & UINT64_C(1) << index)
        return script_wrong(reader, "%s: '%s' is there twice", verb->word, options[index].word);
    reader->seen |= UINT64_C(1) << index;
    return options[index].read(reader, &options[index], value);
}

/* A model's numbers for each group; per_granule= is 1 where it is left out. */
static int check_model(struct reader *reader)
{
    struct script_command *command = reader->command;

    if (command->num_groups == 0)
        command->num_groups = 1;
    if (reader->num_per_granule && reader->num_per_granule != command->num_groups)
        return script_wrong(reader, "per_granule=: %zu numbers for %zu groups",
                            reader->num_per_granule, command->num_groups);
    if (command->pages.num && command->pages.num != command->num_groups)
        return script_wrong(reader, "pages=: %zu numbers for %zu groups", command->pages.num,
                            command->num_groups);
    for (size_t i = 0; i < command->num_groups; i++)
        command->groups[i].per_granule = reader->num_per_granule ? reader->per_granule[i] : 1;
    return 0;
}

/* One device of so many blocks, or several of so many pages. */
static int check_pool(struct reader *reader)
{
    const struct script_command *command = reader->command;

    if (!(reader->seen & (BIT(BLOCKS) | BIT(DEVICES))))
        return script_wrong(reader, "pool: 'blocks=' is missing");
    if ((reader->seen & BIT(DEVICES)) && (reader->seen & (BIT(BLOCKS) | BIT(WATERMARK))))
        return script_wrong(reader, "pool: blocks= and watermark= are of one device: no devices=");
    if (command->watermarks.num && command->watermarks.num != command->devices.num)
        return script_wrong(reader, "watermarks=: %zu numbers for %zu devices",
                            command->watermarks.num, command->devices.num);
    return 0;
}

/* What concerns several options of one line. */
static int check_options(struct reader *reader)
{
    struct script_command *command = reader->command;
    const struct verb *verb = &verbs[command->verb];

    for (int i = 0; i < NUM_OPTIONS; i++)
        if (verb->required & ~reader->seen & UINT64_C(1) << i)
            return script_wrong(reader, "%s: '%s' is missing", verb->word, options[i].word);
    command->has_salt = reader->seen & BIT(SALT);
    command->has_adapter = reader->seen & BIT(ADAPTER);
    command->is_extended = command->verb > VERB_CHECK || reader->seen & EXTENDED_BITS ||
                           (command->verb == VERB_CLEAR && reader->seen);
    if (command->verb == VERB_MODEL)
        return check_model(reader);
    if (command->verb == VERB_POOL)
        return check_pool(reader);
    if (command->verb == VERB_END_STEP && command->is_commit == command->is_abandon)
        return script_wrong(reader, "end-step: either commit or abandon");
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
    bool has_rows = reader->command->num_rows > 0;
    while ((word = strtok_r(NULL, blanks, &rest))) {
        err = has_rows ? script_read_row(reader, word) : read_option(reader, word);
        if (err)
            return err;
    }
    return check_options(reader);
}

int script_parse(const char *line, struct script_command *out, char *error, size_t error_size)
{
    struct script_command command = {.take = SCRIPT_UNSET,
                                     .limit = SCRIPT_UNSET,
                                     .weight = 1,
                                     .block_tokens = 16,
                                     .layers = 1,
                                     .deadline = SCRIPT_UNSET};
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
