/* daemon/capacity.c - `kvpoold capacity`: what a model costs and how much of it fits. */
#include "daemon/capacity.h"
#include "daemon/capacity_model.h"
#include "daemon/value.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_CANNOT = 1, EXIT_USAGE = 2 };

struct command {
    struct capacity_model model;
    struct capacity_group shape; /* of the next --layers */
    struct capacity_memory memory;
    const char *json_path;
    const char *dtype;
    bool is_json, wants_help;
};

/* Each sets one thing from its value: false if it is not understood. */
static bool set_layers(struct command *command, const char *value)
{
    if (command->model.num_groups == CAPACITY_MAX_GROUPS)
        return false;
    struct capacity_group *group = &command->model.groups[command->model.num_groups];

    *group = command->shape;
    if (count_parse(value, &group->layers) < 0)
        return false;
    command->model.num_groups++;
    return true;
}

/* Of the group at hand, and of those that follow. */
static struct capacity_group *group_at(struct command *command)
{
    size_t count = command->model.num_groups;

    return count > 0 ? &command->model.groups[count - 1] : &command->shape;
}

static bool set_kv_heads(struct command *command, const char *value)
{
    if (count_parse(value, &command->shape.kv_heads) < 0)
        return false;
    group_at(command)->kv_heads = command->shape.kv_heads;
    return true;
}

static bool set_head_dim(struct command *command, const char *value)
{
    if (count_parse(value, &command->shape.k_dim) < 0)
        return false;
    command->shape.v_dim = command->shape.k_dim;
    group_at(command)->k_dim = group_at(command)->v_dim = command->shape.k_dim;
    return true;
}

static bool set_v_head_dim(struct command *command, const char *value)
{
    if (count_parse(value, &command->shape.v_dim) < 0)
        return false;
    group_at(command)->v_dim = command->shape.v_dim;
    return true;
}

static bool set_window(struct command *command, const char *value)
{
    return command->model.num_groups > 0 && count_parse(value, &group_at(command)->window) == 0;
}

static bool set_dtype(struct command *command, const char *value)
{
    command->dtype = value;
    return capacity_dtype_bytes(value) > 0;
}

static bool set_config_json(struct command *command, const char *value)
{
    command->json_path = value;
    return true;
}

static bool set_bytes(struct command *command, const char *value)
{
    return size_parse(value, &command->memory.bytes) == 0;
}

static bool set_page(struct command *command, const char *value)
{
    return size_parse(value, &command->memory.page_bytes) == 0;
}

static bool set_block_tokens(struct command *command, const char *value)
{
    return count_parse(value, &command->memory.block_tokens) == 0;
}

static bool set_context(struct command *command, const char *value)
{
    return count_parse(value, &command->memory.context) == 0;
}

static bool set_json(struct command *command, const char *value)
{
    (void)value;
    command->is_json = true;
    return true;
}

static bool set_help(struct command *command, const char *value)
{
    (void)value;
    command->wants_help = true;
    return true;
}

/* clang-format off */
static const struct option {
    const char *name;
    const char *value; /* NULL: takes none */
    bool (*set)(struct command *command, const char *value);
    const char *help;
} options[] = {
    {"--config-json",  "FILE",   set_config_json,  "a model's Hugging Face config.json, instead of the next five"},
    {"--layers",       "N",      set_layers,       "begins a layer group of N layers; options behind it are this group's"},
    {"--window",       "TOKENS", set_window,       "of this group; without it, it sees everything"},
    {"--kv-heads",     "N",      set_kv_heads,     "of this group and those that follow"},
    {"--head-dim",     "N",      set_head_dim,     "of K and V, of this group and those that follow"},
    {"--v-head-dim",   "N",      set_v_head_dim,   "of V, where it differs; 0: V is a prefix of K (MLA)"},
    {"--dtype",        "NAME",   set_dtype,        "f16, bf16 or f32; default: the file's, or f16"},
    {"--bytes",        "SIZE",   set_bytes,        "the pool (pool-bytes); default 1GiB"},
    {"--page",         "SIZE",   set_page,         "unit of the pool (page-bytes); default 2MiB"},
    {"--block-tokens", "N",      set_block_tokens, "tokens of a block; default 16"},
    {"--context",      "TOKENS", set_context,      "of a sequence; default 8192"},
    {"--json",         NULL,     set_json,         "print JSON, with all sizes in bytes"},
    {"--help",         NULL,     set_help,         "print this"},
};
/* clang-format on */

static void print_help(FILE *out)
{
    (void)fprintf(out, "usage: kvpoold capacity --config-json FILE [--bytes SIZE] [OPTION...]\n"
                       "       kvpoold capacity --layers N --kv-heads N --head-dim N [OPTION...]\n"
                       "Says what a token costs, what granules lose, and how much fits.\n\n");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s %s", options[i].name,
                       options[i].value ? options[i].value : "");
        (void)fprintf(out, "  %-22s %s\n", name, options[i].help);
    }
}

