/* tests/client-lib/test_json.c - what client-lib/kvpool_command_json.c promises. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/kvpool_command_json.h"
#include "tests/support/test.h"

static char text[512];

static struct json *parse(const char *from)
{
    snprintf(text, sizeof(text), "%s", from);
    return json_parse(text);
}

static void values_are_found_by_name(void **state)
{
    (void)state;
    struct json *json = parse(" {\"a\": 1.5e3, \"b\" : [true, null, \"x\\\"\\n\\u00e9y\"], "
                              "\"c\": {\"d\": false}, \"e\": {}, \"f\": []} ");
    assert_non_null(json);
    assert_true(json_number(json, "a") == 1500);
    const struct json *item = json_member(json, "b")->first;
    assert_int_equal(item->kind, JSON_TRUE);
    assert_int_equal(item->next->kind, JSON_NULL);
    assert_string_equal(item->next->next->string, "x\"\n?y");
    assert_null(item->next->next->next);
    assert_int_equal(json_member(json_member(json, "c"), "d")->kind, JSON_FALSE);
    assert_null(json_member(json, "e")->first);
    free(json);
}

static void what_is_missing_is_null(void **state)
{
    (void)state;
    struct json *json = parse("{\"a\": \"text\"}");
    assert_true(json_number(json, "a") == 0);
    assert_string_equal(json_string(json, "b"), "");
    assert_false(json_is_true(json, "a"));
    assert_int_equal(json_member(json_member(json, "a"), "b")->kind, JSON_NULL);
    assert_null(json_member(NULL, "a")->first);
    free(json);
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    const char *bad[] = {
        "",       "{",   "[1,",   "{\"a\"}",  "{\"a\":}",
        "\"open", "tru", "[1 2]", "{\"a\":1", "1 2",
        "[,]",    "]",   "\"\\",  "{1:2}",    "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct json *json = parse(bad[i]);
        if (json)
            fail_msg("taken for JSON: %s", bad[i]);
    }
}

static void every_cut_is_survived(void **state)
{
    (void)state;
    const char *whole = "{\"a\": [1, {\"b\": \"\\u0041\\\\\"}, null], \"c\": -2.5}";
    for (size_t n = 0; n < strlen(whole); n++) {
        char cut[128];
        memcpy(cut, whole, n);
        cut[n] = '\0';
        assert_null(parse(cut));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_by_name),
        cmocka_unit_test(what_is_missing_is_null),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(every_cut_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
