/* tests/client-lib/fake_daemon.c - speaks hello, messages and rings; answers from a table. */
#include "tests/client-lib/fake_daemon.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/caps.h"
#include "proto/codec.h"
#include "proto/hello.h"
#include "proto/ring.h"
#include "proto/status.h"

enum { FAKE_SESSION = 4711, FAKE_ARENA_BYTES = 1 << 16, FAKE_MODEL = 40 };

struct fake_daemon {
    struct fake_options options;
    char session_path[100], requests_path[100], operator_path[100];
    pthread_t thread;
    atomic_bool is_stopping, is_ready;
    _Atomic(enum fake_mood) mood;
    _Atomic uint32_t num_requests, num_messages, num_on_ring, num_models;

    void *zmq, *router;
    int listener, session, daemon_event, client_event;
    struct staging_header *staging;
    uint64_t staging_bytes;
    unsigned char *memory; /* of the decoder */
};

/* ---- the session socket ---- */

static void packet_send(int fd, const void *packet, size_t num_bytes, const int *fds, int num_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 3)];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec part = {(void *)packet, num_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (num_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)num_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)num_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)num_fds);
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void session_drop(struct fake_daemon *fake)
{
    int *fds[] = {&fake->session, &fake->daemon_event, &fake->client_event};
    for (size_t i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    if (fake->staging)
        munmap(fake->staging, fake->staging_bytes);
    fake->staging = NULL;
}

static void welcome_send(struct fake_daemon *fake, int fd)
{
    uint64_t data_bytes = fake->options.staging_bytes ? fake->options.staging_bytes : 1 << 20;
    int memory = memfd_create("staging", MFD_CLOEXEC);
    fake->staging_bytes = RING_DATA_OFFSET + data_bytes;
    assert(memory >= 0 && ftruncate(memory, (off_t)fake->staging_bytes) == 0);
    fake->staging = mmap(NULL, fake->staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert(fake->staging != MAP_FAILED);
    ring_header_init(fake->staging, data_bytes);
    fake->daemon_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fake->client_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    struct welcome welcome = {.magic = WELCOME_MAGIC,
                              .major = HELLO_MAJOR,
                              .session_id = FAKE_SESSION,
                              .staging_bytes = fake->staging_bytes};
    memset(welcome.boot_id, fake->options.boot, sizeof(welcome.boot_id));
    memset(welcome.session_token, 9, sizeof(welcome.session_token));
    snprintf(welcome.endpoint, sizeof(welcome.endpoint), "ipc://%s", fake->requests_path);
    const int fds[] = {memory, fake->daemon_event, fake->client_event};
    packet_send(fd, &welcome, sizeof(welcome), fds, fake->options.no_fds ? 0 : 3);
    close(memory);
}

static void hello_take(struct fake_daemon *fake)
{
    unsigned char packet[HELLO_MAX_BYTES];
    struct hello hello;
    const char *what;
    int fd = accept(fake->listener, NULL, NULL);
    if (fd < 0)
        return;
    ssize_t num = recv(fd, packet, sizeof(packet), 0);
    if (num <= 0) { /* gone before it said anything */
        close(fd);
        return;
    }
    assert(hello_check(packet, (size_t)num, &hello, &what) == 0);
    if (fake->options.refusal) {
        struct refusal refusal = {
            .magic = REFUSAL_MAGIC, .major = HELLO_MAJOR, .status = fake->options.refusal};
        if (fake->options.refusal_major)
            refusal.major = fake->options.refusal_major;
        snprintf(refusal.message, sizeof(refusal.message), "this one speaks %u.%u", refusal.major,
                 refusal.minor);
        packet_send(fd, &refusal, sizeof(refusal), NULL, 0);
        close(fd);
        return;
    }
    session_drop(fake);
    fake->session = fd;
    welcome_send(fake, fd);
}

static void arena_send(struct fake_daemon *fake)
{
    int memory = memfd_create("arena", MFD_CLOEXEC);
    assert(memory >= 0 && ftruncate(memory, FAKE_ARENA_BYTES) == 0);
    assert(pwrite(memory, "slot", 4, 0) == 4);
    struct arena_packet packet = {ARENA_MAGIC, 3, 4096, FAKE_ARENA_BYTES, 1, 0};
    packet_send(fake->session, &packet, sizeof(packet), &memory, 1);
    close(memory);
}

/* ---- messages ---- */

struct canned {
    Kvpool__Wire__Reply reply;
    Kvpool__Wire__TableResult table_result;
    Kvpool__Wire__Table table, *tables[1];
    Kvpool__Wire__MatchResult match;
    Kvpool__Wire__ModelResult model;
    Kvpool__Wire__ArenaResult arena;
    Kvpool__Wire__StepResult step;
    Kvpool__Wire__DataResult data;
    Kvpool__Wire__StatsResult stats;
    Kvpool__Wire__ListResult list;
};

static uint32_t slots[] = {1, 2, 3}, generations[] = {7, 8, 9};
static uint64_t sizes[] = {1024};
static char stats_json[] = "{\"daemon\": \"fake\", \"hits\": 7}";
static char status_json[] =
    "{\"version\": \"fake\", \"draining\": true, \"sessions\": 1, "
    "\"budget_bytes\": 8192, \"charged_bytes\": 4096, \"idle_bytes\": 1024, \"uptime_ms\": "
    "90061000, "
    "\"fallbacks\": [\"no_huge_pages\"], \"tiers\": ["
    "{\"name\": \"device\", \"mode\": \"on\", \"budget_bytes\": 1099400000000, "
    "\"charged_bytes\": 107200000000, \"evictable\": 1000000, \"held\": 9, "
    "\"coldest_age_ms\": 86399999, \"hit_tokens\": 4294967295, \"stored_bytes\": 0, "
    "\"fetched_bytes\": 0, \"failed\": 0, \"skipped\": {\"off\": 0, \"busy\": 12, \"late\": 3}}, "
    "{\"name\": \"disk\", \"mode\": \"on\", \"state\": \"ok\", \"phase\": \"recovering\", "
    "\"budget_bytes\": 1099400000000, \"charged_bytes\": 2047, \"idle_bytes\": 1024, "
    "\"evictable\": 9999999, "
    "\"held\": 0, \"coldest_age_ms\": 604800000, \"hit_tokens\": 7, "
    "\"stored_bytes\": 1099400000000, \"fetched_bytes\": 107270000000, \"failed\": 2, "
    "\"skipped\": {\"off\": 0}}]}";
static char list_json[] =
    "[{\"name\": \"alice\", \"layers\": 128, \"groups\": 8, \"block_tokens\": 16, "
    "\"fingerprint\": \"00112233445566778899\", \"tenant\": \"alice\", \"pid\": 4194304, "
    "\"outstanding\": 64, \"attached\": 4, \"ending\": true, \"quarantined\": 3, \"limit_bytes\": "
    "null, \"guarantee_bytes\": 1024, "
    "\"charged_bytes\": "
    "4096, \"weight\": 3, \"session\": 9223372036854775807, \"flags\": 1, \"query_tokens\": 4, "
    "\"hit_tokens\": 3, \"readers\": [\"bob\"], \"fillers\": []}]";

/* The whole prompt but one token matches; a sequence's length is its own number. */
static void reply_table(struct canned *out, uint64_t length, bool want_table)
{
    kvpool__wire__table_result__init(&out->table_result);
    kvpool__wire__table__init(&out->table);
    out->table.slots = slots;
    out->table.generations = generations;
    out->table.n_slots = out->table.n_generations = 3;
    out->table.num_shared = 1;
    out->tables[0] = &out->table;
    out->table_result.n_tables = want_table;
    out->table_result.tables = out->tables;
    out->table_result.length = length;
    out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_TABLE;
    out->reply.table = &out->table_result;
}

static void reply_match(struct canned *out, const Kvpool__Wire__Prompt *prompt)
{
    kvpool__wire__match_result__init(&out->match);
    out->match.matched = prompt->tokens.len / 4 - 1;
    out->match.arriving = prompt->model; /* what handle came */
    out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_MATCH;
    out->reply.match = &out->match;
}

static void reply_model(struct fake_daemon *fake, struct canned *out)
{
    kvpool__wire__model_result__init(&out->model);
    out->model.model = FAKE_MODEL + fake->num_models++;
    out->model.n_block_bytes = out->model.n_stride_bytes = 1;
    out->model.block_bytes = out->model.stride_bytes = sizes;
    out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_MODEL;
    out->reply.model = &out->model;
}

static void reply_data(struct canned *out, uint64_t num_bytes)
{
    kvpool__wire__data_result__init(&out->data);
    out->data.num_bytes = num_bytes;
    out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_DATA;
    out->reply.data = &out->data;
}

/* Sequence 404 is not found. */
static void reply_make(struct fake_daemon *fake, const Kvpool__Wire__Request *request,
                       struct canned *out)
{
    kvpool__wire__reply__init(&out->reply);
    out->reply.id = request->id;
    switch (request->verb_case) {
    case KVPOOL__WIRE__REQUEST__VERB_REGISTER_MODEL:
        reply_model(fake, out);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_OPEN_ARENA:
        kvpool__wire__arena_result__init(&out->arena);
        out->arena.arena = 3;
        out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_ARENA;
        out->reply.arena = &out->arena;
        arena_send(fake);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_ALLOCATE:
        reply_table(out, request->allocate->sequence, request->allocate->want_table);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_APPEND:
        reply_table(out, request->append->tokens.len / 4, request->append->want_table);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_MATCH:
        reply_match(out, request->match->prompt);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_RELEASE:
        if (request->release->sequence == 404) {
            out->reply.status = STATUS_NOT_FOUND;
            out->reply.message = "there is no sequence 404";
        }
        break;
    case KVPOOL__WIRE__REQUEST__VERB_READ:
        reply_data(out, request->read->num_blocks * sizes[0]);
        break;
    case KVPOOL__WIRE__REQUEST__VERB_STEP:
        kvpool__wire__step_result__init(&out->step);
        out->step.step = 66;
        out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_STEP;
        out->reply.step = &out->step;
        break;
    case KVPOOL__WIRE__REQUEST__VERB_STATS:
        kvpool__wire__stats_result__init(&out->stats);
        out->stats.json = stats_json;
        out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_STATS;
        out->reply.stats = &out->stats;
        break;
    case KVPOOL__WIRE__REQUEST__VERB_LIST:
        kvpool__wire__list_result__init(&out->list);
        out->list.json = strcmp(request->list->what, "status") ? list_json : status_json;
        out->reply.result_case = KVPOOL__WIRE__REPLY__RESULT_LIST;
        out->reply.list = &out->list;
        break;
    default: /* nothing but OK */
        break;
    }
}

static void replies_send(struct fake_daemon *fake, zmq_msg_t *routing, struct canned *canned,
                         size_t num)
{
    static unsigned char frame[1 << 20];
    Kvpool__Wire__ReplyBatch batch = KVPOOL__WIRE__REPLY_BATCH__INIT;
    Kvpool__Wire__Reply *replies[WIRE_MAX_REQUESTS];
    uint8_t boot_id[HELLO_ID_BYTES];
    memset(boot_id, fake->options.boot, sizeof(boot_id));
    for (size_t i = 0; i < num; i++)
        replies[i] = &canned[i].reply;
    batch.major = WIRE_MAJOR;
    batch.boot_id = (ProtobufCBinaryData){sizeof(boot_id), boot_id};
    batch.replies = replies;
    batch.n_replies = num;
    size_t num_bytes = kvpool__wire__reply_batch__pack(&batch, frame);

    zmq_msg_t copy;
    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, routing);
    zmq_msg_send(&copy, fake->router, ZMQ_SNDMORE);
    size_t num_frames = 0, sent = 0;
    for (size_t i = 0; i < num; i++)
        num_frames += canned[i].reply.result_case == KVPOOL__WIRE__REPLY__RESULT_DATA;
    zmq_send(fake->router, frame, num_bytes, num_frames ? ZMQ_SNDMORE : 0);
    for (size_t i = 0; i < num; i++) {
        if (canned[i].reply.result_case != KVPOOL__WIRE__REPLY__RESULT_DATA)
            continue;
        memset(frame, 0x5a, canned[i].data.num_bytes);
        zmq_send(fake->router, frame, canned[i].data.num_bytes,
                 ++sent < num_frames ? ZMQ_SNDMORE : 0);
    }
}

static void bytes_send(struct fake_daemon *fake, zmq_msg_t *routing, size_t num_bytes)
{
    unsigned char *bytes = calloc(1, num_bytes);
    zmq_msg_t copy;
    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, routing);
    zmq_msg_send(&copy, fake->router, ZMQ_SNDMORE);
    memset(bytes, 0xff, num_bytes);
    zmq_send(fake->router, bytes, num_bytes, 0);
    free(bytes);
}

