/*
 * gpu/host/attend_share.c - turns rows into tasks; finds prefixes that sequences share.
 *
 * Tables are sorted block by block, as words in a dictionary: sequences with the same first block
 * are neighbours, and the stretch that all of a run of neighbours share becomes one task for the
 * rows of all of them. Then the run is sorted by the block after the stretch, and so on.
 */
#include "gpu/host/attend_plan.h"

#include <errno.h>

/* Tasks over [begin, end) of the first one's table for the rows of @num sequences in order. */
static int add_tasks(struct gpu_step_plan *plan, uint32_t first, uint32_t num, uint32_t begin,
                     uint32_t end)
{
    uint32_t max_rows = plan_rows_per_task(plan), num_rows = 0;
    struct plan_entry *rows = plan->gathered;
    char *const *blocks = plan->sequences[plan->order[first]].blocks;

    for (uint32_t n = 0; n < num; n++) {
        const struct plan_sequence *sequence = &plan->sequences[plan->order[first + n]];
        for (uint32_t row = 0; row < sequence->num_rows; row++) {
            rows[num_rows++].row = sequence->first_row + row;
            if (num_rows < max_rows)
                continue;
            int err = plan_add_task(plan, blocks, begin, end, rows, num_rows);
            if (err)
                return err;
            num_rows = 0;
        }
    }
    return num_rows ? plan_add_task(plan, blocks, begin, end, rows, num_rows) : 0;
}

struct by_block {
    const struct gpu_step_plan *plan;
    uint32_t depth;
};

/* 0: the sequence ends before block @depth; 1 is the null block. */
static uintptr_t block_at(const struct gpu_step_plan *plan, uint32_t number, uint32_t depth)
{
    const struct plan_sequence *sequence = &plan->sequences[number];

    if (depth >= sequence->num_blocks)
        return 0;
    return (uintptr_t)sequence->blocks[depth] | 1; /* blocks are never at odd addresses */
}

static int compare_block(const void *a, const void *b, const void *arg)
{
    const struct by_block *by = arg;
    uintptr_t left = block_at(by->plan, *(const uint32_t *)a, by->depth);
    uintptr_t right = block_at(by->plan, *(const uint32_t *)b, by->depth);

    return (left > right) - (left < right);
}

/* How many leading blocks all of @num sequences in order have in common, @depth known to be. */
static uint32_t common_depth(const struct gpu_step_plan *plan, uint32_t first, uint32_t num,
                             uint32_t depth)
{
    const struct plan_sequence *leader = &plan->sequences[plan->order[first]];
    uint32_t common = leader->num_blocks;

    for (uint32_t n = 1; n < num; n++) {
        const struct plan_sequence *other = &plan->sequences[plan->order[first + n]];
        uint32_t d = depth;
        while (d < common && d < other->num_blocks && other->blocks[d] == leader->blocks[d])
            d++;
        common = d;
    }
    return common;
}

/*
 * Tasks for @num sequences in order that share their first @depth blocks; up to position @begin
 * they have theirs already. Recursion is as deep as prefixes branch off prefixes.
 */
static int share(struct gpu_step_plan *plan, uint32_t first, uint32_t num, uint32_t depth,
                 uint32_t begin)
{
    struct by_block by = {plan, depth};
    uint32_t run;
    int err = 0;

    plan_sort(plan->order + first, num, sizeof(*plan->order), compare_block, &by);
    for (uint32_t n = 0; n < num && !err; n += run) {
        uintptr_t block = block_at(plan, plan->order[first + n], depth);
        for (run = 1; n + run < num; run++)
            if (block_at(plan, plan->order[first + n + run], depth) != block)
                break;
        if (block == 0)
            run = 1; /* nothing further to share: each on its own */
        if (run == 1) {
            err = add_tasks(plan, first + n, 1, begin, UINT32_MAX);
            continue;
        }
        uint32_t deeper = common_depth(plan, first + n, run, depth + 1);
        uint32_t end = deeper * plan->shape.block_tokens, next = begin;
        if (end - begin >= PLAN_SHARE_TOKENS) {
            err = add_tasks(plan, first + n, run, begin, end);
            next = end;
        }
        if (!err)
            err = share(plan, first + n, run, deeper, next);
    }
    return err;
}

int plan_share(struct gpu_step_plan *plan, bool is_shared)
{
    uint32_t num = 0, num_alone = plan->num_sequences;

    /* Those that may share go to the front of the order, the others to its end. */
    for (uint32_t i = 0; i < plan->num_sequences; i++) {
        uint32_t num_rows = plan->sequences[i].num_rows;
        if (is_shared && num_rows > 0 && num_rows <= PLAN_SHARE_ROWS)
            plan->order[num++] = i;
        else
            plan->order[--num_alone] = i;
    }
    int err = num > 0 ? share(plan, 0, num, 0, 0) : 0;
    for (uint32_t i = num_alone; i < plan->num_sequences && !err; i++)
        err = add_tasks(plan, i, 1, 0, UINT32_MAX);
    return err;
}
