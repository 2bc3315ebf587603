/*
 * tests/offload/test_crash.c - a process that writes at random is killed at random; then every slot
 * is exact or absent, and every block of which the process had been told is there.
 *
 * usage: test_offload_crash [KILLS]
 */
#include "tests/offload/bed.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRANULES = 8, NUM_SLOTS = GRANULES * BED_SLOTS };

/* What the writer has been told, shared with it. */
struct ledger {
    _Atomic uint64_t begun[NUM_SLOTS];  /* seed of the last write that was begun; 0: none, erased */
    _Atomic uint64_t done[NUM_SLOTS];   /* equal to begun: that write completed */
    _Atomic uint64_t erased[NUM_SLOTS]; /* seeds that were: one of them may be there again */
    _Atomic uint64_t num_writes;
};

static uint32_t num_kills = 12;
static struct ledger *ledger;

static void begin_one(struct bed *bed, char *memory, uint64_t *random, uint32_t *num_left)
{
    uint32_t i = (uint32_t)(bed_random(random) % NUM_SLOTS);
    struct disk_slot slot = SLOT(i / BED_SLOTS, i % BED_SLOTS);
    uint64_t seed = bed_random(random) | 1;
    uint64_t before = atomic_load(&ledger->begun[i]);

    if (before != atomic_load(&ledger->done[i]))
        return; /* under way */
    if (seed % 8 == 7 && before != 0) {
        atomic_store(&ledger->erased[i], before);
        atomic_store(&ledger->begun[i], 0);
        atomic_store(&ledger->done[i], 0);
        disk_erase(bed->disk, &slot, 1);
        return;
    }
    bed_fill(memory + (size_t)i * BED_STRIDE, seed, BED_BLOCK);
    atomic_store(&ledger->begun[i], seed);
    if (disk_write(bed->disk, slot, memory + (size_t)i * BED_STRIDE, BED_BLOCK, &seed, sizeof(seed),
                   i) == 0)
        (*num_left)++;
    else
        _exit(3);
}

/* Up to 24 writes at a time, until somebody kills us. */
static void write_for_ever(struct bed *bed, uint64_t random)
{
    char *memory = malloc((size_t)NUM_SLOTS * BED_STRIDE);
    uint32_t num_left = 0;

    if (bed_open(bed) != 0 || !memory)
        _exit(1);
    for (uint32_t g = 0; g < GRANULES; g++) {
        struct disk_granule granule;
        (void)disk_granule_describe(bed->disk, g, &granule);
        if (!granule.is_used && bed_use(bed, g, BED_STRIDE) != 0)
            _exit(2);
    }
    for (;;) {
        struct disk_completion done[32];
        if (num_left < 24) {
            begin_one(bed, memory, &random, &num_left);
            continue;
        }
        struct pollfd event = {.fd = disk_event_fd(bed->disk), .events = POLLIN};
        (void)poll(&event, 1, 1000);
        size_t num = disk_reap(bed->disk, done, ARRAY_SIZE(done));
        for (size_t i = 0; i < num; i++) {
            if (done[i].status != 0)
                _exit(4);
            atomic_store(&ledger->done[done[i].cookie],
                         atomic_load(&ledger->begun[done[i].cookie]));
            atomic_fetch_add(&ledger->num_writes, 1);
            num_left--;
        }
    }
}

/* Everything found is exact; everything acknowledged is found. */
static void look(struct bed *bed)
{
    struct disk_found found[NUM_SLOTS];
    uint64_t records[NUM_SLOTS], has[NUM_SLOTS] = {0};
    struct disk_scan scan;
    struct disk_check check;

    assert_int_equal(disk_check(bed->path, true, NULL, NULL, &check, bed->error), 0);
    assert_int_equal(bed_open(bed), 0);
    size_t num = bed_scan(bed, found, records, NUM_SLOTS);
    assert_true(num <= NUM_SLOTS);
    assert_int_equal(check.headers_valid, num);
    disk_scan_progress(bed->disk, &scan);
    assert_int_equal(scan.num_damaged, 0); /* a kill tears no header: the kernel has it whole */
    for (size_t i = 0; i < num; i++) {
        uint32_t slot = found[i].slot.granule * BED_SLOTS + found[i].slot.index;
        assert_int_equal(has[slot], 0); /* once */
        int answer = bed_read(bed, found[i].slot, records[i], BED_BLOCK);
        assert_true(answer == 0 || answer == -EBADMSG);
        if (answer == 0)
            has[slot] = records[i];
    }
    for (uint32_t i = 0; i < NUM_SLOTS; i++) {
        uint64_t begun = atomic_load(&ledger->begun[i]), done = atomic_load(&ledger->done[i]);
        if (begun != 0 && begun == done) {
            assert_int_equal(has[i], begun);
            continue;
        }
        /* Cut short or erased: nothing, the new block, or the old one whole. */
        assert_true(has[i] == 0 || has[i] == begun || has[i] == done ||
                    has[i] == atomic_load(&ledger->erased[i]));
        atomic_store(&ledger->begun[i], has[i]);
        atomic_store(&ledger->done[i], has[i]);
    }
    bed_close(bed);
}

static void a_killed_writer_leaves_exact_blocks_or_none(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    uint64_t random = 42;

    (void)state;
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ledger, MAP_FAILED);
    bed_init(bed, NULL);
    for (uint32_t i = 0; i < num_kills; i++) {
        bed->options.engine = i % 3 == 2 ? DISK_ENGINE_THREADS : DISK_ENGINE_BEST;
        uint64_t seed = bed_random(&random), before = atomic_load(&ledger->num_writes);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever(bed, seed);
        while (i % 4 && atomic_load(&ledger->num_writes) == before) { /* or as it starts */
            assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
            (void)usleep(1000);
        }
        (void)usleep((useconds_t)(bed_random(&random) % 30000));
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        look(bed);
    }
    print_message("%u kills, %lu writes\n", num_kills,
                  (unsigned long)atomic_load(&ledger->num_writes));
    bed_finish(bed);
    free(bed);
    (void)munmap(ledger, sizeof(*ledger));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_writer_leaves_exact_blocks_or_none),
    };

    if (argc > 1)
        num_kills = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
