/* tests/offload/test_faults.c - a disk that fails, lies, stalls and comes back. */
#include "tests/offload/faults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct faulty {
    struct bed bed; /* first */
    struct faults faults;
};

static enum disk_engine_choice engine;

static int setup(void **state)
{
    struct faulty *faulty = calloc(1, sizeof(*faulty));

    bed_init(&faulty->bed, NULL);
    faults_init(&faulty->faults);
    faulty->bed.options.faults = &faulty->faults.hooks;
    faulty->bed.options.engine = engine;
    faulty->bed.options.deadline_ms = 5000;
    assert_int_equal(bed_open(&faulty->bed), 0);
    assert_int_equal(bed_use(&faulty->bed, 0, BED_STRIDE), 0);
    assert_int_equal(bed_use(&faulty->bed, 1, BED_STRIDE), 0);
    *state = faulty;
    return 0;
}

static int teardown(void **state)
{
    struct faulty *faulty = *state;

    faults_clear(&faulty->faults);
    bed_finish(&faulty->bed);
    free(faulty);
    return 0;
}

static struct disk_stats stats_of(const struct bed *bed)
{
    struct disk_stats stats;

    disk_stats(bed->disk, &stats);
    return stats;
}

static enum disk_state state_of(const struct bed *bed)
{
    return stats_of(bed).state;
}

/* Ticks until the state is @wanted, at most 10 s. */
static void wait_state(struct bed *bed, enum disk_state wanted)
{
    uint64_t end_ns = bed_now_ns() + 10000000000;
    struct disk_completion done[8];

    while (state_of(bed) != wanted) {
        assert_true(bed_now_ns() < end_ns);
        disk_tick(bed->disk, bed_now_ns());
        assert_int_equal(disk_reap(bed->disk, done, ARRAY_SIZE(done)), 0);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void a_failed_write_leaves_no_block(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static const enum disk_io_kind kinds[] = {DISK_IO_DATA, DISK_IO_HEADER};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
        atomic_store(&faults_arm(&faulty->faults, kinds[i], true, 1)->begin, -EIO);
        assert_int_equal(bed_write(bed, SLOT(0, 0), 2, BED_BLOCK), -EIO);
        assert_int_equal(bed_read(bed, SLOT(0, 0), 2, BED_BLOCK), -ENODATA);
        faults_clear(&faulty->faults);
        atomic_store(&faults_arm(&faulty->faults, kinds[i], true, 1)->end, -EIO);
        assert_int_equal(bed_write(bed, SLOT(0, 0), 2, BED_BLOCK), -EIO);
        assert_int_equal(bed_read(bed, SLOT(0, 0), 2, BED_BLOCK), -ENODATA);
        faults_clear(&faulty->faults);
    }
    assert_int_equal(stats_of(bed).write_failures, 4);
    assert_int_equal(state_of(bed), DISK_OK);
    /* Data of the last, failed one is there under the header of the first: no byte of it is read.
     */
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    struct disk_found found[2];
    uint64_t records[2];
    size_t num = bed_scan(bed, found, records, 2);
    for (size_t i = 0; i < num; i++)
        assert_int_not_equal(bed_read(bed, found[i].slot, records[i], BED_BLOCK), -EILSEQ);
}

static void a_failed_read_is_a_miss_and_can_be_tried_again(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, false, 1)->end, -EIO);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), -EIO);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    assert_int_equal(stats_of(bed).read_failures, 1);
}

/* Bits that change on their way to the disk or back, each byte class of the block. */
static void no_flipped_bit_is_read(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static const int bytes[] = {0, 1, 63, 511, 512, 4095, 4096, 6999};

    for (size_t i = 0; i < 2 * ARRAY_SIZE(bytes); i++) {
        bool is_write = i % 2;
        struct fault_rule *rule = faults_arm(&faulty->faults, DISK_IO_DATA, is_write, 1);
        atomic_store(&rule->flip, bytes[i / 2] * 8 + 3);
        assert_int_equal(bed_write(bed, SLOT(0, 0), i, BED_BLOCK), 0);
        assert_int_equal(bed_read(bed, SLOT(0, 0), i, BED_BLOCK), -EBADMSG);
        assert_int_equal(atomic_load(&rule->num_hits), 1);
        assert_int_equal(bed_read(bed, SLOT(0, 0), i, BED_BLOCK), -ENODATA);
        faults_clear(&faulty->faults);
    }
    assert_int_equal(stats_of(bed).corrupt, 2 * ARRAY_SIZE(bytes));
    assert_int_equal(state_of(bed), DISK_OK);
}

