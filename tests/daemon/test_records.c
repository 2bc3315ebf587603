/* tests/daemon/test_records.c - what daemon/records.h promises: whole records or none, found again.
 */
#include "daemon/records.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 3, GRANULES = 70, LAST = SLOTS * GRANULES };

static struct records_options options_of(uint32_t max_form)
{
    struct records_options options = {.tier = 1,
                                      .page_bytes = 65536,
                                      .budget_bytes = 1 << 30,
                                      .arena = {.granule = {.pages = 3, .slots = SLOTS},
                                                .block_bytes = 60000,
                                                .max_granules = GRANULES,
                                                .is_shared = true},
                                      .max_form = max_form};

    memset(options.place.domain, 0xd0, RECORD_ID_BYTES);
    memset(options.place.model, 0x30, RECORD_ID_BYTES);
    options.place.group = 2;
    options.place.format = 9;
    return options;
}

static struct records *table(void)
{
    const struct records_options options = options_of(RECORD_MAX_FORM);
    struct records *records = NULL;

    assert_int_equal(records_create(&options, &records), 0);
    return records;
}

static struct record record_of(uint32_t number)
{
    struct record record = {.extra = number * UINT64_C(0x100000001),
                            .epoch = number + 1000,
                            .generation = number,
                            .num_tokens = 16,
                            .num_form = number % (RECORD_MAX_FORM + 1),
                            .has_parent = number % 2 == 1,
                            .is_storable = number % 3 == 1,
                            .is_generated = number % 5 == 1};

    memset(record.key, (int)(number % 251 + 1), sizeof(record.key));
    if (record.has_parent)
        memset(record.parent, (int)(number % 241 + 2), sizeof(record.parent));
    for (uint32_t i = 0; i < record.num_form; i++)
        record.form[i] = number * 31 + i;
    return record;
}

static bool is_same(const struct record *a, const struct record *b)
{
    return memcmp(a->key, b->key, sizeof(a->key)) == 0 &&
           memcmp(a->parent, b->parent, sizeof(a->parent)) == 0 && a->extra == b->extra &&
           a->epoch == b->epoch && a->generation == b->generation &&
           a->num_tokens == b->num_tokens && a->num_form == b->num_form &&
           a->has_parent == b->has_parent && a->is_storable == b->is_storable &&
           a->is_generated == b->is_generated && memcmp(a->form, b->form, sizeof(a->form)) == 0;
}

static void assert_has(const struct records *records, uint32_t slot, uint32_t number)
{
    const struct record expected = record_of(number);
    struct record record;

    assert_int_equal(records_read(records, slot, &record), 0);
    assert_true(is_same(&record, &expected));
}

static void what_is_written_is_read_until_it_is_cleared(void **state)
{
    struct records *records = table();
    struct record record;

    (void)state;
    assert_int_equal(records_num_slots(records), LAST);
    assert_int_equal(records_read(records, 1, &record), -ENOENT);
    for (uint32_t slot = 1; slot <= LAST; slot++) {
        record = record_of(slot);
        records_write(records, slot, &record);
    }
    for (uint32_t slot = 1; slot <= LAST; slot++)
        assert_has(records, slot, slot);
    records_clear(records, 7);
    assert_int_equal(records_read(records, 7, &record), -ENOENT);
    record = record_of(33); /* a shorter form than what was there */
    records_write(records, 64, &record);
    assert_has(records, 64, 33);
    assert_has(records, 63, 63);
    assert_has(records, 65, 65);
    assert_int_equal(records_read(records, 0, &record), -ENOENT);
    assert_int_equal(records_read(records, LAST + 1, &record), -ENOENT);
    records_destroy(records);
}

static void the_next_process_finds_the_table_as_it_was(void **state)
{
    const struct records_options expected = options_of(RECORD_MAX_FORM);
    struct records *records = table(), *again = NULL;
    struct record record = record_of(5);

    (void)state;
    records_write(records, 40, &record);
    assert_false(records_is_writable(records));
    records_set_writable(records);
    int fd = fcntl(records_fd(records), F_DUPFD_CLOEXEC, 0);
    records_destroy(records);
    assert_int_equal(records_adopt(fd, &again), 0);
    const struct records_options *options = records_describe(again);
    assert_memory_equal(&options->place, &expected.place, sizeof(expected.place));
    assert_int_equal(options->arena.max_granules, GRANULES);
    assert_int_equal(options->arena.granule.slots, SLOTS);
    assert_int_equal(options->tier, 1);
    assert_true(records_is_writable(again));
    assert_has(again, 40, 5);
    records_write(again, 41, &record);
    assert_has(again, 41, 5);
    records_destroy(again);
}

