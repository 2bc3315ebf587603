/* daemon/keep.c - what is kept, by number and state, whoever keeps it. */
#include "daemon/keep_backend.h"
#include "gpu/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RETRY_MS = 1000 };

/* ---- life ----------------------------------------------------------------------------------- */

/* systemd says since 254 how many its store takes, and before it only that it runs us. */
static bool has_store(void)
{
    const char *room = getenv("FDSTORE"), *pid = getenv("SYSTEMD_EXEC_PID");

    if (!getenv("NOTIFY_SOCKET"))
        return false;
    if (room)
        return strtol(room, NULL, 10) > 0;
    return pid && strtol(pid, NULL, 10) == (long)getpid();
}

static const struct keep_backend *backend_of(enum keep_kind kind)
{
    if (kind == KEEP_AUTO)
        kind = has_store() ? KEEP_SYSTEMD : KEEP_HOLDER;
    if (kind == KEEP_NONE)
        return NULL;
    return kind == KEEP_SYSTEMD ? &keep_systemd : &keep_holder;
}

int keep_create(const struct keep_options *options, struct keep **out_keep)
{
    struct keep *keep = calloc(1, sizeof(*keep));
    if (!keep)
        return -ENOMEM;

    int err = -ENOMEM;
    keep->options = *options;
    keep->backend = backend_of(options->kind);
    keep->fd = -1;
    keep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (keep->epoll_fd < 0) {
        err = -errno;
        goto fail;
    }
    keep->directory = strdup(options->directory);
    keep->entries = calloc(options->max_items, sizeof(*keep->entries));
    keep->taken = calloc(options->max_items, sizeof(*keep->taken));
    if (!keep->directory || !keep->entries || !keep->taken)
        goto fail;
    err = keep->backend ? keep->backend->open(keep, true) : 0;
    if (err == -EBUSY || err == -EINVAL || err == -ENOMEM)
        goto fail;
    keep->is_lost = err != 0;
    keep->reason = err;
    *out_keep = keep;
    return 0;

fail:
    for (size_t i = 0; i < keep->num_taken; i++)
        (void)close(keep->taken[i].fd);
    keep_destroy(keep);
    return err;
}

void keep_destroy(struct keep *keep)
{
    if (!keep)
        return;
    (void)keep_watch(keep, -1);
    if (keep->epoll_fd >= 0)
        (void)close(keep->epoll_fd);
    free(keep->directory);
    free(keep->entries);
    free(keep->taken);
    free(keep);
}

enum keep_kind keep_kind(const struct keep *keep)
{
    return keep->backend ? keep->backend->kind : KEEP_NONE;
}

const struct keep_item *keep_taken(const struct keep *keep, size_t *out_count)
{
    *out_count = keep->num_taken;
    return keep->taken;
}

int keep_watch(struct keep *keep, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (keep->fd >= 0)
        (void)close(keep->fd); /* which ends the watch */
    keep->fd = -1;
    if (fd < 0)
        return 0;
    if (epoll_ctl(keep->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    keep->fd = fd;
    return 0;
}

/* ---- entries -------------------------------------------------------------------------------- */

static bool is_open(enum item_state state)
{
    return state == ITEM_WAITS || state == ITEM_SENT || state == ITEM_ASKED;
}

/* Every change of state comes by here: the counters follow. */
static void entry_set(struct keep *keep, struct keep_entry *entry, enum item_state state)
{
    enum item_state before = entry->state;

    keep->num_waits += (state == ITEM_WAITS) - (before == ITEM_WAITS);
    keep->num_leaving += (state == ITEM_LEAVING) - (before == ITEM_LEAVING);
    keep->counters.waiting += (uint64_t)is_open(state) - is_open(before);
    keep->counters.refused += (uint64_t)(state == ITEM_REFUSED) - (before == ITEM_REFUSED);
    entry->state = state;
}

/* NULL as @name: a free one. */
static struct keep_entry *entry_find(struct keep *keep, const char *name)
{
    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        struct keep_entry *entry = &keep->entries[i];
        bool is_used = entry->state != ITEM_FREE && entry->state != ITEM_LEAVING;
        if (name ? is_used && strcmp(entry->item.name, name) == 0 : entry->state == ITEM_FREE)
            return entry;
    }
    return NULL;
}

static void entry_fill(struct keep *keep, struct keep_entry *entry, const char *name, int fd,
                       enum item_state state)
{
    memset(entry->item.name, 0, sizeof(entry->item.name));
    memcpy(entry->item.name, name, strnlen(name, KEEP_MAX_NAME - 1));
    entry->item.fd = fd;
    entry->number = ++keep->last_number;
    entry_set(keep, entry, state);
    keep->counters.items++;
}

int keep_take_item(struct keep *keep, const char *name, int fd)
{
    struct keep_entry *entry = entry_find(keep, NULL);

    if (!entry || keep->num_taken == keep->options.max_items)
        return -ENOSPC;
    entry_fill(keep, entry, name, fd, ITEM_KEPT);
    keep->taken[keep->num_taken++] = entry->item;
    keep->counters.taken++;
    return 0;
}

void keep_answer(struct keep *keep, uint32_t index, uint64_t number, int status)
{
    if (index >= keep->options.max_items)
        return;
    struct keep_entry *entry = &keep->entries[index];
    if (entry->number != number || entry->state != ITEM_SENT)
        return; /* it was removed meanwhile */
    entry_set(keep, entry, status ? ITEM_REFUSED : ITEM_KEPT);
    if (status)
        keep->reason = status;
}

/* ---- handing over --------------------------------------------------------------------------- */

/* Whatever it had or was told, another one will not know of. */
static void keeper_lost(struct keep *keep, int reason)
{
    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        struct keep_entry *entry = &keep->entries[i];
        if (entry->state != ITEM_FREE)
            entry_set(keep, entry, entry->state == ITEM_LEAVING ? ITEM_FREE : ITEM_WAITS);
    }
    (void)keep_watch(keep, -1);
    keep->is_lost = true;
    keep->reason = reason;
    keep->counters.keepers_lost++;
}

