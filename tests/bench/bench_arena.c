/* tests/bench/bench_arena.c - copies and commits of the host device beside the bare calls.
 *
 * Every figure is the median of rounds; within a round the sides run one after the other on the
 * same memory, so that what the machine does meanwhile hits all of them.
 */
#include "gpu/gpu.h"
#include "gpu/host/block_copy.h"
#include "gpu/host/mount.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)
#define PAGE (2 * MiB)

enum { NUM_ROUNDS = 5, MAX_FIGURES = 32, ARENA_PAGES = 192, BATCH_BYTES = 1 << 20 };

static struct figure {
    const char *name, *unit;
    double values[NUM_ROUNDS];
} figures[MAX_FIGURES];
static size_t num_figures;
static int round_now;

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void record(const char *name, const char *unit, double value)
{
    size_t i = 0;

    while (i < num_figures && strcmp(figures[i].name, name) != 0)
        i++;
    if (i == num_figures)
        figures[num_figures++] = (struct figure){.name = name, .unit = unit};
    figures[i].values[round_now] = value;
}

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
    struct gpu_device *device;

    need(gpu_device_create(&options, &device) == 0, "gpu_device_create");
    return device;
}

static void arena_open(struct gpu_device *device, uint32_t number, uint64_t block_bytes)
{
    struct gpu_arena_options options = {.block_bytes = block_bytes, .max_granules = ARENA_PAGES};

    need(gpu_choose_granule(block_bytes, PAGE, &options.granule) == 0, "gpu_choose_granule");
    need(gpu_arena_open(device, number, &options) == 0, "gpu_arena_open");
}

/* Reaps until at most @num_left of @num_operations are under way; answers how many are. */
static size_t reap(struct gpu_device *device, size_t num_operations, size_t num_left)
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

static void commit_all(struct gpu_device *device, uint32_t arena)
{
    for (uint32_t granule = 0; granule < ARENA_PAGES; granule++)
        need(gpu_commit(device, arena, granule, 0) == 0, "gpu_commit");
    (void)reap(device, ARENA_PAGES, 0);
}

static void decommit_all(struct gpu_device *device, uint32_t arena)
{
    for (uint32_t granule = 0; granule < ARENA_PAGES; granule++)
        need(gpu_decommit(device, arena, granule, 0) == 0, "gpu_decommit");
    (void)reap(device, ARENA_PAGES, 0);
}

/* --- commits --- */

static void bench_commit(struct gpu_device *device)
{
    const double gib = (double)(ARENA_PAGES * PAGE) / (1 << 30);
    double start = now();
    commit_all(device, 0);
    record("commit", "s/GiB", (now() - start) / gib);
    start = now();
    decommit_all(device, 0);
    record("decommit", "s/GiB", (now() - start) / gib);
}

/* The same calls on a file of a mount of the same kind, without a device around them. */
static void bench_bare_commit(void)
{
    static const struct gpu_device_options options = {.budget_bytes = ARENA_PAGES * PAGE,
                                                      .page_bytes = PAGE};
    const double gib = (double)(ARENA_PAGES * PAGE) / (1 << 30);
    struct host_fallbacks fallbacks = {0};
    struct host_mount mount;
    struct host_file file;
    uint64_t bytes = ARENA_PAGES * PAGE;

    need(host_mount_init(&mount, &host_syscalls, &options, &fallbacks) == 0, "a mount");
    need(host_file_create(&mount, bytes, false, &file) == 0, "a file");
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    need(area != MAP_FAILED, "mmap");
    double start = now();
    for (uint64_t offset = 0; offset < bytes; offset += PAGE) {
        need(host_syscalls.fallocate(file.fd, 0, (off_t)offset, PAGE) == 0, "fallocate");
        for (uint64_t at = 0; at < PAGE; at += 4096)
            *(volatile char *)(area + offset + at) = 1;
    }
    record("commit, bare fallocate + touch", "s/GiB", (now() - start) / gib);
    (void)munmap(area, bytes);
    host_file_close(&file);
    host_mount_finish(&mount);
}

/* --- copies --- */

struct copy_case {
    uint32_t arena;
    uint64_t block_bytes;
    const char *names[4]; /* gpu_copy, its latency, memcpy, non-temporal */
};

/* clang-format off */
static const struct copy_case copy_cases[] = {
    {0,  2 * MiB, {"copy 2 MiB",  "copy 2 MiB, one",  "copy 2 MiB, memcpy",  "copy 2 MiB, non-temporal"}},
    {1, 64 * KiB, {"copy 64 KiB", "copy 64 KiB, one", "copy 64 KiB, memcpy", "copy 64 KiB, non-temporal"}},
};
/* clang-format on */

static uint32_t random_slot(const struct copy_case *c)
{
    return (uint32_t)((uint64_t)rand() % (ARENA_PAGES * PAGE / c->block_bytes)) + 1;
}

