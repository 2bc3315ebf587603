/* tests/daemon/holder.h - what a test sees of a holder, and whether it is still there. */
#pragma once

#include "daemon/hold.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HOLDER_WAIT_MS = 10000 };

static inline uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A connection, the caller's to close; -1: nobody listens. */
static inline int holder_dial(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/" HOLD_SOCKET, directory);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* Who listens in @directory; 0: nobody. */
static inline pid_t holder_pid(const char *directory)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    int fd = holder_dial(directory);

    if (fd < 0)
        return 0;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
    (void)close(fd);
    return peer.pid;
}

/* An orphan of a dead daemon stays a zombie where init does not care: it is over, too. */
static inline bool is_alive(pid_t pid)
{
    char path[64], state = 'X';

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    (void)!fscanf(file, "%*d (%*[^)]) %c", &state);
    (void)fclose(file);
    return state != 'Z' && state != 'X';
}

/* Fails the test if it does not end. */
static inline void await_end(pid_t pid)
{
    uint64_t end = now_ms() + HOLDER_WAIT_MS;

    while (is_alive(pid) && now_ms() < end)
        (void)usleep(5000);
    assert_false(is_alive(pid));
}
