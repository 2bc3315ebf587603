/* tests/e2e/store.c - prompts whose blocks say what they are: stored, found again, compared. */
#include "tests/e2e/store.h"

#include "tests/e2e/daemon.h"
#include "tests/e2e/peer.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

const struct kvpool_model store_model = {.name = "stored",
                                         .weights_revision = "1",
                                         .dtype = KVPOOL_OPAQUE,
                                         .layout_name = "bytes",
                                         .opaque_block_bytes = STORE_BLOCK};

uint32_t store_register(struct kvpool *kvpool)
{
    uint32_t model = 0;

    assert_int_equal(kvpool_register_model(kvpool, &store_model, &model, NULL), 0);
    return model;
}

struct kvpool_prompt store_prompt(uint32_t model, uint32_t seed, uint32_t num_blocks,
                                  uint32_t *tokens)
{
    tokens_make(tokens, (size_t)num_blocks * STORE_TOKENS, seed);
    return (struct kvpool_prompt){.model = model,
                                  .tokens = tokens,
                                  .num_tokens = (size_t)num_blocks * STORE_TOKENS,
                                  .raw = true};
}

int store_put(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks, bool keep)
{
    static uint8_t bytes[STORE_MAX_BLOCKS][STORE_BLOCK];
    uint32_t tokens[STORE_MAX_BLOCKS * STORE_TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, seed, num_blocks, tokens);
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;
    int status = kvpool_allocate(kvpool, seed, &prompt, &unfilled, &result);

    if (status)
        return status;
    uint32_t first = (uint32_t)(result.matched / STORE_TOKENS);
    for (uint32_t at = first; at < num_blocks; at++)
        block_fill(bytes[at], STORE_BLOCK, block_tag(seed, at, 1));
    const struct kvpool_blocks blocks = {.sequence = seed,
                                         .first_block = first,
                                         .num_blocks = num_blocks - first,
                                         .data = bytes[first],
                                         .data_bytes =
                                             (uint64_t)(num_blocks - first) * STORE_BLOCK};
    if (first < num_blocks) {
        assert_int_equal(kvpool_write(kvpool, &blocks), 0);
        assert_int_equal(kvpool_fill(kvpool, seed), 0);
        assert_int_equal(kvpool_publish(kvpool, seed), 0);
    }
    if (!keep)
        assert_int_equal(kvpool_release(kvpool, seed), 0);
    return 0;
}

void store_check(struct kvpool *kvpool, uint64_t sequence, uint32_t seed, uint32_t num_blocks)
{
    static uint8_t bytes[STORE_MAX_BLOCKS][STORE_BLOCK];
    const struct kvpool_blocks blocks = {.sequence = sequence,
                                         .num_blocks = num_blocks,
                                         .data = bytes,
                                         .data_bytes = (uint64_t)num_blocks * STORE_BLOCK};

    if (num_blocks == 0)
        return;
    assert_int_equal(kvpool_read(kvpool, &blocks), 0);
    for (uint32_t at = 0; at < num_blocks; at++) {
        if (!block_is(bytes[at], STORE_BLOCK, block_tag(seed, at, 1)))
            fail_msg("block %u of prompt %u is not what was written", at, seed);
    }
}

int store_get(struct kvpool *kvpool, uint32_t model, uint32_t seed, uint32_t num_blocks,
              struct kvpool_result *out)
{
    uint32_t tokens[STORE_MAX_BLOCKS * STORE_TOKENS];
    const struct kvpool_prompt prompt = store_prompt(model, seed, num_blocks, tokens);
    const struct kvpool_allocate_options matched_only = {.unfilled = true, .has_take = true};
    int status = kvpool_allocate(kvpool, seed, &prompt, &matched_only, out);

    if (status)
        return status;
    store_check(kvpool, seed, seed, (uint32_t)(out->matched / STORE_TOKENS));
    assert_int_equal(kvpool_release(kvpool, seed), 0);
    return 0;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

/* Mounts of this process are nobody else's, and gone with it. */
static bool can_mount(void)
{
    static int answer = -1;

    if (answer < 0)
        answer =
            unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return answer;
}

void store_disk_make(struct store_disk *disk)
{
    const char *parent = getenv("KVPOOL_TEST_DISK");

    (void)snprintf(disk->dir, sizeof(disk->dir), "%.40s/kvpool-disk-XXXXXX",
                   parent ? parent : "/tmp");
    assert_non_null(mkdtemp(disk->dir));
    disk->is_mounted =
        !parent && can_mount() && mount("none", disk->dir, "tmpfs", 0, "size=64m,mode=700") == 0;
}

void store_start(struct daemon *daemon, struct store_disk *disk, const char *more)
{
    char config[768];

    (void)snprintf(disk->dir, sizeof(disk->dir), "/tmp/kvpool-disk-XXXXXX");
    assert_non_null(mkdtemp(disk->dir));
    (void)snprintf(config, sizeof(config),
                   "pool-bytes: 2MiB\nwatermark-pages: 0\nahead-bytes: 1MiB\n"
                   "disk-directory: %s\ndisk-max-bytes: 32MiB\ndisk-granule-bytes: 256KiB\n%s",
                   disk->dir, more);
    daemon_start(daemon, config);
}

/* Where memory would stay that nobody has: everything of ours has no name. */
static void check_shm(void)
{
    DIR *directory = opendir("/dev/shm");
    const struct dirent *entry;

    while (directory && (entry = readdir(directory)))
        if (strstr(entry->d_name, "kv"))
            fail_msg("/dev/shm/%s is left over", entry->d_name);
    if (directory)
        (void)closedir(directory);
}

void store_finish(struct daemon *daemon, struct store_disk *disk)
{
    static const char *const names[] = {"blocks", "lock"};
    char path[128];

    daemon_finish(daemon);
    if (disk->is_mounted)
        assert_int_equal(umount2(disk->dir, MNT_DETACH), 0);
    for (size_t at = 0; at < 2; at++) {
        (void)snprintf(path, sizeof(path), "%s/%s", disk->dir, names[at]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(disk->dir), 0); /* nothing else is there */
    check_shm();
}

uint64_t tier_stat(const struct daemon *daemon, const char *name, const char *tier)
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

void store_settle(const struct daemon *daemon)
{
    uint64_t end = now_ms() + 20000, started, before = UINT64_MAX;

    for (;;) {
        started = tier_stat(daemon, "tier_stores_started", "disk") +
                  tier_stat(daemon, "tier_stores_started", "host");
        if (started == before && tier_stat(daemon, "tier_storing_bytes", "disk") == 0 &&
            tier_stat(daemon, "tier_storing_bytes", "host") == 0)
            return;
        before = started;
        assert_true(now_ms() < end);
        (void)usleep(2000);
    }
}

void store_flood(const struct daemon *daemon, struct kvpool *kvpool, uint32_t model,
                 uint32_t first_seed, uint32_t num_prompts)
{
    for (uint32_t seed = first_seed; seed < first_seed + num_prompts; seed++) {
        assert_int_equal(store_put(kvpool, model, seed, 4, false), 0);
        store_settle(daemon);
    }
}

uint64_t store_get_all(const struct daemon *daemon, struct kvpool *kvpool, uint32_t model,
                       uint32_t num_prompts)
{
    struct kvpool_result result;
    uint64_t matched = 0;

    for (uint32_t seed = 1; seed <= num_prompts; seed++) {
        if (daemon)
            store_settle(daemon);
        assert_int_equal(store_get(kvpool, model, seed, 4, &result), 0);
        matched += result.matched;
    }
    if (daemon)
        store_settle(daemon);
    return matched;
}
