/* tests/e2e/fuse_disk.h - a file system whose reads and writes a test decides about, by a file that
 * both map. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct fuse_control {
    /* Positive errno, or 0: all of them end with it. */
    _Atomic int32_t read_error, write_error, fallocate_error, open_error;
    _Atomic uint32_t is_stalled; /* reads and writes do not end while it is set */
    _Atomic uint32_t num_stalled;
    _Atomic uint64_t num_reads, num_writes;
};