/* Through the interface: batches of 1 MiB, or of one block; up to 16 batches under way. */
static double copy_by_device(struct gpu_device *device, const struct copy_case *c,
                             uint64_t total_bytes)
{
    struct gpu_copy copies[GPU_MAX_BATCH];
    size_t per_batch = c->block_bytes < BATCH_BYTES ? BATCH_BYTES / c->block_bytes : 1;
    size_t num_batches = total_bytes / c->block_bytes / per_batch, num_under_way = 0;
    double start = now();

    for (size_t batch = 0; batch < num_batches; batch++) {
        for (size_t i = 0; i < per_batch; i++)
            copies[i] = (struct gpu_copy){.from = {.arena = c->arena, .slot = random_slot(c)},
                                          .to = {.arena = c->arena, .slot = random_slot(c)}};
        need(gpu_copy(device, copies, per_batch, batch) == 0, "gpu_copy");
        num_under_way = reap(device, num_under_way + 1, 15);
    }
    (void)reap(device, num_under_way, 0);
    return (double)(num_batches * per_batch * c->block_bytes) / (now() - start) / 1e9;
}

/* One block, queued and reaped, in us. */
static double copy_one(struct gpu_device *device, const struct copy_case *c)
{
    enum { NUM_COPIES = 100 };
    double start = now();

    for (int i = 0; i < NUM_COPIES; i++) {
        struct gpu_copy copy = {.from = {.arena = c->arena, .slot = random_slot(c)},
                                .to = {.arena = c->arena, .slot = random_slot(c)}};
        need(gpu_copy(device, &copy, 1, 0) == 0, "gpu_copy");
        (void)reap(device, 1, 0);
    }
    return (now() - start) / NUM_COPIES * 1e6;
}

static double copy_bare(char *base, const struct copy_case *c, uint64_t total_bytes,
                        void (*copy)(void *to, const void *from, size_t bytes))
{
    size_t num_blocks = total_bytes / c->block_bytes;
    double start = now();

    for (size_t i = 0; i < num_blocks; i++)
        copy(base + (random_slot(c) - 1) * c->block_bytes,
             base + (random_slot(c) - 1) * c->block_bytes, c->block_bytes);
    return (double)(num_blocks * c->block_bytes) / (now() - start) / 1e9;
}

static void bench_copies(struct gpu_device *device)
{
    const uint64_t total_bytes = 192 * MiB;

    for (size_t i = 0; i < sizeof(copy_cases) / sizeof(*copy_cases); i++) {
        const struct copy_case *c = &copy_cases[i];
        char *base = gpu_arena_base(device, c->arena);

        record(c->names[0], "GB/s", copy_by_device(device, c, total_bytes));
        record(c->names[2], "GB/s", copy_bare(base, c, total_bytes, block_copier_plain.copy));
        record(c->names[3], "GB/s", copy_bare(base, c, total_bytes, block_copiers()[0]->copy));
        record(c->names[1], "us", copy_one(device, c));
    }
}

/* --- starting --- */

static void bench_start(void)
{
    double start = now();
    struct gpu_device *device = device_create(1 << 20, 0); /* 2 TiB: no memory is touched */
    record("device create", "us", (now() - start) * 1e6);
    start = now();
    arena_open(device, 0, 2 * MiB);
    record("arena open", "us", (now() - start) * 1e6);
    gpu_device_destroy(device);
}

static void bench_populate(void)
{
    const double gib = (double)(ARENA_PAGES * PAGE) / (1 << 30);
    struct gpu_memory memory;
    double start = now();
    struct gpu_device *device = device_create(ARENA_PAGES, ARENA_PAGES * PAGE);

    do {
        (void)poll(NULL, 0, 1);
        gpu_device_memory(device, &memory);
        need(memory.populate_status == 0, "populate");
    } while (memory.populated_bytes < memory.populate_bytes);
    record("populate at start", "s/GiB", (now() - start) / gib);
    gpu_device_destroy(device);
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print(bool is_json)
{
    for (size_t i = 0; i < num_figures; i++) {
        struct figure *figure = &figures[i];
        qsort(figure->values, NUM_ROUNDS, sizeof(double), compare);
        (void)printf(is_json ? "%s{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4f, "
                               "\"min\": %.4f, \"max\": %.4f}"
                             : "%s%-34s %-6s %9.3f %9.3f %9.3f\n",
                     is_json ? (i == 0 ? "[" : ",\n ") : "", figure->name, figure->unit,
                     figure->values[NUM_ROUNDS / 2], figure->values[0],
                     figure->values[NUM_ROUNDS - 1]);
    }
    (void)printf(is_json ? "]\n" : "copies by %s\n", block_copiers()[0]->name);
}

int main(int argc, char **argv)
{
    bool is_json = argc == 2 && strcmp(argv[1], "--json") == 0;

    if (argc > 1 && !is_json) {
        (void)printf("usage: bench_arena [--json]\n"
                     "Copies of random cold blocks and commits, beside the bare calls.\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    struct gpu_device *device = device_create(2 * ARENA_PAGES, 0);
    arena_open(device, 0, 2 * MiB);
    arena_open(device, 1, 64 * KiB);
    commit_all(device, 0); /* the machine has backed the memory after this */
    commit_all(device, 1);
    decommit_all(device, 0);
    for (round_now = 0; round_now < NUM_ROUNDS; round_now++) {
        bench_commit(device);
        bench_bare_commit();
        bench_populate();
        commit_all(device, 0);
        bench_copies(device);
        decommit_all(device, 0);
        bench_start();
    }
    gpu_device_destroy(device);
    if (!is_json)
        (void)printf("%-34s %-6s %9s %9s %9s\n", "", "", "median", "min", "max");
    print(is_json);
    return 0;
}
