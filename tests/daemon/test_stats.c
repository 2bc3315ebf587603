/* tests/daemon/test_stats.c - what daemon/stats.h promises: every number, in every form, once. */
#include "daemon/observers.h"
#include "daemon/stats.h"
#include "daemon/text.h"
#include "gpu/gpu.h"
#include "tests/daemon/openmetrics.h"
#include "tests/daemon/small_pool.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counters {
    uint64_t matches, allocations, sessions;
};

static struct counters counters;
static uint64_t payer_requests[8];

static const struct stats_row rows[] = {
    {"requests", "requests by verb", STATS_COUNTER, offsetof(struct counters, matches), "verb",
     "match"},
    {"requests", "requests by verb", STATS_COUNTER, offsetof(struct counters, allocations), "verb",
     "allocate"},
    {"sessions", "live engines", STATS_GAUGE, offsetof(struct counters, sessions), NULL, NULL},
};
static const struct stats_row per_payer[] = {
    {"payer_requests", "requests of its sessions", STATS_COUNTER, 0, NULL, NULL},
};

struct fixture {
    struct small_pool small;
    struct stats *stats;
    char *buffer;
    struct text text;
};

/* Twice the causer and the sufferer, to tell them apart. */
static uint64_t fake_evictions(const struct pool *pool, pool_payer causer, pool_payer sufferer)
{
    (void)pool;
    return causer == 1 && sufferer == 0 ? 3 : 0;
}

static struct stats_options options_of(const struct fixture *fixture, uint32_t num_labels)
{
    return (struct stats_options){
        .pool = fixture->small.pool,
        .tables = {{rows, ARRAY_SIZE(rows), &counters, 0}},
        .payer_tables = {{per_payer, 1, payer_requests, sizeof(uint64_t)}},
        .max_payers = 8,
        .num_labels = num_labels,
        .boot_id = "0123",
        .version = "1.2.3",
    };
}

static void begin(struct fixture *fixture, uint32_t num_labels, bool with_evictions)
{
    memset(fixture, 0, sizeof(*fixture));
    counters = (struct counters){0};
    memset(payer_requests, 0, sizeof(payer_requests));
    small_pool_init(&fixture->small);
    struct stats_options options = options_of(fixture, num_labels);
    if (with_evictions)
        options.evictions = fake_evictions;
    assert_int_equal(stats_create(&options, &fixture->stats), 0);
    fixture->buffer = malloc(stats_max_text(fixture->stats));
    fixture->text = text_init(fixture->buffer, stats_max_text(fixture->stats));
}

static void end(struct fixture *fixture)
{
    stats_destroy(fixture->stats);
    pool_destroy(fixture->small.pool);
    free(fixture->buffer);
}

static void add_tenant(struct fixture *fixture, const char *name)
{
    assert_int_equal(
        stats_add_payer(fixture->stats, small_pool_tenant(&fixture->small), name, false), 0);
}

static const char *metrics(struct fixture *fixture, bool is_openmetrics)
{
    const struct stats_snapshot *snapshot = stats_borrow(fixture->stats);
    char why[256];

    assert_non_null(snapshot);
    fixture->text = text_init(fixture->buffer, stats_max_text(fixture->stats));
    stats_snapshot_metrics(fixture->stats, snapshot, is_openmetrics, &fixture->text);
    assert_false(fixture->text.is_cut);
    if (!metrics_check(fixture->buffer, is_openmetrics, why, sizeof(why))) {
        print_error("%s\n", why);
        fail();
    }
    return fixture->buffer;
}