static void short_reads_and_writes_go_on(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static const int less[] = {1, 511, 4096, 4097, 8191, 8192, 100000};

    for (size_t i = 0; i < ARRAY_SIZE(less); i++) {
        /* All but nothing: whole pages that were done are not done again. */
        int nothing = less[i] >= 8192 ? -EIO : 0;
        atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, true, 1)->short_by, less[i]);
        assert_int_equal(bed_write(bed, SLOT(0, 0), i, BED_BLOCK), nothing);
        faults_clear(&faulty->faults);
        assert_int_equal(bed_write(bed, SLOT(0, 0), i, BED_BLOCK), 0);
        atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, false, 1)->short_by, less[i]);
        assert_int_equal(bed_read(bed, SLOT(0, 0), i, BED_BLOCK), nothing);
        faults_clear(&faulty->faults);
        assert_int_equal(bed_read(bed, SLOT(0, 0), i, BED_BLOCK), 0);
        atomic_store(&faults_arm(&faulty->faults, DISK_IO_HEADER, true, 1)->short_by, 200);
        assert_int_equal(bed_write(bed, SLOT(0, 0), i, BED_BLOCK), 0);
        faults_clear(&faulty->faults);
    }
    /* A kernel that never does a whole page is not asked for ever. */
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, true, -1)->short_by, 8191);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), -EIO);
    faults_clear(&faulty->faults);
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, true, -1)->end, -EAGAIN);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), -EAGAIN);
}

static void a_full_disk_refuses_writes_serves_reads_and_is_used_again(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static const int errors[] = {-ENOSPC, -EDQUOT};

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
        atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, true, 1)->end, errors[i]);
        assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), errors[i]);
        assert_int_equal(state_of(bed), DISK_FULL);
        assert_int_equal(stats_of(bed).state_reason, errors[i]);
        assert_string_equal(disk_state_name(state_of(bed)), "full");
        assert_int_equal(disk_write(bed->disk, SLOT(0, 1), bed, 100, NULL, 0, 1), -ENOSPC);
        assert_int_equal(disk_granule_use(bed->disk, 5, 4096, NULL, 0, 1), -ENOSPC);
        assert_int_equal(disk_read(bed->disk, SLOT(0, 0), bed->error, 100, 7), 0);
        assert_int_equal(bed_wait(bed, 7, DISK_ENDED), -EBADMSG); /* it was longer */
        wait_state(bed, DISK_OK);
        assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), 0);
        faults_clear(&faulty->faults);
    }
    assert_int_equal(stats_of(bed).refused, 4);
    assert_int_equal(stats_of(bed).state_changes, 4);
}

static void a_read_only_disk_refuses_writes(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_DATA, true, -1)->begin, -EROFS);
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_SCRATCH, true, -1)->begin, -EROFS);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), -EROFS);
    assert_int_equal(state_of(bed), DISK_READ_ONLY);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 1), bed, 100, NULL, 0, 1), -EROFS);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    while (stats_of(bed).probes < 3) /* it stays so as long as probes fail */
        assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    assert_int_equal(state_of(bed), DISK_READ_ONLY);
    faults_clear(&faulty->faults);
    wait_state(bed, DISK_OK);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), 0);
}

