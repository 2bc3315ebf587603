/* daemon/notify.c - what the service manager is told, and what it keeps for us (sd_notify(3)). */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 }; /* of those that are handed over */

/* The manager's address: 0 where there is no manager. Its length, for abstract sockets too. */
static socklen_t address_of(struct sockaddr_un *out)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path ? strlen(path) : 0;

    if (length < 2 || length >= sizeof(out->sun_path) || (path[0] != '/' && path[0] != '@'))
        return 0;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, path, length);
    if (path[0] == '@')
        out->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

static int send_state(const char *state, const int *fds, size_t num_fds)
{
    union {
        char bytes[CMSG_SPACE(NOTIFY_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct sockaddr_un address;
    struct iovec text = {.iov_base = (char *)(uintptr_t)state, .iov_len = strlen(state)};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_name = &address};
    int err = 0;

    message.msg_namelen = address_of(&address);
    if (message.msg_namelen == 0)
        return 0;
    if (num_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, num_fds * sizeof(int));
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        err = -errno;
    (void)close(fd);
    return err;
}

int notify_send(const char *state)
{
    return send_state(state, NULL, 0);
}

int notify_reloading(uint64_t now_us)
{
    char state[64];

    (void)snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)now_us);
    return notify_send(state);
}

/* ---- the descriptor store ------------------------------------------------------------------- */

bool notify_is_name(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = strlen(name);

    return length > 0 && length < NOTIFY_MAX_NAME && strspn(name, allowed) == length;
}

int notify_store(const char *name, const int *fds, size_t num_fds)
{
    char state[NOTIFY_MAX_NAME + 32];

    if (!notify_is_name(name) || num_fds == 0 || num_fds > NOTIFY_MAX_FDS)
        return -EINVAL;
    (void)snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    return send_state(state, fds, num_fds);
}

int notify_barrier(int *out_fd)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    int err = send_state("BARRIER=1", &fds[1], 1);
    (void)close(fds[1]);
    if (err)
        (void)close(fds[0]);
    else
        *out_fd = fds[0];
    return err;
}

int notify_forget(const char *name)
{
    char state[NOTIFY_MAX_NAME + 32];

    if (!notify_is_name(name))
        return -EINVAL;
    (void)snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return notify_send(state);
}

/* Copies up to the next colon, and answers what is behind it. */
static const char *next_name(const char *names, char out[NOTIFY_MAX_NAME])
{
    size_t length = strcspn(names, ":");

    (void)snprintf(out, NOTIFY_MAX_NAME, "%.*s",
                   (int)(length < NOTIFY_MAX_NAME ? length : NOTIFY_MAX_NAME - 1), names);
    return names[length] == ':' ? names + length + 1 : names + length;
}

size_t notify_take(int *out_fds, char (*out_names)[NOTIFY_MAX_NAME], size_t max)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    char *end;
    size_t num_taken = 0;

    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid())
        return 0; /* for somebody else */
    long num_fds = strtol(count, &end, 10);
    if (*count == '\0' || *end != '\0' || num_fds < 0 || num_fds > 65536)
        return 0;
    for (long i = 0; i < num_fds; i++) {
        int fd = FIRST_FD + (int)i;
        char name[NOTIFY_MAX_NAME] = "";
        if (names)
            names = next_name(names, name);
        if (num_taken == max) {
            (void)close(fd);
        } else if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
            memcpy(out_names[num_taken], name, sizeof(name));
            out_fds[num_taken++] = fd;
        }
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return num_taken;
}
