/* daemon/session.c - sessions begin with a welcome, and end at whatever point their engine died. */
#include "daemon/session.h"

#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ACCEPT_BATCH = 16,
    PEER_PIDFD = 77 /* SO_PEERPIDFD, of Linux 6.5: newer than our headers */
};

static void connection_free(struct server *server, struct connection *connection);

/* ---- by id ---------------------------------------------------------------------------------- */

uint32_t sessions_index(const struct server *server, const struct session *session)
{
    return session ? (uint32_t)(session - server->sessions.sessions) : NO_INDEX;
}

struct session *sessions_by_id(struct server *server, uint64_t id)
{
    struct sessions *sessions = &server->sessions;

    for (uint32_t at = 0; id != 0 && at < sessions->max; at++) {
        if (sessions->ids[at] == id)
            return &sessions->sessions[at];
    }
    return NULL;
}

/* Takes as long for any token: what is guessed right cannot be timed. */
static bool token_is(const uint8_t *token, const void *bytes)
{
    const uint8_t *other = bytes;
    uint8_t differs = 0;

    for (size_t i = 0; i < HELLO_ID_BYTES; i++)
        differs |= token[i] ^ other[i];
    return differs == 0;
}

struct session *sessions_find(struct server *server, uint64_t id, const void *token,
                              size_t token_bytes)
{
    struct session *session = sessions_by_id(server, id);

    if (!session || token_bytes != HELLO_ID_BYTES || !token_is(session->token, token))
        return NULL;
    return session;
}

