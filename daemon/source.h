/* daemon/source.h - a descriptor that the loop watches, embedded in what it belongs to. */
#pragma once

#include <stdint.h>

struct server;

struct source {
    int fd; /* -1: none; then a wake-up that was under way is dropped */
    void (*ready)(struct server *server, struct source *source, uint32_t events);
    uint32_t index; /* the owner's, for its record */
};

int source_add(struct server *server, struct source *source, uint32_t events);
/* No wake-up comes any more; does not close. */
void source_remove(struct server *server, struct source *source);
