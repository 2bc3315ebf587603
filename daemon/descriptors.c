/*
 * daemon/descriptors.c - accept4(), as libzmq finds it in this program.
 *
 * A symbol of the program goes before the C library's. Descriptors are given out from the lowest
 * free one on, so a high one says that as many are taken: nothing has to be counted.
 */
#include "daemon/descriptors.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_GUARDED = 8 };

/* By the owner before libzmq has the descriptor, for libzmq's thread. 0: free. */
static struct guarded {
    _Atomic int fd_and_one;
    enum descriptors_of of;
} guarded[MAX_GUARDED];
static _Atomic uint64_t max_engines = UINT64_MAX;

uint64_t descriptors_prepare(const struct descriptors_need *need)
{
    struct rlimit limit;

    atomic_store(&max_engines, need->own + need->peers);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    const struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    return setrlimit(RLIMIT_NOFILE, &raised) < 0 ? limit.rlim_cur : raised.rlim_cur;
}

int descriptors_guard(int fd, enum descriptors_of of)
{
    for (int i = 0; i < MAX_GUARDED; i++) {
        if (atomic_load(&guarded[i].fd_and_one) != 0)
            continue;
        guarded[i].of = of;
        atomic_store(&guarded[i].fd_and_one, fd + 1);
        return 0;
    }
    return -ENOSPC;
}

static struct guarded *guarded_find(int fd)
{
    for (int i = 0; i < MAX_GUARDED; i++) {
        if (atomic_load(&guarded[i].fd_and_one) == fd + 1)
            return &guarded[i];
    }
    return NULL;
}

void descriptors_release(int fd)
{
    struct guarded *row = fd >= 0 ? guarded_find(fd) : NULL;

    if (row)
        atomic_store(&row->fd_and_one, 0);
}

/* The first descriptor that such a peer does not get. */
static uint64_t ceiling(enum descriptors_of of)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) /* asked each time: prlimit(1) may change it */
        return 0;
    if (of == DESCRIPTORS_OPERATORS)
        return limit.rlim_cur - limit.rlim_cur / 8;
    uint64_t most = limit.rlim_cur - limit.rlim_cur / 4, of_use = atomic_load(&max_engines);
    return most < of_use ? most : of_use;
}

static int accept_call(int fd, void *address, socklen_t *size, int flags)
{
    return (int)syscall(SYS_accept4, fd, address, size, flags);
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict size, int flags)
{
    const struct guarded *row = guarded_find(fd);
    int got = accept_call(fd, address.__sockaddr__, size, flags);

    if (!row)
        return got;
    if (got >= 0 && (uint64_t)got < ceiling(row->of))
        return got;
    if (got >= 0)
        (void)close(got);
    else if (errno == EAGAIN || errno == EINTR)
        return got;
    errno = ECONNABORTED; /* libzmq goes on after this one */
    return -1;
}

int accept(int fd, __SOCKADDR_ARG address, socklen_t *restrict size)
{
    return accept4(fd, address, size, 0);
}
