/*
 * tests/e2e/test_kills.c - the daemon is killed at random points: what was committed is found
 * again, exact, and every slot is accounted for.
 *
 * By hand for longer: test_kills --kills 1000 --seed 7 (of each of the three kinds of daemon).
 */
#include "tests/e2e/daemon.h"
#include "tests/e2e/poison.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NUM_KEYS = 400, /* until everything is cleared: fits the largest tier of each */
    SLOTS = 16,     /* of 4,000 bytes, in a page of 64 KiB, and in a granule of the disk */
    PAGE = 64 << 10
};

static uint32_t num_kills = 7, seed = 1; /* for each kind: 21 in all */

static struct {
    struct daemon daemon;
    struct store_disk disk;
    struct poison_board *board;
    struct poison_engine engine;
    uint64_t random;
    uint32_t num_committed; /* prompts 0 .. num_committed - 1 are to be found */
    uint32_t num_early, num_torn;
    uint64_t found, restored_ms;
} all;

static uint32_t draw(uint32_t num)
{
    all.random = all.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((all.random >> 33) % num);
}

/* ---- daemons -------------------------------------------------------------------------------- */

/* What outlives a daemon, and whether every published block does. */
static const struct kind {
    const char *config;
    bool has_disk;
    bool is_kept; /* published blocks are found again; else those that were on disk */
} kinds[] = {
    {"pool-bytes: 24MiB\nkeep: holder\n", false, true},
    {"pool-bytes: 2MiB\nkeep: none\nahead-bytes: 1MiB\nstore-when: at-once\n", true, false},
    {"pool-bytes: 2MiB\nkeep: holder\nahead-bytes: 1MiB\nstore-when: at-once\n"
     "host-tier-bytes: 2MiB\nhost-ahead-bytes: 1MiB\n",
     true, false},
};

static int begin(const struct kind *kind)
{
    char config[1024];
    int length =
        snprintf(config, sizeof(config), "%swatermark-pages: 0\n" POISON_DOMAINS, kind->config);

    store_disk_make(&all.disk);
    if (kind->has_disk)
        (void)snprintf(config + length, sizeof(config) - (size_t)length,
                       "disk-directory: %s\ndisk-max-bytes: 28MiB\ndisk-granule-bytes: 64KiB\n"
                       "disk-min-block-bytes: 4KiB\ndisk-max-block-bytes: 64KiB\n",
                       all.disk.dir);
    daemon_start(&all.daemon, config);
    all.board = poison_board_make();
    all.random = seed;
    all.num_committed = all.num_early = all.num_torn = 0;
    all.found = all.restored_ms = 0;
    all.engine =
        (struct poison_engine){.board = all.board, .num_keys = NUM_KEYS, .is_one_model = true};
    all.engine.published =
        mmap(NULL, NUM_KEYS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all.engine.published != MAP_FAILED);
    (void)snprintf(all.engine.dir, sizeof(all.engine.dir), "%s/run", all.daemon.dir);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    store_finish(&all.daemon, &all.disk);
    assert_int_equal(munmap(all.engine.published, NUM_KEYS), 0);
    poison_board_free(all.board);
    return 0;
}

/* ---- what is looked at between two lives ---------------------------------------------------- */

static void fsck(void)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        execl(getenv("KVPOOLD"), "kvpoold", "fsck", all.disk.dir, "--data", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1); /* 1: something was torn */
    all.num_torn += WEXITSTATUS(status) == 1;
}

static void check_slots(const struct kind *kind)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    static const char *const slots[] = {"tier_free", "tier_held", "tier_evictable", "tier_reserved",
                                        "tier_quarantined"};

    for (int tier = 0; tier < (kind->has_disk ? 3 : 1); tier++) {
        uint64_t sum = 0, charged = tier_stat(&all.daemon, "tier_charged_bytes", tiers[tier]);
        for (size_t at = 0; at < ARRAY_SIZE(slots); at++)
            sum += tier_stat(&all.daemon, slots[at], tiers[tier]);
        charged -= tier_stat(&all.daemon, "tier_idle_bytes", tiers[tier]);
        if (sum != charged / PAGE * SLOTS)
            fail_msg("%s: %lu slots of %lu granules", tiers[tier], sum, charged / PAGE);
    }
    if (kind->has_disk)
        assert_int_equal(stat_read(&all.daemon, "disk_used_granules") * PAGE,
                         tier_stat(&all.daemon, "tier_charged_bytes", "disk"));
}

