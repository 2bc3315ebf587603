/* tests/gpu/device.c - a device to test with. */
#include "tests/gpu/device.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool can_mount(void)
{
    static const struct gpu_device_options options = {
        .budget_bytes = PAGE, .page_bytes = PAGE, .max_arenas = 1, .max_operations = 1};
    struct gpu_fallback fallbacks[8];
    struct gpu_device *device;
    bool can = true;

    if (gpu_device_create(&options, &device) != 0)
        return false;
    size_t num_fallbacks = gpu_device_fallbacks(device, fallbacks, ARRAY_SIZE(fallbacks));
    for (size_t i = 0; i < num_fallbacks; i++)
        can = can && strcmp(fallbacks[i].name, "memfd-arenas") != 0;
    gpu_device_destroy(device);
    return can;
}

int source_choose(int argc, char **argv, enum source *out_source)
{
    if (argc == 2 && strcmp(argv[1], "memfd") == 0) {
        *out_source = SOURCE_MEMFD;
        return 0;
    }
    if (argc != 2 || strcmp(argv[1], "mount") != 0) {
        (void)fprintf(stderr, "usage: %s mount|memfd\n", argv[0]);
        return 2;
    }
    if (!can_mount()) {
        (void)fprintf(stderr, "skipped: a private tmpfs mount needs CAP_SYS_ADMIN and fsopen()\n");
        return EXIT_SKIP;
    }
    *out_source = SOURCE_MOUNT;
    return 0;
}

struct gpu_device *device_create_with(const struct gpu_device_options *options)
{
    struct gpu_device *device = NULL;

    assert_int_equal(gpu_device_create(options, &device), 0);
    return device;
}

struct gpu_device *device_create(enum source source, uint64_t num_pages)
{
    struct gpu_device_options options = {.budget_bytes = num_pages * PAGE,
                                         .page_bytes = PAGE,
                                         .max_arenas = 8,
                                         .max_operations = 64,
                                         .without_mount = source == SOURCE_MEMFD};

    return device_create_with(&options);
}

void arena_open(struct gpu_device *device, uint32_t number, uint64_t block_bytes,
                uint32_t max_granules, bool is_shared)
{
    struct gpu_arena_options options = {
        .block_bytes = block_bytes, .max_granules = max_granules, .is_shared = is_shared};

    assert_int_equal(gpu_choose_granule(block_bytes, PAGE, &options.granule), 0);
    assert_int_equal(gpu_arena_open(device, number, &options), 0);
}

int device_wait(struct gpu_device *device, uint64_t cookie)
{
    struct gpu_completion completion;
    struct pollfd event = {.fd = gpu_device_event_fd(device), .events = POLLIN};

    do
        assert_int_equal(poll(&event, 1, 60000), 1);
    while (gpu_device_reap(device, &completion, 1) == 0);
    assert_int_equal(completion.cookie, cookie);
    return completion.status;
}

int commit_now(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    int answer = gpu_commit(device, arena, granule, 11);
    return answer ? answer : device_wait(device, 11);
}

int decommit_now(struct gpu_device *device, uint32_t arena, uint32_t granule)
{
    int answer = gpu_decommit(device, arena, granule, 12);
    return answer ? answer : device_wait(device, 12);
}

int trim_now(struct gpu_device *device, uint32_t arena)
{
    int answer = gpu_trim(device, arena, 13);
    return answer ? answer : device_wait(device, 13);
}

int close_now(struct gpu_device *device, uint32_t arena)
{
    int answer = gpu_arena_close(device, arena, 14);
    return answer ? answer : device_wait(device, 14);
}

uint32_t count_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

/* Only those of arenas: the C library maps and unmaps as it pleases. */
uint32_t count_mappings(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "/arena (deleted)") != NULL || strstr(line, "memfd:kvpoold") != NULL;
    (void)fclose(maps);
    return count;
}

int in_child(int (*attack)(void *argument), void *argument)
{
    int status;

    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(attack(argument));
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
