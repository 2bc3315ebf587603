/* client-lib/kvpool_command_tables.c - what the daemon lists, as tables for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/kvpool_command.h"
#include "client-lib/kvpool_command_json.h"

enum { SIZE_CHARS = 16, BAR_CHARS = 24 };

static const char *size_text(char out[SIZE_CHARS], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, SIZE_CHARS, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return out;
}

/* A size, or "none" where it is null. */
static const char *limit_text(char out[SIZE_CHARS], const struct json *payer, const char *key)
{
    if (json_member(payer, key)->kind == JSON_NUMBER)
        return size_text(out, json_number(payer, key));
    snprintf(out, SIZE_CHARS, "none");
    return out;
}

static void bar_print(double part, double whole)
{
    double share = whole > 0 ? fmin(fmax(part / whole, 0), 1) : 0;
    int filled = (int)(share * BAR_CHARS + 0.5);

    putchar('[');
    for (int i = 0; i < BAR_CHARS; i++)
        putchar(i < filled ? '#' : '.');
    printf("] %3.0f %%", share * 100);
}

static void payers_print(const struct json *payers, double budget_bytes)
{
    printf("%-20s %-7s %11s %11s %11s %7s %6s  %s\n", "NAME", "KIND", "USED", "GUARANTEE", "LIMIT",
           "WEIGHT", "HITS", "OF ITS LIMIT, OR OF THE POOL");
    for (const struct json *payer = payers->first; payer; payer = payer->next) {
        char used[SIZE_CHARS], guarantee[SIZE_CHARS], limit[SIZE_CHARS], hits[SIZE_CHARS] = "-";
        double queried = json_number(payer, "query_tokens");
        double whole = json_number(payer, "limit_bytes");

        if (queried > 0)
            snprintf(hits, sizeof(hits), "%.0f %%",
                     100 * json_number(payer, "hit_tokens") / queried);
        printf("%-20s %-7s %11s %11s %11s %7.0f %6s  ", json_string(payer, "name"),
               json_string(payer, "kind"), size_text(used, json_number(payer, "charged_bytes")),
               size_text(guarantee, json_number(payer, "guarantee_bytes")),
               limit_text(limit, payer, "limit_bytes"), json_number(payer, "weight"), hits);
        bar_print(json_number(payer, "charged_bytes"), whole > 0 ? whole : budget_bytes);
        putchar('\n');
    }
}

static void duration_print(double ms)
{
    uint64_t seconds = ms > 0 ? (uint64_t)(ms / 1000) : 0;

    if (seconds >= 86400)
        printf("%llu d ", (unsigned long long)(seconds / 86400));
    printf("%02u:%02u:%02u", (unsigned)(seconds / 3600 % 24), (unsigned)(seconds / 60 % 60),
           (unsigned)(seconds % 60));
}

static double devices_print(const struct json *devices)
{
    double sum_bytes = 0;

    for (const struct json *device = devices->first; device; device = device->next) {
        char used[SIZE_CHARS], budget[SIZE_CHARS];
        double budget_bytes = json_number(device, "budget_bytes");
        double used_bytes = budget_bytes - json_number(device, "free_bytes");
        printf("device %-3.0f %11s of %11s in use  ", json_number(device, "device"),
               size_text(used, used_bytes), size_text(budget, budget_bytes));
        bar_print(used_bytes, budget_bytes);
        putchar('\n');
        sum_bytes += budget_bytes;
    }
    return sum_bytes;
}

static void status_print(const struct json *status)
{
    printf("kvpoold %s, up ", json_string(status, "version"));
    duration_print(json_number(status, "uptime_ms"));
    printf(", %s%s, %.0f sessions, %.0f sequences\n",
           json_is_true(status, "is_ready") ? "ready" : "not ready yet",
           json_is_true(status, "is_draining") ? ", draining" : "", json_number(status, "sessions"),
           json_number(status, "sequences"));
    double budget_bytes = devices_print(json_member(status, "devices"));
    const struct json *fallbacks = json_member(status, "fallbacks");
    for (const struct json *row = fallbacks->first; row; row = row->next)
        printf("fallback  %s: %s\n", json_string(row, "name"), json_string(row, "cost"));
    putchar('\n');
    payers_print(json_member(status, "payers"), budget_bytes);
}

