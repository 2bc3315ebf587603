/* tests/offload/faults.c - a script for the seam of struct disk_faults. */
#include "tests/offload/faults.h"

#include <sched.h>
#include <string.h>

/* Answers whether the rule is for this I/O, and uses it up. */
static bool hit(struct fault_rule *rule)
{
    int left = atomic_load(&rule->num_left);

    if (left == 0)
        return false;
    if (left > 0)
        atomic_fetch_sub(&rule->num_left, 1);
    atomic_fetch_add(&rule->num_hits, 1);
    return true;
}

static void flip(const struct disk_io *io, int bit)
{
    if (bit > 0 && (uint32_t)bit / 8 < io->bytes)
        ((uint8_t *)io->buffer)[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

static int begin(void *state, const struct disk_io *io)
{
    struct fault_rule *rule = &((struct faults *)state)->rules[io->kind][io->is_write];
    int answer = atomic_load(&rule->begin);

    if (answer == DISK_FAULT_HOLD && atomic_load(&rule->num_left) != 0) {
        atomic_fetch_add(&rule->num_hits, 1); /* once a look */
        return answer;
    }
    if (answer == DISK_FAULT_HOLD)
        return 0;
    if (answer != 0)
        return hit(rule) ? answer : 0;
    if (io->is_write && atomic_load(&rule->flip) > 0 && hit(rule))
        flip(io, atomic_load(&rule->flip));
    return 0;
}

static int end(void *state, const struct disk_io *io, int result)
{
    struct fault_rule *rule = &((struct faults *)state)->rules[io->kind][io->is_write];
    int short_by = atomic_load(&rule->short_by), status = atomic_load(&rule->end);

    if (status != 0 && hit(rule))
        return status;
    if (short_by > 0 && result > 0 && hit(rule))
        return result > short_by ? result - short_by : 0;
    if (!io->is_write && atomic_load(&rule->flip) > 0 && hit(rule))
        flip(io, atomic_load(&rule->flip));
    return result;
}

void faults_init(struct faults *faults)
{
    memset(faults, 0, sizeof(*faults));
    faults->hooks = (struct disk_faults){.state = faults, .begin = begin, .end = end};
}

struct fault_rule *faults_arm(struct faults *faults, enum disk_io_kind kind, bool is_write, int num)
{
    struct fault_rule *rule = &faults->rules[kind][is_write];

    atomic_store(&rule->num_hits, 0);
    atomic_store(&rule->num_left, num);
    return rule;
}

void faults_hold(struct faults *faults, enum disk_io_kind kind, bool is_write)
{
    atomic_store(&faults_arm(faults, kind, is_write, -1)->begin, DISK_FAULT_HOLD);
}

void faults_wait(const struct faults *faults, enum disk_io_kind kind, bool is_write)
{
    while (atomic_load(&faults->rules[kind][is_write].num_hits) == 0)
        (void)sched_yield();
}

void faults_clear(struct faults *faults)
{
    for (int kind = 0; kind < 4; kind++) {
        for (int is_write = 0; is_write < 2; is_write++) {
            struct fault_rule *rule = &faults->rules[kind][is_write];
            atomic_store(&rule->num_left, 0);
            atomic_store(&rule->begin, 0);
            atomic_store(&rule->end, 0);
            atomic_store(&rule->short_by, 0);
            atomic_store(&rule->flip, 0);
        }
    }
}
