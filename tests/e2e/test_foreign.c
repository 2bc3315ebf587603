/*
 * tests/e2e/test_foreign.c - out of order, replayed, expired, or another's: a clear answer, and the
 * operator's lists are what they were.
 */
#include "proto/caps.h"
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40 };

static struct daemon daemon_;
static struct raw mine,
    theirs; /* of two tenants; both have sequences 1 (filled) and 2 (unfilled) */
static uint64_t my_step, their_step;

/* ---- requests ------------------------------------------------------------------------------- */

static const struct verb {
    uint32_t verb;
    const ProtobufCMessageDescriptor *message;
} sequence_verbs[] = {
    {RAW_REQUEST(APPEND), &kvpool__wire__append__descriptor},
    {RAW_REQUEST(PUBLISH), &kvpool__wire__sequence_ref__descriptor},
    {RAW_REQUEST(FILL), &kvpool__wire__sequence_ref__descriptor},
    {RAW_REQUEST(FORK), &kvpool__wire__fork__descriptor},
    {RAW_REQUEST(TRUNCATE), &kvpool__wire__truncate__descriptor},
    {RAW_REQUEST(RELEASE), &kvpool__wire__sequence_ref__descriptor},
    {RAW_REQUEST(PREEMPT), &kvpool__wire__sequence_ref__descriptor},
    {RAW_REQUEST(RESUME), &kvpool__wire__resume__descriptor},
    {RAW_REQUEST(WRITE), &kvpool__wire__write__descriptor},
    {RAW_REQUEST(READ), &kvpool__wire__read__descriptor},
};

static uint8_t token_bytes[4 * TOKENS];

/* Asks with a verb whose message is set up by hand. */
static uint32_t ask(struct raw *raw, uint32_t verb, void *message)
{
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;

    request.verb_case = verb;
    request.publish = message;
    return raw_call(raw, &request);
}

/* A verb about @sequence: all these messages begin with it. */
static uint32_t ask_about(struct raw *raw, const struct verb *verb, uint64_t sequence)
{
    _Alignas(16) uint8_t memory[256];

    assert_true(verb->message->sizeof_message <= sizeof(memory));
    protobuf_c_message_init(verb->message, memory);
    assert_string_equal(verb->message->fields[0].name, "sequence");
    memcpy(memory + verb->message->fields[0].offset, &sequence, sizeof(sequence));
    if (verb->verb == RAW_REQUEST(APPEND)) {
        Kvpool__Wire__Append *append = (void *)memory;
        append->tokens = (ProtobufCBinaryData){16, token_bytes};
    } else if (verb->verb == RAW_REQUEST(WRITE)) {
        Kvpool__Wire__Write *write = (void *)memory;
        write->num_blocks = 1;
        write->in_staging = true;
    } else if (verb->verb == RAW_REQUEST(READ)) {
        Kvpool__Wire__Read *read = (void *)memory;
        read->num_blocks = 1;
        read->in_staging = true;
    } else if (verb->verb == RAW_REQUEST(FORK)) {
        ((Kvpool__Wire__Fork *)(void *)memory)->child = sequence + 1000;
    }
    return ask(raw, verb->verb, memory);
}

static uint32_t register_small(struct raw *raw, uint32_t num_q_heads)
{
    Kvpool__Wire__RegisterModel model = raw_small_model();

    model.num_q_heads = num_q_heads;
    return ask(raw, RAW_REQUEST(REGISTER_MODEL), &model);
}

static uint32_t allocate(struct raw *raw, uint64_t sequence, bool unfilled, uint32_t model)
{
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Allocate message = KVPOOL__WIRE__ALLOCATE__INIT;

    prompt.model = model;
    prompt.tokens = (ProtobufCBinaryData){sizeof(token_bytes), token_bytes};
    message.sequence = sequence;
    message.prompt = &prompt;
    message.unfilled = unfilled;
    return ask(raw, RAW_REQUEST(ALLOCATE), &message);
}

/* A step of sequence @sequence, of all that it lacks. */
static uint32_t step_begin(struct raw *raw, uint64_t sequence, uint64_t *out_step)
{
    Kvpool__Wire__Row row = KVPOOL__WIRE__ROW__INIT, *rows[] = {&row};
    Kvpool__Wire__Step step = KVPOOL__WIRE__STEP__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&request};

    row.sequence = sequence;
    row.tokens = (ProtobufCBinaryData){sizeof(token_bytes), token_bytes};
    step.rows = rows;
    step.n_rows = 1;
    request.id = raw->next_id++;
    request.verb_case = RAW_REQUEST(STEP);
    request.step = &step;
    assert_true(raw_batch(raw, requests, 1, NULL, 0, 5000));
    raw_replies *replies = raw_receive(raw, 5000);
    assert_non_null(replies);
    uint32_t status = replies->replies[0]->status;
    if (status == STATUS_OK && out_step)
        *out_step = replies->replies[0]->step->step;
    raw_free(replies);
    return status;
}

