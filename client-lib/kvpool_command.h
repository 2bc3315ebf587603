/* client-lib/kvpool_command.h - internal: the parts of the `kvpool` command. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client-lib/kvpool.h"

enum exit_code {
    EXIT_DONE = 0,
    EXIT_REFUSED = 1, /* the daemon said no */
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3
};

/* Everything that a command line can say; each command says which of it it takes. */
struct command_line {
    const char *dir, *token;
    bool json, undo, forget, all, has_guarantee, has_limit, is_unlimited, has_weight;
    uint32_t timeout_ms;
    uint64_t guarantee_bytes, limit_bytes, weight;
    uint64_t requests, depth, tokens;
    const char *domain, *model, *tier;
    const char *readers[65], *fillers[65]; /* NULL-terminated */
    uint32_t num_readers, num_fillers;
    const char *argument; /* the one word that is no option */
};

/* Prints what went wrong (as JSON with --json) and says how the command ends. */
int command_fail(const struct command_line *line, int status, const char *message);

/* Connects as an operator and calls; *out_json, if wanted, is to be freed. An exit code. */
int command_call(const struct command_line *line, struct kvpool_request *request, char **out_json);

/* --- tables: kvpool_command_tables.c --- */

int command_status(const struct command_line *line);
int command_models(const struct command_line *line);
int command_tenants(const struct command_line *line);
int command_domains(const struct command_line *line);
int command_sessions(const struct command_line *line);

/* --- verbs: kvpool_command_verbs.c --- */

int command_create_domain(const struct command_line *line);
int command_quota(const struct command_line *line);
int command_kick(const struct command_line *line);
int command_drain(const struct command_line *line);
int command_clear(const struct command_line *line);
int command_shutdown(const struct command_line *line);
int command_version(const struct command_line *line);

/* --- kvpool_command_bench.c --- */

int command_bench(const struct command_line *line);
