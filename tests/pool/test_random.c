/*
 * tests/pool/test_random.c - the core and the naive model, given the same random lines, say the
 * same.
 *
 * A round is one pool: a configuration and some two thousand commands, all from one 64-bit seed. On
 * a difference, or when one of the two crashes, the round's lines are shrunk (in child processes,
 * so that a crash can be shrunk too) and printed as a script that the shell can run.
 */
#include "tests/pool/random_lines.h"
#include "tests/pool/script.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: test_random [--seed N] [--commands N] [--seconds N] [--print]\n"
    "Runs random commands against the pool's core and its naive model, and compares the answers\n"
    "byte for byte; every so often also check, stats, every free-list and table.\n"
    "\n"
    "  --seed N      the first round's seed (1); the next round's is one more\n"
    "  --commands N  stop after that many commands (200000)\n"
    "  --seconds N   or after that many seconds (0: no such end)\n"
    "  --print       prints each line with the model's answer\n"
    "\n"
    "On a difference it prints the seed of the round, which --seed replays, and the shortest "
    "script\n"
    "that it can find, for shell --both. Exit status 1 then, else 0.\n";

enum { ROUND_COMMANDS = 2000, OBSERVE_EVERY = 40, SHRINK_SECONDS = 20 };

/* The lines of a round so far, and who answers them. */
struct round {
    uint64_t seed;
    char **lines;
    size_t num_lines, capacity;
    void *core, *model;
    struct text core_answer, model_answer;
};

static bool is_printing;
static struct round round_now; /* for the handler of a crash */

static void begin_subjects(struct round *round)
{
    round->core = subject_core.create();
    round->model = subject_model.create();
    assert(round->core && round->model);
}

static void end_subjects(struct round *round)
{
    subject_core.destroy(round->core);
    subject_model.destroy(round->model);
}

/* Gives one line to both. Returns whether they agree. */
static bool run_line(struct round *round, const char *line)
{
    struct script_command command;
    char error[256];

    if (script_parse(line, &command, error, sizeof(error))) {
        text_clear(&round->model_answer);
        return true; /* neither saw it */
    }
    text_clear(&round->core_answer);
    text_clear(&round->model_answer);
    subject_model.run(round->model, &command, &round->model_answer);
    subject_core.run(round->core, &command, &round->core_answer);
    enum script_verb verb = command.verb;
    script_command_finish(&command);
    return script_is_same_answer(verb, round->core_answer.bytes, round->model_answer.bytes);
}

/* ---- shrinking ---- */

