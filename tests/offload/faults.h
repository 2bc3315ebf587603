/* tests/offload/faults.h - a script for the seam of struct disk_faults. */
#pragma once

#include "tests/offload/bed.h"

#include <stdatomic.h>

/* What happens to I/Os of one kind and direction: the owner's thread sets it, the lane reads it. */
struct fault_rule {
    _Atomic int begin;    /* status without asking the kernel, or DISK_FAULT_HOLD; 0: none */
    _Atomic int end;      /* status after it; 0: none */
    _Atomic int short_by; /* the kernel says it did so many bytes less */
    _Atomic int flip;     /* a bit of the buffer: of writes before, of reads after the I/O */
    _Atomic int num_left; /* how many times; < 0: always */
    _Atomic int num_hits;
};

struct faults {
    struct fault_rule rules[4][2]; /* by enum disk_io_kind, is_write */
    struct disk_faults hooks;      /* for struct disk_options */
};

void faults_init(struct faults *faults);

/* Arms a rule for @num I/Os (-1: all). */
struct fault_rule *faults_arm(struct faults *faults, enum disk_io_kind kind, bool is_write,
                              int num);
/* I/Os are held until faults_clear(); waits until one is. */
void faults_hold(struct faults *faults, enum disk_io_kind kind, bool is_write);
void faults_wait(const struct faults *faults, enum disk_io_kind kind, bool is_write);

void faults_clear(struct faults *faults);