static void tenants_print(const struct json *list)
{
    payers_print(json_member(list, "tenants"), 0);
}

static void names_print(const char *title, const struct json *names)
{
    printf("  %s:", title);
    for (const struct json *name = names->first; name; name = name->next)
        printf(" %s", name->kind == JSON_STRING ? name->string : "?");
    putchar('\n');
}

static void domains_print(const struct json *list)
{
    const struct json *domains = json_member(list, "domains");

    payers_print(domains, 0);
    for (const struct json *domain = domains->first; domain; domain = domain->next) {
        printf("%s\n", json_string(domain, "name"));
        names_print("readers", json_member(domain, "readers"));
        names_print("fillers", json_member(domain, "fillers"));
    }
}

static void models_print(const struct json *list)
{
    printf("%-24s %-12s %6s %6s %-6s %s\n", "NAME", "REVISION", "LAYERS", "TOKENS", "DTYPE",
           "GROUPS: WINDOW, BYTES OF A BLOCK");
    const struct json *models = json_member(list, "models");
    for (const struct json *model = models->first; model; model = model->next) {
        printf("%-24s %-12.12s %6.0f %6.0f %-6s", json_string(model, "name"),
               json_string(model, "weights_revision"), json_number(model, "num_layers"),
               json_number(model, "block_tokens"), json_string(model, "dtype"));
        const struct json *groups = json_member(model, "groups");
        for (const struct json *group = groups->first; group; group = group->next) {
            char bytes[SIZE_CHARS];
            double window = json_number(group, "window");
            printf(group == groups->first ? " " : "; ");
            if (window > 0)
                printf("%.0f, ", window);
            else
                printf("full, ");
            printf("%s", size_text(bytes, json_number(group, "block_bytes")));
        }
        putchar('\n');
    }
}

static void sessions_print(const struct json *list)
{
    printf("%-16s %-20s %8s %12s %9s %11s %s\n", "SESSION", "TENANT", "PID", "AGE", "SEQUENCES",
           "OUTSTANDING", "KIND");
    const struct json *sessions = json_member(list, "sessions");
    for (const struct json *session = sessions->first; session; session = session->next) {
        printf("%-16s %-20s %8.0f %10.0f s %9.0f %11.0f %s\n", json_string(session, "session"),
               json_string(session, "tenant"), json_number(session, "pid"),
               json_number(session, "age_ms") / 1000, json_number(session, "sequences"),
               json_number(session, "outstanding"),
               json_is_true(session, "is_mapped") ? "mapped" : "attends");
    }
}

/* Lists @what and prints it: as it came with --json, else through @print. */
static int list_print(const struct command_line *line, const char *what,
                      void (*print)(const struct json *list))
{
    struct kvpool_request request = {.verb = KVPOOL_LIST, .what = what};
    char *text = NULL;

    int code = command_call(line, &request, &text);
    if (code == EXIT_DONE && line->json) {
        puts(text);
    } else if (code == EXIT_DONE) {
        struct json *json = json_parse(text);
        if (json)
            print(json);
        else
            code = command_fail(line, KVPOOL_FAILED, "the daemon's answer is no JSON");
        free(json);
    }
    free(text);
    return code;
}

int command_status(const struct command_line *line)
{
    return list_print(line, "status", status_print);
}

int command_models(const struct command_line *line)
{
    return list_print(line, "models", models_print);
}

int command_tenants(const struct command_line *line)
{
    return list_print(line, "tenants", tenants_print);
}

int command_domains(const struct command_line *line)
{
    return list_print(line, "domains", domains_print);
}

int command_sessions(const struct command_line *line)
{
    return list_print(line, "sessions", sessions_print);
}
