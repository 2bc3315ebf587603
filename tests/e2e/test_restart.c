/* tests/e2e/test_restart.c - what a daemon left, however it ended, the next one finds. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, PROMPTS = 12, TOKENS = BLOCKS * STORE_TOKENS };

static struct daemon daemon_;
static struct store_disk disk;

static int finish(void **state)
{
    (void)state;
    store_finish(&daemon_, &disk);
    return 0;
}

/* Everything is on disk, and nothing else outlives the daemon. */
static void start_and_fill(void)
{
    store_start(&daemon_, &disk, "store-when: at-once\nkeep: none\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    assert_int_equal(tier_stat(&daemon_, "tier_stores", "disk"), PROMPTS * BLOCKS);
    kvpool_disconnect(kvpool);
}

/* How many tokens of all prompts are found, every block being exact. */
static uint64_t get_all(void)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    uint64_t matched = store_get_all(&daemon_, kvpool, model, PROMPTS);
    kvpool_disconnect(kvpool);
    return matched;
}

static void restart_after(int signal)
{
    int status = daemon_stop(&daemon_, signal);

    assert_int_equal(status, signal == SIGKILL ? 128 + SIGKILL : 0);
    daemon_restart(&daemon_);
    stat_await(&daemon_, "disk_phase", 3, 20000);
}

static void check_slots(void)
{
    uint64_t used = stat_read(&daemon_, "disk_used_granules");
    uint64_t slots = tier_stat(&daemon_, "tier_free", "disk") +
                     tier_stat(&daemon_, "tier_evictable", "disk") +
                     tier_stat(&daemon_, "tier_reserved", "disk");

    assert_int_equal(slots, used * 4); /* of 64 KiB in granules of 256 KiB */
    assert_int_equal(tier_stat(&daemon_, "tier_charged_bytes", "disk"), used * (256 << 10));
}

static void a_clean_stop_loses_nothing_on_disk(void **state)
{
    (void)state;
    start_and_fill();
    restart_after(SIGTERM);
    assert_int_equal(stat_read(&daemon_, "disk_restored_blocks"), PROMPTS * BLOCKS);
    check_slots();
    assert_int_equal(get_all(), PROMPTS * TOKENS);
    assert_int_equal(tier_stat(&daemon_, "tier_hit_tokens", "disk"), PROMPTS * TOKENS);
}

static void a_killed_daemon_loses_nothing_that_was_stored(void **state)
{
    (void)state;
    start_and_fill();
    for (int time = 0; time < 3; time++) {
        restart_after(SIGKILL);
        check_slots();
        assert_int_equal(get_all(), PROMPTS * TOKENS);
    }
}

static void what_was_cleared_is_not_found_after_a_restart(void **state)
{
    (void)state;
    start_and_fill();
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR};
    assert_int_equal(kvpool_call(operator, & clear, NULL), 0);
    kvpool_disconnect(operator);
    restart_after(SIGKILL);
    assert_int_equal(get_all(), 0);
    check_slots();
}

/* `kvpoold fsck`: its exit status. */
static int fsck(const char *option)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        execl(getenv("KVPOOLD"), "kvpoold", "fsck", disk.dir, option, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Bits flip while nobody looks: misses, and never a wrong byte. */
static void spoilt_blocks_are_misses(void **state)
{
    char path[128];
    uint8_t byte;

    (void)state;
    start_and_fill();
    assert_int_equal(fsck("--data"), 2); /* a daemon has it */
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    assert_int_equal(fsck("--data"), 0);
    (void)snprintf(path, sizeof(path), "%s/blocks", disk.dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t end = lseek(fd, 0, SEEK_END);
    for (off_t at = end - (off_t)125 * (256 << 10); at < end; at += 3 * (64 << 10)) {
        assert_int_equal(pread(fd, &byte, 1, at + 17), 1); /* each third slot of the data */
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at + 17), 1);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(fsck(NULL), 0); /* headers are well */
    assert_int_equal(fsck("--data"), 1);
    assert_int_equal(fsck("--nothing"), 2);
    daemon_restart(&daemon_);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    uint64_t matched = get_all();
    assert_in_range(matched, TOKENS, PROMPTS * TOKENS / 2);
    assert_in_range(stat_read(&daemon_, "disk_corrupt"), PROMPTS, PROMPTS * BLOCKS / 2);
}

static void config_change(const char *expression)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "sed -i '%s' %s/kvpoold.yaml", expression,
                   daemon_.dir);
    assert_int_equal(system(command), 0);
}

