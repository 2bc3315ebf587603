/*
 * daemon/hold.h - the holder: a process that has descriptors and does nothing else, and what is
 * said between it and its daemon, packet by packet over a SOCK_SEQPACKET socket.
 *
 * It listens at `holder.sock` of the daemon's state directory. One daemon at a time is answered, of
 * the holder's own uid. It ends when it is told to forget, when it has nothing and no daemon, when
 * its time limit without a daemon has passed, and when its socket is gone from the directory.
 */
#pragma once

#include <stdint.h>

#define HOLD_SOCKET "holder.sock"
#define HOLD_LOCK "holder.lock"

enum {
    HOLD_MAGIC = 0x484c564b, /* "KVLH" */
    HOLD_VERSION = 1,
    HOLD_MAX_NAME = 64,
    HOLD_MAX_ITEMS = 16384,
    HOLD_CONNECTION_FD = 3 /* of its first daemon, which started it */
};

enum hold_kind {
    /* of the daemon */
    HOLD_TAKE = 1, /* @number: the time limit in ms, 0: none. Answered by HOLD_ITEMs, HOLD_END */
    HOLD_RENEW,    /* the same, but what there is is dropped first */
    HOLD_KEEP,     /* @name, a descriptor; answered by HOLD_KEPT with @index and @number */
    HOLD_DROP,     /* @name; not answered */
    HOLD_FORGET,   /* answered by HOLD_END; then the holder ends. In every version as it is here */
    /* of the holder */
    HOLD_ITEM, /* @name, a descriptor */
    HOLD_END,  /* @status: 0, -EBUSY (another daemon is there), -EPROTONOSUPPORT (@version) */
    HOLD_KEPT  /* @status: 0, -EMFILE, -ENOSPC */
};

struct hold_packet {
    uint32_t magic, version, kind;
    int32_t status;
    uint32_t index, zero;
    uint64_t number;
    char name[HOLD_MAX_NAME];
};

/* Sets magic and version. @fd -1: none. 0 or -errno: -EAGAIN with MSG_DONTWAIT in @flags. */
int hold_send(int socket_fd, struct hold_packet *packet, int fd, int flags);

/*
 * 0, or -EPIPE: closed; -EAGAIN; -EBADMSG: no packet of ours. A descriptor, close-on-exec, or -1 is
 * in @out_fd: -1 also if there is no room for it here, then status is -EMFILE.
 */
int hold_receive(int socket_fd, struct hold_packet *out_packet, int *out_fd, int flags);

/* `kvpoold hold DIRECTORY`, with its first daemon at descriptor 3. Answers the exit status. */
int hold_command(int argc, char **argv);
