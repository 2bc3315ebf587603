/*
 * daemon/keep_holder.c - a process of our own as the keeper: found, or started; daemon/hold.h.
 *
 * It is in a session of its own and has nothing of ours but one end of a socket, so that it lives
 * on however we end.
 */
#include "daemon/hold.h"
#include "daemon/keep_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_MS = 5000,
    FORGET_MS = 2000,
    FIND_MS = 2000, /* while an earlier daemon's connection, or a holder, is coming to its end */
    FIND_PAUSE_MS = 10
};

static uint64_t clock_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- finding it ----------------------------------------------------------------------------- */

static int peer_check(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    return peer.uid == geteuid() ? 0 : -EPERM;
}

/* By the directory's descriptor: its path may be longer than a socket's may. */
static int holder_connect(const char *directory, int *out_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int err = 0;
    int directory_fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0)
        return -EINVAL;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" HOLD_SOCKET,
                   directory_fd);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        err = -errno;
    else
        err = peer_check(fd);
    (void)close(directory_fd);
    if (err && fd >= 0)
        (void)close(fd);
    if (!err)
        *out_fd = fd;
    return err;
}

/* Its standard descriptors are nobody's: whoever reads ours must see our end. */
static int actions_fill(posix_spawn_file_actions_t *actions, int socket_fd)
{
    int err = posix_spawn_file_actions_adddup2(actions, socket_fd, HOLD_CONNECTION_FD);

    for (int fd = 0; !err && fd < HOLD_CONNECTION_FD; fd++)
        err = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
    return err;
}

