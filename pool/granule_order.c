/* pool/granule_order.c - a payer's wholly unheld granules, ordered by their hottest block. */
#include "pool/granule_order.h"

/* A treap's heap order: fixed pseudo-random numbers of the granules. */
static uint32_t priority(uint32_t granule)
{
    uint64_t mixed = (granule + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

/* Splits @root into granules colder and hotter than @stamp. */
static void treap_split(struct granule *granules, uint32_t root, uint64_t stamp, uint32_t *out_cold,
                        uint32_t *out_hot)
{
    while (root != NONE) {
        if (granules[root].hottest < stamp) {
            *out_cold = root;
            out_cold = &granules[root].right;
            root = *out_cold;
        } else {
            *out_hot = root;
            out_hot = &granules[root].left;
            root = *out_hot;
        }
    }
    *out_cold = NONE;
    *out_hot = NONE;
}

static void treap_insert(struct granule *granules, uint32_t *root, uint32_t id)
{
    while (*root != NONE && priority(*root) >= priority(id))
        root = granules[*root].hottest < granules[id].hottest ? &granules[*root].right
                                                               : &granules[*root].left;
    treap_split(granules, *root, granules[id].hottest, &granules[id].left, &granules[id].right);
    *root = id;
}

static void treap_remove(struct granule *granules, uint32_t *root, uint32_t id)
{
    while (*root != id) {
        assert(*root != NONE);
        root = granules[*root].hottest < granules[id].hottest ? &granules[*root].right
                                                               : &granules[*root].left;
    }

    uint32_t cold = granules[id].left, hot = granules[id].right;
    while (cold != NONE && hot != NONE) { /* joins the two below, larger priority on top */
        if (priority(cold) >= priority(hot)) {
            *root = cold;
            root = &granules[cold].right;
            cold = *root;
        } else {
            *root = hot;
            root = &granules[hot].left;
            hot = *root;
        }
    }
    *root = cold != NONE ? cold : hot;
}

void granule_order_insert(struct pool *pool, struct granule_order *order, uint32_t id)
{
    struct granule *granules = pool->granules;
    struct granule *granule = &granules[id];
    struct links links = LINKS(granules, link);

    if (order->list.tail == NONE || granules[order->list.tail].hottest < granule->hottest) {
        granule->where = GRANULE_IN_LIST;
        list_push_tail(&order->list, links, id);
    } else if (granule->hottest < granules[order->list.head].hottest) {
        granule->where = GRANULE_IN_LIST;
        list_push_head(&order->list, links, id);
    } else {
        granule->where = GRANULE_IN_TREE;
        treap_insert(granules, &order->root, id);
    }
}

void granule_order_remove(struct pool *pool, struct granule_order *order, uint32_t id)
{
    struct granule *granule = &pool->granules[id];

    if (granule->where == GRANULE_IN_LIST)
        list_remove(&order->list, LINKS(pool->granules, link), id);
    else
        treap_remove(pool->granules, &order->root, id);
    granule->where = GRANULE_NOWHERE;
}

uint32_t granule_order_first(const struct pool *pool, const struct granule_order *order)
{
    uint32_t in_list = order->list.head, in_tree = order->root;

    if (in_tree == NONE)
        return in_list;
    while (pool->granules[in_tree].left != NONE)
        in_tree = pool->granules[in_tree].left;
    if (in_list == NONE || pool->granules[in_tree].hottest < pool->granules[in_list].hottest)
        return in_tree;
    return in_list;
}
