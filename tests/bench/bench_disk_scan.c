/*
 * tests/bench/bench_disk_scan.c - how long a restart takes until all blocks of a disk are known,
 * beside reading as many bytes of headers.
 *
 * 100,000 blocks of 4 KiB, with --full a million. Headers are made by hand, the data is never
 * written: a scan does not look at it. The directory is as that of bench_disk.
 */
#include "offload/disk.h"
#include "offload/format.h"
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

enum { STRIDE = 4096, RECORD_BYTES = 200, READ_BYTES = 1 << 20 };

static const uint64_t GRANULE_BYTES = 16 * MiB;
static const double WORST_RATIO = 4;

static struct bench bench;
static struct bench_case cases[2];
static char directory[256], blocks_path[300];
static struct disk_options options;
static struct format_layout layout;
static uint64_t num_blocks;
static char *buffer;

static void need(bool is_fine, const char *what)
{
    if (is_fine)
        return;
    (void)fprintf(stderr, "bench_disk_scan: %s failed\n", what);
    exit(1);
}

static struct disk *open_disk(void)
{
    struct disk *disk;
    char error[DISK_ERROR_BYTES];

    if (disk_open(&options, &disk, error) != 0) {
        (void)fprintf(stderr, "bench_disk_scan: %s\n", error);
        exit(1);
    }
    return disk;
}

/* All slots of all granules get a header. */
static void make(void)
{
    uint32_t max_slots = (uint32_t)(GRANULE_BYTES / STRIDE);
    uint32_t num = (uint32_t)((num_blocks + max_slots - 1) / max_slots);
    struct disk_layout made;

    options.max_bytes = num * (GRANULE_BYTES + max_slots * 600ull) + 4 * MiB;
    struct disk *disk = open_disk();
    disk_layout(disk, &made);
    need(disk_close(disk) == 0, "disk_close");
    format_layout_set(&layout, GRANULE_BYTES, max_slots, made.num_granules);
    num_blocks = (uint64_t)made.num_granules * max_slots;
    int fd = open(blocks_path, O_RDWR);
    struct format_header *headers = calloc(max_slots, sizeof(*headers));
    need(fd >= 0 && headers != NULL, "the file");
    for (uint32_t g = 0; g < made.num_granules; g++) {
        struct format_granule entry = {
            .is_used = 1, .generation = g + 1, .granule = g, .stride_bytes = STRIDE};
        format_granule_seal(&entry);
        need(pwrite(fd, &entry, sizeof(entry), (off_t)format_granule_offset(&layout, g)) ==
                 sizeof(entry),
             "pwrite");
        for (uint32_t i = 0; i < max_slots; i++) {
            headers[i] = (struct format_header){.record_bytes = RECORD_BYTES,
                                                .generation = g + 1,
                                                .granule = g,
                                                .index = i,
                                                .bytes = STRIDE};
            memset(headers[i].record, (int)(i + g), RECORD_BYTES);
            format_header_seal(&headers[i]);
        }
        size_t bytes = max_slots * sizeof(*headers);
        off_t at = (off_t)format_header_offset(&layout, (struct disk_slot){.granule = g});
        need(pwrite(fd, headers, bytes, at) == (ssize_t)bytes, "pwrite");
    }
    free(headers);
    need(fsync(fd) == 0 && close(fd) == 0, "fsync");
}

static void run_scan(void *state)
{
    struct disk *disk = open_disk();
    struct disk_found found[256];
    struct disk_scan scan;
    uint64_t num = 0;

    (void)state;
    need(disk_scan_start(disk) == 0, "disk_scan_start");
    do {
        struct pollfd event = {.fd = disk_event_fd(disk), .events = POLLIN};
        need(poll(&event, 1, 20000) == 1, "poll");
        num += disk_scan_reap(disk, found, 256);
        disk_scan_progress(disk, &scan);
    } while (!scan.is_over);
    need(num == num_blocks, "finding all blocks");
    need(disk_close(disk) == 0, "disk_close");
}

static void run_read(void *state)
{
    int fd = open(blocks_path, O_RDONLY | O_DIRECT);

    (void)state;
    need(fd >= 0, "O_DIRECT");
    for (uint64_t at = layout.headers_offset; at < layout.data_offset;) {
        uint64_t left = layout.data_offset - at;
        ssize_t num = pread(fd, buffer, left < READ_BYTES ? left : READ_BYTES, (off_t)at);
        need(num > 0, "pread");
        at += (uint64_t)num;
    }
    (void)close(fd);
}

int main(int argc, char **argv)
{
    const char *parent = getenv("KVPOOLD_BENCH_DIR");
    char name[300];

    int status = bench_begin(&bench, argc, argv, "disk_scan",
                             "from opening a disk until all its blocks are known");
    if (status >= 0)
        return status;
    (void)snprintf(directory, sizeof(directory), "%s/kvpoold-bench-XXXXXX",
                   parent ? parent : "/var/tmp");
    need(mkdtemp(directory) != NULL, "mkdtemp");
    (void)snprintf(blocks_path, sizeof(blocks_path), "%s/blocks", directory);
    options = (struct disk_options){.path = directory,
                                    .granule_bytes = GRANULE_BYTES,
                                    .min_block_bytes = STRIDE,
                                    .max_block_bytes = STRIDE};
    num_blocks = bench.is_full ? 1000000 : 100000;
    buffer = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(buffer != MAP_FAILED, "mmap");
    make();
    for (int i = 0; i < 2; i++)
        cases[i] = (struct bench_case){.run = i ? run_read : run_scan,
                                       .num_items = 1e6}; /* so that a median is in ms */
    bench_run(&bench, cases, 2);
    (void)snprintf(name, sizeof(name), "open and scan, %llu blocks",
                   (unsigned long long)num_blocks);
    bench_report(&bench, &(struct bench_row){
                             .name = name,
                             .ours = cases[0].median_ns,
                             .unit = "ms",
                             .limit_name = "reading their headers, 1 MiB each",
                             .limit = cases[1].median_ns,
                             .ratio = bench_ratio(&bench, &cases[0], &cases[1]),
                             .worst_ratio = WORST_RATIO,
                         });
    (void)unlink(blocks_path);
    (void)snprintf(name, sizeof(name), "%s/lock", directory);
    (void)unlink(name);
    need(rmdir(directory) == 0, "rmdir");
    return bench_end(&bench);
}