/* The exit status of a daemon that is not to start. */
static int start_refused(void)
{
    char config[128];
    int status;
    pid_t pid = fork();

    (void)snprintf(config, sizeof(config), "%s/kvpoold.yaml", daemon_.dir);
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(getenv("KVPOOLD"), "kvpoold", "--config", config, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_disk_that_cannot_be_had_is_refused_or_gone_without(void **state)
{
    (void)state;
    start_and_fill();
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    config_change(
        "s/^disk-granule-bytes: .*/disk-granule-bytes: 512KiB/"); /* not as it is laid out */
    assert_int_equal(start_refused(), 1);
    config_change("$ a disk-optional: true");
    daemon_restart(&daemon_);
    assert_int_equal(stat_read(&daemon_, "disk_phase"), 0);
    assert_int_equal(get_all(), 0);
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    config_change("$ a strict: true");
    assert_int_equal(start_refused(), 1); /* a fallback */
    config_change("/^strict/d");
    config_change("s/^disk-granule-bytes: .*/disk-granule-bytes: 256KiB/");
    daemon_restart(&daemon_);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    assert_int_equal(get_all(), PROMPTS * TOKENS); /* nothing happened to it */
}

/* ---- memory --------------------------------------------------------------------------------- */

/* No disk has it: what is found was in memory. */
static void start_in_memory(const char *more)
{
    char config[256];

    (void)snprintf(config, sizeof(config), "store-default: none\nkeep: holder\n%s", more);
    store_start(&daemon_, &disk, config);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    for (uint32_t seed = 1; seed <= 6; seed++)
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
    kvpool_disconnect(kvpool);
}

static uint64_t get_six(void)
{
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    uint64_t matched = store_get_all(NULL, kvpool, model, 6);
    kvpool_disconnect(kvpool);
    return matched;
}

static void restart_hot(int signal)
{
    restart_after(signal);
    stat_await(&daemon_, "memory_adopting", 0, 20000);
}

/* In a process of its own, which may die of it. Whether it lived. */
static bool fork_scribbles(void *block)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        memset(block, 0xEE, STORE_BLOCK);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status);
}

static void memory_outlives_the_daemon(void **state)
{
    static const int signals[] = {SIGTERM, SIGKILL, SIGKILL, SIGTERM};

    (void)state;
    start_in_memory("");
    for (size_t time = 0; time < 4; time++) {
        restart_hot(signals[time]);
        assert_int_equal(stat_read(&daemon_, "memory_restored_blocks"), 6 * BLOCKS);
        assert_int_equal(get_six(), 6 * TOKENS);
        assert_int_equal(tier_stat(&daemon_, "tier_hit_tokens", "device"), 6 * TOKENS);
        assert_int_equal(stat_read(&daemon_, "arenas_unkept"), 0);
    }
}

static void memory_without_a_mount_does_so_too(void **state)
{
    (void)state;
    start_in_memory("private-mount: false\n");
    for (int time = 0; time < 2; time++) {
        restart_hot(SIGKILL);
        assert_int_equal(get_six(), 6 * TOKENS);
    }
}

