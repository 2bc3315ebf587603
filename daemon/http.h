/*
 * daemon/http.h - /metrics, /stats.json, /healthz and /readyz, from a thread of its own.
 *
 * On a unix socket, whose file mode is the permission, and by a setting on loopback TCP, where
 * every request needs `Authorization: Bearer TOKEN`. It only reads snapshots: an owner thread that
 * is stuck shows as /healthz 503, and a slow scraper slows nobody.
 */
#pragma once

#include "daemon/token.h"

#include <stdint.h>
#include <sys/types.h>

struct http;
struct stats;

struct http_options {
    struct stats *stats;     /* borrowed until http_stop(); nobody else may stats_borrow() */
    const char *socket_path; /* or NULL */
    mode_t socket_mode;
    uint16_t loopback_port;   /* 0: none */
    struct token token;       /* must be there if there is a port */
    uint32_t max_connections; /* on each */
    uint32_t healthy_ms;      /* /healthz is 503 if the latest snapshot is older */
};

/* -EINVAL: a port without a token. Else what the system says. */
int http_start(const struct http_options *options, struct http **out_http);
void http_stop(struct http *http); /* takes NULL; removes the socket */

/* Answers given, and connections refused or requests denied: any thread. */
struct http_counters {
    uint64_t requests, denied;
};
struct http_counters http_counters(const struct http *http);
