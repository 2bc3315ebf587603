/* tests/gpu/test_export.c - a reader of a shared arena cannot write to it, whatever it tries. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *text); /* <sys/mount.h> and <linux/mount.h> do not go together */

enum { NUM_GRANULES = 4 };

/* What an attacker has: the descriptor, and a mapping of it. */
struct loot {
    int fd;
    char *mapping;
};

static char path_text[64];

static const char *path_of(int fd)
{
    (void)snprintf(path_text, sizeof(path_text), "/proc/self/fd/%d", fd);
    return path_text;
}

/* --- each answers whether it got what it should not --- */

static bool maps_writable(const struct loot *loot)
{
    return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, loot->fd, 0) != MAP_FAILED;
}

static bool makes_mapping_writable(const struct loot *loot)
{
    return mprotect(loot->mapping, PAGE, PROT_READ | PROT_WRITE) == 0;
}

static bool reopens(const struct loot *loot)
{
    const char *path = path_of(loot->fd);

    return open(path, O_RDWR) >= 0 || open(path, O_WRONLY) >= 0 ||
           open(path, O_RDONLY | O_TRUNC) >= 0 || openat(loot->fd, "", O_RDWR) >= 0;
}

static bool reopens_mapping(const struct loot *loot)
{
    char path[96];
    unsigned long begin = (unsigned long)loot->mapping;

    (void)snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", begin,
                   begin + NUM_GRANULES * PAGE);
    return open(path, O_RDWR) >= 0 || truncate(path, 0) == 0;
}

static bool writes(const struct loot *loot)
{
    return pwrite(loot->fd, "x", 1, 0) >= 0;
}

static bool writes_memory_file(const struct loot *loot)
{
    int fd = open("/proc/self/mem", O_RDWR); /* ignores page protection where it may */

    return fd >= 0 && pwrite(fd, "x", 1, (off_t)loot->mapping) >= 0;
}

static bool truncates(const struct loot *loot)
{
    return ftruncate(loot->fd, 0) == 0 || ftruncate(loot->fd, 100 * (off_t)PAGE) == 0 ||
           truncate(path_of(loot->fd), 0) == 0;
}

