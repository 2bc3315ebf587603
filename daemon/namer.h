/* daemon/namer.h - a thread that names long prompts, fed by the owner thread through a queue. */
#pragma once

#include <stdint.h>

struct key_hasher;
struct namer;
struct naming;

int namer_create(uint32_t max_jobs, struct namer **out_namer);
void namer_destroy(struct namer *namer); /* takes NULL; waits for the job that runs */

/* Readable when something is done. */
int namer_event_fd(const struct namer *namer);

/* @naming is the namer's until it comes back; at most max_jobs at a time. */
void namer_submit(struct namer *namer, struct naming *naming);
/* One that is done, in the order in which they were submitted; NULL: none. */
struct naming *namer_reap(struct namer *namer);

/* Makes the keys of @naming; naming->err. Any thread, with a hasher of its own. */
void naming_run(struct key_hasher *hasher, struct naming *naming);
