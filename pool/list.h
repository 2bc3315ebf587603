/* pool/list.h - (internal) doubly linked lists of records in an array, linked by 32-bit index. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NONE UINT32_MAX

struct link {
    uint32_t prev, next;
};

struct list {
    uint32_t head, tail;
};

#define LIST_EMPTY ((struct list){NONE, NONE})

/* Where the link of record 0 lies, and how far it is to that of record 1. */
struct links {
    char *first;
    size_t stride;
};

#define LINKS(records, member) ((struct links){(char *)&(records)->member, sizeof(*(records))})

static inline struct link *link_at(struct links links, uint32_t id)
{
    return (struct link *)(links.first + (size_t)id * links.stride);
}

/* Puts @id before @next (NONE: at the tail). */
static inline void list_insert(struct list *list, struct links links, uint32_t id, uint32_t next)
{
    struct link *link = link_at(links, id);

    link->next = next;
    link->prev = next == NONE ? list->tail : link_at(links, next)->prev;
    *(link->prev == NONE ? &list->head : &link_at(links, link->prev)->next) = id;
    *(next == NONE ? &list->tail : &link_at(links, next)->prev) = id;
}

static inline void list_push_tail(struct list *list, struct links links, uint32_t id)
{
    list_insert(list, links, id, NONE);
}

static inline void list_push_head(struct list *list, struct links links, uint32_t id)
{
    list_insert(list, links, id, list->head);
}

/* Leaves the record's own link as it was, so that list_restore() can undo it. */
static inline void list_remove(struct list *list, struct links links, uint32_t id)
{
    const struct link *link = link_at(links, id);

    *(link->prev == NONE ? &list->head : &link_at(links, link->prev)->next) = link->next;
    *(link->next == NONE ? &list->tail : &link_at(links, link->next)->prev) = link->prev;
}

/* Undoes the last list_remove() that was not undone yet: removals are undone newest first. */
static inline void list_restore(struct list *list, struct links links, uint32_t id)
{
    const struct link *link = link_at(links, id);

    *(link->prev == NONE ? &list->head : &link_at(links, link->prev)->next) = id;
    *(link->next == NONE ? &list->tail : &link_at(links, link->next)->prev) = id;
}
