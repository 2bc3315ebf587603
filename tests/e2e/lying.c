/* tests/e2e/lying.c - in the test: what a lying disk is to do. */
#include "tests/e2e/lying.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const names[NUM_FAULTS] = {
    [FAULT_READ_EIO] = "EIO of a read",
    [FAULT_WRITE_EIO] = "EIO of a write",
    [FAULT_ENOSPC] = "ENOSPC",
    [FAULT_EDQUOT] = "EDQUOT",
    [FAULT_EROFS] = "EROFS",
    [FAULT_SHORT] = "short",
    [FAULT_READ_FLIP] = "bit flipped in a read",
    [FAULT_WRITE_FLIP] = "bit flipped in a write",
    [FAULT_TORN_HEADER] = "torn header",
    [FAULT_TORN_DATA] = "torn data",
    [FAULT_DELAY] = "delay",
    [FAULT_STALL] = "stall",
};

const char *fault_name(enum fault fault)
{
    return names[fault];
}

struct fault_board *fault_board_make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(struct fault_board)), 0);
    void *memory =
        mmap(NULL, sizeof(struct fault_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(close(fd), 0);
    assert_int_equal(setenv("KVPOOLD_LIES", path, 1), 0);
    return memory;
}

void fault_board_free(struct fault_board *board, const char *path)
{
    (void)unsetenv("KVPOOLD_LIES");
    assert_int_equal(munmap(board, sizeof(*board)), 0);
    assert_int_equal(unlink(path), 0);
}

void fault_board_usual(struct fault_board *board, uint32_t seed)
{
    /* clang-format off */
    static const uint32_t rates[NUM_FAULTS] = {
        [FAULT_READ_EIO] = 3000,   [FAULT_WRITE_EIO] = 3000,   [FAULT_SHORT] = 20000,
        [FAULT_READ_FLIP] = 10000, [FAULT_WRITE_FLIP] = 10000, [FAULT_TORN_HEADER] = 10000,
        [FAULT_TORN_DATA] = 10000, [FAULT_DELAY] = 100000,     [FAULT_STALL] = 60,
    };
    /* clang-format on */

    atomic_store(&board->seed, seed);
    atomic_store(&board->stall_ms, 300);
    for (int fault = 0; fault < NUM_FAULTS; fault++)
        atomic_store(&board->rates[fault], rates[fault]);
}

void fault_board_clear(struct fault_board *board)
{
    for (int fault = 0; fault < NUM_FAULTS; fault++)
        atomic_store(&board->rates[fault], 0);
}