/* The engine lives on, and writes where it could before: that is nowhere any more. */
static void no_mapping_of_before_reaches_what_was_kept(void **state)
{
    uint32_t tokens[TOKENS], slots[BLOCKS];
    struct kvpool_table table = {.slots = slots, .max = BLOCKS};
    const struct kvpool_allocate_options options = {
        .unfilled = true, .tables = &table, .num_tables = 1};
    struct kvpool_arena arena;

    (void)state;
    store_start(&daemon_, &disk, "store-default: none\nkeep: holder\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, KVPOOL_MAPPED);
    uint32_t model = store_register(kvpool);
    const struct kvpool_prompt prompt = store_prompt(model, 1, BLOCKS, tokens);
    assert_int_equal(kvpool_open_arena(kvpool, model, 0, NULL, &arena), 0);
    assert_true(arena.is_writable);
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, &options, NULL), 0);
    for (uint32_t at = 0; at < BLOCKS; at++)
        block_fill(block_at(&arena, slots[at]), STORE_BLOCK, block_tag(1, at, 1));
    assert_int_equal(kvpool_fill(kvpool, 1), 0);
    assert_int_equal(kvpool_publish(kvpool, 1), 0);
    restart_hot(SIGKILL);
    for (uint32_t at = 0; at < BLOCKS; at++)
        (void)fork_scribbles(block_at(&arena, slots[at]));
    struct kvpool *other = engine_connect(&daemon_, NULL, 0);
    struct kvpool_result result;
    model = store_register(other);
    assert_int_equal(store_get(other, model, 1, BLOCKS, &result), 0);
    assert_int_equal(result.matched, TOKENS);
    kvpool_close_arena(&arena);
    kvpool_disconnect(kvpool);
    kvpool_disconnect(other);
}

/* What a session wanted to be stored nowhere is not stored by the next life either. */
static void unwanted_blocks_stay_unwanted(void **state)
{
    (void)state;
    start_in_memory("");
    restart_hot(SIGKILL);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, KVPOOL_STORE_NONE);
    store_flood(&daemon_, kvpool, store_register(kvpool), 100, 8);
    assert_int_equal(tier_stat(&daemon_, "tier_stores_started", "disk"), 0);
    kvpool_disconnect(kvpool);
}

static void shutdown_and_forget(void)
{
    const struct kvpool_request shutdown = {.verb = KVPOOL_SHUTDOWN, .forget = true};
    struct kvpool *operator= operator_connect(&daemon_);
    int status;

    assert_int_equal(kvpool_call(operator, & shutdown, NULL), 0);
    kvpool_disconnect(operator);
    assert_int_equal(waitpid(daemon_.pid, &status, 0), daemon_.pid);
    daemon_.pid = 0;
    assert_int_equal(status, 0);
}

static void forgotten_memory_does_not(void **state)
{
    (void)state;
    start_in_memory("");
    shutdown_and_forget();
    daemon_restart(&daemon_);
    assert_int_equal(stat_read(&daemon_, "memory_granules"), 0);
    assert_int_equal(get_six(), 0);
}

/* By a daemon that keeps nothing, of memory that an earlier one left with a holder: whose socket
 * goes with it. */
static void memory_of_an_earlier_daemon_is_forgotten_too(void **state)
{
    char path[96];

    (void)state;
    start_in_memory("");
    (void)snprintf(path, sizeof(path), "%s/state/holder.sock", daemon_.dir);
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    config_change("s/^keep: .*/keep: none/");
    daemon_restart(&daemon_);
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    assert_int_equal(access(path, F_OK), 0); /* a stop alone leaves it where it is */
    daemon_restart(&daemon_);
    shutdown_and_forget();
    uint64_t end = now_ms() + 5000;
    while (access(path, F_OK) == 0)
        assert_true(now_ms() < end);
    config_change("s/^keep: .*/keep: holder/");
    daemon_restart(&daemon_);
    assert_int_equal(stat_read(&daemon_, "memory_granules"), 0);
}

