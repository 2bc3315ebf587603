/* tests/offload/test_seccomp.c - without io_uring, as in most containers, threads do the I/O. */
#include "tests/offload/bed.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void without_io_uring_threads_do_the_io(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    struct gpu_fallback fallback;

    (void)state;
    bed_init(bed, NULL);
    forbid_io_uring();
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(disk_fallbacks(bed->disk, &fallback, 1), 1);
    assert_string_equal(fallback.name, "no-io-uring");
    assert_int_equal(fallback.reason, -EPERM);
    assert_int_equal(bed_use(bed, 0, BED_STRIDE), 0);
    for (uint32_t i = 0; i < BED_SLOTS; i++)
        assert_int_equal(bed_write(bed, SLOT(0, i), i, BED_BLOCK), 0);
    bed_close(bed);
    assert_int_equal(bed_open(bed), 0);
    assert_int_equal(bed_scan(bed, NULL, NULL, 0), BED_SLOTS);
    for (uint32_t i = 0; i < BED_SLOTS; i++)
        assert_int_equal(bed_read(bed, SLOT(0, i), i, BED_BLOCK), 0);
    bed_finish(bed);
    free(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_io_uring_threads_do_the_io),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
