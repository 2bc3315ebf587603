/* tests/daemon/test_http.c - what daemon/http.h promises, asked through real sockets. */
#include "daemon/http.h"
#include "daemon/stats.h"
#include "tests/daemon/files.h"
#include "tests/daemon/openmetrics.h"
#include "tests/daemon/small_pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static const char *const no_files[] = {NULL};
static const struct token token = {.num_bytes = 16, .bytes = "0123456789abcdef"};

struct fixture {
    struct directory directory;
    struct small_pool small;
    struct stats *stats;
    struct http *http;
    uint16_t port;
    char answer[1 << 17];
};

static uint64_t clock_ms(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A port that nobody had a moment ago. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(close(fd), 0);
    return ntohs(address.sin_port);
}

static struct http_options options_of(struct fixture *fixture)
{
    return (struct http_options){.stats = fixture->stats,
                                 .socket_path = directory_name(&fixture->directory, "http.sock"),
                                 .socket_mode = 0600,
                                 .max_connections = 4,
                                 .healthy_ms = 3000};
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    directory_make(&fixture->directory);
    small_pool_init(&fixture->small);
    const struct stats_options options = {
        .pool = fixture->small.pool, .max_payers = 4, .num_labels = 4, .boot_id = "b"};
    assert_int_equal(stats_create(&options, &fixture->stats), 0);
    assert_int_equal(
        stats_add_payer(fixture->stats, small_pool_tenant(&fixture->small), "chat", false), 0);
    fixture->port = free_port();
    struct http_options http = options_of(fixture);
    http.loopback_port = fixture->port;
    http.token = token;
    assert_int_equal(http_start(&http, &fixture->http), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    http_stop(fixture->http);
    stats_destroy(fixture->stats);
    pool_destroy(fixture->small.pool);
    directory_remove(&fixture->directory, no_files); /* the socket is gone too */
    free(fixture);
    return 0;
}

static int connect_unix(struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/http.sock",
                   fixture->directory.path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int connect_port(struct fixture *fixture)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(fixture->port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Sends @request, reads to the end of the connection, answers the status. */
static int ask_on(struct fixture *fixture, int fd, const char *request)
{
    size_t length = 0;
    ssize_t count;
    int status = 0;

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    while ((count = recv(fd, fixture->answer + length, sizeof(fixture->answer) - 1 - length, 0)) >
           0)
        length += (size_t)count;
    fixture->answer[length] = '\0';
    assert_int_equal(close(fd), 0);
    if (sscanf(fixture->answer, "HTTP/1.1 %d", &status) != 1)
        return -1;
    return status;
}

static int get(struct fixture *fixture, const char *path, const char *headers)
{
    char request[512];

    (void)snprintf(request, sizeof(request),
                   "GET %s HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\n\r\n", path, headers);
    return ask_on(fixture, connect_unix(fixture), request);
}

static const char *body(const struct fixture *fixture)
{
    const char *at = strstr(fixture->answer, "\r\n\r\n");

    assert_non_null(at);
    return at + 4;
}

static void take(struct fixture *fixture, enum stats_state now)
{
    stats_set_state(fixture->stats, now);
    stats_take(fixture->stats, clock_ms());
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void metrics_come_in_the_format_that_was_asked_for(void **state)
{
    struct fixture *fixture = *state;
    char why[256];

    take(fixture, STATS_READY);
    assert_int_equal(get(fixture, "/metrics", ""), 200);
    assert_non_null(strstr(fixture->answer, "Content-Type: text/plain; version=0.0.4"));
    assert_true(metrics_check(body(fixture), false, why, sizeof(why)));
    assert_int_equal(get(fixture, "/metrics?x=y",
                         "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"),
                     200);
    assert_non_null(strstr(fixture->answer, "Content-Type: application/openmetrics-text; v"));
    assert_true(metrics_check(body(fixture), true, why, sizeof(why)));
    assert_true(metrics_find(body(fixture), "kvpoold_payer_held{payer=\"chat\",kind=\"tenant\"}") ==
                0);
}

static void stats_json_is_json(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, STATS_READY);
    assert_int_equal(get(fixture, "/stats.json", ""), 200);
    json_t *json = json_loads(body(fixture), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    json_decref(json);
}

static void health_is_the_owners(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(get(fixture, "/healthz", ""), 503);
    assert_int_equal(get(fixture, "/metrics", ""), 503);
    take(fixture, STATS_STARTING);
    assert_int_equal(get(fixture, "/healthz", ""), 200);
    assert_string_equal(body(fixture), "ok\n");
    stats_take(fixture->stats, clock_ms() - 10000);
    assert_int_equal(get(fixture, "/healthz", ""), 503);
    assert_memory_equal(body(fixture), "stuck: ", 7);
}

static void readiness_is_the_state(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, STATS_STARTING);
    assert_int_equal(get(fixture, "/readyz", ""), 503);
    take(fixture, STATS_READY);
    assert_int_equal(get(fixture, "/readyz", ""), 200);
    assert_string_equal(body(fixture), "ready\n");
    take(fixture, STATS_DRAINING);
    assert_int_equal(get(fixture, "/readyz", ""), 503);
    assert_string_equal(body(fixture), "draining\n");
}

static void other_pages_and_methods_are_refused(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, STATS_READY);
    assert_int_equal(get(fixture, "/", ""), 404);
    assert_int_equal(get(fixture, "/metrics/", ""), 404);
    assert_int_equal(ask_on(fixture, connect_unix(fixture),
                            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                            "Connection: close\r\n\r\nabcd"),
                     405);
    assert_non_null(strstr(fixture->answer, "Allow: GET, HEAD"));
    assert_int_equal(ask_on(fixture, connect_unix(fixture),
                            "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                     200);
    assert_string_equal(body(fixture), "");
}

static void what_is_no_http_ends_the_connection_only(void **state)
{
    struct fixture *fixture = *state;
    static char large[1 << 16];

    take(fixture, STATS_READY);
    (void)ask_on(fixture, connect_unix(fixture), "\x16\x03\x01 no http \r\n\r\n");
    memset(large, 'a', sizeof(large) - 1);
    memcpy(large, "GET /", 5);
    int fd = connect_unix(fixture);
    (void)send(fd, large, sizeof(large), MSG_NOSIGNAL);
    assert_int_equal(close(fd), 0);
    assert_int_equal(get(fixture, "/healthz", ""), 200);
}

static int get_port(struct fixture *fixture, const char *authorization)
{
    char request[256];

    (void)snprintf(request, sizeof(request),
                   "GET /healthz HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\n\r\n",
                   authorization);
    return ask_on(fixture, connect_port(fixture), request);
}

static void the_port_wants_its_token(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, STATS_READY);
    assert_int_equal(get_port(fixture, ""), 401);
    assert_non_null(strstr(fixture->answer, "WWW-Authenticate: Bearer"));
    assert_int_equal(get_port(fixture, "Authorization: Bearer 0123456789abcdeF\r\n"), 401);
    assert_int_equal(get_port(fixture, "Authorization: Bearer 0123456789abcde\r\n"), 401);
    assert_int_equal(get_port(fixture, "Authorization: Bearer\r\n"), 401);
    assert_int_equal(get_port(fixture, "Authorization: Basic 0123456789abcdef\r\n"), 401);
    assert_int_equal(get_port(fixture, "Authorization: Bearer 0123456789abcdef\r\n"), 200);
    struct http_counters counters = http_counters(fixture->http);
    assert_int_equal(counters.denied, 5);
    assert_int_equal(counters.requests, 1);
}

static void the_port_is_not_open_to_other_machines(void **state)
{
    struct fixture *fixture = *state;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(fixture->port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK + 1)}};

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), -1);
    assert_int_equal(close(fd), 0);
}

