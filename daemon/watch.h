/* daemon/watch.h - what the daemon counts, and who is shown it: stats, events, HTTP. */
#pragma once

struct server;

int watch_make(struct server *server);
void watch_finish(struct server *server);

/* A strict daemon does not start in a fallback: -EPERM. Each is logged. */
int watch_check(struct server *server);

/* Takes a snapshot. */
void watch_take(struct server *server);
