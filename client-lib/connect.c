/* client-lib/connect.c - a connection begins, is lost, begins anew, and ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client-lib/client.h"

enum {
    RETRY_FIRST_MS = 10,
    RETRY_MAX_MS = 200,
    WELCOME_MS = 5000, /* a daemon that is there has so long to say welcome */
    HIGH_WATER_MARK = 4 * KVPOOL_MAX_OUTSTANDING /* above all messages that can be under way */
};

static void sleep_ms(int64_t duration_ms)
{
    struct timespec duration = {duration_ms / 1000, duration_ms % 1000 * 1000000};
    nanosleep(&duration, NULL);
}

/* An operator has no session socket that would be closed: ZeroMQ says what it sees. */
static int monitor_open(struct kvpool *client)
{
    char endpoint[64];

    snprintf(endpoint, sizeof(endpoint), "inproc://kvpool-monitor-%u", client->num_monitors++);
    if (zmq_socket_monitor(client->socket, endpoint,
                           ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED) < 0)
        return -errno;
    client->monitor = zmq_socket(client->zmq, ZMQ_PAIR);
    return !client->monitor || zmq_connect(client->monitor, endpoint) < 0 ? -errno : 0;
}

static int socket_open(struct kvpool *client, const char *endpoint)
{
    const int zero = 0, mark = HIGH_WATER_MARK;
    /* ZeroMQ drops what is larger and says nothing: what is over the cap should still be seen. */
    const int64_t max_bytes = 4 * (int64_t)WIRE_MAX_REPLY_BYTES;

    client->socket = zmq_socket(client->zmq, ZMQ_DEALER);
    if (!client->socket || zmq_setsockopt(client->socket, ZMQ_LINGER, &zero, sizeof(zero)) < 0 ||
        zmq_setsockopt(client->socket, ZMQ_SNDHWM, &mark, sizeof(mark)) < 0 ||
        zmq_setsockopt(client->socket, ZMQ_RCVHWM, &mark, sizeof(mark)) < 0 ||
        zmq_setsockopt(client->socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes)) < 0)
        return -errno;
    int err = client->is_operator ? monitor_open(client) : 0;
    if (err)
        return err;
    return zmq_connect(client->socket, endpoint) < 0 ? -errno : 0;
}

static void socket_close(struct kvpool *client)
{
    if (client->monitor)
        zmq_close(client->monitor);
    if (client->socket)
        zmq_close(client->socket);
    client->socket = client->monitor = NULL;
}

/* ZeroMQ would wait in silence for somebody to listen: look whether somebody does. */
static int operator_open(struct kvpool *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char endpoint[sizeof(address.sun_path) + 8];
    int num = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", client->dir,
                       HELLO_OPERATOR_SOCKET);
    if (num < 0 || (size_t)num >= sizeof(address.sun_path))
        return -ENAMETOOLONG;

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int err = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
    close(fd);
    if (err)
        return err;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", address.sun_path);
    return socket_open(client, endpoint);
}

static int connect_once(struct kvpool *client, int64_t until_ms)
{
    if (client->is_operator)
        return operator_open(client);
    int err = session_open(client, until_ms);
    return err ? err : socket_open(client, client->welcome.endpoint);
}

/* Nobody there yet, or not any more. */
static bool is_absence(int err)
{
    return err == -ENOENT || err == -ECONNREFUSED || err == -ECONNRESET || err == -EAGAIN ||
           err == -EPIPE;
}

static int connect_retrying(struct kvpool *client)
{
    int64_t until_ms = client_now_ms() + client->options.connect_ms, pause_ms = RETRY_FIRST_MS;

    for (;;) {
        client->message[0] = '\0';
        int err = connect_once(client, client_now_ms() + WELCOME_MS);
        if (err == 0) {
            client->is_connected = true;
            batch_begin(client);
            return 0;
        }
        socket_close(client);
        session_close(client);
        if (client->message[0] == '\0')
            snprintf(client->message, sizeof(client->message), "%.150s: %s", client->dir,
                     is_absence(err) ? "nobody listens there: is kvpoold running?"
                                     : kvpool_status_text(err));
        if (!is_absence(err) || client_now_ms() + pause_ms >= until_ms)
            return err;
        sleep_ms(pause_ms);
        pause_ms = pause_ms * 2 < RETRY_MAX_MS ? pause_ms * 2 : RETRY_MAX_MS;
    }
}

static void client_destroy(struct kvpool *client)
{
    if (!client)
        return;
    if (client->batch.bytes)
        batch_drop(client);
    socket_close(client);
    session_close(client);
    if (client->zmq)
        zmq_ctx_term(client->zmq);
    models_forget(client);
    free(client->batch.bytes);
    free(client->build.memory);
    free(client->replies.memory);
    free(client->dir);
    free(client->token);
    free(client);
}

