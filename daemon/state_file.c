/* daemon/state_file.c - write aside, fsync, rename, fsync the directory. */
#include "daemon/state_file.h"

#include "proto/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_header {
    char magic[8];
    uint64_t num_bytes;
    uint8_t sum[KEY_BYTES];
};

static const char magic[8] = {'k', 'v', 'p', 's', 't', 'a', 't', '1'};

static int directory_open(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_all(int fd, void *out, size_t num_bytes)
{
    size_t done = 0;

    while (done < num_bytes) {
        ssize_t count = read(fd, (char *)out + done, num_bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : STATE_FILE_DAMAGED;
        done += (size_t)count;
    }
    return 0;
}

static int body_read(int fd, void **out_bytes, size_t *out_num_bytes)
{
    struct file_header header;
    struct stat status;
    uint8_t sum[KEY_BYTES];
    int err = read_all(fd, &header, sizeof(header));

    if (err)
        return err;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (memcmp(header.magic, magic, sizeof(magic)) != 0 ||
        header.num_bytes > STATE_FILE_MAX_BYTES ||
        (uint64_t)status.st_size != sizeof(header) + header.num_bytes)
        return STATE_FILE_DAMAGED;
    void *bytes = malloc(header.num_bytes + 1);
    if (!bytes)
        return -ENOMEM;
    err = read_all(fd, bytes, header.num_bytes);
    if (!err) {
        key_sum(bytes, header.num_bytes, sum);
        err = memcmp(sum, header.sum, sizeof(sum)) == 0 ? 0 : STATE_FILE_DAMAGED;
    }
    if (err) {
        free(bytes);
        return err;
    }
    *out_bytes = bytes;
    *out_num_bytes = header.num_bytes;
    return 0;
}

int state_file_read(const char *directory, const char *name, void **out_bytes,
                    size_t *out_num_bytes)
{
    int directory_fd = directory_open(directory);

    if (directory_fd < 0)
        return directory_fd;
    int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int err = fd < 0 ? -errno : body_read(fd, out_bytes, out_num_bytes);
    if (fd >= 0)
        (void)close(fd);
    (void)close(directory_fd);
    return err;
}

/* ---- writing -------------------------------------------------------------------------------- */

static int write_all(int fd, const void *bytes, size_t num_bytes)
{
    size_t done = 0;

    while (done < num_bytes) {
        ssize_t count = write(fd, (const char *)bytes + done, num_bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        done += (size_t)count;
    }
    return 0;
}

static int body_write(int fd, const void *bytes, size_t num_bytes)
{
    struct file_header header = {.num_bytes = num_bytes};

    memcpy(header.magic, magic, sizeof(magic));
    key_sum(bytes, num_bytes, header.sum);
    int err = write_all(fd, &header, sizeof(header));
    if (!err)
        err = write_all(fd, bytes, num_bytes);
    return !err && fsync(fd) < 0 ? -errno : err;
}

int state_file_write(const char *directory, const char *name, const void *bytes, size_t num_bytes)
{
    char aside[64];
    int directory_fd = directory_open(directory), err;

    if (directory_fd < 0)
        return directory_fd;
    (void)snprintf(aside, sizeof(aside), ".%s.new", name);
    int fd =
        openat(directory_fd, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    err = fd < 0 ? -errno : body_write(fd, bytes, num_bytes);
    if (fd >= 0 && close(fd) < 0 && !err)
        err = -errno;
    if (!err && renameat(directory_fd, aside, directory_fd, name) < 0)
        err = -errno;
    if (err)
        (void)unlinkat(directory_fd, aside, 0);
    else if (fsync(directory_fd) < 0) /* the name may not last: as if it were not written */
        err = -errno;
    (void)close(directory_fd);
    return err;
}

int state_file_set_aside(const char *directory, const char *name)
{
    char damaged[64];
    int directory_fd = directory_open(directory), err = 0;

    if (directory_fd < 0)
        return directory_fd;
    (void)snprintf(damaged, sizeof(damaged), "%s.damaged", name);
    if (renameat(directory_fd, name, directory_fd, damaged) < 0)
        err = -errno;
    (void)close(directory_fd);
    return err;
}
