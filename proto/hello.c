/* proto/hello.c - is this packet of the session socket what it says it is? */
#include "proto/hello.h"

#include <string.h>

#include "proto/status.h"

enum {
    HELLO_FLAGS = HELLO_MAPPED | HELLO_MANUAL_PUBLISH | HELLO_ATTACH | HELLO_STORE_NONE |
                  HELLO_STORE_PROMPT | HELLO_STORE_ALL
};

/* What every hello and welcome starts with, in every version. */
struct version_head {
    uint32_t magic;
    uint16_t major, minor;
};

static int malformed(const char *what, const char **out_what)
{
    *out_what = what;
    return STATUS_MALFORMED;
}

int hello_check(const void *packet, size_t num_bytes, struct hello *out, const char **out_what)
{
    struct version_head head;
    struct hello hello;

    if (num_bytes < sizeof(head) || num_bytes > HELLO_MAX_BYTES)
        return malformed("hello: its size", out_what);
    memcpy(&head, packet, sizeof(head));
    if (head.magic != HELLO_MAGIC)
        return malformed("hello: its magic", out_what);
    if (head.major != HELLO_MAJOR) {
        *out_what = "hello: another major version of the protocol";
        return STATUS_UNSUPPORTED;
    }
    if (num_bytes < sizeof(hello))
        return malformed("hello: its size", out_what);

    memcpy(&hello, packet, sizeof(hello));
    size_t rest = num_bytes - sizeof(hello);
    if (hello.token_bytes > HELLO_MAX_TOKEN || hello.token_bytes > rest ||
        (hello.minor <= HELLO_MINOR && hello.token_bytes != rest))
        return malformed("hello: token_bytes", out_what);
    if (hello.flags & ~(uint32_t)HELLO_FLAGS) {
        *out_what = "hello: a flag of a newer version";
        return STATUS_UNSUPPORTED;
    }
    if (!(hello.flags & HELLO_ATTACH) != (hello.session_id == 0))
        return malformed("hello: session_id goes with the attach flag", out_what);

    *out = hello;
    return 0;
}

static int welcome_check(const struct welcome *welcome, const char **out_what)
{
    if (welcome->major != HELLO_MAJOR) {
        *out_what = "welcome: another major version of the protocol";
        return STATUS_UNSUPPORTED;
    }
    if (welcome->session_id == 0 || welcome->session_id >> 63)
        return malformed("welcome: session_id", out_what);
    if (!memchr(welcome->endpoint, '\0', sizeof(welcome->endpoint)) || !welcome->endpoint[0])
        return malformed("welcome: endpoint", out_what);
    return 0;
}

static int arena_check(const struct arena_packet *arena, const char **out_what)
{
    if (arena->stride_bytes == 0 || arena->max_bytes == 0)
        return malformed("arena: an empty one", out_what);
    return 0;
}

int hello_check_answer(const void *packet, size_t num_bytes, union hello_answer *out,
                       const char **out_what)
{
    union hello_answer answer;
    int status = 0;

    if (num_bytes < sizeof(answer.magic) || num_bytes > HELLO_MAX_BYTES)
        return malformed("answer: its size", out_what);
    memset(&answer, 0, sizeof(answer));
    memcpy(&answer, packet, num_bytes < sizeof(answer) ? num_bytes : sizeof(answer));

    switch (answer.magic) {
    case WELCOME_MAGIC:
        status = num_bytes < sizeof(answer.welcome) ? malformed("welcome: its size", out_what)
                                                    : welcome_check(&answer.welcome, out_what);
        break;
    case REFUSAL_MAGIC: /* readable whatever its major is; its text is cut, not refused */
        answer.refusal.message[sizeof(answer.refusal.message) - 1] = '\0';
        if (num_bytes < offsetof(struct refusal, message))
            status = malformed("refusal: its size", out_what);
        break;
    case ARENA_MAGIC:
        status = num_bytes < sizeof(answer.arena) ? malformed("arena: its size", out_what)
                                                  : arena_check(&answer.arena, out_what);
        break;
    default:
        status = malformed("answer: its magic", out_what);
    }
    if (!status)
        *out = answer;
    return status;
}
