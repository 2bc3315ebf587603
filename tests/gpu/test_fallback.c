/* tests/gpu/test_fallback.c - each fallback of the host device has a name, a cost and a reason. */
#include "gpu/host/device.h"
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct gpu_device_options small_device = {
    .budget_bytes = 8 * PAGE, .page_bytes = PAGE, .max_arenas = 2, .max_operations = 8};

/* The reason of the fallback of that name, 1 if the device is not in it. */
static int reason_of(const struct gpu_device *device, const char *name)
{
    struct gpu_fallback fallbacks[8];
    size_t num_fallbacks = gpu_device_fallbacks(device, fallbacks, ARRAY_SIZE(fallbacks));

    for (size_t i = 0; i < num_fallbacks; i++)
        if (strcmp(fallbacks[i].name, name) == 0)
            return strlen(fallbacks[i].cost) > 20 ? fallbacks[i].reason : 2;
    return 1;
}

static void a_device_that_is_all_right_has_no_fallback(void **state)
{
    (void)state;
    if (!can_mount()) {
        print_message("skipped: a private tmpfs mount needs CAP_SYS_ADMIN and fsopen()\n");
        skip();
    }
    struct gpu_device *device = device_create_with(&small_device);
    assert_int_equal(gpu_device_fallbacks(device, NULL, 0), 0);
    gpu_device_destroy(device);
}

static void memfds_can_be_asked_for(void **state)
{
    struct gpu_device *device = device_create(SOURCE_MEMFD, 4);
    (void)state;

    assert_int_equal(gpu_device_fallbacks(device, NULL, 0), 1);
    assert_int_equal(reason_of(device, "memfd-arenas"), 0);
    gpu_device_destroy(device);
}

/* What a process can do that is not allowed a mount: everything, by memfds. */
static int use_device(int expected_reason)
{
    struct gpu_device *device;
    int fd;

    if (gpu_device_create(&small_device, &device) != 0)
        return 1;
    if (reason_of(device, "memfd-arenas") != expected_reason)
        return 2;
    arena_open(device, 0, 2 * MiB, 8, true);
    if (commit_now(device, 0, 3) != 0)
        return 3;
    if (gpu_arena_export(device, 0, GPU_READ, &fd) != 0)
        return 4;
    if (mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
        return 5;
    if (mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 3 * (off_t)PAGE) == MAP_FAILED)
        return 6;
    gpu_device_destroy(device);
    return 0;
}

static int use_as_nobody(void *argument)
{
    (void)argument;
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return EXIT_SKIP;
    return use_device(-EPERM);
}

static void a_process_without_privileges_gets_memfds(void **state)
{
    (void)state;
    int status = in_child(use_as_nobody, NULL);
    if (status == EXIT_SKIP)
        skip();
    assert_int_equal(status, 0);
}

/* As container runtimes do it: the call fails as if the kernel had none. */
static int use_without_fsopen(void *argument)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsopen, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(rules), .filter = rules};

    (void)argument;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return EXIT_SKIP;
    return use_device(-ENOSYS);
}

static void a_process_whose_container_filters_fsopen_gets_memfds(void **state)
{
    (void)state;
    int status = in_child(use_without_fsopen, NULL);
    if (status == EXIT_SKIP)
        skip();
    assert_int_equal(status, 0);
}

static void a_memfd_keeps_its_size_and_its_seals(void **state)
{
    struct gpu_device *device = device_create(SOURCE_MEMFD, 4);
    int fd;
    (void)state;

    arena_open(device, 0, 2 * MiB, 4, false);
    assert_int_equal(gpu_arena_export(device, 0, GPU_WRITE, &fd), 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 100 * (off_t)PAGE), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    (void)close(fd);
    gpu_device_destroy(device);
}

static int reopen_as_nobody(void *fd)
{
    char path[64];

    if (setgid(65534) != 0 || setuid(65534) != 0)
        return EXIT_SKIP;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", *(int *)fd);
    return open(path, O_RDWR) >= 0 || fchmod(*(int *)fd, 0777) == 0;
}

/* Root, and the daemon's own user, can: that is in the text of the fallback. */
static void another_user_cannot_reopen_a_memfd_for_writing(void **state)
{
    struct gpu_device *device = device_create(SOURCE_MEMFD, 4);
    int fd;
    (void)state;

    arena_open(device, 0, 2 * MiB, 4, true);
    assert_int_equal(gpu_arena_export(device, 0, GPU_READ, &fd), 0);
    int status = in_child(reopen_as_nobody, &fd);
    (void)close(fd);
    gpu_device_destroy(device);
    if (status == EXIT_SKIP)
        skip();
    assert_int_equal(status, 0);
}

/* A kernel without the option @refused. */
static const char *refused;

static int refuse_option(int fd, unsigned command, const char *key, const void *value, int aux)
{
    if (key && strcmp(key, refused) == 0) {
        errno = EINVAL;
        return -1;
    }
    return host_syscalls.fsconfig(fd, command, key, value, aux);
}

static void an_old_kernels_mount_is_used_and_what_it_lacks_is_named(void **state)
{
    static const char *const rows[][2] = {{"noswap", "swappable"}, {"huge", "small-pages"}};
    struct host_syscalls old_kernel = host_syscalls;
    struct gpu_device *device;
    (void)state;

    if (!can_mount())
        skip();
    old_kernel.fsconfig = refuse_option;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        refused = rows[i][0];
        assert_int_equal(host_device_create(&small_device, &old_kernel, &device), 0);
        assert_int_equal(gpu_device_fallbacks(device, NULL, 0), 1);
        assert_int_equal(reason_of(device, rows[i][1]), -EINVAL);
        arena_open(device, 0, 2 * MiB, 4, true);
        assert_int_equal(commit_now(device, 0, 0), 0);
        gpu_device_destroy(device);
    }
}

static _Atomic int num_populates_left;

static int populate_some(void *address, size_t bytes, int advice)
{
    if (advice == MADV_POPULATE_WRITE && atomic_fetch_sub(&num_populates_left, 1) <= 0) {
        errno = ENOMEM;
        return -1;
    }
    return host_syscalls.madvise(address, bytes, advice);
}

static void a_machine_with_less_memory_than_asked_for_is_named(void **state)
{
    struct gpu_device_options options = small_device;
    struct host_syscalls full_machine = host_syscalls;
    struct gpu_device *device;
    struct gpu_memory memory;
    (void)state;

    options.populate_bytes = options.budget_bytes;
    full_machine.madvise = populate_some;
    num_populates_left = 1;
    assert_int_equal(host_device_create(&options, &full_machine, &device), 0);
    do {
        (void)usleep(1000);
        gpu_device_memory(device, &memory);
    } while (memory.populate_status == 0);
    assert_int_equal(memory.populate_status, -ENOMEM);
    assert_int_equal(memory.populated_bytes, 8 * MiB); /* the first slice */
    assert_int_equal(reason_of(device, "not-populated"), -ENOMEM);
    gpu_device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_is_all_right_has_no_fallback),
        cmocka_unit_test(memfds_can_be_asked_for),
        cmocka_unit_test(a_process_without_privileges_gets_memfds),
        cmocka_unit_test(a_process_whose_container_filters_fsopen_gets_memfds),
        cmocka_unit_test(a_memfd_keeps_its_size_and_its_seals),
        cmocka_unit_test(another_user_cannot_reopen_a_memfd_for_writing),
        cmocka_unit_test(an_old_kernels_mount_is_used_and_what_it_lacks_is_named),
        cmocka_unit_test(a_machine_with_less_memory_than_asked_for_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
