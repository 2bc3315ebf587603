/* tests/offload/bed.c - a disk in a directory of its own, operations one at a time, patterns. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const NAMES[] = {"blocks", "lock"};

uint64_t bed_now_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t bed_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

void bed_fill(void *memory, uint64_t seed, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = bed_random(&seed);
        memcpy((char *)memory + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

bool bed_is(const void *memory, uint64_t seed, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = bed_random(&seed);
        if (memcmp((const char *)memory + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
            return false;
    }
    return true;
}

void bed_init(struct bed *bed, const char *parent)
{
    *bed = (struct bed){.system = &disk_syscalls};
    (void)snprintf(bed->path, sizeof(bed->path), "%s/kvpoold-disk-XXXXXX",
                   parent ? parent : "/var/tmp");
    assert_non_null(mkdtemp(bed->path));
    bed->options = (struct disk_options){
        .path = bed->path,
        .max_bytes = 1 << 20,
        .granule_bytes = BED_GRANULE,
        .min_block_bytes = 4096,
        .max_block_bytes = BED_GRANULE,
        .queue_depth = 8,
        .max_operations = 128,
        .probe_ms = 20,
    };
}

void bed_finish(struct bed *bed)
{
    char name[300];

    bed_close(bed);
    for (size_t i = 0; i < ARRAY_SIZE(NAMES); i++) {
        (void)snprintf(name, sizeof(name), "%s/%s", bed->path, NAMES[i]);
        (void)unlink(name);
    }
    assert_int_equal(rmdir(bed->path), 0);
}

int bed_setup(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    bed_init(bed, NULL);
    *state = bed;
    return 0;
}

int bed_teardown(void **state)
{
    bed_finish(*state);
    free(*state);
    return 0;
}

int bed_open(struct bed *bed)
{
    bed->error[0] = '\0';
    bed->num_last = 0;
    return disk_open_with(&bed->options, bed->system, &bed->disk, bed->error);
}

void bed_close(struct bed *bed)
{
    if (bed->disk)
        assert_int_equal(disk_close(bed->disk), 0);
    bed->disk = NULL;
}

int bed_wait(struct bed *bed, uint64_t cookie, enum disk_completion_kind kind)
{
    uint64_t end_ns = bed_now_ns() + 20000000000;

    for (;;) {
        for (size_t i = 0; i < bed->num_last; i++) {
            if (bed->last[i].cookie != cookie || bed->last[i].kind != kind)
                continue;
            int status = bed->last[i].status;
            bed->last[i] = bed->last[--bed->num_last];
            return status;
        }
        struct pollfd event = {.fd = disk_event_fd(bed->disk), .events = POLLIN};
        (void)poll(&event, 1, 5);
        disk_tick(bed->disk, bed_now_ns());
        assert_in_range(bed->num_last, 0, ARRAY_SIZE(bed->last) - 1);
        bed->num_last +=
            disk_reap(bed->disk, bed->last + bed->num_last, ARRAY_SIZE(bed->last) - bed->num_last);
        assert_true(bed_now_ns() < end_ns);
    }
}

int bed_use(struct bed *bed, uint32_t granule, uint32_t stride_bytes)
{
    char owner[32];
    int num = snprintf(owner, sizeof(owner), "owner of %u", granule);
    int answer =
        disk_granule_use(bed->disk, granule, stride_bytes, owner, (size_t)num, 1000000 + granule);

    return answer ? answer : bed_wait(bed, 1000000 + granule, DISK_ENDED);
}

int bed_free(struct bed *bed, uint32_t granule)
{
    int answer = disk_granule_free(bed->disk, granule, 2000000 + granule);

    return answer ? answer : bed_wait(bed, 2000000 + granule, DISK_ENDED);
}

int bed_write(struct bed *bed, struct disk_slot slot, uint64_t seed, uint32_t bytes)
{
    char *memory = malloc(bytes);

    assert_non_null(memory);
    bed_fill(memory, seed, bytes);
    int answer = disk_write(bed->disk, slot, memory, bytes, &seed, sizeof(seed), 3000000);
    if (answer == 0)
        answer = bed_wait(bed, 3000000, DISK_ENDED);
    free(memory);
    return answer;
}

int bed_read(struct bed *bed, struct disk_slot slot, uint64_t seed, uint32_t bytes)
{
    char *memory = malloc(bytes), *poison = malloc(bytes);

    assert_non_null(memory);
    assert_non_null(poison);
    memset(poison, 0xa5, bytes);
    memcpy(memory, poison, bytes);
    int answer = disk_read(bed->disk, slot, memory, bytes, 4000000);
    if (answer == 0)
        answer = bed_wait(bed, 4000000, DISK_ENDED);
    if (answer == 0 ? !bed_is(memory, seed, bytes) : memcmp(memory, poison, bytes) != 0)
        answer = -EILSEQ;
    free(memory);
    free(poison);
    return answer;
}

size_t bed_scan(struct bed *bed, struct disk_found *found, uint64_t *records, size_t max)
{
    struct disk_found some[7];
    struct disk_scan scan;
    size_t num = 0, num_some;

    assert_int_equal(disk_scan_start(bed->disk), 0);
    do {
        struct pollfd event = {.fd = disk_event_fd(bed->disk), .events = POLLIN};
        assert_int_equal(poll(&event, 1, 20000), 1);
        num_some = disk_scan_reap(bed->disk, some, ARRAY_SIZE(some));
        for (size_t i = 0; i < num_some; i++, num++) {
            if (num >= max)
                continue;
            found[num] = some[i];
            assert_int_equal(some[i].record_bytes, sizeof(records[0]));
            memcpy(&records[num], some[i].record, sizeof(records[0]));
        }
        disk_scan_progress(bed->disk, &scan);
    } while (!scan.is_over);
    return num;
}

static int open_blocks(const struct bed *bed)
{
    char name[300];

    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    int fd = open(name, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

void bed_peek(const struct bed *bed, uint64_t offset, void *bytes, size_t num)
{
    int fd = open_blocks(bed);

    assert_int_equal(pread(fd, bytes, num, (off_t)offset), num);
    (void)close(fd);
}

void bed_poke(const struct bed *bed, uint64_t offset, const void *bytes, size_t num)
{
    int fd = open_blocks(bed);

    assert_int_equal(pwrite(fd, bytes, num, (off_t)offset), num);
    (void)close(fd);
}
