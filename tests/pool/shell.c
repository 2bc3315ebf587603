/*
 * tests/pool/shell.c - drives the pool's core, or the naive model of it, from lines of text.
 *
 * Lines come from standard input (every answer is printed) or from files (every answer is compared
 * with the expected one). Both go through run_line().
 */
#include "tests/pool/script.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: shell [--model | --both] [FILE...]\n"
    "Drives the pool's core from lines of text, without a daemon, a device or a clock.\n"
    "\n"
    "Without a FILE it reads commands from standard input and prints one answer a line (\"stats\"\n"
    "several), each as soon as it is known. With FILEs it runs each against a fresh pool, "
    "compares\n"
    "each answer with the line after its command that starts with \"= \", prints what differs, "
    "and\n"
    "ends with \"N passed, N failed\" (files).\n"
    "\n"
    "  --model   the naive reference model answers instead of the core\n"
    "  --both    both answer; the core's answer is used, and a difference between them fails\n"
    "  --help    this text\n"
    "\n"
    "Try:\n"
    "  pool blocks=5\n"
    "  tenant T\n"
    "  model M\n"
    "  alloc S tokens=0..54                55 tokens: 3 full blocks of 16 and one of 7\n"
    "  = ok matched=0 arriving=0 table=1,2,3,4\n"
    "  release S\n"
    "  find tokens=0..49                   3 blocks of 16 are still there\n"
    "  = matched=48\n"
    "\n"
    "Set-up:     pool blocks=N [block_tokens=16] [watermark=K]\n"
    "            tenant T [guarantee=N] [limit=N] [weight=N]\n"
    "            domain D readers=T,U [guarantee=N] [limit=N] [weight=N]\n"
    "            model M [groups=full,sliding:W] [per_granule=4,1]\n"
    "Sequences:  alloc S tokens=TOKENS ID [session=X] [raw] [mapped] [unfilled] [take=N]\n"
    "            find tokens=TOKENS ID [raw]      append S tokens=TOKENS\n"
    "            fill S     publish S             fork S C     truncate S N\n"
    "            preempt S  resume S [unfilled] [take=N]\n"
    "            release S  end-session X         table S\n"
    "The rest:   free-list [model=M] [group=K] [tenant=T]\n"
    "            holds 1,2 [model=M] [group=K] [tenant=T]\n"
    "            evict N    clear    stats    check\n"
    "TOKENS is a comma list of 5 (one token), 0..54 (ascending, both ends) and 7*9 (nine times "
    "7).\n"
    "ID is [model=M] [tenant=T] [layered=D] [salt=x] [adapter=a] [extra=0:hex,3:hex].\n"
    "A line that starts with # is a comment.\n"
    "Several devices, copies and attends that end later: tests/pool/SHELL-EXTENSIONS.md.\n"
    "\n"
    "Expected answers: \"= ok\" is compared to the letter; \"= error\" matches any error; after\n"
    "\"stats\" several \"= name=value\" lines may follow, and only those are compared.\n"
    "\n"
    "Exit status: 2 if a line could not be read or carried out as written and no expected answer\n"
    "said so (this wins: what follows such a line proves nothing); else 1 if a file failed, or if\n"
    "--both found a difference; else 0.\n";

/* Who answers, and what went wrong so far. */
struct shell {
    const struct script_subject *subjects[2]; /* the second, if any, only agrees or differs */
    void *selves[2];
    size_t num_subjects;
    bool has_error, has_difference;
};

/* A file being run. */
struct script_file {
    const char *path;
    size_t line, command_line; /* counted from 1 */
    char *command;             /* whose answer waits to be compared, or NULL */
    bool is_stats;
    struct text answer, expected;
    size_t num_expected;
    bool has_failed;
};

static void shell_begin(struct shell *shell)
{
    for (size_t i = 0; i < shell->num_subjects; i++) {
        shell->selves[i] = shell->subjects[i]->create();
        assert(shell->selves[i]);
    }
}

static void shell_end(struct shell *shell)
{
    for (size_t i = 0; i < shell->num_subjects; i++)
        shell->subjects[i]->destroy(shell->selves[i]);
}