/* 0, or a status to exit with. */
static int parse(struct command *command, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct option *option = options,
                            *end = options + sizeof(options) / sizeof(options[0]);
        while (option < end && strcmp(option->name, argv[i]) != 0)
            option++;
        if (option == end) {
            (void)fprintf(stderr, "kvpoold capacity: unknown option '%s' (try --help)\n", argv[i]);
            return EXIT_USAGE;
        }
        const char *value = option->value && i + 1 < argc ? argv[++i] : NULL;
        if ((option->value && !value) || !option->set(command, value)) {
            (void)fprintf(stderr, "kvpoold capacity: %s: expected %s%s%s (try --help)\n",
                          option->name, option->value, value ? ", not " : "", value ? value : "");
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* ---- output -----------------------------------------------------------------------------------
 */

static unsigned long long big(uint64_t number)
{
    return number;
}

static void print_json(const struct command *command, const struct capacity_result *result)
{
    printf("{\"groups\":[");
    for (size_t i = 0; i < command->model.num_groups; i++) {
        const struct capacity_group_result *group = &result->groups[i];
        printf("%s{\"layers\":%llu,\"window\":%llu,\"bytes_per_token\":%llu,\"block_bytes\":%llu,"
               "\"stride_bytes\":%llu,\"granule_pages\":%u,\"granule_slots\":%u,"
               "\"blocks_per_sequence\":%llu}",
               i ? "," : "", big(command->model.groups[i].layers),
               big(command->model.groups[i].window), big(group->token_bytes),
               big(group->block_bytes), big(group->granule.stride_bytes), group->granule.pages,
               group->granule.slots, big(group->sequence_blocks));
    }
    printf("],\"bytes_per_token\":%llu,\"lost_bytes_per_token\":%llu,\"pool_bytes\":%llu,"
           "\"page_bytes\":%llu,\"context\":%llu,\"tokens\":%llu,\"sequence_bytes\":%llu,"
           "\"sequences\":%llu}\n",
           big(result->token_bytes), big(result->token_lost_bytes), big(command->memory.bytes),
           big(command->memory.page_bytes), big(command->memory.context), big(result->tokens),
           big(result->sequence_bytes), big(result->sequences));
}

/* What is said of one number: lives to the end of the expression that it is made in. */
struct word {
    char text[VALUE_TEXT];
};

static struct word size_of(uint64_t bytes)
{
    struct word word;

    size_round(bytes, word.text);
    return word;
}

/* "1 slot", "16 slots" */
static struct word count_of(uint64_t count, const char *noun)
{
    struct word word;

    (void)snprintf(word.text, sizeof(word.text), "%llu %.8s%s", big(count), noun,
                   count == 1 ? "" : "s");
    return word;
}

static void print_text(const struct command *command, const struct capacity_result *result)
{
    bool is_one = result->sequences == 1;

    for (size_t i = 0; i < command->model.num_groups; i++) {
        const struct capacity_group *group = &command->model.groups[i];
        const struct capacity_group_result *found = &result->groups[i];
        char window[VALUE_TEXT] = "full";
        if (group->window > 0)
            (void)snprintf(window, sizeof(window), "window %llu", big(group->window));
        printf("group %zu: %s, %s: %s a token; block %s, stride %s, %s in %s\n", i,
               count_of(group->layers, "layer").text, window, size_of(found->token_bytes).text,
               size_of(found->block_bytes).text, size_of(found->granule.stride_bytes).text,
               count_of(found->granule.slots, "slot").text,
               count_of(found->granule.pages, "page").text);
    }
    printf("a token: %s, and %s lost to granules\n", size_of(result->token_bytes).text,
           size_of(result->token_lost_bytes).text);
    printf("a sequence of %s: %s\n", count_of(command->memory.context, "token").text,
           size_of(result->sequence_bytes).text);
    printf("in %s of %s pages: %s cached, or %llu such sequence%s that share%s nothing\n",
           size_of(command->memory.bytes).text, size_of(command->memory.page_bytes).text,
           count_of(result->tokens, "token").text, big(result->sequences), is_one ? "" : "s",
           is_one ? "s" : "");
}

int capacity_command(int argc, char **argv)
{
    struct command command = {
        .memory = {.bytes = 1 << 30, .page_bytes = 2 << 20, .block_tokens = 16, .context = 8192}};
    struct capacity_result result;
    char error[CAPACITY_ERROR];

    int status = parse(&command, argc, argv);
    if (status)
        return status;
    if (command.wants_help) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if ((command.json_path != NULL) == (command.model.num_groups > 0)) {
        (void)fprintf(stderr,
                      "kvpoold capacity: expected --config-json or --layers (try --help)\n");
        return EXIT_USAGE;
    }
    command.model.value_bytes = 2;
    if ((command.json_path && capacity_read_json(command.json_path, &command.model, error) < 0)) {
        (void)fprintf(stderr, "kvpoold capacity: %s\n", error);
        return EXIT_CANNOT;
    }
    if (command.dtype)
        command.model.value_bytes = capacity_dtype_bytes(command.dtype);
    if (capacity_compute(&command.model, &command.memory, &result, error) < 0) {
        (void)fprintf(stderr, "kvpoold capacity: %s\n", error);
        return EXIT_CANNOT;
    }
    (command.is_json ? print_json : print_text)(&command, &result);
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_CANNOT;
}
