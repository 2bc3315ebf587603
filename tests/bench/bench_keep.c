/*
 * tests/bench/bench_keep.c - what a restart costs before any block is looked at: descriptors handed
 * to a holder and taken back, memory adopted in its place, or copied out of reach, beside memcpy.
 *
 * By command: bench_keep PROGRAM, the kvpoold that is run as the holder.
 */
#include "daemon/keep.h"
#include "gpu/gpu.h"
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE (UINT64_C(2) << 20)

enum { NUM_ITEMS = 1536, NUM_PAGES = 128 };

static struct bench bench;
static char directory[] = "/tmp/kvpoold-bench-XXXXXX";
static const char *program;

static void need(bool is_fine, const char *what)
{
    if (is_fine)
        return;
    (void)fprintf(stderr, "bench_keep: %s failed\n", what);
    exit(1);
}

static struct keep *keeper(void)
{
    const struct keep_options options = {
        .kind = KEEP_HOLDER, .directory = directory, .max_items = NUM_ITEMS, .program = program};
    struct keep *keep = NULL;

    need(keep_create(&options, &keep) == 0, "keep_create");
    return keep;
}

static double hand_over(struct keep *keep, int fd)
{
    uint64_t begin = bench_now_ns();

    for (int i = 0; i < NUM_ITEMS; i++) {
        char name[KEEP_MAX_NAME];
        (void)snprintf(name, sizeof(name), "%d.file", i);
        need(keep_add(keep, name, fd) == 0, "keep_add");
    }
    while (!keep_passed(keep, keep_mark(keep))) {
        struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};
        (void)poll(&event, 1, 1000);
        keep_run(keep, 0);
    }
    return (double)(bench_now_ns() - begin);
}

static double take_back(void)
{
    uint64_t begin = bench_now_ns();
    struct keep *keep = keeper();
    double ns = (double)(bench_now_ns() - begin);
    size_t count;
    const struct keep_item *items = keep_taken(keep, &count);

    need(count == NUM_ITEMS, "to take everything back");
    for (size_t i = 0; i < count; i++)
        (void)close(items[i].fd);
    need(keep_forget(keep) == 0, "keep_forget");
    keep_destroy(keep);
    return ns;
}

static void report(const char *name, double *samples, double items, const char *unit)
{
    bench_report(&bench,
                 &(struct bench_row){.name = name,
                                     .ours = bench_median(samples, bench.num_rounds) / items,
                                     .unit = unit,
                                     .limit_name = ""});
}

