/* tests/bench/limit_disk.h - what a disk gives to a bare io_uring loop: O_DIRECT, registered
 * buffers and file, a fixed depth, and nothing done with the bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct limit_disk;

/* A part of a file: @num_blocks of @block_bytes at @offset. NULL: there is no io_uring. */
struct limit_disk *limit_disk_create(const char *path, uint64_t offset, uint32_t block_bytes,
                                     uint32_t num_blocks, uint32_t depth);
void limit_disk_destroy(struct limit_disk *limit);

/* Where in the order the next run begins; at first 0. */
void limit_disk_begin_at(struct limit_disk *limit, uint32_t n);

/* Reads or writes @num blocks in a scattered order; false: an I/O failed. */
bool limit_disk_run(struct limit_disk *limit, bool is_write, uint32_t num);

/* The nth block of that order, which comes to every one of @num_blocks before one twice. */
uint32_t limit_disk_order(uint32_t n, uint32_t num_blocks);
