/* tests/e2e/test_fair.c - a session's batch holds nobody up, and takes nobody's credits. */
#include "proto/status.h"
#include "tests/e2e/raw.h"
#include "tests/support/test.h"

#include <time.h>
#include <unistd.h>

enum { STORM = 256, STORM_TOKENS = 256 /* as long as is named at once */, ROUNDS = 20 };

static struct daemon daemon_;
static uint32_t tokens[STORM_TOKENS], model_used;

static int start(void **state)
{
    tokens_make(tokens, STORM_TOKENS, 3);
    daemon_start(&daemon_, "pool-bytes: 16MiB\n");
    *state = &daemon_;
    return 0;
}

static int finish(void **state)
{
    daemon_finish(*state);
    return 0;
}

/* Blocks of one token: 256 are named for each prompt. */
static void open_with_model(struct raw *raw)
{
    Kvpool__Wire__RegisterModel model = raw_opaque_model();

    raw_open(raw, &daemon_, NULL, 0, 0);
    model_used = raw_register(raw, &model);
}

static uint64_t now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void storm_send(struct raw *raw)
{
    static raw_request requests[STORM], *list[STORM];
    static Kvpool__Wire__Match match;
    static Kvpool__Wire__Prompt prompt;

    kvpool__wire__prompt__init(&prompt);
    prompt.model = model_used;
    prompt.tokens = (ProtobufCBinaryData){STORM_TOKENS * sizeof(*tokens), (uint8_t *)tokens};
    kvpool__wire__match__init(&match);
    match.prompt = &prompt;
    for (uint32_t at = 0; at < STORM; at++) {
        kvpool__wire__request__init(&requests[at]);
        requests[at].id = raw->next_id++;
        requests[at].verb_case = RAW_REQUEST(MATCH);
        requests[at].match = &match;
        list[at] = &requests[at];
    }
    assert_true(raw_batch(raw, list, STORM, NULL, 0, 10000));
}

static void storm_receive(struct raw *raw)
{
    for (uint32_t count = 0; count < STORM;) {
        raw_replies *replies = raw_receive(raw, 20000);
        assert_non_null(replies);
        for (size_t i = 0; i < replies->n_replies; i++)
            assert_int_equal(replies->replies[i]->status, STATUS_OK);
        count += (uint32_t)replies->n_replies;
        raw_free(replies);
    }
}

/* Of a batch that is under way only a slice comes before what another session asks. */
static void a_batch_does_not_hold_up_others(void **state)
{
    Kvpool__Wire__StatsRequest stats = KVPOOL__WIRE__STATS_REQUEST__INIT;
    raw_request request = KVPOOL__WIRE__REQUEST__INIT;
    uint64_t alone = UINT64_MAX, other = UINT64_MAX;
    struct raw storm, raw;

    (void)state;
    open_with_model(&storm);
    open_with_model(&raw);
    request.verb_case = RAW_REQUEST(STATS);
    request.stats = &stats;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t begin = now_us();
        storm_send(&storm);
        storm_receive(&storm);
        alone = now_us() - begin < alone ? now_us() - begin : alone;
        storm_send(&storm);
        (void)usleep(1000); /* it is there, and begun */
        begin = now_us();
        assert_int_equal(raw_call(&raw, &request), STATUS_OK);
        other = now_us() - begin < other ? now_us() - begin : other;
        storm_receive(&storm);
    }
    print_message("a batch: %lu us; another's request meanwhile: %lu us\n", alone, other);
    assert_true(other < alone / 3);
    raw_close(&raw);
    raw_close(&storm);
}

/* Nobody is refused because others have much outstanding. */
static void everybody_has_credits_of_their_own(void **state)
{
    enum { SESSIONS = 20 };
    struct raw raws[SESSIONS];

    (void)state;
    for (uint32_t at = 0; at < SESSIONS; at++)
        open_with_model(&raws[at]);
    for (uint32_t at = 0; at < SESSIONS; at++)
        storm_send(&raws[at]);
    for (uint32_t at = 0; at < SESSIONS; at++) {
        storm_receive(&raws[at]);
        raw_close(&raws[at]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_does_not_hold_up_others),
        cmocka_unit_test(everybody_has_credits_of_their_own),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
