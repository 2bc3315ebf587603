/* tests/e2e/raw.c - packets, frames and ring entries as they come. */
#include "tests/e2e/raw.h"

#include "proto/caps.h"
#include "proto/status.h"
#include "tests/support/test.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

/* ---- the session socket --------------------------------------------------------------------- */

int raw_connect(const struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/session.sock", daemon->dir);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void fds_take(struct msghdr *message, int *out_fds)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(fd));
            if (out_fds && i < 3)
                out_fds[i] = fd;
            else
                (void)close(fd);
        }
    }
}

ptrdiff_t raw_packet(int fd, void *out, size_t max, unsigned ms, int *out_fds)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = out, .iov_len = max};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};

    if (poll(&poller, 1, (int)ms) <= 0)
        return -1;
    ssize_t count = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (count <= 0)
        return 0;
    fds_take(&message, out_fds);
    return count;
}

struct hello raw_hello(void)
{
    return (struct hello){.magic = HELLO_MAGIC, .major = HELLO_MAJOR, .minor = HELLO_MINOR};
}

int raw_refusal(const struct daemon *daemon, const void *packet, size_t num_bytes,
                struct refusal *out_refusal)
{
    struct refusal refusal;
    int fd = raw_connect(daemon), status = -1;

    assert_int_equal(send(fd, packet, num_bytes, MSG_NOSIGNAL), (ssize_t)num_bytes);
    ptrdiff_t count = raw_packet(fd, &refusal, sizeof(refusal), 5000, NULL);
    if (count == (ptrdiff_t)sizeof(refusal) && refusal.magic == REFUSAL_MAGIC) {
        status = (int)refusal.status;
        refusal.message[sizeof(refusal.message) - 1] = '\0';
        if (out_refusal)
            *out_refusal = refusal;
        assert_int_equal(raw_packet(fd, &refusal, sizeof(refusal), 5000, NULL), 0); /* closed */
    }
    (void)close(fd);
    return status;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void dealer_connect(struct raw *raw, int queue)
{
    const int zero = 0;

    raw->context = zmq_ctx_new();
    raw->dealer = zmq_socket(raw->context, ZMQ_DEALER);
    assert_non_null(raw->dealer);
    (void)zmq_setsockopt(raw->dealer, ZMQ_LINGER, &zero, sizeof(zero));
    if (queue > 0) {
        (void)zmq_setsockopt(raw->dealer, ZMQ_SNDHWM, &queue, sizeof(queue));
        (void)zmq_setsockopt(raw->dealer, ZMQ_RCVHWM, &queue, sizeof(queue));
    }
    assert_int_equal(zmq_connect(raw->dealer, raw->welcome.endpoint), 0);
}

void raw_open(struct raw *raw, const struct daemon *daemon, const char *token, uint32_t flags,
              int queue)
{
    uint8_t packet[HELLO_MAX_BYTES];
    struct hello hello = raw_hello();

    *raw = (struct raw){.fd = raw_connect(daemon), .fds = {-1, -1, -1}, .next_id = 1};
    hello.flags = flags;
    hello.token_bytes = token ? (uint32_t)strlen(token) : 0;
    memcpy(packet, &hello, sizeof(hello));
    if (token)
        memcpy(packet + sizeof(hello), token, hello.token_bytes);
    size_t num_bytes = sizeof(hello) + hello.token_bytes;
    assert_int_equal(send(raw->fd, packet, num_bytes, MSG_NOSIGNAL), (ssize_t)num_bytes);
    assert_int_equal(raw_packet(raw->fd, &raw->welcome, sizeof(raw->welcome), 10000, raw->fds),
                     (ptrdiff_t)sizeof(raw->welcome));
    assert_int_equal(raw->welcome.magic, WELCOME_MAGIC);
    raw->staging =
        mmap(NULL, raw->welcome.staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fds[0], 0);
    assert_true(raw->staging != MAP_FAILED);
    dealer_connect(raw, queue);
}

void raw_close(struct raw *raw)
{
    (void)zmq_close(raw->dealer);
    (void)zmq_ctx_term(raw->context);
    (void)munmap(raw->staging, raw->welcome.staging_bytes);
    for (size_t i = 0; i < 3; i++)
        (void)close(raw->fds[i]);
    (void)close(raw->fd);
}

bool raw_send(struct raw *raw, const struct raw_frame *frames, size_t count, unsigned ms)
{
    zmq_pollitem_t poller = {.socket = raw->dealer, .events = ZMQ_POLLOUT};

    if (zmq_poll(&poller, 1, (long)ms) <= 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        int flags = ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0);
        if (zmq_send(raw->dealer, frames[i].bytes, frames[i].num_bytes, flags) < 0)
            return false;
    }
    return true;
}