/* False: it dies. */
static bool batch_answer(struct fake_daemon *fake, zmq_msg_t *routing,
                         const Kvpool__Wire__Batch *batch)
{
    static struct canned canned[WIRE_MAX_REQUESTS + 1];
    enum fake_mood mood = fake->mood;
    size_t num = batch->n_requests;

    for (size_t i = 0; i < num && mood != FAKE_DIES && mood != FAKE_SILENT; i++)
        reply_make(fake, batch->requests[i], &canned[i]);
    switch (mood) {
    case FAKE_SILENT:
        return true;
    case FAKE_DIES:
        return false;
    case FAKE_REVERSES:
        while (num > 0)
            replies_send(fake, routing, &canned[--num], 1);
        return true;
    case FAKE_OVERSIZE:
        bytes_send(fake, routing, WIRE_MAX_REPLY_BYTES + 1);
        return true;
    case FAKE_GARBAGE:
        bytes_send(fake, routing, 100);
        return true;
    case FAKE_REFUSES_ALL:
        kvpool__wire__reply__init(&canned[0].reply);
        canned[0].reply.status = STATUS_MALFORMED;
        replies_send(fake, routing, canned, 1);
        return true;
    case FAKE_ANSWERS_TWICE:
        canned[num] = canned[0];
        replies_send(fake, routing, canned, num + 1);
        replies_send(fake, routing, canned, num);
        return true;
    default:
        replies_send(fake, routing, canned, num);
        return true;
    }
}

