/*
 * proto/hello.h - the session socket: AF_UNIX, SOCK_SEQPACKET, one message a packet, little-endian.
 *
 * The connection is the session: when it closes, or the process that opened it ends, everything
 * that the engine held is let go of. A client sends one hello; the daemon answers with one welcome,
 * with descriptors (staging, then two eventfds), or with a refusal and closes. Later the daemon
 * sends an arena packet with a descriptor for each OpenArena that it answered. Nothing else is ever
 * sent, and a client that sends more is closed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Where the sockets are: in $KVPOOL_DIR, or here. Operators say no hello: ZeroMQ, session 0. */
#define HELLO_DIR "/run/kvpoold"
#define HELLO_SESSION_SOCKET "session.sock"
#define HELLO_OPERATOR_SOCKET "operator.sock"

enum {
    HELLO_MAJOR = 1,
    HELLO_MINOR = 0,
    HELLO_MAX_BYTES = 512,
    HELLO_MAX_TOKEN = 128,
    HELLO_ID_BYTES = 16
};

#define HELLO_MAGIC UINT32_C(0x4B565048)   /* "HPVK" in memory */
#define WELCOME_MAGIC UINT32_C(0x4B565057) /* a session was made */
#define REFUSAL_MAGIC UINT32_C(0x4B565052)
#define ARENA_MAGIC UINT32_C(0x4B565041)

enum hello_flag {
    HELLO_MAPPED = 1,         /* the engine reads and writes its arenas itself */
    HELLO_MANUAL_PUBLISH = 2, /* steps publish nothing by themselves */
    HELLO_ATTACH = 4, /* a further process of an existing session: session_id and its token */
    /* What of it is kept below the device; none of these: the daemon's setting. The most modest of
     * several counts. */
    HELLO_STORE_NONE = 8,
    HELLO_STORE_PROMPT = 16,
    HELLO_STORE_ALL = 32
};

/* Client to daemon; @token_bytes bytes of a tenant's token follow (none: peer credentials decide).
 */
struct hello {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t flags; /* enum hello_flag; unknown ones are refused */
    uint32_t token_bytes;
    uint64_t staging_bytes; /* data region wanted; the daemon may give less, down to its minimum */
    uint64_t session_id;    /* HELLO_ATTACH */
    uint8_t session_token[HELLO_ID_BYTES];
};

/* Daemon to client, with three descriptors: staging memory, eventfd to the daemon, eventfd to us.
 */
struct welcome {
    uint32_t magic;
    uint16_t major, minor;
    uint8_t boot_id[HELLO_ID_BYTES];
    uint8_t session_token[HELLO_ID_BYTES];
    uint64_t session_id;    /* random, 63 bits */
    uint64_t staging_bytes; /* of the whole staging memory: see ring.h */
    char endpoint[128];     /* ZeroMQ endpoint for requests, NUL-terminated */
};

/* Instead of a welcome. The daemon closes after it. */
struct refusal {
    uint32_t magic;
    uint16_t major, minor; /* the daemon's own */
    uint32_t status;       /* status.h */
    char message[256];     /* what to do about it, NUL-terminated */
};

/* Daemon to client, with one descriptor: the memory of an arena that OpenArena asked for. */
struct arena_packet {
    uint32_t magic;
    uint32_t arena; /* as in ArenaResult */
    uint64_t stride_bytes, max_bytes;
    uint32_t is_writable, unused;
};

/*
 * Each copies a received packet of @num_bytes into *out and checks it. 0; STATUS_MALFORMED;
 * STATUS_UNSUPPORTED: another major version, or a flag that we do not know. *out_what then says why
 * (static text). Longer packets of newer minors pass: what they add is behind what we know.
 *
 * hello_check: the tenant's token is @token_bytes bytes at packet + sizeof(struct hello).
 * hello_check_answer: out->magic says which of the three kinds came; a refusal may be of any major.
 */
int hello_check(const void *packet, size_t num_bytes, struct hello *out, const char **out_what);

union hello_answer {
    uint32_t magic;
    struct welcome welcome;
    struct refusal refusal;
    struct arena_packet arena;
};
int hello_check_answer(const void *packet, size_t num_bytes, union hello_answer *out,
                       const char **out_what);

_Static_assert(sizeof(struct hello) == 48, "the layout is the protocol");
_Static_assert(sizeof(struct welcome) == 184, "the layout is the protocol");
_Static_assert(sizeof(struct refusal) == 268, "the layout is the protocol");
_Static_assert(sizeof(struct arena_packet) == 32, "the layout is the protocol");
