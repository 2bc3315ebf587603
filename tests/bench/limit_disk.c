/* tests/bench/limit_disk.c - what a disk gives to a bare io_uring loop. */
#include "tests/bench/limit_disk.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_DEPTH = 64 };

struct limit_disk {
    struct io_uring ring;
    bool has_ring;
    int fd;
    uint64_t offset;
    uint32_t block_bytes, num_blocks, depth, next;
    char *buffers;
    uint32_t free_buffers[MAX_DEPTH], num_free;
};

uint32_t limit_disk_order(uint32_t n, uint32_t num_blocks)
{
    return (uint32_t)((uint64_t)n * 2654435761 % num_blocks); /* a prime: no factor of num_blocks */
}

static bool prepare(struct limit_disk *limit)
{
    struct io_uring_params params = {.flags =
                                         IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    struct iovec iovecs[MAX_DEPTH];

    if (io_uring_queue_init_params(limit->depth, &limit->ring, &params) != 0) {
        params = (struct io_uring_params){0};
        if (io_uring_queue_init_params(limit->depth, &limit->ring, &params) != 0)
            return false;
    }
    limit->has_ring = true;
    for (uint32_t i = 0; i < limit->depth; i++) {
        iovecs[i] = (struct iovec){.iov_base = limit->buffers + (size_t)i * limit->block_bytes,
                                   .iov_len = limit->block_bytes};
        limit->free_buffers[limit->num_free++] = i;
    }
    return io_uring_register_buffers(&limit->ring, iovecs, limit->depth) == 0 &&
           io_uring_register_files(&limit->ring, &limit->fd, 1) == 0;
}

struct limit_disk *limit_disk_create(const char *path, uint64_t offset, uint32_t block_bytes,
                                     uint32_t num_blocks, uint32_t depth)
{
    struct limit_disk *limit = calloc(1, sizeof(*limit));
    size_t bytes = (size_t)depth * block_bytes;
    if (!limit)
        return NULL;

    limit->offset = offset;
    limit->block_bytes = block_bytes;
    limit->num_blocks = num_blocks;
    limit->depth = depth;
    limit->fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    char *buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    limit->buffers = buffers == MAP_FAILED ? NULL : buffers;
    if (limit->buffers) {
        (void)madvise(buffers, bytes, MADV_HUGEPAGE); /* as ours */
        memset(buffers, 7, bytes);
    }
    if (limit->fd < 0 || !limit->buffers || depth > MAX_DEPTH || !prepare(limit)) {
        limit_disk_destroy(limit);
        return NULL;
    }
    return limit;
}

void limit_disk_destroy(struct limit_disk *limit)
{
    if (!limit)
        return;
    if (limit->has_ring)
        io_uring_queue_exit(&limit->ring);
    if (limit->buffers)
        (void)munmap(limit->buffers, (size_t)limit->depth * limit->block_bytes);
    if (limit->fd >= 0)
        (void)close(limit->fd);
    free(limit);
}

void limit_disk_begin_at(struct limit_disk *limit, uint32_t n)
{
    limit->next = n;
}

static void start(struct limit_disk *limit, bool is_write)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&limit->ring);
    uint32_t buffer = limit->free_buffers[--limit->num_free];
    char *at = limit->buffers + (size_t)buffer * limit->block_bytes;
    uint64_t offset = limit->offset + (uint64_t)limit_disk_order(limit->next++, limit->num_blocks) *
                                          limit->block_bytes;

    if (is_write)
        io_uring_prep_write_fixed(entry, 0, at, limit->block_bytes, offset, (int)buffer);
    else
        io_uring_prep_read_fixed(entry, 0, at, limit->block_bytes, offset, (int)buffer);
    entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(entry, buffer);
}

bool limit_disk_run(struct limit_disk *limit, bool is_write, uint32_t num)
{
    uint32_t num_begun = 0, num_done = 0;
    bool is_fine = true;

    while (num_done < num) {
        struct io_uring_cqe *answer;
        unsigned head, num_answers = 0;
        while (limit->num_free > 0 && num_begun < num) {
            start(limit, is_write);
            num_begun++;
        }
        if (io_uring_submit_and_wait(&limit->ring, 1) < 0)
            return false;
        io_uring_for_each_cqe(&limit->ring, head, answer)
        {
            is_fine &= answer->res == (int)limit->block_bytes;
            limit->free_buffers[limit->num_free++] = (uint32_t)answer->user_data;
            num_answers++;
        }
        io_uring_cq_advance(&limit->ring, num_answers);
        num_done += num_answers;
    }
    return is_fine;
}
