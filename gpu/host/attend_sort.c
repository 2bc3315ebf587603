/* gpu/host/attend_sort.c - sorts in place: qsort() of glibc allocates for more than 1 KiB. */
#include "gpu/host/attend_plan.h"

#include <assert.h>
#include <string.h>

enum { MAX_ITEM = 64 };

struct sorting {
    char *items;
    size_t bytes; /* of an item */
    plan_compare *compare;
    const void *arg;
};

static char *item_at(const struct sorting *sorting, size_t i)
{
    return sorting->items + i * sorting->bytes;
}

static int compare_items(const struct sorting *sorting, size_t i, size_t j)
{
    return sorting->compare(item_at(sorting, i), item_at(sorting, j), sorting->arg);
}

static void swap_items(const struct sorting *sorting, size_t i, size_t j)
{
    char kept[MAX_ITEM];

    memcpy(kept, item_at(sorting, i), sorting->bytes);
    memcpy(item_at(sorting, i), item_at(sorting, j), sorting->bytes);
    memcpy(item_at(sorting, j), kept, sorting->bytes);
}

/* Makes [root, num) a heap, largest on top, that is one but for its root. */
static void sift_down(const struct sorting *sorting, size_t root, size_t num)
{
    for (size_t child; (child = 2 * root + 1) < num; root = child) {
        if (child + 1 < num && compare_items(sorting, child, child + 1) < 0)
            child++;
        if (compare_items(sorting, root, child) >= 0)
            return;
        swap_items(sorting, root, child);
    }
}

void plan_sort(void *items, size_t num, size_t bytes, plan_compare *compare, const void *arg)
{
    const struct sorting sorting = {items, bytes, compare, arg};

    assert(bytes <= MAX_ITEM);
    for (size_t i = num / 2; i-- > 0;)
        sift_down(&sorting, i, num);
    for (size_t n = num; n-- > 1;) {
        swap_items(&sorting, 0, n);
        sift_down(&sorting, 0, n);
    }
}