static void only_what_has_a_record_is_walked(void **state)
{
    static const uint32_t slots[] = {1, 2, 64, 65, 190, LAST};
    const struct record record = record_of(3);
    const struct records_options options = options_of(16); /* a page ends within a record */
    struct records *records = NULL;
    uint64_t granules[2];
    struct records_walk walk = {0}, none = {0};
    struct stat before, after;

    (void)state;
    assert_int_equal(records_create(&options, &records), 0);
    assert_false(records_next(records, &none));
    for (size_t i = 0; i < ARRAY_SIZE(slots); i++)
        records_write(records, slots[i], &record);
    assert_int_equal(fstat(records_fd(records), &before), 0);
    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        assert_true(records_next(records, &walk));
        assert_int_equal(walk.slot, slots[i]);
    }
    assert_false(records_next(records, &walk));
    /* slots 1, 2; 64, 65; 190; 210, three to a granule */
    assert_int_equal(records_granules(records, granules), 4);
    assert_int_equal(granules[0], UINT64_C(1) << 0 | UINT64_C(1) << 21 | UINT64_C(1) << 63);
    assert_int_equal(granules[1], UINT64_C(1) << (69 - 64));
    assert_int_equal(fstat(records_fd(records), &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks); /* to look took no memory */
    records_clear(records, 190);
    records_clear(records, 64);
    assert_int_equal(records_granules(records, granules), 3);
    records_destroy(records);
}

/* Every bit of a record and of its slot's number counts. */
static void what_was_not_written_is_no_record(void **state)
{
    const struct record record = record_of(32);
    struct records *records = table();
    struct record read;
    struct records_walk walk = {0};
    uint64_t granules[2];
    char bytes[256];

    (void)state;
    records_write(records, 1, &record);
    size_t stride = 256; /* 104 bytes and 32 words in whole cache lines */
    assert_int_equal(pread(records_fd(records), bytes, stride, 4096), stride);
    for (size_t bit = 0; bit < (104 + 32 * 4) * 8; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(pwrite(records_fd(records), bytes, stride, 4096), stride);
        int answer = records_read(records, 1, &read);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(answer, -EBADMSG);
    }
    records_clear(records, 1);
    assert_int_equal(pwrite(records_fd(records), bytes, stride, 4096 + 4 * (off_t)stride), stride);
    assert_int_equal(records_read(records, 5, &read), -EBADMSG); /* it is slot 1's */
    assert_true(records_next(records, &walk));                   /* there is something */
    assert_int_equal(walk.slot, 5);
    assert_int_equal(records_granules(records, granules), 0); /* of no use */
    records_destroy(records);
}

