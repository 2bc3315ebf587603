/* tests/daemon/test_descriptors.c - what a guarded listener does when descriptors run out. */
#include "daemon/descriptors.h"

#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LIMIT = 64, CLIENTS = 8 };

static struct rlimit before;
static int listener, clients[CLIENTS];

/* A listener for which as many wait as it has clients; and no more than LIMIT descriptors. */
static int start(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* abstract, of a name that it is given */
    socklen_t size = sizeof(address);

    (void)state;
    (void)getrlimit(RLIMIT_NOFILE, &before);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
    assert_int_equal(listen(listener, CLIENTS), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(clients[i], (struct sockaddr *)&address, size), 0);
    }
    const struct rlimit low = {.rlim_cur = LIMIT, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    descriptors_release(listener);
    (void)close(listener);
    for (int i = 0; i < CLIENTS; i++)
        (void)close(clients[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    return 0;
}

/* Takes descriptors until @first is the lowest free one. */
static void take_below(int first)
{
    int fd;

    while ((fd = fcntl(listener, F_DUPFD, 0)) >= 0 && fd < first)
        ;
    if (fd >= 0)
        (void)close(fd);
}

static void give_from(int first)
{
    for (int fd = first; fd < LIMIT; fd++)
        (void)close(fd);
}

/* Of 64: engines get those below 48 (three quarters), operators those below 56 (seven eighths). */
static void a_connection_over_the_ceiling_is_closed(void **state)
{
    static const struct {
        enum descriptors_of of;
        int last, refused;
    } rows[] = {{DESCRIPTORS_ENGINES, 47, 48}, {DESCRIPTORS_OPERATORS, 55, 56}};
    int first = fcntl(listener, F_DUPFD, 0);

    (void)state;
    (void)close(first);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(descriptors_guard(listener, rows[i].of), 0);
        take_below(rows[i].last);
        assert_int_equal(accept4(listener, NULL, NULL, 0), rows[i].last);
        errno = 0;
        assert_int_equal(accept4(listener, NULL, NULL, 0), -1);
        assert_int_equal(errno, ECONNABORTED);
        assert_int_equal(fcntl(rows[i].refused, F_GETFD), -1); /* nothing is left open */
        descriptors_release(listener);
        give_from(first);
    }
}

/* libzmq ends the process for EMFILE. */
static void no_descriptor_at_all_is_a_connection_that_went_away(void **state)
{
    int first = fcntl(listener, F_DUPFD, 0);

    (void)state;
    (void)close(first);
    take_below(LIMIT);
    assert_int_equal(accept4(listener, NULL, NULL, 0), -1);
    assert_int_equal(errno, EMFILE); /* nobody guards it */
    assert_int_equal(descriptors_guard(listener, DESCRIPTORS_OPERATORS), 0);
    assert_int_equal(accept4(listener, NULL, NULL, 0), -1);
    assert_int_equal(errno, ECONNABORTED);
    give_from(first);
}

static void with_room_nothing_is_different(void **state)
{
    int fd;

    (void)state;
    assert_int_equal(descriptors_guard(listener, DESCRIPTORS_ENGINES), 0);
    for (int i = 0; i < CLIENTS; i++) {
        fd = i % 2 ? accept(listener, NULL, NULL) : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        (void)close(fd);
    }
    assert_int_equal(accept4(listener, NULL, NULL, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

static void engines_get_no_more_than_are_of_use(void **state)
{
    const struct descriptors_need need = {.own = 3, .peers = 2};
    struct rlimit now;
    int first = fcntl(listener, F_DUPFD, 0);

    (void)state;
    (void)close(first);
    assert_int_equal(descriptors_prepare(&need), before.rlim_max); /* as far as it goes */
    (void)getrlimit(RLIMIT_NOFILE, &now);
    assert_int_equal(now.rlim_cur, before.rlim_max);
    assert_int_equal(descriptors_guard(listener, DESCRIPTORS_ENGINES), 0);
    assert_int_equal(accept4(listener, NULL, NULL, 0), -1); /* the first free one is above 5 */
    assert_int_equal(errno, ECONNABORTED);
    descriptors_release(listener);
    assert_int_equal(descriptors_guard(listener, DESCRIPTORS_OPERATORS), 0);
    int fd = accept4(listener, NULL, NULL, 0);
    assert_int_equal(fd, first);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_over_the_ceiling_is_closed, start, finish),
        cmocka_unit_test_setup_teardown(no_descriptor_at_all_is_a_connection_that_went_away, start,
                                        finish),
        cmocka_unit_test_setup_teardown(with_room_nothing_is_different, start, finish),
        cmocka_unit_test_setup_teardown(engines_get_no_more_than_are_of_use, start, finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
