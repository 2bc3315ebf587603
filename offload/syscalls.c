/* offload/syscalls.c - the real system calls of the disk. */
#include "offload/syscalls.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const struct disk_syscalls disk_syscalls = {
    .open = open,
    .flock = flock,
    .fstat = fstat,
    .fstatvfs = fstatvfs,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .pread = pread,
    .pwrite = pwrite,
    .fdatasync = fdatasync,
    .eventfd = eventfd,
    .mmap = mmap,
    .calloc = calloc,
    .thread_create = pthread_create,
    .ring_init = io_uring_queue_init_params,
    .ring_register_files = io_uring_register_files,
    .ring_register_buffers = io_uring_register_buffers,
};
