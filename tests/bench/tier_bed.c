/* tests/bench/tier_bed.c - starts, kills and asks a kvpoold with tiers. */
#include "tests/bench/tier_bed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JSON_BYTES = 1 << 20, MORE_BYTES = 512, DISK_READY = 3 /* disk_phase */ };

bool tier_bed_init(struct tier_bed *bed, const char *title)
{
    const char *parent = getenv("KVPOOLD_BENCH_DIR");

    *bed = (struct tier_bed){.program = getenv("KVPOOLD")};
    if (!bed->program) {
        (void)fprintf(stderr, "%s: set KVPOOLD to the kvpoold to measure\n", title);
        return false;
    }
    (void)fflush(stdout); /* children print nothing of it */
    (void)snprintf(bed->disk, sizeof(bed->disk), "%s/kvpoold-bench-XXXXXX",
                   parent ? parent : "/var/tmp");
    if (!mkdtemp(bed->disk)) {
        (void)fprintf(stderr, "%s: cannot make %s\n", title, bed->disk);
        return false;
    }
    daemon_bed_directory(&bed->daemon);
    return true;
}

static void ask_operator(struct tier_bed *bed)
{
    const struct kvpool_options options = {
        .struct_bytes = sizeof(options), .dir = bed->daemon.run, .connect_ms = 10000};

    daemon_bed_must(NULL, kvpool_connect_operator(&options, &bed->operator_), "operator");
}

static void forget_operator(struct tier_bed *bed)
{
    kvpool_disconnect(bed->operator_);
    bed->operator_ = NULL;
}

static void remove_files(struct tier_bed *bed)
{
    static const char *const names[] = {"blocks", "lock", "limit"};
    char path[300];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", bed->disk, names[i]);
        (void)unlink(path);
    }
}

void tier_bed_start(struct tier_bed *bed, const char *settings, uint64_t disk_bytes)
{
    char disk[MORE_BYTES] = "";

    if (disk_bytes > 0)
        (void)snprintf(disk, sizeof(disk), "disk-directory: %s\ndisk-max-bytes: %llu\n", bed->disk,
                       (unsigned long long)disk_bytes);
    (void)snprintf(bed->settings, sizeof(bed->settings), "%s%s", settings, disk);
    daemon_bed_start(&bed->daemon, bed->program, bed->settings);
    while (disk_bytes > 0 && tier_bed_number(bed, "disk_phase", NULL) != DISK_READY)
        (void)usleep(1000);
}

void tier_bed_kill(struct tier_bed *bed)
{
    forget_operator(bed);
    (void)kill(bed->daemon.pid, SIGKILL);
    (void)waitpid(bed->daemon.pid, NULL, 0);
    bed->daemon.pid = 0;
}

void tier_bed_respawn(struct tier_bed *bed)
{
    daemon_bed_spawn(&bed->daemon, bed->program, bed->settings);
}

static void forget_memory(struct tier_bed *bed)
{
    const struct kvpool_request shutdown = {.verb = KVPOOL_SHUTDOWN, .forget = true};

    if (!bed->operator_)
        ask_operator(bed);
    (void)kvpool_call(bed->operator_, &shutdown, NULL); /* no keeper has it any more */
}

void tier_bed_stop(struct tier_bed *bed)
{
    if (bed->daemon.pid > 0)
        forget_memory(bed);
    forget_operator(bed);
    daemon_bed_stop(&bed->daemon);
    remove_files(bed);
}

void tier_bed_finish(struct tier_bed *bed)
{
    tier_bed_stop(bed);
    daemon_bed_finish(&bed->daemon);
    (void)rmdir(bed->disk);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static char json[JSON_BYTES];

static void take_numbers(struct tier_bed *bed)
{
    const struct kvpool_request request = {
        .verb = KVPOOL_STATS, .json = json, .json_max = sizeof(json)};

    if (!bed->operator_)
        ask_operator(bed);
    daemon_bed_must(bed->operator_, kvpool_call(bed->operator_, &request, NULL), "stats");
}

static uint64_t number_of(const char *name, const char *tier)
{
    char key[128];

    (void)snprintf(key, sizeof(key), tier ? "\"%s\":{" : "\"%s\":", name);
    const char *at = strstr(json, key);
    if (at && tier) {
        (void)snprintf(key, sizeof(key), "\"%s\":", tier);
        at = strstr(at, key);
    }
    return at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

uint64_t tier_bed_number(struct tier_bed *bed, const char *name, const char *tier)
{
    take_numbers(bed);
    return number_of(name, tier);
}

uint64_t tier_bed_skipped(struct tier_bed *bed, const char *tier)
{
    static const char *const names[] = {"tier_skipped_off", "tier_skipped_busy",
                                        "tier_skipped_rate", "tier_skipped_full",
                                        "tier_stores_failed"};
    uint64_t sum = 0;

    take_numbers(bed);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        sum += number_of(names[i], i < 4 ? "device" : tier);
    return sum;
}

void tier_bed_settle(struct tier_bed *bed, const char *tier)
{
    uint64_t before = UINT64_MAX;

    for (;; (void)usleep(500)) {
        take_numbers(bed);
        const uint64_t started = number_of("tier_stores_started", tier);
        if (started == before && number_of("tier_storing_bytes", tier) == 0)
            return;
        before = started;
    }
}
