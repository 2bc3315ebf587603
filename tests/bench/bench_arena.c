/*
 * tests/bench/bench_arena.c - copies, commits and the start of the host device, beside bare calls.
 *
 * Cases that need each other's state (commit, then decommit) are one after the other in each round.
 */
#include "gpu/gpu.h"
#include "gpu/host/block_copy.h"
#include "gpu/host/mount.h"
#include "tests/bench/bench.h"

#include <linux/falloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)
#define PAGE (2 * MiB)

enum {
    ARENA_PAGES = 192,
    NUM_COPIES = 20, /* one by one, to time how long one takes */
    MAX_CASES = 6,
};

static const uint64_t ARENA_BYTES = ARENA_PAGES * PAGE;
static const uint64_t BATCH_BYTES = 1 * MiB;
static const double GIB = 1 << 30;

static struct bench bench;
static struct bench_case cases[MAX_CASES];
static struct gpu_device *device;

static void need(bool is_fine, const char *what)
{
    if (is_fine)
        return;
    (void)fprintf(stderr, "bench_arena: %s failed\n", what);
    exit(1);
}

static struct gpu_device *device_create(uint64_t num_pages, uint64_t populate_bytes)
{
    struct gpu_device_options options = {.budget_bytes = num_pages * PAGE,
                                         .page_bytes = PAGE,
                                         .max_arenas = 2,
                                         .max_operations = 1024,
                                         .populate_bytes = populate_bytes};
    struct gpu_device *created;

    need(gpu_device_create(&options, &created) == 0, "gpu_device_create");
    return created;
}

static void arena_open(struct gpu_device *of, uint32_t number, uint64_t block_bytes)
{
    struct gpu_arena_options options = {.block_bytes = block_bytes, .max_granules = ARENA_PAGES};

    need(gpu_choose_granule(block_bytes, PAGE, &options.granule) == 0, "gpu_choose_granule");
    need(gpu_arena_open(of, number, &options) == 0, "gpu_arena_open");
}

/* Reaps until at most @num_left of @num_operations are under way; answers how many are. */
static size_t reap(size_t num_operations, size_t num_left)
{
    struct gpu_completion completions[64];
    struct pollfd event = {.fd = gpu_device_event_fd(device), .events = POLLIN};

    while (num_operations > num_left) {
        need(poll(&event, 1, 10000) == 1, "poll");
        size_t num_reaped = gpu_device_reap(device, completions, 64);
        for (size_t i = 0; i < num_reaped; i++)
            need(completions[i].status == 0, "an operation");
        num_operations -= num_reaped;
    }
    return num_operations;
}

/* --- commits: @state is the arena's number, or the bare file --- */

static void commit_run(void *state)
{
    for (uint32_t granule = 0; granule < ARENA_PAGES; granule++)
        need(gpu_commit(device, *(uint32_t *)state, granule, 0) == 0, "gpu_commit");
    (void)reap(ARENA_PAGES, 0);
}

static void decommit_run(void *state)
{
    for (uint32_t granule = 0; granule < ARENA_PAGES; granule++)
        need(gpu_decommit(device, *(uint32_t *)state, granule, 0) == 0, "gpu_decommit");
    (void)reap(ARENA_PAGES, 0);
}

/* A file of a mount of the same kind, without a device around it. */
struct bare {
    struct host_mount mount;
    struct host_file file;
    char *area;
};

static void bare_init(struct bare *bare)
{
    const struct gpu_device_options options = {.budget_bytes = ARENA_BYTES, .page_bytes = PAGE};
    struct host_fallbacks fallbacks = {0};

    need(host_mount_init(&bare->mount, &host_syscalls, &options, &fallbacks) == 0, "a mount");
    need(host_file_create(&bare->mount, ARENA_BYTES, false, &bare->file) == 0, "a file");
    bare->area = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, bare->file.fd, 0);
    need(bare->area != MAP_FAILED, "mmap");
}

static void bare_finish(struct bare *bare)
{
    (void)munmap(bare->area, ARENA_BYTES);
    host_file_close(&bare->file);
    host_mount_finish(&bare->mount);
}

static void bare_commit_run(void *state)
{
    const struct bare *bare = state;

    for (uint64_t offset = 0; offset < ARENA_BYTES; offset += PAGE) {
        need(host_syscalls.fallocate(bare->file.fd, 0, (off_t)offset, PAGE) == 0, "fallocate");
        for (uint64_t at = 0; at < PAGE; at += 4096)
            *(volatile char *)(bare->area + offset + at) = 1;
    }
}