/* ---- staging -------------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* Sealed in size, so that nobody can pull it away from under us. */
static int staging_make(struct session *session, uint64_t data_bytes)
{
    uint64_t bytes = RING_DATA_OFFSET + data_bytes;

    session->staging_fd = memfd_create("kvpool-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    session->from_client_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->to_client_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->staging_fd < 0 || session->from_client_fd < 0 || session->to_client_fd < 0)
        return -errno;
    if (ftruncate(session->staging_fd, (off_t)bytes) < 0 ||
        fcntl(session->staging_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->staging_fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    session->staging = memory;
    session->staging_bytes = bytes;
    ring_header_init(memory, data_bytes);
    session->ring =
        (struct ring_state){.header = memory,
                            .submissions = (void *)((char *)memory + RING_SUBMISSIONS_OFFSET),
                            .completions = (void *)((char *)memory + RING_COMPLETIONS_OFFSET),
                            .data = (uint8_t *)memory + RING_DATA_OFFSET,
                            .data_bytes = data_bytes};
    return 0;
}

static void staging_drop(struct server *server, struct session *session)
{
    source_remove(server, &session->ring_source);
    if (session->staging)
        (void)munmap(session->staging, session->staging_bytes);
    session->staging = NULL;
    close_fd(&session->staging_fd);
    close_fd(&session->from_client_fd);
    close_fd(&session->to_client_fd);
}

/* ---- begin ---------------------------------------------------------------------------------- */

static struct session *session_take(struct server *server)
{
    struct sessions *sessions = &server->sessions;

    for (uint32_t at = 0; at < sessions->max; at++) {
        if (sessions->sessions[at].state == SESSION_FREE)
            return &sessions->sessions[at];
    }
    return NULL;
}

static int session_name(struct server *server, struct session *session)
{
    uint64_t id;

    do {
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
            return -EIO;
        id &= INT64_MAX;
    } while (id == 0 || sessions_by_id(server, id));
    if (getrandom(session->token, sizeof(session->token), 0) != (ssize_t)sizeof(session->token))
        return -EIO;
    session->id = id;
    return 0;
}

static uint64_t staging_size(const struct config *config, uint64_t wanted)
{
    uint64_t bytes = wanted > config->staging_bytes ? config->staging_bytes : wanted;

    bytes = bytes < config->staging_min_bytes ? config->staging_min_bytes : bytes;
    return (bytes + 4095) & ~UINT64_C(4095);
}

/* The most modest wish counts. */
static enum pool_store store_of(const struct config *config, uint32_t flags)
{
    static const struct {
        uint32_t flag;
        enum pool_store store;
    } rows[] = {{HELLO_STORE_NONE, POOL_STORE_NONE},
                {HELLO_STORE_PROMPT, POOL_STORE_PROMPT},
                {HELLO_STORE_ALL, POOL_STORE_ALL}};

    for (size_t at = 0; at < ARRAY_SIZE(rows); at++) {
        if (flags & rows[at].flag)
            return rows[at].store;
    }
    return (enum pool_store)config->store_default;
}

struct session *session_open(struct server *server, struct connection *connection,
                             const struct hello *hello, pool_payer tenant, int *out_status)
{
    struct payer *payer = &server->tenants.payers[tenant];
    struct session *session = session_take(server);
    pool_session pool;

    *out_status = STATUS_LIMIT;
    struct share *share = &server->tenants.shares[SHARE_SESSIONS];
    /* also those that linger count, until their processes are gone */
    if (!session || share->taken[tenant] >= server->config->max_tenant_sessions ||
        !share_has(share, tenant, 1))
        return NULL;
    *session = (struct session){.flags = hello->flags,
                                .tenant = tenant,
                                .pid = connection->pid,
                                .uid = connection->uid,
                                .staging_fd = -1,
                                .from_client_fd = -1,
                                .to_client_fd = -1,
                                .ring_source = {.fd = -1},
                                .connection = (uint32_t)(connection - server->sessions.connections),
                                .num_attached = 1,
                                .sequences = NO_INDEX,
                                .backlog = {.head = ORDER_NONE, .tail = ORDER_NONE}};
    *out_status = STATUS_FAILED;
    if (session_name(server, session) ||
        staging_make(session, staging_size(server->config, hello->staging_bytes)))
        goto fail;
    session->ring_source = (struct source){.fd = session->from_client_fd,
                                           .ready = ring_ready,
                                           .index = sessions_index(server, session)};
    if (source_add(server, &session->ring_source, EPOLLIN))
        goto fail;
    if (pool_session_open(server->pool, &pool)) {
        *out_status = STATUS_LIMIT;
        goto fail;
    }
    session->pool = pool;
    (void)pool_session_set_manual_publish(server->pool, pool,
                                          (hello->flags & HELLO_MANUAL_PUBLISH) != 0);
    (void)pool_session_set_store(server->pool, pool, store_of(server->config, hello->flags));
    session->state = SESSION_OPEN;
    server->sessions.ids[sessions_index(server, session)] = session->id;
    server->sessions.num_open++;
    server->sessions.counters.opened++;
    payer->num_sessions++;
    share_take(share, tenant, 1);
    ring_session_opened(server, session);
    return session;

fail:
    staging_drop(server, session);
    session->state = SESSION_FREE;
    return NULL;
}

/* ---- end ------------------------------------------------------------------------------------ */

static bool process_lives(const struct connection *connection)
{
    return connection->process.fd >= 0;
}

/* Nothing of it is used any more: its place may be another's. */
void session_settle(struct server *server, struct session *session)
{
    if (session->state != SESSION_ENDING || session->num_attends > 0)
        return;
    staging_drop(server, session);
    if (!session->is_detached) {
        if (session->num_attached > 0)
            return;
        session->is_detached = true;
        (void)pool_session_detach(server->pool, session->pool);
        server->has_more = true;
    }
    session->state = SESSION_FREE;
    share_give(&server->tenants.shares[SHARE_SESSIONS], session->tenant, 1);
}

/* Of those connections only processes stay that were given memory to write, until they are gone. */
static void connections_leave(struct server *server, const struct session *session)
{
    struct sessions *sessions = &server->sessions;
    uint32_t index = sessions_index(server, session);

    for (uint32_t at = 0; at < sessions->max_connections; at++) {
        struct connection *connection = &sessions->connections[at];
        if (connection->state < CONNECTION_SESSION || connection->session != index)
            continue;
        source_remove(server, &connection->source);
        close_fd(&connection->source.fd);
        connection->state = CONNECTION_LINGERING;
        if (!process_lives(connection) || !session->can_write_arenas)
            connection_free(server, connection);
    }
}

void session_end(struct server *server, struct session *session, const char *reason)
{
    struct sessions *sessions = &server->sessions;
    uint32_t index = sessions_index(server, session), num_sequences = 0;

    if (session->state != SESSION_OPEN)
        return;
    session->state = SESSION_CLOSING;
    sessions->ids[index] = 0;
    sessions->num_open--;
    sessions->counters.ended++;
    server->tenants.payers[session->tenant].num_sessions--;
    ring_session_ended(server, session);
    steps_abandon_session(server, session);
    waiting_drop_session(server, index);
    share_give(&server->tenants.shares[SHARE_SEQUENCES], session->tenant,
               sequences_remove_all(&server->sequences, &session->sequences));

    session->connection = NO_INDEX;
    connections_leave(server, session);
    session->is_detached = !session->can_write_arenas || session->num_attached == 0;
    (void)pool_session_end(server->pool, session->pool, !session->is_detached, &num_sequences);
    session->state = SESSION_ENDING;
    server->has_more = true; /* pool_advance() */
    log_event(LOG_INFO, "session_end", log_id("session", session->id),
              log_number("pid", (uint64_t)session->pid), log_text("reason", reason),
              log_number("sequences", num_sequences),
              log_number("attached", session->is_detached ? 0 : session->num_attached));
    session_settle(server, session);
}

void sessions_end_lost(struct server *server)
{
    struct sessions *sessions = &server->sessions;

    for (uint32_t at = 0; at < sessions->max; at++) {
        if (sessions->sessions[at].state == SESSION_OPEN && sessions->sessions[at].is_lost)
            session_end(server, &sessions->sessions[at], "does not read its replies");
    }
}

int session_send_arena(struct server *server, struct session *session,
                       const struct arena_packet *packet, int fd)
{
    const struct connection *connection = &server->sessions.connections[session->connection];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = sizeof(*packet)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(connection->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* ---- connections ---------------------------------------------------------------------------- */

static void connection_free(struct server *server, struct connection *connection)
{
    struct sessions *sessions = &server->sessions;
    bool was_attached = connection->state == CONNECTION_SESSION ||
                        connection->state == CONNECTION_ATTACHED ||
                        connection->state == CONNECTION_LINGERING;

    source_remove(server, &connection->source);
    close_fd(&connection->source.fd);
    source_remove(server, &connection->process);
    close_fd(&connection->process.fd);
    sessions->num_hello -= connection->state == CONNECTION_HELLO;
    sessions->num_connections--;
    connection->state = CONNECTION_FREE;
    if (!was_attached)
        return;
    struct session *session = &sessions->sessions[connection->session];
    if (connection->is_further)
        share_give(&server->tenants.shares[SHARE_ATTACHED], session->tenant, 1);
    session->num_attached--;
    session_settle(server, session);
}

/* The socket closed, or said more than it may. */
void connection_close(struct server *server, struct connection *connection)
{
    struct session *session = &server->sessions.sessions[connection->session];

    switch (connection->state) {
    case CONNECTION_SESSION:
        session_end(server, session, "closed");
        break;
    case CONNECTION_ATTACHED: /* its mappings live as long as its process */
        source_remove(server, &connection->source);
        close_fd(&connection->source.fd);
        connection->state = CONNECTION_LINGERING;
        if (!process_lives(connection))
            connection_free(server, connection);
        break;
    default:
        connection_free(server, connection);
    }
}

static void process_ended(struct server *server, struct source *source, uint32_t events)
{
    struct connection *connection = &server->sessions.connections[source->index];

    (void)events;
    source_remove(server, source);
    close_fd(&source->fd);
    if (connection->state == CONNECTION_SESSION) {
        server->sessions.counters.ended_by_process++;
        session_end(server, &server->sessions.sessions[connection->session], "process ended");
    } else if (connection->state == CONNECTION_ATTACHED ||
               connection->state == CONNECTION_LINGERING || connection->state == CONNECTION_HELLO) {
        connection_free(server, connection);
    }
}

static void socket_ready(struct server *server, struct source *source, uint32_t events)
{
    struct connection *connection = &server->sessions.connections[source->index];

    (void)events;
    if (connection->state == CONNECTION_HELLO)
        hello_read(server, connection);
    else
        connection_close(server, connection); /* it closed; or nothing is ever sent after hello */
}

/* Of those that said nothing yet, of one user or of all: how many, and the one that came first. */
static uint32_t silent_count(struct sessions *sessions, const uid_t *uid,
                             struct connection **out_oldest)
{
    uint32_t count = 0;

    for (uint32_t at = 0; at < sessions->max_connections; at++) {
        struct connection *connection = &sessions->connections[at];
        if (connection->state != CONNECTION_HELLO || (uid && connection->uid != *uid))
            continue;
        if (count++ == 0 || connection->number < (*out_oldest)->number)
            *out_oldest = connection;
    }
    return count;
}

/* Whoever is silent longest makes room for who comes: so there is always room. */
static void silent_drop(struct server *server, const uid_t *uid, uint32_t max)
{
    struct connection *oldest = NULL;

    if (silent_count(&server->sessions, uid, &oldest) <= max)
        return;
    server->sessions.counters.silent++;
    connection_free(server, oldest);
}

static struct connection *connection_take(struct server *server)
{
    struct sessions *sessions = &server->sessions;

    for (uint32_t at = 0; at < sessions->max_connections; at++) {
        if (sessions->connections[at].state == CONNECTION_FREE)
            return &sessions->connections[at];
    }
    return NULL; /* not seen: sessions, those attached and silent ones have bounds of their own */
}

/* Who is at the other end, by what the kernel says. The pidfd is of the process that connected. */
static int peer_find(int fd, struct connection *connection)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    connection->pid = peer.pid;
    connection->uid = peer.uid;
    size = sizeof(connection->process.fd);
    if (getsockopt(fd, SOL_SOCKET, PEER_PIDFD, &connection->process.fd, &size) == 0)
        return 0;
    /* Before Linux 6.5: by number. It is that process, or one that lives and is watched instead. */
    connection->process.fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    return connection->process.fd < 0 ? -errno : 0;
}

static void connection_begin(struct server *server, int fd)
{
    struct sessions *sessions = &server->sessions;

    silent_drop(server, NULL, HELLO_ROOM - 1);
    struct connection *connection = connection_take(server);
    if (!connection) { /* over the cap there is no answer but the close */
        sessions->counters.refused++;
        (void)close(fd);
        return;
    }
    uint32_t index = (uint32_t)(connection - sessions->connections);
    *connection = (struct connection){.state = CONNECTION_HELLO,
                                      .source = {.fd = fd, .ready = socket_ready, .index = index},
                                      .process = {.fd = -1, .ready = process_ended, .index = index},
                                      .since_ms = server->now_ms,
                                      .number = sessions->next_number++,
                                      .session = NO_INDEX};
    sessions->num_connections++;
    sessions->num_hello++;
    if (peer_find(fd, connection) || source_add(server, &connection->source, EPOLLIN) ||
        source_add(server, &connection->process, EPOLLIN)) {
        connection_free(server, connection); /* it died meanwhile */
        return;
    }
    silent_drop(server, &connection->uid, HELLO_MAX_UID);
}

static void listener_ready(struct server *server, struct source *source, uint32_t events)
{
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            source_remove(server, source); /* it would be ready all the time */
            server->sessions.is_deaf = true;
        }
        if (fd < 0)
            return;
        connection_begin(server, fd);
    }
}

void sessions_tick(struct server *server)
{
    struct sessions *sessions = &server->sessions;

    if (sessions->is_deaf)
        sessions->is_deaf = source_add(server, &sessions->listener, EPOLLIN) != 0;
    for (uint32_t at = 0; sessions->num_hello > 0 && at < sessions->max_connections; at++) {
        struct connection *connection = &sessions->connections[at];
        if (connection->state == CONNECTION_HELLO &&
            connection->since_ms + server->config->hello_ms <= server->now_ms)
            connection_free(server, connection);
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

int sessions_init(struct server *server)
{
    struct sessions *sessions = &server->sessions;
    const struct config *config = server->config;
    char path[128];

    sessions->max = (uint32_t)config->max_sessions;
    sessions->max_connections =
        (uint32_t)(config->max_sessions + config->max_attached) + HELLO_ROOM;
    sessions->sessions = calloc(sessions->max, sizeof(*sessions->sessions));
    sessions->ids = calloc(sessions->max, sizeof(*sessions->ids));
    sessions->connections = calloc(sessions->max_connections, sizeof(*sessions->connections));
    sessions->listener = (struct source){.fd = -1, .ready = listener_ready};
    if (!sessions->sessions || !sessions->ids || !sessions->connections)
        return -ENOMEM;
    int err = config_socket_path(config, CONFIG_SESSION_SOCKET, path, sizeof(path));
    if (!err)
        err =
            listen_unix(path, SOCK_SEQPACKET, (mode_t)config->session_mode, &sessions->listener.fd);
    return err ? err : source_add(server, &sessions->listener, EPOLLIN);
}

void sessions_finish(struct server *server)
{
    struct sessions *sessions = &server->sessions;
    char path[128];

    for (uint32_t at = 0; sessions->sessions && at < sessions->max; at++) {
        struct session *session = &sessions->sessions[at];
        if (session->state != SESSION_FREE)
            staging_drop(server, session);
    }
    for (uint32_t at = 0; sessions->connections && at < sessions->max_connections; at++) {
        struct connection *connection = &sessions->connections[at];
        if (connection->state == CONNECTION_FREE)
            continue;
        close_fd(&connection->source.fd);
        close_fd(&connection->process.fd);
    }
    if (sessions->listener.fd > 0) {
        (void)close(sessions->listener.fd);
        if (!config_socket_path(server->config, CONFIG_SESSION_SOCKET, path, sizeof(path)))
            (void)unlink(path);
    }
    free(sessions->sessions);
    free(sessions->ids);
    free(sessions->connections);
}