static uint32_t attend(struct raw *raw, uint64_t step, uint64_t out_offset)
{
    Kvpool__Wire__Attend message = KVPOOL__WIRE__ATTEND__INIT;

    message.step = step;
    message.dtype = WIRE_F32;
    message.k_offset = 1 << 16;
    message.v_offset = 2 << 16;
    message.out_offset = out_offset;
    return ask(raw, RAW_REQUEST(ATTEND), &message);
}

static uint32_t end_step(struct raw *raw, uint64_t step, bool abandon)
{
    Kvpool__Wire__EndStep message = KVPOOL__WIRE__END_STEP__INIT;

    message.step = step;
    message.abandon = abandon;
    return ask(raw, RAW_REQUEST(END_STEP), &message);
}

static void party_open(struct raw *raw, const char *token, uint64_t *out_step)
{
    raw_open(raw, &daemon_, token, 0, 0);
    assert_int_equal(register_small(raw, 4), STATUS_OK);
    assert_int_equal(allocate(raw, 1, false, 0), STATUS_OK);
    assert_int_equal(allocate(raw, 2, true, 0), STATUS_OK);
    assert_int_equal(step_begin(raw, 2, out_step), STATUS_OK);
}

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    memset(token_bytes, 7, sizeof(token_bytes));
    party_open(&mine, NULL, &my_step);
    party_open(&theirs, "token-of-tenant-b-0123", &their_step);
    return 0;
}

static int finish(void **state)
{
    raw_close(&mine);
    raw_close(&theirs);
    daemon_finish(*state);
    return 0;
}

/* Until what was begun has its memory: the lists do not change by themselves then. */
static const char *lists_settled(const struct daemon *daemon)
{
    const char *before = lists_read(daemon), *now = before;

    for (int i = 0; i < 100; i++) {
        (void)usleep(20000);
        now = lists_read(daemon);
        if (strcmp(before, now) == 0)
            return now;
        before = now;
    }
    return now;
}

/* ---- foreign -------------------------------------------------------------------------------- */

/* Numbers that the other tenant has, and this one has not: they do not exist. */
static void what_is_anothers_is_not_found(void **state)
{
    struct raw stranger;
    Kvpool__Wire__OpenArena arena = KVPOOL__WIRE__OPEN_ARENA__INIT;
    Kvpool__Wire__Cancel cancel = KVPOOL__WIRE__CANCEL__INIT;

    raw_open(&stranger, *state, "token-of-tenant-b-0123", 0, 0);
    char *before = strdup(lists_settled(*state));
    for (size_t i = 0; i < ARRAY_SIZE(sequence_verbs); i++) {
        assert_int_equal(ask_about(&stranger, &sequence_verbs[i], 1), STATUS_NOT_FOUND);
        assert_int_equal(ask_about(&theirs, &sequence_verbs[i], 77), STATUS_NOT_FOUND);
        assert_int_equal(ask_about(&stranger, &sequence_verbs[i], UINT64_MAX), STATUS_NOT_FOUND);
    }
    assert_int_equal(attend(&theirs, my_step, 3 << 16), STATUS_NOT_FOUND);
    assert_int_equal(end_step(&theirs, my_step, true), STATUS_NOT_FOUND);
    assert_int_equal(end_step(&theirs, their_step + (UINT64_C(1) << 32), true), STATUS_NOT_FOUND);
    assert_int_equal(end_step(&theirs, UINT64_MAX, true), STATUS_NOT_FOUND);
    assert_int_equal(step_begin(&stranger, 2, NULL), STATUS_NOT_FOUND);
    assert_int_equal(allocate(&stranger, 5, false, 0), STATUS_NOT_FOUND); /* not registered here */
    assert_int_equal(allocate(&theirs, 5, false, 1), STATUS_NOT_FOUND);
    assert_int_equal(allocate(&theirs, 5, false, UINT32_MAX), STATUS_NOT_FOUND);
    cancel.request = 1;
    assert_int_equal(ask(&theirs, RAW_REQUEST(CANCEL), &cancel), STATUS_NOT_FOUND);
    arena.domain = "a";
    uint32_t status = ask(&theirs, RAW_REQUEST(OPEN_ARENA), &arena);
    assert_true(status == STATUS_INVALID || status == STATUS_NOT_FOUND);
    lists_await(*state, before);
    assert_int_equal(attend(&mine, my_step, 3 << 16), STATUS_OK); /* it is all there */
    assert_int_equal(ask_about(&mine, &sequence_verbs[5], 1), STATUS_OK);
    free(before);
    raw_close(&stranger);
}

