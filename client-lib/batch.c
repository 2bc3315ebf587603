/*
 * client-lib/batch.c - collects requests into one message, sends it, takes messages in.
 *
 * A repeated field may be written piece by piece, so requests are packed behind the envelope as
 * they come, and nothing of them needs to be kept.
 */
#include <errno.h>
#include <string.h>

#include "client-lib/client.h"

enum { TAG_REQUESTS = 5 << 3 | 2, VARINT_BYTES = 10 };

static size_t varint_write(uint8_t *out, uint64_t value)
{
    size_t num = 0;

    while (value >= 0x80) {
        out[num++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[num++] = (uint8_t)value;
    return num;
}

void batch_begin(struct kvpool *client)
{
    struct client_batch *batch = &client->batch;
    Kvpool__Wire__Batch envelope = KVPOOL__WIRE__BATCH__INIT;

    envelope.major = WIRE_MAJOR;
    envelope.minor = WIRE_MINOR;
    if (!client->is_operator) {
        envelope.session = client->welcome.session_id;
        envelope.token = (ProtobufCBinaryData){WIRE_TOKEN_BYTES, client->welcome.session_token};
    }
    batch->num_bytes = kvpool__wire__batch__pack(&envelope, batch->bytes);
    batch->num_requests = 0;
    batch->num_frames = 0;
    batch->frame_bytes = 0;
}

void batch_drop(struct kvpool *client)
{
    for (uint32_t i = 0; i < client->batch.num_frames; i++)
        zmq_msg_close(&client->batch.frames[i]);
    batch_begin(client);
}

/* -EMSGSIZE: never fits a message. */
int batch_add(struct kvpool *client, const Kvpool__Wire__Request *wire, const void *frame,
              size_t frame_bytes)
{
    struct client_batch *batch = &client->batch;
    size_t num_bytes = kvpool__wire__request__get_packed_size(wire);
    size_t envelope_bytes = 64; /* no less than any envelope */

    if (num_bytes > WIRE_MAX_BATCH_BYTES - VARINT_BYTES - envelope_bytes ||
        frame_bytes > WIRE_MAX_DATA_BYTES)
        return -EMSGSIZE;
    if (batch->num_bytes + num_bytes + VARINT_BYTES > WIRE_MAX_BATCH_BYTES ||
        batch->num_requests == WIRE_MAX_REQUESTS ||
        batch->frame_bytes + frame_bytes > WIRE_MAX_BATCH_BYTES) {
        int err = batch_send(client);
        if (err)
            return err;
    }
    if (frame) {
        zmq_msg_t *message = &batch->frames[batch->num_frames];
        if (zmq_msg_init_size(message, frame_bytes) < 0)
            return -errno;
        memcpy(zmq_msg_data(message), frame, frame_bytes);
        batch->num_frames++;
        batch->frame_bytes += frame_bytes;
    }

    uint8_t *at = batch->bytes + batch->num_bytes;
    *at++ = TAG_REQUESTS;
    at += varint_write(at, num_bytes);
    at += kvpool__wire__request__pack(wire, at);
    batch->num_bytes = (size_t)(at - batch->bytes);
    batch->num_requests++;
    return 0;
}

static int send_frames(struct kvpool *client)
{
    struct client_batch *batch = &client->batch;
    int more = batch->num_frames > 0 ? ZMQ_SNDMORE : 0;

    if (zmq_send(client->socket, batch->bytes, batch->num_bytes, ZMQ_DONTWAIT | more) < 0)
        return -errno;
    for (uint32_t i = 0; i < batch->num_frames; i++) {
        more = i + 1 < batch->num_frames ? ZMQ_SNDMORE : 0;
        if (zmq_msg_send(&batch->frames[i], client->socket, ZMQ_DONTWAIT | more) < 0)
            return -errno;
    }
    return 0;
}

/* The high-water mark is above all that can be outstanding, so this never waits: -EAGAIN means that
 * nobody is at the other end any more. */
int batch_send(struct kvpool *client)
{
    if (client->batch.num_requests == 0)
        return 0;

    int err = send_frames(client);
    if (err) {
        client_lose(client);
        return KVPOOL_DISCONNECTED;
    }
    batch_begin(client);
    return 0;
}

/* The next frame of the message that is being received. -ENODATA: there is none. */
static int next_frame(struct kvpool *client, zmq_msg_t *frame)
{
    int more = 0;
    size_t num_bytes = sizeof(more);

    if (zmq_getsockopt(client->socket, ZMQ_RCVMORE, &more, &num_bytes) < 0)
        return -errno;
    if (!more)
        return -ENODATA;
    return zmq_msg_recv(frame, client->socket, 0) < 0 ? -errno : 0;
}

static int replies_take(struct kvpool *client, const Kvpool__Wire__ReplyBatch *batch,
                        zmq_msg_t *frame)
{
    for (size_t i = 0; i < batch->n_replies; i++) {
        const Kvpool__Wire__Reply *reply = batch->replies[i];
        bool has_frame = reply->status == STATUS_OK && reply->id & PENDING_HAS_FRAME &&
                         reply->result_case == KVPOOL__WIRE__REPLY__RESULT_DATA;

        if (has_frame && next_frame(client, frame) < 0)
            return -EPROTO;
        if (reply->id == 0) { /* a whole message of ours was refused; which one, nobody knows */
            pending_resolve_all(client, true, (int)reply->status, reply->message);
            continue;
        }
        struct pending *pending = pending_find(client, reply->id);
        if (pending)
            reply_take(client, pending, reply, has_frame ? frame : NULL);
    }
    return 0;
}

int batch_receive(struct kvpool *client)
{
    zmq_msg_t message, frame;
    const char *what;
    Kvpool__Wire__ReplyBatch *batch;

    zmq_msg_init(&message);
    zmq_msg_init(&frame);
    int err = 0;
    if (zmq_msg_recv(&message, client->socket, ZMQ_DONTWAIT) < 0) {
        err = errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPROTO;
        goto out;
    }
    if (wire_reply_decode(&client->replies, zmq_msg_data(&message), zmq_msg_size(&message), &batch,
                          &what) ||
        wire_reply_check(batch, &what)) {
        err = -EPROTO;
        goto out;
    }
    if (!client->is_operator && batch->boot_id.len == HELLO_ID_BYTES &&
        memcmp(batch->boot_id.data, client->welcome.boot_id, HELLO_ID_BYTES) != 0) {
        client_lose(client); /* another daemon listens there now */
        goto out;
    }
    err = replies_take(client, batch, &frame);

out:
    if (err != -EAGAIN)
        while (next_frame(client, &frame) == 0)
            continue; /* frames that nobody counted on */
    zmq_msg_close(&frame);
    zmq_msg_close(&message);
    return err;
}
