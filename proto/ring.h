/*
 * proto/ring.h - staging: a session's own shared memory, with two rings and a data region.
 *
 *   | header, 4 KiB | submissions, RING_ENTRIES | completions, RING_ENTRIES | data ... |
 *
 * The client writes submissions and their data, the daemon completions. Head and tail count entries
 * for ever (index = count % RING_ENTRIES); whoever produces advances tail (release), whoever
 * consumes advances head (release). A consumer spins while CPUs are free, then sets its armed word,
 * looks once more, and sleeps on its eventfd; a producer that finds the word armed clears it and
 * writes the eventfd. The daemon copies an entry and whatever it checks before it believes it: what
 * a client writes over afterwards harms only itself.
 *
 * At most RING_ENTRIES submissions are outstanding (a credit is a completion that was consumed).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RING_ENTRIES = 256, /* a power of two */
    RING_HEADER_BYTES = 4096
};

#define RING_MAGIC UINT32_C(0x4B565347)
#define RING_VERSION 1

/* The same verbs as on the wire, with the same meaning. */
enum ring_verb {
    RING_STEP = 1,
    RING_ATTEND,
    RING_END_STEP,
    RING_PUBLISH,
    RING_TRUNCATE,
    RING_RELEASE,
    RING_FORK
};

enum ring_flag {
    RING_WANT_LSE = 1,  /* attend */
    RING_HAS_SINKS = 2, /* attend */
    RING_ABANDON = 4    /* end step */
};

/* One row of a step, in the data region. */
struct ring_row {
    uint64_t sequence;
    uint64_t tokens_offset; /* u32 each, in the data region */
    uint32_t num_tokens, unused;
};

/* Offsets are into the data region, in bytes. */
struct ring_submission {
    uint64_t id;          /* comes back in the completion */
    uint32_t verb;        /* enum ring_verb */
    uint32_t flags;       /* enum ring_flag */
    uint64_t object;      /* step; or sequence for publish, truncate, release, fork */
    uint64_t value;       /* step: number of rows; truncate, publish: tokens; fork: the child */
    uint32_t layer;       /* attend */
    uint32_t dtype;       /* attend: enum wire_dtype of q, k, v, out */
    uint64_t rows_offset; /* step: struct ring_row each */
    uint64_t q_offset, k_offset, v_offset, out_offset, lse_offset, sinks_offset;
    float scale, soft_cap; /* 0: 1 / sqrt(head dim); none */
    uint64_t unused[3];
};

struct ring_completion {
    uint64_t id;
    uint32_t status; /* status.h */
    uint32_t value;  /* step: token rows of the batch */
    uint64_t object; /* step: its number */
    uint64_t unused;
};

/* Each word that the two sides share has a cache line of its own. */
struct ring_words {
    _Alignas(64) _Atomic uint64_t tail;  /* by the producer */
    _Alignas(64) _Atomic uint64_t head;  /* by the consumer */
    _Alignas(64) _Atomic uint32_t armed; /* by the consumer: wake me through the eventfd */
};

struct staging_header {
    uint32_t magic, version;
    uint64_t submissions_offset, completions_offset; /* from the start of staging */
    uint64_t data_offset, data_bytes;
    struct ring_words submissions, completions;
};

/* Where the parts of staging are, with @data_bytes of data. */
#define RING_SUBMISSIONS_OFFSET ((uint64_t)RING_HEADER_BYTES)
#define RING_COMPLETIONS_OFFSET                                                                    \
    (RING_SUBMISSIONS_OFFSET + RING_ENTRIES * sizeof(struct ring_submission))
#define RING_DATA_OFFSET                                                                           \
    ((RING_COMPLETIONS_OFFSET + RING_ENTRIES * sizeof(struct ring_completion) + 4095) & ~4095ull)

/* A new header; the daemon writes it, before the descriptor leaves it. Everything else is zero. */
void ring_header_init(struct staging_header *header, uint64_t data_bytes);

/* Of a mapping of @staging_bytes: 0, STATUS_MALFORMED, or STATUS_UNSUPPORTED. */
int ring_header_check(const struct staging_header *header, uint64_t staging_bytes);

/* Whether [@offset, @offset + @num_bytes) is inside the data region; nothing overflows. */
bool ring_span_fits(uint64_t offset, uint64_t num_bytes, uint64_t data_bytes);

/*
 * 0, STATUS_MALFORMED or STATUS_UNSUPPORTED (an unknown verb); *out_what then says why. For a copy
 * of the entry, never for the entry itself. What an attend spans depends on the model: the caller
 * checks it with ring_attend_check(), and each row of a step with ring_row_check().
 */
int ring_submission_check(const struct ring_submission *submission, uint64_t data_bytes,
                          const char **out_what);
int ring_row_check(const struct ring_row *row, uint64_t data_bytes, const char **out_what);

/* Bytes of each tensor of an attend. lse and sinks count only with their flag. */
struct ring_attend_bytes {
    uint64_t q, k, v, out, lse, sinks;
};
int ring_attend_check(const struct ring_submission *submission,
                      const struct ring_attend_bytes *bytes, uint64_t data_bytes,
                      const char **out_what);

_Static_assert(sizeof(struct ring_row) == 24, "the layout is the protocol");
_Static_assert(sizeof(struct ring_submission) == 128, "the layout is the protocol");
_Static_assert(sizeof(struct ring_completion) == 32, "the layout is the protocol");
_Static_assert(sizeof(struct staging_header) <= RING_HEADER_BYTES, "fits its page");