static bool message_take(struct fake_daemon *fake)
{
    struct wire_arena arena;
    Kvpool__Wire__Batch *batch;
    const char *what;
    zmq_msg_t routing, message, frame;
    zmq_msg_init(&routing);
    zmq_msg_init(&message);
    zmq_msg_init(&frame);

    bool lives = true;
    if (zmq_msg_recv(&routing, fake->router, ZMQ_DONTWAIT) >= 0) {
        assert(zmq_msg_recv(&message, fake->router, 0) >= 0);
        bool has_more = zmq_msg_more(&message);
        while (has_more && zmq_msg_recv(&frame, fake->router, 0) >= 0)
            has_more = zmq_msg_more(&frame);
        wire_arena_init(&arena, fake->memory, WIRE_ARENA_BYTES);
        int status = wire_batch_decode(&arena, zmq_msg_data(&message), zmq_msg_size(&message),
                                       &batch, &what);
        assert(status == 0 && wire_batch_check(batch, &what) == 0);
        assert(batch->session == FAKE_SESSION || batch->session == 0);
        fake->num_messages++;
        fake->num_requests += (uint32_t)batch->n_requests;
        lives = batch_answer(fake, &routing, batch);
    }
    zmq_msg_close(&routing);
    zmq_msg_close(&message);
    zmq_msg_close(&frame);
    return lives;
}

