/* tests/daemon/test_tier_stats.c - what the numbers of tiers say. */
#include "daemon/log.h"
#include "tests/daemon/small_server.h"

#include <fcntl.h>

static struct small_server small;

static int setup(void **state)
{
    (void)state;
    small_server_init(&small, "keep: none\n");
    return small_server_start(&small);
}

static int teardown(void **state)
{
    (void)state;
    return small_server_finish(&small);
}

static uint64_t stored_percent(uint64_t stored_bytes, uint64_t fetched_bytes)
{
    struct lower_counters *counters = &small.server->tiers.counters[POOL_TIER_DISK];

    counters->stored_bytes = stored_bytes;
    counters->fetched_bytes = fetched_bytes;
    tier_stats_take(small.server);
    return small.server->tier_stats.tiers[POOL_TIER_DISK].stored_percent;
}

static void more_stored_and_less_fetched_is_a_higher_percentage(void **state)
{
    (void)state;
    assert_int_equal(stored_percent(0, 0), 0);
    assert_int_equal(stored_percent(0, 500), 0); /* of an earlier life */
    assert_int_equal(stored_percent(4096, 8192), 50);
    assert_int_equal(stored_percent(8192, 4096), 200);
    assert_int_equal(stored_percent(UINT64_C(1) << 40, 100), UINT64_C(1) << 40);
}

/* A terabyte for nobody: the worst there is, and no 0. */
static void what_nobody_fetched_is_no_small_percentage(void **state)
{
    (void)state;
    assert_int_equal(stored_percent(UINT64_C(1) << 40, 0), UINT64_C(100) << 40);
    assert_true(stored_percent(4096, 0) >= stored_percent(4096, 1));
    assert_int_equal(stored_percent(UINT64_MAX, 0), UINT64_C(1000000000000000000)); /* no wrap */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_stored_and_less_fetched_is_a_higher_percentage, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_nobody_fetched_is_no_small_percentage, setup,
                                        teardown),
    };

    log_configure(&(struct log_options){.fd = open("/dev/null", O_WRONLY | O_CLOEXEC)});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
