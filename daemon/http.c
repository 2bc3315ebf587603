/*
 * daemon/http.c - /metrics, /stats.json, /healthz and /readyz, from a thread of its own.
 *
 * One thread runs one libmicrohttpd for each door (the unix socket, the port) by their epoll
 * descriptors: there is one reader of snapshots, and one buffer.
 */
#include "daemon/http.h"
#include "daemon/listen.h"
#include "daemon/stats.h"
#include "daemon/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_DOORS = 2,
    CONNECTION_BYTES = 16384, /* of a request's line and headers, and of what is on its way out */
    IDLE_SECONDS = 10
};

/* One way in. */
struct door {
    struct http *http;
    struct MHD_Daemon *mhd;
    bool needs_token;
};

struct http {
    struct http_options options;
    char socket_path[128]; /* "" until it is there */
    struct door doors[MAX_DOORS];
    size_t num_doors;
    char *buffer;
    size_t buffer_bytes;
    int stop_fd;
    pthread_t thread;
    bool has_thread;
    _Atomic uint64_t requests, denied; /* by the thread, for any */
};

/* ---- answers -------------------------------------------------------------------------------- */

static const char text_plain[] = "text/plain; charset=utf-8";
static const char openmetrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/* What a page is made of: the latest snapshot (NULL: none) into @out; answers the HTTP status. */
struct page {
    const char *path;
    const char *content_type;
    unsigned (*write)(struct http *http, struct MHD_Connection *connection,
                      const struct stats_snapshot *snapshot, struct text *out);
};

static uint64_t clock_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool wants_openmetrics(struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");

    return accept && strstr(accept, "application/openmetrics-text");
}

static unsigned write_metrics(struct http *http, struct MHD_Connection *connection,
                              const struct stats_snapshot *snapshot, struct text *out)
{
    if (!snapshot)
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    stats_snapshot_metrics(http->options.stats, snapshot, wants_openmetrics(connection), out);
    return MHD_HTTP_OK;
}

static unsigned write_json(struct http *http, struct MHD_Connection *connection,
                           const struct stats_snapshot *snapshot, struct text *out)
{
    (void)connection;
    if (!snapshot)
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    stats_snapshot_json(http->options.stats, snapshot, out);
    text_add(out, "\n");
    return MHD_HTTP_OK;
}

