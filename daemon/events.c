/*
 * daemon/events.c - the stats socket: snapshots, and which blocks can be found.
 *
 * The socket is an XPUB, which is a PUB that tells who subscribes: nothing is written for nobody.
 * It is asked not to drop first (ZMQ_XPUB_NODROP): a refusal says that somebody is at the end of
 * its queue, which is counted; then it is sent again to everybody else.
 */
#include "daemon/events.h"
#include "daemon/descriptors.h"
#include "daemon/listen.h"
#include "daemon/stats.h"
#include "daemon/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
    BATCH_BYTES = 256 * 1024,
    EVENT_BYTES = 16 * 1024, /* the most of one event: its token ids and two long names */
    MAX_EVENT_TOKENS = 1024,
    MAX_EVENT_NAME = 256,
    MAX_READ = 256, /* subscriptions read at a time */
    MAX_SUBSCRIPTION = 64
};

enum topic { TOPIC_SNAPSHOT, TOPIC_BLOCKS, NUM_TOPICS };
static const char *const topics[] = {[TOPIC_SNAPSHOT] = "snapshot", [TOPIC_BLOCKS] = "blocks"};

struct events {
    void *socket;
    char socket_path[128]; /* "" until it is there */
    int listen_fd;         /* ZeroMQ's, guarded */
    char boot_id[40];
    char *batch; /* [BATCH_BYTES] */
    struct text batch_text;
    uint64_t batch_first, num_batched;
    char *snapshot;
    size_t snapshot_bytes;
    uint64_t wanted[NUM_TOPICS]; /* subscriptions that match */
    struct events_counters counters;
};

/* ---- life ----------------------------------------------------------------------------------- */

static int option_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

static int socket_open(struct events *events, const struct events_options *options)
{
    const struct {
        int option, value;
    } settings[] = {
        {ZMQ_LINGER, 0},
        {ZMQ_SNDHWM, (int)options->queue},
        {ZMQ_RCVHWM, MAX_READ},
        {ZMQ_XPUB_NODROP, 1},
    };
    const int64_t max_said = MAX_SUBSCRIPTION; /* by a subscriber */
    char endpoint[160];
    int fd = -1, err = 0;

    events->socket = zmq_socket(options->zmq_context, ZMQ_XPUB);
    if (!events->socket)
        return -errno;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && !err; i++)
        err = option_set(events->socket, settings[i].option, settings[i].value);
    if (!err && zmq_setsockopt(events->socket, ZMQ_MAXMSGSIZE, &max_said, sizeof(max_said)) < 0)
        err = -errno;
    if (!err)
        err = listen_unix(options->socket_path, SOCK_STREAM, options->socket_mode, &fd);
    if (err)
        return err;
    (void)snprintf(events->socket_path, sizeof(events->socket_path), "%s", options->socket_path);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", options->socket_path);
    err = descriptors_guard(fd, DESCRIPTORS_OPERATORS);
    if (!err)
        events->listen_fd = fd;
    if (!err)
        err = option_set(events->socket, ZMQ_USE_FD, fd);
    if (!err && zmq_bind(events->socket, endpoint) < 0)
        err = -errno;
    if (err)
        (void)close(fd);
    return err;
}

int events_create(const struct events_options *options, struct events **out_events)
{
    if (options->queue == 0 || options->queue > INT32_MAX || options->text_bytes == 0)
        return -EINVAL;
    struct events *events = calloc(1, sizeof(*events));
    if (!events)
        return -ENOMEM;

    int err = -ENOMEM;
    events->batch = calloc(1, BATCH_BYTES);
    events->snapshot_bytes = options->text_bytes;
    events->snapshot = calloc(1, options->text_bytes);
    if (!events->batch || !events->snapshot)
        goto fail;
    (void)snprintf(events->boot_id, sizeof(events->boot_id), "%s", options->boot_id);
    err = socket_open(events, options);
    if (err)
        goto fail;
    *out_events = events;
    return 0;

fail:
    events_destroy(events);
    return err;
}

void events_destroy(struct events *events)
{
    if (!events)
        return;
    if (events->socket)
        (void)zmq_close(events->socket);
    descriptors_release(events->listen_fd);
    if (events->socket_path[0] != '\0')
        (void)unlink(events->socket_path);
    free(events->batch);
    free(events->snapshot);
    free(events);
}

