/* gpu/host/syscalls.h - internal: the system calls of the host device, as a table, so that a test
 * can make the Nth of them fail. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/types.h>

struct stat;
struct statfs;

/* Each does what the call of its name does: -1 and errno (NULL, MAP_FAILED, or an error number). */
struct host_syscalls {
    int (*fsopen)(const char *name, unsigned flags);
    int (*fsconfig)(int fd, unsigned command, const char *key, const void *value, int aux);
    int (*fsmount)(int fd, unsigned flags, unsigned attributes);
    int (*open_tree)(int fd, const char *path, unsigned flags);
    int (*mount_setattr)(int fd, const char *path, unsigned flags, struct mount_attr *attributes,
                         size_t size);
    int (*openat)(int fd, const char *path, int flags, ...);
    int (*unlinkat)(int fd, const char *path, int flags);
    int (*memfd_create)(const char *name, unsigned flags);
    int (*fcntl)(int fd, int command, ...);
    int (*ftruncate)(int fd, off_t bytes);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    off_t (*lseek)(int fd, off_t offset, int whence);
    ssize_t (*pread)(int fd, void *out, size_t bytes, off_t offset);
    int (*fstat)(int fd, struct stat *out);
    int (*fstatfs)(int fd, struct statfs *out);
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
    int (*madvise)(void *address, size_t bytes, int advice);
    int (*eventfd)(unsigned value, int flags);
    int (*thread_create)(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *argument);
    void *(*calloc)(size_t count, size_t size);
};

extern const struct host_syscalls host_syscalls; /* the real ones */