static json_t *snapshot_json(struct fixture *fixture)
{
    fixture->text = text_init(fixture->buffer, stats_max_text(fixture->stats));
    stats_json(fixture->stats, &fixture->text);
    assert_false(fixture->text.is_cut);
    json_t *json = json_loads(fixture->buffer, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    return json;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void the_checker_refuses_what_the_rules_refuse(void **state)
{
    static const char *const bad[] = {
        "# EOF",
        "",
        "a 1\n# EOF\n",
        "# TYPE a gauge\na 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na 1\n",
        "# HELP a b\n# TYPE a gauge\na x\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na 1\n\n# EOF\n",
        "# HELP a b\n# TYPE a counter\na 1\n# EOF\n",
        "# HELP a_total b\n# TYPE a_total counter\na_total 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na{x=\"\\q\"} 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na{x=1} 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\n# HELP a b\na 1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na 1\n# HELP c d\n# TYPE c gauge\nc 1\n# HELP a b\n# EOF\n",
        "# HELP a b\n# TYPE a counter\na_total -1\n# EOF\n",
        "# HELP a b\n# TYPE a gauge\na 1\n# EOF\na 2\n",
    };
    char why[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (metrics_check(bad[i], true, why, sizeof(why)))
            fail_msg("taken: %s", bad[i]);
    assert_true(metrics_check("# HELP a b\n# TYPE a counter\na_total{x=\"\\\"\\n\"} 1\n# EOF\n",
                              true, why, sizeof(why)));
    assert_true(metrics_check("# HELP a_total b\n# TYPE a_total counter\na_total 1\n", false, why,
                              sizeof(why)));
}

static void every_number_is_in_both_formats(void **state)
{
    struct fixture fixture;

    (void)state;
    begin(&fixture, 4, false);
    add_tenant(&fixture, "chat");
    small_pool_fill(&fixture.small, 0, 3);
    counters = (struct counters){.matches = 7, .allocations = 2, .sessions = 1};
    payer_requests[0] = 9;
    stats_set_state(fixture.stats, STATS_READY);
    stats_take(fixture.stats, 1000);
    stats_take(fixture.stats, 2500);

    for (int is_openmetrics = 0; is_openmetrics < 2; is_openmetrics++) {
        const char *text = metrics(&fixture, is_openmetrics);
        assert_true(metrics_find(text, "kvpoold_pool_evictable") == 3);
        assert_true(metrics_find(text, "kvpoold_pool_allocations_total") == 1);
        assert_true(metrics_find(text, "kvpoold_requests_total{verb=\"match\"}") == 7);
        assert_true(metrics_find(text, "kvpoold_requests_total{verb=\"allocate\"}") == 2);
        assert_true(metrics_find(text, "kvpoold_sessions") == 1);
        assert_true(metrics_find(text, "kvpoold_state{state=\"ready\"}") == 1);
        assert_true(metrics_find(text, "kvpoold_state{state=\"starting\"}") == 0);
        assert_true(metrics_find(text, "kvpoold_snapshots_total") == 2);
        assert_true(metrics_find(text, "kvpoold_uptime_seconds") == 1.5);
        assert_true(metrics_find(text, "kvpoold_build_info{version=\"1.2.3\",boot_id=\"0123\"}") ==
                    1);
        assert_true(metrics_find(text, "kvpoold_payer_evictable{payer=\"chat\",kind=\"tenant\"}") ==
                    3);
        assert_true(metrics_find(
                        text, "kvpoold_payer_requests_total{payer=\"chat\",kind=\"tenant\"}") == 9);
        assert_true(
            metrics_find(text, "kvpoold_payer_charged_pages{payer=\"chat\",kind=\"tenant\"}") >= 3);
    }
    end(&fixture);
}

static void json_says_the_same(void **state)
{
    struct fixture fixture;
    const char *name, *boot;
    json_int_t matches, evictable;

    (void)state;
    begin(&fixture, 4, false);
    add_tenant(&fixture, "chat");
    small_pool_fill(&fixture.small, 0, 3);
    counters.matches = 7;
    assert_int_equal(stats_add_fallback(fixture.stats, "slow", "it is \"slow\"", -ENOSYS), 0);
    stats_take(fixture.stats, 1000);

    json_t *json = snapshot_json(&fixture);
    assert_int_equal(json_unpack(json, "{s:s, s:[{s:s}], s:{s:{s:I}}, s:{s:{s:I}}}", "boot_id",
                                 &boot, "fallbacks", "name", &name, "numbers", "requests", "match",
                                 &matches, "payers", "chat", "payer_evictable", &evictable),
                     0);
    assert_string_equal(name, "slow");
    assert_string_equal(boot, "0123");
    assert_int_equal(matches, 7);
    assert_int_equal(evictable, 3);
    json_decref(json);
    end(&fixture);
}

static void payers_beyond_the_labels_are_one_other(void **state)
{
    struct fixture fixture;
    char name[16];
    json_int_t count;

    (void)state;
    begin(&fixture, 2, false);
    for (uint64_t i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof(name), "t%d", (int)i);
        add_tenant(&fixture, name);
        payer_requests[i] = i + 1;
    }
    stats_take(fixture.stats, 1000);
    const char *text = metrics(&fixture, true);
    assert_true(metrics_find(text, "kvpoold_payer_requests_total{payer=\"t1\",kind=\"tenant\"}") ==
                2);
    assert_true(metrics_find(text, "kvpoold_payer_requests_total{payer=\"t2\",kind=\"tenant\"}") ==
                -1);
    assert_true(
        metrics_find(text, "kvpoold_payer_requests_total{payer=\"other\",kind=\"other\"}") == 12);

    json_t *json = snapshot_json(&fixture);
    assert_int_equal(json_unpack(json, "{s:{s:{s:I}}}", "payers", "other", "num_payers", &count),
                     0);
    assert_int_equal(count, 3);
    json_decref(json);
    end(&fixture);
}

static void who_evicted_whom_is_counted(void **state)
{
    struct fixture fixture;

    (void)state;
    begin(&fixture, 2, true);
    add_tenant(&fixture, "victim");
    add_tenant(&fixture, "greedy");
    add_tenant(&fixture, "third");
    small_pool_fill(&fixture.small, 0, 5);
    small_pool_fill(&fixture.small, 1, 6); /* three of the victim's go */
    small_pool_fill(&fixture.small, 2, 8); /* two more of it, and the six */
    stats_take(fixture.stats, 1000);
    const char *text = metrics(&fixture, true);
    assert_true(metrics_find(text, "kvpoold_evictions_total{by=\"greedy\",of=\"victim\"}") == 3);
    assert_true(metrics_find(text, "kvpoold_evictions_total{by=\"other\",of=\"victim\"}") == 2);
    assert_true(metrics_find(text, "kvpoold_evictions_total{by=\"other\",of=\"greedy\"}") == 6);
    assert_true(metrics_find(text, "kvpoold_evictions_total{by=\"victim\",of=\"greedy\"}") == -1);
    json_decref(snapshot_json(&fixture));
    end(&fixture);
}

static void a_tenant_sees_its_own_only(void **state)
{
    struct fixture fixture;

    (void)state;
    begin(&fixture, 1, false);
    add_tenant(&fixture, "chat");
    add_tenant(&fixture, "batch");
    small_pool_fill(&fixture.small, 1, 2);
    stats_payer_json(fixture.stats, 1, &fixture.text); /* without a snapshot, or a label */
    assert_non_null(strstr(fixture.buffer, "{\"payer\":\"batch\""));
    assert_non_null(strstr(fixture.buffer, "\"payer_evictable\":2"));
    assert_null(strstr(fixture.buffer, "chat"));
    json_t *json = json_loads(fixture.buffer, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    json_decref(json);
    fixture.text = text_init(fixture.buffer, 100);
    stats_payer_json(fixture.stats, 77, &fixture.text);
    assert_string_equal(fixture.buffer, "{}");
    end(&fixture);
}

static void a_devices_memory_and_fallbacks_are_there(void **state)
{
    const struct gpu_device_options small = {.budget_bytes = 1 << 20,
                                             .page_bytes = 1 << 16,
                                             .max_arenas = 1,
                                             .max_operations = 4,
                                             .without_mount = true};
    struct fixture fixture;
    struct gpu_device *device;
    struct gpu_fallback found[4];

    (void)state;
    begin(&fixture, 1, false);
    stats_destroy(fixture.stats);
    assert_int_equal(gpu_device_create(&small, &device), 0);
    struct stats_options options = options_of(&fixture, 1);
    options.device = device;
    assert_int_equal(stats_create(&options, &fixture.stats), 0);
    assert_int_equal(stats_add_fallback(fixture.stats, "mine", "costs", 0), 0);
    assert_int_equal(stats_add_fallback(fixture.stats, "mine", "costs", 0), 0);
    assert_int_equal(stats_fallbacks(fixture.stats, found, ARRAY_SIZE(found)), 2);
    assert_string_equal(found[1].name, "mine");
    assert_int_equal(stats_add_fallback(fixture.stats, "passing", "costs", -EPIPE), 0);
    stats_drop_fallback(fixture.stats, "never");
    assert_int_equal(stats_fallbacks(fixture.stats, found, ARRAY_SIZE(found)), 3);
    stats_drop_fallback(fixture.stats, "passing");
    assert_int_equal(stats_fallbacks(fixture.stats, found, ARRAY_SIZE(found)), 2);
    assert_string_equal(found[1].name, "mine");
    stats_take(fixture.stats, 1000);
    const char *text = metrics(&fixture, true);
    assert_true(metrics_find(text, "kvpoold_device_budget_bytes") == 1 << 20);
    assert_true(metrics_find(text, "kvpoold_fallbacks") == 2);
    assert_true(metrics_find(text, "kvpoold_fallback{name=\"memfd-arenas\"}") == 1);
    end(&fixture);
    gpu_device_destroy(device);
}

static void rows_against_the_rules_are_refused(void **state)
{
    static const struct stats_row bad[][2] = {
        {{"Upper", "help", STATS_GAUGE, 0, NULL, NULL}},
        {{"a-b", "help", STATS_GAUGE, 0, NULL, NULL}},
        {{"a_total", "help", STATS_COUNTER, 0, NULL, NULL}},
        {{"a", "", STATS_GAUGE, 0, NULL, NULL}},
        {{"a", "two\nlines", STATS_GAUGE, 0, NULL, NULL}},
        {{"a", "help", STATS_GAUGE, 0, "label", NULL}},
        {{"a", "help", STATS_GAUGE, 0, NULL, NULL}, {"a", "help", STATS_GAUGE, 0, NULL, NULL}},
        {{"a", "help", STATS_GAUGE, 0, "l", "x"}, {"a", "help", STATS_GAUGE, 0, "l", "x"}},
        {{"a", "help", STATS_GAUGE, 0, "l", "x"}, {"a", "help", STATS_COUNTER, 0, "l", "y"}},
        {{"pool_held", "help", STATS_GAUGE, 0, NULL, NULL}},
    };
    struct fixture fixture;
    struct stats *stats = NULL;

    (void)state;
    begin(&fixture, 1, false);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct stats_options options = options_of(&fixture, 1);
        options.tables[0] = (struct stats_table){bad[i], bad[i][1].name ? 2 : 1, &counters, 0};
        assert_int_equal(stats_create(&options, &stats), -EINVAL);
    }
    assert_null(stats);
    end(&fixture);
}

static void names_have_a_cap_and_payers_too(void **state)
{
    struct fixture fixture;
    char name[66];

    (void)state;
    begin(&fixture, 1, false);
    memset(name, 'n', sizeof(name));
    name[65] = '\0';
    assert_int_equal(stats_add_payer(fixture.stats, 0, name, false), -EINVAL);
    assert_int_equal(stats_add_payer(fixture.stats, 0, "", false), -EINVAL);
    assert_int_equal(stats_add_payer(fixture.stats, 0, "a\"b", false), -EINVAL);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(stats_add_payer(fixture.stats, i, "fine", false), 0);
    assert_int_equal(stats_add_payer(fixture.stats, 8, "fine", false), -ENOSPC);
    end(&fixture);
}

static void observers_count_themselves(void **state)
{
    struct fixture fixture;
    struct observers observers = {.http = {.requests = 5}, .events = {.overflows = 2}};

    (void)state;
    begin(&fixture, 1, false);
    stats_destroy(fixture.stats);
    struct stats_options options = options_of(&fixture, 1);
    options.tables[1] = (struct stats_table){observer_rows, num_observer_rows, &observers, 0};
    assert_int_equal(stats_create(&options, &fixture.stats), 0);
    observers_take(&observers, NULL, NULL);
    stats_take(fixture.stats, 1);
    const char *text = metrics(&fixture, true);
    assert_true(metrics_find(text, "kvpoold_http_requests_total") == 5);
    assert_true(metrics_find(text, "kvpoold_event_overflows_total") == 2);
    assert_true(metrics_find(text, "kvpoold_log_written_total") == (double)observers.log.written);
    end(&fixture);
}

/* ---- two threads ---------------------------------------------------------------------------- */

static _Atomic bool is_done;

/* A snapshot is of one moment: here its numbers are all the same. */
static void *read_snapshots(void *argument)
{
    struct fixture *fixture = argument;
    uint64_t num_seen = 0, last_ms = 0;
    char buffer[1 << 16];

    while (!atomic_load(&is_done) || num_seen == 0) {
        const struct stats_snapshot *snapshot = stats_borrow(fixture->stats);
        if (!snapshot)
            continue;
        struct text text = text_init(buffer, sizeof(buffer));
        stats_snapshot_metrics(fixture->stats, snapshot, true, &text);
        double matches = metrics_find(buffer, "kvpoold_requests_total{verb=\"match\"}");
        if (matches != metrics_find(buffer, "kvpoold_requests_total{verb=\"allocate\"}") ||
            matches != metrics_find(buffer, "kvpoold_snapshots_total") ||
            stats_snapshot_ms(snapshot) < last_ms || text.is_cut)
            return "torn";
        last_ms = stats_snapshot_ms(snapshot);
        num_seen++;
    }
    return NULL;
}

static void a_reader_sees_whole_snapshots_in_order(void **state)
{
    struct fixture fixture;
    pthread_t reader;
    void *why;

    (void)state;
    begin(&fixture, 1, false);
    atomic_store(&is_done, false);
    assert_null(stats_borrow(fixture.stats));
    assert_int_equal(pthread_create(&reader, NULL, read_snapshots, &fixture), 0);
    for (uint64_t i = 1; i <= 20000; i++) {
        counters.matches = counters.allocations = i;
        stats_take(fixture.stats, i);
    }
    atomic_store(&is_done, true);
    assert_int_equal(pthread_join(reader, &why), 0);
    assert_null(why);
    const struct stats_snapshot *last = stats_borrow(fixture.stats);
    assert_int_equal(stats_snapshot_ms(last), 20000);
    assert_ptr_equal(stats_borrow(fixture.stats), last);
    end(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checker_refuses_what_the_rules_refuse),
        cmocka_unit_test(every_number_is_in_both_formats),
        cmocka_unit_test(json_says_the_same),
        cmocka_unit_test(payers_beyond_the_labels_are_one_other),
        cmocka_unit_test(who_evicted_whom_is_counted),
        cmocka_unit_test(a_tenant_sees_its_own_only),
        cmocka_unit_test(a_devices_memory_and_fallbacks_are_there),
        cmocka_unit_test(rows_against_the_rules_are_refused),
        cmocka_unit_test(names_have_a_cap_and_payers_too),
        cmocka_unit_test(observers_count_themselves),
        cmocka_unit_test(a_reader_sees_whole_snapshots_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
