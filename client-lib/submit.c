/* client-lib/submit.c - requests go out, replies come in, results are claimed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client-lib/client.h"
#include "client-lib/encode.h"

/* What a result needs to find its way back. */
static void pending_fill(struct pending *pending, const struct kvpool_request *request)
{
    pending->tables = request->tables;
    pending->num_tables = request->tables ? request->num_tables : 0;
    pending->json = request->json;
    pending->json_max = request->json_max;
    if (request->verb == KVPOOL_READ && request->blocks && request->blocks->data) {
        pending->data = request->blocks->data;
        pending->data_bytes = request->blocks->data_bytes;
        pending->id |= PENDING_HAS_FRAME;
    }
}

int submit_message(struct kvpool *client, struct pending *pending, Kvpool__Wire__Request *wire,
                   const struct kvpool_blocks *frame)
{
    const char *what;
    int64_t deadline_ms = pending->expires_ms - CLIENT_GRACE_MS - client_now_ms();

    wire->id = pending->id;
    wire->deadline_ms = deadline_ms > 0 ? (uint32_t)deadline_ms : 1;
    int err = wire_request_check(wire, &what) ? -EMSGSIZE : 0;
    if (!err)
        err = batch_add(client, wire, frame ? frame->data : NULL, frame ? frame->data_bytes : 0);
    /* Where the connection was lost on the way, the slot was resolved with all others. */
    if (err && pending->state != PENDING_FREE)
        pending_release(client, pending);
    return err;
}

static int submit_by_message(struct kvpool *client, const struct kvpool_request *request,
                             struct pending *pending)
{
    Kvpool__Wire__Request wire = KVPOOL__WIRE__REQUEST__INIT;
    struct encode_scratch scratch;

    int err = encode_request(&client->build, request, &scratch, &wire);
    if (!err && request->prompt && request->verb <= KVPOOL_ALLOCATE) {
        err = request->prompt->model < client->num_models ? 0 : -EINVAL;
        scratch.prompt.model = err ? 0 : client->models[request->prompt->model].handle;
    }
    if (err) {
        pending_release(client, pending);
        return err;
    }
    bool has_frame = request->verb == KVPOOL_WRITE && request->blocks->data;
    return submit_message(client, pending, &wire, has_frame ? request->blocks : NULL);
}

int kvpool_submit(struct kvpool *client, const struct kvpool_request *request, uint64_t *out_ticket)
{
    struct pending *pending;
    uint32_t deadline_ms =
        request->deadline_ms ? request->deadline_ms : client->options.deadline_ms;

    if (!client->is_connected)
        return KVPOOL_DISCONNECTED;
    if (deadline_ms > WIRE_MAX_DEADLINE_MS)
        return -EINVAL;
    int err = pending_take(client, deadline_ms, &pending);
    if (err)
        return err;
    pending_fill(pending, request);
    uint64_t ticket = pending->id;
    if (request->via_ring) {
        pending_put_on_ring(client, pending);
        err = ring_submit(client, request, ticket);
        if (err)
            pending_release(client, pending);
    } else {
        err = submit_by_message(client, request, pending);
    }
    if (!err)
        *out_ticket = ticket;
    return err;
}

int kvpool_flush(struct kvpool *client)
{
    return client->is_connected ? batch_send(client) : KVPOOL_DISCONNECTED;
}

/* What can be had without waiting: how many messages and completions, or -EPROTO. */
static int messages_receive(struct kvpool *client)
{
    int num = 0;

    while (client->is_connected) {
        int err = batch_receive(client);
        if (err)
            return err == -EAGAIN ? num : err;
        num++;
    }
    return num;
}

/* The socket is looked at only where somebody waits for it: it costs as much as a ring's round
 * trip. */
static int drain(struct kvpool *client)
{
    int num = ring_receive(client);

    if (num < 0 || client->num_waiting == client->num_waiting_on_ring)
        return num;
    int num_messages = messages_receive(client);
    return num_messages < 0 ? num_messages : num + num_messages;
}

