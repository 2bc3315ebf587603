/*
 * daemon/notify.h - what the service manager is told, and what it keeps for us (sd_notify(3)).
 *
 * Without one (no NOTIFY_SOCKET) every call does nothing and answers 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NOTIFY_MAX_FDS = 253 /* of one message: the kernel's limit */ };

/* "READY=1", "RELOADING=1", "STOPPING=1", "STATUS=...": newlines between several. Never waits. */
int notify_send(const char *state);

/* A reload begins; READY=1 ends it. @now_us: CLOCK_MONOTONIC, which tells two reloads apart. */
int notify_reloading(uint64_t now_us);

/*
 * Gives descriptors to the descriptor store, under a name of letters, digits, '-', '_' and '.'.
 * They outlive this process and come back to the next one. They are not polled by the manager: a
 * mount (O_PATH) cannot be, and would be refused. -EINVAL: a bad name or too many. -EAGAIN: later.
 */
int notify_store(const char *name, const int *fds, size_t num_fds);
int notify_forget(const char *name);
bool notify_is_name(const char *name);

/* @out_fd hangs up (POLLHUP) when the manager has done all that it was told before. To be closed by
 * the caller. */
int notify_barrier(int *out_fd);

/*
 * Descriptors that the service manager handed to this process, once, at the start: close-on-exec,
 * in its order, named in @out_names ("" where it has no name). Answers how many there are; those
 * beyond
 * @max are closed.
 */
enum { NOTIFY_MAX_NAME = 64 };
size_t notify_take(int *out_fds, char (*out_names)[NOTIFY_MAX_NAME], size_t max);
