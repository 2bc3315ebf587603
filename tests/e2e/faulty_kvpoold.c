/* tests/e2e/faulty_kvpoold.c - kvpoold whose disk is as bad as a test says: tests/e2e/faulty.h. */
#include "tests/e2e/faulty.h"

#include "daemon/tier_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#undef main /* the build calls every main of this program kvpoold_main: this one is the other */
int kvpoold_main(int argc, char **argv);

static bool is_unlucky(struct faults *faults)
{
    uint32_t one_in = atomic_load(&faults->one_in);

    if (one_in == 0)
        return false;
    uint32_t seed = atomic_fetch_add(&faults->seed, 1) * 2654435761u;
    return (seed >> 8) % one_in == 0;
}

static int begin(void *state, const struct disk_io *io)
{
    struct faults *faults = state;

    if (is_unlucky(faults))
        return -EIO;
    if (io->kind == DISK_IO_SCRATCH && atomic_load(&faults->hold_probes))
        return DISK_FAULT_HOLD;
    if (io->kind != DISK_IO_DATA)
        return 0;
    if (atomic_load(io->is_write ? &faults->hold_writes : &faults->hold_reads))
        return DISK_FAULT_HOLD;
    atomic_fetch_add(io->is_write ? &faults->num_writes : &faults->num_reads, 1);
    return atomic_load(io->is_write ? &faults->write_error : &faults->read_error);
}

static int end(void *state, const struct disk_io *io, int result)
{
    struct faults *faults = state;
    uint32_t left = atomic_load(&faults->flip_reads);

    if (io->kind != DISK_IO_DATA || io->is_write || result <= 0)
        return result;
    while (left > 0 && !atomic_compare_exchange_weak(&faults->flip_reads, &left, left - 1))
        ;
    if (left > 0)
        ((uint8_t *)io->buffer)[result / 2] ^= 1;
    return result;
}

int main(int argc, char **argv)
{
    static struct disk_faults hooks = {.begin = begin, .end = end};
    const char *path = getenv("KVPOOLD_FAULTS");

    if (path) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        void *memory = MAP_FAILED;
        if (fd >= 0)
            memory = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED)
            return 125;
        hooks.state = memory;
        tier_disk_faults = &hooks;
    }
    return kvpoold_main(argc, argv);
}
