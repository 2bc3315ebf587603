/* tests/client-lib/fake_daemon.h - a thread that speaks hello, messages and rings, and misbehaves.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What it does with requests; may be changed at any time. */
enum fake_mood {
    FAKE_ANSWERS,      /* at once, by a canned reply for each verb */
    FAKE_SILENT,       /* takes requests and says nothing */
    FAKE_REVERSES,     /* answers each message's requests one by one, the last one first */
    FAKE_DIES,         /* closes everything at the next message */
    FAKE_OVERSIZE,     /* answers with a frame over the cap */
    FAKE_GARBAGE,      /* answers with bytes that are no reply */
    FAKE_REFUSES_ALL,  /* answers a message as a whole: id 0, MALFORMED */
    FAKE_ANSWERS_TWICE /* and adds a reply to nobody */
};

struct fake_options {
    const char *dir;
    uint32_t refusal;       /* a status: every hello is refused with it */
    uint16_t refusal_major; /* 0: our own */
    uint64_t staging_bytes; /* of data; 0: 1 MiB */
    bool no_fds;            /* a welcome without descriptors */
    uint8_t boot;           /* fills the boot id */
};

struct fake_daemon;

struct fake_daemon *fake_daemon_start(const struct fake_options *options);
void fake_daemon_stop(struct fake_daemon *fake); /* takes NULL */
void fake_daemon_set_mood(struct fake_daemon *fake, enum fake_mood mood);

uint32_t fake_daemon_num_requests(const struct fake_daemon *fake); /* seen so far */
uint32_t fake_daemon_num_messages(const struct fake_daemon *fake);
uint32_t fake_daemon_num_on_ring(const struct fake_daemon *fake);
uint32_t fake_daemon_num_models(const struct fake_daemon *fake); /* registrations */