static void arenas_of_others_are_not_found(void **state)
{
    struct raw mapped;
    Kvpool__Wire__OpenArena arena = KVPOOL__WIRE__OPEN_ARENA__INIT;
    char byte;

    raw_open(&mapped, *state, "token-of-tenant-b-0123", HELLO_MAPPED, 0);
    assert_int_equal(register_small(&mapped, 4), STATUS_OK);
    char *before = strdup(lists_settled(*state));
    arena.domain = "a";
    assert_int_equal(ask(&mapped, RAW_REQUEST(OPEN_ARENA), &arena), STATUS_NOT_FOUND);
    arena.domain = "nobody";
    assert_int_equal(ask(&mapped, RAW_REQUEST(OPEN_ARENA), &arena), STATUS_NOT_FOUND);
    arena.domain = "";
    arena.model = 7;
    assert_int_equal(ask(&mapped, RAW_REQUEST(OPEN_ARENA), &arena), STATUS_NOT_FOUND);
    arena.model = 0;
    arena.group = 3;
    assert_int_not_equal(ask(&mapped, RAW_REQUEST(OPEN_ARENA), &arena), STATUS_OK);
    assert_int_equal(raw_packet(mapped.fd, &byte, 1, 100, NULL), -1); /* no descriptor came */
    lists_await(*state, before);
    free(before);
    raw_close(&mapped);
}

/* A request that waits is its session's: nobody else cancels it, also of the same tenant. */
static void nobody_cancels_anothers_request(void **state)
{
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Match match = KVPOOL__WIRE__MATCH__INIT;
    Kvpool__Wire__Cancel cancel = KVPOOL__WIRE__CANCEL__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&request};
    struct raw second;

    raw_open(&second, *state, NULL, 0, 0);
    assert_int_equal(register_small(&second, 4), STATUS_OK);
    memset(token_bytes, 8, sizeof(token_bytes));
    assert_int_equal(allocate(&mine, 3, true, 0), STATUS_OK);
    prompt.tokens = (ProtobufCBinaryData){sizeof(token_bytes), token_bytes};
    match.prompt = &prompt;
    request.id = 4711;
    request.verb_case = RAW_REQUEST(WAIT_ARRIVING);
    request.wait_arriving = &match;
    assert_true(raw_batch(&second, requests, 1, NULL, 0, 5000));
    stat_await(*state, "pool_waiting", 1, 5000);
    cancel.request = 4711;
    assert_int_equal(ask(&mine, RAW_REQUEST(CANCEL), &cancel), STATUS_NOT_FOUND);
    assert_int_equal(ask(&theirs, RAW_REQUEST(CANCEL), &cancel), STATUS_NOT_FOUND);
    assert_int_equal(stat_read(*state, "pool_waiting"), 1);

    /* The same id while it is outstanding: refused, and the first one waits on. */
    assert_true(raw_batch(&second, requests, 1, NULL, 0, 5000));
    uint64_t id = 0;
    assert_int_equal(raw_status(&second, &id), STATUS_EXISTS);
    assert_int_equal(id, 4711);
    assert_int_equal(stat_read(*state, "pool_waiting"), 1);
    raw_close(&second);
    stat_await(*state, "pool_waiting", 0, 5000);
}

/* ---- out of order, replayed, expired -------------------------------------------------------- */

static void what_is_out_of_order_changes_nothing(void **state)
{
    char *before = strdup(lists_settled(*state));
    static const uint32_t not_in_step[] = {RAW_REQUEST(TRUNCATE), RAW_REQUEST(RELEASE),
                                           RAW_REQUEST(PREEMPT)};

    for (size_t i = 0; i < ARRAY_SIZE(not_in_step); i++)
        for (size_t at = 0; at < ARRAY_SIZE(sequence_verbs); at++)
            if (sequence_verbs[at].verb == not_in_step[i])
                assert_int_equal(ask_about(&mine, &sequence_verbs[at], 2), STATUS_INVALID);
    assert_int_equal(step_begin(&mine, 2, NULL), STATUS_INVALID);
    assert_int_equal(end_step(&mine, my_step, false), STATUS_INVALID);
    assert_int_equal(allocate(&mine, 1, false, 0), STATUS_EXISTS);
    assert_int_equal(ask_about(&mine, &sequence_verbs[7], 1), STATUS_INVALID); /* not preempted */
    assert_int_equal(attend(&mine, my_step, UINT64_MAX - 63), STATUS_INVALID);
    assert_int_equal(attend(&mine, my_step, mine.staging->data_bytes - 64), STATUS_INVALID);
    assert_int_equal(attend(&mine, my_step, 3), STATUS_INVALID);
    lists_await(*state, before);
    assert_int_equal(end_step(&mine, my_step, true), STATUS_OK);
    assert_int_equal(end_step(&mine, my_step, true), STATUS_NOT_FOUND); /* replayed */
    free(before);
}

