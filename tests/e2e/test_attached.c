/* tests/e2e/test_attached.c - further processes of a session: how many there may be. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"

#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct daemon daemon_;

struct handover {
    uint64_t session;
    uint8_t token[KVPOOL_SESSION_TOKEN_BYTES];
};

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

/* A connection that says nothing. */
static int session_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/session.sock", daemon_.dir);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Attaches as it is told, says how that went, and stays until it is asked to end. */
static void run_attached(int parent_fd, int other_fd)
{
    struct handover handover;
    char dir[128], byte;
    const struct kvpool_options options = {.struct_bytes = sizeof(options), .dir = dir};
    int session_fd = -1;

    (void)other_fd;
    (void)snprintf(dir, sizeof(dir), "%s/run", daemon_.dir);
    assert_int_equal(peer_receive(parent_fd, &handover, sizeof(handover), NULL), 0);
    int answer = kvpool_attach(&options, handover.session, handover.token, &session_fd);
    assert_int_equal(peer_send(parent_fd, &answer, sizeof(answer), -1), 0);
    (void)read(parent_fd, &byte, 1);
}

static int attach(struct peer *peer, const struct handover *handover)
{
    int answer = -1;

    peer_start(peer, run_attached, -1);
    assert_int_equal(peer_send(peer->fd, handover, sizeof(*handover), -1), 0);
    assert_int_equal(peer_receive(peer->fd, &answer, sizeof(answer), NULL), 0);
    return answer;
}

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\nmax-attached: 2\n");
    *state = &daemon_;
    return 0;
}

/* Silent connections, and the sessions' own, are not among them. */
static void only_so_many_processes_attach(void **state)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, KVPOOL_MAPPED);
    struct handover handover = {0};
    struct peer peers[4];
    int silent[8];

    (void)state;
    handover.session = kvpool_session(kvpool);
    memcpy(handover.token, kvpool_session_token(kvpool), sizeof(handover.token));
    for (size_t at = 0; at < ARRAY_SIZE(silent); at++)
        silent[at] = session_connect();
    assert_int_equal(attach(&peers[0], &handover), 0);
    assert_int_equal(attach(&peers[1], &handover), 0);
    assert_int_equal(attach(&peers[2], &handover), KVPOOL_LIMIT);
    assert_int_equal(peer_finish(&peers[0], 0), 0); /* its process is gone: there is a place */
    uint64_t end = now_ms() + 5000;
    int answer;
    while ((answer = attach(&peers[3], &handover)) == KVPOOL_LIMIT && now_ms() < end)
        (void)peer_finish(&peers[3], 0);
    assert_int_equal(answer, 0);
    for (size_t at = 1; at < ARRAY_SIZE(peers); at++)
        (void)peer_finish(&peers[at], 0);
    for (size_t at = 0; at < ARRAY_SIZE(silent); at++)
        (void)close(silent[at]);
    kvpool_disconnect(kvpool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_so_many_processes_attach, start, finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
