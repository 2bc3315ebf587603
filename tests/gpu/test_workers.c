/* tests/gpu/test_workers.c - what gpu/host/workers.c promises: every part once, done() in the
 * owner. */
#include "gpu/host/workers.h"
#include "tests/support/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { NUM_PARTS = 1000 };

struct counted_job {
    struct gpu_job job; /* first */
    _Atomic uint32_t runs[NUM_PARTS];
    uint32_t plain_runs[NUM_PARTS]; /* not atomic: TSan sees if the owner reads too early */
    pthread_t done_in;
    uint32_t num_done;
};

static void count_part(struct gpu_job *job, uint32_t part)
{
    struct counted_job *counted = (struct counted_job *)job;

    counted->runs[part]++;
    counted->plain_runs[part]++;
    if (gpu_worker_index() > 8)
        counted->runs[part] += 100; /* an index that nobody has */
}

static void count_done(struct gpu_job *job)
{
    struct counted_job *counted = (struct counted_job *)job;

    counted->num_done++;
    counted->done_in = pthread_self();
}

static struct counted_job *counted_job_new(uint32_t num_parts)
{
    struct counted_job *counted = calloc(1, sizeof(*counted));

    assert_non_null(counted);
    counted->job = (struct gpu_job){.run = count_part, .done = count_done, .num_parts = num_parts};
    return counted;
}

static struct gpu_workers *workers_new(uint32_t num_threads, uint32_t spin_us)
{
    struct gpu_workers_options options = {.num_threads = num_threads, .spin_us = spin_us};
    struct gpu_workers *workers;

    assert_int_equal(gpu_workers_create(&options, &workers), 0);
    return workers;
}

static void assert_ran_once(const struct counted_job *counted)
{
    for (uint32_t i = 0; i < counted->job.num_parts; i++) {
        assert_int_equal(counted->runs[i], 1);
        assert_int_equal(counted->plain_runs[i], 1);
    }
}

static void reap_all(struct gpu_workers *workers, size_t num)
{
    struct pollfd ready = {gpu_workers_event_fd(workers), POLLIN, 0};

    while (num > 0) {
        assert_int_equal(poll(&ready, 1, 10000), 1);
        num -= gpu_workers_reap(workers);
    }
    assert_int_equal(poll(&ready, 1, 0), 0);
}

static void every_part_runs_once_and_done_runs_in_the_owner(void **state)
{
    (void)state;
    for (uint32_t spin_us = 0; spin_us <= 50; spin_us += 50)
        for (uint32_t num_threads = 1; num_threads <= 4; num_threads++) {
            struct gpu_workers *workers = workers_new(num_threads, spin_us);
            struct counted_job *jobs[20];
            for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
                jobs[i] = counted_job_new((uint32_t)(i * i * 2));
                assert_int_equal(gpu_workers_submit(workers, &jobs[i]->job), 0);
            }
            reap_all(workers, ARRAY_SIZE(jobs));
            for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
                assert_ran_once(jobs[i]);
                assert_int_equal(jobs[i]->num_done, 1);
                assert_true(pthread_equal(jobs[i]->done_in, pthread_self()));
                free(jobs[i]);
            }
            gpu_workers_destroy(workers);
        }
}

static void a_job_that_is_run_is_complete_on_return(void **state)
{
    struct gpu_workers *workers = workers_new(3, 20);
    struct counted_job *other = counted_job_new(NUM_PARTS);

    (void)state;
    assert_int_equal(gpu_workers_submit(workers, &other->job), 0);
    for (int i = 0; i < 200; i++) {
        struct counted_job *counted = counted_job_new(i % 7 ? (uint32_t)i : NUM_PARTS);
        gpu_workers_run(workers, &counted->job);
        assert_ran_once(counted);
        assert_int_equal(counted->num_done, 0);
        free(counted);
    }
    reap_all(workers, 1);
    assert_ran_once(other);
    free(other);
    gpu_workers_destroy(workers);
}

static void resubmit(struct gpu_job *job)
{
    struct counted_job *counted = (struct counted_job *)job;

    counted->num_done++;
}

static void a_job_can_be_submitted_again_after_done(void **state)
{
    struct gpu_workers *workers = workers_new(2, 0);
    struct counted_job *counted = counted_job_new(10);

    (void)state;
    counted->job.done = resubmit;
    for (uint32_t i = 1; i <= 500; i++) {
        assert_int_equal(gpu_workers_submit(workers, &counted->job), 0);
        reap_all(workers, 1);
        assert_int_equal(counted->num_done, i);
        assert_int_equal(counted->runs[9], i);
    }
    free(counted);
    gpu_workers_destroy(workers);
}

static void what_is_queued_is_carried_out_before_the_workers_end(void **state)
{
    struct gpu_workers *workers = workers_new(2, 0);
    struct counted_job *jobs[8];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
        jobs[i] = counted_job_new(NUM_PARTS);
        assert_int_equal(gpu_workers_submit(workers, &jobs[i]->job), 0);
    }
    gpu_workers_destroy(workers);
    for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
        assert_ran_once(jobs[i]);
        assert_int_equal(jobs[i]->num_done, 0);
        free(jobs[i]);
    }
}

static void without_threads_a_job_is_refused_but_can_be_run(void **state)
{
    struct gpu_workers *workers = workers_new(0, 0);
    struct counted_job *counted = counted_job_new(5);

    (void)state;
    assert_int_equal(gpu_workers_submit(workers, &counted->job), -ENXIO);
    gpu_workers_run(workers, &counted->job);
    assert_ran_once(counted);
    free(counted);
    gpu_workers_destroy(workers);
}

static void threads_can_be_pinned(void **state)
{
    const int cpus[] = {0, 0};
    struct gpu_workers_options options = {.num_threads = 2, .cpus = cpus};
    struct counted_job *counted = counted_job_new(50);
    struct gpu_workers *workers;

    (void)state;
    assert_int_equal(gpu_workers_create(&options, &workers), 0);
    assert_int_equal(gpu_workers_num_threads(workers), 2);
    assert_int_equal(gpu_workers_submit(workers, &counted->job), 0);
    reap_all(workers, 1);
    assert_ran_once(counted);
    free(counted);
    gpu_workers_destroy(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once_and_done_runs_in_the_owner),
        cmocka_unit_test(a_job_that_is_run_is_complete_on_return),
        cmocka_unit_test(a_job_can_be_submitted_again_after_done),
        cmocka_unit_test(what_is_queued_is_carried_out_before_the_workers_end),
        cmocka_unit_test(without_threads_a_job_is_refused_but_can_be_run),
        cmocka_unit_test(threads_can_be_pinned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
