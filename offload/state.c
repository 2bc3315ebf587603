/* offload/state.c - what the ends of operations say about the disk, and how it is tried again.
 *
 * A disk that is not DISK_OK refuses at once what would fail, so that nobody waits for it, and is
 * probed by a real write and read now and then: one that comes back is used again. A probe says
 * nothing about space; after it the next write does.
 */
#include "offload/owner.h"

#include <errno.h>

static const uint32_t MAX_FAILURES = 8; /* in a row: one bad sector is not a bad disk */

/* clang-format off */
static const struct {
    const char *name;
    int refuses_writes, refuses_reads; /* with this errno, negative; 0: it does not */
} states[NUM_DISK_STATES] = {
    [DISK_OK]        = {"ok",        0,       0},
    [DISK_FULL]      = {"full",      -ENOSPC, 0},
    [DISK_READ_ONLY] = {"read-only", -EROFS,  0},
    [DISK_FAILING]   = {"failing",   -EIO,    -EIO},
};
/* clang-format on */

const char *disk_state_name(enum disk_state state)
{
    return (unsigned)state < NUM_DISK_STATES ? states[state].name : "unknown";
}

int disk_state_refuses(struct disk *disk, bool is_write)
{
    enum disk_state state = disk->stats.state;
    int err = is_write ? states[state].refuses_writes : states[state].refuses_reads;

    disk->stats.refused += err != 0;
    return err;
}

static void enter(struct disk *disk, enum disk_state state, int reason)
{
    if (disk->stats.state == state)
        return;
    disk->stats.state = state;
    disk->stats.state_reason = reason;
    disk->stats.state_changes++;
    disk->probed_ns = disk->now_ns;
}

void disk_state_note(struct disk *disk, int status, bool is_write)
{
    switch (status) {
    case 0:
        disk->num_failures = 0;
        break;
    case -ECANCELED:
    case -EBADMSG: /* the disk has answered */
        break;
    case -ENOSPC:
    case -EDQUOT:
        if (is_write)
            enter(disk, DISK_FULL, status);
        break;
    case -EROFS:
        enter(disk, DISK_READ_ONLY, status);
        break;
    default:
        if (++disk->num_failures >= MAX_FAILURES)
            enter(disk, DISK_FAILING, status);
    }
}

void disk_state_probe(struct disk *disk)
{
    uint64_t after_ns = (uint64_t)disk->options.probe_ms * 1000000;

    if (disk->stats.state == DISK_OK || disk->is_probing ||
        disk->now_ns < disk->probed_ns + after_ns)
        return;
    disk->is_probing = true;
    disk->probed_ns = disk->now_ns;
    disk->stats.probes++;
    disk->probe.kind = OP_PROBE;
    disk_lane_submit(&disk->lane, &disk->probe);
}

void disk_state_probed(struct disk *disk)
{
    disk->is_probing = false;
    if (disk->probe.status != 0)
        return;
    disk->num_failures = 0;
    enter(disk, DISK_OK, 0);
}
