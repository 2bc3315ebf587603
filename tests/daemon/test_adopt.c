/*
 * tests/daemon/test_adopt.c - what daemon/adopt.h promises, with real devices whose arenas outlive
 * them, and a stand-in for the pool that knows what every block should hold.
 */
#include "daemon/adopt.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAGE = 65536,
    BLOCK = 16384, /* 4 to a granule of one page */
    SLOTS = 4,
    NUM_PAGES = 24,
    NUM_ARENAS = 3, /* of the pool */
    MAX_ARENAS = 16,
    NUM_SLOTS = NUM_PAGES * SLOTS,
    UNKNOWN_GROUP = 77
};

static struct gpu_device_options device_options = {
    .budget_bytes = NUM_PAGES * PAGE, .page_bytes = PAGE, .max_arenas = MAX_ARENAS};
static struct gpu_device *device;
static struct keep *keep;
static struct kept kept;
static struct records *tables[MAX_ARENAS]; /* of the arenas of the device that is alive */
static struct adopt *adopt;

static uint32_t callocs_left; /* the one that takes it to 0 fails; 0: none does */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return callocs_left > 0 && --callocs_left == 0 ? NULL : __real_calloc(count, size);
}

/* ---- the stand-in for the pool -------------------------------------------------------------- */

static bool claimed[NUM_ARENAS][NUM_PAGES];
static bool is_refusing; /* whoever claims an odd granule */
static bool found[NUM_ARENAS][NUM_SLOTS * 4];
static uint32_t num_found;

static struct records_options options_of(uint32_t group)
{
    struct records_options options = {.page_bytes = PAGE,
                                      .budget_bytes = NUM_PAGES * PAGE,
                                      .arena = {.block_bytes = BLOCK, .max_granules = NUM_PAGES},
                                      .max_form = 4};

    assert_int_equal(gpu_choose_granule(BLOCK, PAGE, &options.arena.granule), 0);
    options.place.group = group;
    return options;
}

static uint32_t find(void *context, const struct records_options *options)
{
    (void)context;
    return options->place.group < NUM_ARENAS ? options->place.group : GPU_NO_ARENA;
}

static void adopted(void *context, uint32_t arena, uint64_t number, struct records *records)
{
    (void)context;
    (void)number;
    assert_null(tables[arena]);
    tables[arena] = records;
}

static struct records *open_arena(void *context, uint32_t arena)
{
    const struct records_options options = options_of(arena);

    (void)context;
    if (tables[arena])
        return tables[arena];
    assert_int_equal(gpu_arena_open(device, arena, &options.arena), 0);
    assert_int_equal(records_create(&options, &tables[arena]), 0);
    return tables[arena];
}

static int claim(void *context, uint32_t arena, uint32_t granule)
{
    (void)context;
    if (claimed[arena][granule])
        return -EEXIST;
    if (is_refusing && granule % 2 == 1)
        return -ENOSPC;
    claimed[arena][granule] = true;
    return 0;
}

/* What a block holds is made of its number, which its record has too. */
static void block_fill(char *at, uint32_t number)
{
    for (uint32_t i = 0; i < BLOCK / sizeof(number); i++)
        memcpy(at + i * sizeof(number), &number, sizeof(number));
}

static bool block_is(const char *at, uint32_t number)
{
    uint32_t word;

    memcpy(&word, at, sizeof(word));
    return word == number && memcmp(at, at + sizeof(word), BLOCK - sizeof(word)) == 0;
}

static void restored(void *context, uint32_t arena, uint32_t granule)
{
    const char *base = gpu_arena_base(device, arena);
    struct record record;

    (void)context;
    assert_true(claimed[arena][granule]);
    for (uint32_t slot = granule * SLOTS + 1; slot <= (granule + 1) * SLOTS; slot++) {
        if (records_read(tables[arena], slot, &record))
            continue;
        assert_true(block_is(base + (uint64_t)(slot - 1) * BLOCK, record.generation));
        num_found += !found[arena][record.generation % (NUM_SLOTS * 4)];
        found[arena][record.generation % (NUM_SLOTS * 4)] = true;
    }
}

static void failed(void *context, uint32_t arena, uint32_t granule)
{
    (void)context;
    assert_true(claimed[arena][granule]);
    claimed[arena][granule] = false;
}

static const struct adopt_sink sink = {.find = find,
                                       .adopted = adopted,
                                       .open = open_arena,
                                       .claim = claim,
                                       .restored = restored,
                                       .failed = failed};

/* ---- lives ---------------------------------------------------------------------------------- */

static int wait_for_one(struct gpu_completion *out)
{
    struct pollfd event = {.fd = gpu_device_event_fd(device), .events = POLLIN};

    while (gpu_device_reap(device, out, 1) == 0)
        assert_int_equal(poll(&event, 1, 20000), 1);
    return out->status;
}

