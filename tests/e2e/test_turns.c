/*
 * tests/e2e/test_turns.c - verbs of one sequence are carried out in the order in which they are
 * sent, however many are sent at once, over the socket and the rings.
 */
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Blocks of one token: a prompt of PROMPT tokens is named beside the owner, one of LONG takes it
 * some 10 ms. */
enum { PROMPT = 1000, GROWTH = 24, LONG = 260000, BLOCKERS = 10, MAX_REQUESTS = 32 };

static struct daemon daemon_;
static uint32_t *tokens, model_used;

static int start(void **state)
{
    tokens = malloc(LONG * sizeof(*tokens));
    tokens_make(tokens, LONG, 3);
    daemon_start(&daemon_, "pool-bytes: 64MiB\nmax-sequence-blocks: 262144\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    free(tokens);
    return 0;
}

/* ---- requests of one batch ------------------------------------------------------------------ */

struct batch {
    struct raw *raw;
    raw_request requests[MAX_REQUESTS], *list[MAX_REQUESTS];
    uint64_t first_id;
    size_t count;
    Kvpool__Wire__Prompt prompts[MAX_REQUESTS];
    union {
        Kvpool__Wire__Allocate allocate;
        Kvpool__Wire__Append append;
        Kvpool__Wire__Fork fork;
        Kvpool__Wire__Truncate truncate;
        Kvpool__Wire__SequenceRef ref;
        Kvpool__Wire__Match match;
        Kvpool__Wire__Cancel cancel;
        Kvpool__Wire__Write write;
        Kvpool__Wire__Step step;
    } messages[MAX_REQUESTS];
};

static void batch_begin(struct batch *batch, struct raw *raw)
{
    batch->raw = raw;
    batch->first_id = raw->next_id;
    batch->count = 0;
}

static raw_request *add(struct batch *batch, uint32_t verb)
{
    raw_request *request = &batch->requests[batch->count];

    kvpool__wire__request__init(request);
    request->id = batch->raw->next_id++;
    request->verb_case = verb;
    request->publish = &batch->messages[batch->count].ref;
    batch->list[batch->count++] = request;
    return request;
}

static Kvpool__Wire__Prompt *prompt_of(struct batch *batch, uint32_t num_tokens)
{
    Kvpool__Wire__Prompt *prompt = &batch->prompts[batch->count];

    kvpool__wire__prompt__init(prompt);
    prompt->model = model_used;
    prompt->tokens = (ProtobufCBinaryData){num_tokens * sizeof(*tokens), (uint8_t *)tokens};
    return prompt;
}

static void add_allocate(struct batch *batch, uint64_t sequence, uint32_t num_tokens)
{
    Kvpool__Wire__Allocate *message = &batch->messages[batch->count].allocate;

    kvpool__wire__allocate__init(message);
    message->sequence = sequence;
    message->prompt = prompt_of(batch, num_tokens);
    add(batch, RAW_REQUEST(ALLOCATE));
}

static raw_request *add_append(struct batch *batch, uint64_t sequence)
{
    Kvpool__Wire__Append *message = &batch->messages[batch->count].append;

    kvpool__wire__append__init(message);
    message->sequence = sequence;
    message->tokens = (ProtobufCBinaryData){GROWTH * sizeof(*tokens), (uint8_t *)tokens};
    return add(batch, RAW_REQUEST(APPEND));
}

static void add_fork(struct batch *batch, uint64_t sequence, uint64_t child)
{
    Kvpool__Wire__Fork *message = &batch->messages[batch->count].fork;

    kvpool__wire__fork__init(message);
    message->sequence = sequence;
    message->child = child;
    add(batch, RAW_REQUEST(FORK));
}

static void add_truncate(struct batch *batch, uint64_t sequence, uint64_t num_tokens)
{
    Kvpool__Wire__Truncate *message = &batch->messages[batch->count].truncate;

    kvpool__wire__truncate__init(message);
    message->sequence = sequence;
    message->num_tokens = num_tokens;
    add(batch, RAW_REQUEST(TRUNCATE));
}

static void add_ref(struct batch *batch, uint32_t verb, uint64_t sequence)
{
    Kvpool__Wire__SequenceRef *message = &batch->messages[batch->count].ref;

    kvpool__wire__sequence_ref__init(message);
    message->sequence = sequence;
    add(batch, verb);
}

static void batch_send(struct batch *batch)
{
    assert_true(raw_batch(batch->raw, batch->list, batch->count, NULL, 0, 10000));
}

/* ---- what is answered ----------------------------------------------------------------------- */

struct answers {
    uint32_t status[MAX_REQUESTS];
    uint64_t length[MAX_REQUESTS], step;
    uint32_t place[MAX_REQUESTS]; /* the how-manieth that came */
};

static void receive(struct batch *batch, struct answers *out)
{
    size_t count = 0;

    memset(out, 0xFF, sizeof(*out));
    while (count < batch->count) {
        raw_replies *replies = raw_receive(batch->raw, 20000);
        assert_non_null(replies);
        for (size_t i = 0; i < replies->n_replies; i++) {
            const Kvpool__Wire__Reply *reply = replies->replies[i];
            if (reply->id < batch->first_id) /* of blockers */
                continue;
            size_t at = reply->id - batch->first_id;
            assert_true(at < batch->count);
            assert_int_equal(out->status[at], UINT32_MAX); /* each exactly once */
            out->status[at] = reply->status;
            out->place[at] = (uint32_t)count++;
            if (reply->result_case == KVPOOL__WIRE__REPLY__RESULT_TABLE)
                out->length[at] = reply->table->length;
            if (reply->result_case == KVPOOL__WIRE__REPLY__RESULT_STEP)
                out->step = reply->step->step;
        }
        raw_free(replies);
    }
}

static void open_with_model(struct raw *raw)
{
    Kvpool__Wire__RegisterModel model = raw_opaque_model();

    raw_open(raw, &daemon_, NULL, 0, 0);
    model_used = raw_register(raw, &model);
}

static void open_with_layers(struct raw *raw)
{
    Kvpool__Wire__RegisterModel model = KVPOOL__WIRE__REGISTER_MODEL__INIT;

    raw_open(raw, &daemon_, NULL, 0, 0);
    model.name = "layers";
    model.weights_revision = "1";
    model.block_tokens = 1;
    model.num_layers = 2;
    model.num_q_heads = model.num_kv_heads = 2;
    model.k_head_dim = model.v_head_dim = 16;
    model.dtype = WIRE_F32;
    model_used = raw_register(raw, &model);
}

/* The namer has work for some 100 ms: what it is asked next is unfinished for so long. */
static void block_namer(struct raw *raw)
{
    struct batch *batch = calloc(1, sizeof(*batch));

    for (uint32_t sent = 0; sent < BLOCKERS; sent += BLOCKERS / 2) {
        batch_begin(batch, raw);
        for (uint32_t i = 0; i < BLOCKERS / 2; i++) {
            Kvpool__Wire__Match *message = &batch->messages[batch->count].match;
            kvpool__wire__match__init(message);
            message->prompt = prompt_of(batch, LONG);
            add(batch, RAW_REQUEST(MATCH));
        }
        batch_send(batch);
    }
    free(batch);
}

/* A session that has the namer blocked, and a batch of it: its sequence 1 is not named yet. */
static struct batch *begin_behind_namer(struct raw *raw)
{
    struct batch *batch = calloc(1, sizeof(*batch));

    assert_non_null(batch);
    open_with_model(raw);
    block_namer(raw);
    batch_begin(batch, raw);
    add_allocate(batch, 1, PROMPT);
    return batch;
}

/* It carries on for sessions that are gone: the last of its work is answered when it has none. */
static void await_namer(void)
{
    Kvpool__Wire__Match match = KVPOOL__WIRE__MATCH__INIT;
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    struct raw raw;
    uint32_t status;

    open_with_model(&raw);
    prompt.model = model_used;
    prompt.tokens = (ProtobufCBinaryData){LONG * sizeof(*tokens), (uint8_t *)tokens};
    match.prompt = &prompt;
    request.verb_case = RAW_REQUEST(MATCH);
    request.match = &match;
    do {
        status = raw_call(&raw, &request);
    } while (status == STATUS_OVERLOADED);
    assert_int_equal(status, STATUS_OK);
    raw_close(&raw);
}

/* Everything sent so far was received: an answer came to what needs no turn. */
static void await_receipt(struct raw *raw)
{
    Kvpool__Wire__StatsRequest stats = KVPOOL__WIRE__STATS_REQUEST__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *list[] = {&request};
    bool is_answered = false;

    request.id = raw->next_id++;
    request.verb_case = RAW_REQUEST(STATS);
    request.stats = &stats;
    assert_true(raw_batch(raw, list, 1, NULL, 0, 10000));
    while (!is_answered) {
        raw_replies *replies = raw_receive(raw, 20000);
        assert_non_null(replies);
        for (size_t i = 0; i < replies->n_replies; i++)
            is_answered |= replies->replies[i]->id == request.id;
        raw_free(replies);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_whole_life_can_be_sent_at_once(void **state)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    struct answers answers;
    struct raw raw;

    open_with_model(&raw);
    batch_begin(batch, &raw);
    add_allocate(batch, 1, PROMPT); /* beside the owner: the rest comes before it is named */
    add_append(batch, 1);
    add_fork(batch, 1, 2);
    add_append(batch, 2);
    add_truncate(batch, 1, PROMPT - 1);
    add_ref(batch, RAW_REQUEST(PUBLISH), 2);
    add_ref(batch, RAW_REQUEST(RELEASE), 2);
    add_append(batch, 1);
    add_ref(batch, RAW_REQUEST(RELEASE), 1);
    add_append(batch, 1); /* gone */
    batch_send(batch);
    receive(batch, &answers);
    for (uint32_t at = 0; at < 9; at++)
        assert_int_equal(answers.status[at], STATUS_OK);
    assert_int_equal(answers.status[9], STATUS_NOT_FOUND);
    assert_int_equal(answers.length[0], PROMPT);
    assert_int_equal(answers.length[1], PROMPT + GROWTH);
    assert_int_equal(answers.length[2], PROMPT + GROWTH);     /* the child */
    assert_int_equal(answers.length[3], PROMPT + 2 * GROWTH); /* the child again */
    assert_int_equal(answers.length[4], PROMPT - 1);
    assert_int_equal(answers.length[5], PROMPT + 2 * GROWTH);
    assert_int_equal(answers.length[7], PROMPT - 1 + GROWTH);
    raw_close(&raw);
    stat_await(*state, "pool_sequences", 0, 5000);
    stat_await(*state, "requests_held", 0, 5000);
    free(batch);
}

static void another_sequence_does_not_wait(void **state)
{
    struct answers answers;
    struct raw raw;

    (void)state;
    struct batch *batch = begin_behind_namer(&raw);
    add_append(batch, 1);
    add_allocate(batch, 2, 10);
    add_append(batch, 2);
    batch_send(batch);
    receive(batch, &answers);
    for (uint32_t at = 0; at < 4; at++)
        assert_int_equal(answers.status[at], STATUS_OK);
    assert_true(answers.place[2] < answers.place[0]);
    assert_true(answers.place[3] < answers.place[0]);
    assert_true(answers.place[0] < answers.place[1]);
    raw_close(&raw);
    free(batch);
}

static void one_that_waits_can_be_cancelled_or_time_out(void **state)
{
    struct answers answers;
    struct raw raw;

    (void)state;
    struct batch *batch = begin_behind_namer(&raw);
    add_append(batch, 1)->deadline_ms = 10;
    uint64_t second = add_append(batch, 1)->id;
    add_append(batch, 1);
    Kvpool__Wire__Cancel *cancel = &batch->messages[batch->count].cancel;
    kvpool__wire__cancel__init(cancel);
    cancel->request = second;
    add(batch, RAW_REQUEST(CANCEL));
    batch_send(batch);
    receive(batch, &answers);
    assert_int_equal(answers.status[0], STATUS_OK);
    assert_int_equal(answers.status[1], STATUS_TIMEOUT);
    assert_int_equal(answers.status[2], STATUS_CANCELLED);
    assert_int_equal(answers.status[3], STATUS_OK);
    assert_int_equal(answers.status[4], STATUS_OK);
    assert_int_equal(answers.length[3], PROMPT + GROWTH); /* neither of them was carried out */
    raw_close(&raw);
    free(batch);
}

static void a_session_that_ends_leaves_no_turns(void **state)
{
    struct raw raw;

    struct batch *batch = begin_behind_namer(&raw);
    for (uint32_t at = 0; at < 20; at++)
        add_append(batch, 1);
    batch_send(batch);
    await_receipt(&raw);
    assert_true(stat_read(*state, "requests_held") > 0);
    raw_close(&raw);
    stat_await(*state, "requests_held", 0, 1000);
    stat_await(*state, "held_bytes", 0, 1000);
    stat_await(*state, "pool_sequences", 0, 5000);
    await_namer();
    free(batch);
}

static void rings_and_socket_share_the_lines(void **state)
{
    struct answers answers;
    struct ring_completion completion;
    struct raw raw;
    const struct ring_submission entries[] = {
        {.id = 901, .verb = RING_FORK, .object = 1, .value = 2},
        {.id = 902, .verb = RING_TRUNCATE, .object = 2, .value = 10},
        {.id = 903, .verb = RING_RELEASE, .object = 2},
        {.id = 904, .verb = RING_TRUNCATE, .object = 1, .value = 50},
    };
    uint32_t place[4] = {0};

    (void)state;
    struct batch *batch = begin_behind_namer(&raw);
    batch_send(batch);
    await_receipt(&raw);
    for (uint32_t at = 0; at < ARRAY_SIZE(entries); at++)
        raw_submit(&raw, &entries[at]);
    for (uint32_t at = 0; at < ARRAY_SIZE(entries); at++) {
        assert_true(raw_complete(&raw, &completion, 20000));
        assert_int_equal(completion.status, STATUS_OK);
        place[completion.id - entries[0].id] = at;
    }
    assert_int_equal(place[0], 0);
    assert_true(place[1] < place[2]); /* of the child; the parent's comes whenever it likes */
    receive(batch, &answers);
    assert_int_equal(answers.status[0], STATUS_OK);
    assert_int_equal(answers.length[0], PROMPT);
    batch_begin(batch, &raw);
    add_append(batch, 1);
    add_append(batch, 2);
    batch_send(batch);
    receive(batch, &answers);
    assert_int_equal(answers.length[0], 50 + GROWTH);
    assert_int_equal(answers.status[1], STATUS_NOT_FOUND);
    raw_close(&raw);
    free(batch);
}

/* A step waits for each of its sequences; an attend, and the step's end, for the attends before. */
static void a_step_waits_for_all_its_sequences(void **state)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    Kvpool__Wire__Row rows[2], *row_list[] = {&rows[0], &rows[1]};
    struct answers answers;
    struct ring_completion completion;
    struct raw raw;

    (void)state;
    open_with_model(&raw);
    block_namer(&raw);
    raw_close(&raw); /* its prompts are still named */
    open_with_layers(&raw);
    batch_begin(batch, &raw);
    add_allocate(batch, 1, 10);
    add_allocate(batch, 2, PROMPT);
    Kvpool__Wire__Step *step = &batch->messages[batch->count].step;
    kvpool__wire__step__init(step);
    for (uint32_t at = 0; at < 2; at++) {
        kvpool__wire__row__init(&rows[at]);
        rows[at].sequence = at + 1;
        rows[at].tokens = (ProtobufCBinaryData){sizeof(*tokens), (uint8_t *)tokens};
    }
    step->rows = row_list;
    step->n_rows = 2;
    add(batch, RAW_REQUEST(STEP));
    batch_send(batch);
    receive(batch, &answers);
    for (uint32_t at = 0; at < 3; at++)
        assert_int_equal(answers.status[at], STATUS_OK);
    assert_true(answers.place[1] < answers.place[2]);
    struct ring_submission entry = {.verb = RING_ATTEND, .object = answers.step, .dtype = WIRE_F32};
    for (entry.id = 1; entry.id <= 3; entry.id++) /* the same layer again and again */
        raw_submit(&raw, &entry);
    entry.verb = RING_END_STEP;
    entry.flags = RING_ABANDON;
    raw_submit(&raw, &entry);
    for (uint64_t id = 1; id <= 4; id++) {
        assert_true(raw_complete(&raw, &completion, 20000));
        assert_int_equal(completion.id, id);
        assert_int_equal(completion.status, STATUS_OK);
    }
    raw_close(&raw);
    await_namer();
    free(batch);
}

/* The data frame of a Write that waits is its own, also after its message is gone. */
static void a_write_that_waits_keeps_its_data(void **state)
{
    uint8_t data[2][4 * 256], got[4 * 256];
    const struct raw_frame frames[] = {{data[0], sizeof(data[0])}, {data[1], sizeof(data[1])}};
    struct answers answers;
    struct raw raw;

    (void)state;
    memset(data[0], 0xA1, sizeof(data[0]));
    memset(data[1], 0xB2, sizeof(data[1]));
    struct batch *batch = begin_behind_namer(&raw);
    batch->messages[0].allocate.unfilled = true;
    batch->prompts[0].salt = (ProtobufCBinaryData){5, (uint8_t *)"write"}; /* found by nobody */
    for (uint32_t at = 0; at < 2; at++) {
        Kvpool__Wire__Write *write = &batch->messages[batch->count].write;
        kvpool__wire__write__init(write);
        write->sequence = 1;
        write->first_block = 4 * at;
        write->num_blocks = 4;
        add(batch, RAW_REQUEST(WRITE));
    }
    add_ref(batch, RAW_REQUEST(FILL), 1);
    assert_true(raw_batch(&raw, batch->list, batch->count, frames, 2, 10000));
    receive(batch, &answers);
    for (uint32_t at = 0; at < 4; at++)
        assert_int_equal(answers.status[at], STATUS_OK);
    for (uint32_t at = 0; at < 2; at++) {
        Kvpool__Wire__Read read = KVPOOL__WIRE__READ__INIT;
        raw_request request = KVPOOL__WIRE__REQUEST__INIT;
        read.sequence = 1;
        read.first_block = 4 * at;
        read.num_blocks = 4;
        read.in_staging = true;
        request.verb_case = RAW_REQUEST(READ);
        request.read = &read;
        assert_int_equal(raw_call(&raw, &request), STATUS_OK);
        memcpy(got, (char *)raw.staging + RING_DATA_OFFSET, sizeof(got));
        assert_memory_equal(got, data[at], sizeof(got));
    }
    raw_close(&raw);
    free(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_life_can_be_sent_at_once),
        cmocka_unit_test(another_sequence_does_not_wait),
        cmocka_unit_test(one_that_waits_can_be_cancelled_or_time_out),
        cmocka_unit_test(a_session_that_ends_leaves_no_turns),
        cmocka_unit_test(rings_and_socket_share_the_lines),
        cmocka_unit_test(a_step_waits_for_all_its_sequences),
        cmocka_unit_test(a_write_that_waits_keeps_its_data),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
