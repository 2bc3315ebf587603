/* offload/queue.c - what threads hand to each other, with no lock. */
#include "offload/queue.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

void disk_list_push(struct disk_list *list, struct disk_item *item)
{
    item->next = NULL;
    if (list->tail)
        list->tail->next = item;
    else
        list->head = item;
    list->tail = item;
}

struct disk_item *disk_list_pop(struct disk_list *list)
{
    struct disk_item *item = list->head;

    if (!item)
        return NULL;
    list->head = item->next;
    if (!list->head)
        list->tail = NULL;
    return item;
}

void disk_event_set(int event_fd)
{
    static const uint64_t one = 1;
    (void)!write(event_fd, &one, sizeof(one));
}

void disk_event_clear(int event_fd)
{
    uint64_t count;
    (void)!read(event_fd, &count, sizeof(count));
}

void disk_queue_add(struct disk_queue *queue, struct disk_item *item)
{
    struct disk_item *newest = atomic_load_explicit(&queue->newest, memory_order_relaxed);

    do
        item->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&queue->newest, &newest, item,
                                                  memory_order_release, memory_order_relaxed));
    if (!newest)
        disk_event_set(queue->event_fd); /* Q1 */
}

void disk_queue_take(struct disk_queue *queue, struct disk_list *list)
{
    struct disk_item *item = atomic_exchange_explicit(&queue->newest, NULL, memory_order_acquire);
    struct disk_item *oldest = NULL;

    while (item) {
        struct disk_item *older = item->next;
        item->next = oldest;
        oldest = item;
        item = older;
    }
    while (oldest) {
        struct disk_item *newer = oldest->next;
        disk_list_push(list, oldest);
        oldest = newer;
    }
}

bool disk_queue_is_empty(const struct disk_queue *queue)
{
    return !atomic_load_explicit(&queue->newest, memory_order_relaxed);
}
