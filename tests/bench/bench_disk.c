/*
 * tests/bench/bench_disk.c - what the disk tier reads and writes, beside a bare io_uring loop on
 * the same file in turn, and with --full beside fio, by the second.
 *
 * Ours copies every block between the caller's memory and a buffer, hashes it both ways, and writes
 * its header; the limits do nothing with the bytes. The directory is $KVPOOLD_BENCH_DIR, /var/tmp
 * if it is not set; it needs 300 MiB.
 */
#include "offload/disk.h"
#include "tests/bench/bench.h"
#include "tests/bench/limit_disk.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)

enum {
    GRANULES = 4, /* of them the limit too: what a host has cached is the same for both */
    FIO_ROUNDS = 3,
    FIO_SECONDS = 4,
};

static const uint64_t GRANULE_BYTES = 64 * MiB;
static const uint64_t MEMORY_BYTES = 256 * MiB; /* of the caller: not in any cache */
static const uint64_t ROUND_BYTES = 64 * MiB;
static const double WORST_RATIO = 2.5; /* the disk is shared: only a collapse shows in one run */

static struct bench bench;
static struct bench_case cases[2];
static char directory[256], blocks_path[300];
static char *memory;
static struct disk *disk;
static struct limit_disk *limit;
static uint64_t data_offset;
static uint32_t block_bytes, depth, slots_per_granule, next_slot;
static bool is_write;

static void need(bool is_fine, const char *what)
{
    if (is_fine)
        return;
    (void)fprintf(stderr, "bench_disk: %s failed\n", what);
    exit(1);
}

/*
 * Half of all blocks lie between ours and the limit's: neither reads what the other has just read,
 * which the host may have cached.
 */

/* --- ours --- */

/* Of reads a quarter of the depth is on top: this is where both together are @depth. */
static uint32_t option_depth(void)
{
    return is_write ? depth : depth - depth / 5;
}

static void open_disk(void)
{
    struct disk_options options = {
        .path = directory,
        .max_bytes = GRANULES * GRANULE_BYTES + 32 * MiB,
        .granule_bytes = GRANULE_BYTES,
        .min_block_bytes = 64 * KiB,
        .max_block_bytes = 2 * MiB,
        .queue_depth = option_depth(),
        .num_buffers = 2 * depth + 8,
    };
    struct disk_layout layout;
    char error[DISK_ERROR_BYTES];

    if (disk_open(&options, &disk, error) != 0) {
        (void)fprintf(stderr, "bench_disk: %s\n", error);
        exit(1);
    }
    disk_layout(disk, &layout);
    need(layout.num_granules == GRANULES, "a file of 4 granules");
    data_offset = layout.file_bytes - layout.num_granules * layout.granule_bytes;
}

static uint32_t reap(void)
{
    struct disk_completion done[64];
    struct pollfd event = {.fd = disk_event_fd(disk), .events = POLLIN};

    need(poll(&event, 1, 20000) == 1, "poll");
    size_t num = disk_reap(disk, done, 64);
    for (size_t i = 0; i < num; i++)
        need(done[i].status == 0, is_write ? "a write" : "a read");
    return (uint32_t)num;
}

static bool begin_one(void)
{
    uint32_t n = limit_disk_order(next_slot, GRANULES * slots_per_granule);
    struct disk_slot slot = {.granule = n / slots_per_granule, .index = n % slots_per_granule};
    char *at = memory + (uint64_t)next_slot * block_bytes % MEMORY_BYTES;
    int answer = is_write ? disk_write(disk, slot, at, block_bytes, &n, sizeof(n), n)
                          : disk_read(disk, slot, at, block_bytes, n);

    need(answer == 0 || answer == DISK_BUSY, "a call");
    next_slot += answer == 0;
    return answer == 0;
}

/* As the daemon does: more is queued than the kernel gets. */
static void move(uint32_t num)
{
    uint32_t num_begun = 0, num_done = 0, outstanding = 4 * depth;

    while (num_done < num) {
        if (num_begun < num && num_begun - num_done < outstanding && begin_one())
            num_begun++;
        else
            num_done += reap();
    }
}

static void run_ours(void *state)
{
    (void)state;
    move((uint32_t)(ROUND_BYTES / block_bytes));
}

static void run_limit(void *state)
{
    (void)state;
    need(limit_disk_run(limit, is_write, (uint32_t)(ROUND_BYTES / block_bytes)), "the bare loop");
}

static void use_granules(void)
{
    for (uint32_t g = 0; g < GRANULES; g++) {
        need(disk_granule_use(disk, g, block_bytes, NULL, 0, g) == 0, "disk_granule_use");
        while (reap() == 0)
            ;
    }
}

static void find_blocks(void)
{
    struct disk_found found[64];
    struct disk_scan scan;

    need(disk_scan_start(disk) == 0, "disk_scan_start");
    do {
        struct pollfd event = {.fd = disk_event_fd(disk), .events = POLLIN};
        need(poll(&event, 1, 20000) == 1, "poll");
        (void)disk_scan_reap(disk, found, 64);
        disk_scan_progress(disk, &scan);
    } while (!scan.is_over);
    need(scan.num_found == GRANULES * slots_per_granule, "the scan");
}

static void remove_files(void)
{
    char name[300];

    (void)unlink(blocks_path);
    (void)snprintf(name, sizeof(name), "%s/lock", directory);
    (void)unlink(name);
}

