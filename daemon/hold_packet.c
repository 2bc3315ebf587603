/* daemon/hold_packet.c - one packet between a holder and its daemon, with a descriptor or without.
 */
#include "daemon/hold.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int hold_send(int socket_fd, struct hold_packet *packet, int fd, int flags)
{
    union control control = {0};
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(*packet)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    packet->magic = HOLD_MAGIC;
    packet->version = HOLD_VERSION;
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    for (;;) {
        if (sendmsg(socket_fd, &message, MSG_NOSIGNAL | flags) >= 0)
            return 0;
        if (errno == ETOOMANYREFS || errno == ENOBUFS) /* too many are under way: as if full */
            return -EAGAIN;
        if (errno == ECONNRESET || errno == ENOTCONN)
            return -EPIPE;
        if (errno != EINTR)
            return -errno;
    }
}

static int receive(int socket_fd, struct msghdr *message, int flags, ssize_t *out_bytes)
{
    do
        *out_bytes = recvmsg(socket_fd, message, MSG_CMSG_CLOEXEC | flags);
    while (*out_bytes < 0 && errno == EINTR);
    if (*out_bytes == 0)
        return -EPIPE;
    if (*out_bytes < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    return 0;
}

int hold_receive(int socket_fd, struct hold_packet *out_packet, int *out_fd, int flags)
{
    struct hold_packet packet;
    union control control = {0};
    struct iovec part = {.iov_base = &packet, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t num_bytes;
    int fd = -1, err = receive(socket_fd, &message, flags, &num_bytes);

    if (err)
        return err;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(fd)))
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    if (num_bytes != (ssize_t)sizeof(packet) || packet.magic != HOLD_MAGIC) {
        if (fd >= 0)
            (void)close(fd);
        return -EBADMSG;
    }
    packet.name[HOLD_MAX_NAME - 1] = '\0';
    if (fd < 0 && (message.msg_flags & MSG_CTRUNC) != 0)
        packet.status = -EMFILE;
    *out_packet = packet;
    *out_fd = fd;
    return 0;
}
