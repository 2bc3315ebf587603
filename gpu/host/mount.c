/* gpu/host/mount.c - a tmpfs that nobody can reach but through descriptors of its files.
 *
 * The mount is made by fsmount() and never attached anywhere. Its descriptor stays in the daemon.
 * Nothing is handed out that was opened through it: every file is created through a clone of the
 * mount, a shared one is opened a second time through a read-only clone, and the clones are closed
 * at once. Closing dissolves a clone: the files live on, on a mount that is no longer mounted.
 *
 * That they are dissolved is what makes "read-only" hold against root. From a file of a mounted
 * detached mount, CAP_SYS_ADMIN of any mount namespace can make a bind mount (open_tree with
 * OPEN_TREE_CLONE and AT_EMPTY_PATH), clear its read-only flag (mount_setattr) and open the file
 * for writing, or get at the superblock by fspick and lift `size=`: tried on Linux 6.18, also from
 * another mount namespace. From a file of a dissolved one all of this is EINVAL, while re-opening
 * it through /proc for writing is EROFS as before.
 */
#include "gpu/host/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const uint32_t HUGE_PAGE_BYTES = 2 << 20;

static const char file_name[] = "arena"; /* while a file is being made */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* Options that a kernel may lack: without them the mount is made all the same. */
static void set_niceties(const struct host_syscalls *system, int context,
                         const struct gpu_device_options *options, struct host_fallbacks *fallbacks)
{
    const char *huge = options->page_bytes >= HUGE_PAGE_BYTES ? "always" : "never";

    if (system->fsconfig(context, FSCONFIG_SET_STRING, "huge", huge, 0) != 0 &&
        options->page_bytes >= HUGE_PAGE_BYTES)
        host_fallback_enter(fallbacks, FALLBACK_SMALL_PAGES, -errno);
    if (system->fsconfig(context, FSCONFIG_SET_FLAG, "noswap", NULL, 0) != 0)
        host_fallback_enter(fallbacks, FALLBACK_SWAPPABLE, -errno);
}

