/* daemon/secret.c - written aside, fsync, rename, fsync of the directory. */
#include "daemon/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 512, MAX_NAME = 128 };

static int write_all(int fd, const uint8_t *bytes, size_t num_bytes)
{
    for (size_t done = 0; done < num_bytes;) {
        ssize_t count = write(fd, bytes + done, num_bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EIO;
        done += (size_t)count;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int make(int directory, const char *name, uint8_t *out_secret)
{
    char aside[MAX_NAME];
    uint8_t secret[KEY_BYTES];

    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return -EIO;
    (void)snprintf(aside, sizeof(aside), ".%s.new", name);
    int fd = openat(directory, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int err = write_all(fd, secret, sizeof(secret));
    if (close(fd) < 0 && !err)
        err = -errno;
    if (!err && renameat(directory, aside, directory, name) < 0)
        err = -errno;
    if (err)
        (void)unlinkat(directory, aside, 0);
    else if (fsync(directory) < 0) /* it is there all the same, and read the next time */
        err = -errno;
    if (!err)
        memcpy(out_secret, secret, sizeof(secret));
    explicit_bzero(secret, sizeof(secret));
    return err;
}

static int read_one(int fd, uint8_t *out_secret)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    if ((status.st_mode & 077) != 0)
        return -EPERM;
    ssize_t count = read(fd, out_secret, KEY_BYTES);
    return count == KEY_BYTES ? 0 : count < 0 ? -errno : -EINVAL;
}

int secret_get(const char *state_directory, const char *name, uint8_t out_secret[KEY_BYTES])
{
    char path[MAX_PATH];

    (void)snprintf(path, sizeof(path), "%s/secrets", state_directory);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int err = fd >= 0 ? read_one(fd, out_secret) : -errno;
    if (err == -ENOENT)
        err = make(directory, name, out_secret);
    if (fd >= 0)
        (void)close(fd);
    (void)close(directory);
    return err;
}
