/* tests/offload/test_open.c - what is taken, what is refused and with which words, the cap. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t physical(const struct bed *bed)
{
    struct stat blocks, lock;
    char name[300];

    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    assert_int_equal(stat(name, &blocks), 0);
    (void)snprintf(name, sizeof(name), "%s/lock", bed->path);
    assert_int_equal(stat(name, &lock), 0);
    return (uint64_t)(blocks.st_blocks + lock.st_blocks) * 512;
}

static void a_disk_without_a_ceiling_is_refused(void **state)
{
    struct bed *bed = *state;

    bed->options.max_bytes = 0;
    assert_int_equal(bed_open(bed), -EINVAL);
    assert_non_null(strstr(bed->error, "max_bytes"));
}

static void options_out_of_bounds_are_refused_by_name(void **state)
{
    struct bed *bed = *state;
    const struct disk_options fine = bed->options;
    /* clang-format off */
    const struct { size_t offset; uint64_t value; bool is_64; const char *word; } rows[] = {
#define ROW(field, value, word) \
    {offsetof(struct disk_options, field), value, sizeof(fine.field) == 8, word}
        ROW(granule_bytes, 0, "granule_bytes"),
        ROW(granule_bytes, 10000, "granule_bytes"),
        ROW(granule_bytes, 4096ull << 17, "smaller granules"),
        ROW(min_block_bytes, 0, "min_block_bytes"),
        ROW(min_block_bytes, 5000, "min_block_bytes"),
        ROW(min_block_bytes, 2 * BED_GRANULE, "min_block_bytes"),
        ROW(max_block_bytes, 0, "max_block_bytes"),
        ROW(queue_depth, 257, "queue_depth"),
        ROW(num_buffers, 4097, "num_buffers"),
        ROW(max_operations, 3, "max_operations"),
        ROW(num_threads, 65, "num_threads"),
        ROW(max_bytes, 8192, "give at least"),
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint32_t value = (uint32_t)rows[i].value;
        bed->options = fine;
        memcpy((char *)&bed->options + rows[i].offset,
               rows[i].is_64 ? (const void *)&rows[i].value : &value, rows[i].is_64 ? 8 : 4);
        assert_int_equal(bed_open(bed), -EINVAL);
        assert_non_null(strstr(bed->error, rows[i].word));
    }
}

static void a_path_that_cannot_be_used_is_named(void **state)
{
    struct bed *bed = *state;

    bed->options.path = "/nonexistent/tier";
    assert_int_equal(bed_open(bed), -ENOENT);
    assert_non_null(strstr(bed->error, "/nonexistent/tier"));
    bed->options.path = "/dev/null";
    assert_int_equal(bed_open(bed), -ENOTDIR);
    bed->options.path = NULL;
    assert_int_equal(bed_open(bed), -EINVAL);
}

/* Every slot of every granule is written, in an order that makes as many extents as can be. */
static void the_ceiling_holds_in_physical_bytes(void **state)
{
    struct bed *bed = *state;
    struct disk_layout layout;
    char memory[4096] = "x";

    bed->options.max_bytes = 16 << 20;
    assert_int_equal(bed_open(bed), 0);
    disk_layout(bed->disk, &layout);
    /* Not wasteful either: 64 KiB, 16 headers of 512 bytes, an entry of 256, 16 x 48 of slack make
     * 74,752 bytes, of which 16 MiB less 24 KiB hold 224. */
    assert_int_equal(layout.num_granules, 224);
    assert_true(physical(bed) <= bed->options.max_bytes);
    assert_true(physical(bed) >= layout.num_granules * (uint64_t)BED_GRANULE);
    for (uint32_t parity = 0; parity < 2; parity++) {
        for (uint32_t g = 0; g < layout.num_granules; g++) {
            if (parity == 0)
                assert_int_equal(bed_use(bed, g, 4096), 0);
            for (uint32_t i = parity; i < layout.max_slots; i += 16) {
                assert_int_equal(disk_write(bed->disk, SLOT(g, i), memory, 4096, NULL, 0, 1), 0);
                assert_int_equal(bed_wait(bed, 1, DISK_ENDED), 0);
            }
        }
        assert_true(physical(bed) <= bed->options.max_bytes);
    }
    bed_close(bed);
    assert_true(physical(bed) <= bed->options.max_bytes);
    assert_int_equal(bed_open(bed), 0);
}

