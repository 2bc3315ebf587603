/*
 * tests/e2e/lying.h - a daemon whose disk lies: kvpoold with another end of struct disk_faults.
 *
 * $KVPOOLD_LIES names a file that holds a struct fault_board. The test sets rates in it while the
 * daemon runs, and reads there what was done. Without the file it is a kvpoold like any other.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum fault {
    FAULT_READ_EIO,    /* the kernel is not asked */
    FAULT_WRITE_EIO,   /* before or after the kernel wrote: both are seen */
    FAULT_ENOSPC,      /* of a write */
    FAULT_EDQUOT,      /* of a write */
    FAULT_EROFS,       /* of a write */
    FAULT_SHORT,       /* only a first part was done, says the kernel: to be gone on with */
    FAULT_READ_FLIP,   /* one bit of what comes back */
    FAULT_WRITE_FLIP,  /* one bit of what goes out, of a block */
    FAULT_TORN_HEADER, /* only the first part of what was to be written is what it should be */
    FAULT_TORN_DATA,
    FAULT_DELAY, /* some milliseconds each */
    FAULT_STALL, /* all that begins in the next @stall_ms waits for its end */
    NUM_FAULTS
};

struct fault_board {
    _Atomic uint32_t seed;
    _Atomic uint32_t rates[NUM_FAULTS]; /* in a million I/Os that it could happen to */
    _Atomic uint32_t stall_ms;
    _Atomic uint32_t is_held; /* everything waits while it is set */
    _Atomic uint64_t hits[NUM_FAULTS];
    _Atomic uint64_t ios;
};

/* --- for tests --- */

/* Makes the file at @path, and sets $KVPOOLD_LIES for daemons to come. Until fault_board_free().
 */
struct fault_board *fault_board_make(const char *path);
void fault_board_free(struct fault_board *board, const char *path);
/* All faults but those after which the disk is not used for a second (FULL, READ_ONLY). */
void fault_board_usual(struct fault_board *board, uint32_t seed);
void fault_board_clear(struct fault_board *board);
const char *fault_name(enum fault fault);
