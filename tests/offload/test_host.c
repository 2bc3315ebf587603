/* tests/offload/test_host.c - the host tier is pinned and interleaved, or says why it is not. */
#include "offload/host.h"
#include "offload/host_syscalls.h"
#include "tests/support/test.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KiB ((uint64_t)1 << 10)

enum { PAGE = 64 << 10, PAGES = 256, BLOCK = 60000 };

static uint32_t num_mlocks, num_munlocks, num_mbinds;
static uint64_t mlocked_bytes[64], mbound_bytes;
static int mlock_error, mbind_error;

static int fake_mlock2(const void *address, size_t bytes, unsigned flags)
{
    assert_non_null(address);
    assert_int_equal(flags, MLOCK_ONFAULT);
    assert_in_range(num_mlocks, 0, ARRAY_SIZE(mlocked_bytes) - 1);
    mlocked_bytes[num_mlocks++] = bytes;
    errno = mlock_error;
    return mlock_error ? -1 : 0;
}

static int fake_munlock(const void *address, size_t bytes)
{
    (void)address, (void)bytes;
    num_munlocks++;
    return 0;
}

static long fake_mbind(void *address, unsigned long bytes, int mode, const unsigned long *nodes,
                       unsigned long max_node, unsigned flags)
{
    assert_non_null(address);
    assert_int_equal(mode, MPOL_INTERLEAVE);
    assert_int_equal(nodes[0], 0x5);
    assert_int_equal(flags, 0);
    assert_true(max_node >= 3);
    num_mbinds++;
    mbound_bytes = bytes;
    errno = mbind_error;
    return mbind_error ? -1 : 0;
}

static int two_nodes(unsigned long *out_nodes, unsigned long max_node)
{
    (void)max_node;
    out_nodes[0] = 0x5;
    return 2;
}

static int no_nodes(unsigned long *out_nodes, unsigned long max_node)
{
    (void)out_nodes, (void)max_node;
    errno = EPERM;
    return -1;
}

static const struct host_tier_syscalls fakes = {
    .mlock2 = fake_mlock2, .munlock = fake_munlock, .mbind = fake_mbind, .nodes = two_nodes};

static const struct host_tier_options fine = {
    .device = {.budget_bytes = (uint64_t)PAGES * PAGE,
               .page_bytes = PAGE,
               .max_arenas = 4,
               .max_operations = 64},
};

static struct host_tier *tier_create(const struct host_tier_options *options,
                                     const struct host_tier_syscalls *system)
{
    struct host_tier *tier;
    struct gpu_arena_options arena = {.block_bytes = BLOCK, .max_granules = 16};

    num_mlocks = num_munlocks = num_mbinds = 0;
    mlock_error = mbind_error = 0;
    assert_int_equal(host_tier_create_with(options, system, &tier), 0);
    assert_int_equal(gpu_choose_granule(BLOCK, PAGE, &arena.granule), 0);
    assert_int_equal(host_tier_arena_open(tier, 1, &arena), 0);
    return tier;
}

static uint64_t granule_bytes(void)
{
    struct gpu_granule granule;

    assert_int_equal(gpu_choose_granule(BLOCK, PAGE, &granule), 0);
    return (uint64_t)granule.pages * PAGE;
}

/* What the one operation that was queued comes to. */
static int end(struct host_tier *tier, int answer)
{
    struct gpu_completion done;
    struct pollfd event = {.fd = gpu_device_event_fd(host_tier_device(tier)), .events = POLLIN};

    if (answer != 0)
        return answer;
    do
        assert_int_equal(poll(&event, 1, 10000), 1);
    while (gpu_device_reap(host_tier_device(tier), &done, 1) == 0);
    return done.status;
}

static int commit(struct host_tier *tier, uint32_t granule)
{
    return end(tier, gpu_commit(host_tier_device(tier), 1, granule, granule));
}

static int decommit(struct host_tier *tier, uint32_t granule)
{
    return end(tier, gpu_decommit(host_tier_device(tier), 1, granule, granule));
}