static void a_file_over_a_lower_ceiling_is_refused(void **state)
{
    struct bed *bed = *state;
    struct gpu_fallback fallbacks[8];
    bool is_said = false;

    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
    bed->options.max_bytes /= 2;
    assert_int_equal(bed_open(bed), -EDQUOT);
    assert_non_null(strstr(bed->error, "remove `blocks`"));
    bed->options.max_bytes *= 8; /* a higher one: what is there stays as it is, and it is said */
    assert_int_equal(bed_open(bed), 0);
    size_t num = disk_fallbacks(bed->disk, fallbacks, ARRAY_SIZE(fallbacks));
    for (size_t i = 0; i < num; i++)
        is_said |= !strcmp(fallbacks[i].name, "laid-out-smaller");
    assert_true(is_said);
}

static void another_geometry_is_refused(void **state)
{
    struct bed *bed = *state;

    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
    bed->options.min_block_bytes = 8192;
    assert_int_equal(bed_open(bed), -EINVAL);
    assert_non_null(strstr(bed->error, "laid out for granules of 65536 bytes and 16 slots"));
}

static void an_unknown_version_is_refused_with_the_remedy(void **state)
{
    struct bed *bed = *state;
    uint32_t version = FORMAT_VERSION + 1;

    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
    bed_poke(bed, offsetof(struct format_superblock, version), &version, sizeof(version));
    assert_int_equal(bed_open(bed), -EPROTO);
    assert_non_null(strstr(bed->error, "version 2"));
    assert_non_null(strstr(bed->error, "use the program that made it, or remove"));
}

static void a_spoilt_superblock_is_refused(void **state)
{
    struct bed *bed = *state;

    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
    for (size_t at = 0; at < offsetof(struct format_superblock, check) + 8; at++) {
        uint8_t byte, flipped;
        bed_peek(bed, at, &byte, 1);
        flipped = byte ^ 0x10;
        bed_poke(bed, at, &flipped, 1);
        assert_int_equal(bed_open(bed), -EPROTO);
        assert_non_null(strstr(bed->error, "remove"));
        bed_poke(bed, at, &byte, 1);
    }
    assert_int_equal(bed_open(bed), 0);
}

static void a_file_of_somebody_else_is_left_alone(void **state)
{
    struct bed *bed = *state;
    char name[300], text[] = "precious";

    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
    assert_int_equal(bed_open(bed), -EPROTO);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(bed_open(bed), -EPROTO);
    assert_int_equal(pread(fd, text, sizeof(text), 0), sizeof(text));
    assert_string_equal(text, "precious");
    (void)close(fd);
}

static void a_truncated_file_is_refused(void **state)
{
    struct bed *bed = *state;
    char name[300];

    assert_int_equal(bed_open(bed), 0);
    bed_close(bed);
    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    assert_int_equal(truncate(name, 100000), 0);
    assert_int_equal(bed_open(bed), -EPROTO);
    assert_non_null(strstr(bed->error, "100000 bytes"));
}

static void laying_out_that_was_cut_short_begins_anew(void **state)
{
    struct bed *bed = *state;
    char name[300];

    (void)snprintf(name, sizeof(name), "%s/blocks", bed->path);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, 3 << 20), 0); /* more than the ceiling, no superblock */
    (void)close(fd);
    assert_int_equal(bed_open(bed), 0);
    assert_true(physical(bed) <= bed->options.max_bytes);
}

static void one_owner_a_directory_named_by_its_pid(void **state)
{
    struct bed *bed = *state;
    struct disk *second;
    struct disk_check check;
    char error[DISK_ERROR_BYTES], expected[64];

    assert_int_equal(bed_open(bed), 0);
    (void)snprintf(expected, sizeof(expected), "is in use by process %ld:", (long)getpid());
    assert_int_equal(disk_open(&bed->options, &second, error), -EBUSY);
    assert_non_null(strstr(error, expected));
    assert_int_equal(disk_check(bed->path, false, NULL, NULL, &check, error), -EBUSY);
    assert_non_null(strstr(error, expected));
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
}

