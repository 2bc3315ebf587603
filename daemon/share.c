/* daemon/share.c - counts, and what is promised of what is left. */
#include "daemon/share.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int share_init(struct share *share, uint32_t total, uint32_t max_payers)
{
    *share = (struct share){.total = total, .max_payers = max_payers};
    share->taken = calloc(max_payers, sizeof(*share->taken));
    share->is_member = calloc(max_payers, sizeof(*share->is_member));
    return share->taken && share->is_member ? 0 : -ENOMEM;
}

void share_finish(struct share *share)
{
    free(share->taken);
    free(share->is_member);
}

/* What of @payer's part it has not taken. */
static uint32_t promised_to(const struct share *share, pool_payer payer)
{
    if (payer >= share->max_payers || !share->is_member[payer] ||
        share->taken[payer] >= share->part)
        return 0;
    return share->part - share->taken[payer];
}

void share_divide(struct share *share, const bool *is_member, uint32_t num_payers)
{
    uint32_t num_members = 0;

    for (uint32_t payer = 0; payer < share->max_payers; payer++) {
        share->is_member[payer] = payer < num_payers && is_member[payer];
        num_members += share->is_member[payer];
    }
    share->part = num_members > 0 ? share->total / 2 / num_members : 0;
    share->num_promised = 0;
    for (uint32_t payer = 0; payer < share->max_payers; payer++)
        share->num_promised += promised_to(share, payer);
}

bool share_has(struct share *share, pool_payer payer, uint32_t count)
{
    uint64_t own = promised_to(share, payer);
    uint64_t others = share->num_promised - own;

    if ((uint64_t)share->num_taken + count <= share->total &&
        (count <= own || share->num_taken + others + count <= share->total))
        return true;
    share->num_refused++;
    return false;
}

static void change(struct share *share, pool_payer payer, int64_t by)
{
    share->num_promised -= promised_to(share, payer);
    share->num_taken = (uint32_t)(share->num_taken + by);
    if (payer < share->max_payers)
        share->taken[payer] = (uint32_t)(share->taken[payer] + by);
    share->num_promised += promised_to(share, payer);
}

void share_take(struct share *share, pool_payer payer, uint32_t count)
{
    assert(count <= share->total - share->num_taken);
    change(share, payer, count);
}

void share_give(struct share *share, pool_payer payer, uint32_t count)
{
    assert(count <= share->num_taken);
    assert(payer >= share->max_payers || count <= share->taken[payer]);
    change(share, payer, -(int64_t)count);
}

void share_check(const struct share *share)
{
    uint64_t num_promised = 0, num_taken = 0;

    for (uint32_t payer = 0; payer < share->max_payers; payer++) {
        num_promised += promised_to(share, payer);
        num_taken += share->taken[payer];
    }
    assert(num_promised == share->num_promised); /* S1 */
    assert(num_taken <= share->num_taken && share->num_taken <= share->total);
}