static bool has_fallback(const struct host_tier *tier, const char *name, const char *word,
                         int reason)
{
    struct gpu_fallback fallbacks[8];
    size_t num = host_tier_fallbacks(tier, fallbacks, ARRAY_SIZE(fallbacks));

    assert_in_range(num, 0, ARRAY_SIZE(fallbacks));
    for (size_t i = 0; i < num; i++) {
        if (strcmp(fallbacks[i].name, name) == 0)
            return strstr(fallbacks[i].cost, word) && fallbacks[i].reason == reason;
    }
    return false;
}

/* What the kernel counts as locked. */
static uint64_t locked_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "VmLck: %llu kB", &kib) == 1)
            break;
    }
    (void)fclose(file);
    return kib * KiB;
}

static void what_is_committed_is_pinned_and_no_more(void **state)
{
    struct host_tier *tier = tier_create(&fine, &host_tier_syscalls);
    struct host_tier_stats stats;
    uint64_t before = locked_bytes(), granule = granule_bytes();

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(commit(tier, i), 0);
    host_tier_stats(tier, &stats);
    if (stats.pin_refusals > 0) { /* not root, and a low limit: that is another test */
        host_tier_destroy(tier);
        skip();
    }
    assert_int_equal(locked_bytes() - before, 4 * granule);
    assert_int_equal(stats.pinned_bytes, 4 * granule);
    assert_int_equal(decommit(tier, 1), 0);
    assert_int_equal(locked_bytes() - before, 3 * granule);
    assert_int_equal(commit(tier, 1), 0);
    assert_int_equal(locked_bytes() - before, 4 * granule);
    memset(gpu_arena_base(host_tier_device(tier), 1), 1, granule);
    assert_int_equal(gpu_device_check_excess(host_tier_device(tier), NULL, 0), 0);
    assert_int_equal(end(tier, gpu_arena_close(host_tier_device(tier), 1, 9)), 0);
    assert_int_equal(locked_bytes(), before);
    host_tier_stats(tier, &stats);
    assert_int_equal(stats.pinned_bytes, 0);
    host_tier_destroy(tier);
}

static void pinning_goes_in_chunks(void **state)
{
    struct host_tier_options options = fine;
    uint64_t granule = granule_bytes(), sum = 0;

    (void)state;
    assert_true(granule > 40960); /* so that there is more than one chunk */
    options.chunk_bytes = 40960;
    struct host_tier *tier = tier_create(&options, &fakes);
    assert_int_equal(commit(tier, 0), 0);
    assert_int_equal(num_mlocks, (granule + 40959) / 40960);
    for (uint32_t i = 0; i < num_mlocks; i++) {
        assert_true(mlocked_bytes[i] <= 40960);
        sum += mlocked_bytes[i];
    }
    assert_int_equal(sum, granule);
    host_tier_destroy(tier);
}

static void a_refused_pin_is_said_once_and_harms_nobody(void **state)
{
    struct host_tier *tier = tier_create(&fine, &fakes);
    struct host_tier_stats stats;

    (void)state;
    assert_int_equal(commit(tier, 0), 0);
    mlock_error = ENOMEM;
    for (uint32_t i = 1; i < 5; i++)
        assert_int_equal(commit(tier, i), 0);
    assert_int_equal(num_mlocks, 2);
    host_tier_stats(tier, &stats);
    assert_int_equal(stats.pin_refusals, 1);
    assert_int_equal(stats.pinned_bytes, granule_bytes());
    assert_true(has_fallback(tier, "host-not-pinned", "LimitMEMLOCK", -ENOMEM));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(decommit(tier, i), 0);
    host_tier_stats(tier, &stats);
    assert_int_equal(stats.pinned_bytes, 0);
    host_tier_destroy(tier);
}

static int refuse_lock(size_t bytes)
{
    assert_int_equal(bytes, (uint64_t)PAGES * PAGE);
    errno = EPERM;
    return -1;
}

/* A start that is to be refused for it can be. */
static void what_cannot_be_pinned_is_said_before_it_is_needed(void **state)
{
    struct host_tier_syscalls system = fakes;

    (void)state;
    system.may_lock = refuse_lock;
    struct host_tier *tier = tier_create(&fine, &system);
    assert_true(has_fallback(tier, "host-not-pinned", "LimitMEMLOCK", -EPERM));
    assert_int_equal(commit(tier, 0), 0);
    assert_int_equal(num_mlocks, 0);
    host_tier_destroy(tier);
}