/* Sleeps on whatever can wake us. */
static void client_sleep(struct kvpool *client, int64_t timeout_ms)
{
    /* The second one tells of the end: an operator's monitor, or the session socket. */
    zmq_pollitem_t items[] = {
        {.socket = client->socket, .events = ZMQ_POLLIN},
        {.socket = client->monitor, .fd = client->session_fd, .events = ZMQ_POLLIN},
        {.fd = client->client_eventfd, .events = ZMQ_POLLIN},
    };
    int64_t left_ms = client->next_expiry_ms - client_now_ms();

    if (client->num_waiting > 0 && (timeout_ms < 0 || left_ms < timeout_ms))
        timeout_ms = left_ms > 0 ? left_ms : 0;
    if (timeout_ms > WIRE_MAX_DEADLINE_MS)
        timeout_ms = WIRE_MAX_DEADLINE_MS;
    if (!ring_arm(client))
        return;
    (void)zmq_poll(items, client->is_operator ? 2 : 3, timeout_ms);
    ring_disarm(client);

    uint64_t count;
    if (!client->is_operator && items[2].revents)
        (void)!read(client->client_eventfd, &count, sizeof(count)); /* it is non-blocking */
    if (items[1].revents && (client->is_operator || session_read(client))) {
        (void)drain(client); /* what was answered before the end counts */
        client_lose(client);
    }
}

void client_pump(struct kvpool *client, int64_t timeout_ms)
{
    if (!client->is_connected || batch_send(client))
        return;

    int num = drain(client);
    if (num == 0 && timeout_ms != 0) {
        ring_spin(client);
        num = drain(client);
    }
    if (num == 0) /* what nobody waits for would wake us again and again */
        num = messages_receive(client);
    if (num == 0 && client->is_connected) {
        client_sleep(client, timeout_ms);
        if (client->is_connected)
            num = drain(client);
    }
    if (num < 0 || client->is_ended)
        client_lose(client);
    pending_expire(client, client_now_ms());
}

int submit_claim(struct kvpool *client, struct pending *pending, struct kvpool_result *out_result)
{
    int status = pending->result.status;

    if (out_result)
        *out_result = pending->result;
    pending_release(client, pending);
    return status;
}

int kvpool_wait(struct kvpool *client, uint64_t ticket, struct kvpool_result *out_result)
{
    struct pending *pending = &client->pending[ticket % CLIENT_NUM_PENDING];

    if (pending->state == PENDING_FREE || pending->id != ticket) {
        if (out_result)
            *out_result = (struct kvpool_result){.ticket = ticket, .status = -ENOENT};
        return -ENOENT;
    }
    while (pending->state == PENDING_WAITING)
        client_pump(client, -1);
    return submit_claim(client, pending, out_result);
}

int kvpool_poll(struct kvpool *client, int timeout_ms, struct kvpool_result *out_result)
{
    int64_t until_ms = timeout_ms < 0 ? INT64_MAX : client_now_ms() + timeout_ms;

    if (client->num_waiting + client->num_resolved == 0)
        return -ENOENT;
    for (bool is_first = true; client->num_resolved == 0; is_first = false) {
        int64_t left_ms = until_ms - client_now_ms();
        if (left_ms <= 0 && !is_first)
            return -EAGAIN;
        client_pump(client, timeout_ms < 0 ? -1 : left_ms > 0 ? left_ms : 0);
    }
    (void)submit_claim(client, pending_resolved(client), out_result);
    return 0;
}

int kvpool_call(struct kvpool *client, const struct kvpool_request *request,
                struct kvpool_result *out_result)
{
    struct kvpool_result result = {0};
    uint64_t ticket;

    int status = kvpool_submit(client, request, &ticket);
    if (status) {
        result.status = status;
        client_say(result.message, kvpool_status_text(status));
    } else {
        status = kvpool_wait(client, ticket, &result);
    }
    client_say(client->message, result.message);
    if (out_result)
        *out_result = result;
    return status;
}
