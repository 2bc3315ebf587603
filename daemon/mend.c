/* daemon/mend.c - excess is found and ended, damage is replaced. */
#include "daemon/mend.h"

#include "daemon/log.h"
#include "daemon/server.h"

/* Whether @session could have done it, with a descriptor that it was given. */
static bool can_write(const struct server *server, const struct session *session, pool_payer domain)
{
    return session->can_write_arenas &&
           (session->tenant == domain ||
            tenants_rights(&server->tenants, domain, session->tenant) & POOL_MAY_FILL);
}

static void report(struct server *server, const struct gpu_excess *row)
{
    struct arena_memory *arena = &server->effects.arenas[row->arena];

    if (arena->is_reported) /* once, for as long as it lasts */
        return;
    arena->is_reported = true;
    log_event(LOG_WARN, "arena_excess", log_number("arena", row->arena),
              log_number("physical_bytes", row->physical_bytes),
              log_number("charged_bytes", row->charged_bytes),
              log_bool("damaged", row->is_damaged));
}

/* Of a damaged arena its tenant's other sessions end too: what they hold of it is gone. */
static void sessions_punish(struct server *server, const struct gpu_excess *row, pool_payer domain)
{
    for (uint32_t i = 0; i < server->sessions.max; i++) {
        struct session *session = &server->sessions.sessions[i];
        if (session->state != SESSION_OPEN)
            continue;
        if (can_write(server, session, domain))
            session_end(server, session, "took memory that is not its own");
        else if (row->is_damaged && session->tenant == domain)
            session_end(server, session, "its tenant damaged an arena");
    }
}

static bool is_among(const struct gpu_excess *rows, int count, uint32_t arena)
{
    for (int at = 0; at < count; at++) {
        if (rows[at].arena == arena)
            return true;
    }
    return false;
}

void mend_check(struct server *server)
{
    struct effects *effects = &server->effects;
    struct gpu_excess rows[16];
    int count = gpu_device_check_excess(server->device, rows, ARRAY_SIZE(rows));

    count = count < (int)ARRAY_SIZE(rows) ? count : (int)ARRAY_SIZE(rows);
    effects->num_damaged = 0;
    for (uint32_t arena = 0; arena < effects->max_arenas; arena++) {
        if (effects->arenas[arena].is_reported && !is_among(rows, count, arena))
            effects->arenas[arena].is_reported = false;
    }
    for (int at = 0; at < count; at++) {
        struct pool_arena_description description;
        if (rows[at].arena >= effects->max_arenas) { /* none, or of before: being adopted */
            log_event(LOG_WARN, "memory_excess",
                      log_number("physical_bytes", rows[at].physical_bytes));
            continue;
        }
        report(server, &rows[at]);
        if (pool_arena_describe(server->pool, rows[at].arena, &description))
            continue;
        sessions_punish(server, &rows[at], description.domain);
        if (rows[at].is_damaged)
            effects->num_damaged++;
        else
            effects_trim(server, rows[at].arena);
    }
}

/* Nobody holds anything of its domain, and nobody is left who was given it to write. */
static bool may_replace(struct server *server, pool_payer domain)
{
    struct pool_payer_stats stats;

    if (pool_payer_stats(server->pool, domain, &stats) || stats.held > 0 || stats.reserved > 0 ||
        stats.quarantined > 0)
        return false;
    for (uint32_t i = 0; i < server->sessions.max; i++) {
        const struct session *session = &server->sessions.sessions[i];
        if (session->state != SESSION_FREE && can_write(server, session, domain))
            return false;
    }
    return true;
}

bool mend_run(struct server *server)
{
    struct effects *effects = &server->effects;
    bool any = false;

    for (uint32_t number = 0; number < effects->max_arenas; number++) {
        const struct arena_memory *arena = &effects->arenas[number];
        if (!arena->is_open || arena->is_closing || !gpu_arena_is_damaged(server->device, number) ||
            !may_replace(server, arena->domain))
            continue;
        if (effects_close_arena(server, number))
            continue; /* something of it is under way */
        (void)pool_clear(server->pool, arena->domain, arena->model); /* what it held is no more */
        server->has_more = true;
        effects->num_damaged--;
        any = true;
        log_event(LOG_NOTICE, "arena_replaced", log_number("arena", number));
    }
    return any;
}
