/* tests/daemon/test_kept.c - what daemon/kept.h promises: whole arenas, or nothing of them. */
#include "daemon/hold.h"
#include "daemon/kept.h"
#include "tests/daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

static struct directory directory;
static struct keep_options options;

static int setup(void **state)
{
    (void)state;
    directory_make(&directory);
    options = (struct keep_options){.kind = KEEP_HOLDER,
                                    .directory = directory.path,
                                    .max_items = 64,
                                    .program = getenv("KVPOOLD")};
    return 0;
}

static int teardown(void **state)
{
    static const char *const left[] = {HOLD_LOCK, NULL};
    struct keep *keep = NULL;

    (void)state;
    assert_int_equal(keep_create(&options, &keep), 0);
    size_t count;
    const struct keep_item *items = keep_taken(keep, &count);
    for (size_t i = 0; i < count; i++)
        (void)close(items[i].fd);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
    directory_remove(&directory, left);
    return 0;
}

static struct records *table(void)
{
    struct records *records = NULL;
    const struct records_options of = {
        .tier = 1, .arena = {.granule = {.slots = 2}, .max_granules = 5}, .max_form = 1};

    assert_int_equal(records_create(&of, &records), 0);
    return records;
}

static int file(const char *content)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    return fd;
}

static void run(struct keep *keep)
{
    for (int i = 0; i < 500 && !keep_passed(keep, keep_mark(keep)); i++) {
        struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};
        (void)poll(&event, 1, 100);
        keep_run(keep, (uint64_t)i * 100);
    }
    assert_true(keep_passed(keep, keep_mark(keep)));
}

static struct keep *begin(struct kept *kept)
{
    struct keep *keep = NULL;

    assert_int_equal(keep_create(&options, &keep), 0);
    assert_int_equal(kept_sort(keep, kept), 0);
    return keep;
}

static bool has_content(int fd, const char *content)
{
    char bytes[16] = "";

    return pread(fd, bytes, sizeof(bytes) - 1, 0) > 0 && strcmp(bytes, content) == 0;
}

static void arenas_come_back_whole(void **state)
{
    struct kept kept;
    struct keep *keep = begin(&kept);
    struct records *records = table();
    struct record record = {.generation = 6};
    uint64_t first, second;

    (void)state;
    assert_int_equal(kept.num_arenas, 0);
    assert_int_equal(kept.mount_fds[0], -1);
    assert_int_equal(kept.mount_fds[3], -1);
    int mount = file("mount"), shared = file("shared"), reader = file("reader"), own = file("own");
    records_write(records, 7, &record);
    assert_int_equal(kept_add_mount(keep, 3, mount), 0);
    struct gpu_arena_files files = {shared, reader};
    assert_int_equal(kept_add(keep, &kept, files, records, &first), 0);
    files = (struct gpu_arena_files){own, -1};
    assert_int_equal(kept_add(keep, &kept, files, records, &second), 0);
    assert_true(first != second);
    assert_int_equal(keep_counters(keep)->items, 1 + 3 + 2);
    run(keep);
    kept_finish(&kept);
    keep_destroy(keep);
    records_destroy(records);
    (void)(close(mount) + close(shared) + close(reader) + close(own));

    keep = begin(&kept);
    assert_int_equal(kept.num_dropped, 0);
    assert_int_equal(kept.num_arenas, 2);
    assert_true(has_content(kept.mount_fds[3], "mount"));
    const struct kept_arena *arena = &kept.arenas[kept.arenas[0].number == first ? 0 : 1];
    assert_int_equal(arena->number, first);
    assert_true(has_content(arena->files.fd, "shared"));
    assert_true(has_content(arena->files.reader_fd, "reader"));
    assert_int_equal(records_read(arena->records, 7, &record), 0);
    arena = &kept.arenas[kept.arenas[0].number == first ? 1 : 0];
    assert_int_equal(arena->number, second);
    assert_true(has_content(arena->files.fd, "own"));
    assert_int_equal(arena->files.reader_fd, -1);
    assert_true(kept.next_number > second); /* no number is used twice */
    kept_remove(keep, first);
    assert_int_equal(keep_counters(keep)->items, 3);
    kept_finish(&kept);
    keep_destroy(keep);
}

static void halves_and_strangers_are_dropped(void **state)
{
    static const char *const names[] = {"1.file", "2.reader", "3.records", "03.file", "x.file",
                                        "4.fil",  "mount.9",  "mount.2",   "4.",      "5.records"};
    struct kept kept;
    struct keep *keep = begin(&kept);
    struct records *records = table();
    int fd = file("no table");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(
            keep_add(keep, names[i], strcmp(names[i], "3.records") == 0 ? records_fd(records) : fd),
            0);
    run(keep);
    kept_finish(&kept);
    keep_destroy(keep);
    records_destroy(records);
    (void)close(fd);

    keep = begin(&kept);
    assert_int_equal(kept.num_arenas, 0);
    assert_true(kept.mount_fds[2] >= 0);
    assert_int_equal(keep_counters(keep)->items, 1); /* the mount */
    assert_in_range(kept.num_dropped, 9, 10);
    kept_finish(&kept);
    keep_destroy(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arenas_come_back_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(halves_and_strangers_are_dropped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
