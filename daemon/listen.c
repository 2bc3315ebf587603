/* daemon/listen.c - sockets in the run directory, with their file mode from the first moment. */
#include "daemon/listen.h"

#include "daemon/log.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LISTEN_BACKLOG = 64 };

/* -EADDRINUSE: somebody listens there. 0: its process is gone. */
static int check_stale(const struct sockaddr_un *address, int type)
{
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;

    bool is_stale = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
                    (errno == ECONNREFUSED || errno == ENOENT);
    (void)close(fd);
    return is_stale ? 0 : -EADDRINUSE;
}

/* A socket file without its process is in the way; anything else is somebody's. */
static int remove_stale(const struct sockaddr_un *address, int type)
{
    const char *path = address->sun_path;
    struct stat status;

    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode))
        return -EEXIST;
    int err = check_stale(address, type);
    if (err)
        return err;
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int listen_open(const char *path, int type, mode_t mode, int *out_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool is_bound = false;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    int err = remove_stale(&address, type);
    if (err)
        return err;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;

    /* On Linux the file gets the unbound socket's mode less the umask; chmod() only adds to that.
     */
    if (fchmod(fd, mode) < 0)
        goto fail;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        goto fail;
    is_bound = true;
    if (chmod(path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        goto fail;
    *out_fd = fd;
    return 0;

fail:
    err = -errno;
    if (is_bound)
        (void)unlink(path);
    (void)close(fd);
    return err;
}

int listen_unix(const char *path, int type, mode_t mode, int *out_fd)
{
    int err = listen_open(path, type, mode, out_fd);

    if (err)
        log_event(LOG_ERROR, "listen_failed", log_text("file", path), log_error("error", err));
    return err;
}