bool raw_batch(struct raw *raw, raw_request **requests, size_t num_requests,
               const struct raw_frame *frames, size_t num_frames, unsigned ms)
{
    Kvpool__Wire__Batch batch = KVPOOL__WIRE__BATCH__INIT;
    struct raw_frame all[WIRE_MAX_REQUESTS + 2];

    assert_true(num_frames <= WIRE_MAX_REQUESTS + 1);
    batch.major = WIRE_MAJOR;
    batch.session = raw->welcome.session_id;
    batch.token =
        (ProtobufCBinaryData){sizeof(raw->welcome.session_token), raw->welcome.session_token};
    batch.requests = requests;
    batch.n_requests = num_requests;
    uint8_t *packed = malloc(kvpool__wire__batch__get_packed_size(&batch) + 1);
    assert_non_null(packed);
    all[0] = (struct raw_frame){packed, kvpool__wire__batch__pack(&batch, packed)};
    for (size_t i = 0; i < num_frames; i++)
        all[i + 1] = frames[i];
    bool is_sent = raw_send(raw, all, num_frames + 1, ms);
    free(packed);
    return is_sent;
}

raw_replies *raw_receive(struct raw *raw, unsigned ms)
{
    zmq_pollitem_t poller = {.socket = raw->dealer, .events = ZMQ_POLLIN};
    raw_replies *replies = NULL;
    int more = 1;

    if (zmq_poll(&poller, 1, (long)ms) <= 0)
        return NULL;
    for (int at = 0; more; at++) {
        zmq_msg_t message;
        (void)zmq_msg_init(&message);
        assert_true(zmq_msg_recv(&message, raw->dealer, 0) >= 0);
        if (at == 0)
            replies = kvpool__wire__reply_batch__unpack(NULL, zmq_msg_size(&message),
                                                        zmq_msg_data(&message));
        more = zmq_msg_more(&message);
        (void)zmq_msg_close(&message);
    }
    assert_non_null(replies); /* whatever was asked, what is answered can be read */
    return replies;
}

void raw_free(raw_replies *replies)
{
    if (replies)
        kvpool__wire__reply_batch__free_unpacked(replies, NULL);
}

uint32_t raw_status(struct raw *raw, uint64_t *out_id)
{
    raw_replies *replies = raw_receive(raw, 10000);
    uint32_t status = UINT32_MAX;

    if (replies && replies->n_replies > 0) {
        status = replies->replies[0]->status;
        if (out_id)
            *out_id = replies->replies[0]->id;
        assert_true(status == 0 || replies->replies[0]->message);
    }
    raw_free(replies);
    return status;
}

uint32_t raw_call(struct raw *raw, raw_request *request)
{
    uint64_t id = 0;

    request->id = raw->next_id++;
    assert_true(raw_batch(raw, &request, 1, NULL, 0, 10000));
    uint32_t status = raw_status(raw, &id);
    if (status != UINT32_MAX)
        assert_int_equal(id, request->id);
    return status;
}

Kvpool__Wire__RegisterModel raw_small_model(void)
{
    Kvpool__Wire__RegisterModel model = KVPOOL__WIRE__REGISTER_MODEL__INIT;

    model.name = "small";
    model.weights_revision = "1";
    model.num_layers = 2;
    model.num_q_heads = 4;
    model.num_kv_heads = 2;
    model.k_head_dim = model.v_head_dim = 16;
    model.dtype = WIRE_F32;
    return model;
}

Kvpool__Wire__RegisterModel raw_opaque_model(void)
{
    Kvpool__Wire__RegisterModel model = KVPOOL__WIRE__REGISTER_MODEL__INIT;

    model.name = "opaque";
    model.weights_revision = "1";
    model.block_tokens = 1;
    model.layout_name = "bytes";
    model.opaque_block_bytes = 256;
    return model;
}

uint32_t raw_register(struct raw *raw, Kvpool__Wire__RegisterModel *model)
{
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *list[] = {&request};

    request.id = raw->next_id++;
    request.verb_case = RAW_REQUEST(REGISTER_MODEL);
    request.register_model = model;
    assert_true(raw_batch(raw, list, 1, NULL, 0, 10000));
    raw_replies *replies = raw_receive(raw, 10000);
    assert_non_null(replies);
    assert_int_equal(replies->n_replies, 1);
    assert_int_equal(replies->replies[0]->id, request.id);
    assert_int_equal(replies->replies[0]->status, STATUS_OK);
    uint32_t handle = replies->replies[0]->model->model;
    raw_free(replies);
    return handle;
}

/* ---- rings ---------------------------------------------------------------------------------- */

void raw_submit(struct raw *raw, const struct ring_submission *entry)
{
    struct staging_header *header = raw->staging;
    struct ring_submission *entries = (void *)((char *)header + RING_SUBMISSIONS_OFFSET);
    uint64_t tail = atomic_load(&header->submissions.tail);
    const uint64_t one = 1;

    entries[tail % RING_ENTRIES] = *entry;
    atomic_store(&header->submissions.tail, tail + 1);
    atomic_store(&header->submissions.armed, 0);
    (void)!write(raw->fds[1], &one, sizeof(one));
}

bool raw_complete(struct raw *raw, struct ring_completion *out, unsigned ms)
{
    struct staging_header *header = raw->staging;
    const struct ring_completion *entries =
        (const void *)((char *)header + RING_COMPLETIONS_OFFSET);
    uint64_t end = now_ms() + ms, head = atomic_load(&header->completions.head);

    while (atomic_load(&header->completions.tail) == head) {
        if (now_ms() > end)
            return false;
        (void)usleep(200);
    }
    *out = entries[head % RING_ENTRIES];
    atomic_store(&header->completions.head, head + 1);
    return true;
}
