/* offload/syscalls.h - internal: the system calls of the disk as a table, so that a test can make
 * the Nth of them fail. Those of running I/Os are not in it: see struct disk_faults. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

struct stat;
struct iovec;
struct io_uring;
struct io_uring_params;
struct statvfs;

/* Each does what the call of its name does: -1 and errno (NULL, MAP_FAILED, an error number; a
 * negative errno of ring_*). */
struct disk_syscalls {
    int (*open)(const char *path, int flags, ...);
    int (*flock)(int fd, int operation);
    int (*fstat)(int fd, struct stat *out);
    int (*fstatvfs)(int fd, struct statvfs *out);
    int (*ftruncate)(int fd, off_t bytes);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    ssize_t (*pread)(int fd, void *buffer, size_t bytes, off_t offset);
    ssize_t (*pwrite)(int fd, const void *buffer, size_t bytes, off_t offset);
    int (*fdatasync)(int fd);
    int (*eventfd)(unsigned value, int flags);
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
    void *(*calloc)(size_t count, size_t size);
    int (*thread_create)(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *argument);
    int (*ring_init)(unsigned entries, struct io_uring *ring, struct io_uring_params *params);
    int (*ring_register_files)(struct io_uring *ring, const int *fds, unsigned num_fds);
    int (*ring_register_buffers)(struct io_uring *ring, const struct iovec *iovecs, unsigned num);
};

extern const struct disk_syscalls disk_syscalls; /* the real ones */