/* As many operations fail as make a disk a failing one, by two I/Os. */
static void a_failed_io_of_many_headers_is_one_failure(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    struct fault_rule *rule = &faulty->faults.rules[DISK_IO_HEADER][true];
    static char memory[BED_BLOCK];
    struct disk_completion done[BED_SLOTS];
    size_t num = 0;

    faults_hold(&faulty->faults, DISK_IO_HEADER, true);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory, BED_BLOCK, NULL, 0, 0), 0);
    faults_wait(&faulty->faults, DISK_IO_HEADER, true);
    for (uint32_t i = 1; i < BED_SLOTS; i++)
        assert_int_equal(disk_write(bed->disk, SLOT(0, i), memory, BED_BLOCK, NULL, 0, i), 0);
    while (stats_of(bed).num_in_kernel != 1) /* their data is there, their headers wait */
        ;
    atomic_store(&rule->end, -EIO);
    atomic_store(&rule->begin, 0);
    while (num < BED_SLOTS)
        num += disk_reap(bed->disk, done + num, BED_SLOTS - num);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(done[i].status, -EIO);
    assert_int_equal(stats_of(bed).write_failures, BED_SLOTS);
    assert_int_equal(state_of(bed), DISK_OK);
}

static void a_failing_disk_refuses_all_and_is_used_again(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    for (int i = 0; i < 4; i++)
        for (int is_write = 0; is_write < 2; is_write++)
            atomic_store(&faults_arm(&faulty->faults, i, is_write, -1)->end, -EIO);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(state_of(bed), DISK_OK);
        assert_int_equal(i % 2 ? bed_write(bed, SLOT(0, 1), 2, BED_BLOCK)
                               : bed_read(bed, SLOT(0, 0), 1, BED_BLOCK),
                         -EIO);
    }
    assert_int_equal(state_of(bed), DISK_FAILING);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 1), bed, 100, NULL, 0, 1), -EIO);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), bed->error, 100, 1), -EIO);
    assert_int_equal(stats_of(bed).num_queued, 0);
    faults_clear(&faulty->faults);
    wait_state(bed, DISK_OK);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 1), 2, BED_BLOCK), 0);
}

static void a_granule_whose_entry_fails_is_free(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    atomic_store(&faults_arm(&faulty->faults, DISK_IO_GRANULE, true, 2)->end, -EIO);
    assert_int_equal(bed_use(bed, 4, BED_STRIDE), -EIO);
    assert_int_equal(stats_of(bed).used_granules, 2);
    assert_int_equal(bed_write(bed, SLOT(4, 0), 1, BED_BLOCK), -EINVAL);
    assert_int_equal(bed_free(bed, 1), -EIO);
    assert_int_equal(stats_of(bed).used_granules, 1);
    assert_int_equal(bed_use(bed, 4, BED_STRIDE), 0);
    assert_int_equal(bed_use(bed, 1, 4096), 0);
    assert_int_equal(bed_write(bed, SLOT(1, 15), 1, 4096), 0);
}

/* --- no progress --- */

static void a_stalled_write_ends_once_and_keeps_its_slot(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    char *memory = malloc(BED_BLOCK);

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    faults_hold(&faulty->faults, DISK_IO_DATA, true);
    bed_fill(memory, 2, BED_BLOCK);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory, BED_BLOCK, NULL, 0, 11), 0);
    faults_wait(&faulty->faults, DISK_IO_DATA, true);
    disk_tick(bed->disk, bed_now_ns() + 4000000000); /* not yet */
    assert_int_equal(stats_of(bed).timeouts, 0);
    disk_tick(bed->disk, bed_now_ns() + 6000000000);
    struct disk_completion done;
    assert_int_equal(disk_reap(bed->disk, &done, 1), 1);
    assert_int_equal(done.cookie, 11);
    assert_int_equal(done.status, -ETIMEDOUT);
    assert_int_equal(done.kind, DISK_ENDED);
    assert_true(done.is_quarantined);
    free(memory); /* it is the caller's: the sanitizer sees to it */
    assert_int_equal(stats_of(bed).num_quarantined, 1);
    assert_int_equal(stats_of(bed).queued_bytes, 0);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 3, BED_BLOCK), -EBUSY);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 1, BED_BLOCK), -EBUSY);
    assert_int_equal(bed_free(bed, 0), -EBUSY);
    assert_int_equal(disk_reap(bed->disk, &done, 1), 0);

    faults_clear(&faulty->faults);
    assert_int_equal(bed_wait(bed, 11, DISK_RELEASED), 0);
    assert_int_equal(stats_of(bed).num_quarantined, 0);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 2, BED_BLOCK), -ENODATA);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 3, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 3, BED_BLOCK), 0);
}

