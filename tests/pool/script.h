/*
 * tests/pool/script.h - the language of the pool's shell: a line in, a command out; and who answers
 * it.
 *
 * Two subjects answer commands: the core (tests/pool/subject_core.c) and the naive reference model
 * (tests/pool/model.c). Both give their answer as text, so the shell prints either, and the random
 * test compares them byte for byte.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum script_verb {
    /* set-up */
    VERB_POOL,
    VERB_TENANT,
    VERB_DOMAIN,
    VERB_MODEL,
    /* sequences */
    VERB_ALLOC,
    VERB_FIND,
    VERB_APPEND,
    VERB_FILL,
    VERB_PUBLISH,
    VERB_FORK,
    VERB_TRUNCATE,
    VERB_PREEMPT,
    VERB_RESUME,
    VERB_RELEASE,
    VERB_END_SESSION,
    VERB_TABLE,
    /* the rest */
    VERB_FREE_LIST,
    VERB_HOLDS,
    VERB_EVICT,
    VERB_CLEAR,
    VERB_STATS,
    VERB_CHECK,
    /* for the core alone: see SHELL-EXTENSIONS.md */
    VERB_HOLD_EFFECTS,
    VERB_RELEASE_EFFECTS,
    VERB_EFFECTS,
    VERB_COMPLETE,
    VERB_FAIL,
    VERB_STEP,
    VERB_ATTEND,
    VERB_ATTENDED,
    VERB_END_STEP,
    VERB_WAIT,
    VERB_CANCEL,
    VERB_TICK,
    VERB_REPLIES,
    VERB_QUOTA,
    VERB_DETACH,
    VERB_TIER,
    VERB_STORE,
    VERB_PREFETCH,
    VERB_TIERS,
    NUM_VERBS
};

enum {
    SCRIPT_MAX_NAME = 63,        /* bytes of a name */
    SCRIPT_MAX_GROUPS = 8,       /* layer groups of a model */
    SCRIPT_MAX_READERS = 64,     /* readers of a domain */
    SCRIPT_MAX_ROWS = 16,        /* sequences of a step */
    SCRIPT_MAX_NUMBERS = 16,     /* devices of a pool, ranks or groups of a model */
    SCRIPT_MAX_TOKENS = 1 << 24, /* tokens of one line, so that 0..4294967295 is an error */
    SCRIPT_MAX_PER_GRANULE = 1 << 16
};

/* Numbers that a line may leave out have this value then. */
#define SCRIPT_UNSET UINT64_MAX

struct script_group {
    uint32_t window; /* 0: full */
    uint32_t per_granule;
};

struct script_extra {
    uint64_t block;
    const uint8_t *bytes;
    size_t num_bytes;
};

/* A comma list of numbers. */
struct script_numbers {
    uint64_t items[SCRIPT_MAX_NUMBERS];
    size_t num;
};

/* What one sequence gains in a step: a part of the command's tokens. */
struct script_row {
    char sequence[SCRIPT_MAX_NAME + 1];
    size_t first_token, num_tokens;
};

/* One parsed line. What a verb does not use is empty ("" / 0 / NULL / SCRIPT_UNSET / false). */
struct script_command {
    enum script_verb verb;
    char name[SCRIPT_MAX_NAME + 1];    /* the pool's first word after the verb: S, T, D, M or X */
    char child[SCRIPT_MAX_NAME + 1];   /* C of "fork S C" */
    char model[SCRIPT_MAX_NAME + 1];   /* model= */
    char tenant[SCRIPT_MAX_NAME + 1];  /* tenant= */
    char layered[SCRIPT_MAX_NAME + 1]; /* layered= */
    char session[SCRIPT_MAX_NAME + 1]; /* session= */
    bool has_salt, has_adapter;
    char salt[SCRIPT_MAX_NAME + 1];
    char adapter[SCRIPT_MAX_NAME + 1];

    const uint32_t *tokens; /* owned by the command */
    size_t num_tokens;
    const struct script_extra *extras; /* owned by the command, ascending by block */
    size_t num_extras;

    bool raw, mapped, unfilled;
    uint64_t take;   /* take=, or SCRIPT_UNSET */
    uint64_t number; /* N of truncate and evict */

    /* pool, tenant, domain */
    uint64_t blocks, block_tokens, watermark; /* 16 and 0 where the last two are left out */
    uint64_t guarantee, limit, weight;        /* 0, SCRIPT_UNSET (none) and 1 where left out */
    char readers[SCRIPT_MAX_READERS][SCRIPT_MAX_NAME + 1];
    size_t num_readers;

    /* model */
    struct script_group groups[SCRIPT_MAX_GROUPS];
    size_t num_groups;

    /* beyond the page's grammar */
    bool is_extended; /* any of it is there: the naive model knows nothing of it */
    struct script_numbers devices, watermarks; /* pool */
    struct script_numbers pages, ranks;        /* model */
    uint64_t host, disk, ahead;                /* pool: pages, 0 where left out */
    char tier[SCRIPT_MAX_NAME + 1];            /* evict: tier= */
    char mode[SCRIPT_MAX_NAME + 1];            /* tier, store: mode= */
    uint64_t layers, deadline; /* model: 1, wait: SCRIPT_UNSET (none) where left out */
    bool is_attached, is_failed, is_commit, is_abandon;
    struct script_row rows[SCRIPT_MAX_ROWS];
    size_t num_rows;

    uint64_t group;        /* group=, 0 where left out */
    const uint64_t *slots; /* of "holds", owned by the command */
    size_t num_slots;
};

/*
 * Reads one line. Returns 0 and fills @out (to be finished), 1 for an empty line or a comment, or
 * -EINVAL and a message in @error that says what is wrong with which word.
 */
int script_parse(const char *line, struct script_command *out, char *error, size_t error_size);
void script_command_finish(struct script_command *command);

/* Text that grows. Zeroed is empty; text_finish() frees. */
struct text {
    char *bytes; /* NUL-terminated once anything was added or cleared; NULL before */
    size_t length, capacity;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_clear(struct text *text);
void text_finish(struct text *text);

/* Whether each line of @expected stands among the lines of @answer: how "stats" is compared. */
bool script_has_lines(const char *answer, const char *expected);
/* Whether two subjects agree: each may put an error in its own words, and the core may count more.
 */
bool script_is_same_answer(enum script_verb verb, const char *core, const char *model);

/*
 * Whoever answers commands. run() adds the answer without its last newline; an answer that starts
 * with "error: " says that the command could not be carried out as written (no pool yet, a second
 * pool, no model declared).
 */
struct script_subject {
    const char *name;
    void *(*create)(void);
    void (*destroy)(void *self);
    void (*run)(void *self, const struct script_command *command, struct text *answer);
};

extern const struct script_subject subject_core;  /* subject_core.c */
extern const struct script_subject subject_model; /* model.c */
