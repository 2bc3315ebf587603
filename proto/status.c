/* proto/status.c - the one table of statuses: name, what it means and what to do, may one retry. */
#include "proto/status.h"

/* clang-format off */
static const struct wire_status_row status_rows[NUM_STATUSES] = {
    [STATUS_OK]           = {"OK",           "done", false},
    [STATUS_NOT_FOUND]    = {"NOT_FOUND",    "no such model, domain, sequence, step, session or request of yours", false},
    [STATUS_EXISTS]       = {"EXISTS",       "the name is taken: choose another one", false},
    [STATUS_INVALID]      = {"INVALID",      "not in this state, or not with these arguments", false},
    [STATUS_NEVER_FITS]   = {"NEVER_FITS",   "more than the empty pool or your limit can hold: ask for less", false},
    [STATUS_QUOTA]        = {"QUOTA",        "your limit is in the way: release sequences, or have the limit raised", true},
    [STATUS_NO_BLOCKS]    = {"NO_BLOCKS",    "no block can be had now: retry after a release", true},
    [STATUS_LIMIT]        = {"LIMIT",        "a cap of the daemon's configuration is reached: release something, or have it raised", true},
    [STATUS_STALE]        = {"STALE",        "of an earlier daemon, generation or epoch: begin anew", false},
    [STATUS_DRAINING]     = {"DRAINING",     "no new sequences are taken: use another node, or wait", true},
    [STATUS_BUSY]         = {"BUSY",         "the sequence is in an open step, or the machine is short of memory for it: retry later", true},
    [STATUS_MISS]         = {"MISS",         "what was waited for will not come: fill it yourself", false},
    [STATUS_TIMEOUT]      = {"TIMEOUT",      "the deadline passed and the request was given up", true},
    [STATUS_FAILED]       = {"FAILED",       "a copy or a device failed and the request was undone: see the daemon's log", true},
    [STATUS_MALFORMED]    = {"MALFORMED",    "cannot be read, or is over a cap: mend the client", false},
    [STATUS_UNSUPPORTED]  = {"UNSUPPORTED",  "this daemon does not speak this version, verb or option", false},
    [STATUS_DENIED]       = {"DENIED",       "no tenant for these credentials, or not an operator: see the daemon's configuration", false},
    [STATUS_OVERLOADED]   = {"OVERLOADED",   "more requests outstanding than you have credits: wait for replies", true},
    [STATUS_CANCELLED]    = {"CANCELLED",    "given up because you cancelled it", false},
    [STATUS_DISCONNECTED] = {"DISCONNECTED", "the daemon is gone, and with it what this session held: reconnect and begin anew", false},
};
/* clang-format on */

static const struct wire_status_row unknown_row = {
    "UNKNOWN", "a status of a newer daemon: treat it as a refusal, or update the client", false};

const struct wire_status_row *wire_status_row(uint32_t status)
{
    return status < NUM_STATUSES ? &status_rows[status] : &unknown_row;
}