static void memory_is_interleaved_over_the_nodes(void **state)
{
    struct host_tier *tier = tier_create(&fine, &fakes);
    struct host_tier_stats stats;

    (void)state;
    assert_int_equal(num_mbinds, 1);
    assert_int_equal(mbound_bytes, 16 * granule_bytes());
    host_tier_stats(tier, &stats);
    assert_int_equal(stats.num_nodes, 2);
    assert_false(has_fallback(tier, "host-not-interleaved", "", 0));

    /* Refused later: once, and arenas are opened all the same. */
    struct gpu_arena_options arena = {.block_bytes = BLOCK, .max_granules = 2};
    assert_int_equal(gpu_choose_granule(BLOCK, PAGE, &arena.granule), 0);
    mbind_error = EPERM;
    assert_int_equal(host_tier_arena_open(tier, 2, &arena), 0);
    assert_int_equal(host_tier_arena_open(tier, 3, &arena), 0);
    assert_int_equal(num_mbinds, 2);
    assert_true(has_fallback(tier, "host-not-interleaved", "CAP_SYS_NICE", -EPERM));
    host_tier_destroy(tier);
}

static void what_is_asked_for_is_a_fallback_too(void **state)
{
    struct host_tier_options options = fine;
    struct host_tier_syscalls system = fakes;

    (void)state;
    options.without_pin = options.without_interleave = true;
    struct host_tier *tier = tier_create(&options, &fakes);
    assert_int_equal(commit(tier, 0), 0);
    assert_int_equal(num_mlocks, 0);
    assert_int_equal(num_mbinds, 0);
    assert_true(has_fallback(tier, "host-not-pinned", "RLIMIT_MEMLOCK", 0));
    assert_true(has_fallback(tier, "host-not-interleaved", "mbind", 0));
    host_tier_destroy(tier);

    system.nodes = no_nodes;
    tier = tier_create(&fine, &system);
    assert_int_equal(num_mbinds, 0);
    assert_true(has_fallback(tier, "host-not-interleaved", "get_mempolicy", -EPERM));
    host_tier_destroy(tier);
}

/* Root is exempt from the limit: a child that is nobody, in a process of its own. */
static int with_a_low_limit(void)
{
    struct rlimit limit = {.rlim_cur = 64 * KiB, .rlim_max = 64 * KiB};
    struct host_tier_options options = fine;
    struct host_tier *tier;
    struct host_tier_stats stats;

    options.device.without_mount = true;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        return 77;
    tier = tier_create(&options, &host_tier_syscalls);
    for (uint32_t i = 0; i < 8; i++) {
        if (commit(tier, i) != 0)
            return 1;
    }
    host_tier_stats(tier, &stats);
    if (stats.pin_refusals != 1 || stats.pinned_bytes > 64 * KiB)
        return 2;
    bool is_said = has_fallback(tier, "host-not-pinned", "65536 bytes", -ENOMEM);
    host_tier_destroy(tier);
    return is_said ? 0 : 3;
}

static void a_memlock_limit_of_64_kib_degrades_by_name(void **state)
{
    int status;

    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(with_a_low_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void options_out_of_bounds_are_refused(void **state)
{
    struct host_tier_options options = fine;
    struct host_tier *tier = NULL;

    (void)state;
    options.device.budget_bytes++;
    assert_int_equal(host_tier_create(&options, &tier), -EINVAL);
    assert_null(tier);
    host_tier_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_committed_is_pinned_and_no_more),
        cmocka_unit_test(pinning_goes_in_chunks),
        cmocka_unit_test(a_refused_pin_is_said_once_and_harms_nobody),
        cmocka_unit_test(what_cannot_be_pinned_is_said_before_it_is_needed),
        cmocka_unit_test(memory_is_interleaved_over_the_nodes),
        cmocka_unit_test(what_is_asked_for_is_a_fallback_too),
        cmocka_unit_test(a_memlock_limit_of_64_kib_degrades_by_name),
        cmocka_unit_test(options_out_of_bounds_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