static void bare_punch_run(void *state)
{
    const struct bare *bare = state;
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    for (uint64_t offset = 0; offset < ARENA_BYTES; offset += PAGE)
        need(host_syscalls.fallocate(bare->file.fd, mode, (off_t)offset, PAGE) == 0, "a punch");
}

/* --- copies --- */

struct copies {
    uint32_t arena;
    uint64_t block_bytes;
    uint64_t bytes;                                         /* of a run */
    void (*copy)(void *to, const void *from, size_t bytes); /* of the bare ones */
};

static uint32_t random_slot(const struct copies *copies)
{
    return (uint32_t)((uint64_t)rand() % (ARENA_BYTES / copies->block_bytes)) + 1;
}

static struct gpu_copy random_copy(const struct copies *copies)
{
    return (struct gpu_copy){.from = {.arena = copies->arena, .slot = random_slot(copies)},
                             .to = {.arena = copies->arena, .slot = random_slot(copies)}};
}

/* Through the interface: batches of 1 MiB, or of one block; up to 16 batches under way. */
static void copies_run(void *state)
{
    const struct copies *copies = state;
    struct gpu_copy batch[GPU_MAX_BATCH];
    size_t per_batch = copies->block_bytes < BATCH_BYTES ? BATCH_BYTES / copies->block_bytes : 1;
    size_t num_under_way = 0;

    for (uint64_t bytes = 0; bytes < copies->bytes; bytes += per_batch * copies->block_bytes) {
        for (size_t i = 0; i < per_batch; i++)
            batch[i] = random_copy(copies);
        need(gpu_copy(device, batch, per_batch, 0) == 0, "gpu_copy");
        num_under_way = reap(num_under_way + 1, 15);
    }
    (void)reap(num_under_way, 0);
}

static void copies_one_run(void *state)
{
    for (int i = 0; i < NUM_COPIES; i++) {
        struct gpu_copy copy = random_copy(state);
        need(gpu_copy(device, &copy, 1, 0) == 0, "gpu_copy");
        (void)reap(1, 0);
    }
}

static void copies_bare_run(void *state)
{
    const struct copies *copies = state;
    char *base = gpu_arena_base(device, copies->arena);

    for (uint64_t bytes = 0; bytes < copies->bytes; bytes += copies->block_bytes)
        copies->copy(base + (random_slot(copies) - 1) * copies->block_bytes,
                     base + (random_slot(copies) - 1) * copies->block_bytes, copies->block_bytes);
}

/* --- what is measured. The worst ratios are far over CLAIMS.md, so that noise does not fail a
 * build, and farther for what another thread does: it has to be given a CPU first --- */

/* GB/s, or us or ms of an item. */
static void report(const char *name, const char *unit, size_t ours, const char *limit_name,
                   size_t limit, double worst_ratio)
{
    bool is_rate = unit[0] == 'G';
    double ours_ns = cases[ours].median_ns, limit_ns = cases[limit].median_ns;
    double scale = unit[0] == 'u' ? 1e-3 : 1e-6;

    bench_report(&bench,
                 &(struct bench_row){.name = name,
                                     .ours = is_rate ? 1 / ours_ns : ours_ns * scale,
                                     .unit = unit,
                                     .limit_name = limit_name,
                                     .limit = is_rate ? 1 / limit_ns : limit_ns * scale,
                                     .ratio = bench_ratio(&bench, &cases[ours], &cases[limit]),
                                     .worst_ratio = worst_ratio});
}

static void bench_copies(const struct copies *ours, const char *const names[2], double worst)
{
    struct copies copies = *ours, plain = *ours, streaming = *ours;
    double num_bytes = (double)ours->bytes, num_blocks = num_bytes / (double)ours->block_bytes;

    plain.copy = block_copier_plain.copy;
    streaming.copy = block_copiers()[0]->copy;
    cases[0] = (struct bench_case){copies_run, &copies, num_bytes, 0, {0}};
    cases[1] = (struct bench_case){copies_bare_run, &plain, num_bytes, 0, {0}};
    cases[2] = (struct bench_case){copies_bare_run, &streaming, num_bytes, 0, {0}};
    cases[3] = (struct bench_case){copies_one_run, &copies, NUM_COPIES, 0, {0}};
    cases[4] = (struct bench_case){copies_bare_run, &streaming, num_blocks, 0, {0}};
    bench_run(&bench, cases, 5);
    report(names[0], "GB/s", 0, "bare non-temporal", 2, worst);
    report(names[0], "GB/s", 0, "memcpy", 1, worst);
    report(names[1], "us", 3, "bare non-temporal", 4, 0);
}