static void a_stalled_read_never_comes_to_memory(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    char *memory = malloc(BED_BLOCK);
    struct disk_completion done;

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    faults_hold(&faulty->faults, DISK_IO_DATA, false);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 0), memory, BED_BLOCK, 12), 0);
    faults_wait(&faulty->faults, DISK_IO_DATA, false);
    disk_tick(bed->disk, bed_now_ns() + 6000000000);
    assert_int_equal(disk_reap(bed->disk, &done, 1), 1);
    assert_int_equal(done.status, -ETIMEDOUT);
    assert_false(done.is_quarantined); /* only its buffer is */
    free(memory);
    assert_int_equal(stats_of(bed).num_quarantined, 1);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 2, BED_BLOCK), 0);
    faults_clear(&faulty->faults);
    while (stats_of(bed).num_quarantined > 0)
        assert_int_equal(disk_reap(bed->disk, &done, 1), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 2, BED_BLOCK), 0);
}

/* All buffers and more wait for the kernel: everything ends all the same, and nothing is lost. */
static void a_disk_that_stalls_whole_fails_and_comes_back(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    struct disk_completion done[64];
    static char memory[BED_BLOCK];
    uint32_t num_begun = 0, num_ended = 0, num_quarantined = 0, num_released = 0;

    for (int i = 0; i < 4; i++)
        for (int is_write = 0; is_write < 2; is_write++)
            faults_hold(&faulty->faults, i, is_write);
    for (uint32_t i = 0; i < 2 * BED_SLOTS; i++) {
        struct disk_slot slot = SLOT(i / BED_SLOTS, i % BED_SLOTS);
        num_begun += disk_write(bed->disk, slot, memory, BED_BLOCK, NULL, 0, i) == 0;
    }
    assert_int_equal(num_begun, 2 * BED_SLOTS);
    while (stats_of(bed).num_in_kernel < 8) /* its depth */
        ;
    disk_tick(bed->disk, bed_now_ns() + 6000000000);
    size_t num = disk_reap(bed->disk, done, 64);
    for (size_t i = 0; i < num; i++) {
        assert_int_equal(done[i].kind, DISK_ENDED);
        assert_int_equal(done[i].status, -ETIMEDOUT);
        num_ended++;
        num_quarantined += done[i].is_quarantined;
    }
    assert_int_equal(num_ended, num_begun);
    assert_int_equal(num_quarantined, 8);
    assert_int_equal(stats_of(bed).num_quarantined, 8);
    assert_int_equal(state_of(bed), DISK_FAILING);
    assert_int_equal(disk_write(bed->disk, SLOT(1, 7), memory, 10, NULL, 0, 1), -EIO);
    faults_clear(&faulty->faults);
    uint64_t end_ns = bed_now_ns() + 10000000000;
    while (num_released < num_quarantined || state_of(bed) != DISK_OK) {
        assert_true(bed_now_ns() < end_ns);
        disk_tick(bed->disk, bed_now_ns());
        num = disk_reap(bed->disk, done, 64);
        for (size_t i = 0; i < num; i++) {
            assert_int_equal(done[i].kind, DISK_RELEASED);
            num_released++;
        }
    }
    for (uint32_t i = 0; i < 2 * BED_SLOTS; i++) {
        struct disk_slot slot = SLOT(i / BED_SLOTS, i % BED_SLOTS);
        assert_int_equal(bed_read(bed, slot, 1, BED_BLOCK), -ENODATA);
        assert_int_equal(bed_write(bed, slot, i, BED_BLOCK), 0);
    }
    for (uint32_t i = 0; i < 2 * BED_SLOTS; i++)
        assert_int_equal(bed_read(bed, SLOT(i / BED_SLOTS, i % BED_SLOTS), i, BED_BLOCK), 0);
}

