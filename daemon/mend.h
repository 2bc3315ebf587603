/*
 * daemon/mend.h - what tenants did to the memory of their arenas: taken more, or pulled some away.
 *
 * Who can have taken more loses his session, and what he took. An arena that was truncated is
 * damaged: what it held is gone. The sessions of its tenant end, and once nothing of it is held and
 * nobody who could write it is there, it is closed and opened anew, empty. Until then verbs that
 * touch it are answered with FAILED.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct server;

/* Once a second. */
void mend_check(struct server *server);

/* Replaces what may be replaced now. Returns whether any was. */
bool mend_run(struct server *server);