static bool is_error(const char *answer)
{
    return strncmp(answer, "error: ", 7) == 0;
}

static void ask_second_subject(struct shell *shell, const struct script_command *command,
                               const char *line, const struct text *answer)
{
    struct text second = {0};

    text_clear(&second);
    shell->subjects[1]->run(shell->selves[1], command, &second);
    if (!script_is_same_answer(command->verb, answer->bytes, second.bytes)) {
        shell->has_difference = true;
        fprintf(stderr, "difference: %s\n  %s: %s\n  %s: %s\n", line, shell->subjects[0]->name,
                answer->bytes, shell->subjects[1]->name, second.bytes);
    }
    text_finish(&second);
}

/* Answers one line. Returns false if it is empty or a comment; else fills @answer and @out_verb. */
static bool run_line(struct shell *shell, const char *line, struct text *answer,
                     enum script_verb *out_verb)
{
    struct script_command command;
    char error[256];
    int result = script_parse(line, &command, error, sizeof(error));

    if (result > 0)
        return false;
    text_clear(answer);
    *out_verb = NUM_VERBS;
    if (result < 0) {
        text_add(answer, "error: %s", error);
        return true;
    }
    *out_verb = command.verb;
    shell->subjects[0]->run(shell->selves[0], &command, answer);
    if (shell->num_subjects == 2)
        ask_second_subject(shell, &command, line, answer);
    script_command_finish(&command);
    return true;
}

/* Reads a line without its end; what has a NUL byte in it becomes a line that nothing can read. */
static bool next_line(FILE *from, char **line, size_t *capacity)
{
    ssize_t length = getline(line, capacity, from);

    if (length < 0)
        return false;
    if (strlen(*line) != (size_t)length)
        strcpy(*line, "?");
    (*line)[strcspn(*line, "\r\n")] = '\0';
    return true;
}

static void run_input(struct shell *shell)
{
    struct text answer = {0};
    enum script_verb verb;
    size_t capacity = 0;
    char *line = NULL;

    shell_begin(shell);
    while (next_line(stdin, &line, &capacity)) {
        if (!run_line(shell, line, &answer, &verb))
            continue;
        puts(answer.bytes);
        (void)fflush(stdout); /* whoever drives us through a pipe waits for it */
        shell->has_error |= is_error(answer.bytes);
    }
    shell_end(shell);
    text_finish(&answer);
    free(line);
}