static int mount_create(const struct host_syscalls *system,
                        const struct gpu_device_options *options, struct host_fallbacks *fallbacks,
                        int *out_fd)
{
    char size[32];
    int fd = -1, err = 0;

    (void)snprintf(size, sizeof(size), "%" PRIu64, options->budget_bytes);
    int context = system->fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0)
        return -errno;
    set_niceties(system, context, options, fallbacks);
    if (system->fsconfig(context, FSCONFIG_SET_STRING, "source", "kvpoold", 0) != 0 ||
        system->fsconfig(context, FSCONFIG_SET_STRING, "size", size, 0) != 0 ||
        system->fsconfig(context, FSCONFIG_SET_STRING, "mode", "0700", 0) != 0 ||
        system->fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        err = -errno;
    if (!err) {
        fd = system->fsmount(context, FSMOUNT_CLOEXEC,
                             MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
        err = fd < 0 ? -errno : 0;
    }
    close_fd(&context);
    if (!err)
        *out_fd = fd;
    return err;
}

/* Forgets what the attempt at a mount said about it: memfds have costs of their own. */
static void fall_back(struct host_mount *mount, struct host_fallbacks *fallbacks, int reason)
{
    close_fd(&mount->fd);
    for (int which = 0; which < NUM_FALLBACKS; which++)
        atomic_init(&fallbacks->reasons[which], 0);
    host_fallback_enter(fallbacks, FALLBACK_MEMFD, reason);
}

/* One file is made and exported as tenants will get it: better to learn it now than from them. */
static int probe(const struct host_mount *mount)
{
    struct host_file file;
    int fd = -1;
    int err = host_file_create(mount, 0, true, &file);
    if (err)
        return err;

    err = host_file_export(mount, &file, GPU_READ, &fd);
    if (!err)
        close_fd(&fd);
    host_file_close(&file);
    return err;
}

int host_mount_init(struct host_mount *mount, const struct host_syscalls *system,
                    const struct gpu_device_options *options, struct host_fallbacks *fallbacks)
{
    *mount = (struct host_mount){.system = system, .fd = -1};
    if (options->without_mount) {
        fall_back(mount, fallbacks, 0);
        return probe(mount);
    }

    int err = mount_create(system, options, fallbacks, &mount->fd);
    if (!err)
        err = probe(mount);
    if (!err)
        return 0;
    fall_back(mount, fallbacks, err);
    return probe(mount);
}

/* What a kernel lacks today, it lacked then: asked by a context that nothing is made of. */
static int niceties_find(const struct host_syscalls *system,
                         const struct gpu_device_options *options, struct host_fallbacks *fallbacks)
{
    int context = system->fsopen("tmpfs", FSOPEN_CLOEXEC);

    if (context < 0)
        return -errno;
    set_niceties(system, context, options, fallbacks);
    close_fd(&context);
    return 0;
}

int host_mount_adopt(struct host_mount *mount, const struct host_syscalls *system,
                     const struct gpu_device_options *options, struct host_fallbacks *fallbacks,
                     int fd)
{
    struct statfs status;

    *mount = (struct host_mount){.system = system, .fd = fd};
    if (fd < 0) {
        fall_back(mount, fallbacks, options->without_mount ? 0 : -ENOENT);
        return probe(mount);
    }
    if (system->fstatfs(fd, &status) != 0)
        return -errno;
    if (status.f_type != TMPFS_MAGIC ||
        (uint64_t)status.f_blocks * (uint64_t)status.f_bsize != options->budget_bytes)
        return -ESTALE;
    /* The process may have been killed while a file had its name. */
    if (system->unlinkat(fd, file_name, 0) != 0 && errno != ENOENT)
        return -errno;
    int err = niceties_find(system, options, fallbacks);
    return err ? err : probe(mount);
}

void host_mount_finish(struct host_mount *mount)
{
    close_fd(&mount->fd);
}

static int memfd_create_sealed(const struct host_mount *mount, uint64_t bytes,
                               struct host_file *file)
{
    file->fd = mount->system->memfd_create("kvpoold", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file->fd < 0)
        return -errno;
    /* The mode keeps other users from re-opening what they are given read-only. */
    if (fchmod(file->fd, 0600) != 0 || mount->system->ftruncate(file->fd, (off_t)bytes) != 0)
        return -errno;
    if (mount->system->fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -errno;
    return 0;
}

/* Opens @name through a clone of the mount with @attributes, which is then dissolved. */
static int open_through_clone(const struct host_mount *mount, uint64_t attributes, const char *name,
                              int flags)
{
    int fd = -1;
    struct mount_attr set = {.attr_set = attributes};
    int clone = mount->system->open_tree(
        mount->fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_EMPTY_PATH);
    if (clone < 0)
        return -errno;

    if (attributes == 0 ||
        mount->system->mount_setattr(clone, "", AT_EMPTY_PATH, &set, sizeof(set)) == 0)
        fd = mount->system->openat(clone, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        fd = -errno;
    close_fd(&clone);
    return fd;
}

static int mounted_file_create(const struct host_mount *mount, uint64_t bytes, bool is_shared,
                               struct host_file *file)
{
    const char *name = file_name;
    int err = 0;

    file->fd = open_through_clone(mount, 0, name, O_RDWR | O_CREAT | O_EXCL);
    if (file->fd < 0)
        return file->fd;
    if (is_shared) {
        file->reader_fd = open_through_clone(mount, MOUNT_ATTR_RDONLY, name, O_RDONLY);
        err = file->reader_fd < 0 ? file->reader_fd : 0;
    }
    if (mount->system->unlinkat(mount->fd, name, 0) != 0) {
        err = -errno;
        (void)unlinkat(mount->fd, name, 0);
    }
    if (!err && mount->system->ftruncate(file->fd, (off_t)bytes) != 0)
        err = -errno;
    return err;
}

int host_file_create(const struct host_mount *mount, uint64_t bytes, bool is_shared,
                     struct host_file *out_file)
{
    struct host_file file = HOST_FILE_NONE;
    int err;

    if (mount->fd >= 0)
        err = mounted_file_create(mount, bytes, is_shared, &file);
    else
        err = memfd_create_sealed(mount, bytes, &file);
    if (err) {
        host_file_close(&file);
        return err;
    }
    *out_file = file;
    return 0;
}

static int seals_check(const struct host_mount *mount, const struct host_file *file)
{
    static const int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int seals = mount->system->fcntl(file->fd, F_GET_SEALS);

    if (seals < 0)
        return errno == EINVAL ? -ESTALE : -errno;
    return seals == sealed && file->reader_fd < 0 ? 0 : -ESTALE;
}

/* The second descriptor is what makes exports read-only: it must not be the first one again. */
static int reader_check(const struct host_mount *mount, const struct host_file *file,
                        const struct stat *status)
{
    struct stat reader;

    if (mount->system->fstat(file->reader_fd, &reader) != 0)
        return -errno;
    int flags = mount->system->fcntl(file->reader_fd, F_GETFL);
    if (flags < 0)
        return -errno;
    return reader.st_dev == status->st_dev && reader.st_ino == status->st_ino &&
                   (flags & O_ACCMODE) == O_RDONLY
               ? 0
               : -ESTALE;
}

int host_file_check(const struct host_mount *mount, const struct host_file *file, uint64_t bytes,
                    bool is_shared)
{
    struct stat status, root;

    if (mount->system->fstat(file->fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != bytes)
        return -ESTALE;
    if (mount->fd < 0)
        return seals_check(mount, file);
    if (mount->system->fstat(mount->fd, &root) != 0)
        return -errno;
    if (root.st_dev != status.st_dev || is_shared != (file->reader_fd >= 0))
        return -ESTALE;
    return is_shared ? reader_check(mount, file, &status) : 0;
}

void host_file_close(struct host_file *file)
{
    close_fd(&file->reader_fd);
    close_fd(&file->fd);
}

int host_file_export(const struct host_mount *mount, const struct host_file *file,
                     enum gpu_access access, int *out_fd)
{
    char path[32];
    bool is_reader = access == GPU_READ;
    int from = is_reader && mount->fd >= 0 ? file->reader_fd : file->fd;

    if (from < 0)
        return -EINVAL;
    /* Opened anew: a duplicate would share status flags and locks with our descriptor. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", from);
    int fd = mount->system->openat(AT_FDCWD, path, (is_reader ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *out_fd = fd;
    return 0;
}

int host_file_physical(const struct host_mount *mount, const struct host_file *file,
                       uint64_t *out_bytes)
{
    struct stat status;

    if (mount->system->fstat(file->fd, &status) != 0)
        return -errno;
    *out_bytes = (uint64_t)status.st_blocks * 512;
    return 0;
}

int host_mount_physical(const struct host_mount *mount, uint64_t *out_bytes)
{
    struct statfs status;

    if (mount->fd < 0) {
        *out_bytes = 0;
        return 0;
    }
    if (mount->system->fstatfs(mount->fd, &status) != 0)
        return -errno;
    *out_bytes = (uint64_t)(status.f_blocks - status.f_bfree) * (uint64_t)status.f_bsize;
    return 0;
}