/* In a child: whether these lines (NULL: left out) make the two differ, or one crash. */
static bool does_fail(char **lines, size_t num_lines)
{
    pid_t child = fork();
    int status = 0;

    assert(child >= 0);
    if (child == 0) {
        struct round round = {0};
        (void)signal(SIGABRT, SIG_DFL);
        (void)signal(SIGSEGV, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        begin_subjects(&round);
        bool is_same = true;
        for (size_t i = 0; i < num_lines && is_same; i++)
            is_same = !lines[i] || run_line(&round, lines[i]);
        _exit(is_same ? 0 : 1);
    }
    while (waitpid(child, &status, 0) < 0)
        ;
    return status != 0;
}

/* Leaves out runs of lines, shorter and shorter, as long as what is left fails. */
static void shrink(char **lines, size_t num_lines)
{
    time_t end = time(NULL) + SHRINK_SECONDS;
    bool has_shrunk = true;

    for (size_t run = num_lines / 2; run > 0; run = run > 1 || !has_shrunk ? run / 2 : 1) {
        has_shrunk = false;
        for (size_t first = 0; first < num_lines && time(NULL) < end; first += run) {
            size_t num = first + run < num_lines ? run : num_lines - first;
            char **kept = malloc(num * sizeof(*kept));
            size_t num_there = 0;
            assert(kept);
            memcpy(kept, lines + first, num * sizeof(*kept));
            for (size_t i = 0; i < num; i++)
                num_there += kept[i] != NULL;
            memset(lines + first, 0, num * sizeof(*kept));
            if (num_there && does_fail(lines, num_lines))
                has_shrunk = true;
            else
                memcpy(lines + first, kept, num * sizeof(*kept));
            free(kept);
        }
        if (time(NULL) >= end)
            break;
    }
}

static void report(struct round *round, const char *what)
{
    char **lines = calloc(round->num_lines + 1, sizeof(*lines));

    assert(lines);
    if (round->num_lines)
        memcpy(lines, round->lines, round->num_lines * sizeof(*lines));
    printf("# seed %llu: %s after %zu commands\n", (unsigned long long)round->seed, what,
           round->num_lines);
    printf("# %s\n#   core:  %s\n#   model: %s\n",
           round->num_lines ? round->lines[round->num_lines - 1] : "",
           round->core_answer.bytes ? round->core_answer.bytes : "",
           round->model_answer.bytes ? round->model_answer.bytes : "");
    (void)fflush(stdout);
    if (does_fail(lines, round->num_lines))
        shrink(lines, round->num_lines);
    else
        printf("# does not fail again; all lines:\n");
    for (size_t i = 0; i < round->num_lines; i++)
        if (lines[i])
            printf("%s\n", lines[i]);
    (void)fflush(stdout);
    free(lines);
}

/* The process is lost anyway, so that what a handler may call does not matter. */
static void handle_crash(int number)
{
    (void)signal(number, SIG_DFL);
    report(&round_now, "crash");
    (void)raise(number);
}

/* ---- rounds ---- */

/* Remembers and runs a line. */
static bool play(struct round *round, const char *line)
{
    if (round->num_lines == round->capacity) {
        round->capacity = 2 * round->capacity + 64;
        round->lines = realloc(round->lines, round->capacity * sizeof(*round->lines));
        assert(round->lines);
    }
    round->lines[round->num_lines] = strdup(line);
    assert(round->lines[round->num_lines]);
    round->num_lines++;
    bool is_same = run_line(round, line);
    if (is_printing)
        printf("%s\n= %s\n", line, round->model_answer.bytes);
    return is_same;
}

/* One pool. Returns whether the two agreed on everything. */
static bool play_round(struct round *round, size_t num_commands)
{
    struct random_lines *random = random_lines_create(round->seed);
    bool is_same = true;
    const char *line;

    begin_subjects(round);
    while (is_same && (line = random_lines_next_setup(random)))
        is_same = play(round, line);
    for (size_t i = 1; is_same && i <= num_commands; i++) {
        is_same = play(round, random_lines_next(random));
        random_lines_learn(random, round->model_answer.bytes);
        if (i % OBSERVE_EVERY)
            continue;
        for (size_t k = 0; is_same && (line = random_lines_observation(random, k)); k++)
            is_same = play(round, line);
    }
    if (is_same)
        end_subjects(round);
    else
        report(round, "difference");
    random_lines_destroy(random);
    return is_same;
}

static void round_finish(struct round *round)
{
    for (size_t i = 0; i < round->num_lines; i++)
        free(round->lines[i]);
    free(round->lines);
    text_finish(&round->core_answer);
    text_finish(&round->model_answer);
    *round = (struct round){0};
}

static int read_arguments(int argc, char **argv, uint64_t *seed, uint64_t *commands,
                          uint64_t *seconds)
{
    for (int i = 1; i < argc; i++) {
        uint64_t *out = strcmp(argv[i], "--seed") == 0       ? seed
                        : strcmp(argv[i], "--commands") == 0 ? commands
                        : strcmp(argv[i], "--seconds") == 0  ? seconds
                                                             : NULL;
        char *end = NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            exit(0);
        }
        if (strcmp(argv[i], "--print") == 0) {
            is_printing = true;
            continue;
        }
        if (out && i + 1 < argc)
            *out = strtoull(argv[++i], &end, 10);
        if (!end || end == argv[i] || *end) {
            fprintf(stderr, "test_random: '%s'? Try --help.\n", argv[i]);
            return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, commands = 200000, seconds = 0, done = 0;
    time_t begin = time(NULL);
    int status = read_arguments(argc, argv, &seed, &commands, &seconds);

    if (status)
        return status;
    (void)signal(SIGABRT, handle_crash);
    (void)signal(SIGSEGV, handle_crash);
    while (done < commands && !(seconds && time(NULL) - begin >= (time_t)seconds)) {
        size_t num = commands - done < ROUND_COMMANDS ? commands - done : ROUND_COMMANDS;
        round_now.seed = seed++;
        bool is_same = play_round(&round_now, num);
        round_finish(&round_now);
        if (!is_same)
            return 1;
        done += num;
    }
    printf("%llu commands, seeds up to %llu: no difference\n", (unsigned long long)done,
           (unsigned long long)seed - 1);
    return 0;
}
