/*
 * tests/e2e/test_poison.c - no wrong byte: tiny tiers, a disk that lies, and everything gets
 * killed.
 *
 * By hand for longer: test_poison --reads 10000000 --seed 7.
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/lying.h"
#include "tests/e2e/poison.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
enum { DEFAULT_READS = 20000 };
#else
enum { DEFAULT_READS = 100000 };
#endif
enum { ENGINES = 4, NUM_KEYS = 900, STALLED_MS = 120000 };

static uint64_t num_reads = DEFAULT_READS;
static uint64_t reads_per_event = 15000;
static uint32_t seed = 1;

static const char *const tiers[] = {"device", "host", "disk"};

static struct {
    struct daemon daemon;
    struct store_disk disk;
    char faults_path[96];
    struct fault_board *faults;
    struct poison_board *board;
    struct poison_engine engines[ENGINES];
    pid_t pids[ENGINES];
    uint64_t hits[3], stores_failed, fetches_failed, corrupt; /* of all lives but the last */
    uint64_t num_kills, num_restarts, num_clears;
} all;

/* ---- the daemon and its engines ------------------------------------------------------------- */

static void numbers_add(void)
{
    for (int at = 0; at < 3; at++) {
        all.hits[at] += tier_stat(&all.daemon, "tier_hit_tokens", tiers[at]);
        all.stores_failed += tier_stat(&all.daemon, "tier_stores_failed", tiers[at]);
        all.fetches_failed += tier_stat(&all.daemon, "tier_fetches_failed", tiers[at]);
    }
    all.corrupt += stat_read(&all.daemon, "disk_corrupt");
}

static void engine_begin(int at)
{
    struct poison_engine *engine = &all.engines[at];

    engine->seed += ENGINES;
    all.pids[at] = poison_start(engine);
}

static void engine_kill(int at)
{
    int status;

    assert_int_equal(kill(all.pids[at], SIGKILL), 0);
    assert_int_equal(waitpid(all.pids[at], &status, 0), all.pids[at]);
    assert_true(WIFSIGNALED(status)); /* none had ended by itself */
    all.num_kills++;
    engine_begin(at);
}

static int setup(void **state)
{
    char config[1024];

    (void)state;
    store_disk_make(&all.disk);
    (void)snprintf(all.faults_path, sizeof(all.faults_path), "%s.lies", all.disk.dir);
    all.faults = fault_board_make(all.faults_path);
    fault_board_usual(all.faults, seed);
    (void)snprintf(config, sizeof(config),
                   "pool-bytes: 1MiB\nhost-tier-bytes: 1MiB\nahead-bytes: 512KiB\n"
                   "host-ahead-bytes: 512KiB\nwatermark-pages: 0\ndisk-directory: %s\n"
                   "disk-max-bytes: 6MiB\ndisk-granule-bytes: 64KiB\ndisk-min-block-bytes: 4KiB\n"
                   "disk-max-block-bytes: 64KiB\ndisk-deadline: 2s\nkeep: holder\ndrain: 100ms\n"
                   "max-blocks: 4096\nmax-sequences: 256\n" POISON_DOMAINS,
                   all.disk.dir);
    daemon_start(&all.daemon, config);
    all.board = poison_board_make();
    for (int at = 0; at < ENGINES; at++) {
        struct poison_engine *engine = &all.engines[at];
        *engine = (struct poison_engine){.board = all.board,
                                         .owner = (uint32_t)at % 2,
                                         .seed = seed * 1000 + (uint32_t)at,
                                         .num_keys = NUM_KEYS};
        (void)snprintf(engine->dir, sizeof(engine->dir), "%s/run", all.daemon.dir);
        engine_begin(at);
    }
    return 0;
}