static void the_lock_of_a_killed_process_is_free(void **state)
{
    struct bed *bed = *state;
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (bed_open(bed) == 0)
            (void)!write(ready[1], "x", 1);
        (void)pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(bed_open(bed), -EBUSY);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(bed_open(bed), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void what_cannot_be_had_is_said(void **state)
{
    struct bed *bed = *state;
    struct gpu_fallback fallbacks[8];

    bed->options.engine = DISK_ENGINE_THREADS;
    bed->options.without_direct = true;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_fallbacks(bed->disk, fallbacks, ARRAY_SIZE(fallbacks)), 2);
    assert_string_equal(fallbacks[0].name, "no-io-uring");
    assert_int_equal(fallbacks[0].reason, 0);
    assert_string_equal(fallbacks[1].name, "no-direct-io");
    assert_int_equal(disk_fallbacks(bed->disk, fallbacks, 0), 2);
}

/* tmpfs: with O_DIRECT or, before Linux 6.6, without. */
static void a_tmpfs_will_do(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    struct statfs status;

    (void)state;
    if (statfs("/dev/shm", &status) != 0 || status.f_type != TMPFS_MAGIC) {
        free(bed);
        skip();
    }
    bed_init(bed, "/dev/shm");
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    bed_finish(bed);
    free(bed);
}

static int open_no_direct(const char *path, int flags, ...)
{
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return open(path, flags, 0600);
}

static void a_refused_o_direct_goes_through_the_page_cache(void **state)
{
    struct bed *bed = *state;
    struct disk_syscalls system = disk_syscalls;
    struct gpu_fallback fallback;

    system.open = open_no_direct;
    bed->system = &system;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_fallbacks(bed->disk, &fallback, 1), 1);
    assert_string_equal(fallback.name, "no-direct-io");
    assert_int_equal(fallback.reason, -EINVAL);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    bed_close(bed);
}

/* A file system that opens with O_DIRECT and then refuses every I/O (overlay on tmpfs did). */
static int refuse_direct(void *state, const struct disk_io *io)
{
    int *num_left = state;

    return io->kind == DISK_IO_SCRATCH && (*num_left)-- > 0 ? -EINVAL : 0;
}

static void a_late_refusal_of_o_direct_is_found_by_the_probe(void **state)
{
    struct bed *bed = *state;
    int num_left = 1;
    struct disk_faults faults = {.state = &num_left, .begin = refuse_direct};
    struct gpu_fallback fallback;

    bed->options.faults = &faults;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_fallbacks(bed->disk, &fallback, 1), 1);
    assert_string_equal(fallback.name, "no-direct-io");
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 1), 9, BED_BLOCK), 0);
    bed_close(bed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_setup, bed_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_disk_without_a_ceiling_is_refused),
        CASE(options_out_of_bounds_are_refused_by_name),
        CASE(a_path_that_cannot_be_used_is_named),
        CASE(the_ceiling_holds_in_physical_bytes),
        CASE(a_file_over_a_lower_ceiling_is_refused),
        CASE(another_geometry_is_refused),
        CASE(an_unknown_version_is_refused_with_the_remedy),
        CASE(a_spoilt_superblock_is_refused),
        CASE(a_file_of_somebody_else_is_left_alone),
        CASE(a_truncated_file_is_refused),
        CASE(laying_out_that_was_cut_short_begins_anew),
        CASE(one_owner_a_directory_named_by_its_pid),
        CASE(the_lock_of_a_killed_process_is_free),
        CASE(what_cannot_be_had_is_said),
        cmocka_unit_test(a_tmpfs_will_do),
        CASE(a_refused_o_direct_goes_through_the_page_cache),
        CASE(a_late_refusal_of_o_direct_is_found_by_the_probe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