static bool allocates(const struct loot *loot)
{
    return fallocate(loot->fd, 0, 0, PAGE) == 0 ||
           fallocate(loot->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0 ||
           madvise(loot->mapping, PAGE, MADV_REMOVE) == 0;
}

static bool seals(const struct loot *loot)
{
    return fcntl(loot->fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 ||
           fcntl(loot->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
}

static bool takes_lease(const struct loot *loot)
{
    return fcntl(loot->fd, F_SETLEASE, F_WRLCK) == 0 || fcntl(loot->fd, F_SETLEASE, F_RDLCK) == 0;
}

static bool changes_inode(const struct loot *loot)
{
    int flags = FS_IMMUTABLE_FL;

    return fchmod(loot->fd, 0777) == 0 || fchown(loot->fd, 1, 1) == 0 ||
           fsetxattr(loot->fd, "user.x", "x", 1, 0) == 0 || futimens(loot->fd, NULL) == 0 ||
           ioctl(loot->fd, FS_IOC_SETFLAGS, &flags) == 0;
}

static bool names_it(const struct loot *loot)
{
    return linkat(loot->fd, "", AT_FDCWD, "/tmp/kvpoold-test-link", AT_EMPTY_PATH) == 0 ||
           openat(loot->fd, "..", O_RDONLY) >= 0;
}

static bool opens_by_handle(const struct loot *loot)
{
    union {
        struct file_handle handle;
        char bytes[sizeof(struct file_handle) + 128];
    } file = {.handle.handle_bytes = 128};
    int mount_id;

    return name_to_handle_at(loot->fd, "", &file.handle, &mount_id, AT_EMPTY_PATH) == 0 &&
           open_by_handle_at(loot->fd, &file.handle, O_RDWR) >= 0;
}

/* The one that works against a file of a mounted clone: see gpu/host/mount.c. */
static bool clones_mount(const struct loot *loot)
{
    return syscall(SYS_open_tree, loot->fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH) >= 0;
}

static bool binds_mount(const struct loot *loot)
{
    char target[] = "/tmp/kvpoold-test-XXXXXX";
    int fd = mkstemp(target);
    bool is_bound = fd >= 0 && mount(path_of(loot->fd), target, NULL, MS_BIND, NULL) == 0;

    (void)unlink(target); /* a mount point goes with its namespace */
    return is_bound;
}

static bool changes_mount(const struct loot *loot)
{
    struct mount_attr clear = {.attr_clr = MOUNT_ATTR_RDONLY};

    return syscall(SYS_mount_setattr, loot->fd, "", AT_EMPTY_PATH, &clear, sizeof(clear)) == 0 ||
           mount(NULL, path_of(loot->fd), NULL, MS_REMOUNT | MS_BIND, NULL) == 0;
}

static bool picks_filesystem(const struct loot *loot)
{
    return syscall(SYS_fspick, loot->fd, "", FSPICK_EMPTY_PATH) >= 0;
}

/* clang-format off */
static const struct attack {
    const char *name;
    bool (*succeeds)(const struct loot *loot);
    bool is_on_writers; /* fails with a writable descriptor, too */
} attacks[] = {
    {"mmap",              maps_writable,          false},
    {"mprotect",          makes_mapping_writable, false},
    {"re-open",           reopens,                false},
    {"re-open map_files", reopens_mapping,        false},
    {"write",             writes,                 false},
    {"/proc/self/mem",    writes_memory_file,     false},
    {"truncate",          truncates,              false},
    {"fallocate",         allocates,              false},
    {"seal",              seals,                  true},
    {"lease",             takes_lease,            true},
    {"inode",             changes_inode,          false},
    {"name",              names_it,               true},
    {"handle",            opens_by_handle,        false},
    {"open_tree",         clones_mount,           true},
    {"bind mount",        binds_mount,            true},
    {"mount attributes",  changes_mount,          true},
    {"fspick",            picks_filesystem,       true},
};
/* clang-format on */

static int count_successes(const struct loot *loot, bool is_writer)
{
    int num_successes = 0;

    for (size_t i = 0; i < ARRAY_SIZE(attacks); i++) {
        if (is_writer && !attacks[i].is_on_writers)
            continue;
        if (attacks[i].succeeds(loot)) {
            (void)fprintf(stderr, "attack succeeded: %s\n", attacks[i].name);
            num_successes++;
        }
    }
    return num_successes;
}

/* --- who attacks --- */

static int as_we_are(void *loot)
{
    return count_successes(loot, false);
}

static int in_own_mount_namespace(void *loot)
{
    return unshare(CLONE_NEWNS) != 0 ? EXIT_SKIP : count_successes(loot, false);
}

static int as_nobody(void *loot)
{
    return setgid(65534) != 0 || setuid(65534) != 0 ? EXIT_SKIP : count_successes(loot, false);
}

static int as_root_of_own_user_namespace(void *loot)
{
    if (setgid(65534) != 0 || setuid(65534) != 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return EXIT_SKIP;
    return count_successes(loot, false);
}

static int as_writer(void *loot)
{
    return count_successes(loot, true);
}

/* --- the tests --- */

struct scene {
    struct gpu_device *device;
    struct loot reader, writer;
};

static int setup(void **state)
{
    static struct scene scene;

    scene.device = device_create(SOURCE_MOUNT, NUM_GRANULES);
    arena_open(scene.device, 0, 2 * MiB, NUM_GRANULES, true);
    for (uint32_t granule = 0; granule < NUM_GRANULES; granule++)
        assert_int_equal(commit_now(scene.device, 0, granule), 0);
    memset(gpu_arena_base(scene.device, 0), 0x5a, NUM_GRANULES * PAGE);
    assert_int_equal(gpu_arena_export(scene.device, 0, GPU_READ, &scene.reader.fd), 0);
    assert_int_equal(gpu_arena_export(scene.device, 0, GPU_WRITE, &scene.writer.fd), 0);
    scene.reader.mapping =
        mmap(NULL, NUM_GRANULES * PAGE, PROT_READ, MAP_SHARED, scene.reader.fd, 0);
    scene.writer.mapping =
        mmap(NULL, NUM_GRANULES * PAGE, PROT_READ, MAP_SHARED, scene.writer.fd, 0);
    assert_ptr_not_equal(scene.reader.mapping, MAP_FAILED);
    assert_ptr_not_equal(scene.writer.mapping, MAP_FAILED);
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;

    (void)munmap(scene->reader.mapping, NUM_GRANULES * PAGE);
    (void)munmap(scene->writer.mapping, NUM_GRANULES * PAGE);
    (void)close(scene->reader.fd);
    (void)close(scene->writer.fd);
    gpu_device_destroy(scene->device);
    return 0;
}

static void attack(struct scene *scene, struct loot *loot, int (*attacker)(void *loot))
{
    struct stat status;
    int num_successes = in_child(attacker, loot);

    if (num_successes == EXIT_SKIP) {
        print_message("skipped: this machine lets nobody become that attacker\n");
        skip();
    }
    assert_int_equal(num_successes, 0);
    const char *base = gpu_arena_base(scene->device, 0);
    for (size_t i = 0; i < NUM_GRANULES * PAGE; i++)
        if (base[i] != 0x5a)
            fail_msg("byte %zu changed", i);
    assert_int_equal(fstat(scene->writer.fd, &status), 0);
    assert_int_equal(status.st_size, NUM_GRANULES * PAGE);
    assert_int_equal(gpu_device_check_excess(scene->device, NULL, 0), 0);
}

static void root_cannot_write_through_a_readers_descriptor(void **state)
{
    struct scene *scene = *state;
    attack(scene, &scene->reader, as_we_are);
}

static void root_of_another_mount_namespace_cannot_either(void **state)
{
    struct scene *scene = *state;
    attack(scene, &scene->reader, in_own_mount_namespace);
}

static void nobody_cannot_either(void **state)
{
    struct scene *scene = *state;
    attack(scene, &scene->reader, as_nobody);
}

static void root_of_its_own_user_namespace_cannot_either(void **state)
{
    struct scene *scene = *state;
    attack(scene, &scene->reader, as_root_of_own_user_namespace);
}

static void a_writer_gets_at_the_file_and_at_nothing_else(void **state)
{
    struct scene *scene = *state;
    attack(scene, &scene->writer, as_writer);
}

static void readers_see_what_is_written(void **state)
{
    struct scene *scene = *state;

    memset(gpu_arena_base(scene->device, 0), 7, PAGE);
    assert_int_equal(scene->reader.mapping[PAGE - 1], 7);
    ((char *)gpu_arena_base(scene->device, 0))[PAGE - 1] = 8;
    assert_int_equal(scene->reader.mapping[PAGE - 1], 8);
}

static void each_export_has_its_own_file_description(void **state)
{
    struct scene *scene = *state;
    int other;

    assert_int_equal(gpu_arena_export(scene->device, 0, GPU_WRITE, &other), 0);
    assert_int_equal(fcntl(other, F_SETFL, O_APPEND), 0);
    assert_int_equal(fcntl(scene->writer.fd, F_GETFL) & O_APPEND, 0);
    assert_int_equal(fcntl(other, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void)close(other);
}

static void a_private_arena_has_no_readers(void **state)
{
    struct scene *scene = *state;
    int fd = -7;

    arena_open(scene->device, 1, 2 * MiB, 1, false);
    assert_int_equal(gpu_arena_export(scene->device, 1, GPU_READ, &fd), -EINVAL);
    assert_int_equal(gpu_arena_export(scene->device, 2, GPU_WRITE, &fd), -ENOENT);
    assert_int_equal(fd, -7);
}

static size_t read_mounts(char *out, size_t size)
{
    int fd = open("/proc/self/mountinfo", O_RDONLY);
    size_t used = 0;
    ssize_t got;

    assert_true(fd >= 0);
    while ((got = read(fd, out + used, size - used)) > 0)
        used += (size_t)got;
    (void)close(fd);
    return used;
}

static void the_mount_is_in_no_namespace(void **state)
{
    static char mounts[1 << 16];
    (void)state;

    assert_true(read_mounts(mounts, sizeof(mounts) - 1) > 0);
    assert_null(strstr(mounts, "kvpoold"));
}

static void files_have_no_name(void **state)
{
    struct scene *scene = *state;
    struct stat status;

    assert_int_equal(fstat(scene->writer.fd, &status), 0);
    assert_int_equal(status.st_nlink, 0);
    assert_int_equal(fstat(scene->reader.fd, &status), 0);
    assert_int_equal(status.st_nlink, 0);
}

#define ON_A_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ON_A_SCENE(root_cannot_write_through_a_readers_descriptor),
        ON_A_SCENE(root_of_another_mount_namespace_cannot_either),
        ON_A_SCENE(nobody_cannot_either),
        ON_A_SCENE(root_of_its_own_user_namespace_cannot_either),
        ON_A_SCENE(a_writer_gets_at_the_file_and_at_nothing_else),
        ON_A_SCENE(readers_see_what_is_written),
        ON_A_SCENE(each_export_has_its_own_file_description),
        ON_A_SCENE(a_private_arena_has_no_readers),
        ON_A_SCENE(the_mount_is_in_no_namespace),
        ON_A_SCENE(files_have_no_name),
    };
    enum source source;
    int status = source_choose(argc, argv, &source);

    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
