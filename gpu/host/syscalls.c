/* gpu/host/syscalls.c - the real system calls of the host device. */
#include "gpu/host/syscalls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

const struct host_syscalls host_syscalls = {
    .fsopen = fsopen,
    .fsconfig = fsconfig,
    .fsmount = fsmount,
    .open_tree = open_tree,
    .mount_setattr = mount_setattr,
    .openat = openat,
    .unlinkat = unlinkat,
    .memfd_create = memfd_create,
    .fcntl = fcntl,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .lseek = lseek,
    .pread = pread,
    .fstat = fstat,
    .fstatfs = fstatfs,
    .mmap = mmap,
    .madvise = madvise,
    .eventfd = eventfd,
    .thread_create = pthread_create,
    .calloc = calloc,
};