static uint32_t number_of(uint32_t arena, uint32_t slot)
{
    return arena * NUM_SLOTS + slot; /* below 4 * NUM_SLOTS */
}

static void granule_fill(uint32_t arena, uint32_t granule)
{
    struct gpu_completion completion;
    char *base = gpu_arena_base(device, arena);

    assert_int_equal(gpu_commit(device, arena, granule, 1), 0);
    assert_int_equal(wait_for_one(&completion), 0);
    for (uint32_t slot = granule * SLOTS + 1; slot <= (granule + 1) * SLOTS; slot++) {
        struct record record = {.generation = number_of(arena, slot), .num_form = 4};
        block_fill(base + (uint64_t)(slot - 1) * BLOCK, record.generation);
        if (slot % SLOTS != 0) /* three of four have something */
            records_write(tables[arena], slot, &record);
    }
}

static int duplicate(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* A fresh device with @count arenas of granules @first to @end - 1: arena i has blocks of
 * @groups[i].
 */
static void live(const uint32_t *groups, uint32_t count, uint32_t first, uint32_t end)
{
    device_options.max_operations = 64;
    assert_int_equal(gpu_device_create(&device_options, &device), 0);
    for (uint32_t arena = 0; arena < count; arena++) {
        const struct records_options options = options_of(groups[arena]);
        assert_int_equal(gpu_arena_open(device, arena, &options.arena), 0);
        assert_int_equal(records_create(&options, &tables[arena]), 0);
        for (uint32_t granule = first; granule < end; granule++)
            granule_fill(arena, granule);
    }
}

/* What the keeper would have of the device and of those of before, then the end of the device. */
static void die(void)
{
    struct kept next = {.mount_fds = {-1, -1, -1, -1}};
    struct gpu_arena_files files;
    int fd;

    next.arenas = calloc(MAX_ARENAS, sizeof(*next.arenas));
    for (uint32_t arena = 0; arena < MAX_ARENAS; arena++) {
        if (gpu_arena_keep(device, arena, &files) || !tables[arena])
            continue;
        struct kept_arena *of = &next.arenas[next.num_arenas++];
        of->number = 100 + arena;
        of->files = (struct gpu_arena_files){duplicate(files.fd), duplicate(files.reader_fd)};
        assert_int_equal(records_adopt(duplicate(records_fd(tables[arena])), &of->records), 0);
        records_destroy(tables[arena]);
        tables[arena] = NULL;
    }
    if (gpu_device_keep(device, &fd) == 0)
        next.mount_fds[0] = duplicate(fd);
    gpu_device_destroy(device);
    device = NULL;
    kept_finish(&kept);
    kept = next;
}

/* A file that is being copied from when its daemon is killed: it is still kept, of course. */
static struct kept_arena arena_duplicate(const struct kept_arena *arena)
{
    struct kept_arena copy = {.number = arena->number};

    copy.files =
        (struct gpu_arena_files){duplicate(arena->files.fd), duplicate(arena->files.reader_fd)};
    assert_int_equal(records_adopt(duplicate(records_fd(arena->records)), &copy.records), 0);
    return copy;
}

static void next_life(uint32_t max_operations)
{
    memset(claimed, 0, sizeof(claimed));
    memset(found, 0, sizeof(found));
    num_found = 0;
    device_options.max_operations = max_operations;
    assert_int_equal(gpu_device_adopt(&device_options, kept.mount_fds[0], &device), 0);
    kept.mount_fds[0] = -1;
    const struct adopt_options options = {.device = device,
                                          .keep = keep,
                                          .kept = &kept,
                                          .first_spare = MAX_ARENAS - 8,
                                          .cookie = UINT64_C(5) << 60,
                                          .sink = sink};
    assert_int_equal(adopt_create(&options, &adopt), 0);
}

/* Up to @max operations end. Returns how many did. */
static uint32_t run(uint32_t max)
{
    struct gpu_completion completion;
    uint32_t count = 0;

    while (count < max && adopt_run(adopt)) {
        (void)wait_for_one(&completion);
        assert_int_equal(completion.cookie >> 60, 5);
        adopt_reaped(adopt, completion.cookie, completion.status);
        count++;
    }
    return count;
}

static void check_over(void)
{
    const struct adopt_progress *progress = adopt_progress(adopt);
    struct gpu_memory memory;
    uint32_t num_claimed = 0;

    assert_int_equal(progress->granules_done, progress->granules);
    for (uint32_t arena = 0; arena < NUM_ARENAS; arena++)
        for (uint32_t granule = 0; granule < NUM_PAGES; granule++)
            num_claimed += claimed[arena][granule];
    gpu_device_memory(device, &memory);
    assert_int_equal(memory.charged_bytes, num_claimed * PAGE); /* nothing else has any */
    assert_int_equal(gpu_device_check_excess(device, NULL, 0), 0);
    adopt_destroy(adopt);
    adopt = NULL;
}

static int setup(void **state)
{
    const struct keep_options options = {.kind = KEEP_NONE, .directory = "/", .max_items = 64};

    (void)state;
    is_refusing = false;
    return keep_create(&options, &keep);
}

static int teardown(void **state)
{
    (void)state;
    adopt_destroy(adopt);
    adopt = NULL;
    gpu_device_destroy(device);
    device = NULL;
    for (uint32_t arena = 0; arena < MAX_ARENAS; arena++) {
        records_destroy(tables[arena]);
        tables[arena] = NULL;
    }
    kept_finish(&kept);
    keep_destroy(keep);
    return 0;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const uint32_t one_each[] = {0, 1, 2};

static void what_nobody_could_write_to_is_adopted_in_its_place(void **state)
{
    (void)state;
    live(one_each, 2, 2, 9);
    die();
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->arenas_adopted, 2);
    assert_int_equal(adopt_progress(adopt)->granules, 14);
    assert_int_equal(num_found, 2 * 7 * 3);
    assert_true(claimed[1][8]);
    check_over();
}

static void what_was_writable_is_copied_out_of_reach(void **state)
{
    int fd;

    (void)state;
    live(one_each, 2, 3, 9);
    records_set_writable(tables[1]);
    assert_int_equal(gpu_arena_export(device, 1, GPU_WRITE, &fd), 0);
    char *seen = mmap(NULL, NUM_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(seen != MAP_FAILED);
    (void)close(fd);
    die();
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->arenas_adopted, 1);
    assert_int_equal(adopt_progress(adopt)->arenas_copied, 1);
    assert_int_equal(num_found, 2 * 6 * 3);
    check_over();
    memset(seen, 0x55, PAGE); /* whatever its tenant does now */
    for (uint32_t granule = 0; granule < 6; granule++)
        restored(NULL, 1, granule);
    assert_int_equal(munmap(seen, NUM_PAGES * PAGE), 0);
}

/* Not one page is left for a copy beside its source. */
static void a_full_budget_loses_nothing(void **state)
{
    (void)state;
    live(one_each, 3, 0, 8); /* all 24 pages */
    for (uint32_t arena = 0; arena < 3; arena++)
        records_set_writable(tables[arena]);
    die();
    next_life(3); /* one operation for each arena, and no more at a time later */
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->granules_failed, 0);
    assert_int_equal(num_found, 3 * 8 * 3);
    check_over();
}

