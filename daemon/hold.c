/* daemon/hold.c - the holder's process: a table of descriptors, and a loop of 30 lines. */
#include "daemon/hold.h"

#include "daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CHECK_MS = 1000, SEND_SECONDS = 5 };

struct held {
    char name[HOLD_MAX_NAME];
    int fd;
};

struct holder {
    struct held items[HOLD_MAX_ITEMS];
    uint32_t num_items;
    int listen_fd, lock_fd;
    int daemon_fd;  /* -1: no daemon is there */
    int refused_fd; /* one that was told so; closed by us, it might not read it */
    ino_t socket_inode;
    uint64_t limit_ms, since_ms; /* without a daemon */
    bool is_over;
};

static struct holder holder; /* its process has nothing else */

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the table ------------------------------------------------------------------------------ */

static void drop_all(void)
{
    for (uint32_t i = 0; i < holder.num_items; i++)
        (void)close(holder.items[i].fd);
    holder.num_items = 0;
}

static void drop(const char *name)
{
    for (uint32_t i = 0; i < holder.num_items; i++) {
        if (strcmp(holder.items[i].name, name) != 0)
            continue;
        (void)close(holder.items[i].fd);
        holder.items[i] = holder.items[--holder.num_items];
        return;
    }
}

/* Of one name the last one counts. */
static int keep(const struct hold_packet *packet, int fd)
{
    if (fd < 0)
        return packet->status ? packet->status : -EINVAL;
    drop(packet->name);
    if (holder.num_items == HOLD_MAX_ITEMS) {
        (void)close(fd);
        return -ENOSPC;
    }
    struct held *held = &holder.items[holder.num_items++];
    memcpy(held->name, packet->name, sizeof(held->name));
    held->fd = fd;
    return 0;
}

/* ---- its daemon ----------------------------------------------------------------------------- */

static void daemon_lost(void)
{
    (void)close(holder.daemon_fd);
    holder.daemon_fd = -1;
    holder.since_ms = now_ms();
    holder.is_over |= holder.num_items == 0;
}

/* A daemon that does not read is let go of: it finds us again when it can. */
static void answer(struct hold_packet *packet, int fd)
{
    int err = -EAGAIN;

    for (int tries = 0; err == -EAGAIN && tries < SEND_SECONDS * 1000; tries++) {
        err = hold_send(holder.daemon_fd, packet, fd, MSG_DONTWAIT);
        if (err == -EAGAIN)
            (void)poll(NULL, 0, 1);
    }
    if (err)
        daemon_lost();
}

static void give_all(const struct hold_packet *question)
{
    struct hold_packet end = {.kind = HOLD_END};

    if (question->version != HOLD_VERSION) {
        end.status = -EPROTONOSUPPORT;
        answer(&end, -1);
        return;
    }
    holder.limit_ms = question->number;
    if (question->kind == HOLD_RENEW)
        drop_all();
    for (uint32_t i = 0; i < holder.num_items && holder.daemon_fd >= 0; i++) {
        struct hold_packet item = {.kind = HOLD_ITEM};
        memcpy(item.name, holder.items[i].name, sizeof(item.name));
        answer(&item, holder.items[i].fd);
    }
    if (holder.daemon_fd >= 0)
        answer(&end, -1);
}

static void obey(struct hold_packet *packet, int fd)
{
    if (packet->kind == HOLD_KEEP) {
        packet->status = keep(packet, fd);
        packet->kind = HOLD_KEPT;
        answer(packet, -1);
        return;
    }
    if (fd >= 0)
        (void)close(fd);
    if (packet->kind == HOLD_TAKE || packet->kind == HOLD_RENEW) {
        give_all(packet);
    } else if (packet->kind == HOLD_DROP) {
        drop(packet->name);
    } else if (packet->kind == HOLD_FORGET) {
        struct hold_packet end = {.kind = HOLD_END};
        drop_all();
        answer(&end, -1);
        holder.is_over = true;
    }
}

static void daemon_read(void)
{
    struct hold_packet packet;
    int fd;
    int err = hold_receive(holder.daemon_fd, &packet, &fd, MSG_DONTWAIT);

    if (!err)
        obey(&packet, fd);
    else if (err != -EAGAIN)
        daemon_lost();
}

static void daemon_accept(void)
{
    struct hold_packet end = {.kind = HOLD_END, .status = -EBUSY};
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int fd = accept4(holder.listen_fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid()) {
        (void)close(fd);
        return;
    }
    if (holder.daemon_fd >= 0) {
        (void)hold_send(fd, &end, -1, MSG_DONTWAIT);
        if (holder.refused_fd >= 0)
            (void)close(holder.refused_fd);
        holder.refused_fd = fd;
        return;
    }
    holder.daemon_fd = fd;
}

/* ---- its life ------------------------------------------------------------------------------- */

/* Nobody finds us any more: whatever we hold, nobody gets. */
static bool socket_is_there(void)
{
    struct stat status;

    return lstat(HOLD_SOCKET, &status) == 0 && status.st_ino == holder.socket_inode;
}

static void wait_for_daemon(void)
{
    uint64_t waited_ms = now_ms() - holder.since_ms;

    holder.is_over |= holder.limit_ms > 0 && waited_ms >= holder.limit_ms;
    holder.is_over |= !socket_is_there();
}

static int timeout_ms(void)
{
    uint64_t waited_ms = now_ms() - holder.since_ms;

    if (holder.daemon_fd >= 0)
        return -1;
    if (holder.limit_ms == 0 || holder.limit_ms >= waited_ms + CHECK_MS)
        return CHECK_MS;
    return holder.limit_ms > waited_ms ? (int)(holder.limit_ms - waited_ms) : 0;
}

static void run(void)
{
    while (!holder.is_over) {
        struct pollfd events[] = {{.fd = holder.listen_fd, .events = POLLIN},
                                  {.fd = holder.daemon_fd, .events = POLLIN}};
        int count = poll(events, 2, timeout_ms());

        if (count > 0 && events[1].revents != 0)
            daemon_read();
        if (count > 0 && events[0].revents != 0)
            daemon_accept();
        if (holder.daemon_fd < 0)
            wait_for_daemon();
    }
    if (socket_is_there())
        (void)unlink(HOLD_SOCKET);
}

/* Alone in its directory: whoever could not reach another one must not cut it off. */
static int begin(const char *directory)
{
    struct stat status;

    if (chdir(directory) < 0)
        return -errno;
    holder.lock_fd = open(HOLD_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (holder.lock_fd < 0 || flock(holder.lock_fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    int err = listen_unix(HOLD_SOCKET, SOCK_SEQPACKET, 0600, &holder.listen_fd);
    if (err)
        return err;
    if (lstat(HOLD_SOCKET, &status) < 0)
        return -errno;
    holder.socket_inode = status.st_ino;
    return 0;
}

static bool is_daemon(int fd)
{
    int type;
    socklen_t size = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int hold_command(int argc, char **argv)
{
    struct rlimit limit;

    if (argc != 2 || !is_daemon(HOLD_CONNECTION_FD)) {
        fputs("kvpoold hold DIRECTORY: keeps a daemon's memory; started by kvpoold itself\n",
              stderr);
        return 2;
    }
    (void)close_range(HOLD_CONNECTION_FD + 1, ~0U, 0);
    (void)fcntl(HOLD_CONNECTION_FD, F_SETFD, FD_CLOEXEC);
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    holder.daemon_fd = HOLD_CONNECTION_FD;
    holder.refused_fd = -1;
    if (begin(argv[1]))
        return EXIT_FAILURE;
    run();
    return EXIT_SUCCESS;
}
