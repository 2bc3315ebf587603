/* client-lib/session.c - the session socket: hello, welcome, descriptors, and when it is closed. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client-lib/client.h"

enum { WELCOME_FDS = 3, MAX_FDS = 4 /* as many as fit the space of 3 */ };
enum { /* of the options' flags, those that the daemon is told */
       SESSION_FLAGS = HELLO_MAPPED | HELLO_MANUAL_PUBLISH | HELLO_STORE_NONE | HELLO_STORE_PROMPT |
                       HELLO_STORE_ALL
};

/* One packet of the daemon, with its descriptors. */
struct received {
    unsigned char bytes[HELLO_MAX_BYTES];
    ssize_t num_bytes;
    int fds[MAX_FDS];
    int num_fds;
};

static void received_close(struct received *received)
{
    for (int i = 0; i < received->num_fds; i++)
        close(received->fds[i]);
    received->num_fds = 0;
}

/* 0, -EAGAIN, or another errno; num_bytes is 0 where the daemon closed. */
static int packet_receive(int fd, struct received *out)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    } control;
    struct iovec part = {out->bytes, sizeof(out->bytes)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};

    out->num_fds = 0;
    do
        out->num_bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (out->num_bytes < 0 && errno == EINTR);
    if (out->num_bytes < 0)
        return -errno;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        int num = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < num && out->num_fds < MAX_FDS; i++, out->num_fds++)
            memcpy(&out->fds[out->num_fds], CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(int));
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        received_close(out);
        return -EPROTO;
    }
    return 0;
}

static int hello_send(struct kvpool *client)
{
    unsigned char packet[sizeof(struct hello) + HELLO_MAX_TOKEN];
    size_t token_bytes = client->token ? strlen(client->token) : 0;
    struct hello hello = {.magic = HELLO_MAGIC,
                          .major = HELLO_MAJOR,
                          .minor = HELLO_MINOR,
                          .flags = client->options.flags & SESSION_FLAGS,
                          .token_bytes = (uint32_t)token_bytes,
                          .staging_bytes = client->options.staging_bytes};

    if (client->attach_session) {
        hello.flags = HELLO_ATTACH;
        hello.session_id = client->attach_session;
        memcpy(hello.session_token, client->attach_token, sizeof(hello.session_token));
    }
    memcpy(packet, &hello, sizeof(hello));
    if (token_bytes > 0)
        memcpy(packet + sizeof(hello), client->token, token_bytes);
    size_t num_bytes = sizeof(hello) + token_bytes;
    return send(client->session_fd, packet, num_bytes, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int staging_map(struct kvpool *client, int fd)
{
    uint64_t num_bytes = client->welcome.staging_bytes;

    if (num_bytes < RING_HEADER_BYTES)
        return -EPROTO;
    void *memory = mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    client->staging = memory;
    client->staging_bytes = num_bytes;
    client->staging_used = 0;
    if (ring_header_check(memory, num_bytes))
        return -EPROTO;
    client->data = (unsigned char *)memory + client->staging->data_offset;
    client->data_bytes = client->staging->data_bytes;
    client->has_corner = client->data_bytes >= 4 * CLIENT_CORNER_BYTES;
    if (client->has_corner)
        client->data_bytes = (client->data_bytes - CLIENT_CORNER_BYTES) & ~UINT64_C(63);
    ring_begin(client);
    return 0;
}

static int welcome_take(struct kvpool *client, const struct welcome *welcome,
                        struct received *received)
{
    if (received->num_fds != WELCOME_FDS)
        return -EPROTO;

    client->welcome = *welcome;
    client->daemon_eventfd = received->fds[1];
    client->client_eventfd = received->fds[2];
    received->num_fds = 1; /* the others are the client's now */
    return staging_map(client, received->fds[0]);
}

/* Waits for the answer to the hello: 0, a positive status, or an errno. */
static int answer_wait(struct kvpool *client, int64_t until_ms)
{
    struct received received;
    union hello_answer answer;
    const char *what = NULL;

    int err;
    do {
        int64_t left_ms = until_ms - client_now_ms();
        struct pollfd poller = {.fd = client->session_fd, .events = POLLIN};
        if (left_ms <= 0 || poll(&poller, 1, (int)left_ms) == 0)
            return -ETIMEDOUT;
        err = packet_receive(client->session_fd, &received);
    } while (err == -EAGAIN);
    if (err)
        return err;
    if (received.num_bytes == 0)
        return -ECONNRESET;

    int status = hello_check_answer(received.bytes, (size_t)received.num_bytes, &answer, &what);
    if (status) {
        client_say(client->message, what);
        err = status == STATUS_UNSUPPORTED ? (int)STATUS_UNSUPPORTED : -EPROTO;
    } else if (answer.magic == REFUSAL_MAGIC) {
        client_say(client->message, answer.refusal.message);
        err = answer.refusal.status != STATUS_OK && answer.refusal.status < NUM_STATUSES
                  ? (int)answer.refusal.status
                  : -EPROTO;
    } else if (answer.magic == WELCOME_MAGIC) {
        err = welcome_take(client, &answer.welcome, &received);
    } else {
        err = -EPROTO;
    }
    received_close(&received);
    return err;
}

int session_open(struct kvpool *client, int64_t until_ms)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int num = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", client->dir,
                       HELLO_SESSION_SOCKET);
    if (num < 0 || (size_t)num >= sizeof(address.sun_path))
        return -ENAMETOOLONG;

    client->session_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (client->session_fd < 0)
        return -errno;
    if (connect(client->session_fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    int err = hello_send(client);
    return err ? err : answer_wait(client, until_ms);
}

/* Takes a half-opened session, and one that is closed. */
void session_close(struct kvpool *client)
{
    int *fds[] = {&client->session_fd, &client->daemon_eventfd, &client->client_eventfd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    for (size_t i = 0; i < CLIENT_MAX_ARENA_PACKETS; i++) {
        if (client->arenas[i].fd >= 0)
            close(client->arenas[i].fd);
        client->arenas[i].fd = -1;
    }
    if (client->staging)
        munmap(client->staging, client->staging_bytes);
    client->staging = NULL;
    client->data = NULL;
    client->data_bytes = 0;
    client->has_corner = false;
    client->corner_id = 0;
}

/* Keeps an arena's packet until it is asked for; what nobody asks for is closed. */
static void arena_keep(struct kvpool *client, const struct arena_packet *packet,
                       struct received *received)
{
    for (size_t i = 0; i < CLIENT_MAX_ARENA_PACKETS && received->num_fds == 1; i++) {
        if (client->arenas[i].fd >= 0)
            continue;
        client->arenas[i] = (struct client_arena_packet){*packet, received->fds[0]};
        received->num_fds = 0;
    }
}

int session_read(struct kvpool *client)
{
    for (;;) {
        struct received received;
        union hello_answer answer;
        const char *what;

        int err = packet_receive(client->session_fd, &received);
        if (err == -EAGAIN)
            return 0;
        if (err || received.num_bytes == 0)
            return KVPOOL_DISCONNECTED;
        if (hello_check_answer(received.bytes, (size_t)received.num_bytes, &answer, &what) == 0 &&
            answer.magic == ARENA_MAGIC)
            arena_keep(client, &answer.arena, &received);
        received_close(&received);
    }
}
