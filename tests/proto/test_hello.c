/* tests/proto/test_hello.c - what proto/hello.c and proto/ring.c promise of untrusted bytes. */
#include <math.h>
#include <string.h>

#include "proto/caps.h"
#include "proto/hello.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/support/test.h"

static int check(const struct hello *hello, size_t num_bytes)
{
    unsigned char packet[HELLO_MAX_BYTES + 1] = {0};
    struct hello out;
    const char *what = NULL;
    memcpy(packet, hello, sizeof(*hello));
    int status = hello_check(packet, num_bytes, &out, &what);
    assert_true(status == 0 || what != NULL);
    return status;
}

static const struct hello good = {.magic = HELLO_MAGIC, .major = HELLO_MAJOR};

static void a_hello_is_what_it_says(void **state)
{
    (void)state;
    struct hello hello = good;
    assert_int_equal(check(&hello, sizeof(hello)), 0);
    for (size_t n = 0; n < sizeof(hello); n++)
        assert_int_equal(check(&hello, n), STATUS_MALFORMED);
    assert_int_equal(check(&hello, HELLO_MAX_BYTES + 1), STATUS_MALFORMED);

    hello.token_bytes = 4;
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_MALFORMED);
    assert_int_equal(check(&hello, sizeof(hello) + 3), STATUS_MALFORMED);
    assert_int_equal(check(&hello, sizeof(hello) + 4), 0);
    assert_int_equal(check(&hello, sizeof(hello) + 5), STATUS_MALFORMED);
    hello.minor = HELLO_MINOR + 1; /* a newer one may add something behind the token */
    assert_int_equal(check(&hello, sizeof(hello) + 5), 0);
    hello.token_bytes = HELLO_MAX_TOKEN + 1;
    assert_int_equal(check(&hello, HELLO_MAX_BYTES), STATUS_MALFORMED);
    hello.token_bytes = UINT32_MAX;
    assert_int_equal(check(&hello, HELLO_MAX_BYTES), STATUS_MALFORMED);
}

static void another_major_magic_or_flag_is_refused(void **state)
{
    (void)state;
    struct hello hello = good;
    hello.magic++;
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_MALFORMED);
    hello = good;
    hello.major++;
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_UNSUPPORTED);
    assert_int_equal(check(&hello, 8), STATUS_UNSUPPORTED); /* of any size */
    hello = good;
    hello.flags = 64; /* none of ours */
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_UNSUPPORTED);
    hello.flags = HELLO_ATTACH;
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_MALFORMED);
    hello.session_id = 7;
    assert_int_equal(check(&hello, sizeof(hello)), 0);
    hello.flags = 0;
    assert_int_equal(check(&hello, sizeof(hello)), STATUS_MALFORMED);
}

static void answers_of_the_daemon_are_checked_too(void **state)
{
    (void)state;
    union hello_answer out;
    const char *what;
    struct welcome welcome = {.magic = WELCOME_MAGIC,
                              .major = HELLO_MAJOR,
                              .session_id = 1,
                              .staging_bytes = 4096,
                              .endpoint = "ipc:///tmp/x"};
    assert_int_equal(hello_check_answer(&welcome, sizeof(welcome), &out, &what), 0);
    assert_int_equal(hello_check_answer(&welcome, sizeof(welcome) - 1, &out, &what),
                     STATUS_MALFORMED);
    memset(welcome.endpoint, 'x', sizeof(welcome.endpoint));
    assert_int_equal(hello_check_answer(&welcome, sizeof(welcome), &out, &what), STATUS_MALFORMED);
    welcome.major++;
    assert_int_equal(hello_check_answer(&welcome, sizeof(welcome), &out, &what),
                     STATUS_UNSUPPORTED);

    struct refusal refusal = {.magic = REFUSAL_MAGIC, .major = 9, .status = STATUS_DENIED};
    memset(refusal.message, 'x', sizeof(refusal.message));
    assert_int_equal(hello_check_answer(&refusal, sizeof(refusal), &out, &what), 0);
    assert_int_equal(strlen(out.refusal.message), sizeof(refusal.message) - 1);
    assert_int_equal(hello_check_answer(&refusal, 12, &out, &what), 0);
    assert_int_equal(hello_check_answer(&refusal, 11, &out, &what), STATUS_MALFORMED);

    struct arena_packet arena = {.magic = ARENA_MAGIC, .stride_bytes = 1, .max_bytes = 1};
    assert_int_equal(hello_check_answer(&arena, sizeof(arena), &out, &what), 0);
    assert_int_equal(hello_check_answer(&arena, sizeof(arena) - 1, &out, &what), STATUS_MALFORMED);
    arena.magic = 0;
    assert_int_equal(hello_check_answer(&arena, sizeof(arena), &out, &what), STATUS_MALFORMED);
}

/* ---- rings ---- */

static void a_span_never_overflows(void **state)
{
    (void)state;
    assert_true(ring_span_fits(0, 10, 10));
    assert_true(ring_span_fits(10, 0, 10));
    assert_false(ring_span_fits(1, 10, 10));
    assert_false(ring_span_fits(11, 0, 10));
    assert_false(ring_span_fits(UINT64_MAX, 2, 10));
    assert_false(ring_span_fits(5, UINT64_MAX - 2, 10));
}

