/*
 * tests/daemon/test_fault.c - each thing that the daemon observes with, as its Nth call fails.
 *
 * N = 1, 2, 3 ... until it succeeds. After every failure nothing is left (the sanitizers look for
 * memory, the tests for files and descriptors), and the next try can succeed.
 */
#include "daemon/config.h"
#include "daemon/events.h"
#include "daemon/http.h"
#include "daemon/listen.h"
#include "daemon/stats.h"
#include "daemon/token.h"
#include "tests/daemon/fault.h"
#include "tests/daemon/files.h"
#include "tests/daemon/port.h"
#include "tests/daemon/small_pool.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <zmq.h>

/* ---- calls that can be made to fail (the linker's --wrap) -------------------------------------
 */

WRAP(void *, NULL, calloc, (size_t count, size_t size), (count, size))
WRAP(char *, NULL, strdup, (const char *text), (text))
WRAP(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
WRAP(ssize_t, -1, read, (int fd, void *out, size_t size), (fd, out, size))
WRAP(int, -1, fstat64, (int fd, struct stat *out), (fd, out))
WRAP(int, -1, socket, (int family, int type, int protocol), (family, type, protocol))
WRAP(int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, -1, chmod, (const char *path, mode_t mode), (path, mode))
WRAP(int, -1, bind, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))
WRAP(int, -1, listen, (int fd, int backlog), (fd, backlog))
WRAP(int, -1, setsockopt, (int fd, int level, int option, const void *value, socklen_t size),
     (fd, level, option, value, size))
WRAP(int, -1, eventfd, (unsigned value, int flags), (value, flags))
WRAP(int, EAGAIN, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     (out, attributes, run, argument))
WRAP(void *, NULL, zmq_socket, (void *context, int type), (context, type))
WRAP(int, -1, zmq_setsockopt, (void *socket, int option, const void *value, size_t size),
     (socket, option, value, size))
WRAP(int, -1, zmq_bind, (void *socket, const char *endpoint), (socket, endpoint))

/* ---- what is tried ----------------------------------------------------------------------------
 */

static struct directory directory;
static struct small_pool small;
static struct stats *stats;
static void *context;
static uint16_t port;

static int try_config(void)
{
    static struct config_error error;
    struct config *config = NULL;

    int result = config_load(directory_name(&directory, "kvpoold.yaml"), &config, &error);
    assert_true(result == 0 ? error.count == 0 : error.count == 1);
    assert_true((result == 0) == (config != NULL));
    config_destroy(config);
    return result;
}

static int try_token(void)
{
    struct token token;

    return token_read(directory_name(&directory, "token"), &token);
}

static int try_listen(void)
{
    int fd;
    int result = listen_unix(directory_name(&directory, "a.sock"), SOCK_SEQPACKET, 0600, &fd);

    if (result == 0) {
        assert_int_equal(close(fd), 0);
        assert_int_equal(unlink(directory.file), 0);
    }
    return result;
}

static uint64_t no_evictions(const struct pool *pool, pool_payer causer, pool_payer sufferer)
{
    (void)pool;
    return causer + sufferer;
}

static int try_stats(void)
{
    const struct stats_options options = {
        .pool = small.pool, .max_payers = 4, .num_labels = 2, .evictions = no_evictions};
    struct stats *made = NULL;

    int result = stats_create(&options, &made);
    assert_true((result == 0) == (made != NULL));
    stats_destroy(made);
    return result;
}

static int try_http(void)
{
    const struct http_options options = {
        .stats = stats,
        .socket_path = directory_name(&directory, "http.sock"),
        .socket_mode = 0600,
        .loopback_port = port,
        .token = {.num_bytes = 16, .bytes = "0123456789abcdef"},
        .max_connections = 2,
        .healthy_ms = 1000,
    };
    struct http *http = NULL;

    int result = http_start(&options, &http);
    assert_true((result == 0) == (http != NULL));
    http_stop(http);
    return result;
}

static int try_events(void)
{
    const struct events_options options = {.zmq_context = context,
                                           .socket_path = directory_name(&directory, "stats.sock"),
                                           .socket_mode = 0600,
                                           .queue = 10,
                                           .boot_id = "b",
                                           .text_bytes = 4096};
    struct events *events = NULL;

    int result = events_create(&options, &events);
    assert_true((result == 0) == (events != NULL));
    events_destroy(events);
    return result;
}

/* ZeroMQ closes in a thread of its own. */
static size_t count_descriptors_at_rest(size_t expected)
{
    for (int i = 0; i < 300 && count_descriptors() != expected; i++)
        usleep(10000);
    return count_descriptors();
}

/* Fails call after call; @least: how many there must be, so that none is forgotten. */
static void fail_each_call(int (*try)(void), int error, int least)
{
    int number = 0, result;
    size_t num_files = count_entries(directory.path);

    calls_left = 0;
    assert_int_equal(try(), 0); /* also: what starts on first use has started */
    usleep(100000);
    size_t num_descriptors = count_descriptors();
    do {
        failed_errno = error;
        calls_left = ++number;
        result = try();
        if (calls_left > 0)
            break;
        if (result >= 0)
            fail_msg("call %d failed, and the answer is %d", number, result);
        assert_int_equal(count_entries(directory.path), num_files);
    } while (number < 1000);
    calls_left = 0;
    assert_int_equal(result, 0);
    assert_true(number > least);
    assert_int_equal(count_descriptors_at_rest(num_descriptors), num_descriptors);
}

static int setup(void **state)
{
    const struct stats_options options = {.max_payers = 4, .num_labels = 2};
    struct stats_options with_pool = options;

    (void)state;
    directory_make(&directory);
    (void)directory_write(&directory, "kvpoold.yaml",
                          "state-directory: /x\ntenants: [{name: a, uids: [1], token-file: /t}]\n"
                          "domains: [{name: d, readers: [a], fillers: [a]}]\n");
    (void)directory_write(&directory, "token", "0123456789abcdef\n");
    small_pool_init(&small);
    with_pool.pool = small.pool;
    assert_int_equal(stats_create(&with_pool, &stats), 0);
    context = zmq_ctx_new();
    port = free_port();
    return 0;
}

static int teardown(void **state)
{
    static const char *const files[] = {"kvpoold.yaml", "token", NULL};

    (void)state;
    assert_int_equal(zmq_ctx_term(context), 0);
    stats_destroy(stats);
    pool_destroy(small.pool);
    directory_remove(&directory, files);
    return 0;
}

static void a_configuration_is_read_or_not(void **state)
{
    (void)state;
    fail_each_call(try_config, ENOMEM, 15);
}

static void a_token_is_read_or_not(void **state)
{
    (void)state;
    fail_each_call(try_token, EIO, 2);
}

static void a_socket_listens_or_is_not_there(void **state)
{
    (void)state;
    fail_each_call(try_listen, EACCES, 5);
}

static void stats_are_there_or_not(void **state)
{
    (void)state;
    fail_each_call(try_stats, ENOMEM, 10);
}

static void http_starts_or_leaves_nothing(void **state)
{
    (void)state;
    fail_each_call(try_http, EMFILE, 10);
}

static void events_start_or_leave_nothing(void **state)
{
    (void)state;
    fail_each_call(try_events, EMFILE, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_is_read_or_not),
        cmocka_unit_test(a_token_is_read_or_not),
        cmocka_unit_test(a_socket_listens_or_is_not_there),
        cmocka_unit_test(stats_are_there_or_not),
        cmocka_unit_test(http_starts_or_leaves_nothing),
        cmocka_unit_test(events_start_or_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
