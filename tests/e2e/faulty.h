/* tests/e2e/faulty.h - what the disk under a faulty_kvpoold does, said by a test through a file
 * that both map: $KVPOOLD_FAULTS. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct daemon;

/* All 0: the disk is well. */
struct faults {
    _Atomic int32_t read_error, write_error;  /* negative errno: every data I/O ends with it */
    _Atomic uint32_t flip_reads;              /* so many data reads get a bit flipped */
    _Atomic uint32_t hold_reads, hold_writes; /* 1: data I/O hangs until it is 0 again */
    _Atomic uint32_t hold_probes;             /* 1: so do the first read and write of a start */
    _Atomic uint32_t num_reads, num_writes;   /* data I/Os that were begun */
    /* One of so many I/Os of any kind ends with EIO, at random from @seed; 0: none. */
    _Atomic uint32_t one_in;
    _Atomic uint32_t seed;
};
