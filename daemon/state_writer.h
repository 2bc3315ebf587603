/*
 * daemon/state_writer.h - a thread that makes files durable, so that no disk stalls the owner.
 *
 * Of each file one version is on its way at a time: it is submitted, and reaped when it is durable
 * or failed. The secret of a payer that the file speaks of may be made in front of it. Other
 * threads touch nothing else of the daemon's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum state_name { STATE_EPOCHS, STATE_DOMAINS, STATE_MODELS, NUM_STATE_NAMES };

extern const char *const state_names[NUM_STATE_NAMES]; /* of the files */

struct state_writer;

int state_writer_create(const char *directory, struct state_writer **out_writer);
/* What was submitted is written first. */
void state_writer_destroy(struct state_writer *writer);

/* Readable when something is to be reaped. */
int state_writer_event_fd(const struct state_writer *writer);

/*
 * @bytes, from malloc(), are the writer's from now on. None of that name is on its way. @secret: a
 * payer (a name that the configuration allows) whose secret is to be there first, else the file
 * fails too; or NULL.
 */
void state_writer_submit(struct state_writer *writer, enum state_name name, void *bytes,
                         size_t num_bytes, const char *secret);
/* False: nothing ended. *out_err is 0: durable, or -errno. */
bool state_writer_reap(struct state_writer *writer, enum state_name *out_name, int *out_err);
