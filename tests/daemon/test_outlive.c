/*
 * tests/daemon/test_outlive.c - keeper, device, records and adoption together, in daemons that are
 * killed at random: what a record says is there, and what had a record has one again.
 *
 * usage: test_outlive [KILLS [SEED]]. A daemon of this test is a process that writes blocks into
 * two arenas, one of them exported for writing. Beside each record it notes the block's number in
 * memory that it shares with the test: after the record was written, and until before it is
 * cleared. So what is noted has a record, whenever it is killed.
 */
#include "daemon/adopt.h"
#include "daemon/hold.h"
#include "tests/daemon/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum {
    PAGE = 65536,
    BLOCK = 16384,
    SLOTS = 4,
    NUM_PAGES = 96,    /* so there is always room for a copy, and for one of that */
    NUM_ARENAS = 2,    /* number 1 is writable */
    MAX_GRANULES = 10, /* of an arena */
    MAX_ARENAS = 12,
    MAX_NUMBERS = 1 << 22
};

static struct directory directory;
static uint32_t num_kills = 25, seed = 1;
static struct shared {
    uint32_t next_number;
    uint32_t num_restored, num_lives; /* by all daemons */
    uint8_t noted[MAX_NUMBERS];       /* that block is there; a daemon takes it out when found */
} * shared;

/* ---- one daemon ----------------------------------------------------------------------------- */

static struct keep *keep;
static struct kept kept;
static struct gpu_device *device;
static struct records *tables[NUM_ARENAS];
static uint32_t in_slot[NUM_ARENAS][NUM_PAGES * SLOTS + 1]; /* numbers; 0: none */
static bool has_memory[NUM_ARENAS][NUM_PAGES], is_claimed[NUM_ARENAS][NUM_PAGES];
static uint32_t num_granules[NUM_ARENAS]; /* with memory */

/* The status of a daemon says what was wrong. */
static void need(bool is_fine, int status)
{
    if (!is_fine)
        _exit(status);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct records_options options_of(uint32_t group)
{
    struct records_options options = {
        .page_bytes = PAGE,
        .budget_bytes = NUM_PAGES * PAGE,
        .arena = {.granule = {1, SLOTS, BLOCK, 0}, .block_bytes = BLOCK, .max_granules = NUM_PAGES},
        .max_form = 2};

    options.place.group = group;
    return options;
}

static uint32_t find(void *context, const struct records_options *options)
{
    (void)context;
    return options->place.group;
}

static void adopted(void *context, uint32_t arena, uint64_t number, struct records *records)
{
    (void)context;
    (void)number;
    tables[arena] = records;
}

static struct records *open_arena(void *context, uint32_t arena)
{
    const struct records_options options = options_of(arena);
    struct gpu_arena_files files;
    uint64_t number;
    int fd;

    (void)context;
    if (tables[arena])
        return tables[arena];
    need(gpu_arena_open(device, arena, &options.arena) == 0, 10);
    need(records_create(&options, &tables[arena]) == 0, 11);
    need(gpu_arena_keep(device, arena, &files) == 0, 12);
    need(kept_add(keep, &kept, files, tables[arena], &number) == 0, 13);
    if (arena == 1) {
        records_set_writable(tables[arena]);
        need(gpu_arena_export(device, arena, GPU_WRITE, &fd) == 0, 14);
        (void)close(fd);
    }
    return tables[arena];
}

static int claim(void *context, uint32_t arena, uint32_t granule)
{
    (void)context;
    if (is_claimed[arena][granule])
        return -EEXIST;
    is_claimed[arena][granule] = true;
    return 0;
}

static void restored(void *context, uint32_t arena, uint32_t granule)
{
    const char *base = gpu_arena_base(device, arena);
    struct record record;

    (void)context;
    has_memory[arena][granule] = true;
    num_granules[arena]++;
    for (uint32_t slot = granule * SLOTS + 1; slot <= (granule + 1) * SLOTS; slot++) {
        const char *at = base + (uint64_t)(slot - 1) * BLOCK;
        if (records_read(tables[arena], slot, &record))
            continue;
        uint32_t number = record.generation;
        need(memcmp(at, &number, sizeof(number)) == 0, 20); /* a wrong byte */
        need(memcmp(at, at + sizeof(number), BLOCK - sizeof(number)) == 0, 20);
        need(record.extra == arena && number > 0 && number < MAX_NUMBERS, 21);
        if (shared->noted[number] == 2) { /* from an earlier copy of it */
            records_clear(tables[arena], slot);
            continue;
        }
        shared->noted[number] = 2; /* found in this life */
        in_slot[arena][slot] = number;
        shared->num_restored++;
    }
}

static void failed(void *context, uint32_t arena, uint32_t granule)
{
    (void)context;
    is_claimed[arena][granule] = false;
}

static const struct adopt_sink sink = {.find = find,
                                       .adopted = adopted,
                                       .open = open_arena,
                                       .claim = claim,
                                       .restored = restored,
                                       .failed = failed};

static void wait_for(struct gpu_completion *out)
{
    struct pollfd event = {.fd = gpu_device_event_fd(device), .events = POLLIN};

    while (gpu_device_reap(device, out, 1) == 0)
        (void)poll(&event, 1, 10000);
}

static void keeper_run(uint64_t mark)
{
    while (!keep_passed(keep, mark)) {
        struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};
        (void)poll(&event, 1, 100);
        keep_run(keep, now_ms());
    }
}