static void cleared_memory_is_not_found(void **state)
{
    (void)state;
    start_in_memory("");
    struct kvpool *operator= operator_connect(&daemon_);
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR};
    assert_int_equal(kvpool_call(operator, & clear, NULL), 0);
    kvpool_disconnect(operator);
    restart_hot(SIGKILL);
    assert_int_equal(get_six(), 0);
}

static void another_budget_gives_the_memory_up(void **state)
{
    (void)state;
    start_in_memory("");
    assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
    config_change("s/^pool-bytes: .*/pool-bytes: 4MiB/");
    daemon_restart(&daemon_);
    assert_int_equal(stat_read(&daemon_, "device_charged_bytes"), 0);
    assert_int_equal(stat_read(&daemon_, "memory_dropped_arenas"), 1); /* and that is said */
    assert_int_equal(get_six(), 0);
}

/* What the kernel says is locked of the daemon's memory, in bytes. */
static uint64_t locked_bytes(const struct daemon *daemon)
{
    char path[64], line[256];
    unsigned long kib = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) && sscanf(line, "VmLck: %lu kB", &kib) != 1)
        ;
    (void)fclose(file);
    return (uint64_t)kib << 10;
}

/* Memory that engines map and copy from: what is pinned is what is committed, after a kill too. */
static void a_pinned_pool_outlives_the_daemon(void **state)
{
    (void)state;
    store_start(&daemon_, &disk, "keep: holder\npool-pinned: true\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, 2);
    kvpool_disconnect(kvpool);
    if (has_fallback(&daemon_, "host-not-pinned")) {
        print_message("[ SKIPPED  ] this process may not pin memory\n");
        skip();
    }
    for (int life = 0; life < 2; life++) {
        uint64_t charged = stat_read(&daemon_, "device_charged_bytes");
        assert_true(charged > 0);
        stat_await(&daemon_, "pool_pinned_bytes", charged, 5000);
        assert_true(locked_bytes(&daemon_) >= charged);
        if (life == 0)
            restart_hot(SIGKILL);
    }
}

static void both_tiers_of_memory_outlive_the_daemon(void **state)
{
    (void)state;
    store_start(&daemon_, &disk, "keep: holder\nhost-tier-bytes: 2MiB\nhost-ahead-bytes: 1MiB\n");
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    uint32_t model = store_register(kvpool);
    store_flood(&daemon_, kvpool, model, 1, PROMPTS);
    kvpool_disconnect(kvpool);
    uint64_t in_host = tier_stat(&daemon_, "tier_evictable", "host");
    assert_true(in_host > 0);
    uint64_t in_pool = tier_stat(&daemon_, "tier_evictable", "device");
    bool is_pinned = stat_read(&daemon_, "host_pinned_bytes") > 0;
    uint64_t killed_ms = now_ms();
    restart_hot(SIGKILL);
    assert_int_equal(stat_read(&daemon_, "memory_restored_blocks"), in_host + in_pool);
    if (is_pinned) /* as far as this process may */
        assert_int_equal(stat_read(&daemon_, "host_pinned_bytes"),
                         tier_stat(&daemon_, "tier_charged_bytes", "host"));
    assert_in_range(tier_stat(&daemon_, "tier_coldest_age_ms", "host"), 0, now_ms() - killed_ms);
    assert_int_equal(get_all(), PROMPTS * TOKENS);
    assert_true(tier_stat(&daemon_, "tier_hit_tokens", "host") > 0);
}

/* ---- at any moment -------------------------------------------------------------------------- */

enum { KILLS = 12, SEEDS = 40 };

/* Puts and gets prompts at random for as long as the daemon lives: what matches is exact. */
static void load_run(unsigned seed)
{
    uint32_t tokens[TOKENS];
    static uint8_t bytes[BLOCKS][STORE_BLOCK];
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, 0);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;
    uint32_t model = 0;

    if (!kvpool || kvpool_register_model(kvpool, &store_model, &model, NULL))
        _exit(0); /* it was killed before */
    for (uint64_t sequence = 1;; sequence++) {
        uint32_t prompt_seed = (uint32_t)rand_r(&seed) % SEEDS + 1;
        const struct kvpool_prompt prompt = store_prompt(model, prompt_seed, BLOCKS, tokens);
        int status = kvpool_allocate(kvpool, sequence, &prompt, &unfilled, &result);
        if (status == KVPOOL_DISCONNECTED)
            break;
        if (status)
            continue; /* no room just now */
        uint32_t first = (uint32_t)(result.matched / STORE_TOKENS);
        struct kvpool_blocks blocks = {.sequence = sequence,
                                       .first_block = first,
                                       .num_blocks = BLOCKS - first,
                                       .data = bytes[first],
                                       .data_bytes = (uint64_t)(BLOCKS - first) * STORE_BLOCK};
        for (uint32_t at = first; at < BLOCKS; at++)
            block_fill(bytes[at], STORE_BLOCK, block_tag(prompt_seed, at, 1));
        if (first < BLOCKS && (kvpool_write(kvpool, &blocks) || kvpool_fill(kvpool, sequence) ||
                               kvpool_publish(kvpool, sequence)))
            break;
        blocks = (struct kvpool_blocks){
            .sequence = sequence, .num_blocks = BLOCKS, .data = bytes, .data_bytes = sizeof(bytes)};
        if (kvpool_read(kvpool, &blocks))
            break;
        for (uint32_t at = 0; at < BLOCKS; at++) {
            if (!block_is(bytes[at], STORE_BLOCK, block_tag(prompt_seed, at, 1)))
                _exit(77);
        }
        if (kvpool_release(kvpool, sequence))
            break;
    }
    _exit(0);
}

