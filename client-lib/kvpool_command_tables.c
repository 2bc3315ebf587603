/*
 * client-lib/kvpool_command_tables.c - what the daemon lists, as tables for people.
 *
 * A line has 80 columns, but for names that are longer than theirs, and for what is wrong.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/kvpool_command.h"
#include "client-lib/kvpool_command_json.h"

enum { SIZE_CHARS = 16, BAR_CHARS = 16, SMALL_BAR_CHARS = 7 };

/* Three digits: "4.0 KiB", "512 MiB". */
static const char *size_text(char out[SIZE_CHARS], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;

    while (bytes >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, SIZE_CHARS, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes,
             units[unit]);
    return out;
}

/* From a day on in hours: "86399 s", "24 h". */
static const char *age_text(char out[SIZE_CHARS], double ms)
{
    double seconds = ms / 1000;
    bool is_long = seconds >= 86400;

    snprintf(out, SIZE_CHARS, "%.0f %s", floor(is_long ? seconds / 3600 : seconds),
             is_long ? "h" : "s");
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

static void bar_print(double part, double whole, int num_chars)
{
    double share = whole > 0 ? fmin(fmax(part / whole, 0), 1) : 0;
    int filled = (int)(share * num_chars + 0.5);

    putchar('[');
    for (int i = 0; i < num_chars; i++)
        putchar(i < filled ? '#' : '.');
    printf("] %3.0f %%", share * 100);
}

static void payers_head_print(void)
{
    printf("%-15s %-6s %8s %9s %8s %6s %5s  %s\n", "NAME", "KIND", "USED", "GUARANTEE", "LIMIT",
           "WEIGHT", "HITS", "FULL");
}

/* FULL: how much of its limit a payer uses; of the pool, @budget_bytes, if it has none. */
static void payers_print(const struct json *payers, const char *kind, double budget_bytes)
{
    for (const struct json *payer = payers->first; payer; payer = payer->next) {
        char used[SIZE_CHARS], guarantee[SIZE_CHARS], limit[SIZE_CHARS], hits[SIZE_CHARS] = "-";
        double queried = json_number(payer, "query_tokens");
        double whole = json_number(payer, "limit_bytes");

        if (queried > 0)
            snprintf(hits, sizeof(hits), "%.0f %%",
                     100 * json_number(payer, "hit_tokens") / queried);
        printf("%-15s %-6s %8s %9s %8s %6.0f %5s  ", json_string(payer, "name"), kind,
               size_text(used, json_number(payer, "charged_bytes")),
               size_text(guarantee, json_number(payer, "guarantee_bytes")),
               limit_text(limit, payer, "limit_bytes"), json_number(payer, "weight"), hits);
        bar_print(json_number(payer, "charged_bytes"), whole > 0 ? whole : budget_bytes,
                  SMALL_BAR_CHARS);
        if (json_number(payer, "quarantined") > 0) /* a process that could write them lives */
            printf("  %.0f quarantined", json_number(payer, "quarantined"));
        putchar('\n');
    }
}

static void duration_print(double ms)
{
    uint64_t seconds = ms > 0 ? (uint64_t)(ms / 1000) : 0;

    printf(", up ");
    if (seconds >= 86400)
        printf("%llu d ", (unsigned long long)(seconds / 86400));
    printf("%02u:%02u:%02u", (unsigned)(seconds / 3600 % 24), (unsigned)(seconds / 60 % 60),
           (unsigned)(seconds % 60));
}

/* Of the pool or a tier: granules with blocks. Those without one belong to nobody. */
static double used_bytes(const struct json *tier)
{
    return json_number(tier, "charged_bytes") - json_number(tier, "idle_bytes");
}

/* Not all tiers have some, and few have much of it: lines of their own. */
static void tier_losses_print(const struct json *tier)
{
    const char *separator = "        evicted without a copy below: ";

    for (const struct json *reason = json_member(tier, "skipped")->first; reason;
         reason = reason->next) {
        if (reason->number <= 0)
            continue;
        printf("%s%.0f %s", separator, reason->number, reason->key);
        separator = ", ";
    }
    if (*separator == ',')
        putchar('\n');
    if (json_number(tier, "failed") > 0)
        printf("        copies that failed: %.0f\n", json_number(tier, "failed"));
}

static const char *tier_state(const struct json *tier)
{
    const char *phase = json_string(tier, "phase"), *state = json_string(tier, "state");

    if (strcmp(phase, "") != 0 && strcmp(phase, "ready") != 0)
        return phase;
    if (strcmp(state, "") != 0 && strcmp(state, "ok") != 0)
        return state;
    return json_string(tier, "mode");
}

/* What lies below the pool, if anything does. */
static void tiers_print(const struct json *tiers)
{
    if (!tiers->first || !tiers->first->next)
        return;
    printf("%-6s %-10s %8s %8s %7s %7s %10s %8s %8s\n", "TIER", "STATE", "USED", "OF", "BLOCKS",
           "COLDEST", "HIT TOKENS", "STORED", "FETCHED");
    for (const struct json *tier = tiers->first; tier; tier = tier->next) {
        char used[SIZE_CHARS], of[SIZE_CHARS], stored[SIZE_CHARS], fetched[SIZE_CHARS];
        char age[SIZE_CHARS];
        printf("%-6s %-10s %8s %8s %7.0f %7s %10.0f %8s %8s\n", json_string(tier, "name"),
               tier_state(tier), size_text(used, used_bytes(tier)),
               size_text(of, json_number(tier, "budget_bytes")),
               json_number(tier, "evictable") + json_number(tier, "held"),
               age_text(age, json_number(tier, "coldest_age_ms")), json_number(tier, "hit_tokens"),
               size_text(stored, json_number(tier, "stored_bytes")),
               size_text(fetched, json_number(tier, "fetched_bytes")));
        tier_losses_print(tier);
    }
    putchar('\n');
}

static void status_print(const struct json *status)
{
    char used[SIZE_CHARS], budget[SIZE_CHARS], committed[SIZE_CHARS];
    double budget_bytes = json_number(status, "budget_bytes");

    printf("kvpoold %s", json_string(status, "version"));
    if (json_member(status, "uptime_ms")->kind == JSON_NUMBER)
        duration_print(json_number(status, "uptime_ms"));
    printf("%s%s, %.0f sessions, %.0f sequences\n",
           json_member(status, "ready")->kind == JSON_FALSE ? ", not ready yet" : "",
           json_is_true(status, "draining")     ? ", draining"
           : json_is_true(status, "recovering") ? ", recovering what was cached"
                                                : "",
           json_number(status, "sessions"), json_number(status, "sequences"));
    printf("pool %s of %s in use, %s committed  ", size_text(used, used_bytes(status)),
           size_text(budget, budget_bytes),
           size_text(committed, json_number(status, "charged_bytes")));
    bar_print(used_bytes(status), budget_bytes, BAR_CHARS);
    putchar('\n');
    const struct json *fallbacks = json_member(status, "fallbacks");
    for (const struct json *row = fallbacks->first; row; row = row->next)
        printf("fallback: %s%s%s\n",
               row->kind == JSON_STRING ? row->string : json_string(row, "name"),
               row->kind == JSON_STRING ? "" : ": ", json_string(row, "cost"));
    putchar('\n');
    tiers_print(json_member(status, "tiers"));
}

static void names_print(const char *title, const struct json *names)
{
    if (names->kind != JSON_LIST)
        return;
    printf("  %s:", title);
    for (const struct json *name = names->first; name; name = name->next)
        printf(" %s", name->kind == JSON_STRING ? name->string : "?");
    putchar('\n');
}

static void tenants_print(const struct json *tenants, double budget_bytes)
{
    payers_head_print();
    payers_print(tenants, "tenant", budget_bytes);
}

static void domains_print(const struct json *domains, double budget_bytes)
{
    payers_head_print();
    payers_print(domains, "domain", budget_bytes);
    for (const struct json *domain = domains->first; domain; domain = domain->next) {
        if (json_member(domain, "readers")->kind != JSON_LIST)
            continue;
        printf("%s\n", json_string(domain, "name"));
        names_print("readers", json_member(domain, "readers"));
        names_print("fillers", json_member(domain, "fillers"));
    }
}

static void models_print(const struct json *models, double budget_bytes)
{
    (void)budget_bytes;
    printf("%-26s %6s %6s %12s %-8s %s\n", "NAME", "LAYERS", "GROUPS", "BLOCK TOKENS", "KIND",
           "FINGERPRINT");
    for (const struct json *model = models->first; model; model = model->next)
        printf("%-26s %6.0f %6.0f %12.0f %-8s %.16s\n", json_string(model, "name"),
               json_number(model, "layers"), json_number(model, "groups"),
               json_number(model, "block_tokens"),
               json_is_true(model, "opaque") ? "opaque" : "attended",
               json_string(model, "fingerprint"));
}

static void sessions_print(const struct json *sessions, double budget_bytes)
{
    enum { HELLO_MAPPED = 1 };
    (void)budget_bytes;
    printf("%-16s %-16s %8s %11s %8s %s\n", "SESSION", "TENANT", "PID", "OUTSTANDING", "ATTACHED",
           "KIND");
    for (const struct json *session = sessions->first; session; session = session->next) {
        const struct json *id = json_member(session, "session");
        bool is_mapped = json_member(session, "flags")->integer & HELLO_MAPPED;
        if (id->kind == JSON_STRING)
            printf("%-16s", id->string);
        else
            printf("%016llx", (unsigned long long)id->integer);
        printf(" %-16s %8.0f %11.0f %8.0f %s%s\n", json_string(session, "tenant"),
               json_number(session, "pid"), json_number(session, "outstanding"),
               json_number(session, "attached"), is_mapped ? "mapped" : "attends",
               json_is_true(session, "ending") ? ", ending" : "");
    }
}

/* The list of @what, taken apart in *out_text, which is to be freed after *out_json. */
static int list_take(const struct command_line *line, const char *what, char **out_text,
                     struct json **out_json)
{
    struct kvpool_request request = {.verb = KVPOOL_LIST, .what = what};

    int code = command_call(line, &request, out_text);
    if (code == EXIT_DONE && !line->json) {
        *out_json = json_parse(*out_text);
        if (!*out_json)
            code = command_fail(line, KVPOOL_FAILED, "the daemon's answer is no JSON");
    }
    return code;
}

/* Prints the list of @what: as it came with --json, else through @print. */
static int list_print(const struct command_line *line, const char *what, double budget_bytes,
                      void (*print)(const struct json *list, double budget_bytes))
{
    struct json *json = NULL;
    char *text = NULL;

    int code = list_take(line, what, &text, &json);
    if (code == EXIT_DONE && line->json)
        puts(text);
    else if (code == EXIT_DONE)
        print(json, budget_bytes);
    free(json);
    free(text);
    return code;
}

static void rest_print(const struct json *domains, double budget_bytes)
{
    payers_print(domains, "domain", budget_bytes);
}

int command_status(const struct command_line *line)
{
    struct json *json = NULL;
    char *text = NULL;

    int code = list_take(line, "status", &text, &json);
    if (code == EXIT_DONE && line->json) {
        puts(text);
    } else if (code == EXIT_DONE) {
        double budget_bytes = json_number(json, "budget_bytes");
        status_print(json);
        code = list_print(line, "tenants", budget_bytes, tenants_print);
        if (code == EXIT_DONE)
            code = list_print(line, "domains", budget_bytes, rest_print);
    }
    free(json);
    free(text);
    return code;
}

int command_models(const struct command_line *line)
{
    return list_print(line, "models", 0, models_print);
}

/* The list of @what with the pool's size, which only the status has; programs ask for it. */
static int payers_list_print(const struct command_line *line, const char *what,
                             void (*print)(const struct json *list, double budget_bytes))
{
    struct json *status = NULL;
    char *text = NULL;

    int code = line->json ? EXIT_DONE : list_take(line, "status", &text, &status);
    double budget_bytes = status ? json_number(status, "budget_bytes") : 0;
    free(status);
    free(text);
    return code == EXIT_DONE ? list_print(line, what, budget_bytes, print) : code;
}

int command_tenants(const struct command_line *line)
{
    return payers_list_print(line, "tenants", tenants_print);
}

int command_domains(const struct command_line *line)
{
    return payers_list_print(line, "domains", domains_print);
}

int command_sessions(const struct command_line *line)
{
    return list_print(line, "sessions", 0, sessions_print);
}