static void check_blocks(void)
{
    struct poison_client client = {.engine = &all.engine};
    uint32_t found, blocks;

    assert_int_equal(poison_connect(&client), 0);
    for (uint32_t key = 0; key < NUM_KEYS; key++) {
        if (key >= all.num_committed + 60 && key > 0) /* nobody came as far */
            break;
        assert_int_equal(poison_get(&client, key, &found, &blocks), 0);
        if (key < all.num_committed && found != blocks)
            fail_msg("prompt %u of %u that were committed: %u of %u blocks are found", key,
                     all.num_committed, found, blocks);
        all.found += found;
    }
    kvpool_disconnect(client.kvpool);
    if (atomic_load(&all.board->wrong) + atomic_load(&all.board->odd) > 0)
        fail_msg("%s", all.board->text);
}

/* ---- lives ---------------------------------------------------------------------------------- */

static uint32_t num_published(void)
{
    uint32_t num = 0;

    while (num < NUM_KEYS && ((volatile uint8_t *)all.engine.published)[num])
        num++;
    return num;
}

/* Some prompts, all of which have to be found afterwards. */
static void commit_some(const struct kind *kind)
{
    struct poison_client client = {.engine = &all.engine};

    assert_int_equal(poison_connect(&client), 0);
    for (uint32_t at = 0; at < 6 && all.num_committed < NUM_KEYS; at++) {
        assert_int_equal(poison_put(&client, all.num_committed), 0);
        all.engine.published[all.num_committed++] = 1;
        if (kind->has_disk)
            store_settle(&all.daemon);
    }
    if (kind->has_disk)
        stat_await(&all.daemon, "disk_queued", 0, 10000);
    kvpool_disconnect(client.kvpool);
}

static void clear(void)
{
    const struct kvpool_request request = {.verb = KVPOOL_CLEAR};
    struct kvpool *operator= operator_connect(&all.daemon);

    atomic_fetch_add(&all.board->begun, 1);
    assert_int_equal(kvpool_call(operator, & request, NULL), 0);
    atomic_fetch_add(&all.board->cleared, 1);
    kvpool_disconnect(operator);
    memset(all.engine.published, 0, NUM_KEYS);
    all.num_committed = 0;
}

/* While an engine puts more; at any point of starting, too. */
static void kill_somewhere(const struct kind *kind)
{
    all.engine.seed = draw(1 << 30);
    pid_t pid = poison_put_start(&all.engine, all.num_committed);
    int status;

    (void)usleep(draw(40000));
    if (draw(5) == 0) { /* while it stops by itself */
        assert_int_equal(kill(all.daemon.pid, SIGTERM), 0);
        (void)usleep(draw(20000));
    }
    (void)daemon_stop(&all.daemon, SIGKILL);
    atomic_store(&all.board->must_stop, true);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    atomic_store(&all.board->must_stop, false);
    while (draw(3) == 0) {
        daemon_spawn(&all.daemon);
        (void)usleep(draw(60000));
        (void)daemon_stop(&all.daemon, SIGKILL);
        all.num_early++;
    }
    if (kind->is_kept)
        all.num_committed = num_published();
}

static void live_and_die(const struct kind *kind)
{
    begin(kind);
    for (uint32_t at = 0; at < num_kills; at++) {
        if (all.num_committed + 100 > NUM_KEYS)
            clear();
        commit_some(kind);
        kill_somewhere(kind);
        if (kind->has_disk)
            fsck();
        uint64_t since = now_ms();
        daemon_restart(&all.daemon);
        stat_await(&all.daemon, "disk_phase", kind->has_disk ? 3 : 0, 20000);
        stat_await(&all.daemon, "memory_adopting", 0, 20000);
        all.restored_ms += now_ms() - since;
        check_slots(kind);
        check_blocks();
        check_slots(kind);
    }
    print_message("%u kills and %u while it started; %lu blocks found again, %lu compared in all, "
                  "%lu written; %u times something was torn; %lu ms each until all was known\n",
                  num_kills, all.num_early, all.found, all.board->reads, all.board->writes,
                  all.num_torn, all.restored_ms / num_kills);
}

static void memory_that_is_kept_is_found_again(void **state)
{
    (void)state;
    live_and_die(&kinds[0]);
}

static void what_was_on_disk_is_found_again(void **state)
{
    (void)state;
    live_and_die(&kinds[1]);
}

static void three_tiers_are_found_again(void **state)
{
    (void)state;
    live_and_die(&kinds[2]);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_that_is_kept_is_found_again),
        TEST(what_was_on_disk_is_found_again),
        TEST(three_tiers_are_found_again),
    };

    for (int at = 1; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "--kills") == 0)
            num_kills = (uint32_t)strtoul(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--seed") == 0)
            seed = (uint32_t)strtoul(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--only") == 0)
            cmocka_set_test_filter(argv[at + 1]);
        else
            return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