static void begin(void)
{
    const struct keep_options keep_options = {.kind = KEEP_HOLDER,
                                              .directory = directory.path,
                                              .max_items = 64,
                                              .program = getenv("KVPOOLD")};
    const struct gpu_device_options options = {.budget_bytes = NUM_PAGES * PAGE,
                                               .page_bytes = PAGE,
                                               .max_arenas = MAX_ARENAS,
                                               .max_operations = 32};
    int fd;

    need(keep_create(&keep_options, &keep) == 0, 2);
    need(kept_sort(keep, &kept) == 0, 3);
    if (kept.mount_fds[0] >= 0 || kept.num_arenas > 0) {
        need(gpu_device_adopt(&options, kept.mount_fds[0], &device) == 0, 4);
        kept.mount_fds[0] = -1;
        return;
    }
    need(gpu_device_create(&options, &device) == 0, 5);
    if (gpu_device_keep(device, &fd) == 0)
        need(kept_add_mount(keep, 0, fd) == 0, 6);
}

static void adopt_all(void)
{
    const struct adopt_options options = {
        .device = device, .keep = keep, .kept = &kept, .first_spare = NUM_ARENAS, .sink = sink};
    struct gpu_completion completion;
    struct adopt *adopt = NULL;

    need(kept.num_arenas <= MAX_ARENAS - NUM_ARENAS, 7);
    need(adopt_create(&options, &adopt) == 0, 8);
    gpu_device_adopt_end(device);
    while (adopt_run(adopt)) {
        struct pollfd events[] = {{.fd = gpu_device_event_fd(device), .events = POLLIN},
                                  {.fd = keep_event_fd(keep), .events = POLLIN}};
        (void)poll(events, 2, 100);
        keep_run(keep, now_ms());
        while (gpu_device_reap(device, &completion, 1) == 1)
            adopt_reaped(adopt, completion.cookie, completion.status);
    }
    adopt_destroy(adopt);
}

/* All that was noted has been found, or else it is lost. */
static void check_notes(void)
{
    for (uint32_t number = 1; number < shared->next_number; number++) {
        need(shared->noted[number] != 1, 30);
        if (shared->noted[number] == 2)
            shared->noted[number] = 1;
    }
}

static void slot_clear(uint32_t arena, uint32_t slot)
{
    uint32_t number = in_slot[arena][slot];

    if (number == 0)
        return;
    *(volatile uint8_t *)&shared->noted[number] = 0;
    records_clear(tables[arena], slot);
    in_slot[arena][slot] = 0;
}

static void slot_write(uint32_t arena, uint32_t slot)
{
    struct record record = {.extra = arena, .num_form = 2};
    char *at = (char *)gpu_arena_base(device, arena) + (uint64_t)(slot - 1) * BLOCK;
    uint32_t number = shared->next_number++;

    need(number < MAX_NUMBERS, 31);
    slot_clear(arena, slot);
    for (uint32_t i = 0; i < BLOCK / sizeof(number); i++)
        memcpy(at + i * sizeof(number), &number, sizeof(number));
    record.generation = number;
    records_write(tables[arena], slot, &record);
    in_slot[arena][slot] = number;
    *(volatile uint8_t *)&shared->noted[number] = 1;
}

