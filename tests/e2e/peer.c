/* tests/e2e/peer.c - forks, talks in packets, fills and checks blocks. */
#include "tests/e2e/peer.h"

#include "tests/e2e/daemon.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void peer_pair(int out_fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, out_fds), 0);
}

/* The child must not keep the test's own sessions open. */
static void close_others(int one, int other)
{
    for (int fd = 3; fd < 256; fd++) {
        if (fd != one && fd != other)
            (void)close(fd);
    }
}

void peer_start(struct peer *peer, void (*run)(int parent_fd, int other_fd), int other_fd)
{
    int fds[2];

    peer_pair(fds);
    (void)fflush(NULL);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (peer->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
        close_others(fds[1], other_fd);
        run(fds[1], other_fd);
        _exit(0);
    }
    (void)close(fds[1]);
    peer->fd = fds[0];
}

int peer_finish(struct peer *peer, int signal)
{
    int status = 0;

    if (signal)
        assert_int_equal(kill(peer->pid, signal), 0);
    (void)close(peer->fd);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int peer_send(int fd, const void *packet, size_t num_bytes, int with_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = num_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (with_fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &with_fd, sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)num_bytes ? 0 : -1;
}

int peer_receive(int fd, void *packet, size_t num_bytes, int *out_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = packet, .iov_len = num_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != (ssize_t)num_bytes)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (out_fd && header)
        memcpy(out_fd, CMSG_DATA(header), sizeof(int));
    return 0;
}

uint64_t payer_read(const struct daemon *daemon, const char *payer, const char *member)
{
    static char json[1 << 16];
    char name[128];
    struct kvpool *kvpool = operator_connect(daemon);
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = "tenants", .json = json, .json_max = sizeof(json)};

    assert_int_equal(kvpool_call(kvpool, &list, NULL), 0);
    kvpool_disconnect(kvpool);
    (void)snprintf(name, sizeof(name), "{\"name\":\"%s\"", payer);
    const char *at = strstr(json, name);
    assert_non_null(at);
    (void)snprintf(name, sizeof(name), "\"%s\":", member);
    at = strstr(at, name);
    assert_non_null(at);
    return strtoull(at + strlen(name), NULL, 10);
}

void payer_await(const struct daemon *daemon, const char *payer, const char *member, uint64_t value,
                 unsigned ms)
{
    uint64_t end = now_ms() + ms;

    while (payer_read(daemon, payer, member) != value) {
        if (now_ms() > end) {
            print_error("%s of %s is %lu, not %lu\n", member, payer,
                        payer_read(daemon, payer, member), value);
            fail();
        }
        (void)usleep(5000);
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

uint64_t block_tag(uint64_t owner, uint64_t index, uint64_t generation)
{
    return mix(mix(mix(owner + 1) ^ index) ^ generation);
}

/* Every word differs from every other of its block, and from those of other tags. */
void block_fill(void *block, uint64_t num_bytes, uint64_t tag)
{
    uint64_t *words = block;

    for (uint64_t i = 0; i < num_bytes / sizeof(*words); i++)
        words[i] = tag + i * UINT64_C(0x9E3779B97F4A7C15);
}

bool block_is(const void *block, uint64_t num_bytes, uint64_t tag)
{
    const uint64_t *words = block;
    uint64_t differs = 0;

    for (uint64_t i = 0; i < num_bytes / sizeof(*words); i++)
        differs |= words[i] ^ (tag + i * UINT64_C(0x9E3779B97F4A7C15));
    return differs == 0;
}
