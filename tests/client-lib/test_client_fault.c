/* tests/client-lib/test_client_fault.c - the Nth allocation or system call of the client fails, N =
 * 1, 2 ... */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "client-lib/kvpool.h"
#include "tests/client-lib/fake_daemon.h"
#include "tests/support/test.h"

/* Of this thread, so that the fake daemon is spared. */
static _Thread_local int calls_left = -1;

static bool fails(void)
{
    if (calls_left < 0)
        return false;
    return calls_left-- == 0;
}

/* clang-format off */
#define WRAP(type, name, failure, error, parameters, arguments) \
    type __real_##name parameters;                              \
    type __wrap_##name parameters;                              \
    type __wrap_##name parameters                               \
    {                                                           \
        if (fails()) {                                          \
            errno = error;                                      \
            return failure;                                     \
        }                                                       \
        return __real_##name arguments;                         \
    }

WRAP(void *, calloc, NULL, ENOMEM, (size_t n, size_t size), (n, size))
WRAP(void *, malloc, NULL, ENOMEM, (size_t size), (size))
WRAP(void *, aligned_alloc, NULL, ENOMEM, (size_t alignment, size_t size), (alignment, size))
WRAP(void *, mmap, MAP_FAILED, ENOMEM, (void *at, size_t n, int p, int f, int fd, off_t o), (at, n, p, f, fd, o))
WRAP(int, socket, -1, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(ssize_t, send, -1, EACCES, (int fd, const void *b, size_t n, int f), (fd, b, n, f))
WRAP(ssize_t, recvmsg, -1, EIO, (int fd, struct msghdr *m, int f), (fd, m, f))
WRAP(void *, zmq_ctx_new, NULL, EMFILE, (void), ())
WRAP(void *, zmq_socket, NULL, EMFILE, (void *context, int type), (context, type))
WRAP(int, zmq_setsockopt, -1, EINVAL, (void *s, int o, const void *v, size_t n), (s, o, v, n))
WRAP(int, zmq_connect, -1, EINVAL, (void *s, const char *e), (s, e))
WRAP(int, zmq_send, -1, EAGAIN, (void *s, const void *b, size_t n, int f), (s, b, n, f))
WRAP(int, zmq_msg_init_size, -1, ENOMEM, (zmq_msg_t *m, size_t n), (m, n))
WRAP(int, zmq_msg_recv, -1, EFAULT, (zmq_msg_t *m, void *s, int f), (m, s, f))
/* clang-format on */

static char dir[] = "/tmp/kvpool-fault-XXXXXX";
static const uint16_t layers[] = {0};
static const struct kvpool_layer_group groups[] = {{0, layers, 1}};
static const struct kvpool_model model = {.name = "m",
                                          .weights_revision = "1",
                                          .num_layers = 1,
                                          .groups = groups,
                                          .num_groups = 1,
                                          .dtype = KVPOOL_F32};

/* A whole small life; the first thing that fails ends it. */
static int live(const struct kvpool_options *options)
{
    unsigned char data[1024];
    struct kvpool_blocks blocks = {.num_blocks = 1, .data = data, .data_bytes = sizeof(data)};
    struct kvpool_arena arena = {0};
    struct kvpool *kvpool = NULL;
    uint32_t handle;

    int status = kvpool_connect(options, &kvpool);
    if (status) {
        assert_null(kvpool);
        return status;
    }
    status = kvpool_register_model(kvpool, &model, &handle, NULL);
    if (!status)
        status = kvpool_open_arena(kvpool, handle, 0, NULL, &arena);
    if (!status)
        status = kvpool_write(kvpool, &blocks);
    if (!status)
        status = kvpool_read(kvpool, &blocks);
    if (!status)
        status = kvpool_end_step(kvpool, 1, false);
    assert_int_equal(kvpool_num_outstanding(kvpool), 0);
    kvpool_close_arena(&arena);
    kvpool_disconnect(kvpool);
    return status;
}

/* A further process: one socket, one hello, and what the welcome brought is let go of. */
static int live_attached(const struct kvpool_options *options)
{
    static const unsigned char token[KVPOOL_SESSION_TOKEN_BYTES];
    int fd = -1;
    int status = kvpool_attach(options, 1, token, &fd);

    assert_true((status == 0) == (fd >= 0));
    if (fd >= 0)
        close(fd);
    return status;
}

static void an_attach_that_fails_leaves_nothing(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_daemon_start(&(struct fake_options){.dir = dir});
    const struct kvpool_options options = {
        .struct_bytes = sizeof(options), .dir = dir, .connect_ms = 1, .deadline_ms = 2000};
    int status = 1, n = 0, first_fd = dup(0);

    for (; status && n < 100; n++) {
        calls_left = n;
        status = live_attached(&options);
        calls_left = -1;
    }
    assert_int_equal(status, 0);
    assert_true(n > 5);
    int last_fd = dup(0);
    assert_true(last_fd <= first_fd + 8);
    close(last_fd);
    close(first_fd);
    fake_daemon_stop(fake);
}

static void whatever_fails_is_said_and_nothing_stays(void **state)
{
    (void)state;
    struct fake_daemon *fake = fake_daemon_start(&(struct fake_options){.dir = dir});
    const struct kvpool_options options = {
        .struct_bytes = sizeof(options), .dir = dir, .connect_ms = 1, .deadline_ms = 2000};
    int status = 1, n = 0, first_fd = dup(0);

    for (; status && n < 200; n++) {
        calls_left = n;
        status = live(&options);
        calls_left = -1;
    }
    assert_int_equal(status, 0);
    assert_true(n > 25);
    int last_fd = dup(0);                 /* no descriptor was lost on the way */
    assert_true(last_fd <= first_fd + 8); /* the daemon may still hold its side of the last ones */
    close(last_fd);
    close(first_fd);
    fake_daemon_stop(fake);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_fails_is_said_and_nothing_stays),
        cmocka_unit_test(an_attach_that_fails_leaves_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(dir);
    return failed;
}