static int adopt_file(const void *header, size_t bytes, off_t size, int seals)
{
    struct records *records = NULL;
    int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(pwrite(fd, header, bytes, 0), bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    int answer = records_adopt(fd, &records);
    assert_int_equal(close(fd), 0); /* it stayed ours */
    return answer;
}

static void what_is_no_table_is_not_adopted(void **state)
{
    static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct records *records = table(), *none = NULL;
    uint8_t header[4096];
    struct stat status;
    int pipe_fds[2];

    (void)state;
    assert_int_equal(pread(records_fd(records), header, sizeof(header), 0), sizeof(header));
    assert_int_equal(fstat(records_fd(records), &status), 0);
    records_destroy(records);
    assert_int_equal(adopt_file(header, sizeof(header), status.st_size, F_SEAL_SHRINK), -EBADMSG);
    assert_int_equal(adopt_file(header, sizeof(header), status.st_size + 4096, seals), -EBADMSG);
    assert_int_equal(adopt_file(header, 40, 40, seals), -EBADMSG);
    for (size_t byte = 0; byte < 16; byte++) { /* magic, version, size of an entry */
        header[byte] ^= 1;
        assert_int_equal(adopt_file(header, sizeof(header), status.st_size, seals),
                         byte >= 8 && byte < 12 ? -EPROTONOSUPPORT : -EBADMSG);
        header[byte] ^= 1;
    }
    header[40] ^= 1; /* of a domain */
    assert_int_equal(adopt_file(header, sizeof(header), status.st_size, seals), -EBADMSG);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(records_adopt(pipe_fds[0], &none), -EBADMSG);
    assert_int_equal(close(pipe_fds[0]) + close(pipe_fds[1]), 0);
}

static void there_are_limits_to_a_table(void **state)
{
    struct records_options options = options_of(RECORD_MAX_FORM + 1);
    struct records *records = NULL;

    (void)state;
    assert_int_equal(records_create(&options, &records), -EINVAL);
    options.max_form = 0;
    options.arena.max_granules = UINT32_MAX;
    assert_int_equal(records_create(&options, &records), -EINVAL);
    options.arena.granule.slots = 0;
    assert_int_equal(records_create(&options, &records), -EINVAL);
    options = options_of(0);
    assert_int_equal(records_create(&options, &records), 0);
    struct stat status;
    assert_int_equal(fstat(records_fd(records), &status), 0);
    assert_int_equal(status.st_size, 4096 + LAST * 128); /* 104 bytes in whole cache lines */
    records_destroy(records);
}

/* ---- kills ---------------------------------------------------------------------------------- */

static void change(struct records *records, int what)
{
    struct record record = record_of(what == 0 ? 32 : 31);

    if (what == 2)
        records_clear(records, 9);
    else
        records_write(records, 9, &record);
}

/* What another process would find if the writer were killed now: 0 none, else which record. */
static uint32_t found(const struct records *records)
{
    struct record record;
    int answer = records_read(records, 9, &record);

    if (answer == -ENOENT)
        return 0;
    assert_int_equal(answer, 0); /* never one that is not valid */
    const struct record expected = record_of(record.generation);
    assert_true(is_same(&record, &expected));
    return record.generation;
}

/*
 * Every instruction of a write over nothing, of one over another record, and of a clear: at each of
 * them the slot has the one before, none, or the one after, in this order.
 */
static void a_kill_between_two_instructions_leaves_a_whole_record_or_none(void **state)
{
    static const uint32_t before[] = {0, 32, 31}, after[] = {32, 31, 0};
    struct records *records = table();

    (void)state;
    for (int what = 0; what < 3; what++) {
        int status, num_steps = 0, stage = 0;
        pid_t child = fork();

        if (child == 0) {
            (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
            (void)raise(SIGSTOP);
            change(records, what);
            (void)raise(SIGSTOP);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
        do {
            uint32_t now = found(records);
            if (stage == 0 && now != before[what])
                stage = 1;
            if (stage == 1 && now != 0)
                stage = 2;
            assert_int_equal(now, stage == 0 ? before[what] : stage == 1 ? 0 : after[what]);
            assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
            assert_int_equal(waitpid(child, &status, 0), child);
            num_steps++;
        } while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        assert_int_equal(found(records), after[what]);
        assert_true(num_steps > 20); /* raise() alone */
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    records_destroy(records);
}

static void a_writer_that_is_killed_at_any_time_leaves_valid_records(void **state)
{
    struct records *records = table();

    (void)state;
    for (int i = 0; i < 50; i++) {
        struct record record;
        int status;
        pid_t child = fork();

        if (child == 0) {
            for (uint32_t number = 1;; number++) {
                record = record_of(number);
                records_write(records, number * 13 % LAST + 1, &record);
                records_clear(records, number * 29 % LAST + 1);
            }
        }
        (void)usleep((useconds_t)(500 + rand() % 2000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        for (uint32_t slot = 1; slot <= LAST; slot++) {
            int answer = records_read(records, slot, &record);
            if (answer == -ENOENT)
                continue;
            assert_int_equal(answer, 0);
            const struct record expected = record_of(record.generation);
            assert_true(is_same(&record, &expected));
            assert_int_equal(record.generation * 13 % LAST + 1, slot);
        }
    }
    records_destroy(records);
}

/* ---- packed --------------------------------------------------------------------------------- */

static void a_packed_record_comes_back_whole(void **state)
{
    const struct record_place place = options_of(0).place;

    (void)state;
    for (uint32_t number = 0; number <= RECORD_MAX_FORM; number++) {
        const struct record record = record_of(number);
        struct record_place place_again;
        struct record again;
        uint8_t packed[RECORD_MAX_PACKED];
        size_t size = record_pack(&place, &record, packed);

        assert_int_equal(size, 176 + 4 * number);
        assert_int_equal(record_unpack(packed, size, &place_again, &again), 0);
        assert_true(is_same(&record, &again));
        assert_memory_equal(&place, &place_again, sizeof(place));
    }
}

/* Written out by hand: what lies on disks must not change with a compiler or a field's order. */
static void the_packed_form_is_fixed(void **state)
{
    static const uint8_t prefix[] = {
        'K',  'V', 'P', 'R', 1, 0, 0, 0, 3, 0, 0, 0, /* parent, storable */
        2,    0,   0,   0,                           /* group */
        9,    0,   0,   0,                           /* format */
        0x44, 3,   2,   1,                           /* generation */
        16,   0,   0,   0,                           /* tokens */
        2,    0,   0,   0,                           /* words of the form */
        8,    7,   6,   5,   4, 3, 2, 1,             /* extra */
        5,    0,   0,   0,   0, 0, 0, 1              /* epoch */
    };
    static const uint8_t form[] = {1, 0, 0, 0, 0, 0, 0, 0x80};
    const struct record_place place = options_of(0).place;
    struct record record = {.extra = 0x0102030405060708,
                            .epoch = 0x0100000000000005,
                            .generation = 0x01020344,
                            .num_tokens = 16,
                            .form = {1, 0x80000000},
                            .num_form = 2,
                            .has_parent = true,
                            .is_storable = true};
    uint8_t packed[RECORD_MAX_PACKED];

    (void)state;
    memset(record.key, 0x11, sizeof(record.key));
    memset(record.parent, 0x22, sizeof(record.parent));
    assert_int_equal(record_pack(&place, &record, packed), 184);
    assert_memory_equal(packed, prefix, 48);
    for (size_t i = 0; i < 32; i++) {
        assert_int_equal(packed[48 + i], 0xd0);
        assert_int_equal(packed[80 + i], 0x30);
        assert_int_equal(packed[112 + i], 0x11);
        assert_int_equal(packed[144 + i], 0x22);
    }
    assert_memory_equal(packed + 176, form, 8);
}

static int unpack_changed(const uint8_t *packed, size_t size, size_t byte, uint8_t value)
{
    uint8_t copy[RECORD_MAX_PACKED + 8];
    struct record_place place;
    struct record record;

    memcpy(copy, packed, RECORD_MAX_PACKED);
    copy[byte] = value;
    return record_unpack(copy, size, &place, &record);
}

static void bytes_that_are_no_record_are_refused(void **state)
{
    const struct record_place place = options_of(0).place;
    const struct record record = record_of(8); /* no parent, 8 words */
    uint8_t packed[RECORD_MAX_PACKED] = {0};
    size_t size = record_pack(&place, &record, packed);

    (void)state;
    for (size_t shorter = 0; shorter < size; shorter++)
        assert_int_equal(unpack_changed(packed, shorter, 0, 'K'), -EBADMSG);
    assert_int_equal(unpack_changed(packed, size + 4, 0, 'K'), -EBADMSG);
    assert_int_equal(unpack_changed(packed, size, 0, 'k'), -EBADMSG);
    assert_int_equal(unpack_changed(packed, size, 4, 2), -EPROTONOSUPPORT);
    assert_int_equal(unpack_changed(packed, size, 8, 8), -EBADMSG);   /* a flag that is none */
    assert_int_equal(unpack_changed(packed, size, 28, 9), -EBADMSG);  /* one word more */
    assert_int_equal(unpack_changed(packed, size, 30, 1), -EBADMSG);  /* 65,544 words */
    assert_int_equal(unpack_changed(packed, size, 150, 1), -EBADMSG); /* a parent, unannounced */
    assert_int_equal(unpack_changed(packed, size, 0, 'K'), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_until_it_is_cleared),
        cmocka_unit_test(the_next_process_finds_the_table_as_it_was),
        cmocka_unit_test(only_what_has_a_record_is_walked),
        cmocka_unit_test(what_was_not_written_is_no_record),
        cmocka_unit_test(what_is_no_table_is_not_adopted),
        cmocka_unit_test(there_are_limits_to_a_table),
        cmocka_unit_test(a_kill_between_two_instructions_leaves_a_whole_record_or_none),
        cmocka_unit_test(a_writer_that_is_killed_at_any_time_leaves_valid_records),
        cmocka_unit_test(a_packed_record_comes_back_whole),
        cmocka_unit_test(the_packed_form_is_fixed),
        cmocka_unit_test(bytes_that_are_no_record_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
