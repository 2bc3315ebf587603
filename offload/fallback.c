/* offload/fallback.c - the fallbacks of a disk by name, each with its cost. */
#include "offload/fallback.h"

/* clang-format off */
static const struct {
    const char *name;
    const char *cost;
} fallback_texts[NUM_DISK_FALLBACKS] = {
    [DISK_FALLBACK_NO_URING] = {"no-io-uring",
        "io_uring cannot be had (an old kernel, kernel.io_uring_disabled, or a container's seccomp "
        "profile): a few threads do the I/O, with less depth and more processor time a block"},
    [DISK_FALLBACK_NO_DIRECT] = {"no-direct-io",
        "the file system refuses O_DIRECT: blocks go through the page cache, which costs memory, "
        "processor time and half of the read bandwidth; put the directory on ext4 or xfs"},
    [DISK_FALLBACK_NOT_REGISTERED] = {"buffers-not-registered",
        "the kernel would not pin the bounce buffers (RLIMIT_MEMLOCK, see ulimit -l; "
        "LimitMEMLOCK=infinity of a systemd unit): two to three times the processor time a block"},
    [DISK_FALLBACK_NOT_PREALLOCATED] = {"not-preallocated",
        "the file system has no fallocate: space is taken when blocks are written, so a disk that "
        "others fill makes stores fail"},
    [DISK_FALLBACK_SMALLER] = {"laid-out-smaller",
        "the file was laid out for a smaller max_bytes and stays as it is; to use all, stop and "
        "remove the file `blocks`"},
};
/* clang-format on */

void disk_fallback_enter(struct disk_fallback_set *set, enum disk_fallback which, int reason)
{
    set->reasons[which] = 1 - reason;
}

size_t disk_fallback_list(const struct disk_fallback_set *set, struct gpu_fallback *out, size_t max)
{
    size_t num_found = 0;

    for (size_t which = 0; which < NUM_DISK_FALLBACKS; which++) {
        if (set->reasons[which] == 0)
            continue;
        if (num_found < max)
            out[num_found] = (struct gpu_fallback){.name = fallback_texts[which].name,
                                                   .cost = fallback_texts[which].cost,
                                                   .reason = 1 - set->reasons[which]};
        num_found++;
    }
    return num_found;
}