static void killed_at_any_moment_it_serves_no_wrong_byte(void **state)
{
    unsigned random = 4711;
    int status;

    (void)state;
    store_start(&daemon_, &disk, "keep: holder\nhost-tier-bytes: 1MiB\nhost-ahead-bytes: 1MiB\n");
    for (int kills = 0; kills < KILLS; kills++) {
        pid_t loads[2];
        for (unsigned at = 0; at < 2; at++) {
            loads[at] = fork();
            if (loads[at] == 0)
                load_run(random + at);
        }
        (void)usleep((useconds_t)rand_r(&random) % 400000);
        assert_int_equal(daemon_stop(&daemon_, SIGKILL), 128 + SIGKILL);
        for (unsigned at = 0; at < 2; at++) {
            assert_int_equal(waitpid(loads[at], &status, 0), loads[at]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        daemon_restart(&daemon_);
    }
    stat_await(&daemon_, "memory_adopting", 0, 20000);
    stat_await(&daemon_, "disk_phase", 3, 20000);
    store_settle(&daemon_);
    check_slots();
    assert_true(stat_read(&daemon_, "memory_restored_blocks") > 0);
    assert_true(stat_read(&daemon_, "disk_restored_blocks") > 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clean_stop_loses_nothing_on_disk),
        TEST(a_killed_daemon_loses_nothing_that_was_stored),
        TEST(what_was_cleared_is_not_found_after_a_restart),
        TEST(spoilt_blocks_are_misses),
        TEST(a_disk_that_cannot_be_had_is_refused_or_gone_without),
        TEST(memory_outlives_the_daemon),
        TEST(memory_without_a_mount_does_so_too),
        TEST(no_mapping_of_before_reaches_what_was_kept),
        TEST(unwanted_blocks_stay_unwanted),
        TEST(forgotten_memory_does_not),
        TEST(memory_of_an_earlier_daemon_is_forgotten_too),
        TEST(cleared_memory_is_not_found),
        TEST(another_budget_gives_the_memory_up),
        TEST(a_pinned_pool_outlives_the_daemon),
        TEST(both_tiers_of_memory_outlive_the_daemon),
        TEST(killed_at_any_moment_it_serves_no_wrong_byte),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