static void the_sockets_mode_is_the_permission(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;

    assert_int_equal(stat(directory_name(&fixture->directory, "http.sock"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

static void silent_connections_are_capped_and_the_daemon_stops(void **state)
{
    struct fixture *fixture = *state;
    int fds[8];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = connect_unix(fixture); /* the cap is 4: the others wait in the backlog */
    http_stop(fixture->http);
    fixture->http = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        assert_int_equal(close(fds[i]), 0);
}

static _Atomic bool is_done;

static void *take_often(void *argument)
{
    while (!atomic_load(&is_done))
        stats_take(argument, clock_ms());
    return NULL;
}

static void scrapes_and_the_owner_do_not_meet(void **state)
{
    struct fixture *fixture = *state;
    pthread_t owner;
    char why[256];

    take(fixture, STATS_READY);
    atomic_store(&is_done, false);
    assert_int_equal(pthread_create(&owner, NULL, take_often, fixture->stats), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(get(fixture, "/metrics", ""), 200);
        assert_true(metrics_check(body(fixture), false, why, sizeof(why)));
    }
    atomic_store(&is_done, true);
    assert_int_equal(pthread_join(owner, NULL), 0);
}

static void what_cannot_be_started_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct http *http = NULL;
    struct http_options options = options_of(fixture);

    options.loopback_port = fixture->port;
    assert_int_equal(http_start(&options, &http), -EINVAL); /* no token */
    options.token = token;
    options.socket_path = directory_name(&fixture->directory, "second.sock");
    assert_int_equal(http_start(&options, &http), -EADDRINUSE);
    options.socket_path = "/nowhere/at/all";
    assert_int_equal(http_start(&options, &http), -ENOENT);
    assert_null(http);
    http_stop(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(metrics_come_in_the_format_that_was_asked_for),
        TEST(stats_json_is_json),
        TEST(health_is_the_owners),
        TEST(readiness_is_the_state),
        TEST(other_pages_and_methods_are_refused),
        TEST(what_is_no_http_ends_the_connection_only),
        TEST(the_port_wants_its_token),
        TEST(the_port_is_not_open_to_other_machines),
        TEST(the_sockets_mode_is_the_permission),
        TEST(silent_connections_are_capped_and_the_daemon_stops),
        TEST(scrapes_and_the_owner_do_not_meet),
        TEST(what_cannot_be_started_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
