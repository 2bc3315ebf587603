/* tests/daemon/test_journal.c - what daemon/journal.h promises. */
#include "daemon/journal.h"
#include "daemon/models.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

static struct journal journal;
static struct model model = {.name = "m"};
static const struct models models = {.models = &model, .count = 1};
static char json[1 << 18];

static int make(void **state)
{
    (void)state;
    return journal_init(&journal, 2);
}

static int unmake(void **state)
{
    (void)state;
    journal_finish(&journal);
    return 0;
}

/* Events of @payer up to the @count-th, each with its number in its key's first byte. */
static void add(pool_payer payer, uint32_t count)
{
    while (journal.counts[payer] < count) {
        struct journal_event event = {.is_stored = true};
        event.key.bytes[0] = (uint8_t)(journal.counts[payer] + 1);
        journal_add(&journal, payer, &event);
    }
}

static void answer_begins(pool_payer payer, uint64_t after, const char *expected)
{
    struct text text = text_init(json, sizeof(json));

    journal_json(&journal, payer, after, &models, &text);
    assert_false(text.is_cut);
    if (strncmp(json, expected, strlen(expected)) != 0)
        fail_msg("%.100s, not %s", json, expected);
}

static void events_come_once_in_their_order(void **state)
{
    (void)state;
    answer_begins(0, 0,
                  "\"events\":{\"first\":1,\"last\":0,\"newest\":0,\"lost\":false,\"blocks\":[]}");
    add(0, 3);
    answer_begins(0, 0,
                  "\"events\":{\"first\":1,\"last\":3,\"newest\":3,\"lost\":false,\"blocks\":["
                  "{\"stored\":true,\"key\":\"01000000");
    answer_begins(0, 2,
                  "\"events\":{\"first\":3,\"last\":3,\"newest\":3,\"lost\":false,\"blocks\":["
                  "{\"stored\":true,\"key\":\"03000000");
    answer_begins(0, 3,
                  "\"events\":{\"first\":4,\"last\":3,\"newest\":3,\"lost\":false,\"blocks\":[]}");
    answer_begins(1, 0,
                  "\"events\":{\"first\":1,\"last\":0,\"newest\":0,\"lost\":false,\"blocks\":[]}");
}

static void many_come_in_parts(void **state)
{
    (void)state;
    add(0, 300);
    answer_begins(0, 0, "\"events\":{\"first\":1,\"last\":256,\"newest\":300,\"lost\":false,");
    answer_begins(0, 256, "\"events\":{\"first\":257,\"last\":300,\"newest\":300,\"lost\":false,");
}

static void who_comes_too_late_is_told(void **state)
{
    (void)state;
    add(0, 1030); /* 1,024 are kept: from the 7th on */
    answer_begins(0, 5, "\"events\":{\"first\":7,\"last\":262,\"newest\":1030,\"lost\":true,");
    answer_begins(0, 6, "\"events\":{\"first\":7,\"last\":262,\"newest\":1030,\"lost\":false,");
}

/* Of a daemon that was there before. */
static void a_number_that_never_was_is_told(void **state)
{
    (void)state;
    add(0, 3);
    answer_begins(0, 9,
                  "\"events\":{\"first\":4,\"last\":3,\"newest\":3,\"lost\":true,\"blocks\":[]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_come_once_in_their_order, make, unmake),
        cmocka_unit_test_setup_teardown(many_come_in_parts, make, unmake),
        cmocka_unit_test_setup_teardown(who_comes_too_late_is_told, make, unmake),
        cmocka_unit_test_setup_teardown(a_number_that_never_was_is_told, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
