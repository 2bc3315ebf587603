/* client-lib/kvpool_command.c - the `kvpool` command: one table of subcommands, one of options. */
#include "client-lib/kvpool_command.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON_BYTES = 8 << 20, MAX_WEIGHT = 1 << 20 };

/* clang-format off */
static const struct subcommand {
    const char *name, *argument; /* the word that it takes, or NULL */
    const char *options;
    const char *summary;
    int (*run)(const struct command_line *line);
    const char *more; /* of its own --help */
} subcommands[] = {
    {"status", NULL, "", "is it well, and who uses how much of the pool?", command_status,
     "Shows the pool: what has blocks (in use), and what has memory (committed: what has no blocks\n"
     "any more stays so until somebody needs the room); the fallbacks that the daemon runs in and\n"
     "what they cost; for each tenant and shared domain how many of the tokens that it asked for were\n"
     "cached (HITS), and what it uses of its limit, or of the pool, if it has none (FULL).\n"},
    {"models", NULL, "", "which models are registered?", command_models,
     "Engines share blocks only if everything that changes their bytes is equal: compare the\n"
     "fingerprints (--json) if two that should share do not.\n"},
    {"tenants", NULL, "", "who may use it, with what quota?", command_tenants, ""},
    {"domains", NULL, "", "which shared domains are there, and who reads and fills them?", command_domains, ""},
    {"create-domain", "NAME", "[--reader TENANT]... [--filler TENANT]... [--guarantee SIZE] [--limit SIZE] [--weight N]",
     "make a shared domain", command_create_domain,
     "Blocks of a shared domain are found by all its readers; only its fillers put some in. A filler\n"
     "can make readers see wrong K and V, so name only engines that you trust.\n\n"
     "Example, system prompts that one engine fills for two others:\n"
     "    kvpool create-domain prompts --filler warmer --reader chat --reader agents --limit 8GiB\n"},
    {"quota", "NAME", "[--guarantee SIZE] [--limit SIZE|none] [--weight N] [--tier TIER]",
     "set what a tenant or domain may use", command_quota,
     "guarantee: nobody else evicts it below this. limit: held and cached together; at it, a tenant\n"
     "evicts its own blocks first, then gets QUOTA. weight: its share of what is left, against the\n"
     "others'. What you do not say stays as it is. --tier: host or disk.\n\n"
     "Example:\n"
     "    kvpool quota chat --guarantee 4GiB --limit none --weight 2\n"},
    {"sessions", NULL, "", "which engines are connected?", command_sessions, ""},
    {"kick", "SESSION", "", "end a session, and let go of all that it holds", command_kick,
     "SESSION is the first column of `kvpool sessions`, or session= in the daemon's\n"
     "log. The engine sees DISCONNECTED and may connect again; what it published stays cached.\n"},
    {"bench", NULL, "[--requests N] [--depth N] [--tokens N] [--token TOKEN]", "how fast does it answer, from here?", command_bench,
     "Asks as an engine, so your user id (or --token) must be a tenant's. Nothing is allocated.\n"},
    {"drain", NULL, "[--undo]", "take no new sequences, before maintenance", command_drain,
     "Sequences that there are go on. Wait until `kvpool status` shows none, then shut down.\n"},
    {"clear", NULL, "[--domain NAME] [--model NAME] [--all]", "forget what is cached", command_clear,
     "At once and durably: nothing from before is found any more. What is held stays readable until\n"
     "it is let go of.\n"},
    {"shutdown", NULL, "[--forget]", "end the daemon in good order", command_shutdown,
     "What is cached is there again after the next start, unless --forget.\n"},
    {"version", NULL, "", "of this command, and of the daemon", command_version, ""},
};

#define AT(field) offsetof(struct command_line, field)
enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_SIZE, OPTION_NUMBER, OPTION_WEIGHT, OPTION_LIST };

