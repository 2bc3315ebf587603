/*
 * tests/e2e/fuse_disk.c - a directory under another name, as good or bad as a test says.
 *
 * usage: fuse_disk CONTROL BACKING MOUNTPOINT. Stays in the foreground. Errors are seen by the
 * kernel as those of any file system: below io_uring, O_DIRECT and the page cache.
 */
#define FUSE_USE_VERSION 31
#include "tests/e2e/fuse_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fuse_control *control;
static char backing[PATH_MAX];

static const char *below(const char *path, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%.2000s%.2000s", backing, path);
    return out;
}

static void stall(void)
{
    if (!atomic_load(&control->is_stalled))
        return;
    atomic_fetch_add(&control->num_stalled, 1);
    while (atomic_load(&control->is_stalled))
        (void)usleep(1000);
    atomic_fetch_sub(&control->num_stalled, 1);
}

static int disk_getattr(const char *path, struct stat *out, struct fuse_file_info *file)
{
    char name[PATH_MAX];

    (void)file;
    return lstat(below(path, name), out) < 0 ? -errno : 0;
}

static int disk_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                        struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
    char name[PATH_MAX];
    DIR *directory = opendir(below(path, name));
    const struct dirent *entry;

    (void)offset;
    (void)file;
    (void)flags;
    if (!directory)
        return -errno;
    while ((entry = readdir(directory)))
        (void)fill(out, entry->d_name, NULL, 0, 0);
    (void)closedir(directory);
    return 0;
}

static int open_below(const char *path, int flags, mode_t mode, struct fuse_file_info *file)
{
    char name[PATH_MAX];
    int err = atomic_load(&control->open_error);

    if (err)
        return -err;
    /* Buffers here are not aligned for it; the kernel's side of O_DIRECT is what counts. */
    int fd = open(below(path, name), (flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    file->fh = (uint64_t)fd;
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *file)
{
    return open_below(path, file->flags, 0, file);
}

static int disk_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
    return open_below(path, file->flags | O_CREAT, mode, file);
}

static int disk_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    return close((int)file->fh) < 0 ? -errno : 0;
}

static int disk_read(const char *path, char *out, size_t bytes, off_t offset,
                     struct fuse_file_info *file)
{
    (void)path;
    stall();
    atomic_fetch_add(&control->num_reads, 1);
    int err = atomic_load(&control->read_error);
    if (err)
        return -err;
    ssize_t num = pread((int)file->fh, out, bytes, offset);
    return num < 0 ? -errno : (int)num;
}

static int disk_write(const char *path, const char *from, size_t bytes, off_t offset,
                      struct fuse_file_info *file)
{
    (void)path;
    stall();
    atomic_fetch_add(&control->num_writes, 1);
    int err = atomic_load(&control->write_error);
    if (err)
        return -err;
    ssize_t num = pwrite((int)file->fh, from, bytes, offset);
    return num < 0 ? -errno : (int)num;
}

static int disk_truncate(const char *path, off_t bytes, struct fuse_file_info *file)
{
    char name[PATH_MAX];

    if (file)
        return ftruncate((int)file->fh, bytes) < 0 ? -errno : 0;
    return truncate(below(path, name), bytes) < 0 ? -errno : 0;
}

static int disk_fallocate(const char *path, int mode, off_t offset, off_t bytes,
                          struct fuse_file_info *file)
{
    int err = atomic_load(&control->fallocate_error);

    (void)path;
    if (err)
        return -err;
    return fallocate((int)file->fh, mode, offset, bytes) < 0 ? -errno : 0;
}

static int disk_fsync(const char *path, int is_data, struct fuse_file_info *file)
{
    (void)path;
    stall();
    return (is_data ? fdatasync((int)file->fh) : fsync((int)file->fh)) < 0 ? -errno : 0;
}

static int disk_unlink(const char *path)
{
    char name[PATH_MAX];

    return unlink(below(path, name)) < 0 ? -errno : 0;
}

static const struct fuse_operations operations = {.getattr = disk_getattr,
                                                  .readdir = disk_readdir,
                                                  .open = disk_open,
                                                  .create = disk_create,
                                                  .release = disk_release,
                                                  .read = disk_read,
                                                  .write = disk_write,
                                                  .truncate = disk_truncate,
                                                  .fallocate = disk_fallocate,
                                                  .fsync = disk_fsync,
                                                  .unlink = disk_unlink};

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: fuse_disk CONTROL BACKING MOUNTPOINT\n", stderr);
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    void *memory = MAP_FAILED;
    if (fd >= 0)
        memory = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED || !realpath(argv[2], backing)) {
        perror("fuse_disk");
        return 2;
    }
    control = memory;
    char name[] = "fuse_disk", foreground[] = "-f";
    char *arguments[] = {name, foreground, argv[3], NULL};
    return fuse_main(3, arguments, &operations, NULL);
}