/* A step is attended with the heads that it was planned with, whatever is registered since. */
static void another_registration_does_not_move_a_step(void **state)
{
    (void)state;
    assert_int_equal(end_step(&mine, my_step, true), STATUS_OK);
    assert_int_equal(register_small(&mine, 64), STATUS_OK);
    assert_int_equal(step_begin(&mine, 2, &my_step), STATUS_OK);
    assert_int_equal(register_small(&mine, 2), STATUS_OK);
    uint64_t end = mine.staging->data_bytes;
    assert_int_equal(attend(&mine, my_step, end - (uint64_t)TOKENS * 2 * 16 * 4), STATUS_INVALID);
    assert_int_equal(attend(&mine, my_step, end - (uint64_t)TOKENS * 64 * 16 * 4), STATUS_OK);
}

static void tokens_of_other_sessions_are_stale(void **state)
{
    char *before = strdup(lists_settled(*state));
    struct welcome kept = mine.welcome;

    memcpy(mine.welcome.session_token, theirs.welcome.session_token, HELLO_ID_BYTES);
    assert_int_equal(ask_about(&mine, &sequence_verbs[5], 1), STATUS_STALE);
    mine.welcome = theirs.welcome; /* stolen whole: a bearer's token; but only its session's */
    mine.welcome.session_id++;
    assert_int_equal(ask_about(&mine, &sequence_verbs[5], 1), STATUS_STALE);
    mine.welcome = kept;
    lists_await(*state, before);
    assert_int_equal(ask_about(&mine, &sequence_verbs[5], 1), STATUS_OK);
    free(before);
}

static void a_deadline_that_passed_is_answered_and_nothing_is_left(void **state)
{
    Kvpool__Wire__Prompt prompt = KVPOOL__WIRE__PROMPT__INIT;
    Kvpool__Wire__Match match = KVPOOL__WIRE__MATCH__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    struct raw second;

    memset(token_bytes, 9, sizeof(token_bytes));
    assert_int_equal(allocate(&mine, 3, true, 0), STATUS_OK);
    raw_open(&second, *state, NULL, 0, 0);
    assert_int_equal(register_small(&second, 4), STATUS_OK);
    char *before = strdup(lists_settled(*state));
    prompt.tokens = (ProtobufCBinaryData){sizeof(token_bytes), token_bytes};
    match.prompt = &prompt;
    request.verb_case = RAW_REQUEST(WAIT_ARRIVING);
    request.wait_arriving = &match;
    request.deadline_ms = 50;
    uint64_t begin = now_ms();
    assert_int_equal(raw_call(&second, &request), STATUS_TIMEOUT);
    assert_true(now_ms() - begin >= 45 && now_ms() - begin < 1000);
    lists_await(*state, before);
    stat_await(*state, "pool_waiting", 0, 5000);
    free(before);
    raw_close(&second);
}

/* ---- data frames ---------------------------------------------------------------------------- */

static void read_block(struct raw *raw, uint64_t sequence, uint8_t *out, size_t size)
{
    Kvpool__Wire__Read read = KVPOOL__WIRE__READ__INIT;

    read.sequence = sequence;
    read.num_blocks = 1;
    read.in_staging = true;
    assert_int_equal(ask(raw, RAW_REQUEST(READ), &read), STATUS_OK);
    memcpy(out, (const char *)raw->staging + raw->staging->data_offset, size);
}

