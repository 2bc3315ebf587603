/*
 * daemon/state_file.h - a file of the state directory: whole, or not there.
 *
 * 8 bytes "kvpstat1", u64 LE number of bytes, SHA-256 of them, then they. Written aside, made
 * durable, then renamed: a crash at any point leaves the old one or the new one.
 */
#pragma once

#include <stddef.h>

enum {
    STATE_FILE_MAX_BYTES = 64 << 20,
    STATE_FILE_DAMAGED = 1 /* an answer: it is not what was written */
};

/* 0; STATE_FILE_DAMAGED; or -errno, -ENOENT included. *out_bytes is the caller's to free. */
int state_file_read(const char *directory, const char *name, void **out_bytes,
                    size_t *out_num_bytes);

/* Durable when it returns 0; else -errno, and the file is as it was. Blocks for as long as disks
 * do. */
int state_file_write(const char *directory, const char *name, const void *bytes, size_t num_bytes);

/* Out of the way, as NAME.damaged. */
int state_file_set_aside(const char *directory, const char *name);
