/* offload/host.c - the host tier: a host device whose memory is interleaved and pinned.
 *
 * Both are done through the daemon's mapping of an arena. Interleaving is a policy of the file, set
 * before it has memory. Pinning is mlock2(MLOCK_ONFAULT) of a granule that has just got its memory:
 * it locks the pages that are there and makes none, so that it cannot take from the machine what
 * the budget does not count. The mapping stays locked where a granule lost its memory, unless it is
 * unlocked, and would count against the limit.
 */
#include "offload/host.h"

#include "offload/host_syscalls.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    MAX_NODES = 1024,
    WORD_BITS = 8 * sizeof(unsigned long),
    COST_BYTES = 320,
};

static const uint64_t DEFAULT_CHUNK_BYTES = 64 << 20;

struct host_tier {
    const struct host_tier_syscalls *system;
    struct host_tier_options options;
    struct gpu_memory_hook hook;
    struct gpu_device *device;
    unsigned long nodes[MAX_NODES / WORD_BITS];
    uint32_t num_nodes;
    int interleave_reason;  /* as is the next 0: no fallback; 1 - reason */
    _Atomic int pin_reason; /* set by the memory lane, after @pin_cost */
    char pin_cost[COST_BYTES];
    _Atomic uint64_t pinned_bytes, pin_refusals;
};

/* --- pinning: in the memory lane of the device --- */

static void say_not_pinned(struct host_tier *tier, int reason)
{
    struct rlimit limit = {0};
    char text[32] = "unlimited";

    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        (void)snprintf(text, sizeof(text), "%" PRIu64 " bytes", (uint64_t)limit.rlim_cur);
    (void)snprintf(tier->pin_cost, sizeof(tier->pin_cost),
                   "memory is not pinned (RLIMIT_MEMLOCK is %s): it can be swapped out, and a GPU "
                   "copies it by way of a buffer; raise the limit to the size of the tier "
                   "(LimitMEMLOCK= of the systemd unit, --ulimit memlock= of a container, ulimit "
                   "-l) or give CAP_IPC_LOCK",
                   text);
    atomic_store_explicit(&tier->pin_reason, 1 - reason, memory_order_release);
}

static void pin(struct host_tier *tier, char *address, uint64_t bytes)
{
    uint64_t chunk = tier->options.chunk_bytes;

    if (atomic_load_explicit(&tier->pin_reason, memory_order_relaxed) != 0)
        return;
    for (uint64_t at = 0; at < bytes; at += chunk) {
        uint64_t part = bytes - at < chunk ? bytes - at : chunk;
        if (tier->system->mlock2(address + at, part, MLOCK_ONFAULT) != 0) {
            int reason = -errno;
            (void)tier->system->munlock(address, bytes); /* all of it or nothing */
            atomic_fetch_add(&tier->pin_refusals, 1);
            say_not_pinned(tier, reason);
            return;
        }
    }
    atomic_fetch_add(&tier->pinned_bytes, bytes);
}

static void unpin(struct host_tier *tier, char *address, uint64_t bytes)
{
    uint64_t pinned = atomic_load(&tier->pinned_bytes);

    if (pinned == 0)
        return;
    if (address) /* otherwise its mapping goes away */
        (void)tier->system->munlock(address, bytes);
    atomic_store(&tier->pinned_bytes, pinned > bytes ? pinned - bytes : 0);
}

static void memory_changed(void *state, void *address, uint64_t bytes, bool has_memory)
{
    if (has_memory)
        pin(state, address, bytes);
    else
        unpin(state, address, bytes);
}

/* --- the owner's side --- */

static void find_nodes(struct host_tier *tier)
{
    tier->num_nodes = 1;
    if (tier->options.without_interleave) {
        tier->interleave_reason = 1;
        return;
    }
    int num = tier->system->nodes(tier->nodes, MAX_NODES);
    if (num < 0)
        tier->interleave_reason = 1 + errno;
    else if (num > 1)
        tier->num_nodes = (uint32_t)num;
}