static void options_take(struct kvpool *client, const struct kvpool_options *options)
{
    size_t known = sizeof(client->options);

    if (options) /* of an older or a newer header: what both know */
        memcpy(&client->options, options,
               options->struct_bytes < known ? options->struct_bytes : known);
    if (client->options.connect_ms == 0)
        client->options.connect_ms = 5000;
    if (client->options.deadline_ms == 0)
        client->options.deadline_ms = 10000;
    if (client->options.spin_us == 0)
        client->options.spin_us = 20;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        client->options.spin_us = 0; /* it would keep the daemon from its work */
}

static int client_create(const struct kvpool_options *options, struct kvpool **out_client)
{
    struct kvpool *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;

    client->session_fd = client->daemon_eventfd = client->client_eventfd = -1;
    for (size_t i = 0; i < CLIENT_MAX_ARENA_PACKETS; i++)
        client->arenas[i].fd = -1;
    options_take(client, options);
    const char *dir = client->options.dir ? client->options.dir : getenv("KVPOOL_DIR");
    client->dir = strdup(dir ? dir : HELLO_DIR);
    client->token = client->options.token ? strdup(client->options.token) : NULL;
    client->batch.bytes = malloc(WIRE_MAX_BATCH_BYTES);
    void *build = aligned_alloc(64, CLIENT_BUILD_BYTES);
    void *replies = aligned_alloc(64, WIRE_ARENA_BYTES); /* touched as far as replies are large */
    wire_arena_init(&client->build, build, CLIENT_BUILD_BYTES);
    wire_arena_init(&client->replies, replies, WIRE_ARENA_BYTES);
    client->zmq = zmq_ctx_new();

    int err = -ENOMEM;
    if (!client->dir || (client->options.token && !client->token) || !client->batch.bytes ||
        !build || !replies || !client->zmq)
        goto fail;
    err = -EINVAL;
    if (client->token && strlen(client->token) > HELLO_MAX_TOKEN)
        goto fail;

    *out_client = client;
    return 0;

fail:
    client_destroy(client);
    return err;
}

static int connect_as(const struct kvpool_options *options, bool is_operator,
                      struct kvpool **out_kvpool)
{
    struct kvpool *client;

    if (options && options->struct_bytes < sizeof(options->struct_bytes))
        return -EINVAL;
    int err = client_create(options, &client);
    if (err)
        return err;
    client->is_operator = is_operator;
    err = connect_retrying(client);
    char *out_message = client->options.out_message;
    if (out_message)
        client_say(out_message, client->message);
    client->options.out_message = NULL; /* the caller's, until now */
    if (err)
        client_destroy(client);
    else
        *out_kvpool = client;
    return err;
}

int kvpool_connect(const struct kvpool_options *options, struct kvpool **out_kvpool)
{
    return connect_as(options, false, out_kvpool);
}

int kvpool_connect_operator(const struct kvpool_options *options, struct kvpool **out_kvpool)
{
    return connect_as(options, true, out_kvpool);
}

int kvpool_attach(const struct kvpool_options *options, uint64_t session, const void *token,
                  int *out_fd)
{
    struct kvpool *client;

    if (session == 0 || (options && options->struct_bytes < sizeof(options->struct_bytes)))
        return -EINVAL;
    int err = client_create(options, &client);
    if (err)
        return err;
    free(client->token); /* of a tenant: the session has one already */
    client->token = NULL;
    client->attach_session = session;
    client->attach_token = token;
    err = session_open(client, client_now_ms() + WELCOME_MS);
    if (client->options.out_message)
        client_say(client->options.out_message, client->message);
    if (!err) {
        *out_fd = client->session_fd;
        client->session_fd = -1;
    }
    client_destroy(client);
    return err;
}

void kvpool_disconnect(struct kvpool *client)
{
    client_destroy(client);
}

void client_lose(struct kvpool *client)
{
    client->is_connected = client->is_ended = false;
    batch_drop(client);
    pending_resolve_all(client, false, STATUS_DISCONNECTED, NULL);
}

int kvpool_reconnect(struct kvpool *client)
{
    client_lose(client);
    socket_close(client);
    session_close(client);
    int err = connect_retrying(client);
    return err ? err : models_register_again(client);
}

bool kvpool_is_connected(const struct kvpool *client)
{
    return client->is_connected;
}

uint64_t kvpool_session(const struct kvpool *client)
{
    return client->is_operator ? 0 : client->welcome.session_id;
}

const uint8_t *kvpool_session_token(const struct kvpool *client)
{
    return client->welcome.session_token;
}

const char *kvpool_message(const struct kvpool *client)
{
    return client->message;
}

void *kvpool_staging(const struct kvpool *client, uint64_t *out_num_bytes)
{
    *out_num_bytes = client->data_bytes;
    return client->data;
}

int kvpool_staging_take(struct kvpool *client, uint64_t num_bytes, uint64_t *out_offset)
{
    uint64_t at = (client->staging_used + 63) & ~UINT64_C(63);

    if (!ring_span_fits(at, num_bytes, client->data_bytes))
        return -ENOMEM;
    *out_offset = at;
    client->staging_used = at + num_bytes;
    return 0;
}

void kvpool_staging_reset(struct kvpool *client)
{
    client->staging_used = 0;
}
