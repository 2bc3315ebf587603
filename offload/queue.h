/* offload/queue.h - internal: what threads hand to each other, with no lock. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

struct disk_item {
    struct disk_item *next;
    bool is_batch; /* of scanned headers; otherwise an operation */
};

struct disk_list {
    struct disk_item *head, *tail;
};

void disk_list_push(struct disk_list *list, struct disk_item *item);
struct disk_item *disk_list_pop(struct disk_list *list); /* NULL: empty */

/*
 * Every thread may add, one takes.
 *
 *  Q1  The event is set by whoever adds to an empty queue, and cleared only by the taker, before it
 *      takes all: so it is set while there is something the taker does not have.
 */
struct disk_queue {
    _Atomic(struct disk_item *) newest; /* linked to older ones; partners: add and take */
    int event_fd;                       /* -1: not there yet */
};

void disk_event_set(int event_fd);
void disk_event_clear(int event_fd);

void disk_queue_add(struct disk_queue *queue, struct disk_item *item);

/* Appends all to @list, oldest first. The caller has cleared the event (Q1). */
void disk_queue_take(struct disk_queue *queue, struct disk_list *list);
bool disk_queue_is_empty(const struct disk_queue *queue);