/* ---- rings ---- */

static void completion_put(struct fake_daemon *fake, const struct ring_submission *submission)
{
    struct ring_words *words = &fake->staging->completions;
    uint64_t tail = atomic_load(&words->tail);
    struct ring_completion *entries =
        (void *)((char *)fake->staging + fake->staging->completions_offset);
    entries[tail % RING_ENTRIES] =
        (struct ring_completion){.id = submission->id,
                                 .status = submission->object == 404 ? STATUS_NOT_FOUND : STATUS_OK,
                                 .value = (uint32_t)submission->value,
                                 .object = submission->verb == RING_STEP ? 77 : 0};
    atomic_store(&words->tail, tail + 1);
    if (atomic_exchange(&words->armed, 0)) {
        uint64_t one = 1;
        (void)!write(fake->client_event, &one, sizeof(one));
    }
}

static void ring_serve(struct fake_daemon *fake)
{
    if (!fake->staging || fake->mood == FAKE_SILENT)
        return;
    struct ring_words *words = &fake->staging->submissions;
    uint64_t head = atomic_load(&words->head);
    while (head != atomic_load(&words->tail)) {
        const struct ring_submission *entries =
            (void *)((char *)fake->staging + fake->staging->submissions_offset);
        struct ring_submission submission = entries[head % RING_ENTRIES];
        const char *what;
        assert(ring_submission_check(&submission, fake->staging->data_bytes, &what) == 0);
        atomic_store(&words->head, ++head);
        fake->num_on_ring++;
        completion_put(fake, &submission);
    }
}

/* ---- the thread ---- */