/* The first of two Writes is refused: the second one's bytes are its own all the same. */
static void a_refused_write_does_not_move_the_frames_of_others(void **state)
{
    enum { BLOCK = 2 * 2 * 2 * 16 * 16 * 4 }; /* layers, K and V, heads, tokens, dim, f32 */
    static uint8_t bytes[2][BLOCK], got[BLOCK];
    Kvpool__Wire__Write writes[2] = {KVPOOL__WIRE__WRITE__INIT, KVPOOL__WIRE__WRITE__INIT};
    raw_request all[2] = {KVPOOL__WIRE__REQUEST__INIT, KVPOOL__WIRE__REQUEST__INIT};
    raw_request *requests[] = {&all[0], &all[1]};
    struct raw_frame frames[] = {{bytes[0], BLOCK}, {bytes[1], BLOCK}, {bytes[0], BLOCK}};

    (void)state;
    memset(bytes[0], 1, BLOCK);
    memset(bytes[1], 2, BLOCK);
    for (size_t i = 0; i < 2; i++) {
        writes[i].num_blocks = 1;
        all[i].id = mine.next_id++;
        all[i].verb_case = RAW_REQUEST(WRITE);
        all[i].write = &writes[i];
    }
    memset(token_bytes, 10, sizeof(token_bytes));
    assert_int_equal(allocate(&mine, 3, true, 0), STATUS_OK);
    writes[0].sequence = 12345; /* NOT_FOUND */
    writes[1].sequence = 3;
    assert_true(raw_batch(&mine, requests, 2, frames, 2, 5000));
    raw_replies *replies = raw_receive(&mine, 5000);
    assert_non_null(replies);
    assert_int_equal(replies->n_replies, 2);
    assert_int_equal(replies->replies[0]->status, STATUS_NOT_FOUND);
    assert_int_equal(replies->replies[1]->status, STATUS_OK);
    raw_free(replies);
    Kvpool__Wire__SequenceRef fill = KVPOOL__WIRE__SEQUENCE_REF__INIT;
    fill.sequence = 3;
    assert_int_equal(ask(&mine, RAW_REQUEST(FILL), &fill), STATUS_OK);
    read_block(&mine, 3, got, BLOCK);
    assert_memory_equal(got, bytes[1], BLOCK);

    writes[0].sequence = 3; /* too few, too many: none of them is written */
    for (size_t count = 1; count <= 3; count += 2) {
        assert_true(raw_batch(&mine, requests, 2, frames, count, 5000));
        replies = raw_receive(&mine, 5000);
        assert_int_equal(replies->n_replies, 2);
        assert_int_equal(replies->replies[0]->status, STATUS_MALFORMED);
        assert_int_equal(replies->replies[1]->status, STATUS_MALFORMED);
        raw_free(replies);
        read_block(&mine, 3, got, BLOCK);
        assert_memory_equal(got, bytes[1], BLOCK);
    }
}

/* As many data frames as requests, and one more than any message may have. */
static void many_data_frames_are_answered(void **state)
{
    static raw_request all[WIRE_MAX_REQUESTS];
    raw_request *requests[WIRE_MAX_REQUESTS];
    struct raw_frame frames[WIRE_MAX_REQUESTS + 1];
    Kvpool__Wire__Write write = KVPOOL__WIRE__WRITE__INIT;
    size_t num_replies = 0;
    uint64_t id = 9;

    (void)state;
    write.sequence = 999;
    for (size_t i = 0; i <= WIRE_MAX_REQUESTS; i++)
        frames[i] = (struct raw_frame){"", 0};
    for (size_t i = 0; i < WIRE_MAX_REQUESTS; i++) {
        all[i] = (raw_request)KVPOOL__WIRE__REQUEST__INIT;
        all[i].id = mine.next_id++;
        all[i].verb_case = RAW_REQUEST(WRITE);
        all[i].write = &write;
        requests[i] = &all[i];
    }
    assert_true(raw_batch(&mine, requests, WIRE_MAX_REQUESTS, frames, WIRE_MAX_REQUESTS, 5000));
    while (num_replies < WIRE_MAX_REQUESTS) {
        raw_replies *replies = raw_receive(&mine, 5000);
        assert_non_null(replies);
        for (size_t i = 0; i < replies->n_replies; i++)
            assert_int_equal(replies->replies[i]->status, STATUS_NOT_FOUND);
        num_replies += replies->n_replies;
        raw_free(replies);
    }
    assert_true(raw_batch(&mine, requests, 1, frames, WIRE_MAX_REQUESTS + 1, 5000));
    assert_int_equal(raw_status(&mine, &id), STATUS_MALFORMED);
    assert_int_equal(id, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_anothers_is_not_found),
        TEST(arenas_of_others_are_not_found),
        TEST(nobody_cancels_anothers_request),
        TEST(what_is_out_of_order_changes_nothing),
        TEST(another_registration_does_not_move_a_step),
        TEST(tokens_of_other_sessions_are_stale),
        TEST(a_deadline_that_passed_is_answered_and_nothing_is_left),
        TEST(a_refused_write_does_not_move_the_frames_of_others),
        TEST(many_data_frames_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
