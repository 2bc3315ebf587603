/* tests/daemon/test_text.c - what daemon/text.h and value.h promise. */
#include "daemon/text.h"
#include "daemon/value.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static void what_does_not_fit_is_noticed_and_never_written(void **state)
{
    char buffer[10];

    (void)state;
    memset(buffer, 'x', sizeof(buffer));
    struct text text = text_init(buffer, 8);
    text_add(&text, "1234");
    text_printf(&text, "%d", 567);
    assert_false(text.is_cut);
    assert_string_equal(buffer, "1234567");
    text_add(&text, "8");
    assert_true(text.is_cut);
    text_add(&text, "");
    text_printf(&text, "%s", "9");
    assert_string_equal(buffer, "1234567");
    assert_int_equal(text.length, 7);
    assert_int_equal(buffer[8], 'x');
}

static void a_long_printf_leaves_what_was_there(void **state)
{
    char buffer[8];

    (void)state;
    struct text text = text_init(buffer, sizeof(buffer));
    text_add(&text, "12");
    text_printf(&text, "%s", "3456789");
    assert_true(text.is_cut);
    assert_string_equal(buffer, "12");
}

static void check_json(const char *from, const char *to)
{
    char buffer[128];
    struct text text = text_init(buffer, sizeof(buffer));

    text_add_json(&text, from);
    assert_false(text.is_cut);
    assert_string_equal(buffer, to);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    check_json("", "\"\"");
    check_json("a\"b\\c\n\r\t", "\"a\\\"b\\\\c\\n\\r\\t\"");
    check_json("\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\"");
    check_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void bytes_that_are_no_utf8_are_replaced(void **state)
{
    (void)state;
    check_json("a\xff", "\"a\xef\xbf\xbd\"");
    check_json("\xc3", "\"\xef\xbf\xbd\"");                                 /* cut off */
    check_json("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* not the shortest */
    check_json("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* a surrogate */
    check_json("\xf0\x9f\x98", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void labels_are_escaped(void **state)
{
    char buffer[64];
    struct text text = text_init(buffer, sizeof(buffer));

    (void)state;
    text_add_label(&text, "a\"b\\c\nd\xff");
    assert_string_equal(buffer, "a\\\"b\\\\c\\nd\xef\xbf\xbd");
}

/* ---- values --------------------------------------------------------------------------------- */

static void sizes_are_read_and_written(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"64KiB", 65536},
        {"2MiB", 2097152},
        {"1GiB", 1073741824},
        {"3TiB", UINT64_C(3298534883328)},
        {"1025KiB", 1049600},
    };
    static const char *const bad[] = {
        "",   "-1",   "1 MiB",       "1MB", "1mib",  "MiB", "1.5GiB",
        "+1", "0x10", "16777216TiB", "1G",  "1MiBx", " 1",  "18446744073709551616"};
    char text[VALUE_TEXT];
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(size_parse(good[i].text, &bytes), 0);
        assert_true(bytes == good[i].bytes);
        size_format(bytes, text);
        assert_int_equal(size_parse(text, &bytes), 0);
        assert_true(bytes == good[i].bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(size_parse(bad[i], &bytes), -EINVAL);
    assert_int_equal(bytes, 7);
    assert_int_equal(size_parse("18446744073709551615", &bytes), 0);
    assert_true(bytes == UINT64_MAX);
}

static void sizes_are_rounded_for_people(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {23040, "22.5 KiB"},
        {102348, "99.9 KiB"},  /* 99.949 */
        {102352, "100 KiB"},   /* 99.953 */
        {1048063, "1023 KiB"}, /* half a KiB, and a byte, short of one of the next unit */
        {1048064, "1.0 MiB"},
        {UINT64_C(64) << 30, "64.0 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[VALUE_TEXT];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_round(rows[i].bytes, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void durations_need_a_unit(void **state)
{
    char text[VALUE_TEXT];
    uint64_t ms;

    (void)state;
    assert_int_equal(duration_parse("0", &ms), 0);
    assert_int_equal(ms, 0);
    assert_int_equal(duration_parse("90s", &ms), 0);
    assert_int_equal(ms, 90000);
    duration_format(ms, text);
    assert_string_equal(text, "90s");
    assert_int_equal(duration_parse("2min", &ms), 0);
    assert_int_equal(ms, 120000);
    assert_int_equal(duration_parse("1h", &ms), 0);
    duration_format(ms, text);
    assert_string_equal(text, "1h");
    assert_int_equal(duration_parse("30", &ms), -EINVAL);
    assert_int_equal(duration_parse("30m", &ms), -EINVAL);
}

static void modes_are_octal_with_their_zero(void **state)
{
    uint64_t mode;

    (void)state;
    assert_int_equal(mode_parse("0660", &mode), 0);
    assert_int_equal(mode, 0660);
    assert_int_equal(mode_parse("660", &mode), -EINVAL);
    assert_int_equal(mode_parse("0680", &mode), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_noticed_and_never_written),
        cmocka_unit_test(a_long_printf_leaves_what_was_there),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(sizes_are_read_and_written),
        cmocka_unit_test(sizes_are_rounded_for_people),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(modes_are_octal_with_their_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