/* Returns false if the keeper takes no more now, or is gone. */
static bool entry_push(struct keep *keep, struct keep_entry *entry)
{
    int err;

    if (entry->state == ITEM_LEAVING) {
        err = keep->backend->drop(keep, entry);
        if (err == -EAGAIN)
            return false;
        entry_set(keep, entry, ITEM_FREE);
        return true;
    }
    if (entry->state != ITEM_WAITS)
        return true;
    err = keep->backend->send(keep, entry);
    if (err == -EAGAIN)
        return false;
    if (err == -EPIPE) {
        keeper_lost(keep, err);
        return false;
    }
    entry_set(keep, entry, err ? ITEM_REFUSED : ITEM_SENT);
    if (err)
        keep->reason = err;
    return true;
}

/* Those that leave go first: a name may be given anew. */
static void push_all(struct keep *keep)
{
    bool goes_on = true;

    for (uint32_t i = 0; goes_on && keep->num_leaving > 0 && i < keep->options.max_items; i++) {
        if (keep->entries[i].state == ITEM_LEAVING)
            goes_on = entry_push(keep, &keep->entries[i]);
    }
    for (uint32_t i = 0; goes_on && keep->num_waits > 0 && i < keep->options.max_items; i++)
        goes_on = entry_push(keep, &keep->entries[i]);
    if (!keep->is_lost)
        keep->backend->flush(keep);
}

int keep_add(struct keep *keep, const char *name, int fd)
{
    if (!notify_is_name(name))
        return -EINVAL;
    if (entry_find(keep, name))
        return -EEXIST;
    struct keep_entry *entry = entry_find(keep, NULL);
    if (!entry)
        return -ENOSPC;
    entry_fill(keep, entry, name, fd, keep->backend ? ITEM_WAITS : ITEM_KEPT);
    if (keep->backend && !keep->is_lost)
        push_all(keep);
    return 0;
}

void keep_remove(struct keep *keep, const char *name)
{
    struct keep_entry *entry = entry_find(keep, name);

    if (!entry)
        return;
    bool is_known = keep->backend && !keep->is_lost && entry->state != ITEM_WAITS;
    entry_set(keep, entry, is_known ? ITEM_LEAVING : ITEM_FREE);
    keep->counters.items--;
    if (is_known)
        push_all(keep);
}

uint64_t keep_mark(const struct keep *keep)
{
    return keep->last_number;
}

bool keep_passed(const struct keep *keep, uint64_t mark)
{
    if (keep->counters.waiting == 0)
        return true;
    for (uint32_t i = 0; i < keep->options.max_items; i++) {
        if (is_open(keep->entries[i].state) && keep->entries[i].number <= mark)
            return false;
    }
    return true;
}

int keep_forget(struct keep *keep)
{
    int err = keep->backend && !keep->is_lost ? keep->backend->forget(keep) : 0;

    (void)keep_watch(keep, -1);
    keep->backend = NULL; /* what is added from now on is kept by nobody, as with KEEP_NONE */
    for (uint32_t i = 0; i < keep->options.max_items; i++)
        entry_set(keep, &keep->entries[i], ITEM_FREE);
    keep->counters.items = 0;
    return err;
}

int keep_forget_left(const char *directory)
{
    int err = keep_holder.forget_left(directory);
    int other = keep_systemd.forget_left(directory);

    return err ? err : other;
}

/* ---- the loop's part ------------------------------------------------------------------------ */

int keep_event_fd(const struct keep *keep)
{
    return keep->epoll_fd;
}

static void keeper_find(struct keep *keep)
{
    if (keep->now_ms < keep->next_try_ms)
        return;
    keep->next_try_ms = keep->now_ms + RETRY_MS;
    int err = keep->backend->open(keep, false);
    keep->is_lost = err != 0;
    keep->reason = err;
}

void keep_run(struct keep *keep, uint64_t now_ms)
{
    keep->now_ms = now_ms;
    if (!keep->backend)
        return;
    int err = keep->is_lost ? 0 : keep->backend->ready(keep);
    if (err)
        keeper_lost(keep, err);
    if (keep->is_lost)
        keeper_find(keep);
    if (!keep->is_lost)
        push_all(keep);
}

bool keep_fallback(const struct keep *keep, struct gpu_fallback *out_fallback)
{
    static const char nobody[] =
        "nobody keeps this daemon's memory: what is cached is lost when it ends";
    const char *cost = NULL;

    if (!keep->backend)
        cost = nobody;
    else if (keep->is_lost)
        cost = keep->backend->fallback;
    else if (keep->counters.refused > 0)
        cost = "the keeper did not take all descriptors (its limit: FileDescriptorStoreMax, or "
               "that of open files): some of what is cached is lost when this daemon ends";
    if (!cost)
        return false;
    *out_fallback =
        (struct gpu_fallback){.name = "memory-not-kept", .cost = cost, .reason = keep->reason};
    return true;
}

const struct keep_counters *keep_counters(const struct keep *keep)
{
    return &keep->counters;
}
