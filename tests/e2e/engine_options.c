/* tests/e2e/engine_options.c - what an engine is told to do: one table. */
#include "tests/e2e/engine_options.h"

#include "tests/e2e/toy.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct options, field)
/* clang-format off */
static const struct option_row {
    const char *name, *help;
    enum { TEXT, NUMBER, FLAG } kind;
    size_t field;
} option_rows[] = {
    {"--dir",      "where the daemon's sockets are",                     TEXT,   AT(dir)},
    {"--token",    "of a tenant; without: your user id",                 TEXT,   AT(token)},
    {"--name",     "of this engine, in messages",                        TEXT,   AT(name)},
    {"--dtype",    "f32 (default) or f16",                               TEXT,   AT(dtype)},
    {"--system",   "tokens of the system prompt (320)",                  NUMBER, AT(system_tokens)},
    {"--question", "tokens of the question (20)",                        NUMBER, AT(question_tokens)},
    {"--decode",   "tokens of each answer (8)",                          NUMBER, AT(decode_tokens)},
    {"--rounds",   "questions, one after another (1)",                   NUMBER, AT(rounds)},
    {"--system-seed", "which system prompt (1)",                         NUMBER, AT(system_seed)},
    {"--seed",     "which questions (2)",                                NUMBER, AT(seed)},
    {"--window",   "tokens that the last layer sees (0: all)",           NUMBER, AT(window)},
    {"--socket",   "steps go by messages, not by the ring",              FLAG,   AT(by_socket)},
    {"--hold",     "with both continuations there, wait for the end of stdin", FLAG, AT(hold)},
};
/* clang-format on */

static void help_print(void)
{
    puts("usage: engine [OPTION]...\nA small engine that keeps K and V in kvpoold and checks every "
         "output against dense attention.");
    for (size_t i = 0; i < sizeof(option_rows) / sizeof(*option_rows); i++)
        printf("  %-14s %s\n", option_rows[i].name, option_rows[i].help);
}

static const struct option_row *row_find(const char *name)
{
    for (size_t i = 0; i < sizeof(option_rows) / sizeof(*option_rows); i++)
        if (strcmp(name, option_rows[i].name) == 0)
            return &option_rows[i];
    return NULL;
}

__attribute__((noreturn)) static void refuse(const char *what, const char *word)
{
    fprintf(stderr, "engine: %s %s (try --help)\n", what, word);
    exit(2);
}

static void options_check(struct options *options)
{
    options->is_f16 = strcmp(options->dtype, "f16") == 0;
    if (!options->is_f16 && strcmp(options->dtype, "f32") != 0)
        refuse("--dtype is f32 or f16, not", options->dtype);
    if (options->system_tokens > TOY_MAX_TOKENS / 2)
        refuse("too many tokens:", "--system");
    if (options->question_tokens == 0 || options->question_tokens > TOY_MAX_TOKENS / 4)
        refuse("too many tokens, or none:", "--question");
    if (options->decode_tokens == 0 || options->decode_tokens > TOY_MAX_TOKENS / 16)
        refuse("too many tokens, or none:", "--decode");
}

void options_parse(char **argv, struct options *out)
{
    *out = (struct options){.name = "toy",
                            .dtype = "f32",
                            .system_tokens = 320,
                            .question_tokens = 20,
                            .decode_tokens = 8,
                            .rounds = 1,
                            .system_seed = 1,
                            .seed = 2};
    for (int at = 1; argv[at]; at++) {
        const struct option_row *row = row_find(argv[at]);
        if (strcmp(argv[at], "--help") == 0) {
            help_print();
            exit(0);
        }
        if (!row)
            refuse("there is no option", argv[at]);
        char *field = (char *)out + row->field;
        if (row->kind == FLAG)
            *(bool *)field = true;
        else if (!argv[++at])
            refuse("a value is missing after", row->name);
        else if (row->kind == TEXT)
            *(const char **)(void *)field = argv[at];
        else
            *(uint32_t *)(void *)field = (uint32_t)strtoul(argv[at], NULL, 10);
    }
    options_check(out);
}