static void print_lines(const char *title, const char *lines)
{
    for (const char *line = lines; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        printf("    %s %.*s\n", line == lines ? title : "         ", (int)strcspn(line, "\n"),
               line);
}

/* Of the lines of "stats", those that were expected and are not there, each with what is. */
static void print_counters(const char *answer, const char *expected)
{
    while (*expected) {
        size_t length = strcspn(expected, "\n"), name = strcspn(expected, "=\n");
        char *line = strndup(expected, length);
        assert(line);
        if (!script_has_lines(answer, line)) {
            const char *got = answer;
            while (got && (strncmp(got, line, name) != 0 || got[name] != '='))
                got = (got = strchr(got, '\n')) ? got + 1 : NULL;
            printf("    expected: %s\n    got:      %.*s\n", line,
                   got ? (int)strcspn(got, "\n") : 0, got ? got : "");
        }
        free(line);
        expected += length + (expected[length] != '\0');
    }
}

static bool is_expected(const struct script_file *file)
{
    const char *answer = file->answer.bytes, *expected = file->expected.bytes;

    if (file->num_expected == 1 && strcmp(expected, "error") == 0)
        return is_error(answer);
    if (file->is_stats)
        return script_has_lines(answer, expected);
    return strcmp(answer, expected) == 0;
}

static void print_difference(const struct script_file *file)
{
    if (file->is_stats && !is_error(file->answer.bytes)) {
        print_counters(file->answer.bytes, file->expected.bytes);
        return;
    }
    print_lines("expected:", file->expected.bytes);
    print_lines("got:     ", file->answer.bytes);
}

/* Compares the answer that waits, now that all of its expected lines were read. */
static void compare_answer(struct shell *shell, struct script_file *file)
{
    if (!file->command)
        return;
    bool is_same = file->num_expected == 0 || is_expected(file);
    if (is_error(file->answer.bytes) && (file->num_expected == 0 || !is_same))
        shell->has_error = true;
    if (!is_same) {
        file->has_failed = true;
        printf("%s:%zu: %s\n", file->path, file->command_line, file->command);
        print_difference(file);
    } else if (file->num_expected == 0 && is_error(file->answer.bytes)) {
        printf("%s:%zu: %s\n", file->path, file->command_line, file->command);
        print_lines("got:     ", file->answer.bytes);
    }
    free(file->command);
    file->command = NULL;
}

static void add_expected(struct script_file *file, const char *line)
{
    size_t length = strlen(line);

    while (length && strchr(" \t", line[length - 1]))
        length--;
    if (!file->command) {
        file->has_failed = true;
        printf("%s:%zu: '= %.*s' follows no command\n", file->path, file->line, (int)length, line);
        return;
    }
    text_add(&file->expected, "%s%.*s", file->num_expected ? "\n" : "", (int)length, line);
    file->num_expected++;
}

static void run_file_line(struct shell *shell, struct script_file *file, const char *line)
{
    enum script_verb verb;

    if (strncmp(line, "= ", 2) == 0) {
        add_expected(file, line + 2);
        return;
    }
    /* run_line() overwrites the answer, but only after a line that is none: compare first */
    if (*line && *line != '#')
        compare_answer(shell, file);
    bool had_difference = shell->has_difference;
    if (!run_line(shell, line, &file->answer, &verb))
        return;
    file->has_failed |= shell->has_difference && !had_difference;
    file->command = strdup(line);
    assert(file->command);
    file->command_line = file->line;
    file->is_stats = verb == VERB_STATS;
    text_clear(&file->expected);
    file->num_expected = 0;
}

/* Returns whether every answer was as expected. */
static bool run_file(struct shell *shell, const char *path)
{
    struct script_file file = {.path = path};
    FILE *from = fopen(path, "r");
    size_t capacity = 0;
    char *line = NULL;

    if (!from) {
        printf("%s: %s\n", path, strerror(errno));
        return false;
    }
    shell_begin(shell);
    while (next_line(from, &line, &capacity)) {
        file.line++;
        run_file_line(shell, &file, line);
    }
    compare_answer(shell, &file);
    if (ferror(from)) {
        file.has_failed = true;
        printf("%s: %s\n", path, strerror(errno));
    }
    shell_end(shell);
    (void)fclose(from);
    free(line);
    text_finish(&file.answer);
    text_finish(&file.expected);
    return !file.has_failed;
}

static void run_files(struct shell *shell, char **paths, size_t num_paths)
{
    size_t num_passed = 0;

    for (size_t i = 0; i < num_paths; i++)
        num_passed += run_file(shell, paths[i]);
    printf("%zu passed, %zu failed\n", num_passed, num_paths - num_passed);
    shell->has_difference |= num_passed != num_paths;
}

/* Returns how many words were options, or -EINVAL. */
static int read_arguments(struct shell *shell, int argc, char **argv)
{
    int i;

    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            exit(0);
        } else if (strcmp(argv[i], "--model") == 0) {
            shell->subjects[0] = &subject_model;
        } else if (strcmp(argv[i], "--both") == 0) {
            shell->subjects[1] = &subject_model;
            shell->num_subjects = 2;
        } else if (strcmp(argv[i], "--") == 0) {
            return i + 1;
        } else {
            fprintf(stderr, "shell: unknown option '%s'; try --help\n", argv[i]);
            return -EINVAL;
        }
    }
    return i;
}

int main(int argc, char **argv)
{
    struct shell shell = {.subjects = {&subject_core}, .num_subjects = 1};
    int first = read_arguments(&shell, argc, argv);

    if (first < 0)
        return 2;
    if (first < argc)
        run_files(&shell, argv + first, (size_t)(argc - first));
    else
        run_input(&shell);
    if (shell.has_error)
        return 2;
    return shell.has_difference ? 1 : 0;
}
