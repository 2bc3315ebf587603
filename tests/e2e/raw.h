/* tests/e2e/raw.h - a client that keeps to nothing: any packet, any frame, any word of the rings.
 */
#pragma once

#include "proto/hello.h"
#include "proto/kvpool.pb-c.h"
#include "proto/ring.h"
#include "tests/e2e/daemon.h"

#include <stddef.h>

typedef Kvpool__Wire__Request raw_request;
typedef Kvpool__Wire__ReplyBatch raw_replies;

#define RAW_REQUEST(NAME) KVPOOL__WIRE__REQUEST__VERB_##NAME

struct raw {
    int fd, fds[3]; /* the session socket; staging, eventfd to the daemon, eventfd from it */
    struct welcome welcome;
    struct staging_header *staging;
    void *context, *dealer;
    uint64_t next_id;
};

/* ---- the session socket ---- */

int raw_connect(const struct daemon *daemon);
/* One packet after at most @ms: its bytes; 0: closed; -1: nothing came. Descriptors go to @out_fds
 * (3 of them), or are closed where it is NULL. */
ptrdiff_t raw_packet(int fd, void *out, size_t max, unsigned ms, int *out_fds);
/* A hello that is in order. */
struct hello raw_hello(void);
/* Says @packet and waits for the refusal: its status, or -1: something else came. */
int raw_refusal(const struct daemon *daemon, const void *packet, size_t num_bytes,
                struct refusal *out_refusal);

/* ---- requests ---- */

/* Says hello, maps staging, connects a DEALER that queues @queue messages each way (0: 1000). */
void raw_open(struct raw *raw, const struct daemon *daemon, const char *token, uint32_t flags,
              int queue);
void raw_close(struct raw *raw);

/* One message; @frames NULL: none follow. False: its queue is full for @ms. */
struct raw_frame {
    const void *bytes;
    size_t num_bytes;
};
bool raw_send(struct raw *raw, const struct raw_frame *frames, size_t count, unsigned ms);
/* A batch of this session, then data frames. */
bool raw_batch(struct raw *raw, raw_request **requests, size_t num_requests,
               const struct raw_frame *frames, size_t num_frames, unsigned ms);
/* NULL: nothing came in @ms. To be freed with raw_free(). Data frames are dropped. */
raw_replies *raw_receive(struct raw *raw, unsigned ms);
void raw_free(raw_replies *replies);
/* One request with the next id, and the status of its reply; UINT32_MAX: none came. */
uint32_t raw_call(struct raw *raw, raw_request *request);
/* daemon.h's small_model; and an opaque one, with a block of 256 bytes for each token. */
Kvpool__Wire__RegisterModel raw_small_model(void);
Kvpool__Wire__RegisterModel raw_opaque_model(void);
/* Registers it, or fails the test; the handle. */
uint32_t raw_register(struct raw *raw, Kvpool__Wire__RegisterModel *model);
/* The first reply to whatever was sent: its status, with the id in *out_id. */
uint32_t raw_status(struct raw *raw, uint64_t *out_id);

/* An entry of the submission ring, and a kick. */
void raw_submit(struct raw *raw, const struct ring_submission *entry);
/* The next completion in @ms; false: none. */
bool raw_complete(struct raw *raw, struct ring_completion *out, unsigned ms);

/* ---- what is watched ---- */

uint64_t process_rss_kib(pid_t pid);
/* What an address sanitizer may keep of freed memory; 0 without one. */
uint64_t process_rss_slack_kib(pid_t pid);
unsigned long process_ticks(pid_t pid);              /* user and system */
unsigned process_count(pid_t pid, const char *what); /* entries of /proc/PID/what: fd, task */
unsigned process_maps(pid_t pid);

/* All lists of the operator, in memory that stays until the next but one call. */
const char *lists_read(const struct daemon *daemon);
/* Fails the test unless the lists are @before; waits up to 5 s for what settles. */
void lists_await(const struct daemon *daemon, const char *before);

/* The 99th percentile of @count matches of a new engine, in microseconds. */
double match_p99_us(struct kvpool *kvpool, uint32_t model, unsigned count);
/* Fails the test if @now is out of all proportion to @idle. */
void p99_assert(const char *what, double idle, double now);