static void a_stalled_header_quarantines_its_slots(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static char memory[BED_BLOCK];
    struct disk_completion done;

    faults_hold(&faulty->faults, DISK_IO_HEADER, true);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory, BED_BLOCK, NULL, 0, 21), 0);
    while (stats_of(bed).header_writes == 0)
        ;
    assert_int_equal(disk_cancel(bed->disk, 99), -ENOENT);
    assert_int_equal(disk_cancel(bed->disk, 21), 0);
    assert_int_equal(disk_reap(bed->disk, &done, 1), 1);
    assert_int_equal(done.status, -ECANCELED);
    assert_true(done.is_quarantined);
    assert_int_equal(disk_cancel(bed->disk, 21), -ENOENT);
    faults_clear(&faulty->faults);
    assert_int_equal(bed_wait(bed, 21, DISK_RELEASED), 0);
    assert_int_equal(bed_write(bed, SLOT(0, 0), 3, BED_BLOCK), 0);
    assert_int_equal(bed_read(bed, SLOT(0, 0), 3, BED_BLOCK), 0);
}

static void a_stalled_granule_is_not_used(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    faults_hold(&faulty->faults, DISK_IO_GRANULE, true);
    assert_int_equal(disk_granule_use(bed->disk, 5, BED_STRIDE, NULL, 0, 31), 0);
    faults_wait(&faulty->faults, DISK_IO_GRANULE, true);
    assert_int_equal(disk_cancel(bed->disk, 31), 0);
    assert_int_equal(bed_wait(bed, 31, DISK_ENDED), -ECANCELED);
    assert_int_equal(bed_use(bed, 5, BED_STRIDE), -EBUSY);
    faults_clear(&faulty->faults);
    assert_int_equal(bed_wait(bed, 31, DISK_RELEASED), 0);
    assert_int_equal(bed_use(bed, 5, 4096), 0);
    assert_int_equal(bed_write(bed, SLOT(5, 15), 3, 4096), 0);
}

/* Cancels at every moment of writes and reads, whose memory goes away with the end. */
static void cancels_at_any_moment_leave_memory_alone(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    uint64_t random = 7;

    assert_int_equal(bed_write(bed, SLOT(0, 0), 1, BED_BLOCK), 0);
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t cookie = 100000 + i;
        bool is_write = i % 2;
        char *memory = malloc(BED_BLOCK);
        if (is_write)
            bed_fill(memory, i, BED_BLOCK);
        int answer = is_write
                         ? disk_write(bed->disk, SLOT(1, 0), memory, BED_BLOCK, NULL, 0, cookie)
                         : disk_read(bed->disk, SLOT(0, 0), memory, BED_BLOCK, cookie);
        if (answer == 0) {
            for (uint64_t spin = bed_random(&random) % 20000; spin > 0; spin--)
                atomic_signal_fence(memory_order_seq_cst);
            (void)disk_cancel(bed->disk, cookie);
            int status = bed_wait(bed, cookie, DISK_ENDED);
            assert_true(status == 0 || status == -ECANCELED);
            if (status == 0 && !is_write)
                assert_true(bed_is(memory, 1, BED_BLOCK));
        } else {
            assert_true(answer == -EBUSY || answer == DISK_BUSY); /* the lane is behind */
        }
        free(memory);
        bed->num_last = 0; /* releases are not waited for */
    }
    assert_true(stats_of(bed).cancelled > 0);
}

static void a_close_does_not_wait_for_ever(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;
    static char memory[BED_BLOCK];

    bed_close(bed);
    bed->options.deadline_ms = 100;
    assert_int_equal(bed_open(bed), 0);
    faults_hold(&faulty->faults, DISK_IO_DATA, true);
    assert_int_equal(disk_write(bed->disk, SLOT(0, 0), memory, BED_BLOCK, NULL, 0, 1), 0);
    faults_wait(&faulty->faults, DISK_IO_DATA, true);
    assert_int_equal(disk_close(bed->disk), -ETIMEDOUT);
    faults_clear(&faulty->faults); /* the kernel gives it back after all: now it can be closed */
    assert_int_equal(disk_close(bed->disk), 0);
    bed->disk = NULL;
}

