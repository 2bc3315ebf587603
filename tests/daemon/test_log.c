/* tests/daemon/test_log.c - what daemon/log.h promises: one line an event, whatever is in it. */
#include "daemon/log.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int pipe_fds[2];
static char lines[1 << 17];

static void begin(bool is_json, uint32_t rate)
{
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    log_configure(
        &(struct log_options){.is_json = is_json, .lines_per_second = rate, .fd = pipe_fds[1]});
}

/* What was logged since begin(). */
static const char *end(void)
{
    assert_int_equal(close(pipe_fds[1]), 0);
    ssize_t count = read(pipe_fds[0], lines, sizeof(lines) - 1);
    assert_true(count >= 0);
    lines[count] = '\0';
    assert_int_equal(close(pipe_fds[0]), 0);
    return lines;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void a_line_has_a_priority_an_event_and_its_fields(void **state)
{
    (void)state;
    begin(false, 0);
    log_event(LOG_INFO, "session_open", log_text("tenant", "chat"), log_id("session", 81),
              log_signed("delta", -3), log_bool("mapped", true), log_error("error", -ENOENT));
    log_event(LOG_ERROR, "ready", LOG_NO_FIELDS);
    assert_string_equal(end(),
                        "<6>session_open tenant=chat session=0000000000000051 delta=-3 mapped=true "
                        "error=ENOENT\n<3>ready\n");
}

static void an_event_is_one_line_whatever_is_in_it(void **state)
{
    (void)state;
    begin(false, 0);
    log_event(LOG_WARN, "refused", log_text("name", "a b\n<0>fake x=y\x1b[31m"),
              log_text("none", NULL));
    assert_string_equal(end(), "<4>refused name=\"a b\\n<0>fake x=y\\u001b[31m\" none=\"\"\n");
}

static void json_lines_are_objects(void **state)
{
    (void)state;
    begin(true, 0);
    log_event(LOG_NOTICE, "reload", log_text("file", "a\"b"), log_number("tenants", 2),
              log_bool("ok", false), log_id("session", UINT64_C(0x506ca7e11e0d3c2a)));
    const char *line = end();
    assert_memory_equal(line, "{\"time\":\"20", 11);
    assert_non_null(strstr(line,
                           "Z\",\"level\":\"notice\",\"event\":\"reload\",\"file\":\"a\\\"b\","
                           "\"tenants\":2,\"ok\":false,"
                           "\"session\":\"506ca7e11e0d3c2a\"}\n"));
}

static void a_line_too_long_is_cut_between_fields(void **state)
{
    char value[4000];

    (void)state;
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    begin(false, 0);
    log_event(LOG_INFO, "long", log_number("first", 1), log_text("value", value),
              log_number("last", 2));
    assert_string_equal(end(), "<6>long first=1 cut=true\n");
}

static void debug_lines_are_for_those_who_ask(void **state)
{
    (void)state;
    begin(false, 0);
    log_event(LOG_DEBUG, "detail", LOG_NO_FIELDS);
    assert_string_equal(end(), "");
}

static void a_flood_of_one_event_leaves_the_others_alone(void **state)
{
    struct log_counters before = log_counters();

    (void)state;
    begin(false, 3);
    for (int i = 0; i < 10; i++)
        log_event(LOG_WARN, "flood", LOG_NO_FIELDS);
    log_event(LOG_WARN, "other", LOG_NO_FIELDS);
    (void)nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 10000000}, NULL);
    log_event(LOG_WARN, "other", LOG_NO_FIELDS);
    assert_string_equal(end(), "<4>flood\n<4>flood\n<4>flood\n<4>other\n"
                               "<5>log_suppressed of=flood lines=7\n<4>other\n");
    assert_int_equal(log_counters().suppressed - before.suppressed, 7);
}

static void a_full_pipe_costs_lines_and_no_time(void **state)
{
    struct log_counters before = log_counters();

    (void)state;
    begin(false, 0);
    assert_int_equal(fcntl(pipe_fds[1], F_SETFL, 0), 0); /* a write() would block */
    for (int i = 0; i < 100000; i++)
        log_event(LOG_INFO, "fill", log_number("i", (uint64_t)i));
    struct log_counters after = log_counters();
    assert_int_equal(after.written + after.dropped - before.written - before.dropped, 100000);
    assert_true(after.dropped > before.dropped);
    assert_int_equal(count_lines(end()), after.written - before.written);
}

static void *log_from_a_thread(void *argument)
{
    for (int i = 0; i < 100; i++)
        log_event(LOG_INFO, "threads", log_number("of", (uint64_t)(uintptr_t)argument));
    return NULL;
}

static void any_thread_may_log(void **state)
{
    pthread_t threads[4];

    (void)state;
    begin(false, 0);
    for (uintptr_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_from_a_thread, (void *)i), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    const char *line = end();
    assert_int_equal(count_lines(line), 400);
    for (; *line; line = strchr(line, '\n') + 1)
        assert_memory_equal(line, "<6>threads of=", 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_a_priority_an_event_and_its_fields),
        cmocka_unit_test(an_event_is_one_line_whatever_is_in_it),
        cmocka_unit_test(json_lines_are_objects),
        cmocka_unit_test(a_line_too_long_is_cut_between_fields),
        cmocka_unit_test(debug_lines_are_for_those_who_ask),
        cmocka_unit_test(a_flood_of_one_event_leaves_the_others_alone),
        cmocka_unit_test(a_full_pipe_costs_lines_and_no_time),
        cmocka_unit_test(any_thread_may_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
