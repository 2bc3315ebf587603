/*
 * daemon/verbs.h - handlers of the request table. Each folder of verbs has a file: verbs_model.c,
 * verbs_sequence.c, verbs_step.c, verbs_data.c, verbs_operator.c; prompts.c has those with prompts.
 */
#pragma once

#include "daemon/call.h"

struct sequence_record;

/* The record of a sequence that a verb is about; NOT_FOUND. Earlier verbs of it have ended. */
int sequence_get(struct call *call, uint64_t id, struct sequence_record **out_record);

int handle_register_model(struct call *call, wire_reply *reply);
int handle_open_arena(struct call *call, wire_reply *reply);

int handle_publish(struct call *call, wire_reply *reply);
int handle_fill(struct call *call, wire_reply *reply);
int handle_fork(struct call *call, wire_reply *reply);
int handle_truncate(struct call *call, wire_reply *reply);
int handle_release(struct call *call, wire_reply *reply);
int handle_preempt(struct call *call, wire_reply *reply);
int handle_cancel(struct call *call, wire_reply *reply);
void settle_truncate(struct server *server, struct waiting *waiting, int status);
void settle_release(struct server *server, struct waiting *waiting, int status);
int finish_table(struct server *server, struct waiting *waiting, wire_reply *reply);
int finish_match(struct server *server, struct waiting *waiting, wire_reply *reply);

int handle_step(struct call *call, wire_reply *reply);
int handle_attend(struct call *call, wire_reply *reply);
int handle_end_step(struct call *call, wire_reply *reply);
void settle_step(struct server *server, struct waiting *waiting, int status);
int finish_step(struct server *server, struct waiting *waiting, wire_reply *reply);

int handle_write(struct call *call, wire_reply *reply);
int handle_read(struct call *call, wire_reply *reply);
int finish_data(struct server *server, struct waiting *waiting, wire_reply *reply);

int handle_stats(struct call *call, wire_reply *reply);
int handle_drain(struct call *call, wire_reply *reply);
int handle_clear(struct call *call, wire_reply *reply);
int handle_set_quota(struct call *call, wire_reply *reply);
int handle_create_domain(struct call *call, wire_reply *reply);
int handle_list(struct call *call, wire_reply *reply);
int handle_kick(struct call *call, wire_reply *reply);
int handle_shutdown(struct call *call, wire_reply *reply);

/* Slices of Write and Read; returns whether there are more. */
bool data_run(struct server *server);