static const struct option_row {
    const char *name, *argument, *help;
    enum option_kind kind;
    size_t value, is_given; /* fields; is_given 0: none. OPTION_LIST: the count */
} option_rows[] = {
    {"--dir",       "DIR",    "where the daemon's sockets are ($KVPOOL_DIR, or /run/kvpoold)", OPTION_TEXT, AT(dir), 0},
    {"--json",      NULL,     "answer in JSON, for programs", OPTION_FLAG, AT(json), 0},
    {"--timeout",   "MS",     "wait so long for an answer (10000)", OPTION_NUMBER, AT(timeout_ms), 0},
    {"--token",     "TOKEN",  "a tenant's, for bench", OPTION_TEXT, AT(token), 0},
    {"--guarantee", "SIZE",   "4096, 512MiB, 8GiB ...", OPTION_SIZE, AT(guarantee_bytes), AT(has_guarantee)},
    {"--limit",     "SIZE",   "or none", OPTION_SIZE, AT(limit_bytes), AT(has_limit)},
    {"--weight",    "N",      "1 to 1048576", OPTION_WEIGHT, AT(weight), AT(has_weight)},
    {"--tier",      "TIER",   "of the host or the disk tier, not of the pool", OPTION_TEXT, AT(tier), 0},
    {"--reader",    "TENANT", "may read the domain; may be repeated", OPTION_LIST, AT(readers), AT(num_readers)},
    {"--filler",    "TENANT", "may fill the domain; may be repeated", OPTION_LIST, AT(fillers), AT(num_fillers)},
    {"--domain",    "NAME",   "of this tenant or shared domain only", OPTION_TEXT, AT(domain), 0},
    {"--model",     "NAME",   "of this model only", OPTION_TEXT, AT(model), 0},
    {"--all",       NULL,     "of everybody, of every model", OPTION_FLAG, AT(all), 0},
    {"--undo",      NULL,     "take new sequences again", OPTION_FLAG, AT(undo), 0},
    {"--forget",    NULL,     "what is cached is not kept", OPTION_FLAG, AT(forget), 0},
    {"--requests",  "N",      "of each kind (20000)", OPTION_SIZE, AT(requests), 0},
    {"--depth",     "N",      "outstanding at once (64)", OPTION_SIZE, AT(depth), 0},
    {"--tokens",    "N",      "of the prompt (256)", OPTION_SIZE, AT(tokens), 0},
};
/* clang-format on */

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
enum { NUM_COMMON_OPTIONS = 3 }; /* the first ones are everybody's */

static void help_print(void)
{
    puts("usage: kvpool [OPTION]... COMMAND [ARGUMENT]...\n\n"
         "Asks and tells kvpoold, the daemon that keeps the KV cache of this node's LLM engines.\n"
         "You have to be its operator: whoever may write to its operator.sock.\n\n"
         "commands:");
    for (size_t i = 0; i < COUNT(subcommands); i++)
        printf("  %-15s %s\n", subcommands[i].name, subcommands[i].summary);
    puts("\noptions of every command:");
    for (size_t i = 0; i < NUM_COMMON_OPTIONS; i++)
        printf("  %-9s %-5s %s\n", option_rows[i].name,
               option_rows[i].argument ? option_rows[i].argument : "", option_rows[i].help);
    puts("\n`kvpool COMMAND --help` says more. Exit status: 0 done, 1 the daemon refused, 2 wrong\n"
         "usage, 3 no daemon reached.");
}

static void subcommand_help_print(const struct subcommand *command)
{
    printf("usage: kvpool %s%s%s%s%s\n\n%s\n", command->name, command->argument ? " " : "",
           command->argument ? command->argument : "", *command->options ? " " : "",
           command->options, command->summary);
    if (*command->more)
        printf("\n%s", command->more);
    for (size_t i = NUM_COMMON_OPTIONS; i < COUNT(option_rows); i++) {
        const char *found = strstr(command->options, option_rows[i].name);
        size_t length = strlen(option_rows[i].name);
        if (found && (found[length] == ' ' || found[length] == ']'))
            printf("%s  %-12s %-6s %s\n", strchr(command->options, '-') == found ? "\n" : "",
                   option_rows[i].name, option_rows[i].argument ? option_rows[i].argument : "",
                   option_rows[i].help);
    }
    puts("\nOptions of every command (--dir, --json, --timeout): kvpool --help");
}

static bool size_parse(const char *text, uint64_t *out)
{
    static const char letters[] = "KMGTP";
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *text == '-')
        return false;
    const char *letter = *end ? strchr(letters, *end) : NULL;
    if (letter) {
        unsigned shift = 10 * (unsigned)(letter - letters + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
        end++;
        if (strcmp(end, "iB") == 0)
            end += 2;
    }
    *out = value;
    return *end == '\0';
}

/* The option's value into its field. */
static bool option_apply(const struct option_row *row, const char *text, struct command_line *line)
{
    char *field = (char *)line + row->value, *given = (char *)line + row->is_given;
    uint64_t number = 0;

    if (!text) { /* OPTION_FLAG */
        *(bool *)field = true;
        return true;
    }
    switch (row->kind) {
    case OPTION_TEXT:
        memcpy(field, &text, sizeof(text));
        return true;
    case OPTION_LIST: {
        uint32_t num;
        memcpy(&num, given, sizeof(num));
        if (num + 1 == COUNT(line->readers)) /* the last stays NULL */
            return false;
        memcpy(field + num * sizeof(text), &text, sizeof(text));
        num++;
        memcpy(given, &num, sizeof(num));
        return true;
    }
    default:
        if (row->is_given == AT(has_limit) && strcmp(text, "none") == 0)
            line->is_unlimited = true;
        else if (!size_parse(text, &number))
            return false;
    }
    if (row->kind == OPTION_WEIGHT && (number == 0 || number > MAX_WEIGHT))
        return false;
    if (row->kind == OPTION_NUMBER) {
        uint32_t narrow = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
        memcpy(field, &narrow, sizeof(narrow));
    } else {
        memcpy(field, &number, sizeof(number));
    }
    if (row->is_given)
        *(bool *)given = true;
    return true;
}