static void an_open_does_not_wait_for_ever(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = &faulty->bed;

    bed_close(bed);
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_SCRATCH, true, 1)->end, -EIO);
    assert_int_equal(bed_open(bed), -EIO);
    assert_non_null(strstr(bed->error, "failed (Input/output error)"));
    faults_clear(&faulty->faults);
    /* What was read back is not what was written: a disk that lies from the start. */
    atomic_store(&faults_arm(&faulty->faults, DISK_IO_SCRATCH, false, 1)->flip, 77);
    assert_int_equal(bed_open(bed), -EBADMSG);
    faults_clear(&faulty->faults);
    assert_int_equal(bed_open(bed), 0);
}

/* ---- what the kernel has ---- */

enum { LARGE = 1 << 20, LARGE_WRITES = 12 };

static void open_large(struct bed *bed, struct faulty *faulty)
{
    bed_init(bed, NULL);
    bed->options.faults = &faulty->faults.hooks;
    bed->options.engine = engine;
    bed->options.granule_bytes = (uint64_t)16 * LARGE;
    bed->options.max_bytes = (uint64_t)40 * LARGE;
    bed->options.min_block_bytes = bed->options.max_block_bytes = LARGE;
    bed->options.queue_depth = 16;
    bed->options.num_buffers = 24;
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_use(bed, 0, LARGE), 0);
}

/* How many of LARGE_WRITES the kernel has when it answers none of them. */
static uint32_t writes_in_kernel(struct bed *bed, struct faulty *faulty, const void *memory)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    uint32_t last = 0, same = 0;

    faults_hold(&faulty->faults, DISK_IO_DATA, true);
    for (uint32_t i = 0; i < LARGE_WRITES; i++)
        assert_int_equal(disk_write(bed->disk, SLOT(0, 1 + i), memory, LARGE, &i, sizeof(i), i), 0);
    while (same < 15) {
        const uint32_t now = stats_of(bed).num_in_kernel;
        same = now > 0 && now == last ? same + 1 : 0;
        last = now;
        (void)nanosleep(&pause, NULL);
    }
    faults_clear(&faulty->faults);
    for (uint32_t i = 0; i < LARGE_WRITES; i++)
        assert_int_equal(bed_wait(bed, i, DISK_ENDED), 0);
    return last;
}

/* A read does not wait for all of a queue of writes: beside reads that is 4 MiB. */
static void writes_give_way_while_there_are_reads(void **state)
{
    struct faulty *faulty = *state;
    struct bed *bed = calloc(1, sizeof(*bed));
    char *memory = malloc(LARGE);

    assert_non_null(memory);
    memset(memory, 5, LARGE);
    open_large(bed, faulty);
    assert_int_equal(writes_in_kernel(bed, faulty, memory), LARGE_WRITES);
    assert_int_equal(disk_read(bed->disk, SLOT(0, 1), memory, LARGE, 100), 0);
    assert_int_equal(bed_wait(bed, 100, DISK_ENDED), 0);
    assert_int_equal(writes_in_kernel(bed, faulty, memory), 4);
    bed_finish(bed);
    free(bed);
    free(memory);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_failed_write_leaves_no_block),
        CASE(a_failed_read_is_a_miss_and_can_be_tried_again),
        CASE(no_flipped_bit_is_read),
        CASE(short_reads_and_writes_go_on),
        CASE(a_full_disk_refuses_writes_serves_reads_and_is_used_again),
        CASE(a_read_only_disk_refuses_writes),
        CASE(a_failed_io_of_many_headers_is_one_failure),
        CASE(a_failing_disk_refuses_all_and_is_used_again),
        CASE(a_granule_whose_entry_fails_is_free),
        CASE(a_stalled_write_ends_once_and_keeps_its_slot),
        CASE(a_stalled_read_never_comes_to_memory),
        CASE(a_disk_that_stalls_whole_fails_and_comes_back),
        CASE(a_stalled_header_quarantines_its_slots),
        CASE(a_stalled_granule_is_not_used),
        CASE(cancels_at_any_moment_leave_memory_alone),
        CASE(writes_give_way_while_there_are_reads),
        CASE(a_close_does_not_wait_for_ever),
        CASE(an_open_does_not_wait_for_ever),
    };

    engine = argc > 1 && !strcmp(argv[1], "threads") ? DISK_ENGINE_THREADS : DISK_ENGINE_BEST;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
