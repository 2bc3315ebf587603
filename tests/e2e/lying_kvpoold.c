/* tests/e2e/lying_kvpoold.c - in the daemon: what is done to its reads and writes, from a seed. */
#include "tests/e2e/lying.h"

#include "daemon/tier_disk.h"
#include "offload/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct fault_board *board;
static _Atomic uint64_t number; /* of decisions: each is drawn from it and the seed */
static _Atomic uint64_t stalled_until_ms;

static uint64_t draw(void)
{
    uint64_t x = atomic_load(&board->seed) * UINT64_C(0x9E3779B97F4A7C15) +
                 atomic_fetch_add(&number, 1) * UINT64_C(0xD1B54A32D192ED03);

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static bool happens(enum fault fault)
{
    uint32_t rate = atomic_load(&board->rates[fault]);

    if (rate == 0 || draw() % 1000000 >= rate)
        return false;
    atomic_fetch_add(&board->hits[fault], 1);
    return true;
}

static uint64_t time_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void flip(const struct disk_io *io)
{
    uint64_t bit = draw() % ((uint64_t)io->bytes * 8);

    ((uint8_t *)io->buffer)[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* What the disk got before its power went: the rest is what anything was. */
static void tear(const struct disk_io *io)
{
    uint64_t kept = draw() % io->bytes;

    memset((uint8_t *)io->buffer + kept, (int)(draw() & 0xFF), io->bytes - kept);
}

static bool is_held(void)
{
    if (atomic_load(&board->is_held))
        return true;
    if (atomic_load(&board->rates[FAULT_STALL]) > 0) {
        if (time_ms() < atomic_load(&stalled_until_ms))
            return true;
        if (happens(FAULT_STALL)) {
            atomic_store(&stalled_until_ms, time_ms() + atomic_load(&board->stall_ms));
            return true;
        }
    }
    return happens(FAULT_DELAY);
}

static int write_begin(const struct disk_io *io)
{
    static const struct {
        enum fault fault;
        int status;
    } statuses[] = {{FAULT_WRITE_EIO, -EIO},
                    {FAULT_ENOSPC, -ENOSPC},
                    {FAULT_EDQUOT, -EDQUOT},
                    {FAULT_EROFS, -EROFS}};

    for (size_t at = 0; at < sizeof(statuses) / sizeof(statuses[0]); at++) {
        if (happens(statuses[at].fault))
            return statuses[at].status;
    }
    if (io->kind == DISK_IO_DATA && happens(FAULT_WRITE_FLIP))
        flip(io);
    if (io->kind == DISK_IO_DATA && happens(FAULT_TORN_DATA))
        tear(io);
    if (io->kind == DISK_IO_HEADER && happens(FAULT_TORN_HEADER))
        tear(io);
    return 0;
}

static int begin(void *state, const struct disk_io *io)
{
    (void)state;
    if (io->kind == DISK_IO_SCRATCH && !atomic_load(&board->is_held))
        return 0; /* with a bad one, a daemon does not start: that is asked elsewhere */
    if (is_held())
        return DISK_FAULT_HOLD;
    atomic_fetch_add(&board->ios, 1);
    if (io->is_write)
        return write_begin(io);
    return happens(FAULT_READ_EIO) ? -EIO : 0;
}

static int end(void *state, const struct disk_io *io, int result)
{
    (void)state;
    if (result <= 0 || io->kind == DISK_IO_SCRATCH)
        return result;
    if (!io->is_write && happens(FAULT_READ_FLIP))
        flip(io);
    if (io->is_write && happens(FAULT_WRITE_EIO))
        return -EIO;
    if (result >= 2 * DISK_ALIGN && happens(FAULT_SHORT))
        return result / 2 / DISK_ALIGN * DISK_ALIGN;
    return result;
}

__attribute__((constructor)) static void faults_begin(void)
{
    static const struct disk_faults faults = {.begin = begin, .end = end};
    const char *path = getenv("KVPOOLD_LIES");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    void *memory = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (memory == MAP_FAILED)
        return;
    board = memory;
    atomic_store(&number, (uint64_t)getpid() << 32); /* each life is another */
    tier_disk_faults = &faults;
}
