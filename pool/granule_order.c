/* pool/granule_order.c - a payer's wholly unheld granules, ordered by their hottest block. */
#include "pool/granule_order.h"

/* A treap's heap order: fixed pseudo-random numbers of the granules. */
static uint32_t priority(uint32_t granule)
{
    uint64_t mixed = (granule + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

/* Splits @root into granules colder and hotter than @stamp. */
static void treap_split(struct slot *slots, uint32_t root, uint64_t stamp, uint32_t *out_cold,
                        uint32_t *out_hot)
{
    while (root != NONE) {
        if (slots[root].first_of.hottest < stamp) {
            *out_cold = root;
            out_cold = &slots[root].first_of.right;
            root = *out_cold;
        } else {
            *out_hot = root;
            out_hot = &slots[root].first_of.left;
            root = *out_hot;
        }
    }
    *out_cold = NONE;
    *out_hot = NONE;
}

/* The link of @root behind which @id stands or would stand. */
static uint32_t *treap_side(struct slot *slots, uint32_t root, uint32_t id)
{
    struct granule *granule = &slots[root].first_of;

    return granule->hottest < slots[id].first_of.hottest ? &granule->right : &granule->left;
}

static void treap_insert(struct slot *slots, uint32_t *root, uint32_t id)
{
    while (*root != NONE && priority(*root) >= priority(id))
        root = treap_side(slots, *root, id);
    treap_split(slots, *root, slots[id].first_of.hottest, &slots[id].first_of.left,
                &slots[id].first_of.right);
    *root = id;
}

static void treap_remove(struct slot *slots, uint32_t *root, uint32_t id)
{
    while (*root != id) {
        assert(*root != NONE);
        root = treap_side(slots, *root, id);
    }

    uint32_t cold = slots[id].first_of.left, hot = slots[id].first_of.right;
    while (cold != NONE && hot != NONE) { /* joins the two below, larger priority on top */
        if (priority(cold) >= priority(hot)) {
            *root = cold;
            root = &slots[cold].first_of.right;
            cold = *root;
        } else {
            *root = hot;
            root = &slots[hot].first_of.left;
            hot = *root;
        }
    }
    *root = cold != NONE ? cold : hot;
}

enum { MAX_STEPS = 8 }; /* from a neighbour to where a granule belongs */

/* Puts @id into the list a few steps from @near. False: it does not belong there. */
static bool insert_near(struct pool *pool, struct granule_order *order, uint32_t id, uint32_t near)
{
    struct slot *slots = pool->slots;
    uint64_t hottest = slots[id].first_of.hottest;
    uint32_t next = near, num_steps = MAX_STEPS;

    if (near == NONE || slots[near].first_of.where != GRANULE_IN_LIST)
        return false;
    while (next != NONE && slots[next].first_of.hottest < hottest && num_steps-- > 0)
        next = slots[next].first_of.link.next;
    while (next != NONE && slots[next].first_of.link.prev != NONE &&
           slots[slots[next].first_of.link.prev].first_of.hottest > hottest && num_steps-- > 0)
        next = slots[next].first_of.link.prev;
    uint32_t prev = next == NONE ? order->list.tail : slots[next].first_of.link.prev;
    if ((next != NONE && slots[next].first_of.hottest < hottest) ||
        (prev != NONE && slots[prev].first_of.hottest > hottest))
        return false;
    list_insert(&order->list, LINKS(slots, first_of.link), id, next);
    slots[id].first_of.where = GRANULE_IN_LIST;
    return true;
}

void granule_order_insert(struct pool *pool, struct granule_order *order, uint32_t id,
                          uint32_t near)
{
    struct slot *slots = pool->slots;
    struct granule *granule = &slots[id].first_of;
    struct links links = LINKS(slots, first_of.link);

    if (order->list.tail == NONE || slots[order->list.tail].first_of.hottest < granule->hottest) {
        granule->where = GRANULE_IN_LIST;
        list_push_tail(&order->list, links, id);
    } else if (granule->hottest < slots[order->list.head].first_of.hottest) {
        granule->where = GRANULE_IN_LIST;
        list_push_head(&order->list, links, id);
    } else if (!insert_near(pool, order, id, near)) {
        granule->where = GRANULE_IN_TREE;
        treap_insert(slots, &order->root, id);
    }
}

void granule_order_remove(struct pool *pool, struct granule_order *order, uint32_t id)
{
    struct granule *granule = &pool->slots[id].first_of;

    if (granule->where == GRANULE_IN_LIST)
        list_remove(&order->list, LINKS(pool->slots, first_of.link), id);
    else
        treap_remove(pool->slots, &order->root, id);
    granule->where = GRANULE_NOWHERE;
}

uint32_t granule_order_first(const struct pool *pool, const struct granule_order *order)
{
    uint32_t in_list = order->list.head, in_tree = order->root;

    if (in_tree == NONE)
        return in_list;
    while (pool->slots[in_tree].first_of.left != NONE)
        in_tree = pool->slots[in_tree].first_of.left;
    if (in_list == NONE ||
        pool->slots[in_tree].first_of.hottest < pool->slots[in_list].first_of.hottest)
        return in_tree;
    return in_list;
}