struct events_counters events_counters(const struct events *events)
{
    return events->counters;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* @message: 1 and the first bytes of a topic, or 0 and some that nobody wants any more. */
static void read_subscription(struct events *events, const uint8_t *message, size_t count)
{
    if (count == 0 || message[0] > 1)
        return; /* something that a subscriber says */
    uint64_t change = message[0] == 1 ? 1 : UINT64_MAX;

    events->counters.subscriptions += change;
    for (int topic = 0; topic < NUM_TOPICS; topic++)
        if (count - 1 <= strlen(topics[topic]) &&
            memcmp(topics[topic], message + 1, count - 1) == 0)
            events->wanted[topic] += change;
}

static void read_subscriptions(struct events *events)
{
    uint8_t message[MAX_SUBSCRIPTION];

    for (int i = 0; i < MAX_READ; i++) {
        int count = zmq_recv(events->socket, message, sizeof(message), ZMQ_DONTWAIT);
        if (count < 0)
            return;
        if ((size_t)count <= sizeof(message))
            read_subscription(events, message, (size_t)count);
    }
}

static int send_frames(struct events *events, enum topic topic, uint64_t number,
                       const struct text *body)
{
    const uint8_t number_bytes[8] = {
        (uint8_t)number,         (uint8_t)(number >> 8),  (uint8_t)(number >> 16),
        (uint8_t)(number >> 24), (uint8_t)(number >> 32), (uint8_t)(number >> 40),
        (uint8_t)(number >> 48), (uint8_t)(number >> 56),
    };

    const char *name = topics[topic];

    if (zmq_send(events->socket, name, strlen(name), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return -errno;
    /* Who gets the first frame gets them all: queues are counted in whole messages. */
    if (zmq_send(events->socket, number_bytes, 8, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(events->socket, body->bytes, body->length, ZMQ_DONTWAIT) < 0)
        return -errno;
    return 0;
}

static void send_message(struct events *events, enum topic topic, uint64_t number,
                         const struct text *body)
{
    int err = send_frames(events, topic, number, body);

    if (err == -EAGAIN) {
        events->counters.overflows++;
        (void)option_set(events->socket, ZMQ_XPUB_NODROP, 0);
        err = send_frames(events, topic, number, body);
        (void)option_set(events->socket, ZMQ_XPUB_NODROP, 1);
    }
    if (!err)
        events->counters.messages++;
}

void events_snapshot(struct events *events, const struct stats *stats)
{
    struct text text = text_init(events->snapshot, events->snapshot_bytes);

    events_flush(events); /* a batch has no holes: who listens changes between two of them */
    read_subscriptions(events);
    if (events->wanted[TOPIC_SNAPSHOT] == 0)
        return;
    stats_json(stats, &text);
    if (!text.is_cut)
        send_message(events, TOPIC_SNAPSHOT, stats_number(stats), &text);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static void add_key(struct text *text, const char *name, const struct pool_key *key)
{
    static const char digits[] = "0123456789abcdef";
    char hex[2 * sizeof(key->bytes) + 1];

    for (size_t i = 0; i < sizeof(key->bytes); i++) {
        hex[2 * i] = digits[key->bytes[i] >> 4];
        hex[2 * i + 1] = digits[key->bytes[i] & 15];
    }
    hex[sizeof(hex) - 1] = '\0';
    text_printf(text, ",\"%s\":\"%s\"", name, hex);
}

static void add_name(struct text *text, const char *key, const char *name)
{
    char cut[MAX_EVENT_NAME + 1];

    (void)snprintf(cut, sizeof(cut), "%s", name);
    text_printf(text, ",\"%s\":", key);
    text_add_json(text, cut);
}

static void add_event(struct text *text, const struct events_block *block)
{
    text_printf(text, "{\"event\":\"%s\"", block->is_stored ? "stored" : "removed");
    add_key(text, "key", &block->key);
    add_name(text, "domain", block->domain);
    add_name(text, "model", block->model);
    text_printf(text, ",\"group\":%u", block->group);
    if (block->parent)
        add_key(text, "parent", block->parent);
    if (block->tokens && block->num_tokens <= MAX_EVENT_TOKENS) {
        for (uint32_t i = 0; i < block->num_tokens; i++)
            text_printf(text, "%s%u", i ? "," : ",\"tokens\":[", block->tokens[i]);
        text_add(text, block->num_tokens > 0 ? "]" : "");
    }
    text_add(text, "}");
}

static void begin_batch(struct events *events)
{
    events->batch_text = text_init(events->batch, BATCH_BYTES);
    events->batch_first = events->counters.blocks;
    text_add(&events->batch_text, "{\"boot_id\":");
    text_add_json(&events->batch_text, events->boot_id);
    text_printf(&events->batch_text, ",\"first\":%llu,\"events\":[",
                (unsigned long long)events->batch_first);
}

void events_block(struct events *events, const struct events_block *block)
{
    events->counters.blocks++;
    if (events->wanted[TOPIC_BLOCKS] == 0)
        return;
    if (events->num_batched == 0)
        begin_batch(events);
    else
        text_add(&events->batch_text, ",");
    add_event(&events->batch_text, block);
    events->num_batched++;
    if (events->batch_text.size - events->batch_text.length < EVENT_BYTES)
        events_flush(events);
}

void events_flush(struct events *events)
{
    if (events->num_batched == 0)
        return;
    text_add(&events->batch_text, "]}");
    send_message(events, TOPIC_BLOCKS, events->batch_first, &events->batch_text);
    events->num_batched = 0;
}