static void what_nobody_knows_loses_its_memory(void **state)
{
    static const uint32_t groups[] = {UNKNOWN_GROUP, 1};
    const struct records_options options = options_of(1);
    struct records *records = NULL;
    uint64_t number;

    (void)state;
    live(groups, 2, 0, 8);
    die();
    /* the keeper has it until its memory is gone */
    assert_int_equal(records_create(&options, &records), 0);
    kept.next_number = 100;
    assert_int_equal(kept_add(keep, &kept, kept.arenas[0].files, records, &number), 0);
    assert_int_equal(number, 100);
    assert_int_equal(keep_counters(keep)->items, 2); /* no reader */
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->arenas_dropped, 1);
    assert_int_equal(adopt_progress(adopt)->arenas_failed, 0);
    assert_int_equal(adopt_progress(adopt)->problem, 0);
    assert_int_equal(num_found, 8 * 3);
    assert_int_equal(keep_counters(keep)->items, 0);
    records_destroy(records);
    check_over();
}

static void two_of_one_kind_become_one(void **state)
{
    static const uint32_t groups[] = {2, 2, 2};

    (void)state;
    live(groups, 3, 0, 5);
    records_set_writable(tables[0]);
    die();
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->arenas_adopted, 1);
    assert_int_equal(adopt_progress(adopt)->arenas_copied, 2);
    assert_int_equal(num_found, 3 * 5 * 3);
    check_over();
}

static void what_has_a_hole_is_a_miss_and_stays_one(void **state)
{
    struct record record;

    (void)state;
    live(one_each, 2, 0, 4);
    records_set_writable(tables[1]);
    die();
    for (int i = 0; i < 2; i++)
        assert_int_equal(fallocate(kept.arenas[i].files.fd,
                                   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, 4096),
                         0);
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->granules_failed, 2);
    assert_int_equal(adopt_progress(adopt)->problem, -ENODATA);
    assert_int_equal(num_found, 2 * 3 * 3);
    for (uint32_t slot = 2 * SLOTS + 1; slot <= 3 * SLOTS;
         slot++) /* else it named what comes next */
        assert_int_equal(records_read(tables[0], slot, &record), -ENOENT);
    check_over();
}