static int finish(void **state)
{
    (void)state;
    for (int at = 0; at < ENGINES; at++) {
        if (all.pids[at] > 0) {
            (void)kill(all.pids[at], SIGKILL);
            (void)waitpid(all.pids[at], NULL, 0);
        }
    }
    fault_board_free(all.faults, all.faults_path);
    store_finish(&all.daemon, &all.disk);
    poison_board_free(all.board);
    return 0;
}

/* ---- what happens to them ------------------------------------------------------------------- */

static void daemon_again(int signal)
{
    numbers_add();
    (void)daemon_stop(&all.daemon, signal);
    daemon_restart(&all.daemon);
    all.num_restarts++;
}

static void kill_daemon(uint64_t number)
{
    (void)number;
    daemon_again(SIGKILL);
}

static void stop_daemon(uint64_t number)
{
    (void)number;
    daemon_again(SIGTERM);
}

static void kill_engine(uint64_t number)
{
    engine_kill((int)(number % ENGINES));
}

static void clear(uint64_t number)
{
    const struct kvpool_request request = {.verb = KVPOOL_CLEAR, .deadline_ms = 30000};
    struct kvpool *operator= operator_connect(&all.daemon);

    (void)number;
    atomic_fetch_add(&all.board->begun, 1);
    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    atomic_store(&all.board->cleared, atomic_load(&all.board->begun));
    kvpool_disconnect(operator);
    all.num_clears++;
}

static void hold_disk(uint64_t number)
{
    (void)number;
    atomic_store(&all.faults->is_held, 1); /* longer than disk-deadline */
    (void)usleep(2500000);
    atomic_store(&all.faults->is_held, 0);
}

/* Every second write is refused, until one was; then the disk is not written to for a second. */
static void refuse(enum fault fault)
{
    uint64_t before = atomic_load(&all.faults->hits[fault]), end = now_ms() + 5000;

    atomic_store(&all.faults->rates[fault], 500000);
    while (atomic_load(&all.faults->hits[fault]) == before && now_ms() < end)
        (void)usleep(1000);
    atomic_store(&all.faults->rates[fault], 0);
}

static void fill_disk(uint64_t number)
{
    refuse(number % 2 ? FAULT_ENOSPC : FAULT_EDQUOT);
}

static void make_read_only(uint64_t number)
{
    (void)number;
    refuse(FAULT_EROFS);
}

static void until_reads(uint64_t reads)
{
    uint64_t seen = 0, end = now_ms() + STALLED_MS;

    while (seen < reads && atomic_load(&all.board->wrong) + atomic_load(&all.board->odd) == 0) {
        uint64_t before = seen;
        (void)usleep(10000);
        seen = atomic_load(&all.board->reads);
        if (seen != before)
            end = now_ms() + STALLED_MS;
        if (now_ms() > end)
            fail_msg("nothing was read for %d s", STALLED_MS / 1000);
    }
}

static void engines_end(void)
{
    atomic_store(&all.board->must_stop, true);
    for (int at = 0; at < ENGINES; at++) {
        int status;
        assert_int_equal(waitpid(all.pids[at], &status, 0), all.pids[at]);
        all.pids[at] = 0;
        assert_int_equal(status, 0);
    }
}

static void await_tiers(const char *name)
{
    uint64_t end = now_ms() + 20000;

    for (int at = 0; at < 3; at++) {
        while (tier_stat(&all.daemon, name, tiers[at]) != 0) {
            if (now_ms() > end)
                fail_msg("%s of %s is %lu, not 0", name, tiers[at],
                         tier_stat(&all.daemon, name, tiers[at]));
            (void)usleep(5000);
        }
    }
}

/* Once nobody asks for anything, nothing is held, reserved or under way. */
static void nothing_is_left_over(void)
{
    stat_await(&all.daemon, "pool_sessions", 0, 10000);
    stat_await(&all.daemon, "pool_sequences", 0, 10000);
    stat_await(&all.daemon, "pool_held", 0, 10000);
    stat_await(&all.daemon, "pool_waiting", 0, 10000);
    await_tiers("tier_storing_bytes");
    await_tiers("tier_reserved");
    stat_await(&all.daemon, "disk_queued", 0, 10000);
    assert_int_equal(stat_read(&all.daemon, "disk_used_granules") * (64 << 10),
                     tier_stat(&all.daemon, "tier_charged_bytes", "disk"));
}

