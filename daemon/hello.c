/* daemon/hello.c - the first message of a connection: a session, an attachment, or a refusal. */
#include "daemon/log.h"
#include "daemon/server.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static void refuse_hello(struct server *server, struct connection *connection,
                         enum wire_status status, const char *text)
{
    struct refusal refusal = {
        .magic = REFUSAL_MAGIC, .major = HELLO_MAJOR, .minor = HELLO_MINOR, .status = status};

    (void)snprintf(refusal.message, sizeof(refusal.message), "%s", text);
    (void)send(connection->source.fd, &refusal, sizeof(refusal), MSG_NOSIGNAL | MSG_DONTWAIT);
    server->sessions.counters.refused++;
    log_event(LOG_NOTICE, "hello_refused", log_number("pid", (uint64_t)connection->pid),
              log_number("uid", connection->uid), log_text("why", text));
    connection_close(server, connection);
}

static int welcome_send(struct server *server, const struct session *session, int fd)
{
    struct welcome welcome = {.magic = WELCOME_MAGIC,
                              .major = HELLO_MAJOR,
                              .minor = HELLO_MINOR,
                              .session_id = session->id,
                              .staging_bytes = session->staging_bytes};
    int fds[] = {session->staging_fd, session->from_client_fd, session->to_client_fd};
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = &welcome, .iov_len = sizeof(welcome)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    memcpy(welcome.boot_id, server->boot_id, sizeof(welcome.boot_id));
    memcpy(welcome.session_token, session->token, sizeof(welcome.session_token));
    (void)snprintf(welcome.endpoint, sizeof(welcome.endpoint), "ipc://%s",
                   server->router.engines.path);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(header), fds, sizeof(fds));
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* A further process of a session: it gets the same welcome, and is waited for at its end. */
static void attach(struct server *server, struct connection *connection, const struct hello *hello)
{
    struct session *session = sessions_find(server, hello->session_id, hello->session_token,
                                            sizeof(hello->session_token));

    if (!session || session->uid != connection->uid) {
        refuse_hello(server, connection, STATUS_NOT_FOUND, "no such session, or another user's");
        return;
    }
    struct share *share = &server->tenants.shares[SHARE_ATTACHED];
    if (!share_has(share, session->tenant, 1)) {
        refuse_hello(server, connection, STATUS_LIMIT,
                     "max_attached processes are attached, or others are promised the rest");
        return;
    }
    share_take(share, session->tenant, 1);
    connection->is_further = true;
    connection->state = CONNECTION_ATTACHED;
    connection->session = sessions_index(server, session);
    server->sessions.num_hello--;
    server->sessions.counters.attached++;
    session->num_attached++;
    if (welcome_send(server, session, connection->source.fd))
        connection_close(server, connection);
}

static void begin(struct server *server, struct connection *connection, const struct hello *hello,
                  const void *token)
{
    pool_payer tenant =
        tenants_authenticate(&server->tenants, connection->uid, token, hello->token_bytes);
    int status;

    if (tenant == POOL_NONE) {
        refuse_hello(server, connection, STATUS_DENIED,
                     "no tenant has this user id or token: see `tenants` in the configuration");
        return;
    }
    struct session *session = session_open(server, connection, hello, tenant, &status);
    if (!session) {
        refuse_hello(server, connection, (enum wire_status)status,
                     status == STATUS_LIMIT ? "no more sessions: max_tenant_sessions, or "
                                              "max_sessions and what others are promised of them"
                                            : "no memory or descriptors for a session");
        return;
    }
    connection->state = CONNECTION_SESSION;
    connection->session = sessions_index(server, session);
    server->sessions.num_hello--;
    log_event(LOG_INFO, "session_open", log_id("session", session->id),
              log_text("tenant", server->tenants.payers[tenant].name),
              log_number("pid", (uint64_t)connection->pid), log_number("flags", hello->flags));
    if (welcome_send(server, session, connection->source.fd))
        connection_close(server, connection);
}

void hello_read(struct server *server, struct connection *connection)
{
    uint8_t packet[HELLO_MAX_BYTES + 1];
    struct hello hello;
    const char *what;
    ssize_t num_bytes = recv(connection->source.fd, packet, sizeof(packet), MSG_DONTWAIT);

    if (num_bytes <= 0) {
        if (num_bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        connection_close(server, connection);
        return;
    }
    int status = hello_check(packet, (size_t)num_bytes, &hello, &what);
    if (status) {
        refuse_hello(server, connection, (enum wire_status)status, what);
        return;
    }
    if (server->is_stopping) {
        refuse_hello(server, connection, STATUS_DRAINING, "the daemon is stopping");
        return;
    }
    if (hello.flags & HELLO_ATTACH)
        attach(server, connection, &hello);
    else
        begin(server, connection, &hello, packet + sizeof(hello));
}
