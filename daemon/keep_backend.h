/* daemon/keep_backend.h - internal to keep: what its two kinds of keeper share. */
#pragma once

#include "daemon/keep.h"

#include <sys/types.h>

enum item_state {
    ITEM_FREE,
    ITEM_WAITS,   /* to be sent */
    ITEM_SENT,    /* its answer is awaited */
    ITEM_ASKED,   /* systemd: the barrier behind it is under way */
    ITEM_KEPT,    /* K1 */
    ITEM_REFUSED, /* the keeper would not take it */
    ITEM_LEAVING  /* removed; the keeper is still to be told */
};

struct keep_entry {
    struct keep_item item;
    enum item_state state;
    uint64_t number; /* items count up in the order in which they were added */
};

struct keep {
    const struct keep_backend *backend; /* NULL: none */
    struct keep_options options;
    char *directory;
    struct keep_entry *entries;
    struct keep_item *taken;
    size_t num_taken;
    uint64_t last_number;
    uint32_t num_waits, num_leaving;
    int epoll_fd;
    int fd; /* what is watched: a holder's connection, or a barrier; -1: none */
    bool is_lost;
    int reason; /* why: negative errno */
    uint64_t next_try_ms, now_ms;
    pid_t holder;    /* if it is our child; else 0 */
    uint32_t max_fd; /* systemd: items that its store has room for; 0: not known */
    struct keep_counters counters;
};

/* One kind of keeper. Each returns 0 or a negative errno. */
struct keep_backend {
    enum keep_kind kind;
    const char *fallback; /* the cost of being without it */
    /* Finds the keeper. @is_first: takes what it has; else it is to drop that. */
    int (*open)(struct keep *keep, bool is_first);
    /* -EAGAIN: later. -EPIPE: it is gone. Anything else: this item is refused. */
    int (*send)(struct keep *keep, struct keep_entry *entry);
    int (*drop)(struct keep *keep, const struct keep_entry *entry); /* -EAGAIN: later */
    void (*flush)(struct keep *keep);                               /* after items were sent */
    int (*ready)(struct keep *keep); /* takes answers. -EPIPE: it is gone */
    int (*forget)(struct keep *keep);
    int (*forget_left)(const char *directory); /* what an earlier daemon left; none: 0 */
};

extern const struct keep_backend keep_systemd, keep_holder;

/* An item that came from the keeper: it is kept. -ENOSPC: no room. */
int keep_take_item(struct keep *keep, const char *name, int fd);
void keep_answer(struct keep *keep, uint32_t index, uint64_t number, int status);
int keep_watch(struct keep *keep, int fd); /* in place of what was watched, which is closed */
