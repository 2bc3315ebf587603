/* daemon/listen.h - sockets in the run directory, with their file mode from the first moment. */
#pragma once

#include <sys/stat.h>

/*
 * Binds and listens at @path (@type: SOCK_STREAM, SOCK_SEQPACKET; close-on-exec, non-blocking). Of
 * the umask only what @mode grants counts: nobody else can connect, not even for a moment. A socket
 * left behind by an earlier life is replaced, anything else is -EEXIST: so hold the state
 * directory's lock first. ZeroMQ takes the descriptor as ZMQ_USE_FD. -ENAMETOOLONG, -errno.
 */
int listen_unix(const char *path, int type, mode_t mode, int *out_fd);
