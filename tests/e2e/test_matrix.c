/*
 * tests/e2e/test_matrix.c - an engine is killed at every verb of the protocol, and in the middle of
 * attends: all that it held comes back, and others do not notice.
 *
 * The verbs are those of the Request message itself: one that has no row here fails the test.
 */
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 400, FILLED = 1, UNFILLED = 2, IN_STEP = 3, PREEMPTED = 4, NEW = 5 };

static struct daemon daemon_;
static struct kvpool *other;
static uint32_t other_model;
static double idle_us;

static int start(void **state)
{
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    other = engine_connect(&daemon_, "token-of-tenant-b-0123", 0);
    if (!other || kvpool_register_model(other, &small_model, &other_model, NULL))
        return -1;
    idle_us = match_p99_us(other, other_model, 300);
    return 0;
}

static int finish(void **state)
{
    kvpool_disconnect(other);
    daemon_finish(*state);
    return 0;
}

/* Which sequence each verb is about. Verbs of operators are refused: the point is the same. */
static const struct row {
    const char *name;
    uint64_t sequence;
} rows[] = {
    {"register_model", 0}, {"open_arena", 0},   {"allocate", NEW},     {"append", FILLED},
    {"step", UNFILLED},    {"attend", 0},       {"end_step", 0},       {"publish", FILLED},
    {"write", UNFILLED},   {"read", FILLED},    {"fork", FILLED},      {"truncate", FILLED},
    {"release", FILLED},   {"preempt", FILLED}, {"resume", PREEMPTED}, {"match", 0},
    {"wait_arriving", 0},  {"prefetch", 0},     {"cancel", 0},         {"stats", 0},
    {"fill", UNFILLED},    {"drain", 0},        {"clear", 0},          {"set_quota", 0},
    {"create_domain", 0},  {"list", 0},         {"kick", 0},           {"shutdown", 0},
};

/* ---- an engine with a bit of everything ----------------------------------------------------- */

struct victim {
    struct raw raw;
    uint8_t tokens[4 * TOKENS];
    Kvpool__Wire__RegisterModel model;
    Kvpool__Wire__Prompt prompt;
    Kvpool__Wire__Row row, *row_list[1];
    uint64_t step;
};

static uint32_t ask(struct victim *victim, uint32_t verb, void *message)
{
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;

    request.verb_case = verb;
    request.publish = message;
    return raw_call(&victim->raw, &request);
}

static void sequence_make(struct victim *victim, uint64_t sequence, bool unfilled)
{
    Kvpool__Wire__Allocate allocate = KVPOOL__WIRE__ALLOCATE__INIT;

    memset(victim->tokens, (int)sequence, sizeof(victim->tokens));
    allocate.sequence = sequence;
    allocate.prompt = &victim->prompt;
    allocate.unfilled = unfilled;
    assert_int_equal(ask(victim, RAW_REQUEST(ALLOCATE), &allocate), STATUS_OK);
}

/* Of the tokens that sequence_make() gave it last. */
static void step_make(struct victim *victim, uint64_t sequence)
{
    Kvpool__Wire__Step step = KVPOOL__WIRE__STEP__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&request};

    victim->row.sequence = sequence;
    step.rows = victim->row_list;
    step.n_rows = 1;
    request.id = victim->raw.next_id++;
    request.verb_case = RAW_REQUEST(STEP);
    request.step = &step;
    assert_true(raw_batch(&victim->raw, requests, 1, NULL, 0, 5000));
    raw_replies *replies = raw_receive(&victim->raw, 5000);
    assert_non_null(replies);
    assert_int_equal(replies->replies[0]->status, STATUS_OK);
    victim->step = replies->replies[0]->step->step;
    raw_free(replies);
}

