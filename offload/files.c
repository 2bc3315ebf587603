/* offload/files.c - a tier directory or a block device: opened, locked, and recognised. */
#include "offload/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int disk_error(char *out_error, int err, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(out_error, DISK_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return err;
}

int disk_read_all(const struct disk_syscalls *system, int fd, void *buffer, size_t bytes,
                  uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t num =
            system->pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return num < 0 ? -errno : -EIO;
        done += (size_t)num;
    }
    return 0;
}

static int join(char out_path[PATH_MAX], const char *directory, const char *name)
{
    int num = snprintf(out_path, PATH_MAX, "%s/%s", directory, name);
    return num < 0 || num >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int say_busy(const struct disk_syscalls *system, int lock_fd, const char *path,
                    char *out_error)
{
    char text[24] = "";
    ssize_t num = lock_fd >= 0 ? system->pread(lock_fd, text, sizeof(text) - 1, 0) : 0;
    long pid = num > 0 ? strtol(text, NULL, 10) : 0;

    if (pid > 0)
        return disk_error(out_error, -EBUSY,
                          "%s is in use by process %ld: stop it, or give another directory", path,
                          pid);
    return disk_error(out_error, -EBUSY,
                      "%s is in use by another process (`fuser %s` names it): stop it, or give "
                      "another place",
                      path, path);
}

/* A reader shares the lock with other readers, and writes no pid into it. */
static int lock(const struct disk_syscalls *system, const char *path, bool is_reader,
                struct disk_files *files, char *out_error)
{
    char name[PATH_MAX], text[24];
    int err = join(name, path, "lock");

    if (err)
        return disk_error(out_error, err, "%s: the path is too long", path);
    files->lock_fd = system->open(
        name, (is_reader ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (files->lock_fd < 0 && is_reader && errno == ENOENT)
        return 0; /* nobody has ever had it */
    if (files->lock_fd < 0)
        return disk_error(out_error, -errno, "%s: cannot be opened (%s): %s", name, strerror(errno),
                          errno == EROFS ? "mount the file system for writing"
                                         : "the directory has to be the daemon's own");
    if (system->flock(files->lock_fd, (is_reader ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return say_busy(system, files->lock_fd, path, out_error);
        return disk_error(out_error, -errno, "%s: cannot be locked (%s): use a local file system",
                          name, strerror(errno));
    }
    if (is_reader)
        return 0;
    int num = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (system->ftruncate(files->lock_fd, 0) != 0 ||
        system->pwrite(files->lock_fd, text, (size_t)num, 0) != num)
        return disk_error(out_error, errno ? -errno : -EIO, "%s: cannot be written (%s)", name,
                          strerror(errno));
    return 0;
}

static int open_directory(const struct disk_syscalls *system, const char *path, bool is_reader,
                          struct disk_files *files, char *out_error)
{
    char name[PATH_MAX];
    int err = lock(system, path, is_reader, files, out_error);

    if (!err)
        err = join(name, path, "blocks")
                  ? disk_error(out_error, -ENAMETOOLONG, "%s: too long", path)
                  : 0;
    if (err)
        return err;
    files->table_fd = system->open(
        name, (is_reader ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (files->table_fd < 0)
        return disk_error(out_error, -errno, "%s: cannot be opened: %s", name, strerror(errno));
    return 0;
}

/* The ring of a process that was killed lets go of its files a little later than it. */
static int open_alone(const struct disk_syscalls *system, const char *path, int flags)
{
    int fd = -1;

    for (int i = 0; i < 20; i++) {
        fd = system->open(path, flags | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0);
        if (fd >= 0 || errno != EBUSY)
            break;
        (void)usleep(50000);
    }
    return fd;
}

static int open_device(const struct disk_syscalls *system, const char *path, bool is_reader,
                       struct disk_files *files, char *out_error)
{
    files->is_device = true;
    files->table_fd = open_alone(system, path, is_reader ? O_RDONLY : O_RDWR);
    if (files->table_fd < 0 && errno == EBUSY)
        return say_busy(system, -1, path, out_error);
    if (files->table_fd < 0)
        return disk_error(out_error, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (system->flock(files->table_fd, (is_reader ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0)
        return say_busy(system, -1, path, out_error);
    return 0;
}

/* Sizes of what was opened. */
static int measure(const struct disk_syscalls *system, const char *path, struct disk_files *files,
                   char *out_error)
{
    struct stat status;
    off_t bytes = lseek(files->table_fd, 0, SEEK_END); /* of devices too */

    if (bytes < 0 || system->fstat(files->table_fd, &status) != 0)
        return disk_error(out_error, -errno, "%s: its size cannot be had: %s", path,
                          strerror(errno));
    if (!files->is_device && !S_ISREG(status.st_mode))
        return disk_error(out_error, -EPROTO, "%s/blocks is no file: remove it", path);
    files->bytes = (uint64_t)bytes;
    files->physical_bytes = files->is_device ? 0 : (uint64_t)status.st_blocks * 512;
    if (files->lock_fd >= 0 && system->fstat(files->lock_fd, &status) == 0)
        files->lock_bytes = (uint64_t)status.st_blocks * 512;
    return 0;
}

int disk_files_open(const struct disk_syscalls *system, const char *path, bool is_reader,
                    struct disk_files *out_files, char *out_error)
{
    struct disk_files files = {.lock_fd = -1, .table_fd = -1};
    struct stat status;
    int err;

    if (!path || !path[0])
        return disk_error(out_error, -EINVAL, "no directory is given for the disk tier");
    if (stat(path, &status) != 0)
        return disk_error(out_error, -errno, "%s: %s: create the directory, or give another one",
                          path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        err = open_directory(system, path, is_reader, &files, out_error);
    else if (S_ISBLK(status.st_mode))
        err = open_device(system, path, is_reader, &files, out_error);
    else
        err = disk_error(out_error, -ENOTDIR, "%s is neither a directory nor a block device", path);
    if (!err)
        err = measure(system, path, &files, out_error);
    if (err) {
        disk_files_close(&files);
        return err;
    }
    *out_files = files;
    return 0;
}

void disk_files_close(struct disk_files *files)
{
    if (files->table_fd >= 0)
        (void)close(files->table_fd);
    if (files->lock_fd >= 0)
        (void)close(files->lock_fd);
    files->table_fd = files->lock_fd = -1;
}

int disk_superblock_read(const struct disk_syscalls *system, const struct disk_files *files,
                         const char *path, struct format_layout *out_layout, char *out_error)
{
    struct format_superblock superblock = {0};
    const char *remedy = files->is_device ? "clear its first 4 KiB to use it all the same"
                                          : "remove the file `blocks` to begin anew";

    if (files->bytes >= SUPERBLOCK_BYTES) {
        int err = disk_read_all(system, files->table_fd, &superblock, sizeof(superblock), 0);
        if (err)
            return disk_error(out_error, err, "%s: its superblock cannot be read (%s): %s", path,
                              strerror(-err), remedy);
    } else if (files->bytes > 0) {
        return disk_error(out_error, -EPROTO, "%s: `blocks` is not ours: %s", path, remedy);
    }
    int found = format_superblock_read(&superblock, out_layout);
    switch (found) {
    case FORMAT_FOREIGN:
        return disk_error(out_error, -EPROTO, "%s holds something else than a disk tier: %s", path,
                          remedy);
    case FORMAT_VERSION_UNKNOWN:
        return disk_error(out_error, -EPROTO,
                          "%s is of format version %" PRIu32 ", this program knows %d: use the "
                          "program that made it, or %s",
                          path, superblock.version, FORMAT_VERSION, remedy);
    case FORMAT_DAMAGED:
        return disk_error(out_error, -EPROTO, "%s: its superblock is damaged: %s", path, remedy);
    default:
        break;
    }
    if (found == 0 && files->bytes < out_layout->file_bytes)
        return disk_error(out_error, -EPROTO,
                          "%s has %" PRIu64 " bytes where %" PRIu64 " were laid out: %s", path,
                          files->bytes, out_layout->file_bytes, remedy);
    return found;
}