/* --- fio --- */

/* MB/s, or 0: it is not installed, or failed. */
static double run_fio(void)
{
    char command[1024];
    unsigned long long bytes_per_second = 0;

    (void)snprintf(command, sizeof(command),
                   "fio --name=j --filename=%s --offset=%llu --size=%llu --rw=%s --bs=%u "
                   "--iodepth=%u --ioengine=io_uring --fixedbufs --registerfiles --direct=1 "
                   "--runtime=%d --time_based=1 --norandommap --randrepeat=0 "
                   "--output-format=json 2>/dev/null | awk -F'[:, ]+' '/\"bw_bytes\"/ "
                   "{if ($3 > max) max = $3} END {printf \"%%.0f\\n\", max}'",
                   blocks_path, (unsigned long long)data_offset,
                   (unsigned long long)(GRANULES * GRANULE_BYTES),
                   is_write ? "randwrite" : "randread", block_bytes, depth, FIO_SECONDS);
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%llu", &bytes_per_second) != 1)
        bytes_per_second = 0;
    if (pipe)
        (void)pclose(pipe);
    return (double)bytes_per_second / 1e6;
}

static double run_ours_for(double seconds)
{
    uint64_t start_ns = bench_now_ns(), bytes = 0, now_ns;

    do {
        run_ours(NULL);
        bytes += ROUND_BYTES;
        now_ns = bench_now_ns();
    } while ((double)(now_ns - start_ns) < seconds * 1e9);
    return (double)bytes * 1e3 / (double)(now_ns - start_ns);
}

static void compare_with_fio(const char *name)
{
    double ours[FIO_ROUNDS], fio[FIO_ROUNDS], ratios[FIO_ROUNDS];

    for (int i = 0; i < FIO_ROUNDS; i++) {
        ours[i] = run_ours_for(FIO_SECONDS);
        fio[i] = run_fio();
        ratios[i] = fio[i] / ours[i];
        if (fio[i] == 0) {
            (void)fprintf(stderr, "%s beside fio: skipped (fio is not installed, or failed)\n",
                          name);
            return;
        }
    }
    bench_report(&bench, &(struct bench_row){
                             .name = name,
                             .ours = bench_median(ours, FIO_ROUNDS),
                             .unit = "MB/s",
                             .limit_name = "fio, io_uring, same depth",
                             .limit = bench_median(fio, FIO_ROUNDS),
                             .ratio = bench_median(ratios, FIO_ROUNDS),
                         });
}

/* --- rows --- */

static void measure(void)
{
    char name[64];

    open_disk();
    slots_per_granule = (uint32_t)(GRANULE_BYTES / block_bytes);
    if (is_write) {
        use_granules();
        move(GRANULES * slots_per_granule); /* what is measured has its blocks on the disk */
    } else {
        find_blocks();
    }
    limit = limit_disk_create(blocks_path, data_offset, block_bytes, GRANULES * slots_per_granule,
                              depth);
    need(limit != NULL, "a bare ring");
    limit_disk_begin_at(limit, next_slot + GRANULES * slots_per_granule / 2);
    (void)snprintf(name, sizeof(name), "%s %llu KiB, depth %u", is_write ? "write" : "read",
                   (unsigned long long)(block_bytes / KiB), depth);

    for (int i = 0; i < 2; i++)
        cases[i] = (struct bench_case){.run = i ? run_limit : run_ours,
                                       .num_items = (double)ROUND_BYTES / 1e6};
    bench_run(&bench, cases, 2);
    bench_report(&bench, &(struct bench_row){
                             .name = name,
                             .ours = 1e9 / cases[0].median_ns,
                             .unit = "MB/s",
                             .limit_name = "bare io_uring loop, same depth",
                             .limit = 1e9 / cases[1].median_ns,
                             .ratio = bench_ratio(&bench, &cases[0], &cases[1]),
                             .worst_ratio = WORST_RATIO,
                         });
    if (bench.is_full)
        compare_with_fio(name);
    limit_disk_destroy(limit);
    if (is_write)
        move(GRANULES * slots_per_granule); /* over what the limits wrote */
    need(disk_close(disk) == 0, "disk_close");
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {64 << 10, 256 << 10, 2 << 20}, depths[] = {8, 32};
    const char *parent = getenv("KVPOOLD_BENCH_DIR");

    int status = bench_begin(&bench, argc, argv, "disk",
                             "random blocks of the disk tier, beside bare O_DIRECT");
    if (status >= 0)
        return status;
    (void)snprintf(directory, sizeof(directory), "%s/kvpoold-bench-XXXXXX",
                   parent ? parent : "/var/tmp");
    need(mkdtemp(directory) != NULL, "mkdtemp");
    (void)snprintf(blocks_path, sizeof(blocks_path), "%s/blocks", directory);
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    for (uint64_t i = 0; i < MEMORY_BYTES / 8; i++)
        ((uint64_t *)memory)[i] = i * 0x9e3779b97f4a7c15;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        block_bytes = sizes[s];
        for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
            depth = depths[d];
            for (int pass = 0; pass < 2; pass++) {
                is_write = pass == 0;
                measure();
            }
            remove_files();
        }
    }
    need(rmdir(directory) == 0, "rmdir");
    return bench_end(&bench);
}
