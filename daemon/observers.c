/* daemon/observers.c - what log, stats socket and HTTP count about themselves, as rows for stats.
 */
#include "daemon/observers.h"

#define AT(field) offsetof(struct observers, field), NULL, NULL

/* clang-format off */
const struct stats_row observer_rows[] = {
    {"event_blocks",        "blocks stored and removed",                               STATS_COUNTER, AT(events.blocks)},
    {"event_messages",      "messages sent on the stats socket",                       STATS_COUNTER, AT(events.messages)},
    {"event_overflows",     "times a subscriber was found at the end of its queue",    STATS_COUNTER, AT(events.overflows)},
    {"event_subscriptions", "subscriptions of the stats socket, equal ones once",      STATS_GAUGE,   AT(events.subscriptions)},
    {"http_requests",       "pages asked for, those that do not exist included",       STATS_COUNTER, AT(http.requests)},
    {"http_denied",         "requests on the port without its token",                  STATS_COUNTER, AT(http.denied)},
    {"log_written",         "log lines",                                               STATS_COUNTER, AT(log.written)},
    {"log_suppressed",      "log lines left out because their event came too often",   STATS_COUNTER, AT(log.suppressed)},
    {"log_dropped",         "log lines that standard error would not take at once",    STATS_COUNTER, AT(log.dropped)},
};
/* clang-format on */
const size_t num_observer_rows = sizeof(observer_rows) / sizeof(observer_rows[0]);

void observers_take(struct observers *observers, const struct events *events,
                    const struct http *http)
{
    observers->log = log_counters();
    if (events)
        observers->events = events_counters(events);
    if (http)
        observers->http = http_counters(http);
}