static void descriptors(void)
{
    static double over[BENCH_MAX_ROUNDS], back[BENCH_MAX_ROUNDS];
    int fd = memfd_create("item", MFD_CLOEXEC);

    for (size_t round = 0; round < bench.num_rounds; round++) {
        struct keep *keep = keeper();
        over[round] = hand_over(keep, fd);
        keep_destroy(keep);
        back[round] = take_back();
    }
    report("handed over, each", over, NUM_ITEMS * 1e3, "us");
    report("1,536 taken back", back, 1e6, "ms");
    (void)close(fd);
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct gpu_device_options options = {
    .budget_bytes = NUM_PAGES * PAGE, .page_bytes = PAGE, .max_arenas = 2, .max_operations = 512};
static struct gpu_arena_options arena = {.granule = {.pages = 1, .slots = 1, .stride_bytes = PAGE},
                                         .block_bytes = PAGE,
                                         .max_granules = NUM_PAGES};

static void wait_for(struct gpu_device *device, uint32_t count)
{
    struct gpu_completion completions[64];
    struct pollfd event = {.fd = gpu_device_event_fd(device), .events = POLLIN};

    while (count > 0) {
        size_t reaped = gpu_device_reap(device, completions, 64);
        for (size_t i = 0; i < reaped; i++)
            need(completions[i].status == 0, "an operation");
        count -= (uint32_t)reaped;
        if (reaped == 0)
            (void)poll(&event, 1, 1000);
    }
}

/* What an earlier process left: all pages, in one arena. */
static struct gpu_arena_files leave(int *out_mount)
{
    struct gpu_device *device = NULL;
    struct gpu_arena_files files;
    int fd;

    need(gpu_device_create(&options, &device) == 0, "gpu_device_create");
    need(gpu_arena_open(device, 0, &arena) == 0, "gpu_arena_open");
    for (uint32_t granule = 0; granule < NUM_PAGES; granule++)
        need(gpu_commit(device, 0, granule, 1) == 0, "gpu_commit");
    wait_for(device, NUM_PAGES);
    memset(gpu_arena_base(device, 0), 1, NUM_PAGES * PAGE);
    need(gpu_arena_keep(device, 0, &files) == 0, "gpu_arena_keep");
    files.fd = fcntl(files.fd, F_DUPFD_CLOEXEC, 0);
    *out_mount = gpu_device_keep(device, &fd) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gpu_device_destroy(device);
    return files;
}

/* ns until all pages are adopted, in their place or (in a full budget) moved. */
static double adopt(bool is_moved)
{
    const uint64_t granules[NUM_PAGES / 64] = {UINT64_MAX, UINT64_MAX};
    struct gpu_device *device = NULL;
    int mount_fd;
    struct gpu_arena_files files = leave(&mount_fd);
    uint64_t begin = bench_now_ns();

    need(gpu_device_adopt(&options, mount_fd, &device) == 0, "gpu_device_adopt");
    need(gpu_arena_adopt(device, 0, &arena, files, granules, 1) == 0, "gpu_arena_adopt");
    if (is_moved)
        need(gpu_arena_open(device, 1, &arena) == 0, "gpu_arena_open");
    for (uint32_t granule = 0; granule < NUM_PAGES; granule++) {
        struct gpu_granule_ref from = {0, granule}, to = {1, granule};
        int err = is_moved ? gpu_move_granule(device, from, to, 2)
                           : gpu_adopt_granule(device, 0, granule, 2);
        need(err == 0, "to adopt a granule");
    }
    wait_for(device, NUM_PAGES + 1);
    double ns = (double)(bench_now_ns() - begin);
    gpu_device_destroy(device);
    return ns;
}

static double copy(char *to, const char *from)
{
    uint64_t begin = bench_now_ns();

    memcpy(to, from, NUM_PAGES * PAGE);
    return (double)(bench_now_ns() - begin);
}

static void memory(void)
{
    static double in_place[BENCH_MAX_ROUNDS], moved[BENCH_MAX_ROUNDS], copied[BENCH_MAX_ROUNDS];
    double gib = (double)(NUM_PAGES * PAGE) / (1 << 30);
    char *from = calloc(1, NUM_PAGES * PAGE), *to = calloc(1, NUM_PAGES * PAGE);

    need(from && to, "calloc");
    (void)copy(from, to);
    for (size_t round = 0; round < bench.num_rounds; round++) {
        in_place[round] = adopt(false);
        moved[round] = adopt(true);
        copied[round] = copy(to, from);
    }
    free(from);
    free(to);
    report("adopted in place, a GiB", in_place, gib * 1e6, "ms");
    report("moved out of reach, a GiB", moved, gib * 1e6, "ms");
    report("memcpy, a GiB", copied, gib * 1e6, "ms");
}

int main(int argc, char **argv)
{
    int status =
        bench_begin(&bench, argc - (argc > 1), argv + (argc > 1), "keep",
                    "descriptors handed to a holder and taken back, memory adopted; the first "
                    "argument is the kvpoold that is run as the holder");

    if (status >= 0)
        return status;
    program = argc > 1 ? argv[1] : NULL;
    need(mkdtemp(directory) != NULL, "mkdtemp");
    descriptors();
    memory();
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/holder.lock", directory);
    (void)unlink(path);
    (void)rmdir(directory);
    return bench_end(&bench);
}
