/* gpu/host/mount.h - internal: where the files of arenas come from, and what tenants get of them.
 */
#pragma once

#include "gpu/host/fallback.h"
#include "gpu/host/syscalls.h"

struct host_mount {
    const struct host_syscalls *system;
    int fd; /* of the private mount; -1: files are memfds */
};

/* One unlinked file. A zeroed one is not a file: see host_file_none. */
struct host_file {
    int fd;        /* the daemon's, never exported itself */
    int reader_fd; /* of shared files in the private mount: opened through a read-only clone */
};

#define HOST_FILE_NONE ((struct host_file){.fd = -1, .reader_fd = -1})

/*
 * Falls back to memfds (FALLBACK_MEMFD) if this process may not have a private mount. Fails only
 * if that cannot be had either.
 */
int host_mount_init(struct host_mount *mount, const struct host_syscalls *system,
                    const struct gpu_device_options *options, struct host_fallbacks *fallbacks);
/* On the mount @fd of an earlier process, or, -1, for its memfds. @fd is the caller's after a
 * failure. -ESTALE: it is no such mount. */
int host_mount_adopt(struct host_mount *mount, const struct host_syscalls *system,
                     const struct gpu_device_options *options, struct host_fallbacks *fallbacks,
                     int fd);
void host_mount_finish(struct host_mount *mount);

/* The file has its size for good, no name and no memory. */
int host_file_create(const struct host_mount *mount, uint64_t bytes, bool is_shared,
                     struct host_file *out_file);
/* Whether host_file_create() made these, with the same arguments: 0, -ESTALE, or -errno. */
int host_file_check(const struct host_mount *mount, const struct host_file *file, uint64_t bytes,
                    bool is_shared);
void host_file_close(struct host_file *file);

/* Opens the file anew for a tenant. */
int host_file_export(const struct host_mount *mount, const struct host_file *file,
                     enum gpu_access access, int *out_fd);

/* Bytes of memory in one file, and in all of the mount (0 for memfds: nothing counts them). */
int host_file_physical(const struct host_mount *mount, const struct host_file *file,
                       uint64_t *out_bytes);
int host_mount_physical(const struct host_mount *mount, uint64_t *out_bytes);
