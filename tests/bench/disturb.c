/* tests/bench/disturb.c - stores, or bare writes to the same disk, while that is wanted. */
#include "tests/bench/disturb.h"

#include "tests/bench/limit_disk.h"
#include "tests/bench/prompt_bed.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 2 << 20,
    BLOCKS = 8,      /* of a prompt */
    PAUSE_US = 1500, /* between two prompts: 11 GB/s are offered */
    FIRST_SEED = 1 << 24,
    WRITE_BLOCKS = 128, /* of the bare writes */
    DEPTH = 32,
};

/* Both are set by one side and read by the other. */
struct disturb_memory {
    _Atomic int wanted, done;
};

static struct limit_disk *limit_make(const struct tier_bed *bed)
{
    char path[300];
    const uint64_t num_bytes = (uint64_t)WRITE_BLOCKS * BLOCK_BYTES;

    (void)snprintf(path, sizeof(path), "%s/limit", bed->disk);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)num_bytes))
        exit(1);
    (void)close(fd);
    struct limit_disk *limit = limit_disk_create(path, 0, BLOCK_BYTES, WRITE_BLOCKS, DEPTH);
    if (!limit || !limit_disk_run(limit, true, WRITE_BLOCKS))
        exit(1);
    return limit;
}

/* What the disk does not take is skipped by the daemon: it is always offered more. */
static void disturb_by_stores(struct prompt_bed *prompts, uint32_t *next_seed)
{
    prompt_bed_put(prompts, (*next_seed)++, 1);
    (void)usleep(PAUSE_US);
}

static void serve(const struct disturber *disturber, const struct tier_bed *bed)
{
    const struct prompt_shape shape = {.num_blocks = BLOCKS, .block_bytes = BLOCK_BYTES};
    struct disturb_memory *memory = disturber->memory;
    struct limit_disk *limit = limit_make(bed);
    struct prompt_bed *prompts = prompt_bed_create(&bed->daemon, &shape, 0);
    uint32_t next_seed = FIRST_SEED;

    for (;;) { /* until it is killed */
        const int wanted = atomic_load(&memory->wanted);
        if (wanted == DISTURB_STORES)
            disturb_by_stores(prompts, &next_seed);
        if (wanted == DISTURB_WRITES)
            (void)limit_disk_run(limit, true, WRITE_BLOCKS);
        atomic_store(&memory->done, wanted);
        uint64_t count;
        if (wanted == DISTURB_NOT)
            (void)!read(disturber->wake_fd, &count, sizeof(count));
    }
}

void disturber_start(struct disturber *disturber, const struct tier_bed *bed)
{
    disturber->memory = mmap(NULL, sizeof(*disturber->memory), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    disturber->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (disturber->memory == MAP_FAILED || disturber->wake_fd < 0)
        exit(1);
    atomic_store(&disturber->memory->done, -1);
    disturber->pid = fork();
    if (disturber->pid < 0)
        exit(1);
    if (disturber->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(disturber, bed);
    }
    disturber_set(disturber, DISTURB_NOT); /* it is there */
}

void disturber_stop(struct disturber *disturber)
{
    (void)kill(disturber->pid, SIGKILL);
    (void)waitpid(disturber->pid, NULL, 0);
    (void)munmap(disturber->memory, sizeof(*disturber->memory));
    (void)close(disturber->wake_fd);
}

void disturber_set(struct disturber *disturber, enum disturb how)
{
    const uint64_t one = 1;

    atomic_store(&disturber->memory->wanted, how);
    (void)!write(disturber->wake_fd, &one, sizeof(one));
    while (atomic_load(&disturber->memory->done) != (int)how) {
        if (waitpid(disturber->pid, NULL, WNOHANG) != 0) {
            (void)fprintf(stderr, "the disturbing process ended\n");
            exit(1);
        }
        (void)usleep(200);
    }
}