static void granule_change(uint32_t arena, uint32_t granule)
{
    struct gpu_completion completion;
    bool goes = has_memory[arena][granule];

    for (uint32_t slot = granule * SLOTS + 1; goes && slot <= (granule + 1) * SLOTS; slot++)
        slot_clear(arena, slot);
    need((goes ? gpu_decommit : gpu_commit)(device, arena, granule, 1) == 0, 40);
    wait_for(&completion);
    need(completion.status == 0, 41);
    has_memory[arena][granule] = !goes;
    num_granules[arena] += goes ? -1u : 1u;
}

static void change_something(void)
{
    uint32_t arena = (uint32_t)rand() % NUM_ARENAS, granule = (uint32_t)rand() % NUM_PAGES;

    if (!has_memory[arena][granule] && num_granules[arena] < MAX_GRANULES)
        granule_change(arena, granule);
    else if (has_memory[arena][granule] && rand() % 16 == 0)
        granule_change(arena, granule);
    else if (has_memory[arena][granule])
        slot_write(arena, granule * SLOTS + 1 + (uint32_t)rand() % SLOTS);
}

/* Of what was found twice, one place is empty: as the pool, that gives it back. */
static void give_back_empty(void)
{
    for (uint32_t arena = 0; arena < NUM_ARENAS; arena++) {
        for (uint32_t granule = 0; granule < NUM_PAGES; granule++) {
            uint32_t num_used = 0;
            for (uint32_t slot = granule * SLOTS + 1; slot <= (granule + 1) * SLOTS; slot++)
                num_used += in_slot[arena][slot] != 0;
            if (has_memory[arena][granule] && num_used == 0)
                granule_change(arena, granule);
        }
    }
}

static void live(void)
{
    srand(seed + shared->num_lives);
    begin();
    adopt_all();
    check_notes();
    give_back_empty();
    shared->num_lives++;
    for (uint32_t arena = 0; arena < NUM_ARENAS; arena++)
        (void)open_arena(NULL, arena);
    keeper_run(keep_mark(keep)); /* nothing is written that would not be kept */
    for (;;)
        change_something();
}

/* ---- the test ------------------------------------------------------------------------------- */

/* Files of ours would outlive everybody. */
static bool is_shm_clean(void)
{
    bool is_clean = true;
    DIR *folder = opendir("/dev/shm");

    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        is_clean &= strstr(entry->d_name, "kvpool") == NULL;
    if (folder)
        (void)closedir(folder);
    return is_clean;
}

/* Until a daemon has found what there is, and begins to change it. */
static void life_await(uint32_t before)
{
    uint64_t end = now_ms() + 20000;

    while (*(volatile uint32_t *)&shared->num_lives == before && now_ms() < end)
        (void)usleep(1000);
}

static void killed_at_any_time_a_daemon_loses_no_block_and_finds_no_wrong_one(void **state)
{
    static const char *const left[] = {HOLD_LOCK, NULL};
    struct keep *last = NULL;
    int status;

    (void)state;
    directory_make(&directory);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    shared->next_number = 1;
    for (uint32_t i = 0; i < num_kills; i++) {
        uint32_t before = shared->num_lives;
        pid_t child = fork();
        if (child == 0)
            live();
        if (i % 2 == 0)
            life_await(before);
        (void)usleep((useconds_t)(rand() % 20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) /* it ended by itself: see need() */
            print_error("life %u: status %d\n", i, WEXITSTATUS(status));
        assert_true(WIFSIGNALED(status));
        for (uint32_t number = 1; number < shared->next_number; number++)
            shared->noted[number] = shared->noted[number] != 0; /* killed while it was looking */
    }
    print_message("%u lives, %u blocks written, %u found again\n", shared->num_lives,
                  shared->next_number - 1, shared->num_restored);
    assert_true(shared->num_lives >= num_kills / 2 && shared->num_restored > num_kills);

    const struct keep_options options = {.kind = KEEP_HOLDER,
                                         .directory = directory.path,
                                         .max_items = 64,
                                         .program = getenv("KVPOOLD")};
    size_t count;
    assert_int_equal(keep_create(&options, &last), 0);
    const struct keep_item *items = keep_taken(last, &count);
    assert_in_range(count, 4, 2 * NUM_ARENAS * 3 + 1); /* nothing piles up */
    for (size_t i = 0; i < count; i++)
        (void)close(items[i].fd);
    assert_int_equal(keep_forget(last), 0);
    keep_destroy(last);
    directory_remove(&directory, left);
    assert_true(is_shm_clean());
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_time_a_daemon_loses_no_block_and_finds_no_wrong_one),
    };
    num_kills = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : num_kills;
    seed = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : seed;
    srand(seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
