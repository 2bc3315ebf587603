/*
 * proto/ring.h - staging: a session's own shared memory, with two rings and a data region.
 *
 *   | header, 4 KiB | submissions, RING_ENTRIES | completions, RING_ENTRIES | data ... |
 *
 * The client writes submissions and their data, the daemon completions. Head and tail count entries
 * for ever (index = count % RING_ENTRIES); whoever produces advances tail (release), whoever consumes
 * advances head (release). A consumer spins while CPUs are free, then sets its armed word, looks once
 * more, and sleeps on its eventfd; a producer that finds the word armed clears it and writes the
 * eventfd. The daemon copies an entry and whatever it checks before it believes it: what a client
 * writes over afterwards harms only itself.
 *
 * At most RING_ENTRIES submissions are outstanding (a credit is a completion that was consumed).
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    RING_ENTRIES = 256, /* a power of two */
    RING_HEADER_BYTES = 4096
};

#define RING_MAGIC UINT32_C(0x4B565347)

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
    uint64_t id;     /* comes back in the completion */
    uint32_t verb;   /* enum ring_verb */
    uint32_t flags;  /* enum ring_flag */
    uint64_t object; /* step; or sequence for publish, truncate, release, fork */
    uint64_t value;  /* step: number of rows; truncate: tokens; fork: the child */
    uint32_t layer;  /* attend */
    uint32_t dtype;  /* attend: enum wire_dtype of q, k, v, out */
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
    _Alignas(64) _Atomic uint64_t tail; /* by the producer */
    _Alignas(64) _Atomic uint64_t head; /* by the consumer */
    _Alignas(64) _Atomic uint32_t armed; /* by the consumer: wake me through the eventfd */
};

struct staging_header {
    uint32_t magic, version;
    uint64_t submissions_offset, completions_offset; /* from the start of staging */
    uint64_t data_offset, data_bytes;
    struct ring_words submissions, completions;
};

_Static_assert(sizeof(struct ring_row) == 24, "the layout is the protocol");
_Static_assert(sizeof(struct ring_submission) == 128, "the layout is the protocol");
_Static_assert(sizeof(struct ring_completion) == 32, "the layout is the protocol");
_Static_assert(sizeof(struct staging_header) <= RING_HEADER_BYTES, "fits its page");
