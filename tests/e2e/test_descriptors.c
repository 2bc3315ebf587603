/* tests/e2e/test_descriptors.c - who takes all descriptors of the daemon keeps out nobody but
 * engines that come later, and does not end it. */
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LIMIT = 160, FLOOD = 400 };

static struct daemon daemon_;

static int start(void **state)
{
    struct rlimit limit;

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max; /* for the flood */
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

/* What connects at once; the others' files are -1. */
static void flood(const struct daemon *daemon, const char *file, int type, int *out, size_t count)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/%s", daemon->dir, file);
    for (size_t i = 0; i < count; i++) {
        out[i] = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(out[i] >= 0);
        while (connect(out[i], (struct sockaddr *)&address, sizeof(address)) < 0) {
            assert_int_equal(errno, EAGAIN); /* the backlog is full */
            (void)usleep(1000);
        }
    }
}

static void flood_end(int *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)close(files[i]);
}

static void many_connections_without_a_session_harm_nobody(void **state)
{
    const struct rlimit low = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
    struct daemon *daemon = *state;
    static int files[FLOOD];
    struct refusal refusal;
    uint32_t model;

    struct kvpool *engine = engine_connect(daemon, NULL, 0);
    assert_int_equal(kvpool_register_model(engine, &small_model, &model, NULL), 0);
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &low, NULL), 0);
    flood(daemon, "request.sock", SOCK_STREAM, files, FLOOD);
    (void)usleep(200000);

    assert_true(match_p99_us(engine, model, 100) > 0);       /* who was there goes on */
    assert_int_equal(stat_read(daemon, "pool_sessions"), 1); /* an operator comes in */
    struct hello hello = raw_hello();                        /* a hello is answered */
    hello.flags = 1u << 31;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), &refusal), STATUS_UNSUPPORTED);
    assert_true(process_count(daemon->pid, "fd") < LIMIT);
    unsigned long before = process_ticks(daemon->pid);
    (void)usleep(500000);
    assert_true(process_ticks(daemon->pid) - before <= 10); /* of 50: nothing spins */
    flood_end(files, FLOOD);

    struct kvpool *late = engine_connect(daemon, NULL, 0);
    assert_int_equal(kvpool_register_model(late, &small_model, &model, NULL), 0);
    kvpool_disconnect(late);
    kvpool_disconnect(engine);
}

/* Sessions have descriptors of their own: without any, those who come wait, and nothing spins. */
static void a_daemon_without_descriptors_waits_for_some(void **state)
{
    struct daemon *daemon = *state;
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = LIMIT}; /* it has more already */
    const struct rlimit enough = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
    struct refusal refusal;
    struct hello hello = raw_hello();

    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &none, NULL), 0);
    int fd = raw_connect(daemon);
    unsigned long before = process_ticks(daemon->pid);
    (void)usleep(500000);
    assert_true(process_ticks(daemon->pid) - before <= 10);
    (void)close(fd);
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &enough, NULL), 0);
    hello.flags = 1u << 31;
    assert_int_equal(raw_refusal(daemon, &hello, sizeof(hello), &refusal), STATUS_UNSUPPORTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(many_connections_without_a_session_harm_nobody),
        TEST(a_daemon_without_descriptors_waits_for_some),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