static void what_the_pool_refuses_is_given_back(void **state)
{
    struct record record;

    (void)state;
    live(one_each, 1, 0, 6);
    die();
    is_refusing = true;
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->granules, 3);
    assert_int_equal(adopt_progress(adopt)->granules_refused, 3);
    assert_int_equal(adopt_progress(adopt)->problem, -ENOSPC);
    assert_int_equal(num_found, 3 * 3);
    assert_int_equal(records_read(tables[0], 1 * SLOTS + 1, &record), -ENOENT);
    check_over();
}

static void files_of_another_device_are_of_no_use(void **state)
{
    (void)state;
    live(one_each, 1, 0, 6);
    die();
    (void)close(kept.arenas[0].files.fd);
    kept.arenas[0].files.fd = memfd_create("other", MFD_CLOEXEC);
    next_life(64);
    (void)run(UINT32_MAX);
    assert_int_equal(adopt_progress(adopt)->arenas_dropped, 1);
    assert_int_equal(adopt_progress(adopt)->arenas_failed, 1);
    assert_int_equal(adopt_progress(adopt)->problem, -ESTALE);
    assert_int_equal(num_found, 0);
    check_over();
}

/* What is kept stays as it was, for another try. */
static void without_memory_nothing_is_adopted(void **state)
{
    uint32_t nth = 0;
    int err;

    (void)state;
    live(one_each, 2, 0, 4);
    die();
    assert_int_equal(gpu_device_adopt(&device_options, kept.mount_fds[0], &device), 0);
    kept.mount_fds[0] = -1;
    const struct adopt_options options = {
        .device = device, .keep = keep, .kept = &kept, .first_spare = MAX_ARENAS - 8, .sink = sink};
    memset(claimed, 0, sizeof(claimed));
    do {
        callocs_left = ++nth;
        err = adopt_create(&options, &adopt);
        assert_true(err == 0 || err == -ENOMEM);
        if (err)
            assert_true(kept.arenas[0].files.fd >= 0 && kept.arenas[1].records);
    } while (err);
    callocs_left = 0;
    assert_true(nth > 6); /* itself, its sources, two tables of each */
    struct gpu_completion completion;
    num_found = 0;
    memset(found, 0, sizeof(found));
    while (adopt_run(adopt)) {
        (void)wait_for_one(&completion);
        adopt_reaped(adopt, completion.cookie, completion.status);
    }
    assert_in_range(num_found, 4 * 3,
                    2 * 4 * 3); /* an arena without a record in the device: a miss */
    check_over();
}

/*
 * T2: killed after n operations, for every n, and again in the next life: a life that is left alone
 * finds everything. Kept is what the earlier life had, and what the killed one has opened since.
 */
static void a_kill_in_the_middle_costs_nothing_where_there_is_room(void **state)
{
    (void)state;
    for (uint32_t n = 0;; n++) {
        live(one_each, 2, 0, 4); /* 8 of 24 pages */
        records_set_writable(tables[1]);
        die();
        int mount_fd = duplicate(kept.mount_fds[0]);
        struct kept_arena before = arena_duplicate(&kept.arenas[1]);
        next_life(64);
        bool is_over = run(n) < n;
        adopt_destroy(adopt);
        adopt = NULL;
        /* arena 0 is in its place: kept once; arena 1 is there twice */
        die();
        kept.arenas[kept.num_arenas] = before;
        kept.arenas[kept.num_arenas++].number = 55;
        if (kept.mount_fds[0] < 0)
            kept.mount_fds[0] = mount_fd;
        else if (mount_fd >= 0)
            (void)close(mount_fd);

        next_life(64);
        (void)run(UINT32_MAX);
        assert_int_equal(num_found, 2 * 4 * 3);
        check_over();
        die();
        kept_finish(&kept);
        if (is_over)
            break;
        assert_true(n < 200);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_nobody_could_write_to_is_adopted_in_its_place),
        TEST(what_was_writable_is_copied_out_of_reach),
        TEST(a_full_budget_loses_nothing),
        TEST(what_nobody_knows_loses_its_memory),
        TEST(two_of_one_kind_become_one),
        TEST(what_has_a_hole_is_a_miss_and_stays_one),
        TEST(what_the_pool_refuses_is_given_back),
        TEST(files_of_another_device_are_of_no_use),
        TEST(without_memory_nothing_is_adopted),
        TEST(a_kill_in_the_middle_costs_nothing_where_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
