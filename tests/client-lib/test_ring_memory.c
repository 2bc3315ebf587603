/* tests/client-lib/test_ring_memory.c - the client's half of the rings, with the daemon's half
 * played here as proto/README.md, section 6, has it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client-lib/kvpool.h"
#include "proto/ring.h"
#include "tests/support/test.h"

enum { DATA_BYTES = 4096 };

struct bed {
    struct staging_header *header;
    int daemon_eventfd;
};

static int bed_begin(void **state)
{
    static struct bed bed;

    bed.header = aligned_alloc(4096, RING_DATA_OFFSET + DATA_BYTES);
    assert_non_null(bed.header);
    memset(bed.header, 0, RING_DATA_OFFSET + DATA_BYTES);
    ring_header_init(bed.header, DATA_BYTES);
    bed.daemon_eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(bed.daemon_eventfd >= 0);
    *state = &bed;
    return 0;
}

static int bed_end(void **state)
{
    struct bed *bed = *state;

    free(bed->header);
    close(bed->daemon_eventfd);
    return 0;
}

static struct ring_submission *submission_at(struct bed *bed, uint64_t n)
{
    char *at = (char *)bed->header + 4096 + n % 256 * 128;
    return (struct ring_submission *)(void *)at;
}

/* The daemon answers what was asked first. */
static void complete(struct bed *bed, uint64_t id)
{
    uint64_t tail = atomic_load(&bed->header->completions.tail);
    struct ring_completion entry = {.id = id, .status = (uint32_t)(id % 20), .object = id * 3};

    memcpy((char *)bed->header + 36864 + tail % 256 * 32, &entry, sizeof(entry));
    atomic_store(&bed->header->completions.tail, tail + 1);
}

static int submit(struct bed *bed, uint64_t id)
{
    struct ring_submission entry = {.id = id, .verb = RING_END_STEP, .object = id + 7};

    return kvpool_ring_submit(bed->header, bed->daemon_eventfd, &entry);
}

static void entries_go_round(void **state)
{
    struct bed *bed = *state;
    struct ring_completion got;

    for (uint64_t id = 1; id <= 600; id++) {
        assert_int_equal(submit(bed, id), 0);
        assert_int_equal(kvpool_ring_outstanding(bed->header), 1);
        assert_int_equal(atomic_load(&bed->header->submissions.tail), id);
        assert_int_equal(submission_at(bed, id - 1)->id, id);
        assert_int_equal(submission_at(bed, id - 1)->object, id + 7);
        assert_int_equal(kvpool_ring_receive(bed->header, &got), 0);
        complete(bed, id);
        assert_int_equal(kvpool_ring_receive(bed->header, &got), 1);
        assert_int_equal(got.id, id);
        assert_int_equal(got.status, id % 20);
        assert_int_equal(got.object, id * 3);
        assert_int_equal(atomic_load(&bed->header->completions.head), id);
        assert_int_equal(kvpool_ring_outstanding(bed->header), 0);
    }
}

static void a_full_ring_says_so(void **state)
{
    struct bed *bed = *state;
    struct ring_completion got;

    for (uint64_t id = 1; id <= 256; id++)
        assert_int_equal(submit(bed, id), 0);
    assert_int_equal(submit(bed, 257), -EAGAIN);
    assert_int_equal(atomic_load(&bed->header->submissions.tail), 256);
    assert_int_equal(submission_at(bed, 0)->id, 1);

    /* Room is made by what was received, not by what the daemon took. */
    atomic_store(&bed->header->submissions.head, 256);
    complete(bed, 1);
    assert_int_equal(submit(bed, 257), -EAGAIN);
    assert_int_equal(kvpool_ring_receive(bed->header, &got), 1);
    assert_int_equal(submit(bed, 257), 0);
    assert_int_equal(submission_at(bed, 0)->id, 257);
}

static void a_sleeping_daemon_is_woken_once(void **state)
{
    struct bed *bed = *state;
    uint64_t count = 0;

    assert_int_equal(submit(bed, 1), 0); /* it does not sleep */
    assert_int_equal(read(bed->daemon_eventfd, &count, sizeof(count)), -1);
    atomic_store(&bed->header->submissions.armed, 1);
    assert_int_equal(submit(bed, 2), 0);
    assert_int_equal(submit(bed, 3), 0);
    assert_int_equal(atomic_load(&bed->header->submissions.armed), 0);
    assert_int_equal(read(bed->daemon_eventfd, &count, sizeof(count)), sizeof(count));
    assert_int_equal(count, 1);

    /* It may not be there to be woken: what was submitted stays submitted. */
    atomic_store(&bed->header->submissions.armed, 1);
    struct ring_submission entry = {.id = 4};
    assert_int_equal(kvpool_ring_submit(bed->header, -1, &entry), -EBADF);
    assert_int_equal(kvpool_ring_outstanding(bed->header), 4);
}

static void completions_of_nothing_are_no_protocol(void **state)
{
    struct bed *bed = *state;
    struct ring_completion got = {.id = 99};

    assert_int_equal(submit(bed, 1), 0);
    complete(bed, 1);
    complete(bed, 2);
    assert_int_equal(kvpool_ring_receive(bed->header, &got), -EPROTO);
    assert_int_equal(got.id, 99);
}

static void one_sleeps_only_while_nothing_came(void **state)
{
    struct bed *bed = *state;
    struct ring_completion got;

    assert_int_equal(submit(bed, 1), 0);
    assert_true(kvpool_ring_arm(bed->header));
    assert_int_equal(atomic_load(&bed->header->completions.armed), 1);
    kvpool_ring_disarm(bed->header);
    assert_int_equal(atomic_load(&bed->header->completions.armed), 0);

    complete(bed, 1);
    assert_false(kvpool_ring_arm(bed->header));
    assert_int_equal(atomic_load(&bed->header->completions.armed), 0);
    assert_int_equal(kvpool_ring_receive(bed->header, &got), 1);
}

static void *completes_soon(void *argument)
{
    (void)usleep(20000);
    complete(argument, 1);
    return NULL;
}

static void spinning_ends_by_itself_or_with_an_answer(void **state)
{
    struct bed *bed = *state;
    pthread_t daemon;

    assert_int_equal(submit(bed, 1), 0);
    assert_false(kvpool_ring_spin(bed->header, 1000));
    assert_int_equal(pthread_create(&daemon, NULL, completes_soon, bed), 0);
    assert_true(kvpool_ring_spin(bed->header, 60u * 1000000u));
    assert_int_equal(pthread_join(daemon, NULL), 0);
}

#define WITH_BED(name) cmocka_unit_test_setup_teardown(name, bed_begin, bed_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BED(entries_go_round),
        WITH_BED(a_full_ring_says_so),
        WITH_BED(a_sleeping_daemon_is_woken_once),
        WITH_BED(completions_of_nothing_are_no_protocol),
        WITH_BED(one_sleeps_only_while_nothing_came),
        WITH_BED(spinning_ends_by_itself_or_with_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
