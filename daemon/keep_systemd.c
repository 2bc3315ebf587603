/*
 * daemon/keep_systemd.c - systemd's descriptor store as the keeper.
 *
 * It does not say what it took. But it closes the descriptor of a barrier when it is done with all
 * that was said before, and since 254 it says at start how many descriptors it has room for.
 */
#include "daemon/hold.h"
#include "daemon/keep_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { FORGET_MS = 2000 };

static int systemd_open(struct keep *keep, bool is_first)
{
    const char *room = getenv("FDSTORE");
    uint32_t max = keep->options.max_items;

    if (!getenv("NOTIFY_SOCKET"))
        return -ENOENT;
    keep->max_fd = room ? (uint32_t)strtoul(room, NULL, 10) : 0;
    if (!is_first)
        return 0;
    int *fds = calloc(max, sizeof(*fds));
    char(*names)[NOTIFY_MAX_NAME] = calloc(max, sizeof(*names));
    size_t count = fds && names ? notify_take(fds, names, max) : 0;
    for (size_t i = 0; i < count; i++) {
        if (keep_take_item(keep, names[i], fds[i]))
            (void)close(fds[i]);
    }
    int err = fds && names ? 0 : -ENOMEM;
    free(fds);
    free(names);
    return err;
}

static int systemd_send(struct keep *keep, struct keep_entry *entry)
{
    if (keep->max_fd > 0 && keep->counters.items - keep->counters.refused > keep->max_fd)
        return -ENOSPC;
    return notify_store(entry->item.name, &entry->item.fd, 1);
}

static int systemd_drop(struct keep *keep, const struct keep_entry *entry)
{
    (void)keep;
    return notify_forget(entry->item.name);
}

/* One barrier at a time; what is sent meanwhile is behind the next one. */
static void systemd_flush(struct keep *keep)
{
    int fd;
    bool is_any = false;

    for (uint32_t i = 0; keep->fd < 0 && !is_any && i < keep->options.max_items; i++)
        is_any = keep->entries[i].state == ITEM_SENT;
    if (!is_any || notify_barrier(&fd) != 0)
        return; /* tried again in a second */
    if (keep_watch(keep, fd) != 0) {
        (void)close(fd);
        return;
    }
    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        if (keep->entries[i].state == ITEM_SENT)
            keep->entries[i].state = ITEM_ASKED; /* as open as it was: no counter changes */
    }
}

static int systemd_ready(struct keep *keep)
{
    struct pollfd event = {.fd = keep->fd};

    if (keep->fd < 0 || poll(&event, 1, 0) == 0)
        return 0;
    (void)keep_watch(keep, -1);
    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        struct keep_entry *entry = &keep->entries[i];
        if (entry->state != ITEM_ASKED)
            continue;
        entry->state = ITEM_SENT;
        keep_answer(keep, i, entry->number, 0);
    }
    return 0;
}

static int name_forget(const char *name)
{
    int err = -EAGAIN;

    for (int tries = 0; err == -EAGAIN && tries < FORGET_MS / 10; tries++) {
        err = notify_forget(name);
        if (err == -EAGAIN)
            (void)poll(NULL, 0, 10);
    }
    return err;
}

static int barrier_await(void)
{
    int fd, err = notify_barrier(&fd);

    if (err)
        return err;
    struct pollfd event = {.fd = fd};
    err = poll(&event, 1, FORGET_MS) == 1 ? 0 : -ETIMEDOUT;
    (void)close(fd);
    return err;
}

static int systemd_forget(struct keep *keep)
{
    int err = 0;

    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        if (keep->entries[i].state != ITEM_FREE)
            err = name_forget(keep->entries[i].item.name);
    }
    return err ? err : barrier_await();
}

/* It handed them to this process at its start, which a daemon with another keeper did not look at.
 */
static int systemd_forget_left(const char *directory)
{
    int *fds = calloc(HOLD_MAX_ITEMS, sizeof(*fds));
    char(*names)[NOTIFY_MAX_NAME] = calloc(HOLD_MAX_ITEMS, sizeof(*names));
    size_t count = fds && names ? notify_take(fds, names, HOLD_MAX_ITEMS) : 0;
    int err = fds && names ? 0 : -ENOMEM;

    (void)directory; /* a service has one */
    for (size_t i = 0; i < count; i++) {
        int answer = notify_is_name(names[i]) ? name_forget(names[i]) : 0; /* else not ours */
        err = err ? err : answer;
        (void)close(fds[i]);
    }
    free(fds);
    free(names);
    return err || count == 0 ? err : barrier_await();
}

const struct keep_backend keep_systemd = {
    .kind = KEEP_SYSTEMD,
    .fallback =
        "there is no service manager to keep this daemon's memory (NOTIFY_SOCKET is not "
        "set; the setting `keep: holder` does without): what is cached is lost when it ends",
    .open = systemd_open,
    .send = systemd_send,
    .drop = systemd_drop,
    .flush = systemd_flush,
    .ready = systemd_ready,
    .forget = systemd_forget,
    .forget_left = systemd_forget_left,
};