int command_fail(const struct command_line *line, int status, const char *message)
{
    const char *text = message && *message ? message : kvpool_status_text(status);

    if (line->json) /* texts of ours and of the daemon have no quotes to be escaped, but may */
        printf("{\"status\": \"%s\", \"message\": \"", kvpool_status_name(status));
    else
        fprintf(stderr, "kvpool: %s: ", kvpool_status_name(status));
    for (; *text; text++) {
        if (line->json && (*text == '"' || *text == '\\'))
            putchar('\\');
        fputc(line->json && (unsigned char)*text < 0x20 ? ' ' : *text,
              line->json ? stdout : stderr);
    }
    fputs(line->json ? "\"}\n" : "\n", line->json ? stdout : stderr);
    if (status == -EINVAL || status == -EMSGSIZE) /* over a cap of the protocol */
        return EXIT_USAGE;
    return status < 0 || status == KVPOOL_DISCONNECTED ? EXIT_UNREACHABLE : EXIT_REFUSED;
}

int command_call(const struct command_line *line, struct kvpool_request *request, char **out_json)
{
    char message[KVPOOL_MAX_MESSAGE] = "";
    struct kvpool_options options = {.struct_bytes = sizeof(options),
                                     .dir = line->dir,
                                     .connect_ms = 1,
                                     .deadline_ms = line->timeout_ms,
                                     .out_message = message};
    struct kvpool *kvpool;
    struct kvpool_result result;

    int status = kvpool_connect_operator(&options, &kvpool);
    if (status)
        return command_fail(line, status, message);
    char *json = out_json ? malloc(MAX_JSON_BYTES + 1) : NULL;
    request->json = json;
    request->json_max = json ? MAX_JSON_BYTES + 1 : 0;
    status = out_json && !json ? -ENOMEM : kvpool_call(kvpool, request, &result);
    int code = status ? command_fail(line, status, kvpool_message(kvpool)) : EXIT_DONE;
    kvpool_disconnect(kvpool);
    if (out_json)
        *out_json = json;
    return code;
}

static int usage_fail(const char *what, const char *word)
{
    fprintf(stderr, "kvpool: %s %s\nTry: kvpool --help\n", what, word);
    return EXIT_USAGE;
}

/* Takes the option at argv[*at], with its value; an exit code, EXIT_DONE to go on. */
static int option_parse(const struct subcommand *command, char **argv, int *at,
                        struct command_line *line)
{
    for (size_t i = 0; i < COUNT(option_rows); i++) {
        const struct option_row *row = &option_rows[i];
        if (strcmp(argv[*at], row->name) != 0)
            continue;
        if (i >= NUM_COMMON_OPTIONS && (!command || !strstr(command->options, row->name)))
            return usage_fail("this command does not take", row->name);
        const char *text = row->argument ? argv[++*at] : NULL;
        if (row->argument && !text)
            return usage_fail("a value is missing after", row->name);
        return option_apply(row, text, line) ? EXIT_DONE
                                             : usage_fail("this is no value of", row->name);
    }
    return usage_fail("there is no option", argv[*at]);
}

static const struct subcommand *subcommand_find(const char *name)
{
    for (size_t i = 0; i < COUNT(subcommands); i++)
        if (strcmp(subcommands[i].name, name) == 0)
            return &subcommands[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct command_line line = {.timeout_ms = 10000, .requests = 20000, .depth = 64, .tokens = 256};
    const struct subcommand *command = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command ? subcommand_help_print(command) : help_print();
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "--version") == 0 && !command) {
            command = subcommand_find("version");
        } else if (argv[i][0] == '-') {
            int code = option_parse(command, argv, &i, &line);
            if (code != EXIT_DONE)
                return code;
        } else if (!command) {
            command = subcommand_find(argv[i]);
            if (!command)
                return usage_fail("there is no command", argv[i]);
        } else if (command->argument && !line.argument) {
            line.argument = argv[i];
        } else {
            return usage_fail("one word too many:", argv[i]);
        }
    }
    if (!command) {
        help_print();
        return EXIT_USAGE;
    }
    if (command->argument && !line.argument)
        return usage_fail("missing:", command->argument);
    return command->run(&line);
}
