/* daemon/observers.h - what log, stats socket and HTTP count about themselves, as rows for stats.
 */
#pragma once

#include "daemon/events.h"
#include "daemon/http.h"
#include "daemon/log.h"
#include "daemon/stats.h"

struct observers {
    struct log_counters log;
    struct events_counters events;
    struct http_counters http;
};

/* A table whose base is a struct observers. */
extern const struct stats_row observer_rows[];
extern const size_t num_observer_rows;

/* Before stats_take(). NULL: there is none. */
void observers_take(struct observers *observers, const struct events *events,
                    const struct http *http);