int host_tier_create_with(const struct host_tier_options *options,
                          const struct host_tier_syscalls *system, struct host_tier **out_tier)
{
    struct host_tier *tier = calloc(1, sizeof(*tier));
    if (!tier)
        return -ENOMEM;

    tier->system = system;
    tier->options = *options;
    if (tier->options.chunk_bytes == 0)
        tier->options.chunk_bytes = DEFAULT_CHUNK_BYTES;
    find_nodes(tier);
    if (options->without_pin) {
        say_not_pinned(tier, 0);
    } else if (system->may_lock && system->may_lock(options->device.budget_bytes) != 0) {
        say_not_pinned(tier, -errno); /* at the start, and not when there is load */
        atomic_fetch_add(&tier->pin_refusals, 1);
    }
    tier->hook = (struct gpu_memory_hook){.state = tier, .changed = memory_changed};
    tier->options.device.memory_hook = &tier->hook;
    int err = options->mount_fd
                  ? gpu_device_adopt(&tier->options.device, *options->mount_fd, &tier->device)
                  : gpu_device_create(&tier->options.device, &tier->device);
    if (err) {
        host_tier_destroy(tier);
        return err;
    }
    *out_tier = tier;
    return 0;
}

int host_tier_create(const struct host_tier_options *options, struct host_tier **out_tier)
{
    return host_tier_create_with(options, &host_tier_syscalls, out_tier);
}

void host_tier_destroy(struct host_tier *tier)
{
    if (!tier)
        return;
    gpu_device_destroy(tier->device);
    free(tier);
}

struct gpu_device *host_tier_device(const struct host_tier *tier)
{
    return tier->device;
}

int host_tier_arena_open(struct host_tier *tier, uint32_t arena,
                         const struct gpu_arena_options *options)
{
    int err = gpu_arena_open(tier->device, arena, options);
    if (err || tier->num_nodes == 1)
        return err;

    uint64_t bytes =
        (uint64_t)options->max_granules * options->granule.pages * tier->options.device.page_bytes;
    if (tier->system->mbind(gpu_arena_base(tier->device, arena), bytes, MPOL_INTERLEAVE,
                            tier->nodes, MAX_NODES, 0) != 0) {
        tier->interleave_reason = 1 + errno;
        tier->num_nodes = 1; /* nothing more is tried */
    }
    return 0;
}

void host_tier_stats(const struct host_tier *tier, struct host_tier_stats *out_stats)
{
    *out_stats = (struct host_tier_stats){
        .pinned_bytes = atomic_load(&tier->pinned_bytes),
        .pin_refusals = atomic_load(&tier->pin_refusals),
        .num_nodes = tier->num_nodes,
    };
}

size_t host_tier_fallbacks(const struct host_tier *tier, struct gpu_fallback *out, size_t max)
{
    static const char interleave_cost[] =
        "memory is not interleaved over NUMA nodes (mbind or get_mempolicy is refused; in a "
        "container give CAP_SYS_NICE): it comes from the node that the daemon runs on until that "
        "is full; start it with numactl --interleave=all";
    int pin_reason = atomic_load_explicit(&tier->pin_reason, memory_order_acquire);
    const struct gpu_fallback own[] = {
        {.name = "host-not-pinned", .cost = tier->pin_cost, .reason = 1 - pin_reason},
        {.name = "host-not-interleaved",
         .cost = interleave_cost,
         .reason = 1 - tier->interleave_reason},
    };
    const bool is_in[] = {pin_reason != 0, tier->interleave_reason != 0};
    size_t num = 0;

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (is_in[i] && num < max)
            out[num] = own[i];
        num += is_in[i];
    }
    return num + gpu_device_fallbacks(tier->device, num < max ? out + num : NULL,
                                      num < max ? max - num : 0);
}