static int process_start(const struct keep *keep, int socket_fd, pid_t *out_pid)
{
    const char *program = keep->options.program ? keep->options.program : "/proc/self/exe";
    char *const arguments[] = {"kvpoold", "hold", keep->directory, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int err = posix_spawn_file_actions_init(&actions);
    if (err)
        return -err;
    err = posix_spawnattr_init(&attributes);
    if (err) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return -err;
    }
    err = actions_fill(&actions, socket_fd);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    if (!err)
        err = posix_spawn(out_pid, program, &actions, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -err;
}

/* One that is over is taken note of; one that lives on without us is init's in the end. */
static void holder_reap(struct keep *keep)
{
    if (keep->holder > 0 && waitpid(keep->holder, NULL, WNOHANG) != 0)
        keep->holder = 0;
}

static int holder_start(struct keep *keep, int *out_fd)
{
    int fds[2];

    holder_reap(keep);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    int err = process_start(keep, fds[1], &keep->holder);
    (void)close(fds[1]);
    if (err) {
        keep->holder = 0;
        (void)close(fds[0]);
        return err;
    }
    *out_fd = fds[0];
    return 0;
}

static int holder_find(struct keep *keep, int *out_fd)
{
    int err = holder_connect(keep->directory, out_fd);

    return err == -ENOENT || err == -ECONNREFUSED ? holder_start(keep, out_fd) : err;
}

/* ---- the first words ------------------------------------------------------------------------ */

static int receive_until(int fd, struct hold_packet *packet, int *out_fd, uint64_t end_ms)
{
    for (;;) {
        uint64_t now = clock_ms();
        struct pollfd event = {.fd = fd, .events = POLLIN};
        if (now >= end_ms)
            return -ETIMEDOUT;
        if (poll(&event, 1, (int)(end_ms - now)) <= 0)
            continue;
        int err = hold_receive(fd, packet, out_fd, MSG_DONTWAIT);
        if (err != -EAGAIN)
            return err;
    }
}

/* Without a descriptor, or a place for it, it is of no use to anybody any more. */
static void item_take(struct keep *keep, int fd, struct hold_packet *packet, int item_fd)
{
    if (item_fd >= 0 && keep_take_item(keep, packet->name, item_fd) == 0)
        return;
    if (item_fd >= 0)
        (void)close(item_fd);
    packet->kind = HOLD_DROP;
    (void)hold_send(fd, packet, -1, MSG_DONTWAIT);
    keep->counters.lost++;
}

static int take_all(struct keep *keep, int fd)
{
    uint64_t end_ms = clock_ms() + ANSWER_MS;
    struct hold_packet packet = {.kind = HOLD_TAKE, .number = keep->options.limit_ms};
    int item_fd, err = hold_send(fd, &packet, -1, MSG_DONTWAIT);

    while (!err) {
        err = receive_until(fd, &packet, &item_fd, end_ms);
        if (err)
            break;
        if (packet.kind == HOLD_END)
            return packet.status;
        if (packet.kind == HOLD_ITEM)
            item_take(keep, fd, &packet, item_fd);
        else if (item_fd >= 0)
            (void)close(item_fd);
    }
    return err;
}

/* Tells the holder to forget. -EBUSY: it has another daemon, and does not. */
static int end_await(int fd)
{
    uint64_t end_ms = clock_ms() + FORGET_MS;
    struct hold_packet packet = {.kind = HOLD_FORGET};
    int item_fd, err;

    while ((err = hold_send(fd, &packet, -1, MSG_DONTWAIT)) == -EAGAIN && clock_ms() < end_ms)
        (void)poll(NULL, 0, FIND_PAUSE_MS);
    while (!err) {
        err = receive_until(fd, &packet, &item_fd, end_ms);
        if (!err && item_fd >= 0)
            (void)close(item_fd);
        if (!err && packet.kind == HOLD_END && packet.status == -EBUSY)
            err = -EBUSY;
    }
    return err == -EPIPE ? 0 : err; /* it ended */
}

/* What a part of was taken of before the holder ended is gone with it. */
static void taken_drop(struct keep *keep)
{
    for (size_t i = 0; i < keep->num_taken; i++) {
        (void)close(keep->taken[i].fd);
        keep_remove(keep, keep->taken[i].name);
    }
    keep->num_taken = 0;
    keep->counters.taken = 0;
}

/* One try: 0, or -errno with nothing left of it. */
static int open_once(struct keep *keep)
{
    int fd = -1;
    int err = holder_find(keep, &fd);

    if (err)
        return err;
    err = take_all(keep, fd);
    if (err == -EPROTONOSUPPORT)
        (void)end_await(fd); /* of another version: what it has is of no use */
    if (!err)
        err = keep_watch(keep, fd);
    if (!err)
        return 0;
    (void)close(fd);
    keep->is_lost = true; /* nobody is to be told of what is dropped */
    taken_drop(keep);
    keep->is_lost = false;
    return err;
}

static int open_first(struct keep *keep)
{
    uint64_t end_ms = clock_ms() + FIND_MS;

    for (;;) {
        int err = open_once(keep);
        bool may_change = err == -EBUSY || err == -EPIPE || err == -EPROTONOSUPPORT;
        if (!may_change || clock_ms() >= end_ms)
            return err;
        (void)poll(NULL, 0, FIND_PAUSE_MS);
    }
}

/* On the loop: it is not waited for. What it says comes to holder_ready(). */
static int open_again(struct keep *keep)
{
    struct hold_packet packet = {.kind = HOLD_RENEW, .number = keep->options.limit_ms};
    int fd = -1;
    int err = holder_find(keep, &fd);

    if (err)
        return err;
    err = hold_send(fd, &packet, -1, MSG_DONTWAIT);
    if (!err)
        err = keep_watch(keep, fd);
    if (err)
        (void)close(fd);
    return err;
}

static int holder_open(struct keep *keep, bool is_first)
{
    return is_first ? open_first(keep) : open_again(keep);
}

/* ---- the loop's part ------------------------------------------------------------------------ */

static int holder_send(struct keep *keep, struct keep_entry *entry)
{
    struct hold_packet packet = {
        .kind = HOLD_KEEP, .index = (uint32_t)(entry - keep->entries), .number = entry->number};

    memcpy(packet.name, entry->item.name, sizeof(packet.name));
    return hold_send(keep->fd, &packet, entry->item.fd, MSG_DONTWAIT);
}

static int holder_drop(struct keep *keep, const struct keep_entry *entry)
{
    struct hold_packet packet = {.kind = HOLD_DROP};

    memcpy(packet.name, entry->item.name, sizeof(packet.name));
    return hold_send(keep->fd, &packet, -1, MSG_DONTWAIT);
}

static void holder_flush(struct keep *keep)
{
    (void)keep; /* it answers by itself */
}

static int holder_ready(struct keep *keep)
{
    struct hold_packet packet;
    int fd, err;

    holder_reap(keep);
    while ((err = hold_receive(keep->fd, &packet, &fd, MSG_DONTWAIT)) == 0) {
        if (fd >= 0)
            (void)close(fd);
        if (packet.kind == HOLD_END && packet.status)
            return packet.status;
        if (packet.kind == HOLD_KEPT)
            keep_answer(keep, packet.index, packet.number, packet.status);
    }
    return err == -EAGAIN ? 0 : err;
}

static int holder_forget(struct keep *keep)
{
    int err = end_await(keep->fd);

    holder_reap(keep);
    return err;
}

/* The connection of the daemon that left it may be coming to its end still. */
static int holder_forget_left(const char *directory)
{
    uint64_t end_ms = clock_ms() + FIND_MS;

    for (;;) {
        int fd = -1;
        int err = holder_connect(directory, &fd);
        if (err == -ENOENT || err == -ECONNREFUSED)
            return 0; /* nobody is there */
        if (!err) {
            err = end_await(fd);
            (void)close(fd);
        }
        if (err != -EBUSY || clock_ms() >= end_ms)
            return err;
        (void)poll(NULL, 0, FIND_PAUSE_MS);
    }
}

const struct keep_backend keep_holder = {
    .kind = KEEP_HOLDER,
    .fallback = "the process that keeps this daemon's memory is gone or cannot be started: until "
                "another one has it all, what is cached is lost when this daemon ends",
    .open = holder_open,
    .send = holder_send,
    .drop = holder_drop,
    .flush = holder_flush,
    .ready = holder_ready,
    .forget = holder_forget,
    .forget_left = holder_forget_left,
};