static bool fake_sleep(struct fake_daemon *fake, zmq_pollitem_t *items)
{
    if (fake->staging) {
        atomic_store(&fake->staging->submissions.armed, 1);
        if (atomic_load(&fake->staging->submissions.tail) !=
                atomic_load(&fake->staging->submissions.head) &&
            fake->mood != FAKE_SILENT)
            return false;
    }
    zmq_poll(items, fake->session >= 0 ? 4 : 2, 10);
    return true;
}

static void fake_serve(struct fake_daemon *fake)
{
    bool lives = true;
    while (lives && !fake->is_stopping) {
        zmq_pollitem_t items[] = {{.socket = fake->router, .events = ZMQ_POLLIN},
                                  {.fd = fake->listener, .events = ZMQ_POLLIN},
                                  {.fd = fake->daemon_event, .events = ZMQ_POLLIN},
                                  {.fd = fake->session, .events = ZMQ_POLLIN}};
        fake_sleep(fake, items);
        uint64_t count;
        if (fake->daemon_event >= 0)
            (void)!read(fake->daemon_event, &count, sizeof(count));
        ring_serve(fake);
        if (items[0].revents)
            lives = message_take(fake);
        if (items[3].revents && fake->session >= 0)
            session_drop(fake); /* a client sends nothing more: it is gone */
        if (items[1].revents)
            hello_take(fake);
    }
}

static void fake_close(struct fake_daemon *fake)
{
    if (fake->listener >= 0)
        close(fake->listener);
    fake->listener = -1;
    unlink(fake->session_path);
    if (fake->router)
        zmq_close(fake->router);
    if (fake->zmq)
        zmq_ctx_term(fake->zmq);
    fake->router = fake->zmq = NULL;
    session_drop(fake); /* last: who sees this end finds the rest closed too */
}

static void fake_listen(struct fake_daemon *fake)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char endpoint[128];
    const int zero = 0;

    fake->zmq = zmq_ctx_new();
    fake->router = zmq_socket(fake->zmq, ZMQ_ROUTER);
    zmq_setsockopt(fake->router, ZMQ_LINGER, &zero, sizeof(zero));
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", fake->requests_path);
    assert(zmq_bind(fake->router, endpoint) == 0);
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", fake->operator_path);
    assert(zmq_bind(fake->router, endpoint) == 0);
    fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, fake->session_path, sizeof(fake->session_path));
    unlink(fake->session_path);
    assert(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    assert(listen(fake->listener, 8) == 0);
}

static void *fake_run(void *state)
{
    struct fake_daemon *fake = state;

    fake_listen(fake);
    fake->is_ready = true;
    fake_serve(fake);
    fake_close(fake);
    return NULL;
}

struct fake_daemon *fake_daemon_start(const struct fake_options *options)
{
    struct fake_daemon *fake = calloc(1, sizeof(*fake));
    assert(fake);
    fake->options = *options;
    fake->listener = fake->session = fake->daemon_event = fake->client_event = -1;
    fake->memory = aligned_alloc(64, WIRE_ARENA_BYTES);
    snprintf(fake->session_path, sizeof(fake->session_path), "%s/%s", options->dir,
             HELLO_SESSION_SOCKET);
    snprintf(fake->requests_path, sizeof(fake->requests_path), "%s/requests.sock", options->dir);
    snprintf(fake->operator_path, sizeof(fake->operator_path), "%s/%s", options->dir,
             HELLO_OPERATOR_SOCKET);
    assert(pthread_create(&fake->thread, NULL, fake_run, fake) == 0);
    while (!fake->is_ready)
        usleep(500);
    return fake;
}

void fake_daemon_stop(struct fake_daemon *fake)
{
    if (!fake)
        return;
    fake->is_stopping = true;
    pthread_join(fake->thread, NULL);
    free(fake->memory);
    free(fake);
}

void fake_daemon_set_mood(struct fake_daemon *fake, enum fake_mood mood)
{
    fake->mood = mood;
}

uint32_t fake_daemon_num_requests(const struct fake_daemon *fake)
{
    return fake->num_requests;
}

uint32_t fake_daemon_num_messages(const struct fake_daemon *fake)
{
    return fake->num_messages;
}

uint32_t fake_daemon_num_on_ring(const struct fake_daemon *fake)
{
    return fake->num_on_ring;
}

uint32_t fake_daemon_num_models(const struct fake_daemon *fake)
{
    return fake->num_models;
}