/* The owner takes a snapshot each second: if none came for long, it is stuck. */
static unsigned write_health(struct http *http, struct MHD_Connection *connection,
                             const struct stats_snapshot *snapshot, struct text *out)
{
    uint64_t now_ms = clock_ms();

    (void)connection;
    if (!snapshot) {
        text_add(out, "starting\n");
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    uint64_t taken_ms = stats_snapshot_ms(snapshot);
    uint64_t age_ms = now_ms > taken_ms ? now_ms - taken_ms : 0;
    if (age_ms > http->options.healthy_ms) {
        text_printf(out, "stuck: the last snapshot is %llu ms old\n", (unsigned long long)age_ms);
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    text_add(out, "ok\n");
    return MHD_HTTP_OK;
}

static unsigned write_readiness(struct http *http, struct MHD_Connection *connection,
                                const struct stats_snapshot *snapshot, struct text *out)
{
    static const char *const words[] = {
        [STATS_STARTING] = "starting\n", [STATS_RECOVERING] = "recovering\n",
        [STATS_READY] = "ready\n",       [STATS_DRAINING] = "draining\n",
        [STATS_STOPPING] = "stopping\n",
    };
    unsigned health = write_health(http, connection, snapshot, out);

    if (health != MHD_HTTP_OK)
        return health;
    *out = text_init(out->bytes, out->size);
    enum stats_state state = stats_snapshot_state(snapshot);
    text_add(out, words[state]);
    return state == STATS_READY || state == STATS_RECOVERING ? MHD_HTTP_OK
                                                             : MHD_HTTP_SERVICE_UNAVAILABLE;
}

/* clang-format off */
static const struct page pages[] = {
    {"/metrics",    "text/plain; version=0.0.4; charset=utf-8", write_metrics},
    {"/stats.json", "application/json",                         write_json},
    {"/healthz",    text_plain,                                 write_health},
    {"/readyz",     text_plain,                                 write_readiness},
};
/* clang-format on */

static const struct page *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

/* Extra header, or NULL. MHD_NO closes the connection. */
static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status,
                             const char *content_type, const struct text *body, const char *header,
                             const char *value)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body->length, body->bytes, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result = MHD_NO;

    if (!response)
        return MHD_NO;
    if (MHD_add_response_header(response, "Content-Type", content_type) == MHD_YES &&
        MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES &&
        (!header || MHD_add_response_header(response, header, value) == MHD_YES))
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static bool has_token(const struct door *door, struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");

    if (!given || strncasecmp(given, scheme, sizeof(scheme) - 1) != 0)
        return false;
    given += sizeof(scheme) - 1;
    return token_matches(&door->http->options.token, given, strlen(given));
}

static enum MHD_Result reply_page(struct http *http, struct MHD_Connection *connection,
                                  const struct page *page)
{
    struct text body = text_init(http->buffer, http->buffer_bytes);
    const char *content_type = page->content_type;
    unsigned status = page->write(http, connection, stats_borrow(http->options.stats), &body);

    if (body.is_cut) /* a bug in stats_max_text(): half a page would be read as a whole one */
        status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    if (status != MHD_HTTP_OK)
        content_type = text_plain;
    else if (page->write == write_metrics && wants_openmetrics(connection))
        content_type = openmetrics;
    return reply(connection, status, content_type, &body, NULL, NULL);
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
    static char in_progress;
    struct door *door = context;
    struct http *http = door->http;
    struct text body = text_init(http->buffer, http->buffer_bytes);

    (void)version;
    (void)upload;
    if (door->needs_token && !has_token(door, connection)) {
        atomic_fetch_add_explicit(&http->denied, 1, memory_order_relaxed);
        text_add(&body, "a token is needed: Authorization: Bearer ...\n");
        return reply(connection, MHD_HTTP_UNAUTHORIZED, text_plain, &body, "WWW-Authenticate",
                     "Bearer");
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        text_add(&body, "GET and HEAD only\n");
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, text_plain, &body, "Allow",
                     "GET, HEAD");
    }
    if (!*request) { /* the headers are here; what comes behind them is thrown away */
        *request = &in_progress;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    atomic_fetch_add_explicit(&http->requests, 1, memory_order_relaxed);
    const struct page *page = page_find(path);
    if (page)
        return reply_page(http, connection, page);
    text_add(&body, "/metrics, /stats.json, /healthz, /readyz\n");
    return reply(connection, MHD_HTTP_NOT_FOUND, text_plain, &body, NULL, NULL);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int door_fd(const struct door *door)
{
    return MHD_get_daemon_info(door->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

static int next_timeout_ms(const struct http *http)
{
    int timeout_ms = 1000;

    for (size_t i = 0; i < http->num_doors; i++) {
        MHD_UNSIGNED_LONG_LONG left_ms;
        if (MHD_get_timeout(http->doors[i].mhd, &left_ms) == MHD_YES &&
            left_ms < (MHD_UNSIGNED_LONG_LONG)timeout_ms)
            timeout_ms = (int)left_ms;
    }
    return timeout_ms;
}

static void *http_run(void *context)
{
    struct http *http = context;
    struct pollfd ready[MAX_DOORS + 1];

    for (size_t i = 0; i < http->num_doors; i++)
        ready[i] = (struct pollfd){.fd = door_fd(&http->doors[i]), .events = POLLIN};
    ready[http->num_doors] = (struct pollfd){.fd = http->stop_fd, .events = POLLIN};
    for (;;) {
        (void)poll(ready, http->num_doors + 1, next_timeout_ms(http));
        if (ready[http->num_doors].revents != 0)
            return NULL;
        for (size_t i = 0; i < http->num_doors; i++)
            (void)MHD_run(http->doors[i].mhd);
    }
}

/* Signals are the owner's: the new thread takes none. */
static int start_thread(struct http *http)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = -pthread_create(&http->thread, NULL, http_run, http);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    http->has_thread = err == 0;
    return err;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int listen_loopback(uint16_t port, int *out_fd)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int on = 1;

    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0) {
        int err = -errno;
        (void)close(fd);
        return err;
    }
    *out_fd = fd;
    return 0;
}

/* Takes @fd. */
static int door_open(struct http *http, int fd, bool needs_token)
{
    struct door *door = &http->doors[http->num_doors];

    door->http = http;
    door->needs_token = needs_token;
    door->mhd =
        MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, door, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->options.max_connections,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!door->mhd) {
        (void)close(fd);
        return -ENOMEM;
    }
    http->num_doors++;
    return 0;
}

static int open_doors(struct http *http)
{
    const struct http_options *options = &http->options;
    int fd = -1, err = 0;

    if (options->socket_path) {
        if (strlen(options->socket_path) >= sizeof(http->socket_path))
            return -ENAMETOOLONG;
        err = listen_unix(options->socket_path, SOCK_STREAM, options->socket_mode, &fd);
        if (!err) {
            memcpy(http->socket_path, options->socket_path, strlen(options->socket_path) + 1);
            err = door_open(http, fd, false);
        }
    }
    if (!err && options->loopback_port != 0) {
        err = listen_loopback(options->loopback_port, &fd);
        if (!err)
            err = door_open(http, fd, true);
    }
    return err;
}

int http_start(const struct http_options *options, struct http **out_http)
{
    if (options->loopback_port != 0 && options->token.num_bytes == 0)
        return -EINVAL;
    struct http *http = calloc(1, sizeof(*http));
    if (!http)
        return -ENOMEM;

    http->options = *options;
    http->stop_fd = -1;
    http->buffer_bytes = stats_max_text(options->stats);
    http->buffer = calloc(1, http->buffer_bytes);
    int err = -ENOMEM;
    if (!http->buffer)
        goto fail;
    http->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->stop_fd < 0) {
        err = -errno;
        goto fail;
    }
    err = open_doors(http);
    if (!err)
        err = start_thread(http);
    if (err)
        goto fail;
    *out_http = http;
    return 0;

fail:
    http_stop(http);
    return err;
}

void http_stop(struct http *http)
{
    if (!http)
        return;
    if (http->has_thread) {
        (void)eventfd_write(http->stop_fd, 1);
        (void)pthread_join(http->thread, NULL);
    }
    for (size_t i = 0; i < http->num_doors; i++)
        MHD_stop_daemon(http->doors[i].mhd);
    if (http->socket_path[0] != '\0')
        (void)unlink(http->socket_path);
    if (http->stop_fd >= 0)
        (void)close(http->stop_fd);
    free(http->buffer);
    explicit_bzero(&http->options.token, sizeof(http->options.token));
    free(http);
}

struct http_counters http_counters(const struct http *http)
{
    return (struct http_counters){
        .requests = atomic_load_explicit(&http->requests, memory_order_relaxed),
        .denied = atomic_load_explicit(&http->denied, memory_order_relaxed),
    };
}