static void a_header_is_within_its_mapping(void **state)
{
    (void)state;
    static struct staging_header header;
    ring_header_init(&header, 1000);
    assert_int_equal(header.data_offset, 45056);
    assert_int_equal(offsetof(struct staging_header, submissions), 64);
    assert_int_equal(offsetof(struct staging_header, completions), 256);
    assert_int_equal(ring_header_check(&header, RING_DATA_OFFSET + 1000), 0);
    assert_int_equal(ring_header_check(&header, RING_DATA_OFFSET + 999), STATUS_MALFORMED);
    assert_int_equal(ring_header_check(&header, 0), STATUS_MALFORMED);
    header.data_bytes = UINT64_MAX - 10;
    assert_int_equal(ring_header_check(&header, RING_DATA_OFFSET + 1000), STATUS_MALFORMED);
    ring_header_init(&header, 0);
    header.completions_offset = RING_SUBMISSIONS_OFFSET;
    assert_int_equal(ring_header_check(&header, RING_DATA_OFFSET), STATUS_MALFORMED);
    ring_header_init(&header, 0);
    header.version++;
    assert_int_equal(ring_header_check(&header, RING_DATA_OFFSET), STATUS_UNSUPPORTED);
}

static void a_submission_is_within_its_bounds(void **state)
{
    (void)state;
    const char *what;
    struct ring_submission step = {.verb = RING_STEP, .value = 2, .rows_offset = 8};
    assert_int_equal(ring_submission_check(&step, 56, &what), 0);
    assert_int_equal(ring_submission_check(&step, 55, &what), STATUS_MALFORMED);
    step.rows_offset = 4;
    assert_int_equal(ring_submission_check(&step, 1000, &what), STATUS_MALFORMED);
    step.rows_offset = UINT64_MAX - 7;
    assert_int_equal(ring_submission_check(&step, 1000, &what), STATUS_MALFORMED);
    step.rows_offset = 0;
    step.value = UINT64_MAX / sizeof(struct ring_row) + 2; /* its product is small */
    assert_int_equal(ring_submission_check(&step, 1000, &what), STATUS_MALFORMED);

    struct ring_submission other = {.verb = 0};
    assert_int_equal(ring_submission_check(&other, 0, &what), STATUS_UNSUPPORTED);
    other.verb = RING_FORK + 1;
    assert_int_equal(ring_submission_check(&other, 0, &what), STATUS_UNSUPPORTED);
    other.verb = RING_FORK;
    assert_int_equal(ring_submission_check(&other, 0, &what), 0);
    other.flags = RING_ABANDON;
    assert_int_equal(ring_submission_check(&other, 0, &what), STATUS_MALFORMED);
    other = (struct ring_submission){.verb = RING_ATTEND, .scale = NAN};
    assert_int_equal(ring_submission_check(&other, 0, &what), STATUS_MALFORMED);
    other = (struct ring_submission){.verb = RING_ATTEND, .layer = WIRE_MAX_LAYERS};
    assert_int_equal(ring_submission_check(&other, 0, &what), STATUS_MALFORMED);
}

static void a_row_is_within_its_bounds(void **state)
{
    (void)state;
    const char *what;
    struct ring_row row = {.tokens_offset = 4, .num_tokens = 3};
    assert_int_equal(ring_row_check(&row, 16, &what), 0);
    assert_int_equal(ring_row_check(&row, 15, &what), STATUS_MALFORMED);
    row.tokens_offset = 2;
    assert_int_equal(ring_row_check(&row, 100, &what), STATUS_MALFORMED);
    row = (struct ring_row){.num_tokens = UINT32_MAX};
    assert_int_equal(ring_row_check(&row, UINT64_MAX, &what), STATUS_MALFORMED);
}

static void an_attend_is_within_its_bounds(void **state)
{
    (void)state;
    const char *what;
    const struct ring_attend_bytes bytes = {16, 16, 16, 16, 8, 8};
    struct ring_submission attend = {.verb = RING_ATTEND,
                                     .q_offset = 0,
                                     .k_offset = 16,
                                     .v_offset = 32,
                                     .out_offset = 48,
                                     .lse_offset = 60,
                                     .sinks_offset = UINT64_MAX};
    assert_int_equal(ring_attend_check(&attend, &bytes, 64, &what), 0);
    assert_int_equal(ring_attend_check(&attend, &bytes, 63, &what), STATUS_MALFORMED);
    assert_string_equal(what, "attend: out_offset");
    attend.flags = RING_WANT_LSE;
    assert_int_equal(ring_attend_check(&attend, &bytes, 64, &what), STATUS_MALFORMED);
    assert_string_equal(what, "attend: lse_offset");
    attend.flags = RING_HAS_SINKS;
    assert_int_equal(ring_attend_check(&attend, &bytes, 64, &what), STATUS_MALFORMED);
    attend.q_offset = 2;
    assert_int_equal(ring_attend_check(&attend, &bytes, 64, &what), STATUS_MALFORMED);
    assert_string_equal(what, "attend: q_offset");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_is_what_it_says),
        cmocka_unit_test(another_major_magic_or_flag_is_refused),
        cmocka_unit_test(answers_of_the_daemon_are_checked_too),
        cmocka_unit_test(a_span_never_overflows),
        cmocka_unit_test(a_header_is_within_its_mapping),
        cmocka_unit_test(a_submission_is_within_its_bounds),
        cmocka_unit_test(a_row_is_within_its_bounds),
        cmocka_unit_test(an_attend_is_within_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