static void say(void)
{
    const struct poison_board *board = all.board;

    print_message("%lu blocks compared (%lu shared), %lu found below, %lu written; %lu rounds, "
                  "%lu resumes, %lu prefetches, %lu forks, %lu cancelled; %lu failed, %lu timed "
                  "out, %lu connections lost\n",
                  board->reads, board->shared_reads, board->below, board->writes, board->rounds,
                  board->resumes, board->prefetches, board->forks, board->cancels, board->failures,
                  board->timeouts, board->lost);
    print_message("hit tokens: device %lu, host %lu, disk %lu; stores failed %lu, fetches failed "
                  "%lu, corrupt %lu; engines killed %lu, daemons %lu, cleared %lu\n",
                  all.hits[0], all.hits[1], all.hits[2], all.stores_failed, all.fetches_failed,
                  all.corrupt, all.num_kills, all.num_restarts, all.num_clears);
    for (int fault = 0; fault < NUM_FAULTS; fault++)
        print_message("%s: %lu%s", fault_name((enum fault)fault),
                      atomic_load(&all.faults->hits[fault]), fault + 1 < NUM_FAULTS ? ", " : "\n");
    if (board->wrong + board->odd > 0) {
        static char json[1 << 20];
        struct kvpool *operator= operator_connect(&all.daemon);
        const struct kvpool_request stats = {
            .verb = KVPOOL_STATS, .json = json, .json_max = sizeof(json)};
        print_error("%lu wrong, %lu odd: %s\n", board->wrong, board->odd, board->text);
        if (kvpool_call(operator, & stats, NULL) == 0)
            (void)fprintf(stderr, "%s\n", json);
        kvpool_disconnect(operator);
    }
}

/* What the proof would be worth nothing without. */
static void everything_happened(void)
{
    for (int at = 0; at < 3; at++)
        assert_true(all.hits[at] > 0);
    for (int fault = 0; fault < NUM_FAULTS; fault++) {
        if (fault != FAULT_STALL || num_reads >= 1000000) /* hold_disk() is one, too */
            assert_true(atomic_load(&all.faults->hits[fault]) > 0);
    }
    assert_true(all.corrupt > 0 && all.fetches_failed > 0 && all.stores_failed > 0);
    assert_true(all.board->shared_reads > 0 && all.board->below > 0);
}

static void no_byte_is_ever_wrong(void **state)
{
    (void)state;
    static void (*const events[])(uint64_t number) = {
        kill_engine, fill_disk,   kill_daemon, clear,       fill_disk,     kill_engine,
        hold_disk,   stop_daemon, kill_engine, kill_daemon, make_read_only};
    uint64_t num_events = num_reads / reads_per_event + 1;

    num_events = num_events < ARRAY_SIZE(events) ? ARRAY_SIZE(events) : num_events;

    for (uint64_t at = 0; at < num_events && all.board->wrong + all.board->odd == 0; at++) {
        until_reads(num_reads * (at + 1) / (num_events + 1));
        events[at % ARRAY_SIZE(events)](at);
    }
    until_reads(num_reads);
    engines_end();
    nothing_is_left_over();
    numbers_add();
    say();
    assert_int_equal(all.board->wrong, 0);
    assert_int_equal(all.board->odd, 0);
    assert_true(all.board->reads >= num_reads);
    everything_happened();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_byte_is_ever_wrong, setup, finish),
    };

    for (int at = 1; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "--reads") == 0)
            num_reads = strtoull(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--reads-per-event") == 0)
            reads_per_event = strtoull(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--seed") == 0)
            seed = (uint32_t)strtoul(argv[at + 1], NULL, 10);
        else
            return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