static void victim_open(struct victim *victim, uint32_t flags)
{
    Kvpool__Wire__SequenceRef ref = KVPOOL__WIRE__SEQUENCE_REF__INIT;

    raw_open(&victim->raw, &daemon_, NULL, flags, 0);
    kvpool__wire__register_model__init(&victim->model);
    victim->model.name = "small";
    victim->model.weights_revision = "1";
    victim->model.num_layers = 2;
    victim->model.num_q_heads = 4;
    victim->model.num_kv_heads = 2;
    victim->model.k_head_dim = victim->model.v_head_dim = 16;
    victim->model.dtype = WIRE_F32;
    kvpool__wire__prompt__init(&victim->prompt);
    victim->prompt.tokens = (ProtobufCBinaryData){sizeof(victim->tokens), victim->tokens};
    kvpool__wire__row__init(&victim->row);
    victim->row.tokens = victim->prompt.tokens;
    victim->row_list[0] = &victim->row;
    assert_int_equal(ask(victim, RAW_REQUEST(REGISTER_MODEL), &victim->model), STATUS_OK);
    sequence_make(victim, FILLED, false);
    sequence_make(victim, PREEMPTED, false);
    ref.sequence = PREEMPTED;
    assert_int_equal(ask(victim, RAW_REQUEST(PREEMPT), &ref), STATUS_OK);
    if (!(flags & HELLO_MAPPED)) {
        sequence_make(victim, IN_STEP, true);
        step_make(victim, IN_STEP);
    }
    sequence_make(victim, UNFILLED,
                  true); /* last: its tokens are those of the prompt and the row */
}

/* One field of a verb's message, by its name. */
static void field_fill(struct victim *victim, const ProtobufCFieldDescriptor *field, char *message,
                       uint64_t sequence)
{
    void *value = message + field->offset;

    if (strcmp(field->name, "sequence") == 0)
        *(uint64_t *)value = sequence;
    else if (strcmp(field->name, "child") == 0)
        *(uint64_t *)value = NEW;
    else if (strcmp(field->name, "step") == 0)
        *(uint64_t *)value = victim->step;
    else if (strcmp(field->name, "session") == 0)
        *(uint64_t *)value = victim->raw.welcome.session_id;
    else if (strcmp(field->name, "prompt") == 0)
        *(Kvpool__Wire__Prompt **)value = &victim->prompt;
    else if (strcmp(field->name, "tokens") == 0)
        *(ProtobufCBinaryData *)value = victim->prompt.tokens;
    else if (strcmp(field->name, "num_blocks") == 0 || strcmp(field->name, "dtype") == 0)
        *(uint32_t *)value = 1;
    else if (strcmp(field->name, "in_staging") == 0)
        *(protobuf_c_boolean *)value = true;
    else if (strcmp(field->name, "rows") == 0) {
        victim->row.sequence = sequence;
        *(size_t *)(void *)(message + field->quantifier_offset) = 1;
        *(Kvpool__Wire__Row ***)value = victim->row_list;
    }
}

static void verb_send(struct victim *victim, const ProtobufCFieldDescriptor *verb,
                      uint64_t sequence)
{
    static _Alignas(16) char message[512];
    const ProtobufCMessageDescriptor *descriptor = verb->descriptor;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT, *requests[] = {&request};

    protobuf_c_message_init(descriptor, message);
    if (descriptor == &kvpool__wire__register_model__descriptor)
        memcpy(message, &victim->model, sizeof(victim->model));
    else
        for (unsigned i = 0; i < descriptor->n_fields; i++)
            field_fill(victim, &descriptor->fields[i], message, sequence);
    request.id = victim->raw.next_id++;
    request.verb_case = verb->id;
    request.publish = (void *)message;
    assert_true(raw_batch(&victim->raw, requests, 1, NULL, 0, 5000));
}

/* ---- every verb ----------------------------------------------------------------------------- */

static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    print_error("the verb `%s` has no row: say which sequence it is about\n", name);
    fail();
    return NULL;
}

static void all_is_released(struct daemon *daemon, const char *what)
{
    uint64_t begin = now_ms();

    stat_await(daemon, "pool_sessions", 1, 5000);
    stat_await(daemon, "pool_sequences", 0, 5000);
    stat_await(daemon, "pool_held", 0, 5000);
    stat_await(daemon, "pool_reserved", 0, 5000);
    stat_await(daemon, "pool_waiting", 0, 5000);
    stat_await(daemon, "pool_quarantined", 0, 5000);
    if (now_ms() - begin > 1000)
        print_message("%s: released after %lu ms\n", what, now_ms() - begin);
}

