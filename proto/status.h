/* proto/status.h - every status and data type of the wire, the rings and the hello, once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum wire_status {
    STATUS_OK = 0,
    STATUS_NOT_FOUND,
    STATUS_EXISTS,
    STATUS_INVALID,
    STATUS_NEVER_FITS,
    STATUS_QUOTA,
    STATUS_NO_BLOCKS,
    STATUS_LIMIT,
    STATUS_STALE,
    STATUS_DRAINING,
    STATUS_BUSY,
    STATUS_MISS,
    STATUS_TIMEOUT,
    STATUS_FAILED,
    STATUS_MALFORMED,
    STATUS_UNSUPPORTED,
    STATUS_DENIED,
    STATUS_OVERLOADED,
    STATUS_CANCELLED,
    STATUS_DISCONNECTED, /* client side only: the daemon is gone */
    NUM_STATUSES
};

struct wire_status_row {
    const char *name; /* "NO_BLOCKS" */
    const char *text; /* what it means and what to do */
    bool may_retry;   /* the same request may succeed later, unchanged */
};

/* The row of a status; of an unknown one, a row that says so. */
const struct wire_status_row *wire_status_row(uint32_t status);

enum wire_dtype { WIRE_F32 = 1, WIRE_F16, WIRE_BF16, WIRE_OPAQUE };
