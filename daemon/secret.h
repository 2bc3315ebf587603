/*
 * daemon/secret.h - the secrets of payers: 32 random bytes each, in secrets/NAME of the state
 * directory, mode 0600, made on first use.
 *
 * Making one waits for the disk. While the daemon serves, the thread of state_writer.h does it; the
 * owner then only reads what is there.
 */
#pragma once

#include "proto/key.h"

#include <stdint.h>

/*
 * Reads @name's secret; makes it if there is none, whole and durable or not at all. -EPERM: others
 * may read it; -EINVAL: it is too short; -errno. Then @out_secret is not to be used.
 */
int secret_get(const char *state_directory, const char *name, uint8_t out_secret[KEY_BYTES]);
