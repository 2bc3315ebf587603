/* tests/e2e/test_tiers.c - a tiny pool over a disk: what leaves the pool comes back, exact. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPTS = 24, BLOCKS = 4 }; /* 96 blocks, and the pool holds 32 */

static char disk_dir[64];

static void start_with(struct daemon *daemon, const char *more)
{
    char config[512];

    (void)snprintf(disk_dir, sizeof(disk_dir), "/tmp/kvpool-disk-XXXXXX");
    assert_non_null(mkdtemp(disk_dir));
    (void)snprintf(config, sizeof(config),
                   "pool-bytes: 2MiB\nwatermark-pages: 0\nahead-bytes: 1MiB\n"
                   "disk-directory: %s\ndisk-max-bytes: 32MiB\ndisk-granule-bytes: 256KiB\n%s",
                   disk_dir, more);
    daemon_start(daemon, config);
}

static void finish_with(struct daemon *daemon)
{
    char path[128];

    daemon_finish(daemon);
    for (const char *const *name = (const char *const[]){"blocks", "lock", NULL}; *name; name++) {
        (void)snprintf(path, sizeof(path), "%s/%s", disk_dir, *name);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(disk_dir), 0);
}

static uint64_t tier_stat(const struct daemon *daemon, const char *name, const char *tier);

static void what_is_evicted_comes_back_exact(void **state)
{
    struct daemon daemon;
    struct kvpool_result result;
    uint64_t matched = 0, below = 0;

    (void)state;
    start_with(&daemon, "");
    struct kvpool *kvpool = engine_connect(&daemon, NULL, 0);
    uint32_t model = store_register(kvpool);
    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
        (void)usleep(20000); /* so that the disk can keep up */
    }
    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        assert_int_equal(store_get(kvpool, model, seed, BLOCKS, &result), 0);
        matched += result.matched;
        below += result.below;
    }
    assert_int_equal(matched, PROMPTS * BLOCKS * STORE_TOKENS);
    assert_true(below > 0);
    assert_int_equal(tier_stat(&daemon, "tier_hit_tokens", "device") +
                         tier_stat(&daemon, "tier_hit_tokens", "disk"),
                     stat_read(&daemon, "pool_hit_tokens"));
    kvpool_disconnect(kvpool);
    finish_with(&daemon);
}
static uint64_t tier_stat(const struct daemon *daemon, const char *name, const char *tier)
{
    static char json[1 << 20];
    struct kvpool *kvpool = operator_connect(daemon);
    const struct kvpool_request request = {
        .verb = KVPOOL_STATS, .json = json, .json_max = sizeof(json)};
    char key[128];

    assert_int_equal(kvpool_call(kvpool, &request, NULL), 0);
    kvpool_disconnect(kvpool);
    (void)snprintf(key, sizeof(key), "\"%s\":{", name);
    char *at = strstr(json, key);
    assert_non_null(at);
    (void)snprintf(key, sizeof(key), "\"%s\":", tier);
    at = strstr(at, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

#define TEST(name) cmocka_unit_test(name)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST(what_is_evicted_comes_back_exact)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