/* In a process of its own: sends the verb, and dies at once, or after @ms. */
static void killed_at(struct daemon *daemon, const ProtobufCFieldDescriptor *verb, uint32_t flags,
                      unsigned ms)
{
    static struct victim victim;
    uint64_t sequence = row_of(verb->name)->sequence;
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        victim_open(&victim, flags);
        verb_send(&victim, verb, sequence);
        if (ms > 0)
            raw_free(raw_receive(&victim.raw, ms));
        else
            (void)usleep(200); /* so that ZeroMQ's thread may have sent it, or not */
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    all_is_released(daemon, verb->name);
}

static void an_engine_killed_at_any_verb_leaves_nothing(void **state)
{
    const ProtobufCMessageDescriptor *request = &kvpool__wire__request__descriptor;
    unsigned num_verbs = 0;

    for (unsigned i = 0; i < request->n_fields; i++) {
        const ProtobufCFieldDescriptor *verb = &request->fields[i];
        if (!(verb->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        killed_at(*state, verb, 0, 0);
        killed_at(*state, verb, 0, 50);
        num_verbs++;
    }
    print_message("%u verbs\n", num_verbs);
    assert_int_equal(num_verbs, ARRAY_SIZE(rows));
    p99_assert("after deaths", idle_us, match_p99_us(other, other_model, 300));
}

static void a_mapped_engine_killed_at_any_verb_leaves_nothing(void **state)
{
    const ProtobufCMessageDescriptor *request = &kvpool__wire__request__descriptor;

    for (unsigned i = 0; i < request->n_fields; i++) {
        const ProtobufCFieldDescriptor *verb = &request->fields[i];
        if (verb->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            killed_at(*state, verb, HELLO_MAPPED, i % 2 ? 0 : 50);
    }
}

/* ---- every verb of the rings ---------------------------------------------------------------- */

static const struct ring_submission ring_rows[] = {
    [RING_STEP] = {.verb = RING_STEP, .value = 1},
    [RING_ATTEND] = {.verb = RING_ATTEND,
                     .dtype = WIRE_F32,
                     .k_offset = 256 << 10,
                     .v_offset = 512 << 10,
                     .out_offset = 768 << 10},
    [RING_END_STEP] = {.verb = RING_END_STEP, .flags = RING_ABANDON},
    [RING_PUBLISH] = {.verb = RING_PUBLISH, .object = FILLED},
    [RING_TRUNCATE] = {.verb = RING_TRUNCATE, .object = FILLED, .value = 100},
    [RING_RELEASE] = {.verb = RING_RELEASE, .object = FILLED},
    [RING_FORK] = {.verb = RING_FORK, .object = FILLED, .value = NEW},
};

/* All that is asked for is in order, and so @ms later, if any, it is answered with OK. */
static void entry_send(struct victim *victim, const struct ring_submission *row, unsigned ms)
{
    const struct ring_row step = {
        .sequence = UNFILLED, .tokens_offset = sizeof(step), .num_tokens = TOKENS};
    uint8_t *data = (uint8_t *)victim->raw.staging + RING_DATA_OFFSET;
    struct ring_submission entry = *row;
    struct ring_completion completion;

    memcpy(data, &step, sizeof(step));
    memcpy(data + sizeof(step), victim->tokens, sizeof(victim->tokens));
    entry.id = 1;
    if (row->verb == RING_ATTEND || row->verb == RING_END_STEP)
        entry.object = victim->step;
    raw_submit(&victim->raw, &entry);
    if (ms == 0)
        return;
    assert_true(raw_complete(&victim->raw, &completion, ms));
    assert_int_equal(completion.status, STATUS_OK);
}

static void an_engine_killed_at_any_verb_of_the_rings_leaves_nothing(void **state)
{
    static struct victim victim;
    const unsigned waits_ms[] = {0, 5000};
    const struct ring_submission newer = {.verb = ARRAY_SIZE(ring_rows)};
    const char *what;
    int status;

    /* One more has no row here: say what it needs. */
    assert_int_equal(ring_submission_check(&newer, 1 << 20, &what), STATUS_UNSUPPORTED);

    for (size_t i = 0; i < 2 * (ARRAY_SIZE(ring_rows) - 1); i++) {
        const struct ring_submission *row = &ring_rows[1 + i / 2];
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            victim_open(&victim, 0);
            entry_send(&victim, row, waits_ms[i % 2]);
            (void)kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        all_is_released(*state, "ring");
    }
    p99_assert("after deaths", idle_us, match_p99_us(other, other_model, 300));
}

/* ---- attends -------------------------------------------------------------------------------- */

/* Large ones, which worker threads carry out while their engine dies. */
static void an_engine_killed_in_an_attend_leaves_nothing(void **state)
{
    static struct victim victim;

    for (unsigned round = 0; round < 16; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            Kvpool__Wire__Attend attend = KVPOOL__WIRE__ATTEND__INIT;
            raw_request all[2] = {KVPOOL__WIRE__REQUEST__INIT, KVPOOL__WIRE__REQUEST__INIT};
            raw_request *requests[] = {&all[0], &all[1]};
            victim_open(&victim, 0);
            attend.step = victim.step;
            attend.dtype = WIRE_F32;
            attend.k_offset = 256 << 10;
            attend.v_offset = 512 << 10;
            attend.out_offset = 768 << 10;
            for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                all[i].id = 1000 + i;
                all[i].verb_case = RAW_REQUEST(ATTEND);
                all[i].attend = &attend;
            }
            assert_true(raw_batch(&victim.raw, requests, 2, NULL, 0, 5000));
            (void)usleep(round % 8 * 500);
            (void)kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        all_is_released(*state, "attend");
    }
    print_message("%lu attends, %lu by workers\n", stat_read(*state, "attends"),
                  stat_read(*state, "attends_queued"));
    assert_true(stat_read(*state, "attends") > 0);
    p99_assert("after attends", idle_us, match_p99_us(other, other_model, 300));
}

/* ---- again and again ------------------------------------------------------------------------ */

static void crashes(struct daemon *daemon, unsigned count)
{
    const ProtobufCMessageDescriptor *request = &kvpool__wire__request__descriptor;

    for (unsigned i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *verb = &request->fields[2 + i % (request->n_fields - 2)];
        if (verb->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            killed_at(daemon, verb, 0, 0);
    }
}

static void a_crash_loop_grows_nothing(void **state)
{
    struct daemon *daemon = *state;

    crashes(daemon, 5); /* what is taken once */
    unsigned fds = process_count(daemon->pid, "fd"), threads = process_count(daemon->pid, "task");
    unsigned maps = process_maps(daemon->pid);
    uint64_t rss = process_rss_kib(daemon->pid);
    crashes(daemon, 20);
    uint64_t end = now_ms() + 5000;
    while (process_count(daemon->pid, "fd") > fds && now_ms() < end)
        (void)usleep(10000);
    print_message("fds %u, threads %u, mappings %u, KiB %lu; now %u, %u, %u, %lu\n", fds, threads,
                  maps, rss, process_count(daemon->pid, "fd"), process_count(daemon->pid, "task"),
                  process_maps(daemon->pid), process_rss_kib(daemon->pid));
    assert_true(process_count(daemon->pid, "fd") <= fds);
    assert_true(process_count(daemon->pid, "task") <= threads);
    if (process_rss_slack_kib(daemon->pid) == 0)
        assert_true(process_maps(daemon->pid) <= maps + 8); /* the allocator's own */
    assert_true(process_rss_kib(daemon->pid) <=
                rss + (16 << 10) + process_rss_slack_kib(daemon->pid));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_engine_killed_at_any_verb_leaves_nothing),
        TEST(a_mapped_engine_killed_at_any_verb_leaves_nothing),
        TEST(an_engine_killed_at_any_verb_of_the_rings_leaves_nothing),
        TEST(an_engine_killed_in_an_attend_leaves_nothing),
        TEST(a_crash_loop_grows_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