static void bench_commits(uint32_t arena)
{
    struct bare bare;

    bare_init(&bare);
    cases[0] = (struct bench_case){commit_run, &arena, (double)ARENA_BYTES / GIB, 0, {0}};
    cases[1] = (struct bench_case){bare_commit_run, &bare, (double)ARENA_BYTES / GIB, 0, {0}};
    cases[2] = (struct bench_case){decommit_run, &arena, (double)ARENA_BYTES / GIB, 0, {0}};
    cases[3] = (struct bench_case){bare_punch_run, &bare, (double)ARENA_BYTES / GIB, 0, {0}};
    bench_run(&bench, cases, 4);
    report("commit", "ms/GiB", 0, "bare fallocate + touch", 1, 4);
    report("decommit", "ms/GiB", 2, "bare punch", 3, 0);
    bare_finish(&bare);
}

/* --- starting: @state is the device that is started --- */

static void create_run(void *state)
{
    *(struct gpu_device **)state = device_create(1 << 20, 0); /* 2 TiB: no memory is touched */
}

static void open_run(void *state)
{
    arena_open(*(struct gpu_device **)state, 0, PAGE);
}

static void destroy_run(void *state)
{
    gpu_device_destroy(*(struct gpu_device **)state);
}

static void populate_run(void *state)
{
    struct gpu_device *started = device_create(ARENA_PAGES, ARENA_BYTES);
    struct gpu_memory memory;

    do {
        (void)poll(NULL, 0, 1);
        gpu_device_memory(started, &memory);
        need(memory.populate_status == 0, "populate");
    } while (memory.populated_bytes < memory.populate_bytes);
    *(struct gpu_device **)state = started;
}

static void bench_start(void)
{
    static const double limit_us = 200e3; /* from when on a daemon answers */
    struct gpu_device *started;
    struct bare bare;

    cases[0] = (struct bench_case){create_run, &started, 1, 0, {0}};
    cases[1] = (struct bench_case){open_run, &started, 1, 0, {0}};
    cases[2] = (struct bench_case){destroy_run, &started, 1, 0, {0}};
    bench_run(&bench, cases, 3);
    double us = cases[0].median_ns / 1000;
    bench_report(&bench, &(struct bench_row){"device create, 2 TiB", us, "us", "200 ms", limit_us,
                                             us / limit_us, 1});
    bench_report(&bench, &(struct bench_row){"arena open", cases[1].median_ns / 1000, "us",
                                             "(no limit)", 0, 0, 0});

    bare_init(&bare);
    cases[0] = (struct bench_case){populate_run, &started, (double)ARENA_BYTES / GIB, 0, {0}};
    cases[1] = (struct bench_case){bare_commit_run, &bare, (double)ARENA_BYTES / GIB, 0, {0}};
    cases[2] = (struct bench_case){destroy_run, &started, 1, 0, {0}};
    cases[3] = (struct bench_case){bare_punch_run, &bare, 1, 0, {0}};
    bench_run(&bench, cases, 4);
    report("create and populate", "ms/GiB", 0, "bare fallocate + touch", 1, 4);
    bare_finish(&bare);
}

int main(int argc, char **argv)
{
    /* Small ones here, in runs too short to be interrupted; large ones in the lane. */
    const struct copies small = {1, 64 * KiB, 16 * MiB, NULL}, large = {0, 2 * MiB, 64 * MiB, NULL};
    uint32_t arenas[] = {0, 1};
    int status = bench_begin(&bench, argc, argv, "arena",
                             "copies of random cold blocks, commits and starts of the host device");
    if (status >= 0)
        return status;

    if (!bench.is_json)
        printf("copies by %s\n", block_copiers()[0]->name);
    device = device_create(2ull * ARENA_PAGES, 0);
    arena_open(device, 0, 2 * MiB);
    arena_open(device, 1, 64 * KiB);
    commit_run(&arenas[1]);
    bench_commits(0);
    commit_run(&arenas[0]);
    bench_copies(&small, (const char *const[]){"copy 64 KiB", "copy 64 KiB, one"}, 2);
    bench_copies(&large, (const char *const[]){"copy 2 MiB", "copy 2 MiB, one"}, 5);
    gpu_device_destroy(device);
    bench_start();
    return bench_end(&bench);
}
