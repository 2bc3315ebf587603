/* client-lib/kvpool_command_verbs.c - what an operator tells the daemon to do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/kvpool_command.h"
#include "client-lib/kvpool_command_json.h"

static int call_and_say(const struct command_line *line, struct kvpool_request *request,
                        const char *done)
{
    int code = command_call(line, request, NULL);
    if (code == EXIT_DONE)
        puts(line->json ? "{\"status\": \"OK\"}" : done);
    return code;
}

int command_create_domain(const struct command_line *line)
{
    struct kvpool_request request = {
        .verb = KVPOOL_CREATE_DOMAIN,
        .domain = line->argument,
        .readers = line->readers,
        .fillers = line->fillers,
        .quota = {line->guarantee_bytes, line->has_limit && !line->is_unlimited, line->limit_bytes,
                  line->has_weight ? line->weight : 1}};
    return call_and_say(line, &request, "The domain is there.");
}

/* Of the pool, or of the tier that was said: without one, the daemon refuses it. */
static const struct json *quota_member(const struct command_line *line, const struct json *payer,
                                       const char *name)
{
    bool is_below = line->tier && strcmp(line->tier, "device") != 0;
    char full[64];

    (void)snprintf(full, sizeof(full), "%.16s%s%s", is_below ? line->tier : "", is_below ? "_" : "",
                   name);
    return json_member(payer, full);
}

/* The quota that @name has now, in @what's list; false: it is not in it. */
static bool quota_find(const struct command_line *line, const char *what, const char *name,
                       struct kvpool_quota *out, int *out_code)
{
    struct kvpool_request request = {.verb = KVPOOL_LIST, .what = what};
    char *text = NULL;
    bool found = false;

    *out_code = command_call(line, &request, &text);
    struct json *json = *out_code == EXIT_DONE ? json_parse(text) : NULL;
    for (const struct json *payer = json ? json->first : NULL; payer && !found;
         payer = payer->next) {
        if (strcmp(json_string(payer, "name"), name) != 0)
            continue;
        found = true;
        out->guarantee_bytes = quota_member(line, payer, "guarantee_bytes")->integer;
        out->has_limit = quota_member(line, payer, "limit_bytes")->kind == JSON_NUMBER;
        out->limit_bytes = quota_member(line, payer, "limit_bytes")->integer;
        out->weight = quota_member(line, payer, "weight")->integer;
    }
    free(json);
    free(text);
    return found;
}

/* The verb sets all at once: what was not said stays as it is. */
int command_quota(const struct command_line *line)
{
    struct kvpool_request request = {.verb = KVPOOL_SET_QUOTA, .domain = line->argument};
    int code;

    if (!line->has_guarantee && !line->has_limit && !line->has_weight)
        return command_fail(line, -EINVAL, "say at least one of --guarantee, --limit, --weight");
    request.what = line->tier;
    if (!quota_find(line, "tenants", line->argument, &request.quota, &code) &&
        (code != EXIT_DONE || !quota_find(line, "domains", line->argument, &request.quota, &code)))
        return code != EXIT_DONE
                   ? code
                   : command_fail(line, KVPOOL_NOT_FOUND, "there is no such tenant or domain");
    if (line->has_guarantee)
        request.quota.guarantee_bytes = line->guarantee_bytes;
    if (line->has_limit) {
        request.quota.has_limit = !line->is_unlimited;
        request.quota.limit_bytes = line->limit_bytes;
    }
    if (line->has_weight)
        request.quota.weight = line->weight;
    return call_and_say(line, &request, "The quota is set.");
}

int command_kick(const struct command_line *line)
{
    char *end;
    struct kvpool_request request = {.verb = KVPOOL_KICK};

    request.session = strtoull(line->argument, &end, 16);
    if (*end || request.session == 0)
        return command_fail(line, -EINVAL, "a session is 16 hexadecimal digits: kvpool sessions");
    return call_and_say(line, &request, "The session is ended.");
}

int command_drain(const struct command_line *line)
{
    struct kvpool_request request = {.verb = KVPOOL_DRAIN, .undo = line->undo};
    return call_and_say(line, &request,
                        line->undo ? "New sequences are taken again."
                                   : "No new sequences are taken; those that there are go on.");
}

int command_clear(const struct command_line *line)
{
    struct kvpool_request request = {
        .verb = KVPOOL_CLEAR, .domain = line->domain, .model_name = line->model};

    if (!line->all == (!line->domain && !line->model))
        return command_fail(line, -EINVAL, "say --domain and/or --model; or --all, for all");
    return call_and_say(line, &request, "What was cached is found no more.");
}

int command_shutdown(const struct command_line *line)
{
    struct kvpool_request request = {.verb = KVPOOL_SHUTDOWN, .forget = line->forget};
    return call_and_say(line, &request, "The daemon ends.");
}

/* Ours always; the daemon's if it is there. */
int command_version(const struct command_line *line)
{
    struct command_line quiet = *line;
    struct kvpool_options options = {.struct_bytes = sizeof(options), .dir = quiet.dir};
    struct kvpool_request request = {.verb = KVPOOL_LIST, .what = "status"};
    struct kvpool *kvpool;
    char text[65536] = "", daemon[128] = "";

    options.connect_ms = 1;
    options.deadline_ms = line->timeout_ms;
    if (kvpool_connect_operator(&options, &kvpool) == 0) {
        request.json = text;
        request.json_max = sizeof(text);
        struct json *json = kvpool_call(kvpool, &request, NULL) == 0 ? json_parse(text) : NULL;
        const char *version = json_string(json, "version");
        snprintf(daemon, sizeof(daemon), "%s", *version ? version : "of an unknown version");
        free(json);
        kvpool_disconnect(kvpool);
    }
    if (line->json)
        printf("{\"kvpool\": \"%s\", \"kvpoold\": %s%s%s}\n", KVPOOL_VERSION, *daemon ? "\"" : "",
               *daemon ? daemon : "null", *daemon ? "\"" : "");
    else
        printf("kvpool %s\nkvpoold %s\n", KVPOOL_VERSION, *daemon ? daemon : "not reached");
    return EXIT_DONE;
}
