/* tests/offload/test_device.c - a whole block device: a loop device, where this process may have
 * one. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEVICE_BYTES = 8 << 20 };

struct loop {
    struct bed bed; /* first; its directory holds the file behind the device */
    char device[32], file[300];
    int fd; /* of the file */
};

/* Answers whether the device could be had. */
static bool attach(struct loop *loop)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    bool is_fine = false;

    if (number >= 0) {
        (void)snprintf(loop->device, sizeof(loop->device), "/dev/loop%d", number);
        int device = open(loop->device, O_RDWR | O_CLOEXEC);
        is_fine = device >= 0 && ioctl(device, LOOP_SET_FD, loop->fd) == 0;
        if (device >= 0)
            (void)close(device);
    }
    if (control >= 0)
        (void)close(control);
    return is_fine;
}

static void detach(const struct loop *loop)
{
    int device = open(loop->device, O_RDWR | O_CLOEXEC);

    if (device < 0)
        return;
    (void)ioctl(device, LOOP_CLR_FD, 0);
    (void)close(device);
}

static int setup(void **state)
{
    struct loop *loop = calloc(1, sizeof(*loop));

    bed_init(&loop->bed, NULL);
    (void)snprintf(loop->file, sizeof(loop->file), "%s/image", loop->bed.path);
    loop->fd = open(loop->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(loop->fd >= 0);
    assert_int_equal(ftruncate(loop->fd, DEVICE_BYTES), 0);
    if (!attach(loop))
        loop->device[0] = '\0';
    loop->bed.options.path = loop->device;
    *state = loop;
    return 0;
}

static int teardown(void **state)
{
    struct loop *loop = *state;

    bed_close(&loop->bed);
    if (loop->device[0])
        detach(loop);
    (void)close(loop->fd);
    assert_int_equal(unlink(loop->file), 0);
    bed_finish(&loop->bed);
    free(loop);
    return 0;
}

static void blocks_of_a_device_outlive_the_process(void **state)
{
    struct loop *loop = *state;
    struct bed *bed = &loop->bed;
    struct disk_layout layout;

    if (!loop->device[0])
        skip();
    assert_int_equal(bed_open(bed), 0);
    disk_layout(bed->disk, &layout);
    assert_true(layout.is_new);
    assert_true(layout.file_bytes <= bed->options.max_bytes);
    assert_int_equal(bed_use(bed, 2, BED_STRIDE), 0);
    for (uint32_t i = 0; i < BED_SLOTS; i++)
        assert_int_equal(bed_write(bed, SLOT(2, i), i, BED_BLOCK), 0);
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    disk_layout(bed->disk, &layout);
    assert_false(layout.is_new);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), BED_SLOTS);
    for (uint32_t i = 0; i < BED_SLOTS; i++)
        assert_int_equal(bed_read(bed, SLOT(2, i), i, BED_BLOCK), 0);
}

static void nothing_is_written_past_the_ceiling(void **state)
{
    struct loop *loop = *state;
    struct bed *bed = &loop->bed;
    struct disk_layout layout;
    static char rest[DEVICE_BYTES - (1 << 20)], was[sizeof(rest)];

    if (!loop->device[0])
        skip();
    memset(rest, 0x5a, sizeof(rest));
    assert_int_equal(pwrite(loop->fd, rest, sizeof(rest), 1 << 20), sizeof(rest));
    assert_int_equal(bed_open(bed), 0);
    disk_layout(bed->disk, &layout);
    for (uint32_t g = 0; g < layout.num_granules; g++) {
        assert_int_equal(bed_use(bed, g, BED_STRIDE), 0);
        for (uint32_t i = 0; i < BED_SLOTS; i++)
            assert_int_equal(bed_write(bed, SLOT(g, i), i, BED_STRIDE), 0);
    }
    bed_close(bed);
    (void)sync();
    assert_int_equal(pread(loop->fd, was, sizeof(was), 1 << 20), sizeof(was));
    assert_memory_equal(was, rest, sizeof(rest));
    /* A ceiling over the device is the device. */
    bed->options.max_bytes = 1 << 30;
    assert_int_equal(bed_open(bed), 0);
    disk_layout(bed->disk, &layout);
    assert_true(layout.file_bytes <= 1 << 20);
}

static void a_device_has_one_owner(void **state)
{
    struct loop *loop = *state;
    struct bed *bed = &loop->bed;
    struct disk *second;
    struct disk_check check;

    if (!loop->device[0])
        skip();
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_open(&bed->options, &second, bed->error), -EBUSY);
    assert_non_null(strstr(bed->error, "in use by another process"));
    assert_int_equal(disk_check(loop->device, false, NULL, NULL, &check, bed->error), -EBUSY);
    bed_close(bed);
    assert_int_equal(disk_check(loop->device, true, NULL, NULL, &check, bed->error), 0);
}

static void a_device_with_something_else_is_left_alone(void **state)
{
    struct loop *loop = *state;
    struct bed *bed = &loop->bed;
    char text[] = "a file system, perhaps";

    if (!loop->device[0])
        skip();
    int device = open(loop->device, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(device, text, sizeof(text), 0), sizeof(text));
    assert_int_equal(bed_open(bed), -EPROTO);
    assert_non_null(strstr(bed->error, "clear its first 4 KiB"));
    assert_int_equal(pread(device, text, sizeof(text), 0), sizeof(text));
    assert_string_equal(text, "a file system, perhaps");
    (void)close(device);
}

/* The tables of an earlier layout are still there when its superblock has been cleared. */
static void a_device_laid_out_again_has_nothing_of_before(void **state)
{
    struct loop *loop = *state;
    struct bed *bed = &loop->bed;
    static const char zeros[4096];

    if (!loop->device[0])
        skip();
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    bed_close(bed);
    int device = open(loop->device, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(device, zeros, sizeof(zeros), 0), sizeof(zeros));
    (void)close(device);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), 0);
    struct disk_granule granule;
    assert_int_equal(disk_granule_describe(bed->disk, 0, &granule), 0);
    assert_false(granule.is_used);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(blocks_of_a_device_outlive_the_process),
        CASE(nothing_is_written_past_the_ceiling),
        CASE(a_device_has_one_owner),
        CASE(a_device_with_something_else_is_left_alone),
        CASE(a_device_laid_out_again_has_nothing_of_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
